"""/openapi.json, and /docs: the reference for people, with all that it needs served from here."""

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as PageRoute

from zembil.config import Settings
from zembil.reference.document import document
from zembil.web.html import PAGE_HEADERS
from zembil.web.routing import Route
from zembil.wire import encoded

DOCUMENT_PATH, PAGE_PATH = "/openapi.json", "/docs"

_STATIC = files("zembil.reference").joinpath("static")
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
_ASSETS = {
    "swagger_js": ("swagger-ui/swagger-ui-bundle.js", "text/javascript"),
    "swagger_css": ("swagger-ui/swagger-ui.css", "text/css"),
    "reference_js": ("reference.js", "text/javascript"),
    "reference_css": ("reference.css", "text/css"),
}


@dataclass(frozen=True, slots=True)
class _File:
    """Something that is served as it is; made when it is first asked for."""

    body: bytes
    zipped: bytes = field(repr=False)
    etag: str

    def answer(self, request: Request, media_type: str, headers: dict[str, str]) -> Response:
        shared = {**headers, "ETag": self.etag, "Vary": "Accept-Encoding"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=shared)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(self.zipped, media_type=media_type, headers={**shared, "Content-Encoding": "gzip"})
        return Response(self.body, media_type=media_type, headers=shared)


def _file(body: bytes) -> _File:
    # Weak: zipped and plain answers share it.
    return _File(body, gzip.compress(body, mtime=0), f'W/"{hashlib.sha256(body).hexdigest()[:32]}"')


def _content(name: str) -> bytes:
    return _STATIC.joinpath(*_ASSETS[name][0].split("/")).read_bytes()


@cache
def _asset(name: str) -> _File:
    return _file(_content(name))


@cache
def _asset_path(name: str) -> str:
    """Where an asset is found; its content is part of the name, so that it may be kept for good."""
    stem, _, ending = _ASSETS[name][0].rpartition("/")[2].rpartition(".")
    return f"/static/{stem}-{hashlib.sha256(_content(name)).hexdigest()[:12]}.{ending}"


class ReferencePages:
    """The reference of these routes."""

    def __init__(self, api_routes: list[Route], settings: Settings) -> None:
        self._api_routes = api_routes
        self._settings = settings
        self._document: _File | None = None

    def routes(self) -> list[PageRoute]:
        return [
            PageRoute(DOCUMENT_PATH, self.show_document),
            PageRoute(PAGE_PATH, self.show_page),
            *(PageRoute(_asset_path(name), _shown_asset(name)) for name in _ASSETS),
        ]

    async def show_document(self, request: Request) -> Response:
        if self._document is None:
            self._document = _file(encoded(document(self._api_routes, self._settings)))
        headers = {"Cache-Control": "public, max-age=60", "X-Content-Type-Options": "nosniff"}
        return self._document.answer(request, "application/json", headers)

    async def show_page(self, _: Request) -> Response:
        html = _STATIC.joinpath("reference.html").read_text(encoding="utf-8")
        return HTMLResponse(html.format(**{name: _asset_path(name) for name in _ASSETS}), headers=PAGE_HEADERS)


def _shown_asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        asset = await asyncio.to_thread(_asset, name)  # zipping takes a while, once
        return asset.answer(request, _ASSETS[name][1], _FOREVER)

    return show
