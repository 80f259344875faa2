"""Charging and cancelling over HTTP, and what the sandbox's numbers do."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import token_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import (
    PAYS,
    advance,
    at_once,
    created,
    demand_books_that_balance,
    demand_refusal,
    found,
    paid,
    story,
)
from zembil import ids
from zembil.accounts.queries import find_account
from zembil.db.pool import connected, reading, transaction
from zembil.errors import InvalidState
from zembil.ids import Prefix
from zembil.payments.model import FailureCode
from zembil.payments.operations import begin_charge, fail_unpushed
from zembil.payments.queries import lock_phone
from zembil.rails import rail_for
from zembil.rails.rail import Wallet

PERSON = "+251911223344"


def charge(api: httpx2.Client, payment: dict[str, Any], phone: str = PERSON, **options: Any) -> httpx2.Response:
    body = {"phone": phone, "mobile_money_provider": "telebirr"}
    return api.post(f"/payments/{payment['id']}/charge", json=body, **options)


def charges_of(gateway: Gateway, merchant: Merchant) -> int:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    return query(gateway, "SELECT count(*) AS n FROM charges WHERE account_id = $1", account)[0]["n"]


def press(payment: dict[str, Any], answer: str) -> None:
    with httpx2.Client(timeout=30) as phone:
        form = {"form_token": token_of(phone.get(payment["payment_link"]).text), "answer": answer}
        assert phone.post(f"{payment['payment_link']}/handset", data=form).status_code == 303


def test_a_merchant_charges_a_payment_and_hears_how_the_charge_stands(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    answer = charge(api, payment)
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert data.pop("charge") == {
        "id": data_charge_id(answer),
        "state": "awaiting_customer",
        "mobile_money_provider": "telebirr",
        "phone": PERSON,
    }
    assert data == found(api, payment)
    press(payment, "approve")
    assert eventually(lambda: found(api, payment)["status"] == "completed")
    assert story(gateway, payment) == ["created", "pending", "processing", "completed"]
    demand_refusal(charge(api, payment), 409, "invalid_state")
    demand_books_that_balance(gateway, merchant)


def data_charge_id(answer: httpx2.Response) -> str:
    charge_id: str = answer.json()["data"]["charge"]["id"]
    assert charge_id.startswith("chg_")
    return charge_id


def test_a_prompt_asked_for_at_creation_is_not_pushed_once_another_charge_was_first(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment = created(api, customer={"phone": PERSON})
    demand_refusal(charge(api, payment, "+251900000001"), 422, "insufficient_funds")
    payment_id = ids.parsed(Prefix.PAYMENT, payment["id"])
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    assert payment_id is not None

    async def push_late() -> None:
        """As a worker does that had found the payment due before the merchant charged it."""
        rail = rail_for(Wallet.TELEBIRR, livemode=False)
        async with connected(gateway.database_url, connections_max=1) as db:
            async with reading(db) as conn:
                account = await find_account(conn, account_id)
            assert account is not None
            assert rail is not None
            now = datetime.now(UTC)
            await fail_unpushed(db, account, payment_id, FailureCode.PAYER_BUSY, public_url=gateway.origin, at=now)
            with pytest.raises(InvalidState):
                await begin_charge(db, account, payment_id, rail, phone=PERSON, pushed=True, at=now)

    asyncio.run(push_late())
    assert charges_of(gateway, merchant) == 1
    assert found(api, payment)["status"] == "pending"


def test_what_the_request_leaves_out_the_payment_says(merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api, customer={"phone": PAYS})
    path = f"/payments/{payment['id']}/charge"
    demand_refusal(api.post(path), 400, "validation_error", "mobile_money_provider")
    answer = api.post(path, json={"mobile_money_provider": "mpesa"})
    assert (answer.status_code, answer.json()["data"]["charge"]["phone"]) == (200, PAYS)
    nobody = created(api)
    demand_refusal(
        api.post(f"/payments/{nobody['id']}/charge", json={}),
        400,
        "validation_error",
        "phone",
        "mobile_money_provider",
    )
    wrong = {"phone": "0911223344", "mobile_money_provider": "cash"}
    answer = api.post(f"/payments/{nobody['id']}/charge", json=wrong)
    demand_refusal(answer, 400, "validation_error", "phone", "mobile_money_provider")
    for unknown in ("pay_00000000000000000000000000", "x"):
        demand_refusal(charge(api, {"id": unknown}), 404, "resource_not_found")


def test_a_refusal_said_at_once_is_answered_with_its_code(merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    demand_refusal(charge(api, payment, "+251900000001"), 422, "insufficient_funds")
    unreachable = charge(api, payment, "+251900000008")
    demand_refusal(unreachable, 503, "provider_unavailable")
    assert int(unreachable.headers["retry-after"]) > 0
    assert found(api, payment)["status"] == "pending"
    for _ in range(3):
        demand_refusal(charge(api, payment, "+251900000001"), 422, "insufficient_funds")
    demand_refusal(charge(api, payment, "+251900000001"), 422, "insufficient_funds")
    assert (found(api, payment)["status"], found(api, payment)["failure_code"]) == ("failed", "insufficient_funds")
    demand_refusal(charge(api, payment, PAYS), 409, "invalid_state")


def test_while_a_prompt_is_open_there_is_no_second(merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    assert charge(api, payment).status_code == 200
    demand_refusal(charge(api, payment, PAYS), 409, "invalid_state")


def test_a_phone_is_prompted_three_times_in_ten_minutes(merchant: Merchant) -> None:
    api = merchant.client()
    for _ in range(3):
        assert charge(api, created(api)).status_code == 200
    refused = charge(api, created(api))
    demand_refusal(refused, 429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) > 0


def test_what_cannot_be_charged_says_so_also_where_the_phone_was_prompted_too_often(merchant: Merchant) -> None:
    api = merchant.client()
    completed = paid(api)
    for _ in range(3):
        assert charge(api, created(api)).status_code == 200
    demand_refusal(charge(api, completed), 409, "invalid_state")


def test_a_repeated_key_never_prompts_and_answers_how_the_charge_stands(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    key = {"Idempotency-Key": "charge-1"}
    first = charge(api, payment, headers=key)
    again = charge(api, payment, headers=key)
    assert (first.content, first.headers.get("idempotent-replayed")) == (again.content, None)
    assert again.headers["idempotent-replayed"] == "true"
    press(payment, "approve")
    assert eventually(lambda: found(api, payment)["status"] == "completed")
    later = charge(api, payment, headers=key).json()["data"]
    assert (later["status"], later["charge"]["state"]) == ("completed", "succeeded")
    assert charges_of(gateway, merchant) == 1
    demand_refusal(charge(api, payment, PAYS, headers=key), 422, "idempotency_key_reused")
    other = created(api)
    demand_refusal(charge(api, other, headers=key), 422, "idempotency_key_reused")


def test_a_repeated_key_of_a_refused_charge_is_refused_again_and_one_that_never_left_may_try_again(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment = created(api)
    for _ in range(2):
        answer = charge(api, payment, "+251900000001", headers={"Idempotency-Key": "refused"})
        demand_refusal(answer, 422, "insufficient_funds")
    assert charges_of(gateway, merchant) == 1
    for _ in range(2):
        answer = charge(api, payment, "+251900000008", headers={"Idempotency-Key": "unsent"})
        demand_refusal(answer, 503, "provider_unavailable")
    assert charges_of(gateway, merchant) == 3
    # What was refused before it began left no key behind.
    open_one = {"Idempotency-Key": "later"}
    assert charge(api, payment).status_code == 200
    demand_refusal(charge(api, payment, PAYS, headers=open_one), 409, "invalid_state")
    press(payment, "decline")
    assert charge(api, payment, PAYS, headers=open_one).status_code == 200


def test_equal_keys_at_once_prompt_once(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)

    def ask(_: int) -> httpx2.Response:
        return charge(merchant.client(), payment, headers={"Idempotency-Key": "same"})

    answers = at_once(12, ask)
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1
    assert charges_of(gateway, merchant) == 1


# Cancelling


def test_a_merchant_cancels_a_pending_payment_once(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    answer = api.post(f"/payments/{payment['id']}/cancel")
    assert answer.status_code == 200
    assert answer.json()["data"] == found(api, payment)
    assert found(api, payment)["cancellation_reason"] == "merchant"
    demand_refusal(api.post(f"/payments/{payment['id']}/cancel"), 409, "invalid_state")
    demand_refusal(api.post("/payments/pay_00000000000000000000000000/cancel"), 404, "resource_not_found")
    reader = merchant.client(role="read_only")
    demand_refusal(reader.post(f"/payments/{created(api)['id']}/cancel"), 403, "permission_denied")
    assert story(gateway, payment) == ["created", "cancelled"]


def test_a_prompt_that_nobody_has_confirmed_is_taken_back(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    assert charge(api, payment).status_code == 200
    key = {"Idempotency-Key": "cancel"}
    answer = api.post(f"/payments/{payment['id']}/cancel", headers=key)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"]["cancellation_reason"] == "merchant"
    assert api.post(f"/payments/{payment['id']}/cancel", headers=key).content == answer.content
    assert story(gateway, payment) == ["created", "pending", "cancelled"]


def test_what_is_confirmed_or_in_doubt_is_not_cancelled(merchant: Merchant) -> None:
    api = merchant.client()
    confirmed, doubtful = created(api), created(api)
    assert charge(api, confirmed, PAYS).status_code == 200
    time.sleep(0.6)
    assert charge(api, doubtful, "+251900000005").json()["data"]["charge"]["state"] == "in_doubt"
    for payment in (confirmed, doubtful):
        answer = api.post(f"/payments/{payment['id']}/cancel")
        demand_refusal(answer, 409, "invalid_state")
    assert eventually(lambda: found(api, confirmed)["status"] == "completed")


async def asked_again(gateway: Gateway, account_id: int, link: str, *, patient: bool) -> int:
    """While somebody else who is about to prompt this phone keeps it to himself; `patient`, until that is given up."""
    async with connected(gateway.database_url, connections_max=1) as db, httpx2.AsyncClient(timeout=30) as phone:
        form = {"form_token": token_of((await phone.get(link)).text)}
        async with transaction(db) as conn:
            await lock_phone(conn, account_id, PERSON)
            asked = asyncio.create_task(phone.post(f"{link}/resend", data=form))
            while not asked.done() and not await conn.fetchval(WAITS):
                await asyncio.wait([asked], timeout=0.02)
            page = await phone.get(link)
            if patient:
                await asyncio.wait([asked])
        status = (await asked).status_code
        assert 'data-state="check_phone"' in page.text
        return status


# An open request waits for a lock that somebody else holds.
WAITS = """
    SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.mark.parametrize(
    ("patient", "answer", "states"),
    [(False, 303, ["cancelled", "awaiting_customer"]), (True, 503, ["cancelled"])],
)
def test_a_phone_is_asked_again_as_its_first_request_ends_or_not_at_all(
    gateway: Gateway, merchant: Merchant, patient: bool, answer: int, states: list[str]
) -> None:
    """A page that looks meanwhile does not offer to pay anew; and what its rail took back has ended in any case."""
    api = merchant.client()
    payment = created(api)
    assert charge(api, payment).status_code == 200
    account_id = account_of(gateway, merchant.sandbox["admin_key"])
    query(
        gateway, "UPDATE charges SET prompted_at = prompted_at - interval '1 minute' WHERE account_id = $1", account_id
    )
    assert asyncio.run(asked_again(gateway, account_id, payment["payment_link"], patient=patient)) == answer
    found = query(gateway, "SELECT state FROM charges WHERE account_id = $1 ORDER BY id", account_id)
    assert [row["state"] for row in found] == states


# The sandbox's numbers


def test_a_charge_that_fell_silent_is_found_paid_when_it_is_asked_about(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = created(api)
    assert charge(api, payment, "+251900000005").json()["data"]["charge"]["state"] == "in_doubt"
    demand_refusal(charge(api, payment, PAYS), 409, "invalid_state")
    advance(api, 5)
    assert eventually(lambda: found(api, payment)["status"] == "completed")
    assert story(gateway, payment) == ["created", "completed"]


def test_notifications_that_come_twice_and_out_of_order_are_one_payment(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payments = [created(api) for _ in range(3)]
    for payment in payments:
        assert charge(api, payment, "+251900000006").status_code == 200
    for payment in payments:
        assert eventually(lambda payment=payment: found(api, payment)["status"] == "completed", seconds=5)
        assert story(gateway, payment) == ["created", "pending", "processing", "completed"]
    demand_books_that_balance(gateway, merchant)


# What a sandbox lets the merchant decide


@pytest.mark.parametrize("begun", [False, True])
def test_a_sandbox_completes_fails_and_cancels_payments(gateway: Gateway, merchant: Merchant, begun: bool) -> None:
    api = merchant.client()
    results: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
        "complete": ({}, "completed", {}),
        "fail": ({"failure_code": "wrong_pin"}, "failed", {"failure_code": "wrong_pin"}),
        "cancel": ({}, "cancelled", {"cancellation_reason": "customer"}),
    }
    for decision, (body, status, why) in results.items():
        payment = created(api)
        if begun:
            assert charge(api, payment).status_code == 200
        answer = api.post(f"/test/payments/{payment['id']}/{decision}", json=body)
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        assert data == found(api, payment)
        assert data["status"] == status
        assert {name: data[name] for name in why} == why
        for again in results:
            demand_refusal(api.post(f"/test/payments/{payment['id']}/{again}"), 409, "invalid_state")
        assert story(gateway, payment)[-1] == status
    demand_refusal(
        api.post(f"/test/payments/{created(api)['id']}/fail", json={"failure_code": "rain"}),
        400,
        "validation_error",
        "failure_code",
    )
    demand_refusal(merchant.client(livemode=True).post("/test/events", json={}), 404, "resource_not_found")
    demand_books_that_balance(gateway, merchant)


@pytest.mark.parametrize(("outcome", "status"), [("succeeded", "completed"), ("failed", "pending")])
def test_a_sandbox_says_what_became_of_a_charge_in_doubt(
    gateway: Gateway, merchant: Merchant, outcome: str, status: str
) -> None:
    api = merchant.client()
    payment = created(api)
    charge_id = data_charge_id(charge(api, payment, "+251900000005"))
    answer = api.post(f"/test/charges/{charge_id}/resolve", json={"outcome": outcome})
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, status), answer.text
    again = api.post(f"/test/charges/{charge_id}/resolve", json={"outcome": outcome})
    demand_refusal(again, 409, "invalid_state")
    unknown = api.post("/test/charges/chg_00000000000000000000000000/resolve", json={"outcome": outcome})
    demand_refusal(unknown, 404, "resource_not_found")
    demand_refusal(
        api.post(f"/test/charges/{charge_id}/resolve", json={"outcome": "x"}), 400, "validation_error", "outcome"
    )
    demand_books_that_balance(gateway, merchant)


EVENT_TYPES = [
    *(f"payment.{what}" for what in ("created", "pending", "processing", "completed", "failed", "cancelled")),
    *(f"refund.{what}" for what in ("created", "approved", "completed", "failed")),
    *(f"customer.{what}" for what in ("created", "updated")),
]


@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_an_event_of_every_type_can_be_brought_about(gateway: Gateway, merchant: Merchant, event_type: str) -> None:
    api = merchant.client()
    answer = api.post("/test/events", json={"type": event_type})
    assert answer.status_code == 201, answer.text
    event = answer.json()["data"]
    assert (event["type"], event["livemode"]) == (event_type, False)
    kind, _, what = event_type.partition(".")
    assert api.get(f"/{kind}s/{event['data']['object']['id']}").status_code == 200
    assert what in story(gateway, event["data"]["object"])
    demand_books_that_balance(gateway, merchant)


def test_what_one_transaction_books_is_kept_in_one_slot(gateway: Gateway, merchant: Merchant) -> None:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    used = "SELECT count(DISTINCT slot) AS slots FROM ledger_balances WHERE account_id = $1"
    assert merchant.client().post("/test/events", json={"type": "refund.completed"}).status_code == 201
    entries = query(gateway, "SELECT count(*) AS n FROM ledger_entries WHERE account_id = $1", account)
    assert (entries[0]["n"], query(gateway, used, account)[0]["slots"]) == (3, 1)


def test_what_is_no_event_type_is_refused(shop: Merchant) -> None:
    for body in ({"type": "payment.paid"}, {"type": None}, {}, {"type": ["payment.created"]}):
        demand_refusal(shop.client().post("/test/events", json=body), 400, "validation_error", "type")


# Customers of payments, and lists


def test_a_payment_names_a_stored_customer(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    customer = api.post("/customers", json={"email": "abebe@example.com"}).json()["data"]
    key = {"Idempotency-Key": "of-abebe"}
    body = {"amount": 5, "currency": "ETB", "customer": {"id": customer["id"]}}
    first = api.post("/payments", json=body, headers=key)
    assert first.status_code == 201
    listed = api.get(f"/payments?customer={customer['id']}").json()["data"]["payments"]
    assert [payment["id"] for payment in listed] == [first.json()["data"]["id"]]
    theirs = gateway.new_merchant()
    foreign = theirs.client().post("/customers", json={"email": "a@example.com"}).json()["data"]["id"]
    for wrong in ("cus_00000000000000000000000000", "cus_x", foreign):
        answer = api.post("/payments", json=body | {"customer": {"id": wrong}})
        demand_refusal(answer, 400, "validation_error", "customer.id")
    assert api.delete(f"/customers/{customer['id']}").status_code == 200
    assert api.post("/payments", json=body, headers=key).content == first.content
    demand_refusal(api.post("/payments", json=body), 400, "validation_error", "customer.id")
    theirs.close()


def test_payments_are_listed_page_by_page_whatever_comes_meanwhile(merchant: Merchant) -> None:
    api = merchant.client()
    made = [created(api)["id"] for _ in range(7)]
    seen: list[str] = []
    query_string = "limit=3&status=pending"
    page = api.get(f"/payments?{query_string}").json()["data"]
    while True:
        seen += [payment["id"] for payment in page["payments"]]
        created(api)
        if (cursor := page["pagination"].get("next_cursor")) is None:
            break
        page = api.get(f"/payments?{query_string}&cursor={cursor}").json()["data"]
    assert seen == made[::-1]
    assert page["pagination"]["total"] == 9
    cursor = api.get("/payments?limit=1").json()["data"]["pagination"]["next_cursor"]
    for wrong in (f"cursor={cursor}&offset=0", f"cursor={cursor}&status=failed"):
        demand_refusal(api.get(f"/payments?{wrong}"), 400, "validation_error", "cursor")
