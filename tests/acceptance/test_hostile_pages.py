"""The payment page under people who are not its payer, or pay in ways that nobody should."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.support.database import account_of, query, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.requests import CLOCK, PAYMENTS, valid, written
from tests.support.wire import Header, RawAnswer, exchange, request

FORM: Header = ("Content-Type", "application/x-www-form-urlencoded")
PAYER = {"mobile_money_provider": "telebirr", "phone": "0911223344"}
ACTIONS = ("charge", "resend", "cancel", "handset", "expire")
BESIDE = ("status", "events", "qr.png", "qr.svg")


@dataclass(frozen=True)
class Page:
    """A payment page, and how its merchant looks on."""

    gateway: Gateway
    shop: Merchant
    payment: dict[str, Any]

    @property
    def path(self) -> str:
        link: str = self.payment["payment_link"]
        return urlsplit(link).path

    @property
    def token(self) -> str:
        return self.path.removeprefix("/p/")

    @property
    def form_token(self) -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', self.show().body.decode())
        assert found is not None
        return found[1]

    def show(self, path: str | None = None, *, method: str = "GET") -> RawAnswer:
        return exchange(self.shop.origin, request(method, path or self.path))

    def send(
        self, action: str, fields: dict[str, str] | bytes, *, path: str | None = None, headers: tuple[Header, ...] = ()
    ) -> RawAnswer:
        body = fields if isinstance(fields, bytes) else urlencode(fields).encode()
        given = headers if any(name == "Content-Type" for name, _ in headers) else (FORM, *headers)
        return exchange(self.shop.origin, request("POST", f"{path or self.path}/{action}", headers=given, body=body))

    def status(self) -> str:
        return self._read()["status"]

    def amount(self) -> float:
        return self._read()["amount"]

    def _read(self) -> dict[str, Any]:
        sent = request("GET", f"/sandbox/v1/payments/{self.payment['id']}", key=self.shop.sandbox["admin_key"])
        return exchange(self.shop.origin, sent).json["data"]

    def charges(self) -> int:
        account = account_of(self.gateway, self.shop.sandbox["admin_key"])
        return query(self.gateway, "SELECT count(*) AS n FROM charges WHERE account_id = $1", account)[0]["n"]


@pytest.fixture
def page(gateway: Gateway) -> Page:
    shop = gateway.new_merchant()
    sent = request("POST", "/sandbox/v1/payments", key=shop.sandbox["admin_key"], body=written(valid(PAYMENTS)))
    return Page(gateway, shop, exchange(shop.origin, sent).json["data"])


def demand_a_page(answer: RawAnswer) -> None:
    """What holds for every page: HTML that nobody frames, caches, or learns the address of."""
    assert answer.status < 500
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def with_other(text: str, place: int) -> str:
    other = "A" if text[place] != "A" else "B"
    return text[:place] + other + text[place:][1:]


WRONG_TOKENS: dict[str, Callable[[str], str]] = {
    "the secret's last letter": lambda token: with_other(token, -1),
    "the secret's first letter": lambda token: with_other(token, 31),
    "the payment's id": lambda token: with_other(token, 20),
    "the account": lambda token: with_other(token, 5),
    "swapped case": str.swapcase,
    "small letters": str.lower,
    "cut": lambda token: token[:-1],
    "half": lambda token: token[:26],
    "longer": lambda token: token + "A",
    "twice": lambda token: token * 2,
    "a slash behind it": lambda token: token + "/",
    "a zero byte behind it": lambda token: token + "%00",
    "a new line behind it": lambda token: token + "%0a",
    "a space before it": lambda token: "%20" + token,
    "bytes that are no text": lambda _: "%ff" * 52,
    "other letters": lambda _: "%E1%88%B0" * 52,
    "only A": lambda _: "A" * 52,
    "only underscores": lambda _: "_" * 52,
    "6,000 letters": lambda _: "A" * 6000,
    "a way up": lambda _: "..%2f..%2fetc%2fpasswd",
    "SQL": lambda _: "'%20OR%201=1--",
    "nothing": lambda _: "",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_a_link_that_is_not_exactly_ours_opens_nothing(page: Page, name: str) -> None:
    token = WRONG_TOKENS[name](page.token)
    assert token != page.token
    answer = page.show(f"/p/{token}")
    demand_a_page(answer)
    assert answer.status == 404
    assert page.payment["id"].encode() not in answer.body
    assert page.show(f"/r/{token}").status == 404
    for name in BESIDE:
        assert page.show(f"/p/{token}/{name}").status == 404
    form_token = page.form_token
    for action in ACTIONS:
        assert page.send(action, {**PAYER, "form_token": form_token}, path=f"/p/{token}").status in (404, 405)
    assert (page.status(), page.charges()) == ("pending", 0)


def test_an_address_of_10_kb_is_too_long(page: Page) -> None:
    assert page.show("/p/" + "A" * 10_000).status == 414


def test_the_right_link_opens_its_page(page: Page) -> None:
    answer = page.show()
    demand_a_page(answer)
    assert answer.status == 200
    assert page.show(method="HEAD").status == 200


STRANGE_FORMS: dict[str, bytes] = {
    "nothing": b"",
    "no token": urlencode(PAYER).encode(),
    "an empty token": urlencode({**PAYER, "form_token": ""}).encode(),
    "a token of nobody": urlencode({**PAYER, "form_token": "0" * 32}).encode(),
    "a token of other letters": urlencode({**PAYER, "form_token": "é" * 32}).encode(),
    "bytes that are no text": b"form_token=%ff%fe&phone=%ff",
    "raw bytes": bytes(range(256)),
    "JSON": b'{"form_token":"x"}',
    "1,000 fields": b"&".join(b"a%d=1" % number for number in range(1000)),
    "20 kB": b"phone=" + b"0" * 20_000,
    "a cut escape": b"form_token=%e1%8",
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", STRANGE_FORMS)
def test_a_form_that_our_page_did_not_send_changes_nothing(page: Page, action: str, name: str) -> None:
    answer = page.send(action, STRANGE_FORMS[name])
    demand_a_page(answer)
    assert answer.status in (403, 413)
    assert (page.status(), page.charges()) == ("pending", 0)


def test_another_pages_token_is_not_this_ones(page: Page, gateway: Gateway) -> None:
    sent = request("POST", "/sandbox/v1/payments", key=page.shop.sandbox["admin_key"], body=written(valid(PAYMENTS)))
    other = Page(gateway, page.shop, exchange(page.shop.origin, sent).json["data"])
    for action in ACTIONS:
        assert page.send(action, {**PAYER, "form_token": other.form_token, "answer": "approve"}).status == 403
    assert (page.status(), page.charges()) == ("pending", 0)


@pytest.mark.parametrize(
    "headers",
    [
        (("Sec-Fetch-Site", "cross-site"),),
        (("Sec-Fetch-Site", "same-site"),),
        (("Origin", "https://evil.example"),),
        (("Origin", "https://evil.example"), ("Host", "shop.example")),
    ],
    ids=lambda headers: f"{headers[0][0]} {headers[0][1]}",
)
@pytest.mark.parametrize("action", ACTIONS)
def test_a_form_from_another_site_changes_nothing(page: Page, action: str, headers: tuple[Header, ...]) -> None:
    fields = {**PAYER, "form_token": page.form_token, "answer": "approve"}
    answer = page.send(action, fields, headers=headers)
    demand_a_page(answer)
    assert answer.status == 403
    assert (page.status(), page.charges()) == ("pending", 0)


STRANGE_PAYERS = [
    *(
        {"phone": phone}
        for phone in ("", "x", "0", "٠٩١١٢٢٣٣٤٤", "0911223344\0", "+999999999999", "0" * 10_000, "<script>")
    ),
    *({"mobile_money_provider": wallet} for wallet in ("", "cash", "TELEBIRR", "telebirr\0", "<script>", "x" * 10_000)),
]


@pytest.mark.parametrize("change", STRANGE_PAYERS, ids=lambda change: ascii(change)[:50])
def test_a_phone_or_wallet_that_is_none_is_explained_and_charges_nothing(page: Page, change: dict[str, str]) -> None:
    answer = page.send("charge", {**PAYER, **change, "form_token": page.form_token})
    demand_a_page(answer)
    assert answer.status == 400
    assert b"<script>" not in answer.body
    assert (page.status(), page.charges()) == ("pending", 0)


def test_the_form_cannot_change_what_is_paid(page: Page) -> None:
    more = {"amount": "0.01", "currency": "USD", "status": "completed", "payment_id": "pay_1", "account_id": "1"}
    assert page.send("charge", {**PAYER, **more, "form_token": page.form_token}).status == 303
    assert (page.amount(), page.status(), page.charges()) == (100.0, "pending", 1)
    assert b"100.00" in page.show().body


def test_two_tabs_charge_once(page: Page) -> None:
    fields = {**PAYER, "form_token": page.form_token}
    assert [page.send("charge", fields).status for _ in range(3)] == [303] * 3
    assert page.charges() == 1


def test_a_cancelled_payment_cannot_be_paid(page: Page) -> None:
    fields = {**PAYER, "form_token": page.form_token, "answer": "approve"}
    assert page.send("cancel", fields).status == 303
    for action in ACTIONS:
        assert page.send(action, fields).status == 303
    demand_a_page(page.show())
    assert (page.status(), page.charges()) == ("cancelled", 0)


def test_an_expired_payment_cannot_be_paid(page: Page) -> None:
    fields = {**PAYER, "form_token": page.form_token, "answer": "approve"}
    sent = request("POST", f"/sandbox/v1{CLOCK}", key=page.shop.sandbox["admin_key"], body=b'{"advance_seconds":3600}')
    assert exchange(page.shop.origin, sent).status == 200
    for action in ACTIONS:
        assert page.send(action, fields).status == 303
    assert page.charges() == 0


def test_a_live_page_has_no_simulated_phone(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    sent = request("POST", "/v1/payments", key=shop.live["admin_key"], body=written(valid(PAYMENTS)))
    page = Page(gateway, shop, exchange(shop.origin, sent).json["data"])
    account = account_of(gateway, shop.live["admin_key"])
    before = stored_rows(gateway, account)
    for action in ("handset", "expire"):
        assert page.send(action, {"form_token": page.form_token, "answer": "approve"}).status == 404
    assert stored_rows(gateway, account) == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST"])
def test_a_page_is_only_looked_at(page: Page, method: str) -> None:
    answer = page.show(method=method)
    demand_a_page(answer)
    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


OUTSIDE = [
    *("/redoc", "/docs/", "/openapi.yaml", "/metrics", "/.git/config", "/.env", "/admin", "/server-status", "/debug"),
    *("/static/", "/static/../../etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "/p", "/p/", "/p//", "/v2/payments"),
    *("/sandbox", "/sandbox/", "/sandbox/v2", "/V1/payments", "/%00", "/%ff", "/..%2f..%2f", "/p/x/y/z", "//p/x"),
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_there_is_nothing_beside_the_pages(shop: Merchant, path: str) -> None:
    answer = exchange(shop.origin, request("GET", path))
    demand_a_page(answer)
    assert answer.status == 404


def test_two_slashes_lead_to_no_api(shop: Merchant) -> None:
    sent = request("GET", "//v1/payments", key=shop.live["admin_key"])
    assert exchange(shop.origin, sent).status in (400, 404)


def test_a_request_is_not_sent_again_before_its_time(page: Page) -> None:
    fields = {**PAYER, "form_token": page.form_token}
    assert page.send("charge", fields).status == 303
    for _ in range(3):
        assert page.send("resend", {"form_token": page.form_token, "phone": "0711223344"}).status == 303
    assert page.charges() == 1


def test_the_link_cannot_be_found_from_the_receipt(page: Page) -> None:
    """Nor does the one open what the other opens."""
    fields = {**PAYER, "phone": "0900000000", "form_token": page.form_token}
    assert page.send("charge", fields).status == 303
    deadline = time.monotonic() + 10
    while page.status() != "completed" and time.monotonic() < deadline:
        time.sleep(0.1)
    found = re.search(r'href="/r/([^"?]+)"', page.show().body.decode())
    assert found is not None
    receipt = page.show(f"/r/{found[1]}")
    demand_a_page(receipt)
    assert receipt.status == 200
    assert page.token.encode() not in receipt.body
    assert page.show(f"/r/{page.token}").status == 404
    for path in ("", *(f"/{name}" for name in BESIDE)):
        assert page.show(f"/p/{found[1]}{path}").status == 404
    assert page.show(f"/r/{with_other(found[1], -1)}").status == 404


def test_pages_name_no_other_host(page: Page) -> None:
    """Whatever the request says of its host; the reader's browser asks us, and nobody else."""
    for path in (page.path, "/", f"/p/{'A' * 52}"):
        headers = (("Host", "evil.example"), ("X-Forwarded-Host", "evil.example"), ("Forwarded", "host=evil.example"))
        body = exchange(page.shop.origin, request("GET", path, headers=headers)).body.decode()
        assert "evil.example" not in body
        for address in re.findall(r'(?:src|href|action|formaction)="([^"]*)"', body):
            assert re.match(r"/(?!/)|\?|data:image/svg|$", address), address


HOSTILE_TEXT = "<img src=x onerror=alert(1)>\u202e\"'&{{7*7}}</title><script>alert(1)</script>"


def test_what_a_merchant_writes_is_shown_as_text(gateway: Gateway) -> None:
    shop = gateway.new_merchant(HOSTILE_TEXT)
    body = written(valid(PAYMENTS, description=HOSTILE_TEXT, callback_url="https://shop.example.et/?a='<b>&c=\""))
    sent = request("POST", "/sandbox/v1/payments", key=shop.sandbox["admin_key"], body=body)
    page = Page(gateway, shop, exchange(shop.origin, sent).json["data"])
    html = page.show().body
    assert b"<img src=x" not in html
    assert b"<script>alert" not in html
    assert b"&lt;img src=x onerror=alert(1)&gt;" in html
    assert b"{{7*7}}" in html
    assert b"'<b>" not in html
