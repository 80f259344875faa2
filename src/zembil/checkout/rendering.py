"""Makes answers of templates: in the reader's language, compressed, with the headers of every page."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from zembil.checkout.languages import LANGUAGES, Language, language_for
from zembil.web.html import PAGE_HEADERS

ExtraHeaders = tuple[tuple[str, str], ...]

_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?\s*(?:,|$)")
_COMPRESSION = 6


@pass_context
def _gettext(context: Context, text: str) -> str:
    return context["reader"].language.gettext(text)


@pass_context
def _ngettext(context: Context, one: str, many: str, count: int) -> str:
    return context["reader"].language.ngettext(one, many, count)


_templates = Environment(
    loader=PackageLoader("zembil.checkout"),
    autoescape=True,
    extensions=["jinja2.ext.i18n"],
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,  # or every page would ask the file system whether its templates have changed
)
_templates.install_gettext_callables(_gettext, _ngettext, newstyle=True)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who gets a page: in which language, and whether that was chosen on the page."""

    language: Language
    query: str  # for the addresses on the page: a chosen language stays chosen
    takes_gzip: bool

    @property
    def other_language(self) -> Language:
        return next(language for language in LANGUAGES.values() if language != self.language)


def reader_of(request: Request) -> Reader:
    asked = request.query_params.get("lang")
    return Reader(
        language_for(asked, request.headers.get("accept-language", "")),
        f"?lang={asked}" if asked in LANGUAGES else "",
        _GZIP.search(request.headers.get("accept-encoding", "")) is not None,
    )


def rendered(template: str, page: object, reader: Reader, *, status: int = 200, headers: ExtraHeaders = ()) -> Response:
    html = _templates.get_template(template).render(page=page, reader=reader).encode()
    given = {**PAGE_HEADERS, "Vary": "Accept-Encoding, Accept-Language", **dict(headers)}
    if reader.takes_gzip:
        # Compressed beside what a stranger sends, a secret could be guessed by the length of the answer (BREACH). There
        # is none here: who can ask for a page has its link, and the link is all there is to know (decision 16).
        html = gzip.compress(html, _COMPRESSION, mtime=0)
        given["Content-Encoding"] = "gzip"
    return Response(html, status_code=status, headers=given, media_type="text/html")


def sent_to(path: str) -> Response:
    return RedirectResponse(path, status_code=303, headers=PAGE_HEADERS)


class StaticFile:
    """A file that every page uses: compressed once, its content in its address, kept by browsers for good."""

    def __init__(self, name: str, media_type: str) -> None:
        self._content = files("zembil.checkout").joinpath("static", name).read_bytes()
        self._compressed = gzip.compress(self._content, 9, mtime=0)
        self._media_type = media_type
        stem, _, suffix = name.partition(".")
        self.path = f"/static/{stem}-{hashlib.sha256(self._content).hexdigest()[:12]}.{suffix}"

    def route(self) -> Route:
        return Route(self.path, self.answer)

    async def answer(self, request: Request) -> Response:
        headers: dict[str, Any] = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
            "Vary": "Accept-Encoding",
        }
        if not reader_of(request).takes_gzip:
            return Response(self._content, media_type=self._media_type, headers=headers)
        return Response(self._compressed, media_type=self._media_type, headers={**headers, "Content-Encoding": "gzip"})


STYLESHEET = StaticFile("payment.css", "text/css")
SCRIPT = StaticFile("payment.js", "text/javascript")
