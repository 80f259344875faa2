"""Deliveries over HTTP: each is found with all its attempts, sent again by hand, recovered, or made for a test."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_deliveries import create, register, status, written
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_main_job import is_a_standard_webhook, is_signed_as_the_contract_says
from tests.acceptance.test_webhook_endpoints import deliveries, refused_fields
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Answer, Receiver
from zembil.webhooks.model import EventType

UNKNOWN = "dlv_00000000000000000000000000"
NOWHERE = "http://127.0.0.1:9/"


class Told:
    """A receiver that answers as it is told, and may change its mind."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(self.code)


def delivery(api: httpx2.Client, delivery_id: str) -> dict[str, Any]:
    answer = api.get(f"/deliveries/{delivery_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


def advance(api: httpx2.Client, seconds: int) -> None:
    assert api.post("/test/clock", json={"advance_seconds": seconds}).status_code == 200


def now(api: httpx2.Client) -> datetime:
    return instant(api.get("/test/clock").json()["data"]["now"])


def instant(shown: str) -> datetime:
    return datetime.fromisoformat(shown)


def let_fail(api: httpx2.Client, endpoint: dict[str, Any], *, count: int) -> None:
    """Wait until all that is due has failed for good."""
    for made, seconds in ((1, 60), (2, 600)):

        def wait_after(made: int = made) -> bool:
            waiting = deliveries(api, endpoint, status="pending", limit=100)
            return [(d["attempts_made"], "next_attempt_at" in d) for d in waiting] == [(made, True)] * count

        assert eventually(wait_after), deliveries(api, endpoint, status="pending")
        advance(api, seconds)
    assert eventually(lambda: deliveries(api, endpoint, status="pending") == [])


# Looking


def waits_for_its_second_attempt(shown: dict[str, Any]) -> bool:
    return shown["attempts_made"] == 1 and "next_attempt_at" in shown


def test_a_delivery_is_seen_from_its_first_attempt_to_its_last(
    merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    receiver = listen(written(b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n", b"\x00\xff no \xe1\x89"))
    endpoint = register(api, receiver.url)
    advance(api, 3600)  # so that the account's time is not ours
    payment = create(api)
    assert eventually(lambda: waits_for_its_second_attempt(deliveries(api, endpoint)[0]))
    (listed,) = deliveries(api, endpoint)
    event = receiver.received[0].event
    assert listed == {
        "id": listed["id"],
        "event_id": event["id"],
        "event_type": "payment.created",
        "webhook_id": endpoint["id"],
        "status": "pending",
        "attempts_made": 1,
        "created_at": listed["created_at"],
        "next_attempt_at": listed["next_attempt_at"],
        "livemode": False,
    }
    assert listed["id"].startswith("dlv_")
    assert timedelta(0) <= instant(listed["created_at"]) - instant(payment["created_at"]) < timedelta(seconds=1)
    made, delays = 1, {1: 60, 2: 600}
    while made < 3:
        assert eventually(lambda n=made: delivery(api, listed["id"])["attempts_made"] == n)
        assert eventually(lambda: "next_attempt_at" in delivery(api, listed["id"]))
        seen = delivery(api, listed["id"])
        last = seen["attempts"][-1]
        waits = instant(seen["next_attempt_at"]) - instant(last["started_at"])
        expected = timedelta(seconds=delays[made], milliseconds=last["latency_ms"])
        assert timedelta(milliseconds=-5) <= waits - expected < timedelta(seconds=2)
        assert 0 < (instant(seen["next_attempt_at"]) - now(api)).total_seconds() <= delays[made]
        advance(api, delays[made])
        made += 1
    assert eventually(lambda: delivery(api, listed["id"])["status"] == "failed")
    failed = delivery(api, listed["id"])
    assert failed["attempts_made"] == 3
    assert "next_attempt_at" not in failed
    assert failed["created_at"] == listed["created_at"]
    assert [attempt["number"] for attempt in failed["attempts"]] == [1, 2, 3]
    starts = [instant(attempt["started_at"]) for attempt in failed["attempts"]]
    assert starts[1] - starts[0] >= timedelta(seconds=60)
    assert starts[2] - starts[1] >= timedelta(seconds=600)
    for attempt in failed["attempts"]:
        assert attempt.keys() == {"number", "started_at", "latency_ms", "status_code", "response_body"}
        assert attempt["status_code"] == 500
        assert 0 <= attempt["latency_ms"] < 5000
        assert attempt["response_body"] == "\N{REPLACEMENT CHARACTER} no \N{REPLACEMENT CHARACTER}"
    without_attempts = {name: value for name, value in failed.items() if name != "attempts"}
    assert deliveries(api, endpoint) == [without_attempts]


def test_an_attempt_that_reached_nobody_tells_the_kind_of_error(merchant: Merchant) -> None:
    api = merchant.client()
    endpoint = register(api, NOWHERE)
    create(api)
    assert eventually(lambda: waits_for_its_second_attempt(deliveries(api, endpoint)[0]))
    (attempt,) = delivery(api, deliveries(api, endpoint)[0]["id"])["attempts"]
    assert attempt.keys() == {"number", "started_at", "latency_ms", "error"}
    assert attempt["error"] == "connection_refused"


def test_a_delivery_and_its_attempts_are_seen_as_of_one_moment(merchant: Merchant) -> None:
    api = merchant.client()
    endpoint = register(api, NOWHERE, "payment.completed")
    for _ in range(40):
        made = api.post(f"/webhooks/{endpoint['id']}/test", json={"type": "payment.created"}).json()["data"]
        attempts: list[dict[str, Any]] = []
        while not attempts or "latency_ms" not in attempts[0]:
            seen = delivery(api, made["id"])
            attempts = seen["attempts"]
            assert [attempt["number"] for attempt in attempts] == list(range(1, seen["attempts_made"] + 1))
            assert all(attempt.get("error") != "unknown" for attempt in attempts)


def test_a_list_of_deliveries_is_filtered_and_walked_while_they_end(
    merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    told = Told(500)
    endpoint = register(api, listen(told).url, "*")
    payments = [create(api) for _ in range(6)]
    assert eventually(lambda: len(deliveries(api, endpoint)) == 6)
    assert eventually(lambda: all(map(waits_for_its_second_attempt, deliveries(api, endpoint))))
    told.code = 200
    payments += [create(api) for _ in range(5)]
    assert eventually(lambda: len(deliveries(api, endpoint, status="succeeded")) == 5)
    everything = deliveries(api, endpoint, limit=100)
    assert [d["id"] for d in everything] == sorted((d["id"] for d in everything), reverse=True)
    assert len(deliveries(api, endpoint, status="pending")) == 6
    assert deliveries(api, endpoint, status="failed") == deliveries(api, endpoint, status="cancelled") == []
    assert len(deliveries(api, endpoint, type="payment.created", limit=100)) == 11
    assert deliveries(api, endpoint, type="refund.created") == []
    (mine,) = deliveries(api, endpoint, object=payments[3]["id"])
    event = api.get(f"/events/{mine['event_id']}").json()["data"]
    assert event["data"]["object"]["id"] == payments[3]["id"]
    middle = everything[5]["created_at"]
    older = deliveries(api, endpoint, date_to=middle, limit=100)
    newer = deliveries(api, endpoint, date_from=middle, limit=100)
    assert older == [d for d in everything if d["created_at"] <= middle]
    assert newer == [d for d in everything if d["created_at"] >= middle]

    walked: list[str] = []
    cursor: dict[str, str] = {}
    for page in range(4):
        answer = api.get(f"/webhooks/{endpoint['id']}/deliveries", params={"limit": 3, **cursor}).json()["data"]
        walked += [d["id"] for d in answer["deliveries"]]
        assert answer["pagination"].keys() <= {"limit", "next_cursor"}
        if page < 3:
            cursor = {"cursor": answer["pagination"]["next_cursor"]}
        if page == 1:
            advance(api, 60)  # what waits ends meanwhile, and moves to the other table
            assert eventually(lambda: deliveries(api, endpoint, status="pending") == [])
            create(api)
    assert walked == [d["id"] for d in everything]
    path = f"/webhooks/{endpoint['id']}/deliveries"
    for changed in ({"status": "failed"}, {"type": "payment.created"}, {"date_from": "2026-01-01"}):
        assert refused_fields(api.get(path, params=cursor | changed)) == {"cursor"}
    other = register(api, NOWHERE)
    assert refused_fields(api.get(f"/webhooks/{other['id']}/deliveries", params=cursor)) == {"cursor"}


@pytest.mark.parametrize(
    ("filters", "fields"),
    [
        ({"status": "done"}, {"status"}),
        ({"type": "*"}, {"type"}),
        ({"object": "evt_00000000000000000000000000"}, {"object"}),
        ({"date_from": "yesterday"}, {"date_from"}),
        ({"limit": "101"}, {"limit"}),
        ({"cursor": "x"}, {"cursor"}),
        ({"status": "x", "type": "x", "object": "x", "limit": "0"}, {"status", "type", "object", "limit"}),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(shop: Merchant, filters: dict[str, str], fields: set[str]) -> None:
    api = shop.client()
    endpoint = register(api, NOWHERE, "refund.failed")
    assert refused_fields(api.get(f"/webhooks/{endpoint['id']}/deliveries", params=filters)) == fields
    api.delete(f"/webhooks/{endpoint['id']}")


# Again, by hand


def test_a_delivery_is_made_again_with_the_same_bytes_and_three_attempts_of_its_own(
    merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    receiver = listen(status(500))
    endpoint = register(api, receiver.url)
    create(api)
    let_fail(api, endpoint, count=1)
    (failed,) = deliveries(api, endpoint)
    answer = api.post(f"/deliveries/{failed['id']}/redeliver")
    assert answer.status_code == 201
    again = answer.json()["data"]
    assert again["id"] != failed["id"]
    assert again["redelivery_of"] == failed["id"]
    assert (again["status"], again["attempts_made"]) == ("pending", 0)
    assert again["event_id"] == failed["event_id"]
    assert instant(again["created_at"]) - instant(failed["created_at"]) >= timedelta(seconds=660)
    let_fail(api, endpoint, count=1)
    ended = delivery(api, again["id"])
    assert (ended["status"], ended["attempts_made"], len(ended["attempts"])) == ("failed", 3, 3)
    assert (ended["redelivery_of"], ended["created_at"]) == (failed["id"], again["created_at"])
    assert delivery(api, failed["id"])["attempts_made"] == 3
    assert len(receiver.received) == 6
    assert len({received.body for received in receiver.received}) == 1
    assert {received.headers["webhook-id"] for received in receiver.received} == {failed["event_id"]}


def test_a_delivery_that_arrived_can_be_made_again_and_a_repeated_request_makes_one(
    merchant: Merchant, receiver: Receiver
) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    create(api)
    assert eventually(lambda: [d["status"] for d in deliveries(api, endpoint)] == ["succeeded"])
    path = f"/deliveries/{deliveries(api, endpoint)[0]['id']}/redeliver"
    key = {"Idempotency-Key": "again"}
    first, repeated = api.post(path, headers=key), api.post(path, headers=key)
    assert first.status_code == repeated.status_code == 201
    assert first.content == repeated.content
    assert len(receiver.wait_for(2)) == 2
    assert eventually(lambda: [d["status"] for d in deliveries(api, endpoint)] == ["succeeded"] * 2)
    time.sleep(0.3)
    assert len(receiver.received) == 2


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_nothing_is_made_again_for_an_endpoint_that_is_gone(merchant: Merchant, receiver: Receiver, how: str) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url)
    create(api)
    assert eventually(lambda: [d["status"] for d in deliveries(api, endpoint)] == ["succeeded"])
    (done,) = deliveries(api, endpoint)
    path = f"/webhooks/{endpoint['id']}"
    if how == "disabled":
        api.patch(path, json={"status": "disabled"})
    else:
        api.delete(path)
    refused = api.post(f"/deliveries/{done['id']}/redeliver")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "invalid_state")
    for call, body in (("recover", {"since": "2026-01-01"}), ("test", {"type": "payment.created"})):
        answer = api.post(f"{path}/{call}", json=body)
        assert answer.status_code == (409 if how == "disabled" else 404)
    assert delivery(api, done["id"])["status"] == "succeeded"
    assert len(receiver.received) == 1


# Recovery


def recovered(api: httpx2.Client, endpoint: dict[str, Any], **body: Any) -> int:
    answer = api.post(f"/webhooks/{endpoint['id']}/recover", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"].keys() == {"deliveries"}
    return answer.json()["data"]["deliveries"]


def test_what_failed_since_is_recovered_once(merchant: Merchant, listen: Callable[[Answer], Receiver]) -> None:
    api = merchant.client()
    told = Told(500)
    receiver = listen(told)
    endpoint = register(api, receiver.url)
    advance(api, 3600)
    early = [create(api)["id"] for _ in range(2)]
    let_fail(api, endpoint, count=2)
    advance(api, 3600)
    since = now(api).isoformat()
    late = [create(api)["id"] for _ in range(3)]
    let_fail(api, endpoint, count=3)
    told.code = 200
    create(api)
    assert eventually(lambda: len(deliveries(api, endpoint, status="succeeded")) == 1)
    before = len(receiver.received)

    assert recovered(api, endpoint, since=since, dry_run=True) == 3
    assert recovered(api, endpoint, since="2020-01-01", dry_run=True) == 5
    time.sleep(0.3)
    assert len(receiver.received) == before
    assert recovered(api, endpoint, since=since) == 3
    assert recovered(api, endpoint, since=since) == 0  # pending, or arrived
    again = receiver.wait_for(before + 3)[before:]
    assert sorted(received.event["data"]["object"]["id"] for received in again) == sorted(late)
    assert eventually(lambda: len(deliveries(api, endpoint, status="succeeded")) == 4)
    assert recovered(api, endpoint, since=since) == 0
    told.code = 500
    assert recovered(api, endpoint, since="2020-01-01") == 2
    let_fail(api, endpoint, count=2)
    told.code = 200
    # What was recovered in vain is one failure for each event, not two.
    assert recovered(api, endpoint, since="2020-01-01") == 2
    last = receiver.wait_for(before + 3 + 6 + 2)[-2:]
    assert sorted(received.event["data"]["object"]["id"] for received in last) == sorted(early)
    assert eventually(lambda: recovered(api, endpoint, since="2020-01-01", dry_run=True) == 0)
    assert len(deliveries(api, endpoint, status="failed", limit=100)) == 7  # nothing of the past is rewritten


@pytest.mark.parametrize("since", ["0001-01-01", "0001-01-02T00:00:00Z", "1970-01-01", "9999-12-31T23:59:59Z"])
def test_a_recovery_may_begin_at_any_time_also_after_the_clock_was_moved(merchant: Merchant, since: str) -> None:
    api = merchant.client()
    endpoint = register(api, NOWHERE, "*")
    assert api.post("/test/clock", json={"advance_seconds": 31622400}).status_code == 200
    assert recovered(api, endpoint, since=since) == 0


def test_two_who_recover_at_once_send_everything_once(merchant: Merchant, listen: Callable[[Answer], Receiver]) -> None:
    api = merchant.client()
    endpoint = register(api, listen(status(500)).url)
    for _ in range(5):
        create(api)
    let_fail(api, endpoint, count=5)

    def recover(_: int) -> int:
        return recovered(merchant.client(), endpoint, since="2020-01-01")

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(recover, range(4)))
    assert sorted(counts) == [0, 0, 0, 5]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"since"}),
        ({"since": None}, {"since"}),
        ({"since": "yesterday"}, {"since"}),
        ({"since": 1700000000}, {"since"}),
        ({"since": "2026-01-01", "dry_run": "yes"}, {"dry_run"}),
    ],
)
def test_a_recovery_says_since_when(shop: Merchant, body: dict[str, Any], fields: set[str]) -> None:
    api = shop.client()
    endpoint = register(api, NOWHERE, "refund.failed")
    assert refused_fields(api.post(f"/webhooks/{endpoint['id']}/recover", json=body)) == fields
    api.delete(f"/webhooks/{endpoint['id']}")


# Test events


def send_test(api: httpx2.Client, endpoint: dict[str, Any], event_type: str) -> dict[str, Any]:
    answer = api.post(f"/webhooks/{endpoint['id']}/test", json={"type": event_type})
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


@pytest.mark.parametrize("event_type", list(EventType))
def test_a_test_event_of_every_type_goes_to_its_endpoint_alone_and_says_that_it_is_one(
    shop: Merchant, listen: Callable[[Answer], Receiver], event_type: EventType
) -> None:
    api = shop.client()
    mine, others = listen(status(200)), listen(status(200))
    endpoint, other = register(api, mine.url, "payment.completed"), register(api, others.url, "*")
    made = send_test(api, endpoint, event_type)
    assert (made["event_type"], made["webhook_id"], made["attempts_made"]) == (event_type, endpoint["id"], 0)
    (received,) = mine.wait_for(1)
    assert received.headers["zembil-test"] == "true"
    assert is_signed_as_the_contract_says(received, endpoint["secret"])
    assert is_a_standard_webhook(received, endpoint["secret"])
    event = received.event
    assert (event["id"], event["type"], event["livemode"]) == (made["event_id"], event_type, False)
    kind, object_id = event_type.value.split(".")[0], event["data"]["object"]["id"]
    assert api.get(f"/{kind}s/{object_id}").status_code == 404
    assert api.get("/events", params={"object": object_id}).json()["data"]["events"] == []
    assert api.get(f"/events/{event['id']}").json()["data"] == event
    assert eventually(lambda: delivery(api, made["id"])["status"] == "succeeded")
    time.sleep(0.1)
    assert others.received == []
    for one in (endpoint, other):
        api.delete(f"/webhooks/{one['id']}")


def test_a_test_event_has_the_form_of_a_real_one(merchant: Merchant, receiver: Receiver) -> None:
    api = merchant.client()
    endpoint = register(api, receiver.url, "*")
    create(api, customer={"phone": "+251900000000"}, mobile_money_provider="mpesa")
    real = {received.event["type"]: received.event for received in receiver.wait_for(4)}
    for number, event_type in enumerate(("payment.created", "payment.completed")):
        send_test(api, endpoint, event_type)
        sample = receiver.wait_for(5 + number)[-1].event
        assert sample.keys() == real[event_type].keys()
        known = real[event_type]["data"]["object"].keys() - {"mobile_money_provider"}
        assert sample["data"]["object"].keys() == known
        assert sample["data"]["object"]["status"] == real[event_type]["data"]["object"]["status"]


def test_a_test_event_is_retried_as_one(merchant: Merchant, listen: Callable[[Answer], Receiver]) -> None:
    api = merchant.client()
    receiver = listen(status(500))
    endpoint = register(api, receiver.url)
    made = send_test(api, endpoint, "payment.created")
    let_fail(api, endpoint, count=1)
    api.post(f"/deliveries/{made['id']}/redeliver")
    assert [received.headers["zembil-test"] for received in receiver.wait_for(4)] == ["true"] * 4


def test_in_live_the_only_test_event_is_a_created_payment_that_is_not_live(merchant: Merchant) -> None:
    api = merchant.client(livemode=True)
    endpoint = api.post("/webhooks", json={"url": "https://shop.invalid/hooks", "events": ["*"]}).json()["data"]
    for event_type in EventType:
        answer = api.post(f"/webhooks/{endpoint['id']}/test", json={"type": event_type})
        if event_type is not EventType.PAYMENT_CREATED:
            assert refused_fields(answer) == {"type"}
            continue
        assert answer.status_code == 201
        event = api.get(f"/events/{answer.json()['data']['event_id']}").json()["data"]
        assert event["livemode"] is False
        assert event["data"]["object"]["livemode"] is False
        assert api.get(f"/payments/{event['data']['object']['id']}").status_code == 404
    assert api.get("/events").json()["data"]["events"] == []
    assert api.get("/events", params={"order": "asc"}).json()["data"]["events"] == []


@pytest.mark.parametrize("body", [{}, {"type": None}, {"type": "*"}, {"type": "payment.refunded"}, {"type": 7}])
def test_a_test_event_is_of_one_of_the_types(shop: Merchant, body: dict[str, Any]) -> None:
    api = shop.client()
    endpoint = register(api, NOWHERE, "refund.failed")
    assert refused_fields(api.post(f"/webhooks/{endpoint['id']}/test", json=body)) == {"type"}
    api.delete(f"/webhooks/{endpoint['id']}")


# Who may


@pytest.mark.parametrize("livemode", [False, True])
@pytest.mark.parametrize("role", ["admin", "developer", "read_only"])
def test_a_role_looks_at_deliveries_or_makes_them_as_its_column_says(
    gateway: Gateway, role: str, livemode: bool
) -> None:
    merchant = gateway.new_merchant()
    admin, api = merchant.client(livemode=livemode), merchant.client(livemode=livemode, role=role)
    endpoint = admin.post("/webhooks", json={"url": "https://shop.invalid/hooks", "events": ["*"]}).json()["data"]
    made = send_test(admin, endpoint, "payment.created")
    assert delivery(api, made["id"])["webhook_id"] == endpoint["id"]
    answer = api.post(f"/deliveries/{made['id']}/redeliver")
    may = role == "admin" or (role == "developer" and not livemode)
    assert answer.status_code == (201 if may else 403)
    assert may or answer.json()["error"]["code"] == "permission_denied"
    merchant.close()


def test_another_merchants_delivery_is_not_there_at_all(gateway: Gateway, merchant: Merchant) -> None:
    others = gateway.new_merchant()
    foreign = send_test(others.client(), register(others.client(), NOWHERE), "payment.created")
    api = merchant.client()
    for method, path in (("GET", "/deliveries/{id}"), ("POST", "/deliveries/{id}/redeliver")):
        unknown = api.request(method, path.replace("{id}", UNKNOWN))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "resource_not_found")
        for other in (foreign["id"], "dlv_1", foreign["event_id"]):
            assert api.request(method, path.replace("{id}", other)).content == unknown.content
    others.close()
