"""Builds the HTTP application: the API at /v1 and /sandbox/v1, the payment pages, the dashboard, health."""

import asyncio
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as PageRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from zembil.checkout.live import Watchers
from zembil.checkout.pages import PaymentPages
from zembil.config import Settings
from zembil.customers.api import CustomerEndpoints
from zembil.dashboard.pages import Dashboard
from zembil.db.clock import Clock
from zembil.db.pool import Database, reading
from zembil.errors import ApiError, MethodNotAllowed, ResourceNotFound, ServiceUnavailable
from zembil.management import metrics
from zembil.management.api import ManagementEndpoints
from zembil.management.keys import KeyEndpoints
from zembil.payments.api import PaymentEndpoints
from zembil.payments.charge_api import ChargeEndpoints
from zembil.payments.charger import Charger
from zembil.payments.model import link_prefix
from zembil.payments.operations import PaymentWriter
from zembil.qr import LinkCodes
from zembil.reference.pages import ReferencePages
from zembil.refunds.api import RefundEndpoints
from zembil.sandbox_tools.api import SandboxEndpoints
from zembil.telemetry import log
from zembil.web.auth import KeyRing
from zembil.web.endpoints import Endpoints
from zembil.web.html import PageHeaders
from zembil.web.idempotency import Once
from zembil.web.rate_limits import FailedAuthentications, RateLimiter
from zembil.web.request_log import RequestLog
from zembil.webhooks.api import WebhookEndpoints
from zembil.webhooks.delivery_api import DeliveryEndpoints
from zembil.webhooks.event_api import EventEndpoints
from zembil.webhooks.sender import Bell


@asynccontextmanager
async def application(
    db: Database, clock: Clock, settings: Settings, bell: Bell, stopping: asyncio.Event
) -> AsyncGenerator[ASGIApp]:
    """The application for the life of a process; what was accepted is written before it ends.

    Once `stopping` is set, pages that wait for news are let go.
    """
    key_ring = KeyRing(db, clock, settings)
    writer = PaymentWriter(db)
    codes = LinkCodes.for_links(link_prefix(settings.public_url))
    once = Once(db, settings.secret_key)
    charger = Charger(db, clock, settings, bell)
    routes = [
        *PaymentEndpoints(db, settings, writer, codes, bell).routes(),
        *WebhookEndpoints(db, settings, once).routes(),
        *DeliveryEndpoints(db, settings, once, bell).routes(),
        *EventEndpoints(db).routes(),
        *CustomerEndpoints(db, once, bell).routes(),
        *ChargeEndpoints(charger, once).routes(),
        *RefundEndpoints(db, once, bell).routes(),
        *KeyEndpoints(db, once, key_ring).routes(),
        *ManagementEndpoints(db, charger).routes(),
        *SandboxEndpoints(settings, key_ring, once, bell).routes(),
    ]
    pages = PaymentPages(charger, settings, codes, Watchers(db, stopping))
    dashboard = Dashboard.make(charger, key_ring)
    reference = ReferencePages(routes, settings)
    request_log = RequestLog(db, is_kept=settings.request_log_days > 0)
    limiter = RateLimiter(db, settings.rate_limits)
    failures = FailedAuthentications(
        settings.rate_limits.failed_authentications, trusted_proxies=settings.trusted_proxies
    )

    def endpoints(*, livemode: bool, prefix: str) -> Endpoints:
        return Endpoints(
            routes,
            key_ring=key_ring,
            limiter=limiter,
            failures=failures,
            request_log=request_log,
            clock=clock,
            livemode=livemode,
            prefix=prefix,
        )

    besides = [asyncio.create_task(limiter.run()), asyncio.create_task(request_log.run())]
    try:
        yield _Dispatch(
            live=endpoints(livemode=True, prefix="/v1"),
            sandbox=endpoints(livemode=False, prefix="/sandbox/v1"),
            pages=PageHeaders(_pages(pages, dashboard, reference, db, settings), public_url=settings.public_url),
        )
    finally:
        for task in besides:
            task.cancel()
        await asyncio.wait(besides)
        await writer.drain()
        await key_ring.drain()
        await request_log.flush()


class _Dispatch:
    """Sends a request to the API of its environment, or to the pages."""

    def __init__(self, *, live: ASGIApp, sandbox: ASGIApp, pages: ASGIApp) -> None:
        self._live, self._sandbox, self._pages = live, sandbox, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/sandbox/v1/") or path == "/sandbox/v1":
            await self._sandbox(scope, receive, send)
        elif path.startswith("/v1/") or path == "/v1":
            await self._live(scope, receive, send)
        else:
            await self._pages(scope, receive, send)


def _pages(
    payment_pages: PaymentPages, dashboard: Dashboard, reference: ReferencePages, db: Database, settings: Settings
) -> Starlette:
    async def is_alive(_: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def is_ready(_: Request) -> Response:
        try:
            async with reading(db) as conn:
                await conn.fetchval("SELECT 1")
        except ServiceUnavailable:
            return JSONResponse({"status": "the database is away"}, status_code=503)
        return JSONResponse({"status": "ready"})

    async def tell_metrics(request: Request) -> Response:
        if not settings.metrics_token:
            raise ResourceNotFound
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {settings.metrics_token}".encode()):
            return Response("The value of ZEMBIL_METRICS_TOKEN opens this.", 401, {"WWW-Authenticate": "Bearer"})
        async with reading(db) as conn:
            return Response(await metrics.exposition(conn), media_type=metrics.CONTENT_TYPE)

    async def refused(request: Request, error: Exception) -> Response:
        area = dashboard if dashboard.has(request) else payment_pages
        return await area.refused(request, error)

    async def not_routed(request: Request, error: Exception) -> Response:
        headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
        refusal = MethodNotAllowed(headers["Allow"]) if "Allow" in headers else ResourceNotFound()
        return await refused(request, refusal)

    async def gone(_: Request, __: Exception) -> Response:
        return Response(status_code=400)  # for nobody: the browser left before its request was complete

    async def failed(request: Request, error: Exception) -> Response:
        log.exception("page.failed", path=request.url.path, exc_info=error)
        return await refused(request, error)

    pages = Starlette(
        routes=[
            PageRoute("/livez", is_alive),
            PageRoute("/readyz", is_ready),
            PageRoute("/metrics", tell_metrics),
            *reference.routes(),
            *payment_pages.routes(),
            *dashboard.routes(),
        ],
        exception_handlers={
            ApiError: refused,
            HTTPException: not_routed,
            ClientDisconnect: gone,
            Exception: failed,
        },
    )
    pages.router.redirect_slashes = False  # it would redirect to whatever the Host header says
    return pages
