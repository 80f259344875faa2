"""The balance in the dashboard: the sum of its entries. About charges in doubt an admin may have the wallet asked."""

import re

import httpx2
import pytest

from tests.acceptance.conftest import SignsIn
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_management import in_doubt
from tests.support.dashboard import Visitor, notice, text_of
from tests.support.gateway import Gateway, Merchant
from tests.support.money import decide, found, paid, refund
from zembil.accounts.model import Role

BALANCE = "/dashboard/sandbox/balance"


@pytest.fixture
def api(merchant: Merchant) -> httpx2.Client:
    return merchant.client()


def test_the_balance_is_the_sum_of_the_entries_that_stand_below_it(api: httpx2.Client, admin: Visitor) -> None:
    assert "Nothing is booked yet" in admin.get(BALANCE).text
    payment = paid(api, amount=999_999.99)
    asked = refund(api, payment, 0.99)
    decide(api, asked, "approve")
    assert eventually(lambda: found(api, asked)["status"] == "completed", seconds=10)
    page = admin.get(BALANCE)
    shown = text_of(page)
    assert "Available 999,999.00 ETB" in shown
    for said in (
        "A payment came in + 999,999.99 ETB Wallets Available",
        "A refund was approved − 0.99 ETB Available Refunds on their way",
        "A refund arrived 0.99 ETB Refunds on their way Wallets",
    ):
        assert said in shown.replace("+999", "+ 999").replace("−0", "− 0"), shown
    for path in re.findall(r'href="([^"]+/(?:payments/pay|refunds/ref)_\w+)"', page.text):
        assert admin.get(path).status_code == 200


def test_entries_are_read_page_by_page(api: httpx2.Client, admin: Visitor) -> None:
    for amount in (1, 2, 3):
        paid(api, amount=amount)
    first = admin.get(f"{BALANCE}?limit=2")
    (older,) = re.findall(r'rel="next" href="([^"]+)"', first.text)
    amounts = [re.findall(r"(\d)\.00 ETB Wallets", text_of(p)) for p in (first, admin.get(older.replace("&amp;", "&")))]
    assert amounts == [["3", "2"], ["1"]]
    assert admin.get(f"{BALANCE}?cursor=x").status_code == 400


def test_an_admin_has_the_wallet_asked_about_a_charge_in_doubt(
    gateway: Gateway, merchant: Merchant, admin: Visitor
) -> None:
    doubt = in_doubt(gateway, merchant)
    assert "Charges in doubt" in text_of(admin.get(BALANCE))
    asked = admin.sends(BALANCE, f"{BALANCE}/charges/{doubt['charge']}/ask")
    assert asked.headers["location"] == f"/dashboard/sandbox/payments/{doubt['payment']}"
    assert notice(admin.get(asked.headers["location"])) == "The wallet has answered: the payment is pending."
    again = admin.sends(BALANCE, f"{BALANCE}/charges/{doubt['charge']}/ask")
    assert again.headers["location"] == BALANCE
    assert notice(admin.get(BALANCE)) == "This charge is not in doubt any more."
    assert "Charges in doubt" not in text_of(admin.get(BALANCE))


def test_doubt_is_shown_to_nobody_else_and_asked_about_by_nobody_else(
    gateway: Gateway, signs_in: SignsIn, merchant: Merchant, admin: Visitor
) -> None:
    doubt, other = in_doubt(gateway, merchant), gateway.new_merchant()
    stranger = signs_in(other)
    assert stranger.sends(BALANCE, f"{BALANCE}/charges/{doubt['charge']}/ask").status_code == 404
    assert doubt["payment"] not in stranger.get(BALANCE).text
    for role in (Role.DEVELOPER, Role.READ_ONLY):
        visitor = signs_in(merchant, role=role)
        assert "Available" in text_of(visitor.get(BALANCE))
        assert doubt["payment"] not in visitor.get(BALANCE).text
        assert visitor.sends(BALANCE, f"{BALANCE}/charges/{doubt['charge']}/ask").status_code == 403
    assert doubt["payment"] in admin.get(BALANCE).text
    other.close()
