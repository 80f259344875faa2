"""Creating payments, against PostgreSQL itself.

POST /payments end to end over HTTP with one API process, and pgbench writing the same rows in one transaction a
payment, in turns on the same server: once with Zembil's own statement, which is made for groups, and once with the
plainest statement that writes those rows. README.md says what is the same and what is kind to pgbench.
"""

import asyncio
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import load, orders, processes
from benchmarks.figures import Figure, Say
from benchmarks.processes import Gateway
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import Connection, connection
from zembil.payments.queries import INSERT_PAYMENTS

IN_FLIGHT = (32, 128)
_ROUNDS, _ROUND_SECONDS = 5, 5.0
_SETTINGS = {"max_connections": "200"}  # 128 clients of pgbench do not fit into the usual hundred
_TABLES = "payments, charges, refunds, events, pending_deliveries, payment_counts, idempotency_keys"
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
    "gen_random_uuid()::text",
    "decode(repeat('5a', 32), 'hex')",
)

_PLAIN = """
WITH ids AS MATERIALIZED (SELECT uuidv7() AS id, uuidv7() AS event_id), paid AS (
    INSERT INTO payments (account_id, id, amount_santim, expires_at, due_at, link_secret, email, phone, name,
                          description, callback_url, metadata)
    SELECT {account_id}, id, 150000, now() + interval '1 hour', now() + interval '1 hour', '{link_secret}',
        'customer' || :customer || '@example.com', '+2519' || :customer, '{name}', '{description}', '{callback_url}',
        '{metadata}'
    FROM ids
), keyed AS (
    INSERT INTO idempotency_keys (account_id, key, fingerprint, resource_id, created_at)
    SELECT {account_id}, gen_random_uuid()::text, decode(repeat('5a', 32), 'hex'), id, now() FROM ids
), told AS (
    INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
    SELECT {account_id}, event_id, id, 1, 'payment.created', now(), '{payload}' FROM ids
), due AS (
    INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
    SELECT {account_id}, w.id, uuidv7(), event_id, now()
    FROM ids JOIN webhook_endpoints w
        ON w.account_id = {account_id} AND w.enabled AND w.events && ARRAY['payment.created', '*']
)
INSERT INTO payment_counts AS c (account_id, hour, slot, pending)
VALUES ({account_id}, '-infinity', :client_id, 1), ({account_id}, date_trunc('hour', now()), :client_id, 1)
ON CONFLICT (account_id, hour, slot) DO UPDATE SET pending = c.pending + excluded.pending
"""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One round of Zembil and one of each pgbench."""

    zembil_per_second: float
    pgbench_per_second: float
    plain_per_second: float
    p50_ms: float
    p99_ms: float
    zembil_cpu_us: float
    generator_cpu_us: float

    @property
    def ratio(self) -> float:
        return self.zembil_per_second / self.pgbench_per_second

    @property
    def plain_ratio(self) -> float:
        return self.zembil_per_second / self.plain_per_second


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
            scripts = asyncio.run(_written_scripts(postgres.url, directory))
            for in_flight in IN_FLIGHT:
                turns: list[_Turn] = []
                for number in range(1, rounds + 1):
                    say(f"create_payments: {in_flight} in flight, round {number} of {rounds}")
                    turns.append(_turn(gateway, postgres, scripts, in_flight=in_flight, seconds=seconds))
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


def _turn(
    gateway: Gateway, postgres: EmbeddedPostgres, scripts: tuple[Path, Path], *, in_flight: int, seconds: float
) -> _Turn:
    # All begin with empty tables and right after a checkpoint.
    asyncio.run(_empty(postgres.url))
    process = psutil.Process(gateway.process.pid)
    cpu_seconds = sum(process.cpu_times()[:2])
    done = _post(gateway, in_flight=in_flight, seconds=seconds)
    cpu_us = 1e6 * (sum(process.cpu_times()[:2]) - cpu_seconds) / done.answers
    asyncio.run(_demand_rows(postgres.url, payments=done.answers))
    grouped, plain = (_pgbench(postgres, script, clients=in_flight, seconds=seconds) for script in scripts)
    return _Turn(done.per_second, grouped, plain, done.p50_ms, done.p99_ms, cpu_us, done.generator_cpu_us)


def _post(gateway: Gateway, *, in_flight: int, seconds: float) -> load.Load:
    url = f"{gateway.base_url}/payments"
    return load.post(url, orders.bodies(), headers=gateway.authorization, in_flight=in_flight, seconds=seconds)


async def _empty(database_url: str) -> None:
    async with connection(database_url) as conn:
        await conn.execute(f"TRUNCATE {_TABLES}")  # pyright: ignore[reportArgumentType]
        await conn.execute("CHECKPOINT")


async def _demand_rows(database_url: str, *, payments: int | None = None) -> None:
    """Each payment (of so many, if that is known) has its event, its delivery and its key; the counts know it."""
    async with connection(database_url) as conn:
        counted = await conn.fetchrow(
            """
            SELECT (SELECT count(*) FROM payments) AS payments, (SELECT count(*) FROM events) AS events,
                (SELECT count(*) FROM pending_deliveries) AS deliveries,
                (SELECT count(*) FROM idempotency_keys) AS keys,
                (SELECT sum(pending)::bigint FROM payment_counts WHERE hour = '-infinity') AS counted
            """
        )
    names = ("payments", "events", "deliveries", "keys", "counted")
    found: list[int] = [] if counted is None else [counted[name] for name in names]
    if set(found) != {payments or found[0]}:
        raise RuntimeError(f"{payments} payments were answered; there are {dict(zip(names, found, strict=True))}")


async def _written_scripts(database_url: str, directory: Path) -> tuple[Path, Path]:
    """pgbench's scripts, made of a payment that Zembil wrote: INSERT_PAYMENTS with arrays of one row, and plain."""
    async with connection(database_url) as conn:
        example = await _example(conn)
    values = [value.format(**example) for value in _VALUES]
    grouped = _ARRAY.sub(lambda found: f"ARRAY[{values[int(found[1]) - 1]}]::{found[2]}[]", INSERT_PAYMENTS)
    # Each client has a slot of the counts for itself, so that none waits for another.
    grouped = grouped.replace(f"${len(values) + 1}", ":client_id")
    return (
        _written(directory / "grouped.sql", grouped),
        _written(directory / "plain.sql", _PLAIN.format(**example)),
    )


def _written(path: Path, statement: str) -> Path:
    path.write_text(f"\\set customer random({orders.CUSTOMERS[0]}, {orders.CUSTOMERS[-1]})\n{statement};\n")
    return path


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
    asyncio.run(_empty(postgres.url))
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
    asyncio.run(_demand_rows(postgres.url))
    return float(found[1])


def _figures(turns: list[_Turn], in_flight: int) -> list[Figure]:
    at = f"{in_flight} in flight"
    is_judged = in_flight == IN_FLIGHT[0]

    def middle(name: str, of: Callable[[_Turn], float], **rest: Any) -> Figure:
        return Figure(name=f"{name}, {at}", value=median(map(of, turns)), **rest)

    def ratio(name: str, of: Callable[[_Turn], float], *, at_least: float | None) -> Figure:
        note = f"rounds from {min(map(of, turns)):.2f} to {max(map(of, turns)):.2f}"
        return middle(name, of, at_least=at_least, note=note)

    return [
        middle("POST /payments", lambda turn: turn.zembil_per_second, unit="req/s"),
        middle("pgbench, the same statement", lambda turn: turn.pgbench_per_second, unit="tx/s"),
        middle("pgbench, a plain statement", lambda turn: turn.plain_per_second, unit="tx/s"),
        ratio("POST against the same statement", lambda turn: turn.ratio, at_least=0.5 if is_judged else None),
        ratio("POST against a plain statement", lambda turn: turn.plain_ratio, at_least=0.5 if is_judged else None),
        middle("POST p50", lambda turn: turn.p50_ms, unit="ms"),
        middle("POST p99", lambda turn: turn.p99_ms, unit="ms", at_most=10 if is_judged else None),
        middle("processor of the API process", lambda turn: turn.zembil_cpu_us, unit="µs", note="per payment"),
        middle("processor of the generator", lambda turn: turn.generator_cpu_us, unit="µs", note="per payment"),
    ]
