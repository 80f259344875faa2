"""Claims of several workers at the same moment: every place of an endpoint is taken once, and every delivery."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from zembil.accounts.operations import create_merchant
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.migrate import migrate
from zembil.db.pool import Database, connected, transaction
from zembil.webhooks import lifecycle, queries
from zembil.webhooks.model import Attempted, Dispatch

ENDPOINTS, EVENTS, PLACES, WORKERS = 3, 60, 4, 8
BEFORE_ALL = (0, uuid.UUID(int=0))


@pytest.fixture
def database_url(tmp_path: Path) -> Iterator[str]:
    data = tmp_path / "postgres"
    with EmbeddedPostgres.start(data) as postgres:
        yield postgres.url
    EmbeddedPostgres.reset(data)


async def fill(db: Database) -> None:
    await create_merchant(db, "Abebe's shop", at=datetime.now(UTC))
    async with transaction(db) as conn:
        await conn.execute(
            """
            INSERT INTO webhook_endpoints (account_id, id, url, events, sealed_secret)
            SELECT a.id, gen_random_uuid(), 'https://shop.example.et', '{*}', 'sealed'
            FROM accounts a, generate_series(1, $1::integer) WHERE NOT a.livemode
            """,
            ENDPOINTS,
        )
        await conn.execute(
            """
            WITH told AS (
                INSERT INTO events (account_id, id, object_id, sequence, type, created_at, payload)
                SELECT id, gen_random_uuid(), gen_random_uuid(), 1, 'payment.created', now(), '{}'
                FROM accounts, generate_series(1, $1::integer) WHERE NOT livemode
                RETURNING account_id, id
            )
            INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
            SELECT told.account_id, w.id, gen_random_uuid(), told.id, now() FROM told CROSS JOIN webhook_endpoints w
            """,
            EVENTS,
        )


async def claim(db: Database, *, lease: timedelta = lifecycle.LEASE) -> list[Dispatch]:
    async with transaction(db) as conn:
        endpoints = await queries.lock_endpoints_with_room(conn, after=BEFORE_ALL, per_endpoint=PLACES, limit=256)
        return await queries.claim_due(
            conn, endpoints, retry_delays=[timedelta(minutes=1)] * 3, lease=lease, per_endpoint=PLACES, limit=256
        )


async def claim_at_once(db: Database, **options: timedelta) -> list[Dispatch]:
    """What all workers get together, each of which asks until there is nothing for it."""

    async def work() -> list[Dispatch]:
        mine: list[Dispatch] = []
        for _ in range(5):
            mine += await claim(db, **options)
        return mine

    return [one for mine in await asyncio.gather(*(work() for _ in range(WORKERS))) for one in mine]


async def test_workers_that_claim_at_the_same_moment_take_four_of_an_endpoint_and_each_delivery_once(
    database_url: str,
) -> None:
    await migrate(database_url)
    seen: Counter[uuid.UUID] = Counter()
    async with connected(database_url, connections_max=WORKERS) as db:
        await fill(db)
        for _ in range(EVENTS // PLACES):
            claimed = await claim_at_once(db)
            assert sorted(Counter(one.endpoint_id for one in claimed).values()) == [PLACES] * ENDPOINTS
            assert {one.attempt for one in claimed} == {1}
            seen.update(one.delivery_id for one in claimed)
            async with transaction(db) as conn:
                assert await queries.record_attempts(conn, [(one, Attempted(1, 200)) for one in claimed]) == []
        assert await claim_at_once(db) == []
    assert list(seen.values()) == [1] * ENDPOINTS * EVENTS


async def test_a_place_whose_lease_is_over_is_free_and_a_late_result_is_still_recorded_once(database_url: str) -> None:
    await migrate(database_url)
    async with connected(database_url, connections_max=WORKERS) as db:
        await fill(db)
        cut_off = await claim(db, lease=timedelta(0))
        assert len(cut_off) == PLACES * ENDPOINTS
        others = await claim_at_once(db)
        assert len(others) == PLACES * ENDPOINTS
        assert not {one.delivery_id for one in cut_off} & {one.delivery_id for one in others}

        async with transaction(db) as conn:
            await conn.execute(
                "UPDATE pending_deliveries SET due_at = now() - interval '1 hour' WHERE in_flight_until <= now()"
            )
            await queries.record_attempts(conn, [(one, Attempted(1, 200)) for one in others])
            await queries.update_deliveries_cut_off(conn)
        again = {one.delivery_id: one for one in await claim_at_once(db) if one.attempt == 2}
        assert again
        slow = next(one for one in cut_off if one.delivery_id in again)
        async with transaction(db) as conn:
            # The slow worker comes too late: its attempt is recorded, its delivery is another's.
            await queries.record_attempts(conn, [(slow, Attempted(14_000, 200))])
            assert await conn.fetchval("SELECT count(*) FROM pending_deliveries WHERE id = $1", slow.delivery_id) == 1
            await queries.record_attempts(conn, [(again[slow.delivery_id], Attempted(2, 200))])
            rows = await conn.fetch(
                "SELECT number, latency_ms FROM delivery_attempts WHERE delivery_id = $1 ORDER BY number",
                slow.delivery_id,
            )
            assert [(row["number"], row["latency_ms"]) for row in rows] == [(1, 14_000), (2, 2)]
            status = await conn.fetchval("SELECT status FROM deliveries WHERE id = $1", slow.delivery_id)
            assert status == "succeeded"


async def test_an_endpoint_fails_since_its_first_failure_until_something_arrives(database_url: str) -> None:
    await migrate(database_url)
    async with connected(database_url, connections_max=WORKERS) as db:
        await fill(db)
        claimed = await claim(db)
        async with transaction(db) as conn:
            await conn.execute("UPDATE pending_deliveries SET attempts_made = 3 WHERE in_flight_until IS NOT NULL")
            last = [replace(one, attempt=3) for one in claimed]
            one_of_each = list({one.endpoint_id: one for one in last}.values())
            failing = await queries.record_attempts(conn, [(one, Attempted(1, 500)) for one in one_of_each])
            assert sorted(failing) == sorted(one.endpoint_id for one in one_of_each)
            # Said once: the next failure is no news.
            rest = [one for one in last if one not in one_of_each]
            assert await queries.record_attempts(conn, [(one, Attempted(1, 500)) for one in rest[:-1]]) == []
            await queries.record_attempts(conn, [(rest[-1], Attempted(1, 200))])
            rows = await conn.fetch(
                "SELECT id, failing_since FROM webhook_endpoints ORDER BY failing_since NULLS FIRST"
            )
        assert [row["failing_since"] is None for row in rows] == [True, False, False]
        assert rows[0]["id"] == rest[-1].endpoint_id
