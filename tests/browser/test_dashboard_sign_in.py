"""The doors of the dashboard, as a person with a browser meets them, with scripts and without."""

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewPerson
from tests.browser.looks import demand_good_looks
from tests.browser.person import Person
from tests.support.dashboard import PASSWORD, User, app_code, new_invitation, new_sign_in_link, new_user
from tests.support.gateway import Gateway, Merchant

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG_NAME = "አልማዝ ተስፋዬ ወልደማርያም የመርካቶ ቡና ሒሳብ ሹም Almaz-Tesfaye-Woldemariam-of-the-Accounting-Department"


async def signs_in(person: Person, gateway: Gateway, user: User) -> None:
    await person.opens(f"{gateway.origin}/dashboard/sign-in")
    await person.field("E-mail").fill(user.email)
    await person.field("Password").fill(PASSWORD)
    await person.page.get_by_role("button", name="Sign in").click()
    await person.sees("Home")


async def sets_up_second_step(person: Person, gateway: Gateway) -> str:
    """Answers the secret that the app has then."""
    await person.opens(f"{gateway.origin}/dashboard/live")
    await person.sees("Set up the second step")
    secret = (await person.page.locator("code.id").inner_text()).replace(" ", "")
    await person.field("Your password").fill(PASSWORD)
    await person.page.get_by_role("textbox", name="Code").fill(app_code(secret, -1))
    await person.page.get_by_role("button", name="Turn it on").click()
    await person.sees("Your account")
    return secret


@pytest.mark.parametrize("javascript", [True, False])
async def test_a_newcomer_is_signed_in_by_the_link_that_was_printed(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson, javascript: bool
) -> None:
    link = await asyncio.to_thread(new_sign_in_link, gateway, merchant)
    person = await new_person(javascript=javascript)
    await person.opens(link)
    if not javascript:
        await person.page.get_by_role("button", name="Sign in").click()
    await person.sees("Home")
    assert (await person.opens(link)) == 404


async def test_an_invited_person_comes_in_and_sets_up_the_second_step(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    email, link = await asyncio.to_thread(new_invitation, gateway, merchant)
    await person.opens(link)
    await demand_good_looks(person, "invitation")
    await person.field("Your name").fill(LONG_NAME)
    await person.field("Password").fill("short")
    await person.page.get_by_role("button", name="Set the password").click()
    await expect(person.page.get_by_text("Take at least 12 characters")).to_be_visible()
    await demand_good_looks(person, "invitation-refused")
    await person.field("Password").fill(PASSWORD)
    await person.page.get_by_role("button", name="Set the password").click()
    await person.sees("Sign in")
    await demand_good_looks(person, "sign-in")
    await signs_in(person, gateway, User(None, None, email))
    await demand_good_looks(person, "home-sandbox")
    await person.opens(f"{gateway.origin}/dashboard/live")
    await demand_good_looks(person, "second-step")
    await sets_up_second_step(person, gateway)
    await expect(person.page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    await demand_good_looks(person, "your-account")
    await person.opens(f"{gateway.origin}/dashboard/live")
    await demand_good_looks(person, "home-live")


async def test_the_code_is_asked_for_after_the_password(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    user = await asyncio.to_thread(new_user, gateway, merchant)
    first, again = await new_person(), await new_person(javascript=False)
    await signs_in(first, gateway, user)
    secret = await sets_up_second_step(first, gateway)
    await again.opens(f"{gateway.origin}/dashboard/sandbox/your-account")
    await again.field("E-mail").fill(user.email)
    await again.field("Password").fill(PASSWORD)
    await again.page.get_by_role("button", name="Sign in").click()
    await again.sees("Your code")
    await again.field("Code").fill("000000")
    await again.page.get_by_role("button", name="Go on").click()
    await expect(again.page.get_by_text("This code is wrong")).to_be_visible()
    await again.field("Code").fill(app_code(secret))
    await again.page.get_by_role("button", name="Go on").click()
    await again.sees("Your account")  # which is what was asked for
    await again.page.locator(".pocket summary").click()
    await again.page.locator(".pocket").get_by_role("button", name="Sign out").click()
    await again.sees("Sign in")


async def test_the_sandbox_says_so_in_words_and_live_does_not(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    user = await asyncio.to_thread(new_user, gateway, merchant)
    await signs_in(person, gateway, user)
    await expect(person.page.get_by_text("test data, no real money moves")).to_be_visible()
    await expect(person.page).to_have_title(re.compile(r"^\[Sandbox\] Home"))
    await sets_up_second_step(person, gateway)
    await person.opens(f"{gateway.origin}/dashboard/live")
    await expect(person.page.get_by_text("test data, no real money moves")).to_have_count(0)
    await expect(person.page).to_have_title(re.compile("^Home"))


async def test_pages_that_refuse_look_like_pages(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    await person.opens(f"{gateway.origin}/dashboard/sandbox")
    await demand_good_looks(person, "signed-out")
    await person.opens(f"{gateway.origin}/dashboard/nothing")
    await demand_good_looks(person, "nothing-here")
    await person.opens(f"{gateway.origin}/dashboard/link/{'x' * 43}")
    await demand_good_looks(person, "link-over")
    await person.opens(await asyncio.to_thread(new_sign_in_link, gateway, merchant))
    await person.sees("Home")
