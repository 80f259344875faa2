"""What becomes of payments by themselves: they expire, and the sandbox's phone numbers decide."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx2
import msgspec
import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import token_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver
from zembil import ids
from zembil.ids import Prefix

PERSON = "+251911223344"


def number(last: int) -> str:
    return f"+25190000000{last}"


def create(api: httpx2.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/payments", json={"amount": 150.00, "currency": "ETB"} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def push(api: httpx2.Client, phone: str, **fields: Any) -> dict[str, Any]:
    return create(api, customer={"phone": phone}, mobile_money_provider="telebirr", **fields)


def read(api: httpx2.Client, payment: dict[str, Any]) -> dict[str, Any]:
    return api.get(f"/payments/{payment['id']}").json()["data"]


def advance(api: httpx2.Client, seconds: int) -> None:
    assert api.post("/test/clock", json={"advance_seconds": seconds}).status_code == 200


def is_over(api: httpx2.Client, payment: dict[str, Any]) -> Callable[[], bool]:
    return lambda: read(api, payment)["status"] != "pending"


def stays_pending(api: httpx2.Client, payment: dict[str, Any], *, seconds: float) -> bool:
    time.sleep(seconds)
    return read(api, payment)["status"] == "pending"


def told_of(gateway: Gateway, merchant: Merchant, payment: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a payment, in order."""
    rows = query(
        gateway,
        "SELECT payload FROM events WHERE account_id = $1 AND object_id = $2 ORDER BY sequence",
        account_of(gateway, merchant.sandbox["admin_key"]),
        ids.parsed(Prefix.PAYMENT, payment["id"]),
    )
    return [msgspec.json.decode(row["payload"]) for row in rows]


def seconds_from_first_to_last_event(gateway: Gateway, merchant: Merchant, payment: dict[str, Any]) -> float:
    rows = query(
        gateway,
        "SELECT max(created_at) - min(created_at) AS lasted FROM events WHERE account_id = $1 AND object_id = $2",
        account_of(gateway, merchant.sandbox["admin_key"]),
        ids.parsed(Prefix.PAYMENT, payment["id"]),
    )
    return rows[0]["lasted"].total_seconds()


def demand_story(gateway: Gateway, merchant: Merchant, payment: dict[str, Any], *types: str) -> dict[str, Any]:
    """The payment's events are these, numbered without gaps; answers the payment as the last one shows it."""
    events = told_of(gateway, merchant, payment)
    assert [event["type"] for event in events] == [f"payment.{kind}" for kind in types]
    assert [event["sequence"] for event in events] == list(range(1, len(types) + 1))
    final = types[-1] if types[-1] in ("completed", "failed", "cancelled") else "pending"
    statuses = [event["data"]["object"]["status"] for event in events]
    assert statuses == ["pending"] * (len(types) - (final != "pending")) + [final] * (final != "pending")
    return events[-1]["data"]["object"]


def open_page(phone: httpx2.Client, payment: dict[str, Any]) -> str:
    page = phone.get(payment["payment_link"])
    assert page.status_code == 200
    return token_of(page.text)


def charge(phone: httpx2.Client, payment: dict[str, Any], customer: str = PERSON) -> httpx2.Response:
    form = {"form_token": open_page(phone, payment), "mobile_money_provider": "telebirr", "phone": customer}
    return phone.post(f"{payment['payment_link']}/charge", data=form)


def press(phone: httpx2.Client, payment: dict[str, Any], answer: str) -> None:
    form = {"form_token": open_page(phone, payment), "answer": answer}
    assert phone.post(f"{payment['payment_link']}/handset", data=form).status_code == 303


# Expiry


@pytest.mark.parametrize("expires_in", [None, 300])
def test_an_unpaid_payment_is_cancelled_when_its_time_is_over_and_not_before(
    gateway: Gateway, merchant: Merchant, expires_in: int | None
) -> None:
    api = merchant.client()
    payment = create(api) if expires_in is None else create(api, expires_in=expires_in)
    lifetime = datetime.fromisoformat(payment["expires_at"]) - datetime.fromisoformat(payment["created_at"])
    assert lifetime.total_seconds() == (expires_in or 3600)
    advance(api, int(lifetime.total_seconds()) - 10)
    assert stays_pending(api, payment, seconds=1)
    advance(api, 10)
    began = time.monotonic()
    assert eventually(is_over(api, payment), seconds=5)
    assert time.monotonic() - began < 2
    found = read(api, payment)
    assert (found["status"], found["cancellation_reason"]) == ("cancelled", "expired")
    assert demand_story(gateway, merchant, payment, "created", "cancelled") == found
    with httpx2.Client() as phone:
        assert phone.get(payment["payment_link"]).status_code == 200


def test_a_payment_expires_by_itself_in_real_time(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = create(api, expires_in=300)
    advance(api, 297)
    seconds_left = 300 - (account_now(api) - datetime.fromisoformat(payment["created_at"])).total_seconds()
    assert 0 < seconds_left <= 3
    assert read(api, payment)["status"] == "pending"
    began = time.monotonic()
    assert eventually(is_over(api, payment), seconds=6)
    assert -0.3 < time.monotonic() - began - seconds_left < 2
    demand_story(gateway, merchant, payment, "created", "cancelled")


def account_now(api: httpx2.Client) -> datetime:
    return datetime.fromisoformat(api.get("/test/clock").json()["data"]["now"])


def test_payments_created_while_the_clock_moves_expire_too(merchant: Merchant) -> None:
    async def create_many(api: httpx2.AsyncClient) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for _ in range(30):
            answer = await api.post("/payments", json={"amount": 1, "currency": "ETB", "expires_in": 300})
            made.append(answer.json()["data"])
        return made

    async def race() -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        async with httpx2.AsyncClient(base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=30) as api:
            moving = [asyncio.create_task(create_many(api)) for _ in range(4)]
            for _ in range(20):
                await api.post("/test/clock", json={"advance_seconds": 30})
            return [payment for made in await asyncio.gather(*moving) for payment in made]

    payments = asyncio.run(race())
    api = merchant.client()
    advance(api, 300)
    assert eventually(lambda: api.get("/payments?status=cancelled").json()["data"]["pagination"]["total"] == 120)
    for payment in payments:
        found = read(api, payment)
        created_at, expires_at = (datetime.fromisoformat(found[name]) for name in ("created_at", "expires_at"))
        assert (expires_at - created_at).total_seconds() == 300


def test_a_payment_does_not_expire_while_a_prompt_is_open_and_at_once_when_it_came_to_nothing(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    paid, declined = create(api, expires_in=300), create(api, expires_in=300)
    with httpx2.Client(timeout=30) as phone:
        for payment in (paid, declined):
            assert charge(phone, payment).status_code == 303
        advance(api, 1000)
        assert stays_pending(api, paid, seconds=1.5)
        press(phone, paid, "approve")
        press(phone, declined, "decline")
    assert eventually(is_over(api, paid), seconds=3)
    assert read(api, paid)["status"] == "completed"
    demand_story(gateway, merchant, paid, "created", "pending", "processing", "completed")
    assert eventually(is_over(api, declined), seconds=2)
    found = demand_story(gateway, merchant, declined, "created", "pending", "cancelled")
    assert found["cancellation_reason"] == "expired"  # whatever its last charge said
    assert "failure_code" not in found


# What the phone numbers decide, for prompts that are pushed at creation


@pytest.mark.parametrize(
    ("last", "types", "status", "why"),
    [
        (0, ("created", "pending", "processing", "completed"), "completed", {}),
        (1, ("created", "failed"), "failed", {"failure_code": "insufficient_funds"}),
        (2, ("created", "pending", "cancelled"), "cancelled", {"cancellation_reason": "customer"}),
        (3, ("created", "pending", "failed"), "failed", {"failure_code": "wrong_pin"}),
        (8, ("created", "failed"), "failed", {"failure_code": "provider_unavailable"}),
    ],
)
def test_the_published_numbers_do_as_they_say_within_two_seconds(
    gateway: Gateway,
    merchant: Merchant,
    receiver: Receiver,
    last: int,
    types: tuple[str, ...],
    status: str,
    why: dict[str, str],
) -> None:
    api = merchant.client()
    assert api.post("/webhooks", json={"url": receiver.url, "events": ["*"]}).status_code == 201
    payment = push(api, number(last))
    assert payment["status"] == "pending"
    assert eventually(is_over(api, payment), seconds=6)
    found = read(api, payment)
    assert found["status"] == status
    assert {name: found.get(name) for name in ("failure_code", "cancellation_reason") if name in found} == why
    assert ("transaction_id" in found, "completed_at" in found) == (status == "completed",) * 2
    assert ("failure_message" in found) == (status == "failed")
    assert demand_story(gateway, merchant, payment, *types) == found
    told = sorted(receiver.wait_for(len(types)), key=lambda received: received.event["sequence"])
    assert [received.event["type"] for received in told] == [f"payment.{kind}" for kind in types]
    assert seconds_from_first_to_last_event(gateway, merchant, payment) < 2


def test_the_number_that_never_answers_times_out_after_two_minutes(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = push(api, number(4))
    assert eventually(lambda: len(told_of(gateway, merchant, payment)) == 2)
    advance(api, 115)
    assert stays_pending(api, payment, seconds=1)
    advance(api, 5)
    assert eventually(is_over(api, payment), seconds=2)
    found = demand_story(gateway, merchant, payment, "created", "pending", "failed")
    assert found["failure_code"] == "timeout"


def test_any_other_number_waits_for_the_person(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    story = ("created", "pending")
    payments = {answer: push(api, PERSON) for answer in ("approve", "decline", "insufficient_funds")}
    for payment in payments.values():
        assert eventually(lambda payment=payment: len(told_of(gateway, merchant, payment)) == 2)
    assert stays_pending(api, payments["approve"], seconds=1)
    with httpx2.Client(timeout=30) as phone:
        for answer, payment in payments.items():
            press(phone, payment, answer)
    for payment in payments.values():
        assert eventually(is_over(api, payment), seconds=3)
    demand_story(gateway, merchant, payments["approve"], *story, "processing", "completed")
    assert (
        demand_story(gateway, merchant, payments["decline"], *story, "cancelled")["cancellation_reason"] == "customer"
    )
    refused = demand_story(gateway, merchant, payments["insufficient_funds"], *story, "failed")
    assert refused["failure_code"] == "insufficient_funds"


# Prompts


def test_a_phone_is_prompted_three_times_in_ten_minutes_however_many_ask_at_once(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payments = [push(api, PERSON) for _ in range(8)]

    def decided() -> bool:
        stories = [len(told_of(gateway, merchant, payment)) for payment in payments]
        return stories == [2] * len(payments)

    assert eventually(decided)
    found = [read(api, payment) for payment in payments]
    assert [payment["status"] for payment in found].count("pending") == 3
    refused = [payment for payment in found if payment["status"] == "failed"]
    assert [payment["failure_code"] for payment in refused] == ["payer_busy"] * 5
    with httpx2.Client(timeout=30) as phone:
        by_hand = create(api)
        answer = charge(phone, by_hand)
        assert answer.status_code == 429
        assert "within 10 minutes" in answer.text
        assert read(api, by_hand)["status"] == "pending"
        assert charge(phone, by_hand, "+251911223355").status_code == 303  # another phone
        other = gateway.new_merchant()
        elsewhere = create(other.client())
        assert charge(phone, elsewhere).status_code == 303  # each merchant has its own three
        other.close()
        advance(api, 600)
        late = create(api)
        assert charge(phone, late).status_code == 303


def test_the_published_numbers_may_be_prompted_without_end(merchant: Merchant) -> None:
    api = merchant.client()
    payments = [push(api, number(1)) for _ in range(5)]
    for payment in payments:
        assert eventually(is_over(api, payment), seconds=5)
    assert {read(api, payment)["failure_code"] for payment in payments} == {"insufficient_funds"}


def test_the_fifth_charge_without_success_ends_the_payment(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = create(api)
    with httpx2.Client(timeout=30) as phone:
        for _ in range(5):
            assert read(api, payment)["status"] == "pending"
            assert charge(phone, payment, number(8)).status_code == 303  # nothing was sent: none of the five
            assert charge(phone, payment, number(1)).status_code == 303
    assert demand_story(gateway, merchant, payment, "created", "failed")["failure_code"] == "insufficient_funds"
