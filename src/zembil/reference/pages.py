"""/openapi.json, and /docs: the reference for people, with all that it needs served from here."""

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route as PageRoute

from zembil.config import Settings
from zembil.reference.document import document
from zembil.web.html import PAGE_HEADERS
from zembil.web.routing import Route
from zembil.web.static_files import Content, StaticFile
from zembil.wire import encoded

DOCUMENT_PATH, PAGE_PATH = "/openapi.json", "/docs"

_STATIC = files("zembil.reference").joinpath("static")
_FILES = {
    "swagger_js": StaticFile("zembil.reference", "swagger-ui/swagger-ui-bundle.js"),
    "swagger_css": StaticFile("zembil.reference", "swagger-ui/swagger-ui.css"),
    "reference_js": StaticFile("zembil.reference", "reference.js"),
    "reference_css": StaticFile("zembil.reference", "reference.css"),
}


class ReferencePages:
    """The reference of these routes."""

    def __init__(self, api_routes: list[Route], settings: Settings) -> None:
        self._api_routes = api_routes
        self._settings = settings
        self._document: Content | None = None

    def routes(self) -> list[PageRoute]:
        return [
            PageRoute(DOCUMENT_PATH, self.show_document),
            PageRoute(PAGE_PATH, self.show_page),
            *(file.route() for file in _FILES.values()),
        ]

    async def show_document(self, request: Request) -> Response:
        if self._document is None:
            self._document = Content.of(encoded(document(self._api_routes, self._settings)))
        headers = {"Cache-Control": "public, max-age=60", "X-Content-Type-Options": "nosniff"}
        return self._document.answer(request, "application/json", headers)

    async def show_page(self, _: Request) -> Response:
        html = _STATIC.joinpath("reference.html").read_text(encoding="utf-8")
        return HTMLResponse(html.format(**{name: file.path for name, file in _FILES.items()}), headers=PAGE_HEADERS)
