"""Money after the end: it completes the payment, or goes back by itself; it is never lost and never counted twice."""

import json
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import (
    PAYS,
    advance,
    balances,
    created,
    demand_books_that_balance,
    found,
    pushed,
    story,
)

PAYS_LATE = "+251900000007"


def prompted_late_payer(api: httpx2.Client, **fields: Any) -> dict[str, Any]:
    """A payment whose payer's network says `timeout` after two minutes, and brings the money after the end."""
    payment = created(api, expires_in=300, **fields)
    answer = api.post(
        f"/payments/{payment['id']}/charge", json={"phone": PAYS_LATE, "mobile_money_provider": "telebirr"}
    )
    assert answer.status_code == 200, answer.text
    return payment


def set_late_money(gateway: Gateway, merchant: Merchant, policy: str) -> None:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE accounts SET late_money = $2 WHERE id = $1", account, policy)


def status_of(api: httpx2.Client, payment: dict[str, Any]) -> str:
    return found(api, payment)["status"]


def returned(api: httpx2.Client, payment: dict[str, Any]) -> dict[str, Any]:
    """The refund by which surplus money went back."""

    def refunds() -> list[dict[str, Any]]:
        return api.get(f"/refunds?payment_id={payment['id']}").json()["data"]["refunds"]

    assert eventually(lambda: [refund["status"] for refund in refunds()] == ["completed"], seconds=10)
    return refunds()[0]


def demand_returned(gateway: Gateway, merchant: Merchant, payment: dict[str, Any]) -> None:
    api = merchant.client()
    back = returned(api, payment)
    assert (back["requested_by"], back["approved_by"], back["amount"]) == ("system", "system", payment["amount"])
    assert story(gateway, back) == ["created", "approved", "completed"]
    assert found(api, payment)["amount_refunded"] == 0  # it was never the payment's
    assert balances(gateway, merchant)["unallocated"] == 0
    demand_books_that_balance(gateway, merchant)


def test_late_money_completes_a_payment_that_had_failed(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = pushed(api, PAYS_LATE, expires_in=300)
    assert eventually(lambda: story(gateway, payment) == ["created", "pending"])
    advance(api, 121)
    assert eventually(lambda: status_of(api, payment) == "failed")
    assert found(api, payment)["failure_code"] == "timeout"
    advance(api, 180)
    advance(api, 60)
    assert eventually(lambda: status_of(api, payment) == "completed")
    completed = found(api, payment)
    assert completed.keys() >= {"completed_at", "transaction_id"}
    assert "failure_code" not in completed
    assert story(gateway, payment) == ["created", "pending", "failed", "completed"]
    demand_books_that_balance(gateway, merchant)


def test_late_money_completes_a_payment_that_had_expired(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = prompted_late_payer(api)
    advance(api, 121)
    assert eventually(lambda: open_charges(gateway, merchant) == 0)
    assert status_of(api, payment) == "pending"
    advance(api, 180)
    assert eventually(lambda: found(api, payment).get("cancellation_reason") == "expired")
    advance(api, 60)
    assert eventually(lambda: status_of(api, payment) == "completed")
    assert "cancellation_reason" not in found(api, payment)
    assert story(gateway, payment) == ["created", "pending", "cancelled", "completed"]
    listed = api.get("/payments?status=completed").json()["data"]["pagination"]["total"]
    assert (listed, api.get("/payments?status=cancelled").json()["data"]["pagination"]["total"]) == (1, 0)
    demand_books_that_balance(gateway, merchant)


def open_charges(gateway: Gateway, merchant: Merchant) -> int:
    account = account_of(gateway, merchant.sandbox["admin_key"])
    return query(gateway, "SELECT count(*) AS n FROM charges WHERE account_id = $1 AND ended_at IS NULL", account)[0][
        "n"
    ]


@pytest.mark.parametrize("why", ["the merchant cancelled it", "the account does not want it", "its reference is taken"])
def test_late_money_that_nobody_waits_for_goes_back(gateway: Gateway, merchant: Merchant, why: str) -> None:
    api = merchant.client()
    payment = prompted_late_payer(api, reference="order-7")
    advance(api, 121)
    assert eventually(lambda: open_charges(gateway, merchant) == 0)
    if why == "the merchant cancelled it":
        assert api.post(f"/payments/{payment['id']}/cancel").status_code == 200
    elif why == "the account does not want it":
        set_late_money(gateway, merchant, "refund")
    advance(api, 180)
    assert eventually(lambda: status_of(api, payment) == "cancelled")
    if why == "its reference is taken":
        created(api, reference="order-7")
    ended = found(api, payment)
    advance(api, 60)
    demand_returned(gateway, merchant, ended)
    assert found(api, payment) == ended


def test_a_payer_who_pays_twice_gets_the_second_back(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = prompted_late_payer(api)
    advance(api, 121)
    assert eventually(lambda: open_charges(gateway, merchant) == 0)
    again = api.post(f"/payments/{payment['id']}/charge", json={"phone": PAYS, "mobile_money_provider": "telebirr"})
    assert again.status_code == 200
    assert eventually(lambda: status_of(api, payment) == "completed")
    completed = found(api, payment)
    advance(api, 240)
    demand_returned(gateway, merchant, completed)
    assert found(api, payment) == completed
    assert story(gateway, payment).count("completed") == 1


def test_a_surplus_whose_return_fails_stays_on_the_books(gateway: Gateway, merchant: Merchant) -> None:
    fail_to_return_a_surplus(gateway, merchant)
    assert balances(gateway, merchant)["unallocated"] == 10_000
    demand_books_that_balance(gateway, merchant)


def fail_to_return_a_surplus(gateway: Gateway, merchant: Merchant) -> dict[str, Any]:
    """Money of a cancelled payment whose network refuses refunds; answers the refund that failed."""
    api = merchant.client()
    payment = prompted_late_payer(api)
    advance(api, 121)
    assert eventually(lambda: open_charges(gateway, merchant) == 0)
    assert api.post(f"/payments/{payment['id']}/cancel").status_code == 200
    account = account_of(gateway, merchant.sandbox["admin_key"])
    # The money comes, and the network that brought it is one that refuses refunds.
    query(
        gateway,
        "UPDATE charges SET state = 'surplus', received_santim = 10000, ask_at = NULL, phone = '+251900000009' "
        "WHERE account_id = $1",
        account,
    )
    query(
        gateway,
        """
        WITH posted AS (
            INSERT INTO ledger_entries (account_id, id, source_id, kind, debit, credit, amount_santim, created_at)
            SELECT account_id, gen_random_uuid(), id, 'charge_surplus', 'rail_clearing', 'unallocated', 10000, now()
            FROM charges WHERE account_id = $1
        )
        INSERT INTO ledger_balances (account_id, ledger_account, slot, debit_santim, credit_santim)
        VALUES ($1, 'rail_clearing', 99, 10000, 0), ($1, 'unallocated', 99, 0, 10000)
        """,
        account,
    )

    def refunds() -> list[dict[str, Any]]:
        return api.get("/refunds").json()["data"]["refunds"]

    assert eventually(lambda: [refund["status"] for refund in refunds()] == ["failed"], seconds=10)
    return refunds()[0]


def test_each_payload_is_what_the_payment_was_then(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment = pushed(api, PAYS_LATE, expires_in=300)
    assert eventually(lambda: story(gateway, payment) == ["created", "pending"])
    advance(api, 121)
    assert eventually(lambda: status_of(api, payment) == "failed")
    advance(api, 240)
    assert eventually(lambda: status_of(api, payment) == "completed")
    account = account_of(gateway, merchant.sandbox["admin_key"])
    rows = query(gateway, "SELECT payload FROM events WHERE account_id = $1 ORDER BY sequence", account)
    shown = [json.loads(row["payload"])["data"]["object"] for row in rows]
    assert [thing["status"] for thing in shown] == ["pending", "pending", "failed", "completed"]
    assert [thing.get("failure_code") for thing in shown] == [None, None, "timeout", None]
