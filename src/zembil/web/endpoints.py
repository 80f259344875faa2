"""The way of every API request: size, authentication, rate limit, path and method, role, media type, the endpoint.

The order is decided (decisions, section 1).
"""

import asyncio
import time
from collections.abc import Iterable

from starlette.types import Message, Receive, Scope, Send

from zembil.accounts.model import Principal
from zembil.accounts.permissions import allowed
from zembil.db.clock import Clock
from zembil.errors import (
    ApiError,
    AuthenticationFailed,
    BodyTooSlow,
    PayloadTooLarge,
    PermissionDenied,
    UnsupportedMediaType,
)
from zembil.telemetry import begin_request, log
from zembil.web.auth import KeyRing
from zembil.web.idempotency import idempotency_key
from zembil.web.rate_limits import FailedAuthentications, RateLimiter
from zembil.web.request_log import RequestLog
from zembil.web.responses import REQUEST_ID_HEADER, Answer, Headers, refusal, send_answer
from zembil.web.routing import Call, Route, Routes

BODY_BYTES_MAX = 64 * 1024
BODY_SECONDS_MAX = 20

_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"})
_KEYED = frozenset({"POST", "PATCH"})
_JSON_TYPES = frozenset({b"application/json", b"application/json;charset=utf-8"})
_INTERNAL_ERROR = Answer(
    500,
    b'{"status":"error","error":{"code":"internal_error","message":"Something went wrong on our side. '
    b'Nothing more is known to the outside; the request id finds it in our logs."}}',
)


class Endpoints:
    """An ASGI application: one environment's part of the API."""

    def __init__(
        self,
        routes: Iterable[Route],
        *,
        key_ring: KeyRing,
        limiter: RateLimiter,
        failures: FailedAuthentications,
        request_log: RequestLog,
        clock: Clock,
        livemode: bool,
        prefix: str,
    ) -> None:
        self._routes = Routes(routes)
        self._key_ring = key_ring
        self._limiter = limiter
        self._failures = failures
        self._request_log = request_log
        self._clock = clock
        self._livemode = livemode
        self._prefix_length = len(prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = begin_request()
        began = time.monotonic()
        limits: Headers = ()
        headers, body, principal = _Headers(scope), b"", None
        try:
            if scope["method"] not in _BODILESS or headers.announce_a_body:
                body = await _read(receive, headers)
            principal = await self._principal(scope, headers)
            limits = await self._limiter.admit(principal)
            answer = await self._answer(scope, headers, body, principal)
        except ApiError as error:
            answer = refusal(error)
        except _ClientWentAway:
            return
        except Exception:  # noqa: BLE001  (a bug of ours: the client gets the envelope, the log gets the rest)
            log.exception("request.failed", method=scope["method"], path=scope["path"])
            answer = _INTERNAL_ERROR
        await send_answer(send, answer, ((REQUEST_ID_HEADER, request_id.encode("ascii")), *limits))
        if principal is not None:
            key = headers.idempotency_keys[0] if headers.idempotency_keys else None
            self._request_log.note(request_id, principal, scope, body, key, answer, began=began)

    async def _principal(self, scope: Scope, headers: "_Headers") -> Principal:
        try:
            return await self._key_ring.principal(headers.authorization, livemode=self._livemode)
        except AuthenticationFailed:
            self._failures.count(scope)
            raise

    async def _answer(self, scope: Scope, headers: "_Headers", body: bytes, principal: Principal) -> Answer:
        method: str = scope["method"]
        route, values = self._routes.find(method, scope["path"][self._prefix_length :], livemode=self._livemode)
        if not allowed(principal.role, route.permission, livemode=self._livemode):
            raise PermissionDenied(f"A key with the role {principal.role.value} may not {route.permission.value}.")
        if body:
            headers.demand_json()
        key = None
        if headers.idempotency_keys and method in _KEYED:
            key = idempotency_key(headers.idempotency_keys, method=method, path=scope["path"], body=body)
        return await route.answer(Call(principal, values, scope["query_string"], body, self._clock.now(), key))


class _ClientWentAway(Exception):
    """The connection closed before the request was complete; nobody is there to be answered."""


class _Headers:
    """The few headers that matter, found in one pass."""

    __slots__ = (
        "authorization", "content_encoding", "content_length", "content_type", "idempotency_keys", "is_chunked",
    )  # fmt: skip

    def __init__(self, scope: Scope) -> None:
        self.authorization: bytes | None = None
        self.content_type: bytes | None = None
        self.content_encoding: bytes | None = None
        self.content_length = 0
        self.is_chunked = False
        self.idempotency_keys: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"authorization":
                # Two of them are two answers to one question: refused as none.
                self.authorization = value if self.authorization is None else b""
            elif name == b"content-type":
                self.content_type = value
            elif name == b"content-encoding":
                self.content_encoding = value
            elif name == b"content-length":
                self.content_length = int(value) if value.isdigit() and len(value) < 20 else BODY_BYTES_MAX + 1
            elif name == b"transfer-encoding":
                self.is_chunked = True
            elif name == b"idempotency-key":
                self.idempotency_keys.append(value)

    @property
    def announce_a_body(self) -> bool:
        return self.content_length > 0 or self.is_chunked

    def demand_json(self) -> None:
        if self.content_encoding not in (None, b"identity"):
            raise UnsupportedMediaType("Send the body as it is, without Content-Encoding.")
        kind = (self.content_type or b"").lower().replace(b" ", b"").replace(b'"', b"")
        if kind not in _JSON_TYPES:
            raise UnsupportedMediaType(
                "Send the body as JSON in UTF-8, with the header Content-Type: application/json."
            )


async def _read(receive: Receive, headers: _Headers) -> bytes:
    """The body, bounded in size and in time."""
    if headers.content_length > BODY_BYTES_MAX:
        raise PayloadTooLarge(BODY_BYTES_MAX)
    try:
        # Also the first receive: a body that is announced need not begin.
        async with asyncio.timeout(BODY_SECONDS_MAX):
            message = await receive()
            if message["type"] != "http.request" or message["more_body"]:
                return await _read_on(receive, message)
    except TimeoutError:
        raise BodyTooSlow(BODY_SECONDS_MAX) from None
    body: bytes = message["body"]
    if len(body) > BODY_BYTES_MAX:
        raise PayloadTooLarge(BODY_BYTES_MAX)
    return body


async def _read_on(receive: Receive, message: Message) -> bytes:
    body = bytearray()
    while True:
        if message["type"] == "http.disconnect":
            raise _ClientWentAway
        body += message["body"]
        if len(body) > BODY_BYTES_MAX:
            raise PayloadTooLarge(BODY_BYTES_MAX)
        if not message["more_body"]:
            return bytes(body)
        message = await receive()
