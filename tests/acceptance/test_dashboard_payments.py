"""Payments in the dashboard: found, exported as shown, each with its time line; refunded and cancelled by forms."""

import csv
import re
from collections.abc import Iterator
from io import StringIO
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import SignsIn
from tests.acceptance.test_dev import eventually
from tests.support.dashboard import Visitor, errors, form_token, heading, notice, signed_in, text_of
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, created, found, paid, pushed
from tests.support.receiver import Receiver
from zembil.accounts.model import Role

PAYMENTS = "/dashboard/sandbox/payments"


@pytest.fixture
def api(merchant: Merchant) -> httpx2.Client:
    return merchant.client()


def listed(page: httpx2.Response) -> list[str]:
    """The ids in a list, as they stand there."""
    assert page.status_code == 200, page.text
    return re.findall(r'href="/dashboard/sandbox/payments/(pay_\w+)"', page.text)


def exported(visitor: Visitor, path: str = f"{PAYMENTS}/export.csv") -> list[dict[str, str]]:
    answer = visitor.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.content.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(StringIO(answer.content.decode("utf-8-sig"), newline=""), strict=True))


def test_the_list_shows_what_the_address_asks_for(api: httpx2.Client, admin: Visitor) -> None:
    plain = created(api)["id"]
    ours = created(
        api,
        reference="order 42/7",
        customer={"phone": "+251911223344", "name": "አበበ ቢቂላ"},
        metadata={"shop": "Merkato", "till": "3"},
    )["id"]
    done = paid(api)["id"]
    assert listed(admin.get(PAYMENTS)) == [done, ours, plain]
    for asked in (
        "reference=order+42%2F7",
        "phone=0911223344",
        "phone=%2B251+911+223+344",
        "metadata=shop%3DMerkato",
        "status=pending&reference=order+42%2F7&phone=&date_from=",
    ):
        assert listed(admin.get(f"{PAYMENTS}?{asked}")) == [ours], asked
    assert listed(admin.get(f"{PAYMENTS}?status=completed")) == [done]
    page = admin.get(f"{PAYMENTS}?reference=nothing")
    assert (listed(page), "No payment matches" in page.text) == ([], True)
    assert "አበበ ቢቂላ" in admin.get(PAYMENTS).text


def test_a_search_that_finds_nothing_says_where_metadata_is_searched(api: httpx2.Client, admin: Visitor) -> None:
    made = created(api, metadata={"order_id": "7001"})["id"]
    page = admin.opens(f"{PAYMENTS}?search=7001")
    assert listed(page) == []
    assert "metadata is searched under Filters, as key=value" in text_of(page)
    assert listed(admin.get(f"{PAYMENTS}?metadata=order_id%3D7001")) == [made]


def wallet_number(visitor: Visitor, payment: dict[str, Any]) -> str:
    page = visitor.get(f"{PAYMENTS}/{payment['id']}").text
    match = re.search(r'<dt>Number at the wallet</dt><dd><code class="id">(\w+)</code>', page)
    assert match is not None, page
    return match[1]


def test_a_paid_payment_shows_its_wallet_and_the_number_on_the_payers_receipt(
    api: httpx2.Client, admin: Visitor
) -> None:
    payment, pending = paid(api), created(api)
    shown, number = admin.get(f"{PAYMENTS}/{payment['id']}"), wallet_number(admin, payment)
    assert "<dt>Wallet</dt><dd>telebirr</dd>" in shown.text
    (receipt,) = re.findall(r'href="(/r/[^"]+)"', shown.text)
    assert number in admin.get(receipt).text
    unpaid = admin.get(f"{PAYMENTS}/{pending['id']}").text
    assert ("Number at the wallet" in unpaid, "/r/" in unpaid) == (False, False)
    columns = {row["Payment"]: (row["Wallet"], row["Number at the wallet"]) for row in exported(admin)}
    assert columns == {payment["id"]: ("telebirr", number), pending["id"]: ("", "")}


def test_a_payment_is_found_by_the_wallets_number_unless_a_reference_reads_so(
    gateway: Gateway, api: httpx2.Client, admin: Visitor, signs_in: SignsIn
) -> None:
    payment = paid(api)
    number = wallet_number(admin, payment)
    for search in (number, number.lower()):
        assert admin.get(f"{PAYMENTS}?search={search}").headers["location"] == f"{PAYMENTS}/{payment['id']}"
    other = gateway.new_merchant()
    assert listed(signs_in(other).opens(f"{PAYMENTS}?search={number}")) == []
    other.close()
    alike = created(api, reference=number)["id"]
    assert listed(admin.opens(f"{PAYMENTS}?search={number}")) == [alike]
    assert admin.opens(f"{PAYMENTS}?search=%00").status_code == 200


def test_metadata_stands_under_a_heading_of_its_own(api: httpx2.Client, admin: Visitor) -> None:
    heading = '<h3 id="metadata">Metadata</h3>'
    with_it, without = created(api, metadata={"till": "3"}), created(api)
    shown = admin.get(f"{PAYMENTS}/{with_it['id']}")
    assert heading in shown.text
    assert "Metadata till 3" in text_of(shown)
    assert heading not in admin.get(f"{PAYMENTS}/{without['id']}").text
    asked = api.post("/refunds", json={"payment_id": paid(api)["id"], "metadata": {"till": "3"}}).json()["data"]
    assert heading in admin.get(f"/dashboard/sandbox/refunds/{asked['id']}").text
    customer = api.post("/customers", json={"name": "Abebe", "email": "a@example.et", "metadata": {"till": "3"}})
    assert heading in admin.get(f"/dashboard/sandbox/customers/{customer.json()['data']['id']}").text


def test_the_time_line_calls_an_endpoint_by_its_description(
    api: httpx2.Client, admin: Visitor, receiver: Receiver
) -> None:
    fields = {"url": receiver.url, "events": ["payment.created"], "description": "Our books"}
    assert api.post("/webhooks", json=fields).status_code == 201
    path = f"{PAYMENTS}/{created(api)['id']}"
    assert eventually(lambda: "payment.created to Our books" in text_of(admin.get(path)), seconds=10)
    assert receiver.url not in admin.get(path).text


def test_a_filter_that_means_nothing_is_told_and_no_list_shown(admin: Visitor) -> None:
    for asked in ("status=paid", "date_from=yesterday", "metadata=shop", "customer=nobody", "cursor=x", "limit=1000"):
        assert admin.get(f"{PAYMENTS}?{asked}").status_code == 400, asked
        if not asked.startswith(("cursor", "limit")):
            assert admin.get(f"{PAYMENTS}/export.csv?{asked}").status_code == 400, asked


def test_a_search_leads_to_what_an_id_names_and_else_to_a_list(api: httpx2.Client, admin: Visitor) -> None:
    payment = paid(api, reference="A-1")
    assert admin.get(f"{PAYMENTS}?search={payment['id']}").headers["location"] == f"{PAYMENTS}/{payment['id']}"
    assert listed(admin.opens(f"{PAYMENTS}?search=A-1")) == [payment["id"]]
    assert listed(admin.opens(f"{PAYMENTS}?search=0900000000")) == [payment["id"]]
    (charge_id,) = set(re.findall(r"chg_\w+", admin.get(f"{PAYMENTS}/{payment['id']}").text))
    assert heading(admin.opens(f"{PAYMENTS}?search={charge_id}")).startswith("Payment of")


def test_days_begin_in_the_merchants_zone_and_totals_are_exact(api: httpx2.Client, admin: Visitor) -> None:
    made = [created(api)["id"] for _ in range(27)]
    page = admin.get(PAYMENTS)
    assert "27 payments" in text_of(page)
    assert listed(page) == made[:1:-1]
    (older,) = re.findall(r'rel="next" href="([^"]+)"', page.text)
    assert listed(admin.get(older.replace("&amp;", "&"))) == made[1::-1]
    row = exported(admin)[0]
    day = row["Created (Africa/Addis_Ababa)"][:10]
    assert len(exported(admin, f"{PAYMENTS}/export.csv?date_from={day}&date_to={day}")) in range(1, 28)
    assert "27 payments" in text_of(admin.get(f"{PAYMENTS}?date_to={day}"))


def test_an_export_is_what_the_list_shows_with_the_same_filters(api: httpx2.Client, admin: Visitor) -> None:
    for number in range(30):
        created(api, amount=number + 0.5, reference=f"r-{number}", metadata={"part": str(number % 2)})
    asked = "metadata=part%3D1&status=pending"
    page, shown = admin.get(f"{PAYMENTS}?{asked}"), list[str]()
    (export,) = re.findall(r'href="([^"]+export\.csv[^"]*)"', page.text)
    shown += listed(page)
    rows = exported(admin, export.replace("&amp;", "&"))
    assert [row["Payment"] for row in rows] == shown
    assert {row["Status"] for row in rows} == {"pending"}
    assert rows[0]["Amount (ETB)"] == "29.50"
    assert [row["Reference"] for row in rows] == [f"r-{number}" for number in range(29, 0, -2)]


def test_an_export_longer_than_what_is_read_at_once_has_every_payment_once(api: httpx2.Client, admin: Visitor) -> None:
    made = [created(api)["id"] for _ in range(260)]
    assert [row["Payment"] for row in exported(admin)] == made[::-1]


HOSTILE = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=cmd|"/C calc"!A0', "＝1"]


def test_no_cell_of_an_export_calculates(api: httpx2.Client, admin: Visitor) -> None:
    for text in HOSTILE:
        created(api, description=text, reference=f"{text} {len(text)}", customer={"phone": PAYS, "name": text})
    created(api, description='He said "yes", and\r\nwent; ሰላም', customer={"name": "አበበ", "phone": PAYS})
    answer = admin.get(f"{PAYMENTS}/export.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(
        r'attachment; filename="payments-sandbox-\d{4}-\d\d-\d\d\.csv"', answer.headers["content-disposition"]
    )
    rows = exported(admin)
    assert rows[0]["Description"] == 'He said "yes", and\r\nwent; ሰላም'
    assert rows[0]["Name"] == "አበበ"
    assert [row["Description"] for row in rows[:0:-1]] == [f"'{text}" for text in HOSTILE]
    for row in rows:
        assert not [cell for cell in row.values() if cell.startswith(tuple("=+-@\t\r＝"))]


def test_the_time_line_leads_from_the_request_to_every_attempt(
    api: httpx2.Client, admin: Visitor, receiver: Receiver
) -> None:
    endpoint = api.post("/webhooks", json={"url": receiver.url, "events": ["*"]})
    assert endpoint.status_code == 201, endpoint.text
    payment = paid(api)

    def page() -> str:
        return text_of(admin.get(f"{PAYMENTS}/{payment['id']}")).partition("What happened")[2]

    assert eventually(lambda: page().count("Delivery") >= 4 and "POST" in page(), seconds=10), page()
    told = page()
    for said in (
        "Request POST /sandbox/v1/payments 201",
        "telebirr was asked to charge +251900000000",
        "The payment was made",
        "The payment is completed",
        f"payment.completed to {receiver.url} 200",
    ):
        assert said in told, told
    assert told.index("The payment was made") < told.index("was asked to charge") < told.index("is completed")
    shown = admin.get(f"{PAYMENTS}/{payment['id']}").text
    requests, events = (
        re.findall(r'href="([^"]+/requests/req_\w+)"', shown),
        re.findall(r'href="([^"]+/events/\w+)"', shown),
    )
    assert requests
    assert len(events) == 4
    for path in (*requests, *events):
        assert admin.get(path).status_code == 200, path
    assert "payment.created" in text_of(admin.get(events[0]))


SCRIPT = "<script>alert('<b>&amp;')</script>\"><img src=x onerror=alert(1)>"


def test_whatever_is_stored_shows_as_text(api: httpx2.Client, admin: Visitor) -> None:
    customer = api.post("/customers", json={"name": SCRIPT, "email": "a@example.et", "metadata": {"<b>": SCRIPT}})
    customer_id = customer.json()["data"]["id"]
    theirs = {"id": customer_id, "name": SCRIPT, "phone": PAYS}
    text: dict[str, Any] = {"description": SCRIPT, "reference": SCRIPT, "metadata": {"<b>": SCRIPT}, "customer": theirs}
    payment, open_one = paid_with(api, text), created(api, 100, **(text | {"reference": "2"}))
    asked = api.post("/refunds", json={"payment_id": payment["id"], "reason": SCRIPT}).json()["data"]
    paths = [
        *(f"payments{rest}" for rest in ("", f"/{payment['id']}", f"/{open_one['id']}", f"/{open_one['id']}/cancel")),
        *(f"refunds{rest}" for rest in ("", *(f"/{asked['id']}{page}" for page in ("", "/approve", "/reject")))),
        *(f"customers{rest}" for rest in ("", *(f"/{customer_id}{page}" for page in ("", "/edit", "/erase")))),
        "payments?reference=%3Cscript%3E&phone=%22%3E%3Cscript%3E",
    ]
    for path in paths:
        page = admin.get(f"/dashboard/sandbox/{path}")
        assert page.status_code == 200, path
        assert "<script>" not in page.text, path
        assert "<img src=x" not in page.text, path
        assert "'unsafe-inline'" not in page.headers["content-security-policy"]
    assert "&lt;script&gt;" in admin.get(f"/dashboard/sandbox/customers/{customer_id}").text


def paid_with(api: httpx2.Client, fields: dict[str, Any]) -> dict[str, Any]:
    payment = created(api, 100, **fields, mobile_money_provider="telebirr")
    assert eventually(lambda: found(api, payment)["status"] == "completed", seconds=10)
    return payment


def test_a_refund_is_asked_for_once_however_often_its_form_is_sent(api: httpx2.Client, admin: Visitor) -> None:
    payment = paid(api, amount=1500)
    path = f"{PAYMENTS}/{payment['id']}"
    page = admin.get(path)
    (key,) = re.findall(r'name="form_key" value="(\w+)"', page.text)
    fields = {"form_token": form_token(page), "form_key": key, "amount": "1,000.50", "reason": "Too large"}
    first, second = (admin.client.post(f"{path}/refund", data=fields) for _ in range(2))
    assert (first.status_code, second.status_code) == (303, 303)
    assert first.headers["location"] == second.headers["location"]
    assert first.headers["location"].startswith("/dashboard/sandbox/refunds/ref_")
    (refund,) = api.get("/refunds").json()["data"]["refunds"]
    assert (refund["amount"], refund["reason"], refund["status"]) == (1000.5, "Too large", "pending_approval")


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        ("", "Say how much goes back."),
        ("0", "Give an amount"),
        ("1.234", "Give an amount"),
        ("1,00", "Give an amount"),
        ("-5", "Give an amount"),
        ("١٠", "Give an amount"),
        ("100.01", "This is too much: 100.00 ETB of this payment can still be refunded."),
        ("9" * 19, "Give an amount"),
    ],
)
def test_a_refund_that_cannot_be_is_told_beside_its_amount(
    shop: Merchant, shop_admin: Visitor, shop_payment: dict[str, Any], amount: str, said: str
) -> None:
    path = f"{PAYMENTS}/{shop_payment['id']}"
    answer = shop_admin.sends(path, f"{path}/refund", amount=amount, reason="because")
    assert answer.status_code == 400
    assert errors(answer)[0].startswith(said)
    assert "because" in answer.text
    assert shop.client().get("/refunds").json()["data"]["refunds"] == []


@pytest.fixture(scope="module")
def shop_payment(shop: Merchant) -> dict[str, Any]:
    return paid(shop.client())


@pytest.fixture(scope="module")
def shop_admin(gateway: Gateway, shop: Merchant) -> Iterator[Visitor]:
    visitor = signed_in(gateway, shop)
    yield visitor
    visitor.close()


def test_a_pending_payment_is_cancelled_after_a_question(api: httpx2.Client, admin: Visitor) -> None:
    payment = created(api)
    path = f"{PAYMENTS}/{payment['id']}"
    assert heading(admin.get(f"{path}/cancel")) == "Cancel this payment?"
    assert found(api, payment)["status"] == "pending"
    done = admin.sends(f"{path}/cancel")
    assert (done.status_code, done.headers["location"]) == (303, path)
    assert notice(admin.get(path)) == "Cancelled. Nobody can pay it any more."
    assert found(api, payment) | {"cancellation_reason": "merchant"} == found(api, payment)
    again = admin.sends(path.replace(payment["id"], created(api)["id"]) + "/cancel", f"{path}/cancel")
    assert again.status_code == 303
    assert "only a pending one can be cancelled" in notice(admin.get(path))


def test_an_open_prompt_is_taken_back_before_a_payment_is_cancelled(api: httpx2.Client, admin: Visitor) -> None:
    payment = pushed(api, "+251900000004")
    path = f"{PAYMENTS}/{payment['id']}"
    assert eventually(lambda: "A prompt is on the customer" in admin.get(f"{path}/cancel").text, seconds=10)
    admin.sends(f"{path}/cancel")
    assert found(api, payment)["status"] in ("cancelled", "pending")
    said = notice(admin.get(path))
    assert said in (
        "Cancelled. Nobody can pay it any more.",
        "The wallet's network has not taken back the prompt; wait until the charge has ended.",
    )
    assert (found(api, payment)["status"] == "cancelled") == said.startswith("Cancelled")


def test_whoever_may_only_read_sees_everything_and_changes_nothing(
    gateway: Gateway, signs_in: SignsIn, merchant: Merchant, api: httpx2.Client, admin: Visitor
) -> None:
    done, open_one = paid(api), created(api)
    reader = signs_in(merchant, role=Role.READ_ONLY)
    assert listed(reader.get(PAYMENTS)) == [open_one["id"], done["id"]]
    assert len(exported(reader)) == 2
    for payment, form in ((done, "Ask for the refund"), (open_one, "Cancel the payment")):
        assert form in admin.get(f"{PAYMENTS}/{payment['id']}").text
        assert form not in reader.get(f"{PAYMENTS}/{payment['id']}").text
    assert reader.get(f"{PAYMENTS}/{open_one['id']}/cancel").status_code == 403
    for action in (f"{PAYMENTS}/{done['id']}/refund", f"{PAYMENTS}/{open_one['id']}/cancel"):
        assert reader.sends(PAYMENTS, action, amount="1").status_code == 403
    assert found(api, open_one)["status"] == "pending"
    assert api.get("/refunds").json()["data"]["refunds"] == []


def test_what_belongs_to_another_merchant_or_environment_opens_nowhere(
    gateway: Gateway, merchant: Merchant, api: httpx2.Client, admin: Visitor
) -> None:
    other = gateway.new_merchant()
    theirs, live = paid(other.client()), created(merchant.client(livemode=True))
    (event,) = other.client().get("/events", params={"object": theirs["id"], "limit": 1}).json()["data"]["events"]
    for foreign in (theirs["id"], live["id"], "pay_1", "pay_" + "0" * 26):
        path = f"{PAYMENTS}/{foreign}"
        assert admin.get(path).status_code == 404
        assert admin.get(f"{path}/cancel").status_code == 404
        for action in ("refund", "cancel"):
            assert admin.sends(PAYMENTS, f"{path}/{action}", amount="1").status_code == 404
    assert admin.get(f"/dashboard/sandbox/events/{event['id']}").status_code == 404
    assert (listed(admin.get(PAYMENTS)), exported(admin)) == ([], [])
    assert listed(admin.get(f"{PAYMENTS}?phone={PAYS.replace('+', '%2B')}")) == []
    assert found(merchant.client(livemode=True), live)["status"] == "pending"
    other.close()
