"""Balance, entries and charges in doubt: what a merchant sees of them, and what the operator may say."""

import json
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import decide, found, paid, pushed, refund
from zembil import ids
from zembil.ids import Prefix

PERSON = "+251911223344"  # decides on the simulated handset, so the prompt stays open


def exact(answer: Any) -> dict[str, Any]:
    """The data of an answer, its amounts as they are written."""
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content, parse_float=Decimal)["data"]


def test_an_empty_balance_is_zero(merchant: Merchant) -> None:
    balance = exact(merchant.client().get("/balance"))
    assert balance == {"currency": "ETB", "available": 0, "refunds_in_transit": 0, "unallocated": 0}
    assert b'"available":0.00' in merchant.client().get("/balance").content


def test_the_balance_follows_payments_and_refunds(merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api, amount=100.55)
    assert exact(api.get("/balance"))["available"] == Decimal("100.55")
    asked = refund(api, payment, 40.05)
    assert exact(api.get("/balance"))["available"] == Decimal("100.55")  # not before it is approved
    decide(api, asked, "approve")
    assert exact(api.get("/balance"))["available"] == Decimal("60.50")
    assert eventually(lambda: found(api, asked)["status"] == "completed", seconds=10)
    assert exact(api.get("/balance")) == {
        "currency": "ETB",
        "available": Decimal("60.50"),
        "refunds_in_transit": 0,
        "unallocated": 0,
    }
    assert exact(merchant.client(livemode=True).get("/balance"))["available"] == 0


def test_entries_say_what_was_booked_newest_first(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = paid(api, amount=100)
    asked = refund(api, payment, 30)
    decide(api, asked, "approve")
    assert eventually(lambda: found(api, asked)["status"] == "completed", seconds=10)
    first = exact(api.get("/ledger/entries", params={"limit": 2}))
    assert first["pagination"].keys() == {"limit", "next_cursor"}
    cursor = first["pagination"]["next_cursor"]
    rest = exact(api.get("/ledger/entries", params={"limit": 2, "cursor": cursor}))
    assert rest["pagination"] == {"limit": 2}
    entries = first["entries"] + rest["entries"]
    assert [(entry["kind"], entry["debit"], entry["credit"], entry["amount"]) for entry in entries] == [
        ("refund_completed", "refunds_in_transit", "rail_clearing", 30),
        ("refund_approved", "merchant_balance", "refunds_in_transit", 30),
        ("charge_succeeded", "rail_clearing", "merchant_balance", 100),
    ]
    assert all(entry["id"].startswith("ent_") and entry["currency"] == "ETB" for entry in entries)
    assert [entry["source"] for entry in entries[:2]] == [asked["id"]] * 2
    charge = query(gateway, "SELECT id FROM charges WHERE payment_id = $1", ids.parsed(Prefix.PAYMENT, payment["id"]))
    assert entries[2]["source"] == ids.shown(Prefix.CHARGE, charge[0]["id"])
    assert entries[2]["created_at"] == payment["completed_at"]


@pytest.mark.parametrize(
    ("path", "parameters", "field"),
    [
        ("/ledger/entries", {"limit": "0"}, "limit"),
        ("/ledger/entries", {"cursor": "x"}, "cursor"),
        ("/charges", {"state": "succeeded"}, "state"),
        ("/charges", {"state": "in_doubt", "cursor": "x"}, "cursor"),
    ],
)
def test_a_wrong_parameter_is_named(merchant: Merchant, path: str, parameters: dict[str, str], field: str) -> None:
    answer = merchant.client().get(path, params=parameters)
    assert answer.status_code == 400
    assert [fault["field"] for fault in answer.json()["error"]["details"]] == [field]


def test_everyone_sees_the_books_and_admins_the_doubt(merchant: Merchant) -> None:
    for role in ("admin", "developer", "read_only"):
        api = merchant.client(role=role)
        assert api.get("/balance").status_code == 200
        assert api.get("/ledger/entries").status_code == 200
        allowed = role == "admin"
        assert api.get("/charges", params={"state": "in_doubt"}).status_code == (200 if allowed else 403)
        ask = api.post("/charges/chg_00000000000000000000000000/ask")
        assert ask.status_code == (404 if allowed else 403)


def in_doubt(gateway: Gateway, merchant: Merchant, phone: str = PERSON, state: str = "in_doubt") -> dict[str, str]:
    """A payment whose charge is in doubt, and the charge."""
    api = merchant.client()
    payment = pushed(api, phone)["id"]
    account = account_of(gateway, merchant.sandbox["admin_key"])
    payment_id = ids.parsed(Prefix.PAYMENT, payment)

    def charges() -> list[Any]:
        return query(gateway, "SELECT id, prompted_at FROM charges WHERE payment_id = $1", payment_id)

    assert eventually(lambda: bool(charges()) and charges()[0]["prompted_at"] is not None, seconds=10)
    statement = "UPDATE charges SET state = $3, asked = 3, ask_at = $4 WHERE account_id = $1 AND id = $2"
    later = query(gateway, "SELECT now() + interval '1 day' AS later")[0]["later"] if state == "in_doubt" else None
    query(gateway, statement, account, charges()[0]["id"], state, later)
    return {"payment": payment, "charge": ids.shown(Prefix.CHARGE, charges()[0]["id"])}


def test_charges_in_doubt_are_listed(gateway: Gateway, merchant: Merchant) -> None:
    doubts = [in_doubt(gateway, merchant), in_doubt(gateway, merchant, state="needs_review")]
    api = merchant.client()
    page = exact(api.get("/charges", params={"state": "in_doubt", "limit": 1}))
    (newest,) = page["charges"]
    assert (newest["id"], newest["payment_id"]) == (doubts[1]["charge"], doubts[1]["payment"])
    assert (newest["state"], newest["needs_review"], newest["asks_again_at"]) == ("in_doubt", True, None)
    cursor = page["pagination"]["next_cursor"]
    rest = exact(api.get("/charges", params={"state": "in_doubt", "limit": 1, "cursor": cursor}))
    (older,) = rest["charges"]
    assert older["id"] == doubts[0]["charge"]
    assert (older["needs_review"], older["amount"], older["phone"], older["asked"]) == (False, 100, PERSON, 3)
    assert older["asks_again_at"] > older["created_at"]
    assert exact(merchant.client(livemode=True).get("/charges"))["charges"] == []


def test_an_admin_has_the_rail_asked_now(gateway: Gateway, merchant: Merchant) -> None:
    doubt = in_doubt(gateway, merchant)
    api = merchant.client()
    answer = exact(api.post(f"/charges/{doubt['charge']}/ask"))
    assert answer == {
        "id": doubt["charge"],
        "payment_id": doubt["payment"],
        "state": "awaiting_customer",  # the sandbox's network says: the prompt is on the phone
        "payment_status": "pending",
    }
    again = api.post(f"/charges/{doubt['charge']}/ask")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "invalid_state")
    assert merchant.client(livemode=True).post(f"/charges/{doubt['charge']}/ask").status_code == 404
    assert exact(api.get("/charges"))["charges"] == []


def zembil(gateway: Gateway, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "ZEMBIL_DATABASE_URL"}
    return subprocess.run(
        [sys.executable, "-m", "zembil", *arguments, "--data", str(gateway.data)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


@pytest.mark.parametrize(("finding", "status"), [("succeeded", "completed"), ("failed", "failed")])
@pytest.mark.parametrize("state", ["in_doubt", "needs_review"])
def test_the_operator_says_what_became_of_a_charge(
    gateway: Gateway, merchant: Merchant, finding: str, status: str, state: str
) -> None:
    doubt = in_doubt(gateway, merchant, state=state)
    listed = zembil(gateway, "doubt", "list")
    assert listed.returncode == 0
    (line,) = [line for line in listed.stdout.splitlines() if doubt["charge"] in line]
    assert doubt["payment"] in line
    assert state in line
    said = zembil(gateway, "doubt", "resolve", doubt["charge"], "--as", finding, "--reason", "telebirr's statement")
    assert said.returncode == 0, said.stderr
    assert f"{doubt['payment']} is {status}" in said.stdout
    assert "telebirr's statement" in said.stderr
    assert "doubt.resolved" in said.stderr
    api = merchant.client()
    assert found(api, {"id": doubt["payment"]})["status"] == status
    assert exact(api.get("/balance"))["available"] == (100 if finding == "succeeded" else 0)
    again = zembil(gateway, "doubt", "resolve", doubt["charge"], "--as", finding, "--reason", "again")
    assert again.returncode == 1
    assert "zembil doubt list" in again.stderr


@pytest.mark.parametrize(("charge", "reason"), [("chg_x", "known"), ("chg_00000000000000000000000000", " ")])
def test_a_charge_that_is_none_or_no_reason_resolves_nothing(gateway: Gateway, charge: str, reason: str) -> None:
    said = zembil(gateway, "doubt", "resolve", charge, "--as", "failed", "--reason", reason)
    assert said.returncode == 1
    assert said.stderr.startswith("zembil: ")
