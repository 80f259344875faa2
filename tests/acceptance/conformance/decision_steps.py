"""Promises of the decisions that take several steps to hold."""

import asyncio
import base64
import hashlib
import hmac
import time
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from tests.acceptance.conformance.rows import (
    ABSENT,
    DELETE,
    GET,
    NUMBER,
    PATCH,
    POST,
    TIMESTAMP,
    Asks,
    demand_answer,
    demand_like,
    each,
    faulty,
    gives,
    refuses,
    starts,
)
from tests.acceptance.conformance.stage import ANYBODY, LEAST, PAYS, Stage
from tests.acceptance.test_main_job import is_a_standard_webhook, is_signed_as_the_contract_says
from tests.support.database import account_of, query
from tests.support.receiver import Received
from tests.support.wire import RawAnswer, exchange, request
from zembil.accounts.secrets import new_api_key
from zembil.db.pool import connection

TELEBIRR = {"mobile_money_provider": "telebirr"}
A_KEY_OF_NOBODY = new_api_key(livemode=False)
LIVE = {"GET": partial(GET, live=True), "POST": partial(POST, body={}, live=True)}
CONFLICT = refuses(409, "invalid_state")
NOT_FOUND = refuses(404, "resource_not_found")


def instant(shown: str) -> datetime:
    return datetime.fromisoformat(shown)


def seconds_between(earlier: str, later: str) -> float:
    return (instant(later) - instant(earlier)).total_seconds()


def charging(payment: Any, phone: str, **options: Any) -> Any:
    return POST(f"/payments/{payment['id']}/charge", {"phone": phone} | TELEBIRR, **options)


def story(stage: Stage, thing: Any) -> list[str]:
    """The types of a thing's events, in their order, which is numbered without gaps."""
    told = stage.data(GET(f"/events?order=asc&limit=100&object={thing['id']}"))["events"]
    in_order = sorted(told, key=lambda event: event["sequence"])
    assert [event["sequence"] for event in in_order] == list(range(1, len(told) + 1))
    return [event["type"].split(".")[1] for event in in_order]


def once_it_told(stage: Stage, thing: Any, *types: str) -> None:
    stage.until(lambda: story(stage, thing) == list(types))


# 1


def keys_work_at_their_own_address(stage: Stage) -> None:
    for live in (False, True):
        assert stage.answer(GET("/payments", live=live)).status == 200
        other = stage.key("admin", live=not live)
        demand_answer(refuses(401, "authentication_failed"), stage.answer(GET("/payments", by=other, live=live)))


def the_host_header_changes_nothing(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST, headers=(("Host", "evil.example"),)))
    assert made["payment_link"].startswith(f"{stage.origin}/p/")


def ids_are_in_the_order_of_time(stage: Stage) -> None:
    made = list[str]()
    for _ in range(5):
        made.append(stage.data(POST("/payments", LEAST))["id"])
        time.sleep(0.002)
    assert made == sorted(made)


def the_token_is_no_id(stage: Stage) -> None:
    tokens = [stage.data(POST("/payments", LEAST))["payment_link"].rpartition("/")[2] for _ in range(2)]
    assert stage.payment["payment_link"] == f"{stage.origin}/p/{stage.payment['payment_link'].rpartition('/')[2]}"
    assert stage.payment["id"].removeprefix("pay_") not in stage.payment["payment_link"]
    secrets = [token[-22:] for token in tokens]  # 132 bits in base64
    assert sum(one != other for one, other in zip(*secrets, strict=True)) > 11


def the_page_has_the_services_name_and_a_request_id(stage: Stage) -> None:
    page = httpx2.get(stage.payment["payment_link"], timeout=30)
    assert "· Zembil</title>" in page.text
    assert page.headers["zembil-request-id"].startswith("req_")


def an_empty_body_is_taken(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    sent = request("POST", f"/sandbox/v1/payments/{made['id']}/cancel", key=own.key("admin"))
    assert b"Content-Type" not in sent
    assert exchange(own.origin, sent).status == 200


def times_are_stored_as_shown(stage: Stage) -> None:
    """What a page showed is the bound of another, to the millisecond."""
    shown = stage.payment["created_at"]
    listed = stage.data(GET(f"/payments?date_from={shown}&date_to={shown}"))["payments"]
    assert stage.payment["id"] in [one["id"] for one in listed]
    assert {one["created_at"] for one in listed} == {shown}


def no_offset_means_utc(stage: Stage) -> None:
    shown = stage.payment["created_at"].removesuffix("Z")
    listed = stage.data(GET(f"/payments?date_from={shown}&date_to={shown}"))["payments"]
    assert stage.payment["id"] in [one["id"] for one in listed]


# 2


def a_local_number_is_explained(stage: Stage, phone: str) -> None:
    answer = stage.answer(POST("/payments", LEAST | {"customer": {"phone": phone}}))
    demand_answer(faulty("customer.phone"), answer)
    assert f"+251{phone[1:]}" in answer.json["error"]["details"][0]["message"]


def a_linked_payment_is_found_by_its_customer(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST | {"customer": {"id": "{bare_customer}"}}))
    listed = stage.data(GET("/payments?customer={bare_customer}"))
    assert [one["id"] for one in listed["payments"]] == [made["id"]]


def a_payment_creates_no_customer(stage: Stage) -> None:
    own = stage.anew()
    own.data(POST("/payments", LEAST | {"customer": {"email": "abebe@example.com"}}))
    assert own.data(GET("/customers"))["customers"] == []


def the_payer_is_sent_back(stage: Stage) -> None:
    page = httpx2.get(stage.completed["payment_link"], timeout=30).text
    assert f"https://shop.example.et/thanks?payment_id={stage.completed['id']}&amp;status=completed" in page


def a_callback_url_hears_nothing(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST | {"callback_url": own.receiver.url}))
    own.data(POST(f"/test/payments/{made['id']}/complete", {}))
    time.sleep(0.5)
    assert own.receiver.received == []


def a_reference_is_taken_while_it_counts(stage: Stage) -> None:
    own = stage.anew()
    body = LEAST | {"reference": "order-7"}
    taken = refuses(409, "duplicate_reference")
    for end, is_free in (("fail", True), ("cancel", True), ("complete", False)):
        made = own.data(POST("/payments", body))
        demand_answer(taken, own.answer(POST("/payments", body)))
        own.data(POST(f"/test/payments/{made['id']}/{end}", {}))
        if not is_free:
            demand_answer(taken, own.answer(POST("/payments", body)))


def a_prompt_is_pushed_after_the_answer(stage: Stage) -> None:
    own = stage.anew()
    body = LEAST | {"customer": {"phone": ANYBODY}, "mobile_money_provider": "mpesa"}
    once_it_told(own, own.data(POST("/payments", body)), "created", "pending")


def what_was_given_is_read_back(stage: Stage) -> None:
    own = stage.anew()
    given = {"reference": "order-7", "mobile_money_provider": "mpesa"}
    demand_like(given, own.found(own.data(POST("/payments", LEAST | {"customer": {"phone": ANYBODY}} | given))))


def amount_refunded_counts_completed_refunds(stage: Stage) -> None:
    own = stage.anew()
    payment = own.paid(100)
    own.refund_of(payment, amount=10)
    done = own.refund_of(payment, amount=30)
    assert str(own.found(payment)["amount_refunded"]) == "0.00"
    own.data(POST(f"/refunds/{done['id']}/approve", {}))
    own.is_now(done, "completed")
    now = own.found(payment)
    assert (str(now["amount_refunded"]), now["status"]) == ("30.00", "completed")


def a_live_payment_says_so(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST, live=True))
    assert stage.data(GET(f"/payments/{made['id']}", live=True))["livemode"] is True


def a_payment_expires_after_an_hour(stage: Stage) -> None:
    assert seconds_between(stage.created["created_at"], stage.created["expires_at"]) == 3600


def a_payment_expires_when_asked(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST | {"expires_in": 300}))
    assert seconds_between(made["created_at"], made["expires_at"]) == 300


def processing_is_shown_as_pending(stage: Stage) -> None:
    event = stage.data(POST("/test/events", {"type": "payment.processing"}))
    assert event["data"]["object"]["status"] == "pending"


def a_payer_may_try_again(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    demand_answer(refuses(422, "insufficient_funds"), own.answer(charging(made, "+251900000001")))
    assert own.found(made)["status"] == "pending"
    assert own.data(charging(made, PAYS))["charge"]["state"] == "awaiting_customer"
    own.is_now(made, "completed")


def a_pushed_prompt_ends(stage: Stage, phone: str, status: str, code: str | None, after: int = 0) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST | TELEBIRR | {"customer": {"phone": phone}}))
    if after:
        once_it_told(own, made, "created", "pending")
        own.advance(after)
    ended = own.is_now(made, status, "failed", "cancelled", "completed")
    reason = {"cancellation_reason": "customer"} if status == "cancelled" else {"failure_code": code}
    demand_like({"status": status} | reason, ended)


def a_payment_fails_with(stage: Stage, code: str) -> None:
    made = stage.data(POST("/payments", LEAST))
    failed = stage.data(POST(f"/test/payments/{made['id']}/fail", {"failure_code": code}))
    demand_like({"status": "failed", "failure_code": code, "failure_message": str}, failed)


def a_merchant_cancels(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST))
    cancelled = stage.data(POST(f"/payments/{made['id']}/cancel"))
    demand_like({"status": "cancelled", "cancellation_reason": "merchant"}, cancelled)
    assert cancelled == stage.found(made)


def an_unpaid_payment_expires(stage: Stage) -> None:
    """Also if its last charge failed."""
    own = stage.anew()
    unpaid, tried = (own.data(POST("/payments", LEAST | {"expires_in": 300})) for _ in range(2))
    demand_answer(refuses(422, "insufficient_funds"), own.answer(charging(tried, "+251900000001")))
    own.advance(240)
    time.sleep(0.5)
    assert {own.found(one)["status"] for one in (unpaid, tried)} == {"pending"}
    own.advance(60)
    for one in (unpaid, tried):
        ended = own.is_now(one, "cancelled")
        demand_like({"cancellation_reason": "expired", "failure_code": ABSENT}, ended)


def a_prompt_is_withdrawn(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    assert own.data(charging(made, ANYBODY))["charge"]["state"] == "awaiting_customer"
    assert own.data(POST(f"/payments/{made['id']}/cancel"))["cancellation_reason"] == "merchant"


def an_open_charge_outlives_the_payments_end(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST | {"expires_in": 300}))
    own.data(charging(made, ANYBODY))
    own.advance(400)
    time.sleep(1)
    assert own.found(made)["status"] == "pending"
    demand_answer(CONFLICT, own.answer(charging(made, PAYS)))


def doubt_is_no_failure(stage: Stage) -> None:
    """The charge is in doubt, its payment pending; the rail, when asked after 5 seconds, knows."""
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    assert own.data(charging(made, "+251900000005"))["charge"]["state"] == "in_doubt"
    assert own.found(made)["status"] == "pending"
    own.advance(5)
    own.is_now(made, "completed")


def doubt_allows_no_second_prompt(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    own.data(charging(made, "+251900000005"))
    demand_answer(CONFLICT, own.answer(charging(made, PAYS)))


def a_charge_takes_the_payments_phone(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST | {"customer": {"phone": ANYBODY}}))
    charge = own.data(POST(f"/payments/{made['id']}/charge", TELEBIRR))["charge"]
    demand_like({"phone": ANYBODY, "mobile_money_provider": "telebirr"}, charge)


def a_repeated_charge_tells_how_it_stands(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    asked = charging(made, PAYS, headers=(("Idempotency-Key", "once"),))
    first = own.data(asked)["charge"]
    own.is_now(made, "completed")
    again = own.data(asked)["charge"]
    assert again == first | {"state": "succeeded"}
    assert story(own, made) == ["created", "pending", "processing", "completed"]


def a_charge_goes_through_its_states(stage: Stage) -> None:
    seen = _states_of_a_charge(stage)
    for _ in range(5):  # half a second in progress may pass between two looks of a busy machine
        if len(seen) == 3:
            break
        seen = _states_of_a_charge(stage)
    assert seen == ["awaiting_customer", "in_progress", "succeeded"]


def _states_of_a_charge(stage: Stage) -> list[str]:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    asked = charging(made, PAYS, headers=(("Idempotency-Key", "once"),))
    seen = dict[str, None]()

    def is_over() -> bool:
        seen[own.data(asked)["charge"]["state"]] = None
        return "succeeded" in seen

    own.until(is_over)
    return [*seen]


def a_refusal_at_once_is_answered(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    demand_answer(refuses(422, "insufficient_funds"), own.answer(charging(made, "+251900000001")))


def a_list_is_newest_first(stage: Stage) -> None:
    listed = stage.payments["payments"]
    assert len(listed) >= 4
    assert listed == sorted(listed, key=lambda one: (one["created_at"], one["id"]), reverse=True)


def filters_filter_and_total_counts(stage: Stage) -> None:
    own = stage.anew()
    known = own.data(POST("/customers", {"phone": PAYS}))
    wanted = LEAST | {"reference": "order-7", "metadata": {"till": "2", "shop": "a"}}
    made = own.data(POST("/payments", wanted | {"customer": {"id": known["id"], "phone": ANYBODY}}))
    for _ in range(2):
        own.data(POST("/payments", LEAST | {"metadata": {"till": "3"}}))
    own.data(POST(f"/test/payments/{made['id']}/complete", {}))
    of_the_one = ["status=completed", "reference=order-7", f"customer={known['id']}", f"phone=%2B{ANYBODY[1:]}"]
    for query_string in (*of_the_one, "metadata[till]=2", "metadata[till]=2&metadata[shop]=a", "&".join(of_the_one)):
        page = own.data(GET(f"/payments?{query_string}"))
        assert ([one["id"] for one in page["payments"]], page["pagination"]["total"]) == ([made["id"]], 1), query_string
    for query_string, total in (("", 3), ("status=pending", 2), ("metadata[till]=3&limit=1", 2), ("status=failed", 0)):
        page = own.data(GET(f"/payments?{query_string}"))
        assert page["pagination"]["total"] == total, query_string


def both_dates_are_inclusive(stage: Stage) -> None:
    own = stage.anew()
    made = own.found(own.data(POST("/payments", LEAST)))
    at, day = instant(made["created_at"]), made["created_at"][:10]
    just_before, just_after = (
        (at + timedelta(milliseconds=n)).isoformat(timespec="milliseconds")[:23] + "Z" for n in (-1, 1)
    )

    def total(query_string: str) -> int:
        return own.data(GET(f"/payments?{query_string}"))["pagination"]["total"]

    assert total(f"date_from={made['created_at']}&date_to={made['created_at']}") == 1
    assert (total(f"date_from={just_after}"), total(f"date_to={just_before}")) == (0, 0)
    assert total(f"date_from={day}&date_to={day}") == 1
    assert total(f"date_to={at.date() - timedelta(days=1)}") == total(f"date_from={at.date() + timedelta(days=1)}") == 0


def a_listed_payment_has_its_reference(stage: Stage) -> None:
    own = stage.anew()
    own.data(POST("/payments", LEAST | {"reference": "order-7"}))
    demand_like({"reference": "order-7"}, own.data(GET("/payments"))["payments"][0])


def three_prompts_in_ten_minutes(stage: Stage) -> None:
    own = stage.anew()
    made = [own.data(POST("/payments", LEAST)) for _ in range(4)]
    for one in made[:3]:
        own.data(charging(one, ANYBODY))
    refused = own.answer(charging(made[3], ANYBODY))
    demand_answer(refuses(429, "rate_limit_exceeded", retry_after=str.isdigit), refused)
    own.data(charging(made[3], "+251911223345"))


# 3


def without_an_amount_all_that_is_left(stage: Stage) -> None:
    own = stage.anew()
    payment = own.paid(100)
    own.refund_of(payment, amount=30)
    assert str(own.refund_of(payment)["amount"]) == "70.00"


def a_refund_is_approved_and_completed(stage: Stage) -> None:
    own = stage.anew()
    asked = own.refund_of(own.paid(100), amount=30)
    approved = own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    demand_like({"id": asked["id"], "status": "approved"}, approved)
    own.is_now(asked, "completed")


def a_refund_fails(stage: Stage) -> None:
    own = stage.anew()
    payment = own.data(POST("/payments", LEAST))
    own.data(charging(payment, "+251900000009"))
    own.is_now(payment, "completed")
    asked = own.refund_of(payment, amount=30)
    own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    demand_like({"failure_code": str, "completed_at": ABSENT}, own.is_now(asked, "failed"))


def no_more_than_was_paid(stage: Stage) -> None:
    own = stage.anew()
    payment = own.paid(100)
    first = own.refund_of(payment, amount=60)

    def too_much(amount: float) -> None:
        answer = own.answer(POST("/refunds", {"payment_id": payment["id"], "amount": amount}))
        demand_answer(refuses(422, "refund_amount_exceeds_available", "amount"), answer)

    too_much(40.01)
    own.refund_of(payment, amount=40)
    too_much(0.01)
    own.data(POST(f"/refunds/{first['id']}/reject", {}))
    too_much(60.01)
    own.refund_of(payment, amount=60)


def any_number_of_refunds(stage: Stage) -> None:
    own = stage.anew()
    payment = own.paid(1)
    for _ in range(20):
        own.refund_of(payment, amount=0.05)


def a_sandbox_allows_self_approval(stage: Stage) -> None:
    own = stage.anew()
    asked = own.data(POST("/refunds", {"payment_id": own.paid()["id"]}))
    approved = own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    assert approved["approved_by"] == approved["requested_by"]


def refunds_are_listed(stage: Stage) -> None:
    own = stage.anew()
    one, other = own.paid(), own.paid()
    first, second, third = (own.refund_of(payment, amount=1)["id"] for payment in (one, one, other))
    own.data(POST(f"/refunds/{first}/reject", {}))
    for query_string, expected in {
        "": [third, second, first],
        f"payment_id={one['id']}": [second, first],
        "status=failed": [first],
        "limit=1&offset=1": [second],
    }.items():
        listed = own.data(GET(f"/refunds?{query_string}"))
        assert [refund["id"] for refund in listed["refunds"]] == expected, query_string


def another_accounts_payment_cannot_be_refunded(stage: Stage) -> None:
    demand_answer(NOT_FOUND, stage.anew().answer(POST("/refunds", {"payment_id": stage.completed["id"], "amount": 1})))


def a_payment_that_is_not_completed_is_not_refundable(stage: Stage) -> None:
    for payment in (stage.payment, stage.failed, stage.cancelled):
        answer = stage.answer(POST("/refunds", {"payment_id": payment["id"], "amount": 1}))
        demand_answer(refuses(422, "payment_not_refundable", "payment_id"), answer)


def nobody_approves_their_own_in_live(stage: Stage) -> None:
    """No payment can be completed in live without a real rail; a sandbox with live's setting stands for it."""
    own = stage.anew()
    payment = own.data(POST("/payments", LEAST))
    own.data(POST(f"/test/payments/{payment['id']}/complete", {}))
    account = account_of(own.gateway, own.key("admin"))
    query(own.gateway, "UPDATE accounts SET allow_self_approval = false WHERE id = $1", account)
    time.sleep(1.1)  # a process knows a key's account for a second
    asked = own.data(POST("/refunds", {"payment_id": payment["id"], "amount": 1}))
    demand_answer(refuses(403, "self_approval_forbidden"), own.answer(POST(f"/refunds/{asked['id']}/approve", {})))
    live = account_of(own.gateway, own.key("admin", live=True))
    (kept,) = query(own.gateway, "SELECT allow_self_approval AS allowed FROM accounts WHERE id = $1", live)
    assert kept["allowed"] is False


# 4


def an_external_id_is_unique(stage: Stage) -> None:
    own = stage.anew()
    body = {"phone": ANYBODY, "external_id": "7"}
    assert own.data(POST("/customers", body))["external_id"] == "7"
    demand_answer(refuses(409, "duplicate_reference"), own.answer(POST("/customers", body)))


def a_change_merges(stage: Stage) -> None:
    own = stage.anew()
    body = {"email": "a@example.com", "phone": ANYBODY, "name": "Abebe", "metadata": {"a": "1", "b": "2"}}
    made = own.data(POST("/customers", body))
    change = {"phone": None, "metadata": {"a": None, "c": "3"}}
    changed = own.data(PATCH(f"/customers/{made['id']}", change))
    expected = made | {"phone": None, "metadata": {"b": "2", "c": "3"}, "updated_at": changed["updated_at"]}
    assert changed == expected
    assert changed["updated_at"] >= made["updated_at"]
    assert own.found(made) == expected


def email_or_phone_stays(stage: Stage) -> None:
    made = stage.data(POST("/customers", {"email": "a@example.com"}))
    demand_answer(faulty("email"), stage.answer(PATCH(f"/customers/{made['id']}", {"email": None})))


def a_change_tells_what_was_before(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/customers", {"email": "a@example.com", "metadata": {"till": "2"}}))
    own.data(PATCH(f"/customers/{made['id']}", {"email": "a@example.com"}))
    own.data(PATCH(f"/customers/{made['id']}", {"name": "Abebe", "metadata": {"till": "3"}}))
    told = own.data(GET(f"/events?object={made['id']}"))["events"]
    assert [event["type"] for event in told] == ["customer.updated", "customer.created"]
    assert told[0]["previous_attributes"] == {"name": None, "metadata": {"till": "2"}}
    assert "previous_attributes" not in told[1]


def a_customer_is_erased(stage: Stage) -> None:
    own = stage.anew()
    person = {"email": "abebe@example.com", "phone": ANYBODY, "name": "Abebe"}
    made = own.data(POST("/customers", person))
    payment = own.data(POST("/payments", LEAST | {"customer": {"id": made["id"], **person}}))
    assert own.data(DELETE(f"/customers/{made['id']}")) == {"id": made["id"], "deleted": True}
    demand_answer(NOT_FOUND, own.answer(GET(f"/customers/{made['id']}")))
    kept = own.found(payment)
    demand_like({"status": "pending", "customer": {"email": None, "phone": None}}, kept)


# 5


def a_payment_tells_its_life(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    once_it_told(own, made, "created")
    own.data(charging(made, PAYS))
    once_it_told(own, made, "created", "pending", "processing", "completed")


def an_end_is_told_once(stage: Stage) -> None:
    for what, told in (("fail", "failed"), ("cancel", "cancelled")):
        own = stage.anew()
        made = own.data(POST("/payments", LEAST))
        own.data(POST(f"/test/payments/{made['id']}/{what}", {}))
        once_it_told(own, made, "created", told)


def a_refund_tells_its_life(stage: Stage) -> None:
    own = stage.anew()
    asked = own.refund_of(own.paid(), amount=1)
    once_it_told(own, asked, "created")
    own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    once_it_told(own, asked, "created", "approved", "completed")


def an_event_shows_what_a_get_does(stage: Stage) -> None:
    for thing, kind in ((stage.cancelled, "cancelled"), (stage.rejected, "failed")):
        (event, *_) = stage.data(GET(f"/events?object={thing['id']}"))["events"]
        assert event["type"].endswith(kind)
        assert event["data"]["object"] == thing == stage.found(thing)


def the_feed_is_filtered(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    own.data(POST("/customers", {"phone": ANYBODY}))
    own.data(POST(f"/payments/{made['id']}/cancel"))

    def listed(query_string: str) -> list[str]:
        return [event["type"] for event in own.data(GET(f"/events?{query_string}"))["events"]]

    everything = ["payment.cancelled", "customer.created", "payment.created"]
    assert listed("") == everything
    own.until(lambda: listed("order=asc") == everything[::-1])
    assert listed("type=customer.created") == ["customer.created"]
    assert listed(f"object={made['id']}") == ["payment.cancelled", "payment.created"]
    assert listed("date_from=2026-01-01") == everything
    assert listed("date_to=2026-01-01") == []


def an_event_is_read_as_it_was_told(stage: Stage) -> None:
    answer = stage.answer(GET(f"/events/{stage.event['id']}"))
    demand_answer(gives(200), answer)
    assert stage.told.body in answer.body


def equal_urls_are_allowed(stage: Stage) -> None:
    own = stage.anew()
    one, other = (own.listening("http://shop.example.et/hooks", "*") for _ in range(2))
    assert one["id"] != other["id"]
    assert one["secret"] != other["secret"]


def an_endpoint_is_changed(stage: Stage) -> None:
    own = stage.anew()
    made = own.listening("http://shop.example.et/hooks", "*")
    change = {"status": "disabled", "events": ["refund.failed"], "description": "x", "url": "http://a.example.et/"}
    changed = own.data(PATCH(f"/webhooks/{made['id']}", change))
    assert changed == {name: value for name, value in made.items() if name != "secret"} | change == own.found(made)
    assert own.data(PATCH(f"/webhooks/{made['id']}", {"status": "enabled"}))["status"] == "enabled"


def an_endpoint_is_deleted(stage: Stage) -> None:
    own = stage.anew()
    made = own.listening("http://shop.example.et/hooks", "*")
    assert own.data(DELETE(f"/webhooks/{made['id']}")) == {"id": made["id"], "deleted": True}
    demand_answer(NOT_FOUND, own.answer(GET(f"/webhooks/{made['id']}")))
    assert own.data(GET("/webhooks"))["webhooks"] == []


def a_secret_has_its_form(stage: Stage) -> None:
    prefix, _, rest = stage.webhook["secret"].partition("_")
    assert prefix == "whsec"
    assert len(base64.b64decode(rest, validate=True)) == 32


def overlaps_have_their_bounds(stage: Stage) -> None:
    own = stage.anew()
    for body, seconds in (({}, 86_400), ({"overlap_seconds": 604_800}, 604_800), ({"overlap_seconds": 0}, None)):
        made = own.listening("http://shop.example.et/hooks", "*")
        rotated = own.data(POST(f"/webhooks/{made['id']}/rotate-secret", body))
        assert rotated["secret"] != made["secret"]
        if seconds is None:
            assert "rotates_at" not in rotated
        else:
            assert abs(instant(rotated["rotates_at"]).timestamp() - time.time() - seconds) < 120


def both_signatures_verify(stage: Stage) -> None:
    told, secret = stage.told, stage.webhook["secret"]
    assert is_signed_as_the_contract_says(told, secret)
    assert is_a_standard_webhook(told, secret)
    signed = f"{told.headers['webhook-id']}.{told.headers['webhook-timestamp']}.".encode() + told.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert told.headers["webhook-signature"] == f"v1,{made}"


def four_kib_of_an_answer_are_kept(stage: Stage) -> None:
    own = stage.anew()

    def answer(receiver: BaseHTTPRequestHandler) -> None:
        receiver.send_response(200)
        receiver.end_headers()
        receiver.wfile.write(b"x" * 5000)

    own.receiver.answer = answer
    webhook = own.listening(own.receiver.url, "customer.created")
    own.data(POST("/customers", {"phone": ANYBODY}))
    path = f"/webhooks/{webhook['id']}/deliveries?status=succeeded"
    (delivery,) = own.until(lambda: own.data(GET(path))["deliveries"])
    (attempt,) = own.found(delivery)["attempts"]
    assert attempt["response_body"].lstrip("\r\n").startswith("x")
    assert len(attempt["response_body"]) == 4096


def a_delivery_is_made_again(stage: Stage) -> None:
    first = stage.told
    again = stage.data(POST(f"/deliveries/{stage.delivery['id']}/redeliver"))
    demand_like({"id": starts("dlv_"), "event_id": stage.event["id"], "redelivery_of": stage.delivery["id"]}, again)

    def copies() -> list[Received]:
        return [
            one for one in list(stage.receiver.received) if one.headers["webhook-id"] == first.headers["webhook-id"]
        ]

    stage.until(lambda: len(copies()) > 1)
    assert {one.body for one in copies()} == {first.body}


def a_test_event_says_so(stage: Stage) -> None:
    delivery = stage.data(POST("/webhooks/{webhook}/test", {"type": "customer.created"}))
    told = stage.received({"id": delivery["event_id"]})
    assert told.headers["zembil-test"] == "true"
    assert is_signed_as_the_contract_says(told, stage.webhook["secret"])
    assert "zembil-test" not in stage.headers


def a_delivery_waits_for_its_next_attempt(stage: Stage) -> None:
    own = stage.anew()
    own.receiver.answer = lambda receiver: receiver.send_response(500)
    webhook = own.listening(own.receiver.url, "customer.created")
    own.data(POST("/customers", {"phone": ANYBODY}))

    def waiting() -> Any:
        listed = own.data(GET(f"/webhooks/{webhook['id']}/deliveries"))["deliveries"]
        return [one for one in listed if one["attempts_made"] == 1 and "next_attempt_at" in one]

    (delivery,) = own.until(waiting)
    demand_like({"status": "pending", "next_attempt_at": TIMESTAMP}, delivery)


def only_our_own_headers(stage: Stage) -> None:
    of_http = {"host", "content-type", "content-length", "user-agent", "accept", "accept-encoding", "connection"}
    of_ours = {"zembil-signature", "zembil-timestamp", "webhook-id", "webhook-timestamp", "webhook-signature"}
    assert set(stage.headers) - of_http == of_ours


# 6

_BODIES: dict[str, Any] = {
    "/payments": LEAST,
    "/payments/{no_pay}/charge": {"phone": PAYS} | TELEBIRR,
    "/refunds": {"payment_id": "{no_pay}", "amount": 1},
    "/customers": {"phone": ANYBODY},
    "/webhooks": {"url": "https://shop.example.et/hooks", "events": ["*"]},
    "/webhooks/{no_whk}/recover": {"since": "2026-01-01"},
    "/webhooks/{no_whk}/test": {"type": "payment.created"},
    "/keys": {"name": "Till", "role": "read_only"},
}


def these_roles_may(stage: Stage, method: str, path: str, roles: str, live: int) -> None:
    """Who may gets as far as the thing itself, which may not exist; who may not is told so first."""
    own = stage.anew() if method == "POST" and path == "/webhooks" else stage
    body = _BODIES.get(path, {}) if method in ("POST", "PATCH") else None
    for role in ("admin", "developer", "read_only"):
        asked = {"GET": GET, "POST": POST, "PATCH": PATCH, "DELETE": DELETE}[method]
        answer = own.answer(asked(path, body, by=role, live=bool(live)))
        if role[0] in roles:
            assert answer.status in ((404,) if "{" in path or path == "/refunds" else (200, 201)), answer.body
        elif live and path.startswith("/test/"):
            demand_answer(NOT_FOUND, answer)
        else:
            demand_answer(refuses(403, "permission_denied"), answer)


def the_last_four_are_shown(stage: Stage) -> None:
    assert stage.api_key["last_four"] == stage.api_key["key"][-4:]


def a_key_that_ended_opens_nothing(stage: Stage) -> None:
    own = stage.anew()
    revoked, expired = (own.data(POST("/keys", {"name": "Till", "role": "read_only"})) for _ in range(2))
    own.data(DELETE(f"/keys/{revoked['id']}"))
    account = account_of(own.gateway, own.key("admin"))
    statement = "UPDATE api_keys SET expires_at = now() WHERE account_id = $1 AND last_four = $2"
    query(own.gateway, statement, account, expired["last_four"])
    unauthenticated = refuses(401, "authentication_failed", www_authenticate="Bearer")
    demand_answer(unauthenticated, own.answer(GET("/payments", by=revoked["key"])))
    own.until(lambda: own.answer(GET("/payments", by=expired["key"])).status == 401)


def one_message_names_both_addresses(stage: Stage) -> None:
    answers = [
        stage.answer(GET("/payments", by=None)),
        stage.answer(GET("/payments", by="nonsense")),
        stage.answer(GET("/payments", by=A_KEY_OF_NOBODY)),
        stage.answer(GET("/payments", by=stage.key("admin", live=True))),
        stage.answer(GET("/nowhere", by=None, live=True)),
    ]
    (message,) = {answer.json["error"]["message"] for answer in answers}
    assert f"{stage.origin}/sandbox/v1" in message
    assert f"{stage.origin}/v1" in message


def another_accounts_id_is_unknown(stage: Stage) -> None:
    own = stage.anew()
    things = (stage.payment, stage.refund, stage.customer, stage.webhook, stage.delivery, {"id": stage.event["id"]})
    kinds = ("payments", "refunds", "customers", "webhooks", "deliveries", "events")
    for kind, thing in zip(kinds, things, strict=True):
        others = own.answer(GET(f"/{kind}/{thing['id']}"))
        unknown = own.answer(GET(f"/{kind}/{thing['id'][:4]}{'0' * 26}"))
        demand_answer(NOT_FOUND, others)
        assert others.body == unknown.body


def a_request_that_still_runs_is_told(stage: Stage) -> None:
    """The first request is played by a transaction of ours that holds the key, as that request's would."""
    own = stage.anew()
    known = own.data(POST("/customers", {"phone": ANYBODY}))
    account = account_of(own.gateway, own.key("admin"))
    hold = "INSERT INTO idempotency_keys (account_id, key, fingerprint, created_at) VALUES ($1, $2, $3, now())"
    once = (("Idempotency-Key", "once"),)

    async def asked_meanwhile(asks: Asks) -> RawAnswer:
        async with connection(own.gateway.database_url) as conn, conn.transaction():
            await conn.execute(hold, account, "once", b"x" * 32)
            answer = await asyncio.to_thread(own.answer, asks)
            raise _Undone(answer)

    for asks in (POST("/payments", LEAST, headers=once), PATCH(f"/customers/{known['id']}", {}, headers=once)):
        with pytest.raises(_Undone) as undone:
            asyncio.run(asked_meanwhile(asks))
        demand_answer(refuses(409, "idempotency_in_progress", retry_after="1"), undone.value.answer)


class _Undone(Exception):
    """Takes back what a transaction did."""

    def __init__(self, answer: RawAnswer) -> None:
        super().__init__()
        self.answer = answer


def a_key_goes_with_one_request(stage: Stage) -> None:
    own = stage.anew()
    once = (("Idempotency-Key", "once"),)
    own.data(POST("/payments", LEAST, headers=once))
    reused = refuses(422, "idempotency_key_reused")
    demand_answer(reused, own.answer(POST("/payments", LEAST | {"amount": 2}, headers=once)))
    demand_answer(reused, own.answer(POST("/customers", {"phone": ANYBODY}, headers=once)))


def a_repeat_is_answered_alike(stage: Stage) -> None:
    own = stage.anew()
    known = own.data(POST("/customers", {"phone": ANYBODY}))
    webhook = own.listening("http://shop.example.et/hooks", "*")
    asked = [
        POST("/payments", LEAST, headers=(("Idempotency-Key", "a"),)),
        PATCH(f"/customers/{known['id']}", {"name": "Abebe"}, headers=(("Idempotency-Key", "b"),)),
        PATCH(f"/webhooks/{webhook['id']}", {"description": "x"}, headers=(("Idempotency-Key", "c"),)),
    ]
    for asks in asked:
        first, again = own.answer(asks), own.answer(asks)
        assert first.status in (200, 201)
        assert "idempotent-replayed" not in first.headers
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["idempotent-replayed"] == "true"


def quotes_around_a_key_are_stripped(stage: Stage) -> None:
    own = stage.anew()
    first, again = (
        own.answer(POST("/payments", LEAST, headers=(("Idempotency-Key", key),))) for key in ("once", '"once"')
    )
    assert (again.body, again.headers["idempotent-replayed"]) == (first.body, "true")


def a_key_is_the_accounts(stage: Stage) -> None:
    own = stage.anew()
    once = (("Idempotency-Key", "once"),)
    first = own.answer(POST("/payments", LEAST, headers=once))
    assert own.answer(POST("/payments", LEAST, headers=once, by="developer")).body == first.body
    demand_answer(refuses(403, "permission_denied"), own.answer(POST("/payments", LEAST, headers=once, by="read_only")))
    others = [
        own.answer(POST("/payments", LEAST, headers=once, live=True)),
        own.anew().answer(POST("/payments", LEAST)),
    ]
    assert first.body not in [other.body for other in others]


def a_corrected_retry_runs(stage: Stage) -> None:
    own = stage.anew()
    once = (("Idempotency-Key", "once"),)
    demand_answer(faulty("amount"), own.answer(POST("/payments", LEAST | {"amount": 0}, headers=once)))
    demand_answer(gives(201, {"status": "pending"}), own.answer(POST("/payments", LEAST, headers=once)))


def a_list_is_walked(stage: Stage, path: str) -> None:
    """By its cursors, while rows are added: each that was there is seen once, and none that came later."""
    own = stage.anew()
    for _ in range(3):
        _add(own, path)
    name = {"/ledger/entries": "entries"}.get(path, path[1:])
    there = [one["id"] for one in own.data(GET(f"{path}?limit=100"))[name]]
    page = own.data(GET(f"{path}?limit=2"))
    seen = [one["id"] for one in page[name]]
    while "next_cursor" in page["pagination"]:
        _add(own, path)
        page = own.data(GET(f"{path}?limit=2&cursor={page['pagination']['next_cursor']}"))
        seen += [one["id"] for one in page[name]]
    assert len(there) >= 3
    assert seen == there


def _add(own: Stage, path: str) -> None:
    match path:
        case "/ledger/entries":
            own.paid()
        case "/refunds":
            own.refund_of(own.paid(), amount=1)
        case "/events":
            own.data(POST("/payments", LEAST))
        case _:
            own.data(POST(path, _BODIES[path]))


def a_cursor_goes_with_its_filters(stage: Stage) -> None:
    own = stage.anew()
    for _ in range(3):
        own.data(POST("/payments", LEAST))
    cursor = own.data(GET("/payments?limit=2&status=pending"))["pagination"]["next_cursor"]
    assert len(own.data(GET(f"/payments?limit=2&status=pending&cursor={cursor}"))["payments"]) == 1
    for query_string in (
        f"status=failed&cursor={cursor}",
        f"cursor={cursor}",
        f"status=pending&offset=0&cursor={cursor}",
    ):
        demand_answer(faulty("cursor"), own.answer(GET(f"/payments?{query_string}")))
    demand_answer(faulty("cursor"), own.answer(GET(f"/refunds?cursor={cursor}")))


def the_balance_follows(stage: Stage) -> None:
    own = stage.anew()
    payment = own.paid(100)
    assert own.data(GET("/balance"))["available"] == Decimal("100.00")
    asked = own.refund_of(payment, amount=30)
    own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    held = own.data(GET("/balance"))
    assert held["available"] == Decimal("70.00")
    own.is_now(asked, "completed")
    assert own.data(GET("/balance")) == {"currency": "ETB", "available": 70, "refunds_in_transit": 0, "unallocated": 0}


def entries_have_their_fields(stage: Stage) -> None:
    own = stage.anew()
    asked = own.refund_of(own.paid(100), amount=30)
    own.data(POST(f"/refunds/{asked['id']}/approve", {}))
    own.is_now(asked, "completed")
    entry = {"id": starts("ent_"), "debit": str, "credit": str, "amount": NUMBER, "currency": "ETB", "kind": str}
    entries = own.data(GET("/ledger/entries"))["entries"]
    demand_like(each(entry | {"source": str, "created_at": TIMESTAMP}), entries)
    assert [one["source"][:4] for one in entries] == ["ref_", "ref_", "chg_"]


def card_numbers_are_not_in_the_log(stage: Stage) -> None:
    card = "4111111111111111"
    stage.data(POST("/payments", LEAST | {"description": card, "metadata": {"card": card}}))
    demand_answer(NOT_FOUND, stage.answer(GET(f"/payments/{card}")))
    demand_answer(faulty("status"), stage.answer(GET(f"/payments?status={card}")))
    assert card not in stage.gateway.log.read_text(errors="replace")


def card_numbers_are_masked_on_the_page(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST | {"description": "Card 4111 1111 1111 1111"}))
    page = httpx2.get(made["payment_link"], timeout=30).text
    assert "Card **** **** **** 1111" in page
    assert "4111" not in page
    assert stage.found(made)["description"] == "Card 4111 1111 1111 1111"


# 7


def the_number_that_pays(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST | TELEBIRR | {"customer": {"phone": PAYS}}))
    done = own.is_now(made, "completed")
    assert story(own, made) == ["created", "pending", "processing", "completed"]
    told = own.data(GET(f"/events?object={made['id']}&type=payment.completed"))["events"]
    assert told[0]["data"]["object"] == done


def a_charge_ends(stage: Stage, phone: str, code: str) -> None:
    """Somebody is at the page, so the payment waits for another try; its last charge says why, when it is repeated."""
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    asked = charging(made, phone, headers=(("Idempotency-Key", "once"),))
    assert own.data(asked)["charge"]["state"] == "awaiting_customer"
    own.until(lambda: own.answer(asked).status == 422)
    demand_answer(refuses(422, code), own.answer(asked))
    assert own.found(made)["status"] == "pending"


def the_number_that_never_answers(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    asked = charging(made, "+251900000004", headers=(("Idempotency-Key", "once"),))
    assert own.data(asked)["charge"]["state"] == "awaiting_customer"
    own.advance(80)
    time.sleep(1)
    assert own.data(asked)["charge"]["state"] == "awaiting_customer"
    own.advance(40)
    own.until(lambda: own.answer(asked).status == 422)
    demand_answer(refuses(422, "timeout"), own.answer(asked))


def the_number_that_falls_silent(stage: Stage) -> None:
    stage.once(doubt_is_no_failure)


def a_test_event_makes_real_rows(stage: Stage) -> None:
    event = stage.data(POST("/test/events", {"type": "refund.completed"}))
    refund = stage.found(event["data"]["object"])
    assert refund == event["data"]["object"]
    demand_like({"status": "completed"}, stage.data(GET(f"/payments/{refund['payment_id']}")))
    assert stage.data(GET(f"/events/{event['id']}")) == event


def a_clock_moves_created_at_of_one_account(stage: Stage) -> None:
    own, other = stage.anew(), stage.anew()
    before = instant(own.data(GET("/test/clock"))["now"])
    moved = instant(own.data(POST("/test/clock", {"advance_seconds": 86_400}))["now"])
    assert 86_400 <= (moved - before).total_seconds() < 86_430
    for stage_of, days in ((own, 1), (other, 0)):
        made = stage_of.data(POST("/payments", LEAST))
        ahead = instant(made["created_at"]).timestamp() - time.time()
        assert round(ahead / 86_400) == days


def a_clock_moves_no_signature(stage: Stage) -> None:
    own = stage.anew()
    own.listening(own.receiver.url, "customer.created")
    own.advance(86_400)
    own.data(POST("/customers", {"phone": ANYBODY}))
    (told,) = own.receiver.wait_for(1)
    for header in ("zembil-timestamp", "webhook-timestamp"):
        assert abs(int(told.headers[header]) - time.time()) < 120
    assert told.event["created"] - time.time() > 86_000


def a_clock_moves_neither_keys_nor_limits(stage: Stage) -> None:
    own = stage.anew()
    ends = (datetime.now().astimezone() + timedelta(hours=1)).isoformat()
    key = own.data(POST("/keys", {"name": "Till", "role": "admin", "expires_at": ends, "rate_limit": 2}))["key"]
    assert own.answer(GET("/payments", by=key)).status == 200
    own.advance(86_400)
    assert [own.answer(GET("/payments", by=key)).status for _ in range(2)] == [200, 429]
