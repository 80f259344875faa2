"""Every page that the menu leads to, with something in it, in the sandbox and live; and forms that are refused."""

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.looks import demand_good_looks
from tests.browser.person import Person
from tests.browser.test_dashboard_sign_in import LONG_NAME, sets_up_second_step, signs_in
from tests.support.dashboard import new_user
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, created, paid
from tests.support.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG_WORD = "ABCDEFGHIJ" * 20


async def signed_in(person: Person, gateway: Gateway, merchant: Merchant) -> None:
    await signs_in(person, gateway, await asyncio.to_thread(new_user, gateway, merchant, name=LONG_NAME))


def something_of_everything(merchant: Merchant, url: str) -> dict[str, Any]:
    """A payment; a customer, an endpoint and requests that were refused are there too."""
    api = merchant.client()
    assert api.post("/webhooks", json={"url": url, "events": ["*"]}).status_code == 201
    payment = paid(api, PAYS, 999_999.99, description="ቡና")
    assert api.post("/customers", json={"phone": PAYS, "name": LONG_NAME}).status_code == 201
    for body in ({"amount": -1, "reference": LONG_WORD}, {"currency": "USD"}):
        assert api.post("/payments", json=body, headers={"Idempotency-Key": LONG_WORD}).status_code == 400
    return payment


async def demand_good_looks_of_the_menu(person: Person, environment: str) -> None:
    links = await person.page.locator(f"nav a[href*='/dashboard/{environment}']").all()
    addresses = sorted({str(await link.get_attribute("href")) for link in links})
    assert len(addresses) > 10
    for address in addresses:
        await person.opens(person.page.url.partition("/dashboard")[0] + address)
        name = address.removeprefix("/dashboard/").replace("/settings", "").replace("/", "-")
        await demand_good_looks(person, f"menu-{name}")


async def test_every_page_of_the_sandboxs_menu_looks_well(
    gateway: Gateway, merchant: Merchant, person: Person, receiver: Receiver
) -> None:
    await signed_in(person, gateway, merchant)
    await person.opens(f"{gateway.origin}/dashboard/sandbox/inbox")
    await person.page.get_by_role("button", name="Send every event here").click()
    await asyncio.to_thread(something_of_everything, merchant, receiver.url)
    await demand_good_looks_of_the_menu(person, "sandbox")
    await person.opens(f"{gateway.origin}/dashboard/sandbox/requests?outcome=refused")
    await person.page.get_by_role("link", name=re.compile("POST|req_")).first.click()
    await demand_good_looks(person, "request-refused")


async def test_every_page_of_the_live_menu_looks_well(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    await signed_in(person, gateway, merchant)
    await asyncio.to_thread(created, merchant.client(livemode=True), description="ቡና", customer={"phone": PAYS})
    await sets_up_second_step(person, gateway)
    await person.opens(f"{gateway.origin}/dashboard/live")
    await demand_good_looks_of_the_menu(person, "live")


async def test_forms_that_are_refused_say_why_beside_the_field(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    await signed_in(person, gateway, merchant)
    settings = f"{gateway.origin}/dashboard/sandbox/settings"
    for path, field, text, button, complaint in (
        ("account", "A payment waits, in minutes", "1", "Save", "from 5 to 43"),
        ("team", "E-mail", "nobody", "Make an invitation", "not an e-mail"),
        ("api-keys/new", "Name", "", "Make the key", "name"),
        ("webhooks/new", "Address", "ftp://x", "Register the endpoint", "http"),
    ):
        await person.opens(f"{settings}/{path}")
        await person.page.evaluate("document.querySelectorAll('form').forEach(form => { form.noValidate = true })")
        await person.field(field).fill(text)
        await person.page.get_by_role("button", name=button, exact=True).click()
        await expect(person.page.locator(".faulty .error").first).to_contain_text(re.compile(complaint, re.IGNORECASE))
        await demand_good_looks(person, f"refused-{path.replace('/', '-')}")
