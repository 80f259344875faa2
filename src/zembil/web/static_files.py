"""Files that pages need. Their content is part of their address, so that browsers may keep them for good."""

import asyncio
import gzip
import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?\s*(?:,|$)")


def takes_gzip(request: Request) -> bool:
    return _GZIP.search(request.headers.get("accept-encoding", "")) is not None


@dataclass(frozen=True, slots=True)
class Content:
    """Something that is served as it is, compressed once."""

    body: bytes
    zipped: bytes = field(repr=False)
    etag: str

    @classmethod
    def of(cls, body: bytes) -> "Content":
        # The tag is weak: zipped and plain answers share it.
        return cls(body, gzip.compress(body, mtime=0), f'W/"{hashlib.sha256(body).hexdigest()[:32]}"')

    def answer(self, request: Request, media_type: str, headers: dict[str, str]) -> Response:
        shared = {**headers, "ETag": self.etag, "Vary": "Accept-Encoding"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=shared)
        if takes_gzip(request):
            return Response(self.zipped, media_type=media_type, headers={**shared, "Content-Encoding": "gzip"})
        return Response(self.body, media_type=media_type, headers=shared)


class StaticFile:
    """A file of the package's folder `static`, behind those that it builds on."""

    def __init__(self, package: str, name: str, *, after: bytes = b"") -> None:
        self._body = after + files(package).joinpath("static", *name.split("/")).read_bytes()
        stem, _, ending = name.rpartition("/")[2].rpartition(".")
        self._media_type = _MEDIA_TYPES[ending]
        self.path = f"/static/{stem}-{hashlib.sha256(self._body).hexdigest()[:12]}.{ending}"

    def route(self) -> Route:
        return Route(self.path, self._answer)

    @cached_property
    def _content(self) -> Content:
        return Content.of(self._body)

    async def _answer(self, request: Request) -> Response:
        content = await asyncio.to_thread(lambda: self._content)  # zipping a large one takes a while, once
        return content.answer(request, self._media_type, _FOREVER)


# What the payer's pages and the dashboard have in common: the colours, the sizes, the letters.
LOOK = files("zembil.web").joinpath("static", "look.css").read_bytes()
