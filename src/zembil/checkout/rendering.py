"""Makes answers of templates: in the reader's language, compressed, with the headers of every page."""

import gzip
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from zembil.checkout.languages import LANGUAGES, Language, language_for
from zembil.web.html import PAGE_HEADERS
from zembil.web.static_files import LOOK, StaticFile, takes_gzip

ExtraHeaders = tuple[tuple[str, str], ...]

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
        takes_gzip(request),
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


STYLESHEET = StaticFile("zembil.checkout", "payment.css", after=LOOK)
SCRIPT = StaticFile("zembil.checkout", "payment.js")
