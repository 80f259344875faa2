"""The page follows its payment: by events, by asking where events do not come through, and without JavaScript."""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from playwright.async_api import Route, expect

from tests.browser import stored
from tests.browser.conftest import NewPerson
from tests.browser.person import Person
from tests.browser.stored import charge_states
from tests.support.gateway import Gateway, Merchant
from zembil import ids

pytestmark = pytest.mark.asyncio(loop_scope="session")


def new_payment(merchant: Merchant, **body: Any) -> dict[str, Any]:
    asked = {"amount": 1500, "currency": "ETB"} | body
    created = merchant.client().post("/payments", json=asked)
    assert created.status_code == 201, created.text
    return created.json()["data"]


def complete(merchant: Merchant, payment: dict[str, Any]) -> None:
    done = merchant.client().post(f"/test/payments/{payment['id']}/complete", json={})
    assert done.status_code == 200, done.text


async def test_a_page_left_open_says_when_it_is_paid_from_elsewhere(merchant: Merchant, person: Person) -> None:
    """As a desktop's does whose code was scanned with a phone; and a screen reader is told."""
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    spoken = person.page.locator("#live")
    await expect(spoken).to_have_attribute("role", "status")
    await expect(spoken).to_be_empty()
    complete(merchant, payment)
    await person.stands("completed")
    await expect(spoken).to_contain_text("Paid. You paid Abebe's shop")
    assert len([url for url in person.requested if url.endswith("/events")]) == 1
    assert not [url for url in person.requested if url.endswith("/status")]
    assert (await person.page.title()).startswith("[Sandbox] Paid")


async def test_what_a_screen_reader_is_told_ends_its_sentences_as_amharic_does(
    merchant: Merchant, person: Person
) -> None:
    payment = new_payment(merchant)
    await person.opens(f"{payment['payment_link']}?lang=am")
    complete(merchant, payment)
    await person.stands("completed")
    await expect(person.page.locator("#live")).to_contain_text("ተከፍሏል። ")


async def test_where_no_events_come_through_the_page_asks(merchant: Merchant, person: Person) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503)

    payment = new_payment(merchant)
    await person.page.route("**/events", refuse)
    await person.opens(payment["payment_link"])
    async with person.page.expect_response(lambda response: response.url.endswith("/status")) as asked:
        pass
    assert (await asked.value).status == 304
    complete(merchant, payment)
    await person.stands("completed")


async def test_what_was_typed_stays_when_the_page_changes(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.page.locator("#phone").fill("0911 22")
    form_token = await person.page.locator("[name=form_token]").first.input_value()
    form = {"form_token": form_token, "phone": "0900000001", "mobile_money_provider": "telebirr"}
    answer = await asyncio.to_thread(httpx2.post, f"{payment['payment_link']}/charge", data=form)
    assert answer.status_code == 303
    await person.sees_notice("There was not enough money in the wallet.")
    await expect(person.page.locator("#phone")).to_have_value("0911 22")


async def test_without_javascript_the_page_fetches_itself_anew(merchant: Merchant, new_person: NewPerson) -> None:
    person = await new_person(javascript=False)
    payment = new_payment(merchant)
    await person.opens(f"{payment['payment_link']}?lang=am")
    await person.pays_with("0900 000 000")
    await person.stands("completed")
    await expect(person.page.locator("html")).to_have_attribute("lang", "am")


async def test_the_wallet_is_suggested_from_the_number_and_can_be_changed(merchant: Merchant, person: Person) -> None:
    await person.opens(new_payment(merchant)["payment_link"])
    telebirr, mpesa = (person.page.get_by_role("radio", name=name) for name in ("telebirr", "M-PESA"))
    phone = person.page.locator("#phone")
    await phone.press_sequentially("09")
    await expect(telebirr).to_be_checked()
    await phone.fill("+251 7")
    await expect(mpesa).to_be_checked()
    await telebirr.check()
    await phone.fill("0711 223 344")
    await expect(telebirr).to_be_checked()


async def test_the_minutes_are_counted_in_the_last_ten_only(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant, expires_in=700)
    await person.page.clock.install()
    await person.opens(payment["payment_link"])
    soon = person.page.locator(".soon")
    await expect(soon).to_be_hidden()
    await person.page.clock.fast_forward("02:30")
    await expect(soon).to_have_text("Time left to pay: about 9 more minutes")
    await person.page.clock.fast_forward("08:00")
    await expect(soon).to_have_text("Time left to pay: about 1 more minute")
    await person.page.clock.fast_forward("00:40")
    await expect(soon).to_have_text("Time left to pay: less than a minute")


async def a_minute_later(gateway: Gateway, link: str) -> None:
    await stored.rows(
        gateway,
        link,
        "UPDATE charges SET prompted_at = prompted_at - interval '1 minute' WHERE account_id = $1 AND payment_id = $2",
    )


async def test_a_request_can_be_sent_again_after_a_while_and_the_first_one_is_taken_back(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    link = new_payment(merchant)["payment_link"]
    await person.page.clock.install()
    await person.opens(link)
    await person.pays_with()
    again = person.page.get_by_role("button", name="Send the request again")
    await person.stands("check_phone")
    await expect(again).to_be_hidden()
    await person.page.clock.fast_forward("00:31")
    await expect(again).to_be_visible()
    await again.click()  # the phone's clock ran ahead: for us it is too early
    await person.stands("check_phone")
    assert await charge_states(gateway, link) == ["awaiting_customer"]

    await a_minute_later(gateway, link)
    await person.opens(link)
    await again.click()
    await expect(again).to_be_hidden()
    assert await charge_states(gateway, link) == ["cancelled", "awaiting_customer"]
    await person.answers("Approve")
    await person.stands("completed")
    assert await charge_states(gateway, link) == ["cancelled", "succeeded"]


async def test_two_tabs_that_ask_again_at_once_send_one_request(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    link = new_payment(merchant)["payment_link"]
    tabs = [await new_person(javascript=False), await new_person(javascript=False)]
    await tabs[0].opens(link)
    await tabs[0].pays_with()
    await tabs[0].stands("check_phone")
    await a_minute_later(gateway, link)
    for tab in tabs:
        await tab.opens(link)
    await asyncio.gather(*(tab.page.get_by_role("button", name="Send the request again").click() for tab in tabs))
    for tab in tabs:
        await tab.stands("check_phone")
    assert await charge_states(gateway, link) == ["cancelled", "awaiting_customer"]


async def test_a_phone_is_not_asked_a_fourth_time(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    link = new_payment(merchant)["payment_link"]
    await person.opens(link)
    await person.pays_with()
    await person.stands("check_phone")
    for _ in range(3):
        await a_minute_later(gateway, link)
        await person.opens(link)
        await person.page.get_by_role("button", name="Send the request again").click()
        await person.stands("check_phone")
    await person.sees_notice("This phone was asked three times within 10 minutes")
    assert await charge_states(gateway, link) == ["cancelled", "cancelled", "awaiting_customer"]


async def test_a_request_that_is_not_taken_back_is_not_followed_by_another(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    """The customer confirmed in this moment: the network keeps the first request, and nobody pays twice."""
    link = new_payment(merchant)["payment_link"]
    await person.opens(link)
    await person.pays_with()
    await person.stands("check_phone")
    await stored.rows(
        gateway,
        link,
        "UPDATE charges SET prompted_at = prompted_at - interval '1 minute', confirmed_at = now(), ask_at = NULL"
        " WHERE account_id = $1 AND payment_id = $2",
    )
    await person.opens(link)
    await person.page.get_by_role("button", name="Send the request again").click()
    await person.sees_notice("telebirr did not take back its first request")
    assert await charge_states(gateway, link) == ["awaiting_customer"]


async def test_a_payer_who_gets_no_request_is_told_what_to_dial(merchant: Merchant, person: Person) -> None:
    for wallet, href, code in (("telebirr", "tel:*127%23", "*127#"), ("M-PESA", "tel:*733%23", "*733#")):
        await person.opens(new_payment(merchant)["payment_link"])
        await person.pays_with("0900 000 004", wallet=wallet)
        await expect(person.page.get_by_role("link", name=code)).to_have_attribute("href", href)


async def test_the_simulated_handset_can_leave_the_request_unanswered(merchant: Merchant, person: Person) -> None:
    await person.opens(new_payment(merchant)["payment_link"])
    await person.pays_with()
    await person.answers("No answer")
    await person.sees_notice("The prompt on the phone was not answered in time. Nothing was taken")


async def test_a_sandbox_payment_can_be_let_expire(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.page.get_by_role("button", name="Sandbox: let the time run out").click()
    await person.sees("Time ran out")
    await expect(person.page.get_by_role("link", name="Check again")).to_be_visible()
    assert merchant.client().get(f"/payments/{payment['id']}").json()["data"]["cancellation_reason"] == "expired"


async def test_the_receipt_has_a_link_of_its_own_that_leads_to_no_payment(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant, reference="ORDER-7", customer={"phone": "+251911223344", "email": "a@shop.et"})
    await person.opens(payment["payment_link"])
    await person.pays_with()
    await person.answers("Approve")
    await person.page.get_by_role("link", name="Receipt to keep or print").click()
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("Receipt: paid to Abebe's shop")
    shown = await person.page.content()
    done = merchant.client().get(f"/payments/{payment['id']}").json()["data"]
    for fact in (done["transaction_id"], payment["id"], "ORDER-7", "telebirr", "SBX", "1,500.00"):
        assert fact in shown
    token = payment["payment_link"].rpartition("/")[2]
    receipt_token = person.page.url.rpartition("/")[2]
    for secret in (token, "911223344", "911 223", "a@shop.et", "/p/"):
        assert secret not in shown
    assert ids.parsed_link_token(receipt_token) is not None
    assert await person.opens(payment["payment_link"].replace(token, receipt_token)) == 404
    await person.opens(person.page.url.replace("/p/", "/r/") + "?lang=am")
    await expect(person.page.get_by_role("button", name="አትም")).to_be_visible()
    await person.page.emulate_media(media="print")
    await expect(person.page.get_by_role("button", name="አትም")).to_be_hidden()
    await expect(person.page.get_by_text(done["transaction_id"])).to_be_visible()


async def test_the_stream_tells_the_version_and_every_change_until_the_end(merchant: Merchant) -> None:
    payment = new_payment(merchant)
    link = payment["payment_link"]
    async with httpx2.AsyncClient(timeout=20) as client, client.stream("GET", f"{link}/events") as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["cache-control"] == "no-store"
        told: list[str] = []
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                told.append(line[6:])
                if len(told) == 1:
                    assert (await client.get(link)).text.count(f'data-version="{told[0]}"') == 1
                    complete(merchant, payment)
    assert len(set(told)) == len(told) >= 2  # and it has ended by itself
    last = httpx2.get(f"{link}/status")
    assert last.json() == {"version": told[-1], "status": "completed"}
    assert httpx2.get(f"{link}/status", headers={"If-None-Match": last.headers["etag"]}).status_code == 304


async def test_one_payment_has_only_so_many_streams(merchant: Merchant) -> None:
    link = new_payment(merchant)["payment_link"]
    async with httpx2.AsyncClient(timeout=20) as client:
        held = [client.stream("GET", f"{link}/events") for _ in range(10)]
        answers = [await stream.__aenter__() for stream in held]
        assert [answer.status_code for answer in answers] == [200] * 10
        refused = await client.get(f"{link}/events")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "60"
        assert (await client.get(link)).status_code == 200
        for stream in held:
            await stream.__aexit__(None, None, None)
        for _ in range(50):  # the places are free again soon after
            async with client.stream("GET", f"{link}/events") as again:
                if again.status_code == 200:
                    return
            await asyncio.sleep(0.1)
    pytest.fail("the places were not given back")


async def test_a_stream_of_a_link_that_is_not_ours_is_refused(gateway: Gateway, merchant: Merchant) -> None:
    link = new_payment(merchant)["payment_link"]
    wrong = link[:-2] + ("AA" if not link.endswith("AA") else "BB")
    for path in ("events", "status", "qr.png", "qr.svg"):
        assert httpx2.get(f"{wrong}/{path}").status_code == 404
        assert httpx2.post(f"{link}/{path}").status_code == 405


async def test_open_pages_do_not_keep_a_process_from_stopping(start: Callable[..., Gateway]) -> None:
    def stopped_with_a_page_open() -> int:
        gateway = start()
        merchant = gateway.merchant
        payment = new_payment(merchant)
        merchant.close()
        with httpx2.stream("GET", f"{payment['payment_link']}/events", timeout=30) as held:
            lines = held.iter_lines()
            assert re.match("retry: ", next(lines))
            gateway.process.terminate()
            with suppress(httpx2.TransportError):
                for _ in lines:
                    pass
        return gateway.process.wait(timeout=8)  # uvicorn would wait 10 seconds for it

    assert await asyncio.to_thread(stopped_with_a_page_open) == 0
