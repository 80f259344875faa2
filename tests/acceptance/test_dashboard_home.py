"""The home page: what came in day by day, and what needs somebody."""

import re
import time
from collections.abc import Iterator
from html import unescape

import pytest

from tests.support.dashboard import Visitor, new_user
from tests.support.gateway import Gateway, Merchant
from zembil.rails import wallets

HOME = "/dashboard/sandbox"


@pytest.fixture
def visitor(gateway: Gateway, merchant: Merchant) -> Iterator[Visitor]:
    visitor = Visitor(gateway.origin)
    visitor.signs_in(new_user(gateway, merchant))
    yield visitor
    visitor.close()


def figures(visitor: Visitor) -> dict[str, str]:
    pairs = re.findall(r"<div><dt>([^<]+)</dt><dd>(.*?)</dd></div>", visitor.opens(HOME).text, re.DOTALL)
    return {name: unescape(re.sub("<[^>]+>", "", value)).strip() for name, value in pairs}


def days(visitor: Visitor) -> list[list[str]]:
    """The table's rows, from today back."""
    rows = re.findall(r'<th scope="row">.*?</tr>', visitor.opens(HOME).text, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    return [[unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in row] for row in cells]


def once(visitor: Visitor, text: str) -> list[list[str]]:
    """The table's rows once they say `text`: what expires is cancelled by the worker, a moment later."""
    deadline = time.monotonic() + 15
    while text not in str(found := days(visitor)):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def pay(merchant: Merchant, amount: float, end: str = "complete") -> None:
    client = merchant.client()
    payment = client.post("/payments", json={"amount": amount, "currency": "ETB"}).json()["data"]
    if end:
        assert client.post(f"/test/payments/{payment['id']}/{end}").status_code == 200


def test_a_new_merchant_is_told_what_will_stand_there(visitor: Visitor) -> None:
    page = visitor.opens(HOME).text
    assert "No payment was made in these days" in page
    assert '<svg class="chart"' not in page


def test_volume_and_success_are_those_of_the_days_on_which_payments_were_made(
    merchant: Merchant, visitor: Visitor
) -> None:
    pay(merchant, 1000.50)
    pay(merchant, 20, "fail")
    pay(merchant, 30, "")
    assert figures(visitor) == {"Came in": "1,000.50 ETB", "Payments": "3", "Success": "50 % of those that have ended"}
    merchant.client().post("/test/clock", json={"advance_seconds": 86_400})
    pay(merchant, 9.50)
    table = once(visitor, "33 %")
    assert [row[1:] for row in table[:2]] == [
        ["9.50 ETB", "1", "1", "100 %"],
        ["1,000.50 ETB", "3", "1", "33 %"],  # the one that nobody paid has expired meanwhile
    ]
    assert figures(visitor)["Came in"] == "1,010.00 ETB"
    assert visitor.opens(HOME).text.count('<rect class="bar"') == 2


def test_the_other_environment_counts_for_itself(merchant: Merchant, visitor: Visitor) -> None:
    pay(merchant, 10)
    visitor.sets_up_second_step()
    assert "No payment was made in these days" in visitor.opens("/dashboard/live").text


def test_live_says_that_nobody_can_pay_while_no_wallet_is_connected(visitor: Visitor) -> None:
    visitor.sets_up_second_step()
    said = "No mobile-money network is connected to live yet: payments can be made here, but nobody can pay them."
    assert not wallets(livemode=True)
    assert said in visitor.opens("/dashboard/live").text
    assert "nobody can pay them" not in visitor.opens(HOME).text
