"""What every page has: its headers, and forms that only its own pages can send."""

import hashlib
import hmac
from urllib.parse import parse_qsl

from starlette.requests import Request

from zembil.errors import PayloadTooLarge, PermissionDenied

_FORM_BYTES_MAX = 16 * 1024

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
    """The fields of a form that our own page sent. Raises PermissionDenied for any other, PayloadTooLarge."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _FORM_BYTES_MAX:
            raise PayloadTooLarge(_FORM_BYTES_MAX)
    fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=100))
    if not _sent_from_here(request, public_url) or not hmac.compare_digest(
        fields.get("form_token", "").encode(), form_token(secret_key, page).encode()
    ):
        raise PermissionDenied("This form was not sent from our page; open the page again and repeat.")
    return fields


def _sent_from_here(request: Request, public_url: str) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or origin in (public_url, f"{request.url.scheme}://{request.url.netloc}")
