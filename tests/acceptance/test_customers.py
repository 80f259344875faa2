"""Customers: who is remembered, changed and erased, and what merchants are told of it."""

import time
from typing import Any

import pytest

from tests.acceptance.test_dev import eventually
from tests.acceptance.test_late_money import prompted_late_payer, returned, set_late_money
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, advance, decide, demand_books_that_balance, demand_refusal, found, refund
from tests.support.receiver import Receiver
from zembil import ids
from zembil.accounts.secrets import hashed
from zembil.ids import Prefix

ABEBE = {"email": "abebe@example.com", "phone": "+251911223344", "name": "Abebe Bikila"}


def created(shop: Merchant, **fields: Any) -> dict[str, Any]:
    answer = shop.client().post("/customers", json={**ABEBE, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def faults(answer: Any) -> set[str]:
    assert answer.status_code == 400, answer.text
    return {fault["field"] for fault in answer.json()["error"]["details"]}


def test_a_customer_is_answered_as_it_was_given(merchant: Merchant) -> None:
    customer = created(merchant, external_id="c-1", metadata={"tier": "gold"})
    assert customer["id"].startswith("cus_")
    assert {name: customer[name] for name in ABEBE} == ABEBE
    assert customer["metadata"] == {"tier": "gold"}
    assert customer["external_id"] == "c-1"
    assert customer["livemode"] is False
    assert customer["created_at"] == customer["updated_at"]
    read = merchant.client().get(f"/customers/{customer['id']}")
    assert read.json()["data"] == customer


def test_what_was_not_given_is_null(merchant: Merchant) -> None:
    customer = merchant.client().post("/customers", json={"phone": "+251911223344"}).json()["data"]
    assert (customer["email"], customer["name"], customer["metadata"]) == (None, None, {})
    assert "external_id" not in customer


@pytest.mark.parametrize("body", [{}, {"name": "Abebe"}, {"email": None, "phone": None}])
def test_without_email_and_phone_both_are_named(merchant: Merchant, body: dict[str, Any]) -> None:
    answer = merchant.client().post("/customers", json=body)
    assert faults(answer) == {"email", "phone"}
    assert all("both" in fault["message"] for fault in answer.json()["error"]["details"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"email": "abebe"}, "email"),
        ({"phone": "0911223344"}, "phone"),
        ({"name": "x" * 201}, "name"),
        ({"external_id": ""}, "external_id"),
        ({"external_id": "x" * 256}, "external_id"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"metadata": []}, "metadata"),
    ],
)
def test_a_fault_is_named_when_creating_and_when_changing(
    merchant: Merchant, change: dict[str, Any], field: str
) -> None:
    client = merchant.client()
    assert faults(client.post("/customers", json={**ABEBE, **change})) == {field}
    customer = created(merchant)
    assert faults(client.patch(f"/customers/{customer['id']}", json=change)) == {field}
    assert client.get(f"/customers/{customer['id']}").json()["data"] == customer


def test_an_external_id_is_one_customers_own(merchant: Merchant) -> None:
    first, other = created(merchant, external_id="c-1"), created(merchant)
    client = merchant.client()
    answers = [
        client.post("/customers", json={**ABEBE, "external_id": "c-1"}),
        client.patch(f"/customers/{other['id']}", json={"external_id": "c-1"}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "duplicate_reference")
    assert client.patch(f"/customers/{first['id']}", json={"external_id": "c-1"}).status_code == 200
    assert merchant.client(livemode=True).post("/customers", json={**ABEBE, "external_id": "c-1"}).status_code == 201


def test_a_change_keeps_what_is_absent_and_clears_what_is_null(merchant: Merchant) -> None:
    customer = created(merchant, external_id="c-1", metadata={"a": "1", "b": "2"})
    client = merchant.client()
    change = {"email": None, "name": "Abebe B.", "metadata": {"a": None, "c": "3"}}
    after = client.patch(f"/customers/{customer['id']}", json=change).json()["data"]
    assert (after["email"], after["phone"], after["name"]) == (None, ABEBE["phone"], "Abebe B.")
    assert after["metadata"] == {"b": "2", "c": "3"}
    assert after["external_id"] == "c-1"
    assert after["updated_at"] > customer["updated_at"]
    cleared = client.patch(f"/customers/{customer['id']}", json={"metadata": None, "external_id": None}).json()["data"]
    assert cleared["metadata"] == {}
    assert "external_id" not in cleared


def test_email_or_phone_stays(merchant: Merchant) -> None:
    customer = created(merchant)
    client = merchant.client()
    assert faults(client.patch(f"/customers/{customer['id']}", json={"email": None, "phone": None})) == {
        "email",
        "phone",
    }
    assert client.patch(f"/customers/{customer['id']}", json={"email": None}).status_code == 200
    assert faults(client.patch(f"/customers/{customer['id']}", json={"phone": None})) == {"phone"}


def test_metadata_holds_fifty_keys_old_and_new_together(merchant: Merchant) -> None:
    customer = created(merchant, metadata={f"k{number}": "v" for number in range(50)})
    client = merchant.client()
    assert faults(client.patch(f"/customers/{customer['id']}", json={"metadata": {"one": "more"}})) == {"metadata"}
    swapped = client.patch(f"/customers/{customer['id']}", json={"metadata": {"one": "more", "k0": None}})
    assert len(swapped.json()["data"]["metadata"]) == 50


def test_a_change_is_told_with_what_was_before(merchant: Merchant, receiver: Receiver) -> None:
    client = merchant.client()
    client.post("/webhooks", json={"url": receiver.url, "events": ["customer.created", "customer.updated"]})
    customer = created(merchant, metadata={"a": "1", "b": "2"})
    change = {"email": None, "external_id": "c-1", "metadata": {"a": "9", "c": "3"}}
    after = client.patch(f"/customers/{customer['id']}", json=change).json()["data"]
    for nothing in ({}, {"email": None}, {"name": ABEBE["name"]}, {"metadata": {"gone": None}}):
        assert client.patch(f"/customers/{customer['id']}", json=nothing).json()["data"] == after
    assert client.patch(f"/customers/{customer['id']}").json()["data"] == after
    client.patch(f"/customers/{customer['id']}", json={"name": "Abebe B."})
    events = sorted((received.event for received in receiver.wait_for(3)), key=lambda event: event["sequence"])
    assert [(event["type"], event["sequence"]) for event in events] == [
        ("customer.created", 1),
        ("customer.updated", 2),
        ("customer.updated", 3),
    ]
    assert events[0]["data"]["object"] == customer
    assert "previous_attributes" not in events[0]
    assert events[1]["data"]["object"] == after
    assert events[1]["previous_attributes"] == {
        "email": ABEBE["email"],
        "external_id": None,
        "metadata": {"a": "1", "c": None},
    }
    assert events[2]["previous_attributes"] == {"name": ABEBE["name"]}


def test_a_customer_may_be_changed_more_than_32767_times(gateway: Gateway, merchant: Merchant) -> None:
    customer = created(merchant)
    customer_id = ids.parsed(Prefix.CUSTOMER, customer["id"])
    query(gateway, "UPDATE customers SET sequence = 32767 WHERE id = $1", customer_id)
    answer = merchant.client().patch(f"/customers/{customer['id']}", json={"name": "Abebe B."})
    assert (answer.status_code, answer.json()["data"]["name"]) == (200, "Abebe B.")
    told = query(gateway, "SELECT type, sequence FROM events WHERE object_id = $1 ORDER BY sequence", customer_id)
    assert [tuple(row) for row in told] == [("customer.created", 1), ("customer.updated", 32768)]


def test_a_repeated_request_creates_and_changes_once(gateway: Gateway, merchant: Merchant) -> None:
    client = merchant.client()
    key = {"Idempotency-Key": "once"}
    first = client.post("/customers", json=ABEBE, headers=key)
    again = client.post("/customers", json=ABEBE, headers=key)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    other = client.post("/customers", json={**ABEBE, "name": "Another"}, headers=key)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    path = f"/customers/{first.json()['data']['id']}"
    change = {"Idempotency-Key": "change"}
    assert client.patch(path, json={"name": "B"}, headers=change).json()["data"]["name"] == "B"
    client.patch(path, json={"name": "C"})
    assert client.patch(path, json={"name": "B"}, headers=change).json()["data"]["name"] == "B"
    assert client.get(path).json()["data"]["name"] == "C"
    account = account_of(gateway, merchant.sandbox["admin_key"])
    assert query(gateway, "SELECT count(*) AS n FROM customers WHERE account_id = $1", account)[0]["n"] == 1


def test_a_list_is_newest_first_filtered_and_goes_on(merchant: Merchant) -> None:
    client = merchant.client()
    made = [created(merchant, external_id=f"c-{number}", phone=f"+25191100000{number}")["id"] for number in range(5)]
    page = client.get("/customers", params={"limit": 2}).json()["data"]
    assert [customer["id"] for customer in page["customers"]] == made[:2:-1]
    assert page["pagination"]["total"] == 5
    seen = list(page["customers"])
    while "next_cursor" in page["pagination"]:
        created(merchant)  # what comes meanwhile hides nothing
        page = client.get("/customers", params={"limit": 2, "cursor": page["pagination"]["next_cursor"]}).json()["data"]
        seen += page["customers"]
    assert [customer["id"] for customer in seen] == made[::-1]
    found = client.get("/customers", params={"external_id": "c-3"}).json()["data"]
    assert [customer["id"] for customer in found["customers"]] == [made[3]]
    assert client.get("/customers", params={"phone": "+251911000001"}).json()["data"]["pagination"]["total"] == 1
    assert client.get("/customers", params={"email": "nobody@example.com"}).json()["data"]["customers"] == []
    assert faults(client.get("/customers", params={"email": ""})) == {"email"}
    cursor = client.get("/customers", params={"limit": 1}).json()["data"]["pagination"]["next_cursor"]
    assert faults(client.get("/customers", params={"cursor": cursor, "email": "x@example.com"})) == {"cursor"}
    assert faults(client.get("/customers", params={"cursor": cursor, "offset": 0})) == {"cursor"}


@pytest.mark.parametrize("path", ["/customers/cus_00000000000000000000000000", "/customers/cus_x", "/customers/x"])
def test_an_unknown_customer_is_not_there(merchant: Merchant, path: str) -> None:
    client = merchant.client()
    answers = [client.get(path), client.patch(path, json={"name": "x"}), client.delete(path)]
    assert {answer.status_code for answer in answers} == {404}


def test_another_accounts_customer_is_not_there(gateway: Gateway, merchant: Merchant) -> None:
    other = gateway.new_merchant()
    path = f"/customers/{created(other)['id']}"
    for client in (merchant.client(), other.client(livemode=True)):
        answers = [client.get(path), client.patch(path, json={"name": "x"}), client.delete(path)]
        assert {answer.status_code for answer in answers} == {404}
        assert client.get("/customers").json()["data"]["pagination"]["total"] == 0
    assert other.client().get(path).status_code == 200
    other.close()


def test_roles_look_write_and_erase_as_their_columns_say(merchant: Merchant) -> None:
    path = f"/customers/{created(merchant)['id']}"
    developer, reader = merchant.client(role="developer"), merchant.client(role="read_only")
    assert developer.post("/customers", json=ABEBE).status_code == 201
    assert developer.patch(path, json={"name": "x"}).status_code == 200
    assert developer.delete(path).status_code == 403
    assert reader.get(path).status_code == 200
    assert reader.get("/customers").status_code == 200
    for answer in (reader.post("/customers", json=ABEBE), reader.patch(path, json={}), reader.delete(path)):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")


def test_erasing_a_customer_keeps_the_payments_without_the_person(gateway: Gateway, merchant: Merchant) -> None:
    client = merchant.client()
    customer = created(merchant)
    bodies = [{"amount": 100, "currency": "ETB", "customer": who} for who in (ABEBE | {"id": customer["id"]}, ABEBE)]
    theirs, others = (client.post("/payments", json=body).json()["data"]["id"] for body in bodies)
    account = account_of(gateway, merchant.sandbox["admin_key"])
    answer = client.delete(f"/customers/{customer['id']}")
    assert (answer.status_code, answer.json()["data"]) == (200, {"id": customer["id"], "deleted": True})
    assert client.get(f"/customers/{customer['id']}").status_code == 404
    assert client.delete(f"/customers/{customer['id']}").status_code == 404
    assert client.get(f"/payments/{theirs}").json()["data"]["customer"] == {"email": None, "phone": None}
    assert client.get(f"/payments/{others}").json()["data"]["customer"] == {
        "email": ABEBE["email"],
        "phone": ABEBE["phone"],
    }
    rows = query(gateway, "SELECT name FROM payments WHERE account_id = $1 ORDER BY name NULLS FIRST", account)
    assert [row["name"] for row in rows] == [None, ABEBE["name"]]
    assert client.get("/payments").json()["data"]["pagination"]["total"] == 2


def test_a_customer_is_not_erased_while_money_is_on_its_way(gateway: Gateway, merchant: Merchant) -> None:
    client, customer = merchant.client(), created(merchant)
    theirs = {"id": customer["id"], "phone": PAYS}
    body = {"amount": 100, "currency": "ETB", "customer": theirs, "mobile_money_provider": "telebirr"}
    payment = client.post("/payments", json=body).json()["data"]
    assert eventually(lambda: found(client, payment)["status"] == "completed", seconds=10)
    asked = refund(client, payment, 10)
    path = f"/customers/{customer['id']}"
    demand_refusal(client.delete(path), 409, "invalid_state")
    assert client.get(f"/payments/{payment['id']}").json()["data"]["customer"]["phone"] == PAYS
    decide(client, asked, "reject")
    waiting = client.post("/payments", json={"amount": 5, "currency": "ETB", "customer": theirs}).json()["data"]
    prompt = {"mobile_money_provider": "telebirr", "phone": ABEBE["phone"]}
    assert client.post(f"/payments/{waiting['id']}/charge", json=prompt).status_code == 200
    demand_refusal(client.delete(path), 409, "invalid_state")
    assert client.post(f"/payments/{waiting['id']}/cancel").status_code == 200
    assert client.delete(path).status_code == 200
    account = account_of(gateway, merchant.sandbox["admin_key"])
    phones = query(gateway, "SELECT phone FROM charges WHERE account_id = $1", account)
    assert [row["phone"] for row in phones] == ["", ""]
    assert client.get("/payments").json()["data"]["pagination"]["total"] == 2


@pytest.mark.parametrize("policy", ["accept", "refund"])
def test_a_customer_is_not_erased_while_late_money_is_waited_for(
    gateway: Gateway, merchant: Merchant, policy: str
) -> None:
    set_late_money(gateway, merchant, policy)
    client, customer = merchant.client(), created(merchant)
    payment = prompted_late_payer(client, customer={"id": customer["id"]})
    payment_id = ids.parsed(Prefix.PAYMENT, payment["id"])
    path = f"/customers/{customer['id']}"

    def states() -> list[str]:
        return [row["state"] for row in query(gateway, "SELECT state FROM charges WHERE payment_id = $1", payment_id)]

    advance(client, 121)
    assert eventually(lambda: states() == ["failed"], seconds=10)
    demand_refusal(client.delete(path), 409, "invalid_state")
    advance(client, 180)
    assert eventually(lambda: found(client, payment)["status"] == "cancelled", seconds=10)
    demand_refusal(client.delete(path), 409, "invalid_state")
    advance(client, 60)
    if policy == "accept":
        assert eventually(lambda: found(client, payment)["status"] == "completed", seconds=10)
    else:
        assert returned(client, payment)["status"] == "completed"
    assert client.delete(path).status_code == 200
    demand_books_that_balance(gateway, merchant)


def test_a_key_that_may_no_longer_write_gets_no_replay(gateway: Gateway, merchant: Merchant) -> None:
    client = merchant.client(role="developer")
    key = {"Idempotency-Key": "once"}
    assert client.post("/customers", json=ABEBE, headers=key).status_code == 201
    role = "UPDATE api_keys SET role = 'read_only' WHERE secret_hash = $1"
    query(gateway, role, hashed(merchant.sandbox["developer_key"]))
    time.sleep(1.1)
    assert client.post("/customers", json=ABEBE, headers=key).status_code == 403
