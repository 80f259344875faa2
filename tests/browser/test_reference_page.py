"""/docs in a browser: it shows every operation, tries one, and asks nobody but us."""

import json

import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewPerson
from tests.support.gateway import Gateway, Merchant
from tests.support.reference import document_of, operations

pytestmark = pytest.mark.asyncio(loop_scope="session")

# That nobody else was asked and that nothing broke the policy is checked of every person (conftest.py).


async def test_the_reference_shows_every_operation_and_every_event(gateway: Gateway, new_person: NewPerson) -> None:
    person = await new_person(width=1280, height=900)
    assert await person.opens(f"{gateway.origin}/") == 200
    await person.page.get_by_role("link", name="API reference").click()
    shown = person.page.locator(".opblock")
    document = document_of(gateway.origin)
    await expect(shown).to_have_count(len([*operations(document)]) + len(document["webhooks"]), timeout=20_000)
    assert [message for message in person.console if message.startswith("error")] == []


async def test_an_operation_can_be_tried(gateway: Gateway, merchant: Merchant, new_person: NewPerson) -> None:
    person = await new_person(width=1280, height=900)
    await person.opens(f"{gateway.origin}/docs")
    page = person.page
    await page.get_by_role("button", name="Authorize").click(timeout=20_000)
    await page.locator(".auth-container input").fill(merchant.sandbox["read_only_key"])
    await page.locator(".auth-btn-wrapper .authorize").click()
    await page.locator(".auth-btn-wrapper .btn-done").click()
    await page.locator("#operations-Money-get_balance .opblock-summary-control").click()
    await page.get_by_role("button", name="Try it out").click()
    await page.get_by_role("button", name="Execute").click()
    answer = page.locator(".live-responses-table .response-col_description pre").first
    await expect(answer).to_contain_text("unallocated", timeout=10_000)
    assert json.loads(await answer.inner_text())["status"] == "success"


async def test_a_live_key_is_not_taken(gateway: Gateway, merchant: Merchant, new_person: NewPerson) -> None:
    person = await new_person(width=1280, height=900)
    await person.opens(f"{gateway.origin}/docs")
    page = person.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.headers.get("authorization", "")))
    await page.get_by_role("button", name="Authorize").click(timeout=20_000)
    refusal = page.get_by_role("alert")
    await expect(refusal).to_have_count(0)
    field = page.locator(".auth-container input")
    await field.fill(merchant.live["admin_key"])
    await expect(refusal).to_contain_text("live key")
    await expect(field).to_have_value("")
    # Also not when it comes piece by piece, or with the scheme in front.
    await field.press_sequentially(f"Bearer {merchant.live['admin_key']}")
    assert "sk_live_" not in await field.input_value()
    await field.fill(merchant.sandbox["read_only_key"])
    await page.locator(".auth-btn-wrapper .authorize").click()
    await page.locator(".auth-btn-wrapper .btn-done").click()
    await page.locator("#operations-Money-get_balance .opblock-summary-control").click()
    await page.get_by_role("button", name="Try it out").click()
    await page.get_by_role("button", name="Execute").click()
    await expect(page.locator(".live-responses-table")).to_contain_text("unallocated", timeout=10_000)
    assert not any("live" in header for header in asked)


async def test_no_request_leaves_the_page_with_a_live_key(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    # Whatever way it came in: here a password manager put it in, and told no script.
    person = await new_person(width=1280, height=900)
    await person.opens(f"{gateway.origin}/docs")
    page = person.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.headers.get("authorization", "")))
    await page.get_by_role("button", name="Authorize").click(timeout=20_000)
    await page.evaluate('document.removeEventListener("input", refuseLiveKey)')
    await page.locator(".auth-container input").fill(merchant.live["read_only_key"])
    await page.locator(".auth-btn-wrapper .authorize").click()
    await page.locator(".auth-btn-wrapper .btn-done").click()
    await page.locator("#operations-Money-get_balance .opblock-summary-control").click()
    await page.get_by_role("button", name="Try it out").click()
    await page.get_by_role("button", name="Execute").click()
    await expect(page.get_by_role("alert")).to_contain_text("would move real money")
    assert not any("live" in header for header in asked)
