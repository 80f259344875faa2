"""Payments over every number of the sandbox, confirmed by many at once, while everything is killed again and again."""

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import token_of
from tests.acceptance.test_management import zembil
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import advance, demand_books_that_balance

Start = Callable[..., Gateway]
Send = Callable[[httpx2.AsyncClient], Awaitable[httpx2.Response]]

UNLIMITED = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0"}
# Decisions, section 7: the numbers that end in these digits bring money in the end, and so does a person who approves.
NUMBERS = 10
PAYING, PAYS_LATE = frozenset({0, 5, 6, 7, 9}), 7
AT_ONCE = 16  # payments under way
CONFIRMATIONS = 3  # of each, at once
GONE_SECONDS_MAX = 60
FINAL = ("payment.completed", "payment.failed", "payment.cancelled")
# Over the network's 120 seconds, the end of every payment, and the whole schedule of doubt.
STEPS = (20, 60, 60, 300, 3600, 600, 3600, 6 * 3600, 24 * 3600, 24 * 3600)
DUE = """
    SELECT 1 FROM charges WHERE account_id = $1 AND ask_at <= now()
    UNION ALL SELECT 1 FROM payments WHERE account_id = $1 AND due_at <= now()
    UNION ALL SELECT 1 FROM refunds WHERE account_id = $1 AND ask_at <= now()
"""


def phone_of(number: int) -> str:
    """Every number of the sandbox in turn, and then somebody with a handset."""
    kind = number % (NUMBERS + 1)
    return f"+25190000000{kind}" if kind < NUMBERS else f"+25191{number:07}"


def pays(number: int) -> bool:
    kind = number % (NUMBERS + 1)
    return kind == NUMBERS or kind in PAYING


def is_a_persons(number: int) -> bool:
    return number % (NUMBERS + 1) == NUMBERS


@dataclass
class Shop:
    """Merchant and payers, who go on wherever the gateway comes back."""

    gateway: Gateway
    merchant: Merchant  # its keys
    begun: int = 0
    payments: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    answers: Counter[int] = field(default_factory=Counter[int])

    async def told(self, api: httpx2.AsyncClient, method: str, path: str, **options: Any) -> httpx2.Response:
        """Ask until there is an answer: while the gateway is gone, wait for it."""
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while True:
            url = path if path.startswith("/p/") else f"/sandbox/v1{path}"
            try:
                answer = await api.request(method, f"{self.gateway.origin}{url}", **options)
            except httpx2.TransportError:
                assert time.monotonic() < deadline, "the gateway stayed away"
                await asyncio.sleep(0.05)
                continue
            self.answers[answer.status_code] += 1
            if answer.status_code != 503 or answer.json()["error"]["code"] == "provider_unavailable":
                return answer
            assert time.monotonic() < deadline, answer.text
            await asyncio.sleep(0.05)

    async def sell(self, api: httpx2.AsyncClient, number: int) -> None:
        """Create one payment and have everybody confirm it at once, some of them with one key, some of them again."""
        self.begun += 1
        phone = phone_of(number)
        body: dict[str, Any] = {"amount": round(number / 100 + 1, 2), "currency": "ETB", "customer": {"phone": phone}}
        if number % 2:
            body["mobile_money_provider"] = "mpesa"
        key = {"Idempotency-Key": f"payment-{number}"}
        answer = await self.told(api, "POST", "/payments", json=body, headers=key)
        while answer.status_code == 409:  # the first request was killed in the middle, or is still being written
            await asyncio.sleep(0.05)
            answer = await self.told(api, "POST", "/payments", json=body, headers=key)
        assert answer.status_code == 201, answer.text
        payment = self.payments[number] = answer.json()["data"]
        charge = {"phone": phone, "mobile_money_provider": "telebirr"}
        path = f"/payments/{payment['id']}/charge"
        keyed = {"headers": {"Idempotency-Key": f"charge-{number}"}}
        charged = await asyncio.gather(
            *(self.told(api, "POST", path, json=charge, **keyed) for _ in range(CONFIRMATIONS)),
            *(self.told(api, "POST", path, json=charge) for _ in range(CONFIRMATIONS)),
        )
        assert {answer.status_code for answer in charged} <= {200, 409, 422, 503}, [a.text for a in charged]
        if is_a_persons(number):
            await asyncio.gather(*(self.approve(api, payment) for _ in range(CONFIRMATIONS)))

    async def approve(self, api: httpx2.AsyncClient, payment: dict[str, Any]) -> None:
        """Press on the handset, as soon as the prompt is there, until the network has the answer."""
        page = f"/p/{payment['payment_link'].rpartition('/')[2]}"
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while (await self.told(api, "GET", f"/payments/{payment['id']}")).json()["data"]["status"] == "pending":
            assert time.monotonic() < deadline, "nobody got an answer through"
            text = (await self.told(api, "GET", page)).text
            if 'value="approve"' in text:
                form = {"form_token": token_of(text), "answer": "approve"}
                assert (await self.told(api, "POST", f"{page}/handset", data=form)).status_code in (303, 409)
            await asyncio.sleep(0.2)

    async def sell_all(self, count: int) -> None:
        headers = {"Authorization": f"Bearer {self.merchant.sandbox['admin_key']}"}
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await self.sell(api, number)

        async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, pool=None)) as api:
            await asyncio.gather(*(one(number) for number in range(count)))


def confirm_and_kill(start: Start, *, payments: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  (when to kill is no secret)
    gateway = start(environment=UNLIMITED)
    shop = Shop(gateway, gateway.merchant)
    failures: list[BaseException] = []

    def sell_all() -> None:
        try:
            asyncio.run(shop.sell_all(payments))
        except BaseException as error:  # noqa: BLE001  (told to the test, which is another thread)
            failures.append(error)

    selling = threading.Thread(target=sell_all)
    selling.start()
    for kill in range(kills):
        wanted = payments * (kill + chance.uniform(0, 0.9)) / kills
        eventually(lambda wanted=wanted: shop.begun >= wanted or bool(failures), seconds=GONE_SECONDS_MAX)
        assert failures == []
        time.sleep(chance.uniform(0, 0.3))
        shop.gateway.kill_tree()
        shop.gateway = start(environment=UNLIMITED)
    selling.join(timeout=300)
    assert not selling.is_alive()
    assert failures == []
    assert len(shop.payments) == payments
    assert not {status for status in shop.answers if status >= 500} - {503}
    demand_each_ended_once(shop, seed=seed)
    assert shop.gateway.stop() == 0
    print(f"{payments} payments, {kills} kills, answers {dict(sorted(shop.answers.items()))}, seed {seed}")


def demand_each_ended_once(shop: Shop, *, seed: int) -> None:
    gateway = shop.gateway
    merchant = Merchant(gateway.origin, shop.merchant.sandbox, shop.merchant.live)
    api = merchant.client()
    account = account_of(gateway, merchant.sandbox["admin_key"])
    for seconds in STEPS:
        advance(api, seconds)
        # A question takes its charge out of what is due for as long as it may last, so look twice.
        for _ in range(2):
            assert eventually(lambda: query(gateway, DUE, account) == []), f"seed {seed}: overdue"
            time.sleep(0.3)
    pending = "/payments?status=pending"
    assert eventually(lambda: api.get(pending).json()["data"]["pagination"]["total"] == 0), f"seed {seed}: unended"

    completed = Decimal(0)
    for number, created in shop.payments.items():
        payment = exact(api.get(f"/payments/{created['id']}"))
        assert (payment["status"] == "completed") == pays(number), (seed, number, payment)
        events = exact(api.get(f"/events?object={created['id']}&limit=100"))["events"]
        ends = [event["type"] for event in events if event["type"] in FINAL]
        # Newest first. Only where money comes late there may have been another end before it.
        assert ends[0] == f"payment.{payment['status']}"
        assert len(ends) == 1 or (number % (NUMBERS + 1) == PAYS_LATE and sorted(ends) == sorted(set(ends)))
        completed += payment["amount"] if payment["status"] == "completed" else 0
    demand_the_books(gateway, merchant, completed)
    demand_no_doubt_past_its_schedule(gateway, api)
    merchant.close()


def exact(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return json.loads(answer.text, parse_float=Decimal)["data"]


def demand_the_books(gateway: Gateway, merchant: Merchant, completed: Decimal) -> None:
    """The balance is what the completed payments come to, each booked by one charge; everything adds up."""
    api = merchant.client()
    balance = exact(api.get("/balance"))
    assert (balance["available"], balance["refunds_in_transit"], balance["unallocated"]) == (completed, 0, 0)
    account = account_of(gateway, merchant.sandbox["admin_key"])
    twice = """
        SELECT payment_id FROM charges WHERE account_id = $1 GROUP BY payment_id
        HAVING count(*) FILTER (WHERE state = 'succeeded') > 1 OR count(*) FILTER (WHERE ended_at IS NULL) > 1
    """
    assert query(gateway, twice, account) == []
    demand_books_that_balance(gateway, merchant)
    verified = zembil(gateway, "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def demand_no_doubt_past_its_schedule(gateway: Gateway, api: httpx2.Client) -> None:
    """Its schedule is over for every charge: one that is still in doubt stands in the operator's queue."""
    doubtful = exact(api.get("/charges?state=in_doubt&limit=100"))["charges"]
    assert [charge for charge in doubtful if not charge["needs_review"]] == []
    listed = zembil(gateway, "doubt", "list")
    assert listed.returncode == 0, listed.stderr
    assert all(charge["id"] in listed.stdout for charge in doubtful)


def test_payments_confirmed_by_many_at_once_complete_once_whatever_is_killed(start: Start) -> None:
    confirm_and_kill(start, payments=66, kills=3, seed=random.randrange(1_000_000))  # noqa: S311


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_five_hundred_payments_confirmed_by_many_at_once_complete_once_whatever_is_killed(start: Start) -> None:
    confirm_and_kill(start, payments=500, kills=25, seed=random.randrange(1_000_000))  # noqa: S311
