"""What is stored and shown is what was sent, exactly; and what was not asked for is not there."""

import re
from typing import Any

import pytest

from tests.support.database import account_of, query
from tests.support.gateway import Gateway, Merchant
from tests.support.requests import CLOCK, PAYMENTS, WEBHOOKS, valid, written
from tests.support.wire import RawAnswer, demand_a_refusal, demand_an_api_answer, exchange, request
from zembil.ids import Prefix, parsed

FAMILY = "👩\u200d👩\u200d👧\u200d👦"  # seven code points


def create(shop: Merchant, body: bytes, headers: list[tuple[str, str | bytes]] | None = None) -> RawAnswer:
    sent = request("POST", "/sandbox/v1/payments", key=shop.sandbox["admin_key"], body=body, headers=headers or [])
    answer = exchange(shop.origin, sent)
    demand_an_api_answer(answer)
    assert answer.status == 201, answer.body
    return answer


def read(shop: Merchant, payment_id: str) -> RawAnswer:
    answer = exchange(shop.origin, request("GET", f"/sandbox/v1/payments/{payment_id}", key=shop.sandbox["admin_key"]))
    demand_an_api_answer(answer)
    return answer


def created_and_read(shop: Merchant, **fields: Any) -> dict[str, Any]:
    created = create(shop, written(valid(PAYMENTS, **fields))).json["data"]
    return read(shop, created["id"]).json["data"]


AMOUNTS = {
    "0.01": b"0.01",
    "0.1": b"0.10",
    "0.10": b"0.10",
    "0.29": b"0.29",
    "1": b"1.00",
    "1.1": b"1.10",
    "1.10000": b"1.10",
    "100.00": b"100.00",
    "100.000000": b"100.00",
    "1e2": b"100.00",
    "1E2": b"100.00",
    "1.0e+2": b"100.00",
    "10000e-2": b"100.00",
    "1.005e1": b"10.05",
    "4.35": b"4.35",
    "1.15": b"1.15",
    "70.07": b"70.07",
    "33.33": b"33.33",
    "1500.00": b"1500.00",
    "262143.99": b"262143.99",
    "999999.99": b"999999.99",
    "99999999e-2": b"999999.99",
    "0.01" + "0" * 60: b"0.01",
}


@pytest.mark.parametrize("sent", AMOUNTS)
def test_an_amount_is_read_back_exactly_with_two_decimals(shop: Merchant, sent: str) -> None:
    answer = create(shop, f'{{"amount":{sent},"currency":"ETB"}}'.encode())
    shown = re.compile(rb'"amount":([^,}]+)[,}]')
    assert shown.findall(answer.body) == [AMOUNTS[sent]]
    assert shown.findall(read(shop, answer.json["data"]["id"]).body) == [AMOUNTS[sent]]


TEXTS = {
    "Amharic": "ሰላም፣ ሁለት ከረጢት ቡና",
    "é in one code point": "caf\u00e9",
    "é in two code points": "cafe\u0301",
    "ligatures": "ﬁﬂ ﬀ",
    "emoji": "😀👍🏽",
    "a family": FAMILY,
    "71 families and three more": FAMILY * 71 + "abc",
    "500 emoji": "😀" * 500,
    "500 accents": "\u0301" * 500,
    "right to left, turned around": "Robert\u202eteboR",
    "isolates and joiners": "\u2066a\u2069\u200b\u200d\ufeff",
    "control characters": "a\tb\nc\rd\x01\x1b[31m\x7f",
    "line separators": "a\u2028b\u2029c\u0085d",
    "characters that are none": "\ufffe\uffff\U0010ffff",
    "private use": "\ue000\U000f0000",
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "SQL": "'); DROP TABLE payments; --",
    "a template": "{{ 7*7 }} ${7*7} %s %(x)s {0}",
    "a formula": "=HYPERLINK(\"http://evil.example\")",
    "quotes and backslashes": "\"'\\\\/ \\u0041",
    "white space around": "  two  spaces  ",
    "nothing": "",
    "a card number": "4111 1111 1111 1111",
    "log lines": "x\r\n{\"event\":\"payment.completed\"}",
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_comes_back_as_it_was_sent(shop: Merchant, name: str) -> None:
    text = TEXTS[name]
    payment = created_and_read(shop, description=text, metadata={"note": text, "k": "v"}, customer={"name": text[:200]})
    assert payment["description"] == text
    assert payment["metadata"] == {"note": text, "k": "v"}


def test_a_text_sent_in_escapes_is_the_same_text(shop: Merchant) -> None:
    created = create(shop, b'{"amount":1,"currency":"ETB","description":"\\u00e9\\ud83d\\ude00\\n\\/\\""}').json["data"]
    assert read(shop, created["id"]).json["data"]["description"] == 'é😀\n/"'


METADATA = [
    {"__class__": "x", "__proto__": "y", "constructor": "z"},
    {"a.b": "1", "a[b]": "2", "$set": "3", "%s": "4", "a:b/c": "5", " ": "6", "'": "7", '"': "8", "\\": "9"},
    {"ቁልፍ": "ዋጋ", "é": "1", "e\u0301": "2", "😀" * 40: "😀" * 500},
    {"k" * 40: "v" * 500},
    {str(number): "x" * 500 for number in range(50)},
    {"empty": "", "number": "007", "null": "null", "line": "a\nb"},
]


@pytest.mark.parametrize("metadata", METADATA, ids=lambda metadata: ascii(next(iter(metadata)))[:20])
def test_metadata_comes_back_as_it_was_sent(shop: Merchant, metadata: dict[str, str]) -> None:
    assert created_and_read(shop, metadata=metadata)["metadata"] == metadata


CUSTOMERS = [
    {"email": "abebe@example.com", "phone": "+251911223344"},
    {"email": "Abebe.B+tag@Example.COM", "phone": "+251711223344"},
    {"email": "a" * 64 + "@example.com", "phone": "+14155552671"},
    {"email": "o'brien@sub.example.co.uk", "phone": "+447911123456"},
    {"email": "abebe@ሱቅ.example", "phone": "+254712123456"},
    {"email": None, "phone": None},
]


@pytest.mark.parametrize("customer", CUSTOMERS)
def test_a_customer_comes_back_as_it_was_sent(shop: Merchant, customer: dict[str, str | None]) -> None:
    assert created_and_read(shop, customer=customer)["customer"] == customer


@pytest.mark.parametrize(
    "url",
    [
        *("https://shop.example.et/thanks?order=7#top", "http://127.0.0.1:8000/thanks", "HTTPS://Shop.Example.ET"),
        *("https://[::1]:8000/", "https://shop.example.et/%E1%88%B0", "http://localhost:3000/return?a=b&c=d"),
        "https://shop.example.et/" + "a" * 2024,
    ],
)
def test_a_callback_url_comes_back_as_it_was_sent(shop: Merchant, url: str) -> None:
    assert created_and_read(shop, callback_url=url)["callback_url"] == url


NOT_FOR_THE_CALLER: dict[str, Any] = {
    "id": "pay_00000000000000000000000000",
    "status": "completed",
    "livemode": True,
    "merchant_id": "mer_00000000000000000000000000",
    "account_id": 1,
    "transaction_id": "txn_00000000000000000000000000",
    "created_at": "2020-01-01T00:00:00.000Z",
    "completed_at": "2020-01-01T00:00:00.000Z",
    "expires_at": "2099-01-01T00:00:00.000Z",
    "payment_link": "https://evil.example/p/x",
    "qr_code": "data:image/png;base64,AAAA",
    "amount_refunded": 5,
    "amount_santim": 1,
    "failure_code": "declined",
    "cancellation_reason": "expired",
    "charges_sent": 5,
    "sequence": 9,
    "fee": 1,
    "link_secret": "AAAA",
    "__class__": "x",
}


def test_fields_that_are_not_the_callers_are_passed_over(gateway: Gateway, shop: Merchant) -> None:
    created = create(shop, written({**valid(PAYMENTS), **NOT_FOR_THE_CALLER})).json["data"]
    payment = read(shop, created["id"]).json["data"]
    plain = created_and_read(shop)
    assert payment.keys() == plain.keys()
    varying = {"id", "created_at", "expires_at", "payment_link"}
    assert {k: v for k, v in payment.items() if k not in varying} == {
        k: v for k, v in plain.items() if k not in varying
    }
    assert (payment["status"], payment["livemode"], payment["amount"]) == ("pending", False, 100.0)
    for name in varying | {"qr_code"}:
        assert created[name] != NOT_FOR_THE_CALLER[name]
    (row,) = query(
        gateway,
        "SELECT status, sequence, charges_sent, transaction_id FROM payments WHERE account_id = $1 AND id = $2",
        account_of(gateway, shop.sandbox["admin_key"]),
        parsed(Prefix.PAYMENT, payment["id"]),
    )
    assert tuple(row) == ("pending", 1, 0, None)


def test_an_endpoint_takes_only_what_is_the_callers(shop: Merchant) -> None:
    foreign = {"id": "whk_1", "secret": "whsec_x", "status": "disabled", "livemode": True, "enabled": False}
    sent = request(
        "POST", "/sandbox/v1/webhooks", key=shop.sandbox["admin_key"], body=written(valid(WEBHOOKS, **foreign))
    )
    endpoint = exchange(shop.origin, sent).json["data"]
    assert (endpoint["status"], endpoint["livemode"]) == ("enabled", False)
    assert endpoint["id"] != "whk_1"
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", endpoint["secret"])


def test_event_types_named_twice_are_one(shop: Merchant) -> None:
    body = valid(WEBHOOKS, events=["payment.failed", "payment.completed", "payment.failed"])
    sent = request("POST", "/sandbox/v1/webhooks", key=shop.sandbox["admin_key"], body=written(body))
    assert exchange(shop.origin, sent).json["data"]["events"] == ["payment.failed", "payment.completed"]


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "evil.example")],
        [("X-Forwarded-Host", "evil.example")],
        [("X-Forwarded-Proto", "javascript"), ("X-Forwarded-Port", "1")],
        [("Forwarded", "host=evil.example;proto=http")],
        [("X-Original-URL", "/v1/payments"), ("X-Rewrite-URL", "/v1/payments"), ("X-Forwarded-Prefix", "/evil")],
        [("Host", "")],
        [("Host", "evil.example"), ("Host", "worse.example")],
    ],
    ids=lambda headers: headers[0][0] + " " + headers[0][1],
)
def test_the_link_is_ours_whatever_host_is_asked_for(shop: Merchant, headers: list[tuple[str, str | bytes]]) -> None:
    created = create(shop, written(valid(PAYMENTS)), headers)
    assert created.json["data"]["payment_link"].startswith(f"{shop.origin}/p/")
    assert b"evil" not in created.body


def test_optional_fields_as_null_are_absent(shop: Merchant) -> None:
    optional = (
        *("customer", "description", "callback_url", "payment_method", "metadata", "reference", "expires_in"),
        "mobile_money_provider",
    )
    payment = created_and_read(shop, **dict.fromkeys(optional))
    assert payment.keys() == created_and_read(shop).keys()
    assert payment["customer"] == {"email": None, "phone": None}
    assert payment["payment_method"] == "mobile_money"


def test_the_seventeenth_endpoint_is_refused(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    sent = request("POST", "/sandbox/v1/webhooks", key=shop.sandbox["admin_key"], body=written(valid(WEBHOOKS)))
    for _ in range(16):
        assert exchange(shop.origin, sent).status == 201
    demand_a_refusal(exchange(shop.origin, sent), 400, "validation_error", "url")


def test_a_clock_ends_before_dates_do(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["admin_key"]
    account = account_of(gateway, key)
    query(gateway, "UPDATE accounts SET clock_offset = interval '970 years' WHERE id = $1", account)
    sent = request("POST", f"/sandbox/v1{CLOCK}", key=key, body=b'{"advance_seconds":31622400}')
    statuses = [exchange(shop.origin, sent).status for _ in range(4)]
    assert set(statuses) == {200, 400}
    demand_a_refusal(exchange(shop.origin, sent), 400, "validation_error", "advance_seconds")
    assert create(shop, written(valid(PAYMENTS))).json["data"]["expires_at"][:2] == "29"


LIVE_URLS = [
    *("http://shop.example.et/hooks", "https://127.0.0.1/", "https://10.0.0.1/", "https://169.254.169.254/latest"),
    *("https://[::1]/", "https://[64:ff9b::7f00:1]/", "https://0x7f000001/", "https://2130706433/", "https://0/"),
    *("https://①②⑦.0.0.1/", "https://localhost/", "https://localhost./", "https://shop.localhost/", "https://shop/"),
    *(
        "https://user:password@shop.example.et/",
        "https://shop.example.et\\@evil.example/",
        "https://shop.example.et:22/",
    ),
    *("https://shop.example.et:5432/".replace("5432", "80"), "https://shop.example.et:0/", "https://shop.example.et./"),
    *("https://shop.example.et/#x", "https://shop—x.example.et/", "https://xn--a/", "https://xn--zz-.example.et/"),
    *("https://" + "a" * 64 + ".example.et/", "https://ሱቅ.example.et/", "https://metadata.google.internal/", "//x.et/"),
]


@pytest.mark.parametrize("url", LIVE_URLS)
def test_live_events_go_to_no_address_that_leads_inside(shop: Merchant, url: str) -> None:
    body = written(valid(WEBHOOKS, url=url))
    answer = exchange(shop.origin, request("POST", "/v1/webhooks", key=shop.live["admin_key"], body=body))
    demand_a_refusal(answer, 400, "validation_error", "url")


def test_metadata_is_written_the_same_wherever_it_is_told(gateway: Gateway, shop: Merchant) -> None:
    api, metadata = shop.client(), {"order_id": '7001, "express": {x}', "ቡና": "2 kg", "table": "4", "a b": " , : "}
    payment = created_and_read(shop, metadata=metadata)
    told = '"metadata":{"a b":" , : ","table":"4","ቡና":"2 kg","order_id":"7001, \\"express\\": {x}"}'
    assert told in api.get(f"/payments/{payment['id']}").text
    assert api.post(f"/payments/{payment['id']}/cancel").status_code == 200
    payment_id = parsed(Prefix.PAYMENT, payment["id"])
    payloads = query(gateway, "SELECT payload FROM events WHERE object_id = $1", payment_id)
    assert [told in row["payload"].decode() for row in payloads] == [True, True]
