"""Sends what is due: claims deliveries, posts them, records what came of it. Nothing is sent inside a transaction."""

import asyncio
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import lru_cache
from typing import cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from zembil import __version__, ids
from zembil.accounts import secrets
from zembil.config import Networks, Settings
from zembil.db.clock import Clock
from zembil.db.grouped import GroupedWriter
from zembil.db.pool import Connection, Database, transaction
from zembil.errors import ServiceUnavailable
from zembil.ids import Prefix
from zembil.telemetry import log
from zembil.webhooks import lifecycle, queries, signature
from zembil.webhooks.addresses import may_be_dialled
from zembil.webhooks.answers import Connector
from zembil.webhooks.model import ATTEMPTS_MAX, Attempted, Dispatch, EndpointKey
from zembil.webhooks.operations import log_failing, secret_binding

_ANSWER_SECONDS_MAX = lifecycle.ATTEMPT_MAX.total_seconds()
IN_FLIGHT_MAX = 256
IN_FLIGHT_PER_ENDPOINT_MAX = 4
POLL_SECONDS = 0.2
STOP_SECONDS_MAX = 12
_CLAIM_SECONDS = 0.02
_RECORD_AGAIN_SECONDS = (0.2, 1)
_SECRETS_MAX = 4096
# Receivers end idle connections after two seconds and more. We end ours first: one that is ended just when an event is
# sent over it costs an attempt.
IDLE_SECONDS_MAX = 1
_ANSWER_BYTES_READ_MAX = 64 * 1024
_ANSWER_BYTES_KEPT_MAX = 4096
_BEFORE_ALL = (0, uuid.UUID(int=0))
# What arrives between two turns of the event loop. Everything that is there is parsed in one go, so it must be little.
_RECEIVE_BUFFER_BYTES = 16 * 1024


class Bell:
    """Rung by what writes events in this process, so that the sender looks at once; others are found by polling."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, *, seconds_max: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds_max)
        self._rung.clear()


class AddressRefused(OSError):
    """The address lies in a network that webhooks may not reach."""


class Sender:
    """Sends deliveries from claim to record until it is stopped; any number may run, on any number of machines."""

    def __init__(self, db: Database, clock: Clock, settings: Settings, bell: Bell) -> None:
        self._db = db
        self._clock = clock
        self._settings = settings
        self._bell = bell
        self._in_flight: set[asyncio.Task[None]] = set()
        self._ended = 0  # since the last claim
        self._ended_wanted = 1  # before the next one
        self._after = _BEFORE_ALL
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._results = GroupedWriter(db, _record)
        self._unsealed = lru_cache(_SECRETS_MAX)(self._unseal)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until `stopping`, then finish what is in flight."""
        async with AsyncExitStack() as stack:
            for livemode, allowed in (
                (True, self._settings.webhook_allow_networks),
                (False, self._settings.webhook_allow_networks + self._settings.sandbox_webhook_allow_networks),
            ):
                self._sessions[livemode] = await stack.enter_async_context(session(allowed))
            while not stopping.is_set():
                there_may_be_more = await self._send_what_is_due()
                await self._bell.wait(seconds_max=_CLAIM_SECONDS if there_may_be_more else POLL_SECONDS)
            if self._in_flight:
                await asyncio.wait(self._in_flight, timeout=STOP_SECONDS_MAX)

    async def _send_what_is_due(self) -> bool:
        """Claim once and send; answers whether there may be more to claim soon.

        When there is more than there is room for, the next claim goes on where this one ended: everyone has a turn.
        A claim costs much the same for one delivery and for a hundred, so with many in flight some of them end before
        the next one. That is not waited for long, since some may hang.
        """
        room = IN_FLIGHT_MAX - len(self._in_flight)
        self._ended, self._ended_wanted = 0, 1
        if room <= 0:
            return False
        claimed = time.monotonic()
        try:
            dispatches = await self._claim(room)
        except ServiceUnavailable:
            log.warning("deliveries.not_claimed", reason="the database is away")
            return False
        except Exception:  # noqa: BLE001  (a loop that ended would end the process, and everything else with it)
            log.exception("deliveries.not_claimed")
            return False
        for dispatch in dispatches:
            task = asyncio.create_task(self._deliver(dispatch, claimed))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
        self._ended_wanted = max(1, len(self._in_flight) // 4) if dispatches else 1
        is_full, was_partial = len(dispatches) == room, self._after != _BEFORE_ALL
        last = max(((dispatch.account_id, dispatch.endpoint_id) for dispatch in dispatches), default=_BEFORE_ALL)
        self._after = last if is_full else _BEFORE_ALL
        return bool(dispatches) or was_partial

    async def _claim(self, room: int) -> list[Dispatch]:
        async with transaction(self._db) as conn:
            await queries.plan_anew(conn)
            endpoints = await queries.lock_endpoints_with_room(
                conn, after=self._after, per_endpoint=IN_FLIGHT_PER_ENDPOINT_MAX, limit=room
            )
            if not endpoints:
                return []
            return await queries.claim_due(
                conn,
                endpoints,
                retry_delays=[lifecycle.retry_delay(made) or timedelta(0) for made in range(1, ATTEMPTS_MAX + 1)],
                lease=lifecycle.LEASE,
                per_endpoint=IN_FLIGHT_PER_ENDPOINT_MAX,
                limit=room,
            )

    async def _deliver(self, dispatch: Dispatch, claimed: float) -> None:
        try:
            if time.monotonic() - claimed > lifecycle.START_MAX.total_seconds():
                # The lease would be over before the attempt is; its row is due again by itself.
                log.warning("delivery.not_sent", delivery_id=ids.shown(Prefix.DELIVERY, dispatch.delivery_id))
                return
            attempted = await self._attempt(dispatch)
            await self._recorded(dispatch, attempted)
        except Exception:  # noqa: BLE001  (one delivery's bug must not end the others; its row is due again by itself)
            log.exception("delivery.not_recorded", delivery_id=ids.shown(Prefix.DELIVERY, dispatch.delivery_id))
        finally:
            self._ended += 1
            if self._ended >= self._ended_wanted:
                self._bell.ring()

    async def _attempt(self, dispatch: Dispatch) -> Attempted:
        """One POST. Success is the status 200 within ten seconds; the body is read for the record only."""
        headers = self._headers(dispatch)
        began = time.monotonic()
        status_code, error, answer = None, None, bytearray()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                async with self._sessions[dispatch.livemode].post(
                    URL(dispatch.url, encoded=True), data=dispatch.payload, headers=headers, allow_redirects=False
                ) as response:
                    status_code = response.status
                    await _read(response, answer)
        except Exception as failure:  # noqa: BLE001  (a hostile receiver finds ways of its own)
            error = None if status_code is not None else _kind_of(failure)
        return Attempted(
            int((time.monotonic() - began) * 1000), status_code, error, bytes(answer[:_ANSWER_BYTES_KEPT_MAX])
        )

    def _headers(self, dispatch: Dispatch) -> dict[str, str]:
        """The headers of an attempt made now; of two secrets it is now that says which of them sign."""
        at = self._clock.now()
        old, new = dispatch.sealed_secret, dispatch.sealed_next_secret
        if new is not None and dispatch.rotates_at is not None and dispatch.rotates_at <= at:
            old, new = new, None
        endpoint = dispatch.account_id, dispatch.endpoint_id
        return signature.headers(
            self._unsealed(endpoint, old),
            dispatch.payload,
            event_id=ids.shown(Prefix.EVENT, dispatch.event_id),
            timestamp=int(at.timestamp()),
            service_name=self._settings.service_name,
            version=__version__,
            next_secret=None if new is None else self._unsealed(endpoint, new),
            is_test=dispatch.is_test,
        )

    def _unseal(self, endpoint: EndpointKey, sealed: bytes) -> str:
        return secrets.unseal(self._settings.secret_key, sealed, bound_to=secret_binding(*endpoint))

    async def _recorded(self, dispatch: Dispatch, attempted: Attempted) -> None:
        """Record the result, again if the database is away for a moment: what is lost is sent a second time."""
        for seconds in _RECORD_AGAIN_SECONDS:
            try:
                await self._results.submit((dispatch, attempted))
            except ServiceUnavailable:
                await asyncio.sleep(seconds)
            else:
                return
        await self._results.submit((dispatch, attempted))


async def _record(conn: Connection, ended: Sequence[tuple[Dispatch, Attempted]], _: int) -> Sequence[None]:
    async with conn.transaction():
        await queries.plan_anew(conn)
        failing = await queries.record_attempts(conn, ended)
    for endpoint_id in failing:
        log_failing(endpoint_id)
    return [None] * len(ended)


def session(allowed: Networks) -> aiohttp.ClientSession:
    def judged_socket(address: aiohttp.AddrInfoType) -> socket.socket:  # pyright: ignore[reportUnknownParameterType]
        family, kind, protocol, _, (ip, *_) = cast("tuple[int, int, int, str, tuple[str, int]]", address)
        if not may_be_dialled(ip, allowed=allowed):
            raise AddressRefused
        dialling = socket.socket(family, kind, protocol)
        dialling.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        return dialling

    return aiohttp.ClientSession(
        connector=Connector(
            socket_factory=judged_socket,
            resolver=Resolver(),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=IDLE_SECONDS_MAX,
        ),
        timeout=aiohttp.ClientTimeout(total=None),  # an attempt has its own
        trust_env=False,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
    )


class Resolver(AbstractResolver):
    """Looks names up, each in a thread of its own.

    The event loop's own threads are few: two names whose servers are silent would keep everybody waiting. Threads that
    wait in vain end by themselves, and keep no process from ending.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def tell(addresses: list[ResolveResult], error: Exception | None) -> None:
            if found.done():  # the attempt did not wait so long
                return
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

        def look_up() -> None:
            addresses: list[ResolveResult] = []
            failure = None
            try:
                addresses = _addresses(host, port, family)
            except Exception as error:  # noqa: BLE001  (told to whoever waits)
                failure = error
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(tell, addresses, failure)

        threading.Thread(target=look_up, name="zembil-look-up", daemon=True).start()
        return await found

    async def close(self) -> None:
        """Nothing is held."""


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=port,
            family=found_family,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found_family, _, protocol, _, address in found
    ]


async def _read(response: aiohttp.ClientResponse, answer: bytearray) -> None:
    """Read the beginning of the answer; a body that breaks off or drips leaves what came of it."""
    with suppress(aiohttp.ClientError, OSError):
        async for part in response.content.iter_any():
            answer += part
            if len(answer) >= _ANSWER_BYTES_READ_MAX:
                break


def _kind_of(failure: Exception) -> str:
    """A class of error, never its text: what a merchant reads must tell nothing of the networks around us."""
    match failure:
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientConnectorDNSError():
            return "dns"
        case aiohttp.ClientSSLError() | aiohttp.ClientConnectorCertificateError():
            return "tls"
        case aiohttp.ClientConnectorError() if isinstance(failure.os_error, AddressRefused):
            return "address_refused"
        case AddressRefused():
            return "address_refused"
        case aiohttp.ClientConnectorError() if isinstance(failure.os_error, ConnectionResetError):
            return "connection_reset"  # while TLS was being agreed on
        case aiohttp.ClientConnectorError():
            return "connection_refused"
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError() | OSError():
            return "connection_reset"
        case _:
            return "invalid_answer"
