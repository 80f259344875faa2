"""zembil doubt: charges and refunds whose end nobody knows stand in the operator's queue until somebody says it."""

import asyncio
import json
from typing import Any

import httpx2
import msgspec
import pytest

from tests.acceptance.test_charges import PERSON, press
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_late_money import fail_to_return_a_surplus, returned
from tests.acceptance.test_management import in_doubt, zembil
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import (
    PAYS,
    REFUND_FAILS,
    advance,
    balances,
    created,
    decide,
    demand_books_that_balance,
    demand_refusal,
    found,
    paid,
    pushed,
    refund,
    story,
)
from zembil import config, ids, rail_notifications
from zembil.accounts.queries import find_account
from zembil.db.clock import Clock
from zembil.db.pool import connected, connection, reading
from zembil.ids import Prefix
from zembil.management.queries import find_doubtful_charge, find_doubtful_refund
from zembil.management.verification import verify
from zembil.payments.charger import Charger
from zembil.rails.rail import Wallet
from zembil.rails.sandbox import NetworkNotification, Step
from zembil.webhooks.sender import Bell

UNREACHABLE = "+251900000008"


def listed(gateway: Gateway, thing: dict[str, Any]) -> dict[str, Any]:
    """How `zembil doubt list` shows it."""
    lists = zembil(gateway, "doubt", "list", "--json")
    assert lists.returncode == 0, lists.stderr
    (mine,) = [doubt for doubt in json.loads(lists.stdout)["doubts"] if doubt["id"] == thing["id"]]
    return mine


def why(gateway: Gateway, thing: dict[str, Any]) -> str | None:
    """Why it stands in the operator's queue; None if it does not."""

    async def find() -> str | None:
        async with connection(gateway.database_url) as conn:
            if charge_id := ids.parsed(Prefix.CHARGE, thing["id"]):
                doubt = await find_doubtful_charge(conn, charge_id)
            else:
                refund_id = ids.parsed(Prefix.REFUND, thing["id"])
                doubt = refund_id and await find_doubtful_refund(conn, refund_id)
        return doubt.why if doubt else None

    return asyncio.run(find())


def resolve(gateway: Gateway, thing: dict[str, Any], finding: str) -> dict[str, Any]:
    arguments = ("--as", finding, "--reason", "telebirr's statement", "--by", "Almaz", "--json")
    said = zembil(gateway, "doubt", "resolve", thing["id"], *arguments)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def demand_unresolvable(gateway: Gateway, thing: dict[str, Any], finding: str, said_why: str) -> None:
    before = audited(gateway, thing)
    said = zembil(gateway, "doubt", "resolve", thing["id"], "--as", finding, "--reason", "a guess")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("zembil: ")
    assert said_why in said.stderr
    assert audited(gateway, thing) == before


def audited(gateway: Gateway, thing: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """What the audit log tells of it, beside what merchants did."""
    rows = query(gateway, "SELECT * FROM audit_entries WHERE object = $1 AND actor_kind = 'operator'", thing["id"])
    return [(row["actor"], row["action"], json.loads(row["details"])) for row in rows]


def demand_books_in_order(gateway: Gateway, merchant: Merchant) -> None:
    demand_books_that_balance(gateway, merchant)
    mine = f"account {account_of(gateway, merchant.sandbox['admin_key'])}:"
    wrong = [verdict.first_wrong or "" for verdict in asyncio.run(verify(gateway.database_url))]
    assert [first for first in wrong if mine in first] == []


def approved(api: httpx2.Client, payment: dict[str, Any]) -> dict[str, Any]:
    asked = refund(api, payment)
    decide(api, asked, "approve")
    return asked


def refund_in_doubt(gateway: Gateway, merchant: Merchant, state: str) -> dict[str, Any]:
    """A refund that its rail has not told the end of."""
    api = merchant.client()
    asked = approved(api, created_and_completed(api, "+251900000005"))
    refund_id = ids.parsed(Prefix.REFUND, asked["id"])

    def states() -> list[str]:
        return [row["state"] for row in query(gateway, "SELECT state FROM refunds WHERE id = $1", refund_id)]

    assert eventually(lambda: states() == ["in_doubt"], seconds=10)
    later = query(gateway, "SELECT now() + interval '1 day' AS later")[0]["later"] if state == "in_doubt" else None
    query(gateway, "UPDATE refunds SET state = $2, ask_at = $3 WHERE id = $1", refund_id, state, later)
    return asked


def created_and_completed(api: httpx2.Client, phone: str) -> dict[str, Any]:
    payment = created(api, customer={"phone": phone})
    assert api.post(f"/test/payments/{payment['id']}/complete").status_code == 200
    return payment


def test_whoever_resolves_a_charge_is_recorded_with_what_they_said(gateway: Gateway, merchant: Merchant) -> None:
    doubt = in_doubt(gateway, merchant, state="needs_review")
    charge = {"id": doubt["charge"]}
    shown = listed(gateway, charge)
    assert (shown["state"], shown["why"], shown["payment_id"]) == (
        "needs_review",
        "the wallet never told",
        doubt["payment"],
    )
    demand_unresolvable(gateway, charge, "unsent", "--as failed")
    answer = resolve(gateway, charge, "succeeded")
    assert answer == {"id": doubt["charge"], "finding": "succeeded", "of": doubt["payment"], "status": "completed"}
    details = {"finding": "succeeded", "reason": "telebirr's statement", "status": "completed"}
    assert audited(gateway, charge) == [("Almaz", "charge.resolved", details)]
    assert why(gateway, charge) is None
    demand_unresolvable(gateway, charge, "failed", "zembil doubt list")
    demand_books_in_order(gateway, merchant)


@pytest.mark.parametrize(("finding", "status"), [("succeeded", "completed"), ("failed", "failed")])
def test_money_with_another_charges_receipt_is_not_counted_before_the_operator_says_so(
    gateway: Gateway, merchant: Merchant, finding: str, status: str
) -> None:
    api = merchant.client()
    first, second = paid(api), pushed(api, PERSON)
    assert eventually(lambda: story(gateway, second) == ["created", "pending"], seconds=10)
    charges = "SELECT id, rail_reference FROM charges WHERE payment_id = $1"
    (paid_by,), (open_charge,) = (
        query(gateway, charges, ids.parsed(Prefix.PAYMENT, payment["id"])) for payment in (first, second)
    )
    query(gateway, "UPDATE charges SET rail_reference = NULL WHERE id = $1", open_charge["id"])
    given = "UPDATE charges SET rail_reference = $2 WHERE id = $1"
    query(gateway, given, paid_by["id"], open_charge["rail_reference"])
    press(second, "approve")
    charge = {"id": ids.shown(Prefix.CHARGE, open_charge["id"])}
    assert eventually(lambda: why(gateway, charge) == "the wallet names the receipt of another charge", seconds=10)
    assert story(gateway, second) == ["created", "pending", "processing"]
    assert balances(gateway, merchant)["merchant_balance"] == 10_000
    assert resolve(gateway, charge, finding)["status"] == status
    assert balances(gateway, merchant)["merchant_balance"] == (20_000 if finding == "succeeded" else 10_000)
    demand_books_in_order(gateway, merchant)


def other_amount(gateway: Gateway, merchant: Merchant) -> tuple[dict[str, Any], dict[str, Any]]:
    """A payment of 100 birr and its charge, of which the network says that 50 came."""
    doubt = in_doubt(gateway, merchant)
    charge = {"id": doubt["charge"]}
    notify(gateway, merchant, charge, 5_000)
    return {"id": doubt["payment"]}, charge


def test_another_amount_than_was_asked_for_is_credited_to_nobody_and_returned_on_the_operators_word(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment, charge = other_amount(gateway, merchant)
    assert listed(gateway, charge)["why"] == "another amount came: 50.00 ETB"
    for finding in ("succeeded", "failed"):
        demand_unresolvable(gateway, charge, finding, "50.00 ETB came by this charge")
    in_the_sandbox = api.post(f"/test/charges/{charge['id']}/resolve", json={"outcome": "succeeded"})
    demand_refusal(in_the_sandbox, 409, "invalid_state")
    assert (found(api, payment)["status"], balances(gateway, merchant)) == ("pending", {})
    assert resolve(gateway, charge, "surplus")["status"] == "failed"  # it was pushed, so there is no other try
    back = returned(api, payment)
    assert (back["amount"], back["requested_by"]) == (50, "system")
    assert story(gateway, payment) == ["created", "pending", "failed"]
    assert found(api, payment)["amount_refunded"] == 0
    kinds = [entry["kind"] for entry in api.get("/ledger/entries").json()["data"]["entries"]]
    assert kinds == ["refund_completed", "refund_approved", "charge_surplus"]
    assert set(balances(gateway, merchant).values()) == {0}
    details = {"finding": "surplus", "reason": "telebirr's statement", "status": "failed"}
    assert audited(gateway, charge) == [("Almaz", "charge.resolved", details)]
    demand_unresolvable(gateway, charge, "surplus", "zembil doubt list")
    demand_books_in_order(gateway, merchant)


def test_the_payments_amount_that_comes_after_another_completes_the_payment(
    gateway: Gateway, merchant: Merchant
) -> None:
    payment, charge = other_amount(gateway, merchant)
    notify(gateway, merchant, charge)
    assert found(merchant.client(), payment)["status"] == "completed"
    assert balances(gateway, merchant)["merchant_balance"] == 10_000
    assert why(gateway, charge) is None
    demand_books_in_order(gateway, merchant)


def test_there_is_no_surplus_where_no_other_amount_came(gateway: Gateway, merchant: Merchant) -> None:
    charge = {"id": in_doubt(gateway, merchant)["charge"]}
    demand_unresolvable(gateway, charge, "surplus", "No other amount")
    assert resolve(gateway, charge, "failed")["status"] == "failed"
    refunded = refund_in_doubt(gateway, merchant, "needs_review")
    demand_unresolvable(gateway, refunded, "surplus", "Only a charge")


@pytest.mark.parametrize("state", ["in_doubt", "needs_review"])
@pytest.mark.parametrize(("finding", "status"), [("succeeded", "completed"), ("failed", "failed")])
def test_the_operator_says_what_became_of_a_refund(
    gateway: Gateway, merchant: Merchant, state: str, finding: str, status: str
) -> None:
    asked = refund_in_doubt(gateway, merchant, state)
    shown = listed(gateway, asked)
    assert (shown["state"], shown["amount"], shown["phone"]) == (state, "100.00", "+251900000005")
    assert shown["why"] == ("the wallet is being asked" if state == "in_doubt" else "the wallet never told")
    assert (shown["asks_again_at"] is None) == (state == "needs_review")
    assert resolve(gateway, asked, finding)["status"] == status
    assert found(merchant.client(), asked)["status"] == status
    assert story(gateway, asked) == ["created", "approved", status]
    assert balances(gateway, merchant)["merchant_balance"] == (0 if finding == "succeeded" else 10_000)
    details = {"finding": finding, "reason": "telebirr's statement", "status": status}
    assert audited(gateway, asked) == [("Almaz", "refund.resolved", details)]
    assert why(gateway, asked) is None
    demand_unresolvable(gateway, asked, "failed", "zembil doubt list")
    demand_books_in_order(gateway, merchant)


def test_a_refund_that_does_not_get_through_is_tried_less_and_less_and_then_is_the_operators(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    asked = approved(api, created_and_completed(api, UNREACHABLE))
    refund_id = ids.parsed(Prefix.REFUND, asked["id"])

    def tries() -> int:
        return query(gateway, "SELECT sent_in_vain FROM refunds WHERE id = $1", refund_id)[0]["sent_in_vain"]

    steps = (0, 5, 5, 10, 20, 20, 60, 180, 600, 2700, 5 * 3600, 18 * 3600)
    for number, seconds in enumerate(steps, start=1):
        if seconds:
            advance(api, seconds)
        assert eventually(lambda number=number: tries() >= number, seconds=10)
        assert tries() == number
        assert found(api, asked)["status"] == "approved"
    assert why(gateway, asked) == "the wallet could not be reached"
    # The network is back.
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE charges SET phone = $2 WHERE account_id = $1", account, PAYS)
    assert resolve(gateway, asked, "unsent")["status"] == "approved"
    assert eventually(lambda: found(api, asked)["status"] == "completed", seconds=10)
    assert story(gateway, asked) == ["created", "approved", "completed"]
    assert why(gateway, asked) is None
    demand_books_in_order(gateway, merchant)


def test_a_refund_that_the_network_once_had_is_not_sent_again(gateway: Gateway, merchant: Merchant) -> None:
    asked = refund_in_doubt(gateway, merchant, "needs_review")
    query(gateway, "UPDATE refunds SET taken_at = now() WHERE id = $1", ids.parsed(Prefix.REFUND, asked["id"]))
    demand_unresolvable(gateway, asked, "unsent", "could be paid twice")
    assert why(gateway, asked) is not None


# Money that went after all


def notify(gateway: Gateway, merchant: Merchant, thing: dict[str, Any], amount_santim: int = 10_000) -> None:
    """The network says of its own accord that a charge or a refund was paid."""

    async def receive() -> None:
        settings = config.Settings(database_url=gateway.database_url, secret_key=bytes(32))
        async with connected(gateway.database_url, connections_max=2) as db:
            clock = Clock()
            await clock.measure(db)
            async with reading(db) as conn:
                account = await find_account(conn, account_of_key)
            assert account is not None
            charger = Charger(db, clock, settings, Bell())
            reference = ids.parsed(Prefix(thing["id"][:4]), thing["id"])
            assert reference is not None
            body = msgspec.json.encode(NetworkNotification(reference, Step.PAID, amount_santim))
            for wallet in (Wallet.MPESA, Wallet.TELEBIRR):  # the first never had it
                await rail_notifications.receive(charger, account, wallet, body)

    account_of_key = account_of(gateway, merchant.sandbox["admin_key"])
    asyncio.run(receive())


def failed_refund(api: httpx2.Client) -> tuple[dict[str, Any], dict[str, Any]]:
    payment = paid(api, REFUND_FAILS)
    asked = approved(api, payment)
    assert eventually(lambda: found(api, asked)["status"] == "failed", seconds=10)
    return payment, asked


def test_a_refund_that_was_paid_although_the_network_had_refused_it_completes_late(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment, asked = failed_refund(api)
    for _ in range(2):
        notify(gateway, merchant, asked)
    completed = found(api, asked)
    assert completed["status"] == "completed"
    assert completed.keys().isdisjoint({"failure_code", "failure_message"})
    assert story(gateway, asked) == ["created", "approved", "failed", "completed"]
    assert found(api, payment)["amount_refunded"] == 100
    assert balances(gateway, merchant)["merchant_balance"] == 0
    kinds = [entry["kind"] for entry in api.get("/ledger/entries").json()["data"]["entries"]]
    assert kinds[:3] == ["refund_completed_late", "refund_failed", "refund_approved"]
    assert why(gateway, asked) is None
    demand_books_in_order(gateway, merchant)


def test_money_that_went_twice_stands_in_the_queue_until_it_can_be_counted_or_is_claimed_back(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    payment, asked = failed_refund(api)
    another = refund(api, payment)  # what was free again is reserved
    notify(gateway, merchant, asked)
    assert found(api, asked)["status"] == "failed"
    assert why(gateway, asked) == "the wallet says it was paid after it had failed"
    demand_unresolvable(gateway, asked, "succeeded", "went twice")
    demand_unresolvable(gateway, asked, "unsent", "was paid")
    demand_books_in_order(gateway, merchant)
    decide(api, another, "reject")
    assert resolve(gateway, asked, "succeeded")["status"] == "completed"
    assert story(gateway, asked) == ["created", "approved", "failed", "completed"]
    demand_books_in_order(gateway, merchant)


def test_money_that_was_claimed_back_leaves_the_queue(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client()
    payment, asked = failed_refund(api)
    refund(api, payment)
    notify(gateway, merchant, asked)
    assert resolve(gateway, asked, "failed")["status"] == "failed"
    assert why(gateway, asked) is None
    assert story(gateway, asked) == ["created", "approved", "failed"]
    demand_books_in_order(gateway, merchant)


# Surplus money that could not be returned


def test_a_surplus_that_was_not_returned_is_returned_again_on_the_operators_word(
    gateway: Gateway, merchant: Merchant
) -> None:
    api = merchant.client()
    failed = fail_to_return_a_surplus(gateway, merchant)
    assert why(gateway, failed) == "money that is no payment's was not returned"
    demand_unresolvable(gateway, failed, "failed", "--as unsent")
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE charges SET phone = $2 WHERE account_id = $1", account, PAYS)
    answer = resolve(gateway, failed, "unsent")
    assert answer["of"] != failed["id"]
    again = {"id": answer["of"]}
    assert audited(gateway, failed)[0][2]["replaced_by"] == again["id"]
    assert eventually(lambda: found(api, again)["status"] == "completed", seconds=10)
    assert found(api, again)["requested_by"] == "system"
    assert balances(gateway, merchant)["unallocated"] == 0
    assert (why(gateway, failed), why(gateway, again)) == (None, None)
    demand_books_in_order(gateway, merchant)


def test_a_surplus_that_the_operator_returned_another_way_is_off_the_books(
    gateway: Gateway, merchant: Merchant
) -> None:
    failed = fail_to_return_a_surplus(gateway, merchant)
    assert resolve(gateway, failed, "succeeded")["status"] == "completed"
    assert balances(gateway, merchant)["unallocated"] == 0
    assert why(gateway, failed) is None
    demand_books_in_order(gateway, merchant)


def test_without_a_name_or_a_reason_nothing_is_resolved(gateway: Gateway, merchant: Merchant) -> None:
    doubt = in_doubt(gateway, merchant, state="needs_review")
    for arguments, named in ((("--reason", "\n"), "--reason"), (("--reason", "known", "--by", " "), "--by")):
        said = zembil(gateway, "doubt", "resolve", doubt["charge"], "--as", "failed", *arguments)
        assert said.returncode == 1
        assert named in said.stderr
    said = zembil(gateway, "doubt", "resolve", "pay_x", "--as", "failed", "--reason", "known")
    assert said.returncode == 1
    assert "pay_x is no id of a charge or a refund" in said.stderr
    assert why(gateway, {"id": doubt["charge"]}) is not None
