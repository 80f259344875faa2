"""The main job as a person does it: a payment link, a small phone, a real browser."""

import asyncio
import re
from base64 import b64decode, b64encode
from typing import Any

import pytest
import zxingcpp
from playwright.async_api import Browser, Error, expect

from tests.browser.conftest import LOCAL_NETWORK_NAME, NewPerson
from tests.browser.person import Person
from tests.browser.shop import Shop
from tests.browser.stored import charge_states
from tests.support.gateway import Gateway, Merchant
from zembil.ids import TOKEN_LENGTH

pytestmark = pytest.mark.asyncio(loop_scope="session")


def new_payment(merchant: Merchant, **body: Any) -> dict[str, Any]:
    """A payment that the merchant asked for over the API."""
    asked = {"amount": 1500, "currency": "ETB", "description": "Two bags of coffee"} | body
    created = merchant.client().post("/payments", json=asked)
    assert created.status_code == 201, created.text
    return created.json()["data"]


def status_of(merchant: Merchant, payment: dict[str, Any]) -> str:
    return merchant.client().get(f"/payments/{payment['id']}").json()["data"]["status"]


@pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without JavaScript"])
async def test_a_person_pays_and_goes_back_to_the_shop(
    *, javascript: bool, new_person: NewPerson, merchant: Merchant, shop: Shop
) -> None:
    person = await new_person(javascript=javascript)
    person.may_ask.add(shop.origin)
    payment = new_payment(merchant, callback_url=f"{shop.origin}/thanks?order=7")
    assert await person.opens(payment["payment_link"]) == 200
    await expect(person.page.get_by_role("heading", level=1)).to_have_text("Payment to Abebe's shop")
    await expect(person.page.get_by_text("1,500.00 ETB").first).to_be_visible()
    await expect(person.page.get_by_text("Two bags of coffee")).to_be_visible()

    await person.pays_with("0911 223 344")
    await person.sees("Check your phone")
    await expect(person.page.get_by_text("telebirr sent a request to +25191 … 44")).to_be_visible()
    assert status_of(merchant, payment) == "pending"
    await person.answers("Approve")
    await person.sees("Paid")
    assert status_of(merchant, payment) == "completed"

    await person.page.get_by_role("link", name="Back to Abebe's shop").click()
    await person.sees("Thank you")
    path, headers = shop.asked[0]
    assert path == f"/thanks?order=7&payment_id={payment['id']}&status=completed"
    assert "referer" not in headers


async def test_after_a_decline_and_an_empty_wallet_another_try_succeeds(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.pays_with()
    await person.answers("Decline")
    await person.sees_notice("The payment was declined on the phone. Nothing was taken; you can try again.")
    await person.pays_with(wallet="M-PESA")
    await person.answers("Not enough money")
    await person.sees_notice("There was not enough money in the wallet. Nothing was taken; you can try again.")
    await person.pays_with()
    await person.answers("Approve")
    await person.sees("Paid")
    assert await charge_states(gateway, payment["payment_link"]) == ["cancelled", "failed", "succeeded"]


async def test_a_wrong_phone_is_told_beside_its_field(gateway: Gateway, merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.pays_with("0911 22 33")
    phone = person.page.get_by_label("Phone number of the wallet")
    await expect(phone).to_have_accessible_description(re.compile("This is not a phone number"))
    await expect(phone).to_have_value("0911 22 33")
    await expect(phone).to_be_focused()
    await expect(person.page.get_by_role("radio", name="telebirr")).to_be_checked()
    assert await charge_states(gateway, payment["payment_link"]) == []
    await person.page.goto(person.page.url)  # as a phone does that restores its tabs
    await expect(person.page).to_have_url(payment["payment_link"])
    await person.pays_with()
    await person.sees("Check your phone")


async def test_the_phone_that_the_merchant_knows_is_filled_in_with_its_wallet(
    merchant: Merchant, person: Person
) -> None:
    payment = new_payment(merchant, customer={"phone": "+251711223344"})
    await person.opens(payment["payment_link"])
    await expect(person.page.get_by_label("Phone number of the wallet")).to_have_value("0711 223 344")
    await expect(person.page.get_by_role("radio", name="M-PESA")).to_be_checked()
    await person.page.get_by_role("button", name="Pay 1,500.00 ETB").click()
    await expect(person.page.get_by_text("M-PESA sent a request to +25171 … 44")).to_be_visible()


async def test_a_person_cancels(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.page.get_by_role("button", name="Cancel this payment").click()
    await person.sees("Cancelled")
    assert status_of(merchant, payment) == "cancelled"


async def test_an_expired_payment_cannot_be_paid_from_a_page_opened_before(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    payment = new_payment(merchant, expires_in=300)
    person = await new_person(javascript=False)  # with it, the page would know
    await person.opens(payment["payment_link"])
    await expect(person.page.get_by_text("Time left to pay: about 4 more minutes")).to_be_visible()
    merchant.client().post("/test/clock", json={"advance_seconds": 300})
    await person.pays_with()
    await person.sees("Time ran out")
    await person.opens(payment["payment_link"])
    await person.sees("Time ran out")
    assert await charge_states(gateway, payment["payment_link"]) == []


async def test_two_tabs_that_pay_at_once_make_one_charge(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    payment = new_payment(merchant)
    tabs = [await new_person(javascript=False), await new_person(javascript=False)]  # with it, they know of each other
    for tab in tabs:
        await tab.opens(payment["payment_link"])
    await asyncio.gather(*(tab.pays_with() for tab in tabs))
    for tab in tabs:
        await tab.sees("Check your phone")
    await asyncio.gather(*(approves(tab) for tab in tabs))
    for tab in tabs:
        await tab.sees("Paid")
    assert await charge_states(gateway, payment["payment_link"]) == ["succeeded"]


async def approves(tab: Person) -> None:
    """Unless the other tab was so much quicker that this one knows already."""
    try:
        await tab.answers("Approve")
    except Error:
        await tab.sees("Paid")


async def test_the_page_of_a_paid_payment_takes_no_more_money(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson
) -> None:
    payment = new_payment(merchant)
    late, quick = await new_person(javascript=False), await new_person()  # with it, the late page would know
    await late.opens(payment["payment_link"])
    await quick.opens(payment["payment_link"])
    await quick.pays_with("0900 000 000")
    await quick.sees("Paid")
    await late.pays_with()
    await late.sees("Paid")
    await late.opens(payment["payment_link"])
    await late.sees("Paid")
    await expect(late.page.get_by_role("button")).to_have_count(0)
    assert await charge_states(gateway, payment["payment_link"]) == ["succeeded"]


@pytest.mark.parametrize(
    ("phone", "notice"),
    [
        ("0900 000 001", "There was not enough money in the wallet."),
        ("0900 000 002", "The payment was declined on the phone."),
        ("0900 000 003", "The PIN was wrong."),
        ("0900 000 008", "The wallet's network could not be reached."),
    ],
)
async def test_what_came_of_a_try_is_told_and_another_is_offered(
    phone: str, notice: str, merchant: Merchant, person: Person
) -> None:
    await person.opens(new_payment(merchant)["payment_link"])
    await person.pays_with(phone)
    await person.sees_notice(f"{notice} Nothing was taken; you can try again.")
    await expect(person.page.get_by_role("button", name="Pay 1,500.00 ETB")).to_be_visible()


async def test_the_fifth_try_without_success_ends_the_payment(
    gateway: Gateway, merchant: Merchant, person: Person
) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.pays_with("0900 000 008")  # never left, so it does not count
    for _ in range(5):
        await person.pays_with("0900 000 001")
    await person.sees("Not paid")
    assert status_of(merchant, payment) == "failed"
    assert await charge_states(gateway, payment["payment_link"]) == ["failed"] * 6


@pytest.mark.parametrize(
    "token", ["A" * TOKEN_LENGTH, "A" * (TOKEN_LENGTH - 1), "no-such-link", "%00", "..%2f..%2fetc"]
)
async def test_a_wrong_link_says_so(token: str, gateway: Gateway, person: Person) -> None:
    assert await person.opens(f"{gateway.origin}/p/{token}") == 404
    await person.sees("No payment at this link")


async def test_a_truncated_link_shows_nothing_of_the_payment(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    assert await person.opens(payment["payment_link"][:-1]) == 404
    await person.sees("No payment at this link")
    await expect(person.page.get_by_text("1,500.00")).to_have_count(0)


async def test_an_amount_slipped_into_the_form_changes_nothing(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.page.evaluate(
        """
        for (const [name, value] of [["amount", "1.00"], ["amount_santim", "1"], ["currency", "USD"]])
            document.querySelector("form").append(Object.assign(document.createElement("input"), {name, value}))
        """
    )
    await person.pays_with()
    await person.sees("Check your phone")
    await expect(person.page.get_by_text("Pay 1,500.00 ETB to Abebe's shop?")).to_be_visible()
    await person.answers("Approve")
    await person.sees("Paid")
    assert merchant.client().get(f"/payments/{payment['id']}").json()["data"]["amount"] == 1500


async def test_a_form_without_its_token_is_refused_in_words(merchant: Merchant, person: Person) -> None:
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    await person.page.evaluate("document.querySelectorAll('[name=form_token]').forEach(field => field.remove())")
    await person.pays_with()
    await person.sees("Not sent from this page")
    await person.page.get_by_role("link", name="Open the payment").click()
    await person.pays_with()
    await person.sees("Check your phone")


async def test_another_site_cannot_press_the_buttons(
    gateway: Gateway, merchant: Merchant, person: Person, shop: Shop
) -> None:
    """Not even one that has read the form's token."""
    payment = new_payment(merchant)
    await person.opens(payment["payment_link"])
    token = await person.page.locator("[name=form_token]").first.input_value()
    shop.html = (
        f'<!doctype html><form method="post" action="{payment["payment_link"]}/cancel">'
        f'<input type="hidden" name="form_token" value="{token}"><button>You have won</button></form>'
    )
    elsewhere = f"http://{LOCAL_NETWORK_NAME}:{shop.port}"
    person.may_ask.add(elsewhere)
    await person.opens(elsewhere)
    await person.page.get_by_role("button", name="You have won").click()
    await person.sees("Not sent from this page")
    assert status_of(merchant, payment) == "pending"


async def test_another_site_cannot_frame_the_page(
    merchant: Merchant, person: Person, shop: Shop, gateway: Gateway
) -> None:
    payment = new_payment(merchant)
    shop.html = f'<!doctype html><iframe src="{payment["payment_link"]}"></iframe>'
    person.may_ask.add(shop.origin)
    await person.opens(shop.origin)
    await expect(person.page.frame_locator("iframe").get_by_text("1,500.00")).to_have_count(0)
    assert person.policy_violations
    person.console.clear()


async def test_a_phone_on_the_local_network_pays_over_plain_http(merchant: Merchant, person: Person) -> None:
    """Browsers say less there: no Sec-Fetch-Site, and the origin of our own forms is "null"."""
    payment = new_payment(merchant)
    link = payment["payment_link"].replace("127.0.0.1", LOCAL_NETWORK_NAME)
    person.may_ask = {link.partition("/p/")[0]}
    await person.opens(link)
    await person.pays_with()
    await person.answers("Approve")
    await person.sees("Paid")


async def test_what_a_merchant_writes_is_text(
    gateway: Gateway, merchant: Merchant, new_person: NewPerson, shop: Shop
) -> None:
    person = await new_person()
    name = "<script>document.title='taken'</script>"
    other = await asyncio.to_thread(gateway.new_merchant, name)
    try:
        description = f'<img src="{shop.origin}/x" onerror="document.title=\'taken\'"><style>*{{display:none}}</style>'
        payment = new_payment(other, description=description, callback_url=f'{shop.origin}/"><script>alert(1)</script>')
    finally:
        other.close()
    await person.opens(payment["payment_link"])
    await expect(person.page.get_by_role("heading", level=1)).to_have_text(f"Payment to {name}")
    await expect(person.page.get_by_text(description)).to_be_visible()
    await person.page.get_by_role("button", name="Cancel this payment").click()
    await person.sees("Cancelled")
    assert "taken" not in re.sub("'taken'", "", await person.page.title())
    assert shop.asked == []


async def test_the_code_in_the_answer_and_on_the_page_opens_the_payment(
    chromium: Browser, merchant: Merchant, person: Person
) -> None:
    payment = new_payment(merchant)
    head, _, image = payment["qr_code"].partition(",")
    assert head == "data:image/png;base64"
    assert await read_code(chromium, b64decode(image)) == payment["payment_link"]

    await person.opens(payment["payment_link"])
    await person.page.get_by_text("Scan with another phone").click()
    code = person.page.get_by_role("img", name="QR code")
    await expect(code).to_have_accessible_name(
        f"QR code that opens the payment of 1,500.00\N{NO-BREAK SPACE}ETB at {payment['payment_link']}"
    )
    for theme in ("light", "dark"):
        await person.page.emulate_media(color_scheme=theme)
        assert await read_code(chromium, await code.screenshot()) == payment["payment_link"]


async def read_code(chromium: Browser, png: bytes) -> str:
    """What a scanner reads in an image; a page of its own turns the image into pixels."""
    page = await chromium.new_page()
    pixels = await page.evaluate(
        """
        async png => {
            const image = new Image()
            image.src = `data:image/png;base64,${png}`
            await image.decode()
            const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d")
            canvas.drawImage(image, 0, 0)
            const {data} = canvas.getImageData(0, 0, image.width, image.height)
            let grey = ""
            for (let at = 0; at < data.length; at += 4) grey += data[at] < 128 ? "0" : "1"
            return {rows: image.height, columns: image.width, grey}
        }
        """,
        b64encode(png).decode(),
    )
    await page.close()
    grey = memoryview(bytes(255 * int(light) for light in pixels["grey"])).cast(
        "B", (pixels["rows"], pixels["columns"])
    )
    (code,) = zxingcpp.read_barcodes(grey, try_invert=False)
    return code.text


async def test_a_newcomer_at_the_bare_address_is_told_where_they_are(gateway: Gateway, person: Person) -> None:
    assert await person.opens(gateway.origin) == 200
    await person.sees("Payments by mobile money")
    await expect(person.page.get_by_text(f"{gateway.origin}/p/…")).to_be_visible()
    await expect(person.page.get_by_role("link", name="Dashboard")).to_have_attribute("href", "/dashboard")
    await expect(person.page.get_by_text(f"{gateway.origin}/sandbox/v1", exact=True)).to_be_visible()
    await expect(person.page.get_by_text(f"{gateway.origin}/v1", exact=True)).to_be_visible()
