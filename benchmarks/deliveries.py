"""Draining a backlog of deliveries: one `zembil worker` claims, signs, sends and records, against bare aiohttp.

And what others wait when one receiver holds every request and another one is not there.

`python -m benchmarks.deliveries` is the bare part: the same requests with the same connector, and nothing else.
"""

import asyncio
import base64
import itertools
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import msgspec
import psutil
import uvloop
from yarl import URL

from benchmarks import processes
from benchmarks.figures import Figure, Say, percentile
from zembil.accounts.model import Account, LateMoney, Principal, Role
from zembil.accounts.operations import create_merchant
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.migrate import migrate
from zembil.db.pool import Connection, connected, connection, reading, transaction
from zembil.webhooks import signature
from zembil.webhooks.operations import register_endpoint
from zembil.webhooks.sender import IN_FLIGHT_MAX, IN_FLIGHT_PER_ENDPOINT_MAX, session

ACCOUNTS, ENDPOINTS_OF_EACH = 8, 8
_BACKLOG, _BACKLOG_SHORT = 200_000, 20_000
_BARE_SECONDS, _BARE_SECONDS_SHORT = 10.0, 3.0
_POLL_SECONDS = 0.5
_ISOLATION_SECONDS, _ISOLATION_SECONDS_SHORT = 20.0, 5.0
_TICK_SECONDS = 0.25
_HELD = 500
_DRAIN_SECONDS_MAX = 600


class Order(msgspec.Struct):
    """What the bare sender is asked to do."""

    urls: list[str]
    seconds: float
    in_flight: int


@dataclass(slots=True)
class _Drained:
    """How a backlog went: what waited at each look, what the processes took."""

    backlog: int
    seconds: float = 0.0
    left: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    resident_mb: list[float] = field(default_factory=list[float])
    worker_cpu_us: float = 0.0
    postgres_cpu_us: float = 0.0

    @property
    def per_second(self) -> float:
        return self.backlog / self.seconds

    @property
    def slowest_per_second(self) -> float:
        """The slower half, so that a queue that slows down as it ages shows."""
        (_, first), (_, last) = self.left[0], self.left[-1]
        middle = min(self.left, key=lambda look: abs(look[1] - (first + last) / 2))
        halves = itertools.pairwise((self.left[0], middle, self.left[-1]))
        return min((before - after) / (at - since) for (since, before), (at, after) in halves)


def measure(*, short: bool, say: Say) -> list[Figure]:
    backlog = _BACKLOG_SHORT if short else _BACKLOG
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        with (
            _receiving() as origin,
            _receiving("--hold") as holding,
            EmbeddedPostgres.start(directory / "postgres") as postgres,
        ):
            urls = [f"{origin}/hooks/{number}" for number in range(ACCOUNTS * ENDPOINTS_OF_EACH)]
            say("deliveries: aiohttp alone")
            seconds = _BARE_SECONDS_SHORT if short else _BARE_SECONDS
            bare_per_second, bare_cpu_us = _bare(urls, seconds=seconds)
            say(f"deliveries: a backlog of {backlog:,}")
            secret_key = secrets.token_bytes(32)
            asyncio.run(_fill(postgres.url, urls, backlog, secret_key))
            environment = {
                "ZEMBIL_SECRET_KEY": base64.b64encode(secret_key).decode(),
                "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
            }
            with processes.working(postgres.url, directory / "worker.log", environment) as worker:
                drained = asyncio.run(_drained(postgres.url, psutil.Process(worker.pid), backlog))
                say("deliveries: beside one receiver that holds and one that is not there")
                seconds = _ISOLATION_SECONDS_SHORT if short else _ISOLATION_SECONDS
                waits_ms = asyncio.run(_waits(postgres.url, f"{holding}/", seconds=seconds))
    return [*_figures(drained, bare_per_second, bare_cpu_us), *_wait_figures(waits_ms)]


@contextmanager
def _receiving(*options: str) -> Generator[str]:
    command = [sys.executable, "-m", "benchmarks.receiving", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def _fill(database_url: str, urls: list[str], backlog: int, secret_key: bytes) -> None:
    """Merchants with endpoints, and as many events and deliveries as are asked for, due since now."""
    await migrate(database_url)
    at = datetime.now(UTC)
    async with connected(database_url, connections_max=2) as db:
        for number in range(ACCOUNTS):
            await create_merchant(db, f"Shop {number}", at=at)
        async with reading(db) as conn:
            rows = await conn.fetch("SELECT id FROM accounts WHERE NOT livemode")
        accounts = [
            Account(row["id"], "A shop", False, timedelta(0), LateMoney.ACCEPT, allow_self_approval=True)
            for row in rows
        ]
        for number, url in enumerate(urls):
            async with transaction(db) as conn:
                await register_endpoint(
                    conn,
                    Principal(accounts[number % ACCOUNTS], uuid.uuid4(), uuid.uuid4(), Role.ADMIN, None),
                    url=url,
                    events=("*",),
                    description=None,
                    secret_key=secret_key,
                    endpoints_max=ENDPOINTS_OF_EACH,
                    at=at,
                )
    async with connection(database_url) as conn:
        await _insert_backlog(conn, backlog)
        await conn.execute("ANALYZE")
        await conn.execute("CHECKPOINT")


async def _insert_backlog(conn: Connection, backlog: int) -> None:
    """Every event is for all the endpoints of its account, as it is when merchants register several."""
    await conn.execute(
        """
        WITH told AS (
            INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
            SELECT account_id, uuidv7(), gen_random_uuid(), 1, 'payment.created', now(), convert_to($2, 'UTF8')
            FROM (SELECT DISTINCT account_id FROM webhook_endpoints) a
                CROSS JOIN generate_series(1, $1::integer / (SELECT count(*) FROM webhook_endpoints))
            RETURNING account_id, id
        )
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
        SELECT told.account_id, w.id, uuidv7(), told.id, now()
        FROM told JOIN webhook_endpoints w ON w.account_id = told.account_id
        """,
        backlog,
        payload(),
    )


def payload() -> str:
    """As long as the event of a payment."""
    return '{"id":"evt_' + "x" * 26 + '","type":"payment.created","data":{"object":{' + "x" * 640 + "}}}"


async def _drained(database_url: str, worker: psutil.Process, backlog: int) -> _Drained:
    drained = _Drained(backlog)
    async with connection(database_url) as conn:
        # From the first attempt on: what the start of a process takes is measured elsewhere.
        await _first_attempt(conn)
        postmaster = psutil.Process(await conn.fetchval("SELECT pg_backend_pid()")).parent()
        began, cpu_seconds = time.monotonic(), sum(worker.cpu_times()[:2])
        postgres_cpu_seconds = _cpu_seconds(postmaster)
        backlog_then = await _left(conn)
        while (left := await _left(conn)) > 0:
            if time.monotonic() - began > _DRAIN_SECONDS_MAX:
                raise RuntimeError(f"{left} deliveries are left after {_DRAIN_SECONDS_MAX} s")
            drained.left.append((time.monotonic() - began, left))
            drained.resident_mb.append(worker.memory_info().rss / 1e6)
            await asyncio.sleep(_POLL_SECONDS)
        drained.seconds = time.monotonic() - began
        drained.left.append((drained.seconds, 0))
        drained.worker_cpu_us = 1e6 * (sum(worker.cpu_times()[:2]) - cpu_seconds) / backlog
        drained.postgres_cpu_us = 1e6 * (_cpu_seconds(postmaster) - postgres_cpu_seconds) / backlog
        await _demand_records(conn, backlog)
    drained.backlog = backlog_then
    return drained


def _cpu_seconds(postmaster: psutil.Process | None) -> float:
    """What PostgreSQL has taken, in all its processes; those that have ended are counted by the first."""
    if postmaster is None:
        return 0.0
    return sum(postmaster.cpu_times()[:4]) + sum(sum(child.cpu_times()[:2]) for child in postmaster.children())


async def _first_attempt(conn: Connection) -> None:
    for _ in range(4000):
        if await conn.fetchval("SELECT EXISTS (SELECT FROM delivery_attempts)"):
            return
        await asyncio.sleep(0.005)
    raise RuntimeError("the worker does not start")


async def _left(conn: Connection) -> int:
    """What is not recorded yet: counted by what is, since the queue changes all the time."""
    left: int = await conn.fetchval("SELECT count(*) FROM pending_deliveries")
    return left


async def _demand_records(conn: Connection, backlog: int) -> None:
    """Every delivery has succeeded with one attempt, which is on record."""
    row = await conn.fetchrow(
        """
        SELECT (SELECT count(*) FROM deliveries WHERE status = 'succeeded' AND attempts_made = 1) AS deliveries,
            (SELECT count(*) FROM delivery_attempts WHERE status_code = 200 AND latency_ms IS NOT NULL) AS attempts
        """
    )
    found = [] if row is None else [row["deliveries"], row["attempts"]]
    wanted = backlog - backlog % (ACCOUNTS * ENDPOINTS_OF_EACH)
    if found != [wanted] * 2:
        raise RuntimeError(f"{wanted} deliveries, but rows: {found}")


def _figures(drained: _Drained, bare_per_second: float, bare_cpu_us: float) -> list[Figure]:
    tenth = len(drained.resident_mb) // 10
    grown_mb = max(drained.resident_mb[-tenth - 1 :]) - drained.resident_mb[tenth]
    note = (
        f"{ACCOUNTS * ENDPOINTS_OF_EACH} endpoints of {ACCOUNTS} accounts, {IN_FLIGHT_PER_ENDPOINT_MAX} in flight each"
    )
    return [
        Figure(name="deliveries", value=drained.per_second, unit="/s", at_least=3000, note=note),
        Figure(name="deliveries, the slower half of the backlog", value=drained.slowest_per_second, unit="/s"),
        Figure(
            name="aiohttp alone", value=bare_per_second, unit="/s", note=f"{IN_FLIGHT_MAX} in flight, nothing recorded"
        ),
        Figure(name="deliveries against aiohttp alone", value=drained.per_second / bare_per_second),
        Figure(name="processor of the worker", value=drained.worker_cpu_us, unit="µs", note="per delivery"),
        Figure(name="processor of PostgreSQL", value=drained.postgres_cpu_us, unit="µs", note="per delivery"),
        Figure(name="processor of aiohttp alone", value=bare_cpu_us, unit="µs", note="per request"),
        Figure(name="memory of the worker, at a tenth", value=drained.resident_mb[tenth], unit="MB"),
        Figure(name="memory of the worker, growth from there to the end", value=grown_mb, unit="MB", at_most=10),
    ]


# Beside bad receivers


async def _waits(database_url: str, held_url: str, *, seconds: float) -> list[float]:
    """Milliseconds from an event to its first attempt, at every endpoint but the two that are bad."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody_url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    async with connection(database_url) as conn:
        await _spoil(conn, held_url, nobody_url)
        for _ in range(int(seconds / _TICK_SECONDS)):
            await _tell_everyone(conn)
            await asyncio.sleep(_TICK_SECONDS)
        await asyncio.sleep(2)
        rows = await conn.fetch(
            """
            SELECT extract(epoch FROM coalesce(a.started_at, now()) - e.created_at) * 1000 AS ms
            FROM events e
                JOIN (
                    SELECT id, event_id FROM deliveries UNION ALL SELECT id, event_id FROM pending_deliveries
                ) d ON d.event_id = e.id
                LEFT JOIN delivery_attempts a ON a.delivery_id = d.id AND a.number = 1
            WHERE e.type = 'payment.completed'
            """
        )
    return [float(row["ms"]) for row in rows]


async def _spoil(conn: Connection, held_url: str, nobody_url: str) -> None:
    """Make two endpoints of the first account bad, with events of their own waiting."""
    await conn.execute(
        """
        WITH bad AS (
            SELECT account_id, id, row_number() OVER () AS number
            FROM (SELECT account_id, id FROM webhook_endpoints ORDER BY account_id, id LIMIT 2) first
        ), spoilt AS (
            UPDATE webhook_endpoints w
            SET url = CASE bad.number WHEN 1 THEN $1 ELSE $2 END, events = '{customer.created}'
            FROM bad WHERE w.account_id = bad.account_id AND w.id = bad.id
        ), told AS (
            INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
            SELECT (SELECT min(account_id) FROM bad), uuidv7(), gen_random_uuid(), 1, 'customer.created', now(), '{}'
            FROM generate_series(1, $3::integer)
            RETURNING account_id, id
        )
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
        SELECT told.account_id, bad.id, uuidv7(), told.id, now() FROM told CROSS JOIN bad
        """,
        held_url,
        nobody_url,
        _HELD,
    )


async def _tell_everyone(conn: Connection) -> None:
    await conn.execute(
        """
        WITH told AS (
            INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
            SELECT account_id, uuidv7(), gen_random_uuid(), 1, 'payment.completed', now(), convert_to($1, 'UTF8')
            FROM (SELECT DISTINCT account_id FROM webhook_endpoints) a
            RETURNING account_id, id
        )
        INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
        SELECT told.account_id, w.id, uuidv7(), told.id, now()
        FROM told JOIN webhook_endpoints w ON w.account_id = told.account_id AND w.events = '{*}'
        """,
        payload(),
    )


def _wait_figures(waits_ms: list[float]) -> list[Figure]:
    note = f"{len(waits_ms)} events of other endpoints; {_HELD} wait for each of the bad ones"
    return [
        Figure(name="event to first attempt beside bad receivers, p50", value=percentile(waits_ms, 50), unit="ms"),
        Figure(
            name="event to first attempt beside bad receivers, p99",
            value=percentile(waits_ms, 99),
            unit="ms",
            at_most=2000,
            note=note,
        ),
    ]


# aiohttp alone


def _bare(urls: list[str], *, seconds: float) -> tuple[float, float]:
    """How many requests a second, and the processor time of each in µs."""
    order = Order(urls, seconds, IN_FLIGHT_MAX)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.deliveries"],
        input=msgspec.json.encode(order),
        capture_output=True,
        check=True,
        timeout=seconds + 30,
        env=dict(os.environ),
    )
    return msgspec.json.decode(done.stdout, type=tuple[float, float])


async def _post_all(order: Order) -> tuple[float, float]:
    body = payload().encode()
    headers = signature.headers(
        "whsec_" + base64.b64encode(bytes(32)).decode(),
        body,
        event_id="evt_" + "x" * 26,
        timestamp=int(time.time()),
        service_name="zembil",
        version="0",
    )
    sent = 0
    began, cpu_seconds = time.monotonic(), time.process_time()
    async with session((ip_network("127.0.0.0/8"),)) as posting:

        async def post(url: URL) -> None:
            nonlocal sent
            while time.monotonic() - began < order.seconds:
                async with posting.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                    await answer.read()
                sent += 1

        async with asyncio.TaskGroup() as group:
            for _, url in zip(range(order.in_flight), itertools.cycle(order.urls), strict=False):
                group.create_task(post(URL(url, encoded=True)))
    return sent / (time.monotonic() - began), 1e6 * (time.process_time() - cpu_seconds) / sent


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_post_all(order))))


if __name__ == "__main__":
    main()
