"""Templates, what they may call, and the files beside them."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from zembil import money
from zembil.web.html import PAGE_HEADERS

_STATIC = files("zembil.dashboard").joinpath("static")
_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript"}
_UNITS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))

Headers = tuple[tuple[str, str], ...]


@cache
def _content(name: str) -> bytes:
    return _STATIC.joinpath(*name.split("/")).read_bytes()


def _static_path(name: str) -> str:
    stem, _, ending = name.rpartition("/")[2].partition(".")
    return f"/static/{stem}-{hashlib.sha256(_content(name)).hexdigest()[:12]}.{ending}"


_FILES = {name: _static_path(name) for name in ("dashboard.css", "dashboard.js", "htmx/htmx.min.js")}


def static_routes() -> list[Route]:
    """The files, at addresses that change with them: browsers may keep them for good."""

    def route(name: str) -> Route:
        async def answer(_: Request) -> Response:
            headers = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
            return Response(_content(name), media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)

        return Route(_FILES[name], answer)

    return [route(name) for name in _FILES]


def ago(at: datetime, now: datetime) -> str:
    """How long ago, or how soon, as people say it."""
    distance = abs(now - at)
    if distance < _UNITS[-1][0]:
        return "just now" if at <= now else "in a moment"
    unit, name = next(pair for pair in _UNITS if distance >= pair[0])
    count = distance // unit
    words = f"{count} {name}" if count == 1 else f"{count} {name}s"
    return f"{words} ago" if at <= now else f"in {words}"


def exact(at: datetime, zone: tzinfo) -> str:
    """The instant as it stands on hover and in tables: `21 Nov 2026, 12:54:00 EAT`."""
    local = at.astimezone(zone)
    return f"{local.day} {local:%b %Y, %H:%M:%S %Z}"


def instant(at: datetime | None, *, now: datetime, zone: tzinfo) -> Markup:
    """`3 minutes ago`, with the exact instant on hover and for machines; a dash for never."""
    if at is None:
        return Markup("–")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(timespec="milliseconds"), exact(at, zone), ago(at, now)
    )


def browser_name(user_agent: str) -> str:
    """`Firefox on Android`, as far as a browser's own words say; the order settles what several of them claim to be."""
    browsers = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari"}
    systems = {"Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "Windows": "Windows", "Mac OS": "Mac"}
    browser = next((name for sign, name in browsers.items() if sign in user_agent), "A browser")
    system = next((name for sign, name in {**systems, "Linux": "Linux"}.items() if sign in user_agent), None)
    return f"{browser} on {system}" if system else browser


def amount(santim: int) -> Markup:
    """Money in words and figures that line up."""
    return Markup('<span class="money">{} <small>{}</small></span>').format(money.shown(santim), money.CURRENCY)


_templates = Environment(
    loader=PackageLoader("zembil.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_everywhere: dict[str, Any] = {"files": _FILES, "amount": amount, "browser_name": browser_name}


def rendered(template: str, context: Mapping[str, Any], *, status: int = 200, headers: Headers = ()) -> Response:
    html = _templates.get_template(template).render({**_everywhere, **context})
    return HTMLResponse(html, status_code=status, headers={**PAGE_HEADERS, **dict(headers)})
