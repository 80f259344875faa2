"""kill -9 of everything, under load, at any moment: whatever was acknowledged is found again, field by field."""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
import psutil
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import token_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver
from zembil import ids
from zembil.db.pool import connection
from zembil.ids import Prefix

Start = Callable[..., Gateway]

CLIENTS = 6
ROUNDS = 5
ROUNDS_TO_PROVE = 50
# More is asked here than an account may in a minute.
UNLIMITED = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0"}
# What the phone decides (decisions, section 7); None: nobody is asked.
PHONES = ("+251900000000", "+251900000002", None, None)


@dataclass
class Acknowledged:
    """What clients were told, and hold Zembil to."""

    payments: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict[str, tuple[dict[str, Any], dict[str, Any]]]
    )  # by id: what was asked for, what was answered
    approved: set[str] = field(default_factory=set[str])  # on the handset, and the answer came


def order(number: int) -> dict[str, Any]:
    """A payment with every field; many different ones."""
    phone = PHONES[number % len(PHONES)]
    asked: dict[str, Any] = {
        "amount": round((number % 90_000) / 100 + 1, 2),
        "currency": "ETB",
        "customer": {"email": f"abebe{number}@example.com", "phone": phone or f"+2519{number:08}"},
        "description": f"ቡና {number}",
        "callback_url": f"https://shop.example.et/thanks?order={number}",
        "metadata": {"order": str(number)},
    }
    if number % 3 == 0:
        asked["reference"] = f"order-{number}"
    if phone is not None:
        asked["mobile_money_provider"] = "telebirr"
    return asked


def shop(merchant: Merchant, numbers: list[int], told: Acknowledged) -> None:
    """Create payments, and approve some on the handset, until the gateway is gone."""
    with merchant.client() as api, httpx2.Client(timeout=30) as phone:
        try:
            for number in numbers:
                asked = order(number)
                answer = api.post("/payments", json=asked)
                assert answer.status_code == 201, answer.text
                created = answer.json()["data"]
                told.payments[created["id"]] = (asked, created)
                if "mobile_money_provider" not in asked and number % 5 == 0:
                    approve(phone, created["payment_link"], asked["customer"]["phone"])
                    told.approved.add(created["id"])
        except httpx2.TransportError:
            return
    raise AssertionError("the clients ended before the gateway did")


def approve(phone: httpx2.Client, link: str, number: str) -> None:
    page = phone.get(link)
    assert page.status_code == 200
    form = {"form_token": token_of(page.text), "mobile_money_provider": "telebirr", "phone": number}
    assert phone.post(f"{link}/charge", data=form).status_code == 303
    answer = {"form_token": token_of(phone.get(link).text), "answer": "approve"}
    assert phone.post(f"{link}/handset", data=answer).status_code == 303


def demand_what_was_acknowledged(api: httpx2.Client, told: Acknowledged, payment_ids: list[str]) -> None:
    """Every one of these payments is found, and every field of it is as it was told."""
    for payment_id in payment_ids:
        asked, created = told.payments[payment_id]
        answer = api.get(f"/payments/{payment_id}")
        assert answer.status_code == 200, payment_id
        found = answer.json()["data"]
        for name in ("id", "amount", "currency", "payment_method", "expires_at", "created_at"):
            assert found[name] == created[name]
        assert found["payment_link"].rpartition("/")[2] == created["payment_link"].rpartition("/")[2]
        assert found["customer"] == asked["customer"]
        for name in ("description", "callback_url", "metadata"):
            assert found[name] == asked[name]
        for name in ("reference", "mobile_money_provider"):
            assert found.get(name) == asked.get(name)


CHARGES_OPEN = """
    SELECT c.id FROM charges c JOIN payments p ON p.account_id = c.account_id AND p.id = c.payment_id
    WHERE c.account_id = $1 AND c.ended_at IS NULL
        AND (c.confirmed_at IS NOT NULL OR c.prompted_at IS NULL OR p.mobile_money_provider IS NOT NULL)
"""
_EVENTS = "SELECT id, object_id, sequence, type FROM events WHERE account_id = $1"
_PAYMENTS = "SELECT id, status, sequence FROM payments WHERE account_id = $1"
_COUNTS = """
    SELECT hour = '-infinity' AS all_time, sum(pending)::int AS pending, sum(completed)::int AS completed,
        sum(failed)::int AS failed, sum(cancelled)::int AS cancelled
    FROM payment_counts WHERE account_id = $1 GROUP BY 1
"""
_DELIVERIES = """
    SELECT d.id, d.event_id, d.attempts_made, d.status,
        (SELECT count(*) FROM delivery_attempts a WHERE a.account_id = $1 AND a.delivery_id = d.id) AS recorded
    FROM (
        SELECT id, event_id, attempts_made, 'pending' AS status FROM pending_deliveries WHERE account_id = $1
        UNION ALL
        SELECT id, event_id, attempts_made, status FROM deliveries WHERE account_id = $1
    ) d
"""


def at_one_moment(gateway: Gateway, account: int, *statements: str) -> list[list[Any]]:
    """The rows of several statements, all of one snapshot: the worker goes on meanwhile."""

    async def fetch() -> list[list[Any]]:
        async with connection(gateway.database_url) as conn:
            driver: Any = conn
            async with driver.transaction(isolation="repeatable_read", readonly=True):
                return [await driver.fetch(statement, account) for statement in statements]

    return asyncio.run(fetch())


def demand_consistency(gateway: Gateway, account: int, told: Acknowledged, receiver: Receiver) -> None:
    """What holds in the tables at every moment, also right after a crash."""
    events, payments, counts, deliveries = at_one_moment(gateway, account, _EVENTS, _PAYMENTS, _COUNTS, _DELIVERIES)
    assert len(payments) >= len(told.payments)
    by_payment: dict[Any, list[tuple[int, str]]] = {row["id"]: [] for row in payments}
    for row in events:
        by_payment[row["object_id"]].append((row["sequence"], row["type"]))
    for row in payments:
        mine = sorted(by_payment[row["id"]])
        assert [sequence for sequence, _ in mine] == list(range(1, row["sequence"] + 1))
        assert mine[0][1] == "payment.created"
        finals = [kind for _, kind in mine if kind in ("payment.completed", "payment.failed", "payment.cancelled")]
        assert finals == ([] if row["status"] == "pending" else [f"payment.{row['status']}"])

    by_status = Counter(row["status"] for row in payments)
    expected = {status: by_status[status] for status in ("pending", "completed", "failed", "cancelled")}
    assert [{status: row[status] for status in expected} for row in counts] == [expected] * (2 if payments else 0)

    # One delivery for each event, waiting or over, each attempt of it recorded.
    assert sorted(row["event_id"].int for row in deliveries) == sorted(row["id"].int for row in events)
    received = Counter(request.headers["webhook-id"] for request in list(receiver.received))
    for row in deliveries:
        assert row["recorded"] == row["attempts_made"] <= 3
        assert row["status"] in ("pending", "succeeded")
        if row["status"] == "succeeded":
            assert 1 <= received[ids.shown(Prefix.EVENT, row["event_id"])] <= row["attempts_made"]


def demand_charges_in_time(gateway: Gateway, account: int) -> None:
    """No charge waits longer than its schedule says, and every open one has a time at which its rail is asked."""
    late = """
        SELECT id, state, ask_at FROM charges
        WHERE account_id = $1 AND ended_at IS NULL AND (ask_at IS NULL OR ask_at < now() - interval '2 seconds')
    """
    assert eventually(lambda: query(gateway, late, account) == [], seconds=3)
    doubled = query(
        gateway,
        "SELECT payment_id FROM charges WHERE account_id = $1 GROUP BY 1 HAVING count(*) FILTER (WHERE ended_at IS NULL"
        " OR state = 'succeeded') > 1",
        account,
    )
    assert doubled == []


def kill_and_start_again(start: Start, receiver: Receiver, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (when to kill is no secret)
    told = Acknowledged()
    gateway = start(environment=UNLIMITED)
    merchant = gateway.new_merchant()
    account = account_of(gateway, merchant.sandbox["admin_key"])
    with merchant.client() as api:
        assert api.post("/webhooks", json={"url": receiver.url, "events": ["*"]}).status_code == 201
    recoveries: list[float] = []
    for round_number in range(rounds):
        now = Merchant(gateway.origin, merchant.sandbox, merchant.live)
        before = set(told.payments)
        first = (round_number + 1) * 1_000_000
        clients = [
            threading.Thread(target=shop, args=(now, list(range(first + n, first + 999_999, CLIENTS)), told))
            for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        time.sleep(chance.uniform(0.2, 2))
        gateway.kill_tree()
        for client in clients:
            client.join()
        gateway = start(environment=UNLIMITED)
        recoveries.append(gateway.start_seconds)
        new = sorted(set(told.payments) - before)
        with Merchant(gateway.origin, merchant.sandbox, merchant.live).client() as api:
            demand_what_was_acknowledged(api, told, new + chance.sample(sorted(before), min(len(before), 50)))
            demand_the_total(gateway, api, account)
        demand_consistency(gateway, account, told, receiver)

    with Merchant(gateway.origin, merchant.sandbox, merchant.live).client() as api:
        settle(gateway, api, account, receiver)
        demand_what_was_acknowledged(api, told, sorted(told.payments))
        demand_the_total(gateway, api, account)
        for payment_id, (asked, _) in told.payments.items():
            status = api.get(f"/payments/{payment_id}").json()["data"]["status"]
            if payment_id in told.approved or asked["customer"]["phone"] == PHONES[0]:
                assert status == "completed"
            if asked["customer"]["phone"] == PHONES[1]:
                assert status == "cancelled"
    demand_consistency(gateway, account, told, receiver)
    assert told.approved
    assert gateway.stop() == 0
    print(
        f"{rounds} kills, {len(told.payments)} acknowledged payments, recovery in"
        f" {sorted(recoveries)[len(recoveries) // 2]:.2f} s (median), {max(recoveries):.2f} s (longest)"
    )


def demand_the_total(gateway: Gateway, api: httpx2.Client, account: int) -> None:
    rows = query(gateway, "SELECT count(*) FROM payments WHERE account_id = $1", account)[0][0]
    assert api.get("/payments").json()["data"]["pagination"]["total"] == rows


def settle(gateway: Gateway, api: httpx2.Client, account: int, receiver: Receiver) -> None:
    """Wait until every charge is decided and every event has arrived; the clock is moved for what was cut off."""
    api.post("/test/clock", json={"advance_seconds": 60})
    fewest, moved_at = None, time.monotonic()
    while True:
        demand_charges_in_time(gateway, account)
        charges = query(gateway, CHARGES_OPEN, account)
        waiting = query(gateway, "SELECT id FROM pending_deliveries WHERE account_id = $1", account)
        if not charges and not waiting:
            break
        left = len(charges) + len(waiting)
        if fewest is None or left < fewest:
            fewest, moved_at = left, time.monotonic()
        assert time.monotonic() - moved_at < 30, f"{len(charges)} charges and {len(waiting)} deliveries are stuck"
        time.sleep(1)
    events = query(gateway, "SELECT count(*) FROM events WHERE account_id = $1", account)[0][0]
    assert len({request.headers["webhook-id"] for request in receiver.received}) == events


def test_whatever_was_acknowledged_survives_kills_under_load(start: Start, receiver: Receiver) -> None:
    kill_and_start_again(start, receiver, rounds=ROUNDS, seed=random.randrange(1_000_000))  # noqa: S311


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_whatever_was_acknowledged_survives_many_kills(start: Start, receiver: Receiver) -> None:
    kill_and_start_again(start, receiver, rounds=ROUNDS_TO_PROVE, seed=random.randrange(1_000_000))  # noqa: S311


def test_a_killed_database_process_costs_refusals_and_nothing_else(start: Start) -> None:
    """PostgreSQL ends all connections and recovers when one of its processes is killed; nobody restarts us for that."""
    gateway = start(environment=UNLIMITED)
    merchant = gateway.new_merchant()
    created: list[str] = []
    answers: Counter[int] = Counter()
    with merchant.client() as api:
        for round_number in range(3):
            backends = query(gateway, "SELECT pid FROM pg_stat_activity WHERE application_name = 'zembil'")
            psutil.Process(backends[0]["pid"]).kill()
            began = time.monotonic()
            good = 0
            while good < 20:
                answer = api.post("/payments", json=order(1_000_000 * round_number + answers.total()))
                answers[answer.status_code] += 1
                if answer.status_code == 201:
                    created.append(answer.json()["data"]["id"])
                    good += 1
                else:
                    assert answer.status_code == 503
                    assert int(answer.headers["retry-after"]) > 0
                    assert time.monotonic() - began < 10
                    time.sleep(0.05)
        for payment_id in created:
            assert api.get(f"/payments/{payment_id}").status_code == 200
        rows = query(
            gateway,
            "SELECT count(*) FROM payments WHERE account_id = $1",
            account_of(gateway, merchant.sandbox["admin_key"]),
        )
        assert len(created) <= rows[0][0] <= answers.total()
    assert gateway.stop() == 0
