"""Customer, merchant, network and clock at once: a payment ends once, and no money is lost or made."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import token_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import advance, created, demand_books_that_balance, found, refund, story

PAYMENTS, PAYMENTS_TO_PROVE = 12, 100
FINAL = ("completed", "failed", "cancelled")
ANY_TIME = httpx2.Timeout(60, pool=None)  # however long the others take


def sandbox(merchant: Merchant, role: str = "admin") -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {merchant.sandbox[f'{role}_key']}"}
    return httpx2.AsyncClient(base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=ANY_TIME)


def demand_one_end(gateway: Gateway, api: httpx2.Client, payment: dict[str, Any]) -> str:
    """Exactly one final event, which tells what the payment is."""
    shown = found(api, payment)
    ends = [what for what in story(gateway, payment) if what in FINAL]
    assert ends == [shown["status"]]
    assert ("transaction_id" in shown, "completed_at" in shown) == ((shown["status"] == "completed"),) * 2
    return shown["status"]


@pytest.mark.parametrize("begun", [False, True], ids=["no prompt is open", "a prompt is open"])
def test_a_payment_that_everybody_ends_at_once_ends_once(gateway: Gateway, merchant: Merchant, begun: bool) -> None:
    end_each_at_once(gateway, merchant, payments=PAYMENTS, begun=begun)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
@pytest.mark.parametrize("begun", [False, True], ids=["no prompt is open", "a prompt is open"])
def test_a_hundred_payments_that_everybody_ends_at_once_end_once(start: Callable[..., Gateway], begun: bool) -> None:
    gateway = start(environment={"ZEMBIL_RATE_LIMIT_SANDBOX": "0"})
    merchant = gateway.merchant
    end_each_at_once(gateway, merchant, payments=PAYMENTS_TO_PROVE, begun=begun)
    merchant.close()


def end_each_at_once(gateway: Gateway, merchant: Merchant, *, payments: int, begun: bool) -> None:
    """Customer, merchant, network and clock end each of so many payments at the same moment."""
    api = merchant.client()
    pending = [created(api, expires_in=300) for _ in range(payments)]
    forms: list[dict[str, str]] = []
    with httpx2.Client(timeout=30) as phone:
        for number, payment in enumerate(pending):
            if begun:
                body = {"phone": f"+2519112233{number:02d}", "mobile_money_provider": "telebirr"}
                assert api.post(f"/payments/{payment['id']}/charge", json=body).status_code == 200
            page = phone.get(payment["payment_link"]).text
            forms.append({"form_token": token_of(page), "answer": "approve"})
    advance(api, 299)

    async def race() -> None:
        async with sandbox(merchant) as client, httpx2.AsyncClient(timeout=ANY_TIME) as phone:

            async def end(payment: dict[str, Any], form: dict[str, str]) -> None:
                path = f"/payments/{payment['id']}"
                # Money that an open prompt brings after a failure completes the payment, by right: two ends, no race.
                fails = [] if begun else [client.post(f"/test{path}/fail")]
                answers = await asyncio.gather(
                    phone.post(f"{payment['payment_link']}/handset", data=form),
                    phone.post(f"{payment['payment_link']}/handset", data=form),
                    client.post(f"{path}/cancel"),
                    client.post(f"{path}/cancel"),
                    client.post(f"/test{path}/complete"),
                    *fails,
                )
                assert {answer.status_code for answer in answers} <= {200, 303, 409}

            clock = client.post("/test/clock", json={"advance_seconds": 60})
            await asyncio.gather(clock, *(end(*pair) for pair in zip(pending, forms, strict=True)))

    asyncio.run(race())
    for payment in pending:
        assert eventually(lambda payment=payment: found(api, payment)["status"] != "pending", seconds=15)
        demand_one_end(gateway, api, payment)
    demand_books_that_balance(gateway, merchant)


def test_a_refund_that_many_decide_at_once_is_decided_once(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    assert api.post(f"/test/payments/{payment['id']}/complete").status_code == 200
    asked = [refund(api, payment, 5) for _ in range(10)]

    async def race() -> list[list[int]]:
        async with sandbox(merchant) as client:

            async def decide(one: dict[str, Any]) -> list[int]:
                decisions = ("approve", "reject") * 3
                answers = await asyncio.gather(
                    *(client.post(f"/refunds/{one['id']}/{decision}") for decision in decisions)
                )
                return [answer.status_code for answer in answers]

            return await asyncio.gather(*(decide(one) for one in asked))

    for statuses in asyncio.run(race()):
        assert sorted(statuses) == [200, 409, 409, 409, 409, 409]
    for one in asked:
        assert eventually(lambda one=one: found(api, one)["status"] in ("completed", "failed"), seconds=15)
        told = story(gateway, one)
        assert told in (["created", "failed"], ["created", "approved", "completed"])
    demand_books_that_balance(gateway, merchant)


def test_the_books_balance_at_every_moment_of_the_bustle(gateway: Gateway, merchant: Merchant) -> None:
    """While payments are paid and refunded, every snapshot of the ledger agrees with what it books."""
    api = merchant.client()
    account = account_of(gateway, merchant.sandbox["admin_key"])

    async def bustle() -> None:
        async with sandbox(merchant) as client:

            async def one() -> None:
                answer = await client.post("/payments", json={"amount": 100, "currency": "ETB"})
                payment_id = answer.json()["data"]["id"]
                assert (await client.post(f"/test/payments/{payment_id}/complete")).status_code == 200
                asked = await client.post("/refunds", json={"payment_id": payment_id, "amount": 40})
                refund_id = asked.json()["data"]["id"]
                assert (await client.post(f"/refunds/{refund_id}/approve")).status_code == 200

            await asyncio.gather(*(one() for _ in range(30)))

    async def watch() -> int:
        working = asyncio.create_task(bustle())
        looks = 0
        while not working.done() or looks < 3:
            await asyncio.to_thread(demand_books_that_balance_in_one_look, gateway, account)
            looks += 1
        await working
        return looks

    assert asyncio.run(watch()) >= 3
    assert eventually(
        lambda: api.get("/refunds?status=completed").json()["data"]["pagination"]["total"] == 30, seconds=20
    )
    demand_books_that_balance(gateway, merchant)


def demand_books_that_balance_in_one_look(gateway: Gateway, account: int) -> None:
    rows = query(
        gateway,
        """
        SELECT
            (SELECT coalesce(sum(credit_santim - debit_santim), 0)::bigint FROM ledger_balances WHERE account_id = $1)
                AS all_accounts,
            (SELECT coalesce(sum(credit_santim - debit_santim), 0)::bigint FROM ledger_balances
             WHERE account_id = $1 AND ledger_account = 'merchant_balance') AS kept,
            (SELECT coalesce(sum(CASE WHEN credit = 'merchant_balance' THEN amount_santim
                                      WHEN debit = 'merchant_balance' THEN -amount_santim ELSE 0 END), 0)::bigint
             FROM ledger_entries WHERE account_id = $1) AS by_entries,
            (SELECT coalesce(sum(amount_santim), 0)::bigint FROM payments
             WHERE account_id = $1 AND status = 'completed')
            - (SELECT coalesce(sum(amount_santim), 0)::bigint FROM refunds
               WHERE account_id = $1 AND state NOT IN ('pending_approval', 'failed')) AS by_facts
        """,
        account,
    )
    row = rows[0]
    assert row["all_accounts"] == 0
    assert row["kept"] == row["by_entries"] == row["by_facts"]
