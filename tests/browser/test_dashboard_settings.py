"""A newcomer's first five minutes, and every settings page, in a browser; how they look."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import NewPerson
from tests.browser.looks import demand_good_looks
from tests.browser.person import Person
from tests.browser.test_dashboard_sign_in import LONG_NAME, signs_in
from tests.support.dashboard import new_sign_in_link, new_user
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

SETTINGS = "/dashboard/sandbox/settings"


@pytest_asyncio.fixture(loop_scope="session")
async def admin(gateway: Gateway, merchant: Merchant, new_person: NewPerson) -> Person:
    """An admin at a desk, signed in."""
    person = await new_person(width=1280, height=800)
    await signs_in(person, gateway, await asyncio.to_thread(new_user, gateway, merchant, name=LONG_NAME))
    return person


@pytest_asyncio.fixture(loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    listening = Receiver()
    yield listening
    listening.close()


async def presses(person: Person, name: str) -> None:
    await person.page.get_by_role("button", name=name, exact=True).first.click()


async def follows(person: Person, name: str) -> None:
    await person.page.get_by_role("link", name=name, exact=True).first.click()


async def secret_of(person: Person) -> str:
    return (await person.page.locator(".secret pre").inner_text()).strip()


async def once_it_says(person: Person, text: str) -> None:
    """Reload until the page says it."""
    for _ in range(40):
        if await person.page.get_by_text(text).count():
            return
        await asyncio.sleep(0.25)
        await person.page.reload()
    raise AssertionError(f"the page never said {text}")


@pytest.mark.parametrize("javascript", [True, False])
async def test_the_first_five_minutes_of_a_newcomer(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson, javascript: bool
) -> None:
    person = await new_person(width=1280, height=800, javascript=javascript)
    await person.opens(await asyncio.to_thread(new_sign_in_link, gateway, merchant))
    if not javascript:
        await presses(person, "Sign in")
    await person.sees("Home")
    if javascript:
        await demand_good_looks(person, "home-empty")
        await person.page.set_viewport_size({"width": 1280, "height": 800})

    await follows(person, "API keys")
    await follows(person, "Make a key")
    await person.field("Name").fill("Web shop")
    await presses(person, "Make the key")
    key = await secret_of(person)

    await follows(person, "Inbox")
    await presses(person, "Send every event here")
    await expect(person.page.get_by_text("Every event comes here", exact=True)).to_be_visible()

    order = {"amount": 150.00, "currency": "ETB", "description": "Coffee"}
    headers = {"Authorization": f"Bearer {key}"}
    answer = await person.context.request.post(f"{gateway.origin}/sandbox/v1/payments", data=order, headers=headers)
    payment = (await answer.json())["data"]
    await person.opens(payment["payment_link"])
    await person.pays_with("0900 000 000")
    if javascript:
        await person.stands("completed")

    await person.opens(f"{gateway.origin}/dashboard/sandbox/inbox")
    await once_it_says(person, "payment.completed")
    await follows(person, "payment.completed")
    await expect(person.page.get_by_text("It is right")).to_have_count(2)
    await expect(person.page.locator("pre").filter(has_text=payment["id"]).first).to_be_visible()
    if javascript:
        await demand_good_looks(person, "inbox-request")
        await person.opens(f"{gateway.origin}/dashboard/sandbox")
        await expect(person.page.locator("svg.chart")).to_be_visible()
        await person.page.locator("main summary").click()
        await demand_good_looks(person, "home")


async def test_keys_are_made_rolled_and_revoked(gateway: Gateway, admin: Person) -> None:
    page = admin.page
    await admin.opens(f"{gateway.origin}{SETTINGS}/api-keys/new")
    await demand_good_looks(admin, "api-key-new")
    await admin.field("Name").fill(LONG_NAME)
    await presses(admin, "Make the key")
    await expect(page.locator(".secret")).to_be_visible()
    await demand_good_looks(admin, "api-key-made")
    await admin.field("The old key").select_option("3600")
    await presses(admin, "Make the new key")
    assert (await secret_of(admin)).startswith("sk_test_")
    await follows(admin, "Revoke it now")
    await demand_good_looks(admin, "api-key-revoke")
    await presses(admin, "Revoke the key")
    await admin.sees("API keys")
    await demand_good_looks(admin, "api-keys")


async def test_webhooks_are_registered_tried_and_looked_into(
    gateway: Gateway, admin: Person, receiver: Receiver
) -> None:
    page = admin.page
    receiver.answer = lambda request: request.send_response(204)
    await admin.opens(f"{gateway.origin}{SETTINGS}/webhooks")
    await demand_good_looks(admin, "webhooks-empty")
    await follows(admin, "Register an endpoint")
    await admin.field("Address").fill(receiver.url)
    await presses(admin, "Register the endpoint")
    await expect(page.get_by_text("Choose what it hears of.")).to_be_visible()
    await demand_good_looks(admin, "webhook-refused")
    await page.get_by_label("Every event, also types to come").check()
    await presses(admin, "Register the endpoint")
    await expect(page.locator(".secret")).to_be_visible()
    await page.get_by_role("combobox", name="Event").first.select_option("payment.completed")
    await presses(admin, "Send the test")
    await once_it_says(admin, "this contract counts only 200")
    await demand_good_looks(admin, "delivery")
    await follows(admin, receiver.url)
    await demand_good_looks(admin, "webhook")
    for link, name in (("New secret", "rotate"), ("Delete", "delete"), ("Send failed ones again", "recover")):
        await follows(admin, link)
        await demand_good_looks(admin, f"webhook-{name}")
        await page.go_back()
    await admin.opens(f"{gateway.origin}{SETTINGS}/webhooks")
    await page.get_by_role("combobox", name="Event").select_option("refund.completed")
    await presses(admin, "Make it happen")
    await expect(page.get_by_text(re.compile("refund.completed happened"))).to_be_visible()
    await demand_good_looks(admin, "webhooks")


async def test_the_team_the_account_and_the_audit_log(gateway: Gateway, admin: Person) -> None:
    page = admin.page
    await admin.opens(f"{gateway.origin}{SETTINGS}/team")
    await admin.field("E-mail").fill(f"{'chala' * 20}-{id(admin)}@example.et"[-64:])
    await presses(admin, "Make an invitation")
    assert "/dashboard/link/" in await secret_of(admin)
    await demand_good_looks(admin, "team")
    await page.locator("tbody a").last.click()
    await demand_good_looks(admin, "team-member")
    await follows(admin, "Remove from the team")
    await demand_good_looks(admin, "team-remove")
    await presses(admin, "Remove from the team")
    await admin.sees("Team")
    await admin.opens(f"{gateway.origin}{SETTINGS}/account")
    await admin.field("Name in Amharic").fill("መርካቶ ቡና")
    await presses(admin, "Save")
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await demand_good_looks(admin, "account")
    await admin.opens(f"{gateway.origin}{SETTINGS}/audit-log")
    await expect(page.get_by_role("cell", name="removed somebody from the team")).to_be_visible()
    await demand_good_looks(admin, "audit-log")


async def test_the_inbox_teaches_while_it_is_empty(gateway: Gateway, admin: Person) -> None:
    await admin.opens(f"{gateway.origin}/dashboard/sandbox/inbox")
    await demand_good_looks(admin, "inbox-empty")
