"""Idempotency keys: a repeated request does nothing twice and is answered as it was the first time."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.database import account_of, query, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.money import advance, at_once, created, demand_books_that_balance, demand_refusal, refund

Request = tuple[str, dict[str, Any]]


def completed(api: httpx2.Client, **fields: Any) -> dict[str, Any]:
    payment = created(api, **fields)
    assert api.post(f"/test/payments/{payment['id']}/complete").status_code == 200
    return payment


def a_payment(api: httpx2.Client) -> Request:
    del api
    return "/payments", {"amount": 7.5, "currency": "ETB"}


def a_payment_with_a_reference(api: httpx2.Client) -> Request:
    del api
    return "/payments", {"amount": 7.5, "currency": "ETB", "reference": "order-7"}


def a_refund(api: httpx2.Client) -> Request:
    return "/refunds", {"payment_id": completed(api)["id"], "amount": 3}


def an_approval(api: httpx2.Client) -> Request:
    # Of a wallet that cannot be reached, so that nothing is booked by the worker meanwhile.
    payment = completed(api, customer={"phone": "+251900000008"})
    return f"/refunds/{refund(api, payment)['id']}/approve", {}


def a_rejection(api: httpx2.Client) -> Request:
    return f"/refunds/{refund(api, completed(api))['id']}/reject", {"reason": "No."}


def a_cancellation(api: httpx2.Client) -> Request:
    return f"/payments/{created(api)['id']}/cancel", {}


def a_charge(api: httpx2.Client) -> Request:
    body = {"phone": "+251911223344", "mobile_money_provider": "telebirr"}
    return f"/payments/{created(api)['id']}/charge", body


def a_customer(api: httpx2.Client) -> Request:
    del api
    return "/customers", {"email": "abebe@example.com"}


def an_endpoint(api: httpx2.Client) -> Request:
    del api
    return "/webhooks", {"url": "http://127.0.0.1:9/hooks", "events": ["refund.failed"]}


def a_decision(api: httpx2.Client) -> Request:
    return f"/test/payments/{created(api)['id']}/complete", {}


def an_event(api: httpx2.Client) -> Request:
    del api
    return "/test/events", {"type": "payment.created"}


def a_step_of_the_clock(api: httpx2.Client) -> Request:
    del api
    return "/test/clock", {"advance_seconds": 60}


EVERY_POST = [
    a_payment,
    a_payment_with_a_reference,
    a_refund,
    an_approval,
    a_rejection,
    a_cancellation,
    a_charge,
    a_customer,
    an_endpoint,
    a_decision,
    an_event,
    a_step_of_the_clock,
]


def post(api: httpx2.Client, request: Request, key: str = "the-key") -> httpx2.Response:
    path, body = request
    return api.post(path, json=body, headers={"Idempotency-Key": key})


@pytest.mark.parametrize("made", EVERY_POST)
def test_a_repeated_post_is_answered_byte_for_byte_and_does_nothing(
    gateway: Gateway, merchant: Merchant, made: Callable[[httpx2.Client], Request]
) -> None:
    api = merchant.client()
    request = made(api)
    first = post(api, request)
    assert first.status_code in (200, 201), first.text
    assert "idempotent-replayed" not in first.headers
    account = account_of(gateway, merchant.sandbox["admin_key"])
    tables = stored_rows(gateway, account)
    for key in ("the-key", '"the-key"'):  # with or without quotes it is one key
        again = post(api, request, key)
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["zembil-request-id"] != first.headers["zembil-request-id"]
    after = stored_rows(gateway, account)
    moving = ("events", "pending_deliveries", "deliveries", "delivery_attempts")  # the worker goes on
    assert {name: n for name, n in after.items() if name not in moving} == {
        name: n for name, n in tables.items() if name not in moving
    }


@pytest.mark.parametrize("made", EVERY_POST)
def test_a_key_goes_with_one_request(merchant: Merchant, made: Callable[[httpx2.Client], Request]) -> None:
    api = merchant.client()
    path, body = made(api)
    assert post(api, (path, body)).status_code in (200, 201)
    demand_refusal(post(api, (path, body | {"more": 1})), 422, "idempotency_key_reused")
    other = ("/payments", {"amount": 1, "currency": "ETB"})
    demand_refusal(post(api, other), 422, "idempotency_key_reused")


def test_the_way_a_body_is_written_does_not_matter(merchant: Merchant) -> None:
    api = merchant.client()
    ways = [
        b'{"amount": 100, "currency": "ETB", "metadata": {"a": "1", "b": "2"}}',
        b'{"metadata":{"b":"2","a":"1"},"currency":"ETB","amount":100.00}',
        b'{"amount":1e2,"currency":"\\u0045TB","metadata":{"a":"1","b":"2"}}',
    ]
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    answers = [api.post("/payments", content=way, headers=headers) for way in ways]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert len({answer.content for answer in answers}) == 1
    changed = ways[0].replace(b'"2"', b'"3"')
    demand_refusal(api.post("/payments", content=changed, headers=headers), 422, "idempotency_key_reused")


def test_accounts_do_not_share_keys(gateway: Gateway, merchant: Merchant) -> None:
    other = gateway.new_merchant()
    request = a_payment(merchant.client())
    clients = (merchant.client(), merchant.client(livemode=True), other.client())
    answers = [post(api, request) for api in clients]
    assert [answer.status_code for answer in answers] == [201] * 3
    assert len({answer.json()["data"]["id"] for answer in answers}) == 3
    assert not any("idempotent-replayed" in answer.headers for answer in answers)
    # But the keys of one account share them: a rolled API key still finds its answer, and a role is checked first.
    assert post(merchant.client(role="developer"), request).content == answers[0].content
    demand_refusal(post(merchant.client(role="read_only"), request), 403, "permission_denied")
    other.close()


def test_a_refusal_is_not_kept_so_a_corrected_or_later_request_runs(merchant: Merchant) -> None:
    api = merchant.client()
    demand_refusal(post(api, ("/payments", {"amount": 0, "currency": "ETB"})), 400, "validation_error", "amount")
    payment = created(api)
    ask = ("/refunds", {"payment_id": payment["id"], "amount": 5})
    demand_refusal(post(api, ask), 422, "payment_not_refundable", "payment_id")
    assert api.post(f"/test/payments/{payment['id']}/complete").status_code == 200
    assert post(api, ask).status_code == 201
    created(api, reference="taken")
    twice = ("/payments", {"amount": 1, "currency": "ETB", "reference": "taken"})
    demand_refusal(post(api, twice, "second"), 409, "duplicate_reference")
    assert post(api, ("/payments", {"amount": 2, "currency": "ETB"}), "second").status_code == 201


def test_a_key_is_kept_a_day_by_the_sandboxs_clock(merchant: Merchant) -> None:
    api = merchant.client()
    made = [a_payment(api), a_customer(api), a_charge(api)]
    first = [post(api, request, f"key-{n}") for n, request in enumerate(made)]
    advance(api, 24 * 3600 - 60)
    for n in (0, 1):
        again = post(api, made[n], f"key-{n}")
        assert (again.content, again.headers["idempotent-replayed"]) == (first[n].content, "true")
    advance(api, 60)
    for n in (0, 1):
        later = post(api, made[n], f"key-{n}")
        assert later.status_code == 201
        assert later.json()["data"]["id"] != first[n].json()["data"]["id"]
        assert "idempotent-replayed" not in later.headers


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", '""', "é"])
def test_what_is_no_key_is_refused(shop: Merchant, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode()}
    answer = shop.client().post("/payments", json={"amount": 1, "currency": "ETB"}, headers=headers)
    demand_refusal(answer, 400, "validation_error", "Idempotency-Key")


def test_two_keys_are_one_too_many(shop: Merchant) -> None:
    headers = [("Idempotency-Key", "one"), ("Idempotency-Key", "one")]
    answer = shop.client().post("/payments", json={"amount": 1, "currency": "ETB"}, headers=headers)
    demand_refusal(answer, 400, "validation_error", "Idempotency-Key")


# Many at once


@pytest.mark.parametrize("reference", [False, True])
def test_however_often_a_key_is_sent_at_once_it_makes_one_payment(
    gateway: Gateway, merchant: Merchant, reference: bool
) -> None:
    demand_one_payment_for_each_key(gateway, merchant, keys=25, times=10, reference=reference)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_of_ten_thousand_requests_each_of_five_hundred_keys_makes_one_payment(start: Callable[..., Gateway]) -> None:
    gateway = start(environment={"ZEMBIL_RATE_LIMIT_SANDBOX": "0"})
    demand_one_payment_for_each_key(gateway, gateway.merchant, keys=500, times=20, reference=False)


def demand_one_payment_for_each_key(
    gateway: Gateway, merchant: Merchant, *, keys: int, times: int, reference: bool
) -> None:
    """Equal keys meet in one group of writes, in two groups, and before and after both."""

    async def race() -> list[list[httpx2.Response]]:
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        timeout = httpx2.Timeout(60, pool=None)
        async with httpx2.AsyncClient(
            base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=timeout
        ) as api:

            def ask(number: int) -> Any:
                body: dict[str, Any] = {"amount": 1, "currency": "ETB", "description": f"number {number}"}
                if reference:
                    body["reference"] = f"order-{number}"
                return api.post("/payments", json=body, headers={"Idempotency-Key": f"key-{number}"})

            answers = await asyncio.gather(*(ask(n % keys) for n in range(keys * times)))
            return [answers[number::keys] for number in range(keys)]

    for answers in asyncio.run(race()):
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
        refusals = {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409}
        assert refusals <= {"idempotency_in_progress"}
    account = account_of(gateway, merchant.sandbox["admin_key"])
    rows = query(gateway, "SELECT count(*) AS n FROM payments WHERE account_id = $1", account)
    assert rows[0]["n"] == keys


def test_equal_keys_at_once_make_one_refund(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    request = a_refund(api)

    def ask(_: int) -> httpx2.Response:
        return post(merchant.client(), request)

    answers = at_once(16, ask)
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert api.get("/refunds").json()["data"]["pagination"]["total"] == 1
    demand_books_that_balance(gateway, merchant)


def test_keys_and_references_in_opposite_order_do_not_block_each_other(merchant: Merchant) -> None:
    """Groups of writes take keys and references in one order, so that none waits for another that waits for it."""

    async def race() -> list[httpx2.Response]:
        headers = {"Authorization": f"Bearer {merchant.sandbox['admin_key']}"}
        async with httpx2.AsyncClient(base_url=f"{merchant.origin}/sandbox/v1", headers=headers, timeout=60) as api:

            def ask(number: int, of: str) -> Any:
                body = {"amount": 1, "currency": "ETB", "reference": f"{of}-{99 - number:02d}"}
                return api.post("/payments", json=body, headers={"Idempotency-Key": f"{of}-{number:02d}"})

            upward, downward = list(range(60)), list(range(59, -1, -1))
            waves = [
                asyncio.gather(*(ask(number, f"wave{wave}") for number in order))
                for wave in range(3)
                for order in (upward, downward)
            ]
            return [answer for answers in await asyncio.gather(*waves) for answer in answers]

    answers = asyncio.run(race())
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} <= {
        "idempotency_in_progress"
    }
