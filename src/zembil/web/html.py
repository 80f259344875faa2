"""What every page has: its headers, and forms that only its own pages can send."""

import asyncio
import hashlib
import hmac
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zembil.errors import BodyTooSlow, PayloadTooLarge, PermissionDenied
from zembil.telemetry import begin_request
from zembil.web.responses import REQUEST_ID_HEADER

FORM_BYTES_MAX = 16 * 1024
_FORM_SECONDS_MAX = 20
_FIELDS_MAX = 100

_STAY_ON_HTTPS = (b"strict-transport-security", b"max-age=63072000")

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "Cache-Control": "no-store",
}


def form_token(secret_key: bytes, page: str) -> str:
    """The hidden field that a page puts into its forms, so that no other site's form is taken for its own."""
    return hmac.new(secret_key, b"form|" + page.encode(), hashlib.sha256).hexdigest()[:32]


async def own_form(request: Request, secret_key: bytes, page: str, *, public_url: str) -> dict[str, str]:
    """The fields of a form that our own page sent; of a repeated one the last.

    Raises PermissionDenied for any other, PayloadTooLarge, BodyTooSlow.
    """
    return dict(await own_fields(request, secret_key, page, public_url=public_url))


async def own_fields(
    request: Request, secret_key: bytes, page: str, *, public_url: str, bytes_max: int = FORM_BYTES_MAX
) -> list[tuple[str, str]]:
    """Like `own_form`, with every field as often as it was sent."""
    fields = _fields(await _body(request, bytes_max))
    given = dict(fields).get("form_token", "")
    if not _may_be_sent_from_here(request, public_url) or not hmac.compare_digest(
        given.encode(), form_token(secret_key, page).encode()
    ):
        raise PermissionDenied("This form was not sent from our page; open the page again and repeat.")
    return fields


async def _body(request: Request, bytes_max: int) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(_FORM_SECONDS_MAX):
            async for part in request.stream():
                body += part
                if len(body) > bytes_max:
                    raise PayloadTooLarge(bytes_max)
    except TimeoutError:
        raise BodyTooSlow(_FORM_SECONDS_MAX) from None
    return bytes(body)


def _fields(body: bytes) -> list[tuple[str, str]]:
    """The fields of a form, or none if there are more of them than any of our forms has."""
    try:
        return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return []


def _may_be_sent_from_here(request: Request, public_url: str) -> bool:
    """Whether the browser does not say otherwise; the token in the form is what proves it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    # Over plain http, and in older browsers, our own forms come without a site, and with the origin "null":
    # Referrer-Policy: no-referrer hides it from us too.
    return origin in (None, "null", public_url, f"{request.url.scheme}://{request.url.netloc}")


class PageHeaders:
    """Gives every answer of the pages its request id; keeps browsers on https where the public address is https."""

    def __init__(self, pages: ASGIApp, *, public_url: str) -> None:
        self._pages = pages
        self._fixed = [_STAY_ON_HTTPS] if public_url.startswith("https://") else []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*self._fixed, (REQUEST_ID_HEADER, begin_request().encode("ascii"))]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._pages(scope, receive, send_with_headers)
