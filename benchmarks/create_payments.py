"""Creating payments, against PostgreSQL itself.

POST /payments end to end over HTTP with one API process, and pgbench running the same statement as one transaction a
payment, in turns on the same server. README.md says what is the same and what is kind to pgbench.
"""

import asyncio
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from benchmarks import load, orders, processes
from benchmarks.figures import Figure, Say, percentile
from benchmarks.processes import Gateway
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import Connection, connection
from zembil.payments.queries import INSERT_PAYMENTS

IN_FLIGHT = (32, 128)
_ROUNDS, _ROUND_SECONDS = 5, 6.0
_SETTINGS = {"max_connections": "200"}  # 128 clients of pgbench do not fit into the usual hundred
_TABLES = "payments, charges, events, pending_deliveries, payment_counts"
_ARRAY = re.compile(r"\$(\d+)::(\w+)\[\]")

# One value for each array of INSERT_PAYMENTS, in their order. Ids carry the time, as ours do, so that both write at the
# same end of the indexes; what is long is a copy of a payment that Zembil wrote, so that rows have the same size.
_VALUES = (
    "{account_id}",
    "uuidv7()",
    "150000",
    "now() + interval '1 hour'",
    "now() + interval '1 hour'",
    "NULL",
    "'{link_secret}'",
    "NULL",
    "'customer' || :customer || '@example.com'",
    "'+2519' || :customer",
    "'{name}'",
    "'{description}'",
    "NULL",
    "'{callback_url}'",
    "'{metadata}'",
    "date_trunc('hour', now())",
    "uuidv7()",
    "now()",
    "'{payload}'",
)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One round of Zembil and one of pgbench."""

    zembil_per_second: float
    pgbench_per_second: float
    p50_ms: float
    p99_ms: float
    zembil_cpu_us: float
    generator_cpu_us: float

    @property
    def ratio(self) -> float:
        return self.zembil_per_second / self.pgbench_per_second


def measure(*, short: bool, say: Say) -> list[Figure]:
    rounds, seconds = (1, 2.0) if short else (_ROUNDS, _ROUND_SECONDS)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        say("create_payments: an application that does nothing")
        figures += _http_alone(directory, seconds=min(seconds, 3))
        with (
            EmbeddedPostgres.start(directory / "postgres", settings=_SETTINGS) as postgres,
            processes.served(postgres.url, directory / "serve.log") as gateway,
        ):
            gateway.post("/webhooks", {"url": "https://shop.example.et/webhooks", "events": ["*"]})
            _post(gateway, in_flight=32, seconds=1)
            script = directory / "insert.sql"
            script.write_text(asyncio.run(_pgbench_script(postgres.url)))
            for in_flight in IN_FLIGHT:
                turns: list[_Turn] = []
                for number in range(1, rounds + 1):
                    say(f"create_payments: {in_flight} in flight, round {number} of {rounds}")
                    turns.append(_turn(gateway, postgres, script, in_flight=in_flight, seconds=seconds))
                figures += _figures(turns, in_flight)
    return figures


def _http_alone(directory: Path, *, seconds: float) -> list[Figure]:
    """What the load generator reaches against an application that does nothing."""
    with processes.answering("benchmarks.trivial:app", directory / "trivial.log") as url:
        done = load.post(f"{url}/", orders.bodies(), headers={}, in_flight=32, seconds=seconds)
    note = f"the ceiling of generator and uvicorn; the generator takes {done.generator_cpu_us:.0f} µs per answer"
    return [
        Figure(name="an application that does nothing, 32 in flight", value=done.per_second, unit="req/s", note=note)
    ]


def _turn(gateway: Gateway, postgres: EmbeddedPostgres, script: Path, *, in_flight: int, seconds: float) -> _Turn:
    # Both begin with empty tables and right after a checkpoint.
    asyncio.run(_empty(postgres.url))
    process = psutil.Process(gateway.process.pid)
    cpu_seconds = sum(process.cpu_times()[:2])
    done = _post(gateway, in_flight=in_flight, seconds=seconds)
    cpu_us = 1e6 * (sum(process.cpu_times()[:2]) - cpu_seconds) / done.answers
    asyncio.run(_demand_rows(postgres.url, done.answers))
    asyncio.run(_empty(postgres.url))
    tps = _pgbench(postgres, script, clients=in_flight, seconds=seconds)
    return _Turn(
        done.per_second,
        tps,
        percentile(done.latencies_ms, 50),
        percentile(done.latencies_ms, 99),
        cpu_us,
        done.generator_cpu_us,
    )


def _post(gateway: Gateway, *, in_flight: int, seconds: float) -> load.Load:
    url = f"{gateway.base_url}/payments"
    return load.post(url, orders.bodies(), headers=gateway.authorization, in_flight=in_flight, seconds=seconds)


async def _empty(database_url: str) -> None:
    async with connection(database_url) as conn:
        await conn.execute(f"TRUNCATE {_TABLES}")  # pyright: ignore[reportArgumentType]
        await conn.execute("CHECKPOINT")


async def _demand_rows(database_url: str, answers: int) -> None:
    """Every answer 201 is a payment, an event and a delivery in the database; the counts know it."""
    async with connection(database_url) as conn:
        counted = await conn.fetchrow(
            """
            SELECT (SELECT count(*) FROM payments) AS payments, (SELECT count(*) FROM events) AS events,
                (SELECT count(*) FROM pending_deliveries) AS deliveries,
                (SELECT sum(pending)::bigint FROM payment_counts WHERE hour = '-infinity') AS counted
            """
        )
    found = [] if counted is None else [counted[name] for name in ("payments", "events", "deliveries", "counted")]
    if found != [answers] * 4:
        raise RuntimeError(f"{answers} answers, but rows: {found}")


async def _pgbench_script(database_url: str) -> str:
    """INSERT_PAYMENTS with arrays of one row, made of a payment that Zembil wrote."""
    async with connection(database_url) as conn:
        example = await _example(conn)
    values = [value.format(**example) for value in _VALUES]
    statement = _ARRAY.sub(lambda found: f"ARRAY[{values[int(found[1]) - 1]}]::{found[2]}[]", INSERT_PAYMENTS)
    customer = f"\\set customer random({orders.CUSTOMERS[0]}, {orders.CUSTOMERS[-1]})"
    return f"{customer}\n{statement.replace('$20', ':client_id')};\n"


async def _example(conn: Connection) -> dict[str, str]:
    row = await conn.fetchrow(
        """
        SELECT p.account_id, p.link_secret, p.name, p.description, p.callback_url, p.metadata::text, e.payload
        FROM payments p JOIN events e ON e.account_id = p.account_id AND e.object_id = p.id
        LIMIT 1
        """
    )
    if row is None:
        raise RuntimeError("no payment was written")
    names = ("account_id", "link_secret", "name", "description", "callback_url", "metadata", "payload")
    return {name: _literal(row[name]) for name in names}


def _literal(value: object) -> str:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value).replace("'", "''")


def _pgbench(postgres: EmbeddedPostgres, script: Path, *, clients: int, seconds: float) -> float:
    options = ["-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(int(seconds)), "-f", str(script)]
    done = subprocess.run(
        [str(postgres.bin / "pgbench"), *options, postgres.url],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 30,
    )
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"pgbench failed:\n{done.stderr[-2000:]}")
    return float(found[1])


def _figures(turns: list[_Turn], in_flight: int) -> list[Figure]:
    at = f"{in_flight} in flight"
    ratios = [turn.ratio for turn in turns]
    cpu = f"{median(turn.zembil_cpu_us for turn in turns):.0f} µs of processor per payment in the API process"
    generator = f"{median(turn.generator_cpu_us for turn in turns):.0f} µs in the generator"
    is_judged = in_flight == IN_FLIGHT[0]
    return [
        Figure(
            name=f"POST /payments, {at}",
            value=median(turn.zembil_per_second for turn in turns),
            unit="req/s",
            note=f"{cpu}, {generator}",
        ),
        Figure(name=f"pgbench, {at}", value=median(turn.pgbench_per_second for turn in turns), unit="tx/s"),
        Figure(
            name=f"POST /payments against pgbench, {at}",
            value=median(ratios),
            at_least=0.5 if is_judged else None,
            note=f"rounds from {min(ratios):.2f} to {max(ratios):.2f}",
        ),
        Figure(name=f"POST /payments, {at}, p50", value=median(turn.p50_ms for turn in turns), unit="ms"),
        Figure(
            name=f"POST /payments, {at}, p99",
            value=median(turn.p99_ms for turn in turns),
            unit="ms",
            at_most=10 if is_judged else None,
        ),
    ]
