"""Refunds in the dashboard: the queue comes first, two people decide, and whoever may not is told so."""

import re

import httpx2
import pytest

from tests.acceptance.conftest import SignsIn
from tests.acceptance.test_dev import eventually
from tests.support.dashboard import Visitor, errors, heading, notice, text_of
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, created, demand_books_that_balance, found, paid, refund
from zembil.accounts.model import Role

REFUNDS = "/dashboard/sandbox/refunds"


@pytest.fixture
def api(merchant: Merchant) -> httpx2.Client:
    return merchant.client()


@pytest.fixture
def colleague(signs_in: SignsIn, merchant: Merchant) -> Visitor:
    return signs_in(merchant, name="ትዕግሥት")


def listed(page: httpx2.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return re.findall(r'href="/dashboard/sandbox/refunds/(ref_\w+)"', page.text)


def asked_by_form(visitor: Visitor, payment: dict[str, str], amount: str, reason: str = "Broken") -> str:
    """Ask for a refund on the payment's page; answers the path of the refund."""
    path = f"/dashboard/sandbox/payments/{payment['id']}"
    sent = visitor.sends(path, f"{path}/refund", amount=amount, reason=reason)
    assert sent.status_code == 303, sent.text
    return sent.headers["location"]


def demand_two_people(gateway: Gateway, merchant: Merchant) -> None:
    """As every live account does."""
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE accounts SET allow_self_approval = false WHERE id = $1", account)


def test_a_refund_asked_for_by_one_person_is_approved_by_another(
    gateway: Gateway, merchant: Merchant, api: httpx2.Client, admin: Visitor, colleague: Visitor
) -> None:
    demand_two_people(gateway, merchant)
    payment = paid(api)
    path = asked_by_form(admin, payment, "40")
    assert "another admin approves it" in notice(admin.get(path))
    own = admin.get(path)
    assert "another admin has to approve it" in text_of(own)
    assert f'href="{path}/approve"' not in own.text
    tried = admin.sends(path, f"{path}/approve")
    assert (tried.status_code, notice(admin.opens(path))) == (
        303,
        "You asked for this refund yourself, so another admin has to approve it.",
    )
    assert "Almaz asked to send" in text_of(colleague.get(path))
    assert colleague.sends(f"{path}/approve").headers["location"] == path
    assert notice(colleague.get(path)) == "Approved. The money is being sent back now."
    assert eventually(lambda: "Completed" in text_of(colleague.get(path)), seconds=10)
    assert found(api, payment)["amount_refunded"] == 40
    assert "ትዕግሥት" in text_of(colleague.get(path))
    demand_books_that_balance(gateway, merchant)


def test_what_waits_comes_first_with_the_oldest_at_the_top(api: httpx2.Client, admin: Visitor) -> None:
    payment = paid(api)
    first, second = refund(api, payment, 10), refund(api, payment, 20, reason="የተሳሳተ መጠን")
    page = admin.get(REFUNDS)
    assert "2 wait for approval" in text_of(page)
    assert "የተሳሳተ መጠን" in page.text
    assert listed(page) == [first["id"], second["id"], second["id"], first["id"]]
    assert listed(admin.get(f"{REFUNDS}?status=pending_approval")) == [second["id"], first["id"]]
    assert listed(admin.get(f"{REFUNDS}?status=completed")) == []
    assert admin.get(f"{REFUNDS}?status=none").status_code == 400
    assert admin.get(f"{REFUNDS}?search={first['id']}").headers["location"] == f"{REFUNDS}/{first['id']}"


def test_a_rejection_has_a_reason_and_frees_the_amount(api: httpx2.Client, admin: Visitor) -> None:
    payment = paid(api)
    path = f"{REFUNDS}/{refund(api, payment)['id']}"
    without = admin.sends(f"{path}/reject", reason="  ")
    assert (without.status_code, errors(without)) == (400, ["Give a reason of at most 500 characters."])
    assert admin.sends(f"{path}/reject", reason="Not ours").headers["location"] == path
    shown = text_of(admin.get(path))
    assert "Rejected" in shown
    assert "Not ours" in shown
    assert "100.00 ETB can go back" in text_of(admin.get(f"/dashboard/sandbox/payments/{payment['id']}"))
    for decision in ("approve", "reject"):
        assert "decided already" in notice(admin.opens(f"{path}/{decision}"))
        admin.sends(path, f"{path}/{decision}", reason="again")
        assert "only one that awaits approval can be decided" in notice(admin.get(path))


@pytest.mark.parametrize("name", ["አበበ ቢቂላ", None])
def test_before_a_refund_is_approved_its_phone_and_wallet_are_told(
    api: httpx2.Client, admin: Visitor, name: str | None
) -> None:
    customer = {"phone": PAYS} | ({"name": name} if name else {})
    payment = created(api, customer=customer, mobile_money_provider="mpesa")
    assert eventually(lambda: found(api, payment)["status"] == "completed", seconds=10)
    path = f"{REFUNDS}/{refund(api, payment, 40)['id']}"
    whom = f"{name} , " if name else ""
    assert f"Goes to {whom}{PAYS} at M-PESA" in text_of(admin.get(path))
    to_whom = f"to {whom}" if name else ""
    assert f"go back {to_whom}to {PAYS} at M-PESA." in text_of(admin.get(f"{path}/approve"))


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.READ_ONLY])
def test_only_an_admin_decides(
    gateway: Gateway, signs_in: SignsIn, merchant: Merchant, api: httpx2.Client, role: Role
) -> None:
    asked = refund(api, paid(api))
    visitor = signs_in(merchant, role=role)
    path = f"{REFUNDS}/{asked['id']}"
    assert "An admin approves or rejects it." in text_of(visitor.get(path))
    for decision in ("approve", "reject"):
        assert visitor.get(f"{path}/{decision}").status_code == 403
        assert visitor.sends(path, f"{path}/{decision}", reason="no").status_code == 403
    assert found(api, asked)["status"] == "pending_approval"


def test_refunds_of_another_merchant_open_nowhere(gateway: Gateway, admin: Visitor) -> None:
    other = gateway.new_merchant()
    theirs = refund(other.client(), paid(other.client()))
    path = f"{REFUNDS}/{theirs['id']}"
    for page in (path, f"{path}/approve", f"{path}/reject", f"{REFUNDS}/ref_1"):
        assert admin.get(page).status_code == 404
    for decision in ("approve", "reject"):
        assert admin.sends(REFUNDS, f"{path}/{decision}", reason="no").status_code == 404
    assert found(other.client(), theirs)["status"] == "pending_approval"
    assert heading(admin.get(REFUNDS)) == "Refunds"
    other.close()
