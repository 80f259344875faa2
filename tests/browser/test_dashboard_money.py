"""The money pages of the dashboard, as two people with browsers use them, and how each of them looks."""

import asyncio
import re
from typing import Any

import httpx2
import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewPerson
from tests.browser.looks import demand_good_looks
from tests.browser.person import Person
from tests.browser.test_dashboard_sign_in import LONG_NAME, signs_in
from tests.support.dashboard import User, new_user
from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, created, decide, paid, refund
from tests.support.receiver import Receiver
from zembil.accounts.model import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG_WORD = "ABCDEFGHIJ" * 20
AMHARIC = "የመርካቶ ቡና መደብር የሰኞ ትዕዛዝ፤ ሦስት ኪሎ የይርጋጨፌ ቡና ከነመላኪያው እና ሁለት ጀበና ለወይዘሮ ትዕግሥት ወልደማርያም"


def demand_two_people(gateway: Gateway, merchant: Merchant) -> None:
    """As every live account does."""
    account = account_of(gateway, merchant.sandbox["admin_key"])
    query(gateway, "UPDATE accounts SET allow_self_approval = false WHERE id = $1", account)


@pytest.mark.parametrize("javascript", [True, False])
async def test_a_refund_asked_for_by_one_is_approved_by_another(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson, javascript: bool
) -> None:
    await asyncio.to_thread(demand_two_people, gateway, merchant)
    payment = await asyncio.to_thread(paid, merchant.client(), PAYS, 1500, description="ቡና")
    hirut = await asyncio.to_thread(new_user, gateway, merchant, role=Role.DEVELOPER, name="Hirut")
    abebe = await asyncio.to_thread(new_user, gateway, merchant, name="Abebe")
    developer, admin = await new_person(javascript=javascript), await new_person(javascript=javascript)
    await signs_in(developer, gateway, hirut)
    await developer.opens(f"{gateway.origin}/dashboard/sandbox/payments?search={payment['id']}")
    await developer.field("Amount in ETB").fill("2,000")
    await developer.field("Reason").fill("ቡናው ተሰብሯል")
    await developer.page.get_by_role("button", name="Ask for the refund").click()
    await expect(
        developer.page.get_by_text("This is too much: 1,500.00 ETB of this payment can still be refunded.")
    ).to_be_visible()
    await expect(developer.field("Reason")).to_have_value("ቡናው ተሰብሯል")
    if javascript:  # the judge is a script
        await demand_good_looks(developer, "refund-refused")
    await developer.field("Amount in ETB").fill("1,000.50")
    await developer.page.get_by_role("button", name="Ask for the refund").click()
    await expect(developer.page.get_by_text("Asked for. It goes out once another admin approves it.")).to_be_visible()
    await expect(developer.page.get_by_role("link", name="Approve")).to_have_count(0)

    await signs_in(admin, gateway, abebe)
    await admin.page.get_by_role("link", name="1 refund waits for approval").click()
    await expect(admin.page.get_by_role("heading", name="1 waits for approval")).to_be_visible()
    await admin.page.get_by_role("link", name="1,000.50 ETB").first.click()
    await expect(admin.page.get_by_text("Hirut asked to send")).to_be_visible()
    await admin.page.get_by_role("link", name="Approve").click()
    await admin.sees("Approve this refund?")
    await admin.page.get_by_role("button", name="Approve the refund").click()
    await expect(admin.page.get_by_text("The money is being sent back now.")).to_be_visible()
    for _ in range(40):
        await admin.page.reload()
        if await admin.page.get_by_text("Completed").count():
            break
        await asyncio.sleep(0.25)
    await expect(admin.page.get_by_text("Completed")).to_be_visible()


async def signed_in_admin(person: Person, gateway: Gateway, merchant: Merchant) -> User:
    user = await asyncio.to_thread(new_user, gateway, merchant, name=LONG_NAME)
    await signs_in(person, gateway, user)
    return user


async def test_empty_pages_teach_and_look_well(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    await signed_in_admin(person, gateway, merchant)
    for area, heading in (
        ("payments", "No payments yet"),
        ("refunds", "No refunds yet"),
        ("customers", "No customers yet"),
        ("balance", "Nothing is booked yet"),
    ):
        await person.opens(f"{gateway.origin}/dashboard/sandbox/{area}")
        await person.sees(heading)
        await demand_good_looks(person, f"{area}-empty")


class Stock:
    """What a shop that has been open for a while has: long names, Amharic, large amounts, every state."""

    def __init__(self, api: httpx2.Client, receiver: Receiver) -> None:
        assert api.post("/webhooks", json={"url": receiver.url, "events": ["*"]}).status_code == 201
        self.customer = api.post(
            "/customers",
            json={"name": LONG_NAME, "phone": PAYS, "email": f"{'a' * 60}@example.et", "metadata": {"ከተማ": LONG_WORD}},
        ).json()["data"]["id"]
        theirs: dict[str, Any] = {"id": self.customer, "name": LONG_NAME, "phone": PAYS}
        self.open = created(api, 0.01, description=LONG_WORD, metadata={"till": "3"})
        api.post(f"/payments/{created(api, 5)['id']}/cancel")
        self.paid = created(
            api, 999_999.99, customer=theirs, reference="አዲስ 2019/03/12", description=AMHARIC, metadata={"ስም": AMHARIC}
        )
        charged = api.post(f"/payments/{self.paid['id']}/charge", json={"mobile_money_provider": "telebirr"})
        assert charged.status_code == 200, charged.text
        self.done = paid(api, PAYS, 150)
        self.refunded = refund(api, self.done, 50, reason=AMHARIC)
        decide(api, refund(api, self.done, 20, reason=LONG_WORD), "reject", reason=AMHARIC)
        decide(api, refund(api, self.done, 30), "approve")


async def test_every_page_looks_well_with_long_names_amharic_and_large_amounts(
    gateway: Gateway, merchant: Merchant, person: Person, receiver: Receiver
) -> None:
    stock = await asyncio.to_thread(Stock, merchant.client(), receiver)
    await signed_in_admin(person, gateway, merchant)
    pages = {
        "payments": "payments",
        "payments-filtered": "payments?status=failed&date_from=2026-01-01",
        "payment": f"payments/{stock.paid['id']}",
        "payment-refunds": f"payments/{stock.done['id']}",
        "payment-open": f"payments/{stock.open['id']}",
        "payment-cancel": f"payments/{stock.open['id']}/cancel",
        "refunds": "refunds",
        "refund": f"refunds/{stock.refunded['id']}",
        "refund-approve": f"refunds/{stock.refunded['id']}/approve",
        "refund-reject": f"refunds/{stock.refunded['id']}/reject",
        "customers": "customers",
        "customer-new": "customers/new",
        "customer": f"customers/{stock.customer}",
        "customer-edit": f"customers/{stock.customer}/edit",
        "customer-erase": f"customers/{stock.customer}/erase",
        "balance": "balance",
    }
    for name, path in pages.items():
        assert await person.opens(f"{gateway.origin}/dashboard/sandbox/{path}") == 200, path
        await demand_good_looks(person, name)
    await person.opens(f"{gateway.origin}/dashboard/sandbox/payments/{stock.paid['id']}")
    await person.page.get_by_role("link", name="The payment was made").click()
    await demand_good_looks(person, "event")


@pytest.mark.parametrize("javascript", [True, False])
async def test_a_customer_is_added_and_its_metadata_changed(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson, javascript: bool
) -> None:
    person = await new_person(javascript=javascript)
    await signed_in_admin(person, gateway, merchant)
    await person.opens(f"{gateway.origin}/dashboard/sandbox/customers")
    await person.page.get_by_role("link", name="Add a customer").click()
    await person.field("Name").fill("ወ/ሮ ትዕግሥት")
    await person.field("E-mail").fill("tigist@localhost")
    await person.field("Metadata").fill("city = Addis Ababa\ntill 3")
    await person.page.get_by_role("button", name="Add the customer").click()
    await expect(person.page.get_by_text("“till 3” is no key and value")).to_be_visible()
    await expect(person.field("Metadata")).to_have_accessible_description(re.compile("write one key = value"))
    await expect(person.field("Metadata")).to_have_value("city = Addis Ababa\ntill 3")
    if javascript:  # the judge is a script
        await demand_good_looks(person, "customer-new-refused")
    await person.field("E-mail").fill("tigist@example.et")
    await person.field("Metadata").fill("city = Addis Ababa\ntill = 3")
    await person.page.get_by_role("button", name="Add the customer").click()
    await person.sees("ወ/ሮ ትዕግሥት")
    await person.page.get_by_role("link", name="Edit").click()
    await person.field("Metadata").fill("city = Hawassa\ntill = 3\nnote = one⏎two")
    await person.page.get_by_role("button", name="Save").click()
    await expect(person.page.get_by_text("Hawassa")).to_be_visible()
    (customer,) = merchant.client().get("/customers").json()["data"]["customers"]
    assert customer["metadata"] == {"city": "Hawassa", "till": "3", "note": "one\ntwo"}


async def test_a_request_is_copied_for_curl(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    body = {"amount": 0, "currency": "ETB", "description": AMHARIC, "customer": {"name": LONG_NAME}}
    headers = {"Idempotency-Key": LONG_WORD}
    answer = await asyncio.to_thread(merchant.client().post, "/payments", json=body, headers=headers)
    request = answer.headers["Zembil-Request-Id"]
    await signed_in_admin(person, gateway, merchant)
    await person.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.origin)
    for _ in range(40):
        await person.opens(f"{gateway.origin}/dashboard/sandbox/requests/{request}")
        if await person.page.get_by_role("heading", name="Send it again").count():
            break
        await asyncio.sleep(0.25)
    await person.page.get_by_role("button", name="Copy as curl").click()
    await expect(person.page.get_by_role("button", name="Copied")).to_be_visible()
    copied: str = await person.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"curl -X POST {gateway.origin}/sandbox/v1/payments \\\n")
    await demand_good_looks(person, "request")


async def test_totals_of_twelve_digits_fit(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    await asyncio.to_thread(paid, merchant.client(), PAYS, 1)
    account = await asyncio.to_thread(account_of, gateway, merchant.sandbox["admin_key"])
    more = "UPDATE ledger_balances SET credit_santim = credit_santim + $2, debit_santim = debit_santim + $2 - $3"
    much = more + " WHERE account_id = $1 AND ledger_account = 'merchant_balance'"
    await signed_in_admin(person, gateway, merchant)
    try:
        await asyncio.to_thread(query, gateway, much, account, 999_999_999_999, 999_999_999_999)
        await person.opens(f"{gateway.origin}/dashboard/sandbox/balance")
        await expect(person.page.get_by_text(re.compile(r"10,000,000,000\.99"))).to_be_visible()
        await demand_good_looks(person, "balance-large")
    finally:
        await asyncio.to_thread(query, gateway, much, account, -999_999_999_999, -999_999_999_999)


async def test_the_export_is_downloaded_and_the_link_copied(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    payment = await asyncio.to_thread(created, merchant.client(), 12, description="ቡና")
    await signed_in_admin(person, gateway, merchant)
    await person.opens(f"{gateway.origin}/dashboard/sandbox/payments")
    async with person.page.expect_download() as downloading:
        await person.page.get_by_role("link", name="Export 1 as CSV").click()
    download = await downloading.value
    text = (await download.path()).read_text("utf-8-sig")
    assert payment["id"] in text
    assert "ቡና" in text
    await person.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.origin)
    await person.opens(f"{gateway.origin}/dashboard/sandbox/payments/{payment['id']}")
    await person.page.get_by_role("button", name="Copy").click()
    await expect(person.page.get_by_role("button", name="Copied")).to_be_visible()
    assert await person.page.evaluate("navigator.clipboard.readText()") == payment["payment_link"]
