"""The dashboard of a merchant with a million payments: lists with every filter, one payment, the export of all.

The million is that of `list_payments`. Pages are read as the browsers of people do who are signed in, four at a time.
While the export is read, the memory of the process that makes it is looked at.
"""

import asyncio
import http.client
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil

from benchmarks import list_payments, load, processes
from benchmarks.figures import Figure, Say
from benchmarks.processes import Gateway
from zembil import ids
from zembil.accounts import user_queries
from zembil.accounts.queries import find_principal
from zembil.accounts.secrets import hashed
from zembil.accounts.sign_in import Visitor, begin_session
from zembil.db.clock import Clock
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import connected, connection, transaction
from zembil.ids import Prefix

_ROWS, _SECONDS, _IN_FLIGHT = 1_000_000, 5.0, 4
_P99_MS_MAX, _MEMORY_MB_MAX = 100, 150
_LOOK_SECONDS = 0.02
_READ_BYTES = 1 << 20


def measure(*, short: bool, say: Say) -> list[Figure]:
    rows, seconds = (50_000, 2.0) if short else (_ROWS, _SECONDS)
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        with (
            EmbeddedPostgres.start(directory / "postgres") as postgres,
            processes.served(postgres.url, directory / "serve.log") as gateway,
        ):
            say(f"dashboard: writing {rows:,} payments")
            asyncio.run(list_payments.fill(postgres.url, rows))
            cookie = {"Cookie": f"__Host-zembil-session={asyncio.run(_signed_in(postgres.url, gateway))}"}
            one, day = asyncio.run(_one_payment(postgres.url))
            figures: list[Figure] = []
            urls = [f"{_origin(gateway)}/dashboard/live{path}" for path in _pages(one, day).values()]
            load.get(urls, headers=cookie, in_flight=1, seconds=1)  # templates are compiled when they are first used
            for page, path in _pages(one, day).items():
                say(f"dashboard: {page}")
                url = f"{_origin(gateway)}/dashboard/live{path}"
                read = load.get([url], headers=cookie, in_flight=_IN_FLIGHT, seconds=seconds)
                note = f"{read.answers} pages, p50 {read.p50_ms:.0f} ms"
                figures.append(
                    Figure(name=f"{page}, p99", value=read.p99_ms, unit="ms", at_most=_P99_MS_MAX, note=note)
                )
            say(f"dashboard: exporting {rows:,} payments")
            figures += _exported(gateway, cookie, rows)
    return figures


def _pages(one: str, day: str) -> dict[str, str]:
    return {
        "home": "",
        "payments, all": "/payments",
        "payments, one status": "/payments?status=failed",
        "payments, some days": f"/payments?date_from={day}&date_to={day}",
        "payments, a phone": f"/payments?phone={quote('+251910000007')}",
        "payments, a reference": "/payments?reference=order-40000",
        "payments, metadata": f"/payments?metadata={quote('order=40001')}",
        "one payment": f"/payments/{one}",
        "refunds": "/refunds",
        "balance": "/balance",
    }


def _origin(gateway: Gateway) -> str:
    return gateway.base_url.removesuffix("/v1")


async def _signed_in(database_url: str, gateway: Gateway) -> str:
    """The session of the merchant's first admin, with the second step that live pages ask for."""
    async with connected(database_url, connections_max=1) as db, transaction(db) as conn:
        principal = await find_principal(conn, hashed(gateway.key))
        user = await user_queries.find_user(conn, principal.user_id) if principal else None
        if user is None:
            raise RuntimeError("the key belongs to nobody")
        visitor = Visitor("127.0.0.1", "127.0.0.1", "benchmark")
        return await begin_session(conn, user, visitor, has_second_step=True, at=Clock().now())


async def _one_payment(database_url: str) -> tuple[str, str]:
    """A payment in the middle of them all, and its day."""
    async with connection(database_url) as conn:
        found = await conn.fetchval(
            "SELECT id FROM payments ORDER BY id OFFSET (SELECT count(*) / 2 FROM payments) LIMIT 1"
        )
    return ids.shown(Prefix.PAYMENT, found), ids.created_at(found).date().isoformat()


def _exported(gateway: Gateway, cookie: dict[str, str], rows: int) -> list[Figure]:
    process, is_over = psutil.Process(gateway.process.pid), threading.Event()
    before = peak = process.memory_info().rss

    def look() -> None:
        nonlocal peak
        while not is_over.wait(_LOOK_SECONDS):
            peak = max(peak, process.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    began = time.perf_counter()
    url = urlsplit(_origin(gateway))
    connection_ = http.client.HTTPConnection(url.hostname or "", url.port, timeout=120)
    connection_.request("GET", "/dashboard/live/payments/export.csv", headers=cookie)
    answer = connection_.getresponse()
    lines = size = 0
    while part := answer.read(_READ_BYTES):
        lines += part.count(b"\n")  # none of these payments has one in its text
        size += len(part)
    seconds = time.perf_counter() - began
    is_over.set()
    looking.join()
    if answer.status != 200 or lines != rows + 1:
        raise RuntimeError(f"the export of {rows} payments has {lines} lines, status {answer.status}")
    note = f"{rows:,} rows, {size / 1e6:.0f} MB; {before / 1e6:.0f} MB before"
    return [
        Figure(name="export", value=rows / seconds, unit="rows/s", note=f"{seconds:.0f} s"),
        Figure(name="export, memory of the process", value=peak / 1e6, unit="MB", at_most=_MEMORY_MB_MAX, note=note),
    ]
