"""Refunds: asked for, approved by another person, sent once, never more than was paid."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import (
    PAYS,
    REFUND_FAILS,
    advance,
    balances,
    created,
    decide,
    demand_books_that_balance,
    demand_refusal,
    found,
    paid,
    pushed,
    refund,
    story,
)
from tests.support.receiver import Receiver

ENDED = ("completed", "failed")
CONTRACT_FIELDS = {"id", "payment_id", "status", "amount", "currency", "reason", "created_at"}


def settled(api: httpx2.Client, asked: dict[str, Any]) -> dict[str, Any]:
    assert eventually(lambda: found(api, asked)["status"] in ("completed", "failed"), seconds=10)
    return found(api, asked)


def test_a_refund_is_asked_for_approved_and_arrives(gateway: Gateway, merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    developer = merchant.client(role="developer")
    api.post("/webhooks", json={"url": receiver.url, "events": ["refund.completed"]})
    payment = paid(api, amount=150.50)
    asked = refund(developer, payment, 50.25, reason="Two bags came back", metadata={"order": "7"})
    assert asked.keys() >= CONTRACT_FIELDS
    assert (asked["status"], asked["amount"], asked["currency"]) == ("pending_approval", 50.25, "ETB")
    assert (asked["metadata"], asked["livemode"], asked["requested_by"][:4]) == ({"order": "7"}, False, "usr_")
    assert "approved_by" not in asked
    approved = decide(api, asked, "approve")
    assert approved["status"] == "approved"
    assert approved["approved_by"] not in (None, asked["requested_by"])
    completed = settled(api, asked)
    assert completed["status"] == "completed"
    assert completed["completed_at"] >= completed["approved_at"] >= completed["created_at"]
    assert story(gateway, asked) == ["created", "approved", "completed"]
    assert receiver.wait_for(1)[0].event["data"]["object"] == completed
    assert (found(api, payment)["status"], found(api, payment)["amount_refunded"]) == ("completed", 50.25)
    assert balances(gateway, merchant) == {
        "rail_clearing": -10_025,
        "merchant_balance": 10_025,
        "refunds_in_transit": 0,
    }
    demand_books_that_balance(gateway, merchant)


def test_without_an_amount_all_that_is_left_is_refunded(merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    refund(api, payment, 30)
    assert refund(api, payment)["amount"] == 70
    demand_refusal(
        api.post("/refunds", json={"payment_id": payment["id"]}), 422, "refund_amount_exceeds_available", "amount"
    )


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"amout": 5}, {"amout"}),
        ({"amount": None}, {"amount"}),
        ({"amount": None, "payment_id": None}, {"amount", "payment_id"}),
        ({"payment_id": None, "amount": 5}, {"payment_id"}),
        ({"amount": 0}, {"amount"}),
        ({"amount": -1}, {"amount"}),
        ({"amount": 0.001}, {"amount"}),
        ({"amount": "5.00"}, {"amount"}),
        ({"amount": True}, {"amount"}),
        ({"payment_id": 7}, {"payment_id"}),
        ({"amount": 5, "reason": "x" * 501, "metadata": {"k": 1}}, {"reason", "metadata.k"}),
        ({"amuont": 5, "reason": 7}, {"amuont", "reason"}),
    ],
)
def test_a_body_that_is_not_meant_so_is_refused_with_every_fault(
    shop: Merchant, changes: dict[str, Any], fields: set[str]
) -> None:
    body = {"payment_id": "pay_00000000000000000000000000"} | changes
    demand_refusal(shop.client().post("/refunds", json=body), 400, "validation_error", *fields)


def test_with_an_amount_unknown_fields_are_ignored(merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    asked = refund(api, payment, 5, status="completed", id="ref_x", approved_by="me", amount_santim=1)
    assert (asked["status"], asked["amount"]) == ("pending_approval", 5)


def test_only_a_completed_payment_of_ones_own_can_be_refunded(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    pending, cancelled = created(api), created(api)
    assert api.post(f"/payments/{cancelled['id']}/cancel").status_code == 200
    for payment in (pending, cancelled):
        answer = api.post("/refunds", json={"payment_id": payment["id"], "amount": 1})
        demand_refusal(answer, 422, "payment_not_refundable", "payment_id")
    other = gateway.new_merchant()
    theirs = paid(other.client())
    unknown = "pay_00000000000000000000000000"
    answers = [
        api.post("/refunds", json={"payment_id": payment_id, "amount": 1})
        for payment_id in (theirs["id"], unknown, "pay_x", "", "ref_00000000000000000000000000")
    ]
    for answer in answers:
        demand_refusal(answer, 404, "resource_not_found")
    assert len({answer.content for answer in answers}) == 1
    other.close()


def test_more_than_is_left_is_refused_and_what_failed_is_left_again(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    first = refund(api, payment, 60)
    too_much = {"payment_id": payment["id"], "amount": 40.01}
    demand_refusal(api.post("/refunds", json=too_much), 422, "refund_amount_exceeds_available", "amount")
    huge = too_much | {"amount": 10**30}
    demand_refusal(api.post("/refunds", json=huge), 422, "refund_amount_exceeds_available", "amount")
    rejected = decide(api, first, "reject", reason="The bags are fine")
    assert (rejected["status"], rejected["failure_code"]) == ("failed", "rejected")
    assert rejected["failure_message"] == "The bags are fine"
    assert refund(api, payment)["amount"] == 100
    assert story(gateway, first) == ["created", "failed"]
    demand_books_that_balance(gateway, merchant)


def test_a_refund_is_decided_once(merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    for decision in ("approve", "reject"):
        asked = refund(api, payment, 10)
        decide(api, asked, decision)
        for again in ("approve", "reject"):
            demand_refusal(api.post(f"/refunds/{asked['id']}/{again}"), 409, "invalid_state")
    for unknown in ("ref_00000000000000000000000000", "x", payment["id"]):
        demand_refusal(api.post(f"/refunds/{unknown}/approve"), 404, "resource_not_found")
        demand_refusal(api.get(f"/refunds/{unknown}"), 404, "resource_not_found")


def test_only_an_admin_decides_and_only_writers_ask(merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    asked = refund(api, payment, 10)
    for role in ("developer", "read_only"):
        for decision in ("approve", "reject"):
            answer = merchant.client(role=role).post(f"/refunds/{asked['id']}/{decision}")
            demand_refusal(answer, 403, "permission_denied")
    reader = merchant.client(role="read_only")
    demand_refusal(reader.post("/refunds", json={"payment_id": payment["id"], "amount": 1}), 403, "permission_denied")
    assert found(reader, asked) == asked


def test_nobody_approves_what_they_asked_for_unless_the_account_allows_it(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api)
    allowed = decide(api, refund(api, payment, 10), "approve")  # a sandbox allows it
    assert allowed["approved_by"] == allowed["requested_by"]
    own, of_another = refund(api, payment, 10), refund(merchant.client(role="developer"), payment, 10)
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE accounts SET allow_self_approval = false WHERE id = $1", account)
    time.sleep(1.1)  # a process knows a key's account for a second
    demand_refusal(api.post(f"/refunds/{own['id']}/approve"), 403, "self_approval_forbidden")
    assert found(api, own)["status"] == "pending_approval"
    assert decide(api, of_another, "approve")["status"] == "approved"


def test_a_refund_that_the_network_refuses_has_failed_and_its_money_is_the_merchants_again(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment = paid(api, REFUND_FAILS)
    asked = refund(api, payment)
    decide(api, asked, "approve")
    failed = settled(api, asked)
    assert (failed["status"], failed["failure_code"]) == ("failed", "provider_rejected")
    assert story(gateway, asked) == ["created", "approved", "failed"]
    assert found(api, payment)["amount_refunded"] == 0
    assert balances(gateway, merchant)["merchant_balance"] == 10_000
    assert refund(api, payment)["amount"] == 100
    demand_books_that_balance(gateway, merchant)


def test_a_refund_in_doubt_stays_approved_and_is_asked_about(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = pay_in_doubt(api)
    asked = refund(api, payment)
    decide(api, asked, "approve")
    assert eventually(lambda: state_of(gateway, merchant) == "in_doubt")
    assert found(api, asked)["status"] == "approved"
    advance(api, 5)
    assert settled(api, asked)["status"] == "completed"
    demand_books_that_balance(gateway, merchant)


def pay_in_doubt(api: httpx2.Client) -> dict[str, Any]:
    payment = created(api, customer={"phone": "+251900000005"}, mobile_money_provider="telebirr")
    advance(api, 5)
    assert eventually(lambda: bool(advance(api, 5)) or found(api, payment)["status"] == "completed", seconds=10)
    return payment


def state_of(gateway: Gateway, merchant: Merchant) -> str:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    return query(gateway, "SELECT state FROM refunds WHERE account_id = $1", account)[0]["state"]


def test_refunds_and_charges_cut_off_by_a_crash_are_brought_to_their_end_once(start: Callable[..., Gateway]) -> None:
    """Killed in the middle of it, again and again: nothing is lost, sent twice or booked twice."""
    gateway = start()
    merchant = gateway.merchant
    api = merchant.client()
    asked: list[dict[str, Any]] = []
    payments: list[dict[str, Any]] = []
    for round_number in range(3):
        for phone in (PAYS, REFUND_FAILS, "+251900000005", "+251911223344"):
            payment = created(api, customer={"phone": phone})
            assert api.post(f"/test/payments/{payment['id']}/complete").status_code == 200
            asked.append(refund(api, payment))
        payments += [pushed(api, f"+25190000000{last}") for last in (0, 5, 6)]
        for one in asked[-4:]:
            decide(api, one, "approve")
        time.sleep(0.3 * round_number)
        gateway.kill_tree()
        merchant.close()
        gateway = start()
        merchant = gateway.merchant
        api = merchant.client()
    advance(api, 20)  # what was cut off is asked about
    for one in asked:
        assert eventually(lambda one=one: bool(advance(api, 5)) or found(api, one)["status"] in ENDED, seconds=20)
        end = found(api, one)["status"]
        assert story(gateway, one) == ["created", "approved", end]
    for payment in payments:
        assert eventually(lambda payment=payment: found(api, payment)["status"] == "completed", seconds=20)
        assert story(gateway, payment).count("completed") == 1
    assert [found(api, one)["status"] for one in asked] == ["completed", "failed", "completed", "completed"] * 3
    demand_books_that_balance(gateway, merchant)
    merchant.close()


def test_refunds_are_listed_by_payment_and_status_page_by_page(merchant: Merchant) -> None:
    api = merchant.client()
    first, second = paid(api), paid(api)
    made = [refund(api, first, 1) for _ in range(5)] + [refund(api, second, 1) for _ in range(2)]
    decide(api, made[0], "reject")
    newest_first = [asked["id"] for asked in reversed(made[:5])]

    def listed(query_string: str) -> dict[str, Any]:
        return api.get(f"/refunds?{query_string}").json()["data"]

    page = listed(f"payment_id={first['id']}&limit=2")
    assert page["pagination"] == {
        "limit": 2,
        "offset": 0,
        "total": 5,
        "next_cursor": page["pagination"]["next_cursor"],
    }
    seen = [item["id"] for item in page["refunds"]]
    refund(api, first, 1)  # what comes meanwhile moves nothing
    while cursor := page["pagination"].get("next_cursor"):
        page = listed(f"payment_id={first['id']}&limit=2&cursor={cursor}")
        seen += [item["id"] for item in page["refunds"]]
    assert seen == newest_first
    failed = listed("status=failed")
    assert [item["id"] for item in failed["refunds"]] == [made[0]["id"]]
    assert listed("offset=1&limit=1")["refunds"][0]["id"] == made[-1]["id"]
    cursor = listed("limit=1")["pagination"]["next_cursor"]
    for wrong in (f"cursor={cursor}&offset=1", f"cursor={cursor}&status=failed", "cursor=x"):
        demand_refusal(api.get(f"/refunds?{wrong}"), 400, "validation_error", "cursor")
    demand_refusal(api.get("/refunds?status=rejected"), 400, "validation_error", "status")
    demand_refusal(api.get("/refunds?payment_id=7"), 400, "validation_error", "payment_id")


def test_however_many_ask_at_once_never_more_is_refunded_than_was_paid(gateway: Gateway, merchant: Merchant) -> None:
    demand_never_more_than_was_paid(gateway, merchant, payments=20)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_of_two_thousand_refunds_at_once_never_more_than_was_paid(start: Callable[..., Gateway]) -> None:
    gateway = start(environment={"ZEMBIL_RATE_LIMIT_SANDBOX": "0"})
    merchant = gateway.merchant
    demand_never_more_than_was_paid(gateway, merchant, payments=200)
    merchant.close()


REFUNDS_EACH = 10


def demand_never_more_than_was_paid(gateway: Gateway, merchant: Merchant, *, payments: int) -> None:
    """Of each payment of 100, ten refunds of 30 are asked for together; half are decided, some of them against it."""
    api = merchant.client()
    paid_ones = [complete(api, created(api)) for _ in range(payments)]

    async def race() -> list[list[int]]:
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        timeout = httpx2.Timeout(60, pool=None)
        async with httpx2.AsyncClient(
            base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=timeout
        ) as client:

            async def ask(payment: dict[str, Any], number: int) -> int:
                answer = await client.post("/refunds", json={"payment_id": payment["id"], "amount": 30})
                if answer.status_code == 201 and number % 2:
                    refund_id = answer.json()["data"]["id"]
                    decided = await client.post(f"/refunds/{refund_id}/{'approve' if number % 4 == 1 else 'reject'}")
                    assert decided.status_code == 200, decided.text
                return answer.status_code

            return await asyncio.gather(
                *(asyncio.gather(*(ask(payment, n) for n in range(REFUNDS_EACH))) for payment in paid_ones)
            )

    for statuses in asyncio.run(race()):
        assert set(statuses) <= {201, 422}
        assert statuses.count(201) >= 3
    demand_books_that_balance(gateway, merchant)


def complete(api: httpx2.Client, payment: dict[str, Any]) -> dict[str, Any]:
    answer = api.post(f"/test/payments/{payment['id']}/complete")
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]
