"""How long events, deliveries and attempts are kept: by the month, and never less than somebody needs."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from tests.acceptance.test_deliveries import create, register, worker_settings
from tests.acceptance.test_dev import eventually, running, zembil
from tests.support.database import query
from tests.support.gateway import Gateway
from tests.support.receiver import Receiver
from zembil import ids

Start = Callable[..., Gateway]

MOVED = ("events", "deliveries", "delivery_attempts")


def months_ago(months: int) -> datetime:
    """The tenth of a month that is over."""
    at = datetime.now(UTC).replace(day=10)
    for _ in range(months):
        at = at.replace(day=1) - timedelta(days=1)
    return at.replace(day=10)


def ended(api: httpx2.Client, receiver: Receiver) -> str:
    """A payment that was told twice: created, completed."""
    payment_id: str = create(api)["id"]
    told = len(receiver.received) + 1
    assert api.post(f"/test/payments/{payment_id}/complete").status_code == 200
    receiver.wait_for(told)
    return payment_id


def age(gateway: Gateway, payment_id: str, *, to: datetime) -> None:
    """Make what was told of a payment as old as that, with all its deliveries, in a month of its own."""
    object_id = ids.parsed(ids.Prefix.PAYMENT, payment_id)
    first = to.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    bounds = [ids.id_at(at) for at in (first, (first + timedelta(days=32)).replace(day=1))]
    for table in MOVED:
        query(
            gateway,
            f"CREATE TABLE IF NOT EXISTS {table}_{to:%Y_%m} PARTITION OF {table}"
            f" FOR VALUES FROM ('{bounds[0]}') TO ('{bounds[1]}')",
        )
    beginning = str(ids.id_at(to))[:13]
    # A delivery's attempts first: they are found by it, and it by its event.
    for statement in (
        """
        UPDATE delivery_attempts SET delivery_id = ($2 || right(delivery_id::text, 23))::uuid
        WHERE delivery_id IN (SELECT d.id FROM deliveries d JOIN events e ON e.id = d.event_id WHERE e.object_id = $1)
        """,
        """
        UPDATE deliveries
        SET id = ($2 || right(id::text, 23))::uuid, event_id = ($2 || right(event_id::text, 23))::uuid
        WHERE event_id IN (SELECT id FROM events WHERE object_id = $1)
        """,
        "UPDATE events SET id = ($2 || right(id::text, 23))::uuid WHERE object_id = $1",
    ):
        query(gateway, statement, object_id, beginning)
    query(gateway, "UPDATE payments SET ended_at = $2 WHERE id = $1 AND ended_at IS NOT NULL", object_id, to)


def kept(gateway: Gateway) -> set[str]:
    """The months that there are, of each table."""
    rows = query(gateway, "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r'")
    names = [row["relname"].rsplit("_", 2) for row in rows if not row["relname"].endswith("default")]
    return {f"{table} {year}_{month}" for table, year, month in names}


def of(*months: datetime) -> set[str]:
    return {f"{table} {month:%Y_%m}" for table in MOVED for month in months}


def work(gateway: Gateway, *, until: Callable[[], bool], **settings: str) -> None:
    """Run a worker that keeps history for 30 days."""
    with running("worker", settings=worker_settings(gateway) | {"ZEMBIL_HISTORY_DAYS": "30"} | settings) as worker:
        eventually(until)
        time.sleep(0.5)
        worker.terminate()
        assert worker.wait(30) == 0


def told_of(api: httpx2.Client, payment_id: str) -> list[Any]:
    return api.get("/events", params={"object": payment_id}).json()["data"]["events"]


def test_history_is_dropped_by_the_month_but_not_while_something_told_in_it_waits(
    start: Start, receiver: Receiver
) -> None:
    gateway = start()
    merchant = gateway.new_merchant()
    oldest, middle, recent = (months_ago(months) for months in (5, 4, 0))
    with merchant.client() as api:
        endpoint = register(api, receiver.url, "payment.created", "payment.completed")
        forgotten, waited_for, remembered = (ended(api, receiver) for _ in range(3))
        assert eventually(lambda: query(gateway, "SELECT id FROM pending_deliveries") == [])
        for payment_id, month in ((forgotten, oldest), (waited_for, middle), (remembered, recent)):
            age(gateway, payment_id, to=month)
        query(
            gateway,
            """
            INSERT INTO pending_deliveries (account_id, endpoint_id, id, event_id, due_at)
            SELECT e.account_id, $2, gen_random_uuid(), e.id, now() + interval '1 day'
            FROM events e WHERE e.object_id = $1 LIMIT 1
            """,
            ids.parsed(ids.Prefix.PAYMENT, waited_for),
            ids.parsed(ids.Prefix.ENDPOINT, endpoint["id"]),
        )
        assert kept(gateway) >= of(oldest, middle, recent)

        work(gateway, until=lambda: not kept(gateway) & of(oldest))
        assert not kept(gateway) & of(oldest)
        assert kept(gateway) >= of(middle, recent)
        assert [len(told_of(api, payment_id)) for payment_id in (forgotten, waited_for, remembered)] == [0, 4, 4]
        assert api.get(f"/payments/{forgotten}").json()["data"]["status"] == "completed"
        done = zembil("verify", "--data", str(gateway.data))
        assert done.returncode == 0, done.stdout

        query(gateway, "DELETE FROM pending_deliveries")
        work(gateway, until=lambda: not kept(gateway) & of(middle))
        assert not kept(gateway) & of(oldest, middle)
        assert kept(gateway) >= of(recent)
        assert [len(told_of(api, payment_id)) for payment_id in (waited_for, remembered)] == [0, 4]
        done = zembil("verify", "--data", str(gateway.data))
        assert done.returncode == 0, done.stdout


def test_what_was_sent_again_lately_keeps_its_event(start: Start, receiver: Receiver) -> None:
    gateway = start()
    merchant = gateway.new_merchant()
    old = months_ago(5)
    with merchant.client() as api:
        register(api, receiver.url, "payment.created")
        payment_id = create(api)["id"]
        receiver.wait_for(1)
        assert eventually(lambda: query(gateway, "SELECT id FROM pending_deliveries") == [])
        age(gateway, payment_id, to=old)
        delivery_id = ids.shown(ids.Prefix.DELIVERY, query(gateway, "SELECT id FROM deliveries")[0]["id"])
        again = api.post(f"/deliveries/{delivery_id}/redeliver").json()["data"]
        receiver.wait_for(2)
        work(gateway, until=lambda: not kept(gateway) & of(old))
        assert kept(gateway) >= of(old)
        assert api.get(f"/deliveries/{again['id']}").json()["data"]["status"] == "succeeded"

        query(gateway, "DELETE FROM deliveries WHERE redelivery_of IS NOT NULL")
        work(gateway, until=lambda: not kept(gateway) & of(old))
        assert not kept(gateway) & of(old)
