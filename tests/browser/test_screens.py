"""Every state of the page, in each language, with and without JavaScript: it fits every screen, and axe finds nothing.

ZEMBIL_SCREENSHOTS=DIR keeps a picture of each, for people to look at.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, Route, expect

from tests.browser import stored
from tests.browser.application import without_a_database
from tests.browser.conftest import NewPerson
from tests.browser.person import Person
from tests.support.gateway import Gateway, Merchant

pytestmark = pytest.mark.asyncio(loop_scope="session")

SMALL, USUAL, LARGE = (320, 640), (360, 740), (1280, 800)

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

# The card hides what is too wide for it, so it is asked too.
NOTHING_SIDEWAYS = """
    [document.documentElement, document.querySelector("main")].every(part => part?.scrollWidth <= part?.clientWidth)
"""

LONG_NAME = "የአዲስ አበባ ቡና አምራቾች እና ላኪዎች ኅብረት ሥራ ማኅበራት ዩኒየን የተወሰነ፣ Addis Ababa Coffee Growers' Cooperative Union"
LONG_DESCRIPTION = (
    "ሁለት ኪሎ ቡና፣ አንድ ጀበና እና ስድስት ሲኒ፤ ለመርካቶ ሱቃችን የሚደርስ። " * 4
    + "Order 2024-000178/B: https://shop.example.et/orders/an-address-without-a-single-place-to-break-it/0001780002"
)
COFFEE: dict[str, Any] = {"amount": 1500, "currency": "ETB", "description": "Two bags of coffee, 1 kg each"}
BACK: dict[str, Any] = {"callback_url": "https://shop.example.et/thanks?order=7"}


class Scene:
    """A person in front of a payment of a merchant."""

    def __init__(self, gateway: Gateway, merchant: Merchant, person: Person, language: str = "en") -> None:
        self.gateway, self.merchant, self.person = gateway, merchant, person
        self.query = f"?lang={language}"
        self.link = ""

    async def opens(self, link: str | None = None) -> None:
        await self.person.opens((link or self.link) + self.query)

    async def payment(self, *, livemode: bool = False, **body: Any) -> None:
        created = self.merchant.client(livemode=livemode).post("/payments", json=COFFEE | body)
        assert created.status_code == 201, created.text
        self.link = created.json()["data"]["payment_link"]
        await self.opens()

    async def of_merchant(self, name: str) -> None:
        """Another merchant, with this name; its client is closed with the one that the scene began with."""
        other = await asyncio.to_thread(self.gateway.new_merchant, name)
        self.merchant = replace(self.merchant, sandbox=other.sandbox, live=other.live)

    async def written(self, statement: LiteralString) -> None:
        """Put the payment where no button of the sandbox leads. $1 and $2 are its account and id."""
        await stored.rows(self.gateway, self.link, statement)
        await self.opens()


async def choose(scene: Scene) -> None:
    await scene.payment(**BACK)


async def choose_with_known_phone(scene: Scene) -> None:
    await scene.payment(customer={"phone": "+251711223344"})


async def choose_without_description(scene: Scene) -> None:
    await scene.payment(description=None, amount=0.01)


async def choose_with_long_texts(scene: Scene) -> None:
    await scene.of_merchant(LONG_NAME)
    await scene.payment(amount=999999.99, description=LONG_DESCRIPTION, expires_in=300, **BACK)


async def choose_with_all_of_a_long_text(scene: Scene) -> None:
    await scene.of_merchant("Coffee" * 33)
    await scene.payment(amount=999999.99, description=LONG_DESCRIPTION + "\n\n" + "ቡና" * 60)
    await scene.person.page.locator(".about summary").click()


async def choose_in_amharic(scene: Scene) -> None:
    await scene.of_merchant("የአበበ ሱቅ")
    await scene.payment(description="ሁለት ኪሎ ቡና እና አንድ ጀበና")


async def choose_with_code(scene: Scene) -> None:
    await scene.payment()
    await scene.person.page.locator(".qr summary").click()


async def choose_after_a_wrong_phone(scene: Scene) -> None:
    await scene.payment()
    await scene.person.pays_with("0911 22 33")


async def choose_after_a_refusal(scene: Scene) -> None:
    await scene.payment()
    await scene.person.pays_with("0900 000 001")


async def choose_too_often(scene: Scene) -> None:
    await scene.payment()
    for _ in range(3):
        await scene.person.pays_with()
        await scene.person.answers("Decline")
        await scene.person.stands("choose")
    await scene.person.pays_with()


async def choose_where_no_wallet_is_connected(scene: Scene) -> None:
    await scene.payment(livemode=True)


async def check_phone_with_handset(scene: Scene) -> None:
    await scene.payment(**BACK)
    await scene.person.pays_with()


async def check_phone_with_long_texts(scene: Scene) -> None:
    await scene.of_merchant(LONG_NAME)
    await scene.payment(amount=999999.99, description=LONG_DESCRIPTION, **BACK)
    await scene.person.pays_with()


async def check_phone(scene: Scene) -> None:
    await scene.payment()
    await scene.person.pays_with("0900 000 004")


async def check_phone_with_another_request(scene: Scene) -> None:
    await check_phone(scene)
    await scene.written(
        "UPDATE charges SET prompted_at = prompted_at - interval '1 minute' WHERE account_id = $1 AND payment_id = $2"
    )


async def check_phone_not_taken_back(scene: Scene) -> None:
    await check_phone_with_handset(scene)
    await scene.written(
        "UPDATE charges SET prompted_at = prompted_at - interval '1 minute', confirmed_at = now(), ask_at = NULL"
        " WHERE account_id = $1 AND payment_id = $2"
    )
    await scene.person.page.locator("form[action*='/resend'] button").click()
    await expect(scene.person.page.get_by_role("alert")).to_be_visible()


async def in_progress(scene: Scene) -> None:
    await check_phone_with_handset(scene)
    await scene.written(
        "UPDATE charges SET state = 'in_progress', confirmed_at = now(), ask_at = NULL"
        " WHERE account_id = $1 AND payment_id = $2"
    )


async def in_doubt(scene: Scene) -> None:
    await check_phone_with_handset(scene)
    await scene.written(
        "UPDATE charges SET state = 'in_doubt', ask_at = NULL WHERE account_id = $1 AND payment_id = $2"
    )


async def completed(scene: Scene) -> None:
    await check_phone_with_handset(scene)
    await scene.person.answers("Approve")
    await scene.person.stands("completed")


async def completed_with_long_texts(scene: Scene) -> None:
    await check_phone_with_long_texts(scene)
    await scene.person.answers("Approve")
    await scene.person.stands("completed")


async def completed_and_returned(scene: Scene) -> None:
    await completed(scene)
    await scene.written(
        "UPDATE payments SET reserved_santim = 50000, refunded_santim = 50000 WHERE account_id = $1 AND id = $2"
    )


async def receipt(scene: Scene) -> None:
    await completed_and_returned(scene)
    await scene.person.page.locator("a[href^='/r/']").click()
    await expect(scene.person.page.locator(".more-facts")).to_be_visible()


async def receipt_with_long_texts(scene: Scene) -> None:
    await completed_with_long_texts(scene)
    await scene.person.page.locator("a[href^='/r/']").click()
    await expect(scene.person.page.locator(".more-facts")).to_be_visible()


async def late(scene: Scene) -> None:
    await check_phone_with_handset(scene)
    await scene.written(
        "WITH ended AS (UPDATE payments SET status = 'cancelled', cancellation_reason = 'expired', ended_at = now(),"
        " due_at = NULL, open_charge_id = NULL WHERE account_id = $1 AND id = $2) UPDATE charges SET state = 'surplus',"
        " received_santim = 150000, ended_at = now(), ask_at = NULL WHERE account_id = $1 AND payment_id = $2"
    )


async def failed(scene: Scene) -> None:
    await scene.payment(**BACK)
    for _ in range(5):
        await scene.person.pays_with("0900 000 001")
    await scene.person.stands("failed")


async def cancelled(scene: Scene) -> None:
    await scene.payment(**BACK)
    await scene.person.page.locator("form.cancel button").first.click()
    await scene.person.stands("cancelled")


async def cancelled_by_the_merchant(scene: Scene) -> None:
    await scene.payment()
    await scene.written(
        "UPDATE payments SET status = 'cancelled', cancellation_reason = 'merchant', ended_at = now(), due_at = NULL"
        " WHERE account_id = $1 AND id = $2"
    )


async def expired(scene: Scene) -> None:
    await scene.payment(**BACK)
    scene.merchant.client().post("/test/clock", json={"advance_seconds": 3600})
    await scene.opens()


async def not_found(scene: Scene) -> None:
    await scene.opens(f"{scene.gateway.origin}/p/{'A' * 52}")


async def not_sent_from_this_page(scene: Scene) -> None:
    await scene.payment()
    await scene.person.page.evaluate("document.querySelectorAll('[name=form_token]').forEach(field => field.remove())")
    await scene.person.pays_with()
    await expect(scene.person.page.locator("h1")).to_be_visible()


async def unavailable(scene: Scene) -> None:
    await scene.payment()
    async with without_a_database() as client:
        answer = await client.get(scene.link + scene.query)
    assert answer.status_code == 503

    async def fulfil(route: Route) -> None:
        await route.fulfill(status=503, body=answer.text, headers=_as_it_is(answer.headers))

    await scene.person.page.route(f"{scene.link}**", fulfil)
    await scene.opens()


async def home(scene: Scene) -> None:
    await scene.opens(f"{scene.gateway.origin}/")


STATES = {
    reach.__name__: reach
    for reach in (
        choose,
        choose_with_known_phone,
        choose_without_description,
        choose_with_long_texts,
        choose_with_all_of_a_long_text,
        choose_in_amharic,
        choose_with_code,
        choose_after_a_wrong_phone,
        choose_after_a_refusal,
        choose_too_often,
        choose_where_no_wallet_is_connected,
        check_phone_with_handset,
        check_phone_with_long_texts,
        check_phone,
        check_phone_with_another_request,
        check_phone_not_taken_back,
        in_progress,
        in_doubt,
        completed,
        completed_with_long_texts,
        completed_and_returned,
        receipt,
        receipt_with_long_texts,
        late,
        failed,
        cancelled,
        cancelled_by_the_merchant,
        expired,
        not_found,
        not_sent_from_this_page,
        unavailable,
        home,
    )
}


def _as_it_is(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an answer whose body was unpacked already."""
    return {name: value for name, value in headers.items() if name not in ("content-encoding", "content-length")}


@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without JavaScript"])
@pytest.mark.parametrize("language", ["en", "am"])
@pytest.mark.parametrize("name", STATES)
async def test_a_state_fits_every_screen_and_everybody(
    name: str, language: str, gateway: Gateway, merchant: Merchant, new_person: NewPerson, *, javascript: bool
) -> None:
    person = await new_person(javascript=javascript)
    await STATES[name](Scene(gateway, merchant, person, language))
    page = person.page
    assert await page.locator("html").get_attribute("lang") == language
    for width, height in (SMALL, USUAL, LARGE):
        await page.set_viewport_size({"width": width, "height": height})
        await _demand_nothing_sideways(page)
        if keep := os.environ.get("ZEMBIL_SCREENSHOTS"):
            for theme in ("light", "dark"):
                await page.emulate_media(color_scheme=theme)
                picture = f"{name}-{language}-{width}-{theme}{'' if javascript else '-plain'}.png"
                await page.screenshot(path=Path(keep, picture), full_page=True)
    await page.set_viewport_size({"width": USUAL[0], "height": USUAL[1]})
    judged = page if javascript else await _copy(page, await new_person())
    for theme in ("light", "dark"):
        await judged.emulate_media(color_scheme=theme)
        await _demand_accessible(judged)


async def _demand_nothing_sideways(page: Page) -> None:
    for _ in range(20):  # a page that waits may be about to fetch itself anew
        with suppress(PlaywrightError):
            if await page.evaluate(NOTHING_SIDEWAYS):
                return
        await asyncio.sleep(0.1)
    pytest.fail("something is too wide")


async def _copy(page: Page, other: Person) -> Page:
    """What a browser without JavaScript shows, in one in which axe can run, but none of our scripts."""
    html = await _content(page)

    async def fulfil(route: Route) -> None:
        await route.fulfill(body=html, content_type="text/html; charset=utf-8")

    async def refuse(route: Route) -> None:
        await route.abort()

    await other.page.route(page.url, fulfil)
    await other.page.route("**/static/*.js", refuse)
    await other.opens(page.url)
    return other.page


async def _content(page: Page) -> str:
    for _ in range(50):  # as above
        with suppress(PlaywrightError):
            return await page.content()
        await asyncio.sleep(0.1)
    raise AssertionError("the page does not stand still")


async def _demand_accessible(page: Page) -> None:
    axe: Any = Axe()
    for _ in range(3):  # as above
        with suppress(PlaywrightError):
            found = await asyncio.wait_for(axe.run(page, options={"runOnly": RULES}), 30)
            assert found.violations_count == 0, found.generate_report()
            return
    pytest.fail("the page does not stand still")
