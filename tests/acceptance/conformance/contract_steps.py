"""Promises of the contract that take several steps to hold."""

import base64
import hashlib
import hmac
import re
import time
from datetime import datetime
from typing import Any

import httpx2

from tests.acceptance.conformance.rows import GET, PATCH, POST, demand_answer, refuses
from tests.acceptance.conformance.stage import LEAST, PAYS, Stage
from tests.support.receiver import Answer, Receiver
from tests.support.wire import exchange, request
from tests.unit.test_qr import decoded, modules

SIGNATURE = re.compile(r"t=\d{10},v1=[0-9a-f]{64}")


def the_link_opens_the_page(stage: Stage) -> None:
    page = httpx2.get(stage.created["payment_link"], timeout=30)
    assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")
    assert "1,500.00" in page.text


def the_qr_code_is_a_png_of_the_link(stage: Stage) -> None:
    scheme, _, image = stage.created["qr_code"].partition(",")
    assert scheme == "data:image/png;base64"
    assert decoded(modules(base64.b64decode(image, validate=True))) == stage.created["payment_link"]


def a_customer_pays_by_the_link(stage: Stage) -> None:
    own = stage.anew()
    made = own.data(POST("/payments", LEAST))
    with httpx2.Client(timeout=30) as browser:
        page = browser.get(made["payment_link"]).text
        token = page.split('name="form_token" value="', 1)[1].split('"', 1)[0]
        form = {"form_token": token, "mobile_money_provider": "telebirr", "phone": "0900000000"}
        assert browser.post(f"{made['payment_link']}/charge", data=form).status_code == 303
    own.is_now(made, "completed")


def payments_are_listed_after_the_filter(stage: Stage, status: str) -> None:
    assert stage.payments
    listed = stage.data(GET(f"/payments?status={status}&limit=100"))["payments"]
    assert listed
    assert {one["status"] for one in listed} == {status}


def dates_bound_the_list(stage: Stage) -> None:
    own = stage.anew()
    first = own.found(own.data(POST("/payments", LEAST)))
    time.sleep(0.01)
    second = own.found(own.data(POST("/payments", LEAST)))

    def listed(query: str) -> list[str]:
        return [one["id"] for one in own.data(GET(f"/payments?{query}"))["payments"]]

    assert listed(f"date_from={second['created_at']}") == [second["id"]]
    assert listed(f"date_to={first['created_at']}") == [first["id"]]
    day = first["created_at"][:10]
    assert listed(f"date_from={day}&date_to={second['created_at'][:10]}") == [second["id"], first["id"]]


def the_list_is_cut_into_pages(stage: Stage) -> None:
    own = stage.anew()
    made = [own.data(POST("/payments", LEAST))["id"] for _ in range(11)][::-1]
    first = own.data(GET("/payments"))
    assert [one["id"] for one in first["payments"]] == made[:10]
    assert {name: first["pagination"][name] for name in ("limit", "offset", "total")} == {
        "limit": 10,
        "offset": 0,
        "total": 11,
    }
    rest = own.data(GET("/payments?limit=5&offset=9"))
    assert [one["id"] for one in rest["payments"]] == made[9:]
    assert rest["pagination"]["offset"] == 9


def processing_is_no_status(stage: Stage) -> None:
    """The event is told, the resource stays pending."""
    told = stage.told_of("payment.processing").event
    assert told["data"]["object"]["status"] == "pending"


def the_signature_is_made_with_the_secret(stage: Stage) -> None:
    header = stage.headers["zembil-signature"]
    digest = hmac.new(stage.webhook["secret"].encode(), stage.told.body, hashlib.sha256).hexdigest()
    assert header == f"t={stage.headers['zembil-timestamp']},v1={digest}"


def every_delivery_is_signed(stage: Stage) -> None:
    assert stage.told
    for one in list(stage.receiver.received):
        digest = hmac.new(stage.webhook["secret"].encode(), one.body, hashlib.sha256).hexdigest()
        assert one.headers["zembil-signature"].endswith(f",v1={digest}")


def an_event_arrives(stage: Stage, event_type: str, status: str | None) -> None:
    """It arrives at a registered URL, as a POST of JSON that is about an object in that state."""
    told = stage.told_of(event_type)
    assert told.headers["content-type"] == "application/json"
    assert told.event["type"] == event_type
    about = told.event["data"]["object"]
    assert about["id"][:4] == {"payment": "pay_", "refund": "ref_", "customer": "cus_"}[event_type.split(".")[0]]
    assert about.get("status") == status
    assert event_type == "customer.updated" or "previous_attributes" not in told.event


def only_subscribed_events_arrive(stage: Stage) -> None:
    own = stage.anew()
    own.listening(own.receiver.url, "payment.cancelled")
    own.data(POST("/test/events", {"type": "customer.created"}))
    wanted = own.data(POST("/test/events", {"type": "payment.cancelled"}))
    assert own.received(wanted)
    time.sleep(0.3)
    assert [one.event["type"] for one in own.receiver.received] == ["payment.cancelled"]


def every_registered_url_is_told(stage: Stage) -> None:
    own = stage.anew()
    other = Receiver()
    try:
        own.listening(own.receiver.url, "customer.created")
        own.listening(other.url, "*")
        own.data(POST("/customers", {"email": "abebe@example.com"}))
        assert own.receiver.wait_for(1)[0].body == other.wait_for(1)[0].body
    finally:
        other.close()


def an_update_tells_what_was_before(stage: Stage) -> None:
    own = stage.anew()
    own.listening(own.receiver.url, "customer.updated")
    made = own.data(POST("/customers", {"email": "abebe@example.com", "name": "Abebe"}))
    own.data(PATCH(f"/customers/{made['id']}", {"name": "Bekele"}))
    assert own.receiver.wait_for(1)[0].event["previous_attributes"] == {"name": "Abebe"}


def a_completed_payment_is_told_as_it_stands(stage: Stage) -> None:
    own = stage.anew()
    own.listening(own.receiver.url, "payment.completed")
    body = LEAST | {"customer": {"phone": PAYS}, "mobile_money_provider": "telebirr"}
    own.is_now(own.data(POST("/payments", body)), "completed")
    (told,) = own.receiver.wait_for(1)
    assert (
        told.event["data"]["object"] == own.answer(GET(f"/payments/{told.event['data']['object']['id']}")).json["data"]
    )


def a_live_event_says_so(stage: Stage) -> None:
    made = stage.data(POST("/payments", LEAST, live=True))
    (told,) = stage.data(GET(f"/events?object={made['id']}", live=True))["events"]
    assert told["livemode"] is True


def is_now(seconds: Any) -> bool:
    """Unix time in seconds, of a moment ago."""
    return 0 <= time.time() - seconds < 600


# Deliveries


def answering(status: int) -> Answer:
    return lambda request: request.send_response(status)


def tried(stage: Stage, answer: Answer | None, url: str | None = None) -> "Tried":
    """A delivery to a receiver that answers so, or to a URL where nobody is."""
    own = stage.anew()
    if answer is not None:
        own.receiver.answer = answer
    webhook = own.listening(url or own.receiver.url, "customer.created")
    own.data(POST("/customers", {"email": "abebe@example.com"}))
    (listed,) = own.until(lambda: own.data(GET(f"/webhooks/{webhook['id']}/deliveries"))["deliveries"])
    return Tried(own, listed)


class Tried:
    """A delivery whose attempts are watched."""

    def __init__(self, stage: Stage, delivery: dict[str, Any]) -> None:
        self.stage = stage
        self._delivery = delivery

    def after(self, attempts: int) -> dict[str, Any]:
        """As it stands when so many attempts are over."""

        def stands() -> dict[str, Any] | None:
            now = self.stage.found(self._delivery)
            over = sum("latency_ms" in one for one in now["attempts"])
            is_settled = now["status"] != "pending" or "next_attempt_at" in now
            return now if over >= attempts and is_settled else None

        now = self.stage.until(stands, seconds=30)
        assert now["attempts_made"] == attempts, now
        return now


def instant(shown: str) -> float:
    return datetime.fromisoformat(shown).timestamp()


def waits(delivery: dict[str, Any]) -> float:
    """How long after the end of its last attempt the next one is due."""
    last = delivery["attempts"][-1]
    return instant(delivery["next_attempt_at"]) - instant(last["started_at"]) - last["latency_ms"] / 1000


def status_200_is_success(stage: Stage) -> None:
    delivery = tried(stage, answering(200)).after(1)
    assert (delivery["status"], delivery["attempts"][0]["status_code"]) == ("succeeded", 200)


def the_schedule_is_kept(stage: Stage) -> None:
    """The first at once, the second after 1 minute, the third after 10 minutes, and no more."""
    delivery = tried(stage, answering(500))
    first = delivery.after(1)
    assert (first["status"], round(waits(first))) == ("pending", 60)
    delivery.stage.advance(30)
    time.sleep(1.2)
    assert len(delivery.stage.receiver.received) == 1
    delivery.stage.advance(30)
    second = delivery.after(2)
    assert (second["status"], round(waits(second))) == ("pending", 600)
    delivery.stage.advance(540)
    time.sleep(1.2)
    assert len(delivery.stage.receiver.received) == 2
    delivery.stage.advance(60)
    third = delivery.after(3)
    assert (third["status"], "next_attempt_at" in third) == ("failed", False)
    delivery.stage.advance(100_000)
    time.sleep(1.2)
    assert len(delivery.stage.receiver.received) == 3


def another_status_is_retried(stage: Stage) -> None:
    for status in (201, 204, 302, 400, 503):
        first = tried(stage, answering(status)).after(1)
        assert (first["status"], first["attempts"][0]["status_code"]) == ("pending", status)
        assert round(waits(first)) == 60


def an_unreachable_receiver_is_tried_again(stage: Stage) -> None:
    gone = Receiver()
    gone.close()
    first = tried(stage, None, gone.url).after(1)
    assert (first["status"], first["attempts"][0]["error"]) == ("pending", "connection_refused")
    assert round(waits(first)) == 60


# Keys, errors, versions


def the_keys_have_their_prefixes(stage: Stage) -> None:
    for live, prefix in ((False, "sk_test_"), (True, "sk_live_")):
        for role in ("admin", "developer", "read_only"):
            assert stage.key(role, live=live).startswith(prefix)
            assert stage.answer(GET("/payments", by=role, live=live)).status == 200


def other_versions_are_not_there(stage: Stage) -> None:
    for path in ("/v2/payments", "/payments", "/sandbox/payments", "/sandbox/v2/payments"):
        assert exchange(stage.origin, request("GET", path, key=stage.key("admin"))).status == 404


def a_key_works_in_its_own_environment_only(stage: Stage) -> None:
    for live in (False, True):
        assert stage.answer(GET("/payments", live=live)).status == 200
        other = stage.key("admin", live=not live)
        demand_answer(refuses(401, "authentication_failed"), stage.answer(GET("/payments", by=other, live=live)))


def more_than_the_limit_is_refused(stage: Stage) -> None:
    own = stage.anew()
    slow = own.data(POST("/keys", {"name": "Slow", "role": "admin", "rate_limit": 2}))["key"]
    answers = [own.answer(GET("/payments", by=slow)) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    demand_answer(refuses(429, "rate_limit_exceeded", retry_after=str.isdigit), answers[-1])


def a_role_may(stage: Stage, role: str, *, everything: bool = False, create: bool = False) -> None:
    """All may look; developers create payments; admins do everything that the contract has."""
    for path in ("/payments", "/payments/{payment}"):
        assert stage.answer(GET(path, by=role)).status == 200
    asked = [
        (POST("/payments", LEAST, by=role), create),
        (POST("/webhooks", {"url": "https://shop.example.et/hooks", "events": ["*"]}, by=role, live=True), everything),
        (POST("/refunds", {"payment_id": "{completed}", "amount": 1}, by=role), create),
        (POST("/customers", {"email": "a@example.com"}, by=role), create),
    ]
    for asks, may in asked:
        answer = stage.answer(asks)
        if may:
            assert answer.status == 201, answer.body
        else:
            demand_answer(refuses(403, "permission_denied"), answer)
