"""Endpoints: what a merchant sees and changes of them, who may, and what becomes of what waits for one."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_deliveries import create, register, status
from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Answer, Receiver

UNKNOWN = "whk_00000000000000000000000000"
URL = "https://shop.example.et/hooks"
SETTLED_SECONDS = 0.6


def registered(api: httpx2.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/webhooks", json={"url": URL, "events": ["*"]} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def without_secret(endpoint: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in endpoint.items() if name != "secret"}


def deliveries(api: httpx2.Client, endpoint: dict[str, Any], **filters: Any) -> list[dict[str, Any]]:
    answer = api.get(f"/webhooks/{endpoint['id']}/deliveries", params=filters)
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]["deliveries"]


def refused_fields(answer: httpx2.Response) -> set[str]:
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "validation_error"
    return {fault["field"] for fault in answer.json()["error"]["details"]}


# Looking


def test_an_endpoint_is_read_and_listed_as_it_was_registered_and_never_with_its_secret(merchant: Merchant) -> None:
    api = merchant.client()
    made = [registered(api, description=f"shop {number}") for number in range(5)]
    made.reverse()
    assert api.get(f"/webhooks/{made[0]['id']}").json()["data"] == without_secret(made[0])
    answer = api.get("/webhooks")
    assert answer.json()["data"] == {
        "webhooks": [without_secret(endpoint) for endpoint in made],
        "pagination": {"limit": 10, "offset": 0, "total": 5},
    }
    assert "whsec_" not in answer.text
    second = api.get("/webhooks", params={"limit": 2, "offset": 2}).json()["data"]
    assert [endpoint["id"] for endpoint in second["webhooks"]] == [endpoint["id"] for endpoint in made[2:4]]
    assert second["pagination"] | {"next_cursor": "…"} == {"limit": 2, "offset": 2, "total": 5, "next_cursor": "…"}
    third = api.get("/webhooks", params={"limit": 2, "cursor": second["pagination"]["next_cursor"]}).json()["data"]
    assert [endpoint["id"] for endpoint in third["webhooks"]] == [made[4]["id"]]
    cursor = second["pagination"]["next_cursor"]
    assert refused_fields(api.get("/webhooks", params={"cursor": cursor, "offset": 1})) == {"cursor"}


# Changing


def test_a_change_keeps_what_it_does_not_name_and_null_takes_only_a_description_away(merchant: Merchant) -> None:
    api = merchant.client()
    endpoint = without_secret(registered(api, description="the shop"))
    path = f"/webhooks/{endpoint['id']}"

    def changed(**fields: Any) -> dict[str, Any]:
        answer = api.patch(path, json=fields)
        assert answer.status_code == 200, answer.text
        assert api.get(path).json()["data"] == answer.json()["data"]
        return answer.json()["data"]

    assert changed() == endpoint
    assert api.patch(path).json()["data"] == endpoint
    assert changed(url=None, events=None, status=None) == endpoint
    events = ["payment.completed", "refund.completed", "payment.completed"]
    changes: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"url": f"{URL}/other"}, {"url": f"{URL}/other"}),
        ({"events": events}, {"events": events[:2]}),
        ({"status": "disabled"}, {"status": "disabled"}),
        ({"description": "the other shop"}, {"description": "the other shop"}),
        ({"description": ""}, {"description": ""}),
        ({"description": None}, {"description": None}),
        ({"status": "enabled", "description": "x"}, {"status": "enabled", "description": "x"}),
    ]
    for sent, expected in changes:
        endpoint |= expected
        assert changed(**sent) == endpoint


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"url": "ftp://shop.example.et"}, {"url"}),
        ({"url": 7}, {"url"}),
        ({"events": []}, {"events"}),
        ({"events": "payment.created"}, {"events"}),
        ({"events": ["payment.created", "*"]}, {"events"}),
        ({"status": "paused"}, {"status"}),
        ({"status": True}, {"status"}),
        ({"description": "x" * 501}, {"description"}),
        ({"url": "nowhere", "events": ["no"], "status": "no"}, {"url", "events", "status"}),
    ],
)
def test_a_change_is_checked_like_a_registration_and_a_refused_one_changes_nothing(
    shop: Merchant, body: dict[str, Any], fields: set[str]
) -> None:
    api = shop.client()
    endpoint = registered(api)
    assert refused_fields(api.patch(f"/webhooks/{endpoint['id']}", json=body)) == fields
    assert api.get(f"/webhooks/{endpoint['id']}").json()["data"] == without_secret(endpoint)
    api.delete(f"/webhooks/{endpoint['id']}")


def test_a_live_endpoint_stays_on_https(merchant: Merchant) -> None:
    api = merchant.client(livemode=True)
    endpoint = registered(api)
    assert refused_fields(api.patch(f"/webhooks/{endpoint['id']}", json={"url": "http://shop.example.et/"})) == {"url"}


def test_events_go_to_the_new_address_and_of_the_new_types_after_a_change(
    merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    old, new = listen(status(200)), listen(status(200))
    endpoint = register(api, old.url, "payment.completed")
    create(api)
    api.patch(f"/webhooks/{endpoint['id']}", json={"url": new.url, "events": ["payment.created"]})
    payment = create(api)
    assert new.wait_for(1)[0].event["data"]["object"]["id"] == payment["id"]
    assert old.received == []


# Disabled and deleted


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_nothing_is_sent_to_an_endpoint_that_is_gone_and_what_waited_is_cancelled(
    merchant: Merchant, listen: Callable[[Answer], Receiver], how: str
) -> None:
    api = merchant.client()
    gone, other = listen(status(500)), listen(status(500))
    endpoint, kept = register(api, gone.url), register(api, other.url)
    create(api)
    assert eventually(lambda: [d["attempts_made"] for d in deliveries(api, endpoint)] == [1])
    assert eventually(lambda: "next_attempt_at" in deliveries(api, endpoint)[0])
    (waiting,) = deliveries(api, endpoint)
    path = f"/webhooks/{endpoint['id']}"
    done = api.patch(path, json={"status": "disabled"}) if how == "disabled" else api.delete(path)
    assert done.status_code == 200
    if how == "deleted":
        assert done.json()["data"] == {"id": endpoint["id"], "deleted": True}
        assert api.delete(path).status_code == api.get(path).status_code == 404
        assert api.get("/webhooks").json()["data"]["pagination"]["total"] == 1
    cancelled = api.get(f"/deliveries/{waiting['id']}").json()["data"]
    assert (cancelled["status"], cancelled["attempts_made"]) == ("cancelled", 1)
    assert "next_attempt_at" not in cancelled
    create(api)
    api.post("/test/clock", json={"advance_seconds": 86_400})
    other.wait_for(3)
    time.sleep(SETTLED_SECONDS)
    assert len(gone.received) == 1
    if how == "disabled":
        assert [delivery["status"] for delivery in deliveries(api, endpoint)] == ["cancelled"]
        assert api.patch(path, json={"status": "enabled"}).json()["data"]["status"] == "enabled"
        create(api)
        gone.wait_for(2)
    assert len(deliveries(api, kept)) >= 2


@pytest.mark.parametrize("how", ["disabled", "deleted"])
@pytest.mark.parametrize(("code", "ends"), [(200, "succeeded"), (500, "cancelled")])
def test_an_attempt_that_is_under_way_ends_as_it_ends(
    merchant: Merchant, listen: Callable[[Answer], Receiver], how: str, code: int, ends: str
) -> None:
    release = threading.Event()

    def hold(request: BaseHTTPRequestHandler) -> None:
        release.wait(9)
        request.send_response(code)

    api = merchant.client()
    receiver = listen(hold)
    endpoint = register(api, receiver.url)
    create(api)
    receiver.wait_for(1)
    (delivery,) = deliveries(api, endpoint)
    assert delivery["status"] == "pending"
    path = f"/webhooks/{endpoint['id']}"
    done = api.patch(path, json={"status": "disabled"}) if how == "disabled" else api.delete(path)
    assert done.status_code == 200
    assert api.get(f"/deliveries/{delivery['id']}").json()["data"]["status"] == "pending"
    release.set()
    assert eventually(lambda: api.get(f"/deliveries/{delivery['id']}").json()["data"]["status"] == ends)
    attempts = api.get(f"/deliveries/{delivery['id']}").json()["data"]["attempts"]
    assert [attempt.get("status_code") for attempt in attempts] == [code]
    assert len(receiver.received) == 1


# Failing


def test_an_endpoint_is_flagged_while_its_deliveries_fail_for_good_and_this_is_logged_once(
    gateway: Gateway, merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    answers = [500]
    receiver = listen(lambda request: request.send_response(answers[0]))
    api = merchant.client()
    endpoint = register(api, receiver.url)

    def shown() -> dict[str, Any]:
        return api.get(f"/webhooks/{endpoint['id']}").json()["data"]

    since = ""
    for failed in (1, 2):
        create(api)
        for made, seconds in ((1, 60), (2, 600), (3, 0)):
            assert eventually(lambda n=3 * failed - 3 + made: len(receiver.received) == n)
            if seconds:
                assert "failing_since" not in shown() or failed == 2
                assert eventually(lambda: "next_attempt_at" in deliveries(api, endpoint)[0])
                api.post("/test/clock", json={"advance_seconds": seconds})
        assert eventually(lambda n=failed: len(deliveries(api, endpoint, status="failed")) == n)
        if failed == 1:
            since = shown()["failing_since"]
            now = api.get("/test/clock").json()["data"]["now"]
            assert since[:16] <= now[:16]  # in the account's time, which is ahead by now
            assert since > endpoint["created_at"]
    assert shown()["failing_since"] == since
    assert shown()["status"] == "enabled"  # never disabled silently
    lines = [line for line in gateway.log.read_text(errors="replace").splitlines() if endpoint["id"] in line]
    assert sum("endpoint.failing" in line for line in lines) == 1
    answers[0] = 200
    create(api)
    assert eventually(lambda: "failing_since" not in shown())


# Secrets and repeated requests


def test_a_registration_is_repeated_with_its_key_and_the_stored_answer_is_sealed(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    body, key = {"url": URL, "events": ["*"]}, {"Idempotency-Key": "register-1"}
    first, again = (api.post("/webhooks", json=body, headers=key) for _ in range(2))
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    assert again.headers["idempotent-replayed"] == "true"
    assert api.get("/webhooks").json()["data"]["pagination"]["total"] == 1
    (row,) = query(
        gateway,
        "SELECT answer, is_sealed FROM idempotency_keys WHERE account_id = $1",
        account_of(gateway, merchant.sandbox["admin_key"]),
    )
    assert row["is_sealed"]
    assert b"whsec_" not in row["answer"]
    denied = merchant.client(role="read_only").post("/webhooks", json=body, headers=key)
    assert denied.status_code == 403
    assert "whsec_" not in denied.text


# Who may


CALLS: list[tuple[str, str, Any, str]] = [
    ("GET", "/webhooks", None, "view"),
    ("GET", "/webhooks/{id}", None, "view"),
    ("GET", "/webhooks/{id}/deliveries", None, "view"),
    ("GET", "/events", None, "view"),
    ("POST", "/webhooks", {"url": URL, "events": ["*"]}, "manage"),
    ("PATCH", "/webhooks/{id}", {"description": "x"}, "manage"),
    ("POST", "/webhooks/{id}/rotate-secret", {"overlap_seconds": 0}, "manage"),
    ("POST", "/webhooks/{id}/recover", {"since": "2026-01-01"}, "manage"),
    ("POST", "/webhooks/{id}/test", {"type": "payment.created"}, "manage"),
    ("DELETE", "/webhooks/{id}", None, "manage"),
]
MAY_MANAGE = {("admin", False), ("admin", True), ("developer", False)}


@pytest.mark.parametrize("livemode", [False, True])
@pytest.mark.parametrize("role", ["admin", "developer", "read_only"])
def test_a_role_looks_or_manages_as_its_column_says(shop: Merchant, role: str, livemode: bool) -> None:
    admin, api = shop.client(livemode=livemode), shop.client(livemode=livemode, role=role)
    endpoint = registered(admin)
    for method, path, body, needs in CALLS:
        answer = api.request(method, path.replace("{id}", endpoint["id"]), json=body)
        may = needs == "view" or (role, livemode) in MAY_MANAGE
        assert answer.is_success == may, (method, path, answer.text)
        if not may:
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")
    for left in admin.get("/webhooks").json()["data"]["webhooks"]:
        admin.delete(f"/webhooks/{left['id']}")


def test_another_merchants_endpoint_is_not_there_at_all(gateway: Gateway, merchant: Merchant) -> None:
    others = gateway.new_merchant()
    foreign = [registered(others.client())["id"], registered(merchant.client(livemode=True))["id"]]
    api = merchant.client()
    for method, path, body, _ in CALLS:
        if "{id}" not in path:
            continue
        unknown = api.request(method, path.replace("{id}", UNKNOWN), json=body)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "resource_not_found"), path
        for endpoint_id in (*foreign, "whk_1", "pay_00000000000000000000000000"):
            assert api.request(method, path.replace("{id}", endpoint_id), json=body).content == unknown.content, path
    assert api.get("/webhooks").json()["data"]["pagination"]["total"] == 0
    assert others.client().get(f"/webhooks/{foreign[0]}").status_code == 200
    others.close()
