"""What dev, serve and worker share: one process that runs until it is told to stop, and stops in order."""

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack

import uvicorn
import uvloop
from starlette.types import ASGIApp

from zembil.app import application
from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.pool import Database, connected, demand_durability
from zembil.errors import ConfigurationError
from zembil.web.protocol import BoundedProtocol
from zembil.webhooks.sender import Bell
from zembil.worker import run_worker

_KEEP_ALIVE_SECONDS = 75
_STOP_SECONDS_MAX = 10
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Ready = Callable[[Database, Clock], Awaitable[None]]
Companion = Callable[[asyncio.Event], Coroutine[None, None, None]]


def run(
    settings: Settings,
    *,
    listener: socket.socket | None,
    with_worker: bool,
    ready: Ready | None = None,
    companion: Companion | None = None,
) -> None:
    """Serve on `listener` (None: nothing to serve), with or without the worker, until SIGTERM or Ctrl-C.

    `companion` runs beside them until its event is set; if it fails, everything stops.
    """
    try:
        uvloop.run(_run(settings, listener, with_worker, ready, companion))
    finally:
        # What is left to stop is our PostgreSQL; an impatient second signal must not end us before it has ended.
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


async def _run(
    settings: Settings,
    listener: socket.socket | None,
    with_worker: bool,
    ready: Ready | None,
    companion: Companion | None,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(
            connected(settings.database_url, connections_max=settings.database_connections_max)
        )
        await demand_durability(db)
        clock, bell = Clock(), Bell()
        await clock.measure(db)
        work: list[asyncio.Task[None]] = []
        if listener is not None:
            app = await stack.enter_async_context(application(db, clock, settings, bell, stopping))
            work.append(asyncio.create_task(_serve(app, listener, stopping)))
        if with_worker:
            work.append(asyncio.create_task(run_worker(db, clock, settings, bell, stopping)))
        if companion is not None:
            work.append(asyncio.create_task(companion(stopping)))
        try:
            if ready is not None:
                await ready(db, clock)
            # What was imported stays for good; the collector need not look at it again.
            gc.collect()
            gc.freeze()
            await _until_told_or_failed(work, stopping)
        finally:
            await _stop(work, stopping)


async def _until_told_or_failed(work: list[asyncio.Task[None]], stopping: asyncio.Event) -> None:
    """Wait for the signal; a part that ends by itself has failed, and then everything stops."""
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait([told, *work], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()


async def _stop(work: list[asyncio.Task[None]], stopping: asyncio.Event) -> None:
    """Let every part finish while the database is still there; then raise what one of them failed with."""
    stopping.set()
    if work:
        await asyncio.wait(work)
    for part in work:
        part.result()


async def _serve(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event) -> None:
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.ERROR)
    server = _Server(
        uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS_MAX,
            backlog=1024,
        )
    )
    serving = asyncio.create_task(server.serve([listener]))
    await _until_told_or_failed([serving], stopping)
    server.should_exit = True
    await serving


class _Server(uvicorn.Server):
    """uvicorn's server, with the signals left to us: more than it must stop, and in order."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one. Raises ConfigurationError that says what else to choose."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {host}:{port} ({error.strerror}). Choose another port with --port; 0 takes any free one."
        ) from None
    listener.listen(1024)
    return listener
