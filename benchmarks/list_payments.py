"""Listing the payments of an account that has a million: with a filter and the total, far behind, and all of them.

The million is written by PostgreSQL, as thirty days of a shop would have left it: of every status, with the counts that
Zembil keeps. The walk reads all of it along the cursors while payments are added, and demands every one exactly once.
"""

import asyncio
import http.client
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil

from benchmarks import load, orders, processes
from benchmarks.figures import Figure, Say
from benchmarks.load import Load
from benchmarks.processes import Gateway
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import connection
from zembil.payments.model import PaymentStatus

_ROWS, _ROUNDS, _ROUND_SECONDS = 1_000_000, 5, 4.0
_IN_FLIGHT, _DEEP_IN_FLIGHT = 32, 4
_ADDING_SECONDS = 1.0

_FILL = """
INSERT INTO payments (account_id, id, amount_santim, expires_at, due_at, ended_at, transaction_id, link_secret, status,
                      failure_code, cancellation_reason, email, phone, name, description, reference, callback_url,
                      metadata)
SELECT (SELECT id FROM accounts WHERE livemode), uuidv7((number - $1)::float8 / $1 * interval '30 days'), 150000, now(),
    CASE status WHEN 'pending' THEN now() + interval '1 hour' END, CASE WHEN status <> 'pending' THEN now() END,
    CASE status WHEN 'completed' THEN uuidv7() END, decode(repeat('5a', 16), 'hex'), status,
    CASE status WHEN 'failed' THEN 'wrong_pin' END, CASE status WHEN 'cancelled' THEN 'expired' END,
    'customer' || number % 100000 || '@example.com', '+2519' || 10000000 + number % 100000, 'Abebe Kebede',
    'Two bags of coffee from Yirgacheffe, 1 kg', CASE number % 10 WHEN 0 THEN 'order-' || number END,
    'https://shop.example.et/thanks?order=2026-000714', jsonb_build_object('order', number::text, 'branch', 'Merkato')
FROM generate_series(1, $1::integer) AS number CROSS JOIN LATERAL (
    SELECT coalesce((ARRAY['pending', 'failed', 'failed', 'cancelled', 'cancelled', 'cancelled'])[number % 20 + 1],
                    'completed') AS status
)
"""
# As if writers and the worker had counted: in every slot of every hour.
_COUNT = """
INSERT INTO payment_counts (account_id, hour, slot, pending, completed, failed, cancelled, completed_santim)
SELECT account_id, coalesce(hour, '-infinity'), slot, count(*) FILTER (WHERE status = 'pending'),
    count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE status = 'failed'),
    count(*) FILTER (WHERE status = 'cancelled'), coalesce(sum(amount_santim) FILTER (WHERE status = 'completed'), 0)
FROM payments CROSS JOIN LATERAL (
    SELECT date_trunc('hour', uuid_extract_timestamp(id)) AS hour, ('x' || right(id::text, 1))::bit(4)::integer AS slot
)
GROUP BY GROUPING SETS ((account_id, hour, slot), (account_id, slot))
"""


class _Listed(msgspec.Struct):
    """What we read of a payment in a list."""

    id: str


class _Pagination(msgspec.Struct):
    total: int
    next_cursor: str | None = None


class _Page(msgspec.Struct):
    payments: list[_Listed]
    pagination: _Pagination


class _Answer(msgspec.Struct):
    data: _Page


@dataclass(frozen=True, slots=True)
class _Turn:
    """One round of each list."""

    first: Load
    deep: Load
    cpu_us: float


def measure(*, short: bool, say: Say) -> list[Figure]:
    rounds, seconds, rows = (1, 2.0, 50_000) if short else (_ROUNDS, _ROUND_SECONDS, _ROWS)
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        with (
            EmbeddedPostgres.start(directory / "postgres") as postgres,
            processes.served(postgres.url, directory / "serve.log") as gateway,
        ):
            say(f"list_payments: writing {rows:,} payments")
            asyncio.run(fill(postgres.url, rows))
            turns: list[_Turn] = []
            for number in range(1, rounds + 1):
                say(f"list_payments: round {number} of {rounds}")
                turns.append(_turn(gateway, offset=rows // 10, seconds=seconds))
            asyncio.run(_demand_exact_totals(postgres.url, gateway))
            say("list_payments: walking along all of them while others are added")
            walk = _walked(gateway, rows)
    return [*_figures(turns, rows), walk]


async def fill(database_url: str, rows: int) -> None:
    """Thirty days of payments of the live account, with their counts."""
    async with connection(database_url) as conn:
        await conn.execute(_FILL, rows)
        await conn.execute(_COUNT)
        await conn.execute("VACUUM (ANALYZE) payments, payment_counts")  # as autovacuum will have done
        await conn.execute("CHECKPOINT")


def _turn(gateway: Gateway, *, offset: int, seconds: float) -> _Turn:
    def get(queries: Sequence[str], in_flight: int) -> Load:
        urls = [f"{gateway.base_url}/payments?{query}" for query in queries]
        return load.get(urls, headers=gateway.authorization, in_flight=in_flight, seconds=seconds)

    process = psutil.Process(gateway.process.pid)
    cpu_seconds = sum(process.cpu_times()[:2])
    first = get([f"status={status}" for status in PaymentStatus], _IN_FLIGHT)
    cpu_us = 1e6 * (sum(process.cpu_times()[:2]) - cpu_seconds) / first.answers
    return _Turn(first, get([f"status=completed&offset={offset}"], _DEEP_IN_FLIGHT), cpu_us)


async def _demand_exact_totals(database_url: str, gateway: Gateway) -> None:
    async with connection(database_url) as conn:
        for status in PaymentStatus:
            stored = await conn.fetchval("SELECT count(*) FROM payments WHERE status = $1", status)
            if (total := _Reader(gateway).page(f"limit=1&status={status}").pagination.total) != stored:
                raise RuntimeError(f"{stored} payments are {status}, but the total says {total}")


class _Reader:
    """One connection that reads pages."""

    def __init__(self, gateway: Gateway) -> None:
        self._url = urlsplit(gateway.base_url)
        self._headers = gateway.authorization
        self._connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port)

    def page(self, query: str) -> _Page:
        self._connection.request("GET", f"{self._url.path}/payments?{query}", headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(body.decode(errors="replace"))
        return msgspec.json.decode(body, type=_Answer).data


def _walked(gateway: Gateway, rows: int) -> Figure:
    """Read every payment by its cursor while others are added. Raises RuntimeError if one is skipped or repeated."""
    reader, is_over = _Reader(gateway), threading.Event()
    newest = reader.page("limit=1").payments[0].id
    added: list[int] = []

    def add() -> None:
        url = f"{gateway.base_url}/payments"
        while not is_over.is_set():
            done = load.post(url, orders.bodies(), headers=gateway.authorization, in_flight=1, seconds=_ADDING_SECONDS)
            added.append(done.answers)

    adding = threading.Thread(target=add)
    adding.start()
    began = time.perf_counter()
    walked, last = 0, ""
    query: str | None = "limit=100"
    while query is not None:
        page = reader.page(query)
        for payment in page.payments:
            # Ids sort by creation: each has to be older than the one before.
            if last and payment.id >= last:
                raise RuntimeError(f"{payment.id} came after {last}")
            last = payment.id
            walked += last <= newest
        cursor = page.pagination.next_cursor
        query = None if cursor is None else f"limit=100&cursor={cursor}"
    seconds = time.perf_counter() - began
    is_over.set()
    adding.join()
    if walked != rows:
        raise RuntimeError(f"of {rows} payments the walk showed {walked}")
    note = f"{walked:,} payments, each once, in pages of 100; {sum(added):,} were added meanwhile"
    return Figure(name="a walk along the cursors", value=walked / seconds, unit="payments/s", note=note)


def _figures(turns: list[_Turn], rows: int) -> list[Figure]:
    def middle(name: str, of: Callable[[_Turn], float], **rest: Any) -> Figure:
        return Figure(name=name, value=median(map(of, turns)), **rest)

    rates = [turn.first.per_second for turn in turns]
    spread = f"{rows:,} payments, a status and the total; rounds from {min(rates):,.0f} to {max(rates):,.0f}"
    first, deep = f"{_IN_FLIGHT} in flight", f"offset {rows // 10:,}, {_DEEP_IN_FLIGHT} in flight"
    return [
        middle(
            f"GET /payments, {first}",
            lambda turn: turn.first.per_second,
            unit="req/s",
            at_least=2000,
            note=spread,
        ),
        middle(f"p50, {first}", lambda turn: turn.first.p50_ms, unit="ms"),
        middle(f"p99, {first}", lambda turn: turn.first.p99_ms, unit="ms", at_most=25),
        middle("processor of the API process", lambda turn: turn.cpu_us, unit="µs", note="per list"),
        middle("processor of the generator", lambda turn: turn.first.generator_cpu_us, unit="µs", note="per list"),
        middle(f"GET /payments, {deep}", lambda turn: turn.deep.per_second, unit="req/s"),
        middle(f"p50, {deep}", lambda turn: turn.deep.p50_ms, unit="ms"),
        middle(f"p99, {deep}", lambda turn: turn.deep.p99_ms, unit="ms", at_most=50),
    ]
