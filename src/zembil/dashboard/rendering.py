"""Templates, what they may call, and the files beside them."""

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from zembil import money
from zembil.web.html import PAGE_HEADERS
from zembil.web.static_files import LOOK, StaticFile

_UNITS = ((timedelta(days=1), "day"), (timedelta(hours=1), "hour"), (timedelta(minutes=1), "minute"))

Headers = tuple[tuple[str, str], ...]


_FILES = {
    "dashboard.css": StaticFile("zembil.dashboard", "dashboard.css", after=LOOK),
    "dashboard.js": StaticFile("zembil.dashboard", "dashboard.js"),
}


def static_routes() -> list[Route]:
    return [file.route() for file in _FILES.values()]


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
_everywhere: dict[str, Any] = {
    "files": {name: file.path for name, file in _FILES.items()},
    "amount": amount,
    "browser_name": browser_name,
}


def rendered(template: str, context: Mapping[str, Any], *, status: int = 200, headers: Headers = ()) -> Response:
    html = _templates.get_template(template).render({**_everywhere, **context})
    return HTMLResponse(html, status_code=status, headers={**PAGE_HEADERS, **dict(headers)})
