"""Two processes of one deployment on one database: what both write at once, none of them writes twice or in vain."""

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import demand_books_that_balance
from tests.support.serving import serving
from zembil.db.pool import connection

Start = Callable[..., Gateway]

KEYS = 100
UNLIMITED = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0"}
HELD_SECONDS = 0.4  # until both processes have everything of a round in their queues
HELD_KEY = "INSERT INTO idempotency_keys (account_id, key, fingerprint, created_at) VALUES ($1, $2, $3, now())"
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def body_of(number: int) -> dict[str, Any]:
    """Every other payment has a reference: those are written in groups of their own."""
    body: dict[str, Any] = {"amount": 1, "currency": "ETB", "description": f"number {number}"}
    return body | ({"reference": f"order-{number}"} if number % 2 else {})


def write(
    merchant: Merchant, rounds: list[list[int]], together: threading.Barrier, answers: list[tuple[int, httpx2.Response]]
) -> None:
    """One process's client: in each round it asks for all these numbers in this order, without waiting in between."""

    async def ask(api: httpx2.AsyncClient, number: int) -> tuple[int, httpx2.Response]:
        key = {"Idempotency-Key": f"key-{number}"}
        return number, await api.post("/payments", json=body_of(number), headers=key)

    async def go() -> None:
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        async with httpx2.AsyncClient(
            base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=httpx2.Timeout(60, pool=None)
        ) as api:
            for numbers in rounds:
                await asyncio.to_thread(together.wait, 60)  # all of the last round is answered
                await asyncio.to_thread(together.wait, 60)  # and the middle is held
                answers.extend(await asyncio.gather(*(ask(api, number) for number in numbers)))

    asyncio.run(go())


def stop_each_round_in_the_middle(
    database_url: str, account: int, rounds: list[list[int]], together: threading.Barrier
) -> None:
    """Hold a key in the middle until both wait for it, each with half of the keys that the other wants next."""

    async def hold() -> None:
        async with connection(database_url) as conn:
            for numbers in rounds:
                await asyncio.to_thread(together.wait, 60)
                await conn.execute("BEGIN")
                for number in numbers[KEYS // 2 : KEYS // 2 + 2]:  # one of those with a reference, one without
                    await conn.execute(HELD_KEY, account, f"key-{number}", bytes(32))
                await asyncio.to_thread(together.wait, 60)
                await asyncio.sleep(HELD_SECONDS)
                await conn.execute("ROLLBACK")

    asyncio.run(hold())


def demand_no_error_in_opposite_order(start: Start, log: Path, *, rounds: int) -> None:
    """In each round both write the same new keys, one upwards and one downwards."""
    gateway = start(environment=UNLIMITED)
    merchant = gateway.merchant
    account = account_of(gateway, merchant.sandbox["admin_key"])
    deadlocks = query(gateway, DEADLOCKS)[0]["deadlocks"]
    upwards = [list(range(n * KEYS, (n + 1) * KEYS)) for n in range(rounds)]
    downwards = [numbers[::-1] for numbers in upwards]
    together = threading.Barrier(3)
    answers: list[tuple[int, httpx2.Response]] = []
    with (
        serving(gateway.database_url, log.with_name("one.log"), **UNLIMITED) as one,
        serving(gateway.database_url, log.with_name("two.log"), **UNLIMITED) as two,
    ):
        clients = [
            threading.Thread(target=write, args=(Merchant(origin, merchant.sandbox, {}), order, together, answers))
            for origin, order in ((one, upwards), (two, downwards))
        ]
        for client in clients:
            client.start()
        stop_each_round_in_the_middle(gateway.database_url, account, upwards, together)
        for client in clients:
            client.join(timeout=300)

    made: dict[int, set[str]] = defaultdict(set)
    assert len(answers) == 2 * rounds * KEYS
    for number, answer in answers:
        assert answer.status_code == 201 or answer.json()["error"]["code"] == "idempotency_in_progress", answer.text
        if answer.status_code == 201:
            made[number].add(answer.json()["data"]["id"])
    assert {number: len(payments) for number, payments in made.items()} == dict.fromkeys(range(rounds * KEYS), 1)
    rows = query(gateway, "SELECT id FROM payments WHERE account_id = $1", account)
    assert len(rows) == rounds * KEYS
    # PostgreSQL counts a deadlock some time after it has ended it.
    assert not eventually(lambda: query(gateway, DEADLOCKS)[0]["deadlocks"] > deadlocks, seconds=1.5)
    for name in ("one.log", "two.log"):
        assert "deadlock" not in log.with_name(name).read_text(errors="replace").lower()
    demand_books_that_balance(gateway, merchant)
    merchant.close()
    assert gateway.stop() == 0


def test_the_same_hundred_keys_in_opposite_order_from_two_processes_are_a_hundred_payments(
    start: Start, tmp_path: Path
) -> None:
    demand_no_error_in_opposite_order(start, tmp_path / "log", rounds=5)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_many_rounds_of_the_same_keys_in_opposite_order_meet_no_error(start: Start, tmp_path: Path) -> None:
    demand_no_error_in_opposite_order(start, tmp_path / "log", rounds=100)
