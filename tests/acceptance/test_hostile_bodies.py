"""Bodies that nobody should send, on every call that takes one: refused by name, and nothing of them is stored."""

import codecs
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.database import account_of, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.requests import (
    CHARGE,
    CLOCK,
    EVENTS,
    EVERY_CALL,
    PAYMENTS,
    REFUNDS,
    REJECT,
    WEBHOOKS,
    valid,
    valid_json,
    written,
)
from tests.support.wire import Header, RawAnswer, demand_a_refusal, demand_an_api_answer, exchange, request

SURROGATE = "\\ud800"
NUL = "\\u0000"
FAMILY = "👩\u200d👩\u200d👧\u200d👦"  # seven code points


def post(shop: Merchant, call: str, body: bytes, headers: tuple[Header, ...] = ()) -> RawAnswer:
    sent = request("POST", f"/sandbox/v1{call}", key=shop.sandbox["admin_key"], headers=headers, body=body)
    return exchange(shop.origin, sent)


# Whatever the call: its body, made of a valid one, and the field that is named.

AnyBody = Callable[[str], bytes]


def instead(body: bytes) -> AnyBody:
    """This body, whatever the call."""
    return lambda _: body


def behind(more: str | bytes) -> AnyBody:
    """A valid body with this text behind its last field."""
    return lambda call: valid_json(call, more)


def encoded_as(codec: str) -> AnyBody:
    return lambda call: valid_json(call).decode().encode(codec)


@dataclass(frozen=True)
class AnyCall:
    name: str
    body: AnyBody
    field: str = "body"


ON_EVERY_CALL = [
    AnyCall("nothing", instead(b"")),
    AnyCall("white space", instead(b" \r\n\t ")),
    AnyCall("null", instead(b"null")),
    AnyCall("an array", instead(b"[]")),
    AnyCall("an array of objects", instead(b"[{}]")),
    AnyCall("a string", instead(b'"x"')),
    AnyCall("a number", instead(b"1")),
    AnyCall("true", instead(b"true")),
    AnyCall("text", instead(b"hello")),
    AnyCall("a form", instead(b"amount=100&currency=ETB")),
    AnyCall("an open brace", instead(b"{")),
    AnyCall("an open string", lambda call: valid_json(call, b',"note":"')[:-1]),
    AnyCall("a comma too many", behind(b",")),
    AnyCall("single quotes", lambda call: valid_json(call).replace(b'"', b"'")),
    AnyCall("keys without quotes", instead(b"{amount:1}")),
    AnyCall("a comment", lambda call: valid_json(call) + b" // hello"),
    AnyCall("a comment inside", behind(b"/* hello */")),
    AnyCall("two documents", lambda call: valid_json(call) * 2),
    AnyCall("a zero byte behind it", lambda call: valid_json(call) + b"\0"),
    AnyCall("NaN", behind(b',"note":NaN')),
    AnyCall("Infinity", behind(b',"note":Infinity')),
    AnyCall("-Infinity", behind(b',"note":-Infinity')),
    AnyCall("a leading zero", behind(b',"note":01')),
    AnyCall("a plus sign", behind(b',"note":+1')),
    AnyCall("a hexadecimal number", behind(b',"note":0x10')),
    AnyCall("a number that ends in a point", behind(b',"note":1.')),
    AnyCall("an unknown escape", behind(b',"note":"\\x41"')),
    AnyCall("a cut escape", behind(b',"note":"\\u12"')),
    AnyCall("a raw newline in a string", behind(b',"note":"a\nb"')),
    AnyCall("a raw zero byte in a string", behind(b',"note":"a\0b"')),
    AnyCall("overlong UTF-8", behind(b',"note":"\xc0\x80"')),
    AnyCall("a surrogate in UTF-8", behind(b',"note":"\xed\xa0\x80"')),
    AnyCall("Latin-1", behind(b',"note":"caf\xe9"')),
    AnyCall("cut UTF-8", behind(b',"note":"caf\xc3"')),
    AnyCall("a code point above all", behind(b',"note":"\xf4\x90\x80\x80"')),
    AnyCall("a byte order mark", lambda call: codecs.BOM_UTF8 + valid_json(call)),
    AnyCall("UTF-16", encoded_as("utf-16")),
    AnyCall("UTF-16 without its mark", encoded_as("utf-16-le")),
    AnyCall("UTF-32", encoded_as("utf-32")),
    AnyCall("EBCDIC", encoded_as("cp500")),
    AnyCall("gzip", lambda call: gzip.compress(valid_json(call))),
    AnyCall("33 levels", behind(b',"note":' + b"[" * 32 + b"]" * 32)),
    AnyCall("900 levels", behind(b',"note":' + b"[" * 900 + b"]" * 900)),
    AnyCall("1,000 levels", behind(b',"note":' + b"[" * 1000 + b"]" * 1000)),
    AnyCall("30,000 levels", behind(b',"note":' + b"[" * 30_000 + b"]" * 30_000)),
    AnyCall("60,000 levels that never close", behind(b',"note":' + b"[" * 60_000)),
    AnyCall("1,000 levels of objects", behind(b',"note":' + b'{"a":' * 1000 + b"1" + b"}" * 1000)),
    AnyCall("a key twice", behind(b',"note":1,"note":2'), "note"),
    AnyCall("a key twice, once in escapes", behind(b',"note":1,"\\u006eote":2'), "note"),
    AnyCall("a key twice, far below", behind(b',"note":[{"a":{"b":1,"b":1}}]'), "note.a.b"),
    AnyCall("5,000 keys, each twice", behind("".join(f',"k{n}":1' for n in range(3000)) * 2), "k2999"),
    AnyCall("half a surrogate pair", behind(f',"note":"{SURROGATE}"'), "note"),
    AnyCall("the other half", behind(',"note":"a\\udfffb"'), "note"),
    AnyCall("halves in the wrong order", behind(',"note":"\\ude00\\ud83d"'), "note"),
    AnyCall("half a surrogate pair in a key", behind(f',"{SURROGATE}":1')),
    AnyCall("a NUL", behind(f',"note":"a{NUL}b"'), "note"),
    AnyCall("a NUL in a list", behind(f',"note":["{NUL}"]'), "note"),
    AnyCall("a NUL in a key", behind(f',"note":{{"a{NUL}":1}}'), "note"),
]


@pytest.mark.parametrize("call", [*EVERY_CALL, REFUNDS])
@pytest.mark.parametrize("row", ON_EVERY_CALL, ids=lambda row: row.name)
def test_what_is_no_body_is_refused_by_every_call(shop: Merchant, call: str, row: AnyCall) -> None:
    demand_a_refusal(post(shop, call, row.body(call)), 400, "validation_error", row.field)


# One call's own fields.


@dataclass(frozen=True)
class Bad:
    name: str
    call: str
    body: bytes
    field: str


def bad(call: str, field: str, *values: Any) -> list[Bad]:
    """A row for each of these values of a field."""
    return [Bad(f"{field} {value!r}"[:60], call, written(valid(call, **{field: value})), field) for value in values]


def bad_customer(part: str, *values: Any) -> list[Bad]:
    """A row for each of these values of a part of `customer`."""
    field = f"customer.{part}"
    bodies = [written(valid(PAYMENTS, customer={part: value})) for value in values]
    return [Bad(f"{field} {value!r}"[:60], PAYMENTS, body, field) for value, body in zip(values, bodies, strict=True)]


def bad_json(call: str, field: str, *texts: str) -> list[Bad]:
    """A row for each of these texts, which JSON writers would not write, as the value of a field."""
    others = {name: value for name, value in valid(call).items() if name != field}
    start = json.dumps(others).encode()[:-1] + (b"," if others else b"")
    return [Bad(f"{field} {text}"[:60], call, start + f'"{field}":{text}}}'.encode(), field) for text in texts]


def missing(call: str, field: str) -> Bad:
    return Bad(f"{field} missing", call, written({k: v for k, v in valid(call).items() if k != field}), field)


def behind_valid(name: str, call: str, field: str, more: str) -> Bad:
    """A valid body with this text behind its last field."""
    return Bad(name, call, valid_json(call, more), field)


AMOUNTS = [
    *("0", "0.0", "-0.0", "-1", "-0.01", "0.001", "0.005", "10.999", "1.999", "1e-3", "1e-400", "0e-400"),
    *("1e400", "1e30", "1e300", "1000000", "999999.991", "1000000.00", "9" * 50, "9" * 5000, "-" + "9" * 400),
    *("1e9999999999999999999", "1e-9999999999999999999", "0.1" + "0" * 60 + "1", "null", "true", "false"),
    *('"100"', '"NaN"', '"1_000"', '"١٢٣"', '" 5"', '"0x10"', '""', '"5.00"', f'"{SURROGATE}"', f'"{NUL}"'),
    *("[]", "[100]", "{}", '{"value":100}'),
]
# Amounts, if too large for a payment: more than is left of one, and so refused as that.
LARGE_AMOUNTS = ("1e30", "1000000", "1000000.00", "9" * 50, "9" * 5000, "1e300", "1e400")
PHONES = [
    *("0911223344", "0711223344", "911223344", "251911223344", "00251911223344", "+0911223344", "+25191122334"),
    *("+2519112233445", "+251911223344\n", " +251911223344", "+251 911 223344", "+251-911223344", "+٢٥١911223344"),
    *("＋251911223344", "tel:+251911223344", "+251911223344;ext=5", "+251911223344x5", "+" + "2" * 20, "+", ""),
    *("+1", "+999911223344", "+251911223344\u200b", "+" + "9" * 60_000, "' OR 1=1--"),
]
EMAILS = [
    *("", "abebe", "abebe@", "@example.com", "abebe@@example.com", "abebe@example", "a b@example.com", "abebe@.com"),
    *("abebe@example..com", "abebe@example.com\n", "abebe@example.com\r\nBcc: all@example.com", "<abebe@example.com>"),
    *("Abebe <abebe@example.com>", "abebe@exa_mple.com", "abebe@[127.0.0.1]", "abebe@-example.com", ".a@example.com"),
    *("a" * 65 + "@example.com", "a" * 243 + "@example.com", "a@" + "a." * 30_000 + "!", "a@a." * 10_000),
]
CALLBACK_URLS = [
    *("", "shop", "/thanks", "//evil.example", "javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x"),
    *("vbscript:x", "file:///etc/passwd", "ftp://shop.example.et", "mailto:a@example.com", "https:", "https://"),
    *("https:///thanks", "https:shop.example.et", "https://a\\@b", "https:\\\\shop.example.et", "http://[::1"),
    *(" https://shop.example.et", "https://shop.example.et/a b", "https://shop.example.et/\n", "https://shop\t.et"),
    *("https://shop.example.et:0/", "https://shop.example.et:99999/", "https://shop.example.et:x/", "https://:80/"),
    *("https://ሱቅ.example.et/", "https://shop.example.et/" + "a" * 2025, "http://" + "a" * 60_000),
]

METADATA_VALUES: list[Any] = [1, 1.5, True, None, [], {"a": "b"}, "v" * 501]

BAD_PAYMENTS = [
    *bad_json(PAYMENTS, "amount", *AMOUNTS),
    missing(PAYMENTS, "amount"),
    behind_valid("amount twice", PAYMENTS, "amount", ',"amount":1'),
    behind_valid("amount twice, the same", PAYMENTS, "amount", ',"amount":100'),
    *bad(PAYMENTS, "currency", "USD", "etb", "ETB ", "", "BIRR", None, 1, [], {}, ["ETB"], "ЕТВ"),
    missing(PAYMENTS, "currency"),
    *bad(PAYMENTS, "payment_method", "card", "MOBILE_MONEY", "", "mobile_money ", 1, True, ["mobile_money"], {}),
    *bad(PAYMENTS, "customer", "x", "", 1, True, [], [{}]),
    *bad_customer("phone", *PHONES, 251911223344, True, []),
    *bad_customer("email", *EMAILS, 1, [], {"a": "b"}),
    *bad_customer("name", "a" * 201, "😀" * 201, 1, True, []),
    *bad_customer("id", "cus_00000000000000000000000000", "pay_00000000000000000000000000", "", "x", 1, []),
    *bad(PAYMENTS, "description", "a" * 501, "a" * 10_001, FAMILY * 72, "\u0301" * 501, 1, True, [], {}, ["text"]),
    *bad(PAYMENTS, "callback_url", *CALLBACK_URLS, 1, [], {}),
    *bad(PAYMENTS, "metadata", "x", 1, True, [], [["a", "b"]], {"k" * 41: ""}, {"": "x"}),
    *bad(PAYMENTS, "metadata", {str(number): "" for number in range(51)}, {str(number): "" for number in range(5000)}),
    *(
        Bad(f"metadata value {value!r}"[:40], PAYMENTS, written(valid(PAYMENTS, metadata={"k": value})), "metadata.k")
        for value in METADATA_VALUES
    ),
    behind_valid("1,000 levels of metadata", PAYMENTS, "body", ',"metadata":' + '{"a":' * 1000 + "1" + "}" * 1000),
    behind_valid("a NUL in a metadata value", PAYMENTS, "metadata.k", f',"metadata":{{"k":"{NUL}"}}'),
    behind_valid("a NUL in a metadata key", PAYMENTS, "metadata", f',"metadata":{{"{NUL}":"v"}}'),
    behind_valid("half a pair in a metadata key", PAYMENTS, "metadata", f',"metadata":{{"{SURROGATE}":"v"}}'),
    behind_valid("a metadata key twice", PAYMENTS, "metadata.k", ',"metadata":{"k":"v","\\u006b":"v"}'),
    behind_valid("half a pair in a name", PAYMENTS, "customer.name", f',"customer":{{"name":"{SURROGATE}"}}'),
    behind_valid("a NUL in the description", PAYMENTS, "description", f',"description":"{NUL}"'),
    *bad(PAYMENTS, "reference", "", "r" * 256, 1, [], {}),
    *bad(PAYMENTS, "expires_in", 299, 2592001, 0, -1, 3600.5, "3600", True, [], 10**30, -(10**40)),
    *bad(PAYMENTS, "mobile_money_provider", "Telebirr", "", "cbe", 1, [], {}),
    behind_valid("a wallet without a phone", PAYMENTS, "customer.phone", ',"mobile_money_provider":"telebirr"'),
]
BAD_WEBHOOKS = [
    *bad(WEBHOOKS, "events", [], None, "payment.completed", "*", 1, True, {}, [1], [None], [[]], [""], ["*", "x"]),
    *bad(WEBHOOKS, "events", ["payment.*"], ["payment.unknown"], ["PAYMENT.COMPLETED"], ["payment.completed "]),
    *bad(WEBHOOKS, "events", ["*", "payment.completed"], ["payment.completed"] * 1000, ["x" * 60_000]),
    missing(WEBHOOKS, "events"),
    *bad(WEBHOOKS, "url", None, 1, True, [], {}, "", "x", "http://shop.example.et/" + "a" * 2026),
    missing(WEBHOOKS, "url"),
    *bad(WEBHOOKS, "description", "a" * 501, 1, []),
    *bad_json(WEBHOOKS, "url", f'"http://shop.example.et/{NUL}"'),
    *bad_json(WEBHOOKS, "events", f'["{NUL}"]', f'["{SURROGATE}"]'),
]
BAD_CLOCKS = [
    *bad_json(CLOCK, "advance_seconds", "0", "-1", "31622401", "1.5", "1.0", "1e3", "1e400", "9" * 30, "9" * 5000),
    *bad_json(CLOCK, "advance_seconds", '"60"', "true", "null", "[]", "{}"),
    missing(CLOCK, "advance_seconds"),
]
BAD_REFUNDS = [
    *bad_json(REFUNDS, "amount", *(amount for amount in AMOUNTS if amount not in LARGE_AMOUNTS)),
    missing(REFUNDS, "payment_id"),
    *bad(REFUNDS, "payment_id", None, 1, True, [], {}),
    *bad(REFUNDS, "reason", "a" * 501, 1, [], {}),
    *bad(REFUNDS, "metadata", "x", [], {"k" * 41: ""}, {"": "x"}),
    behind_valid("amount twice", REFUNDS, "amount", ',"amount":1'),
]
BAD_CHARGES = [
    *bad(CHARGE, "phone", *PHONES, 1, []),
    *bad(CHARGE, "mobile_money_provider", "Telebirr", "", "cbe", 1, [], {}),
    *bad(REJECT, "reason", "a" * 501, 1, [], {}),
    *bad(EVENTS, "type", "payment.paid", "*", "", None, 1, [], {}),
]
BAD = [*BAD_PAYMENTS, *BAD_WEBHOOKS, *BAD_CLOCKS, *BAD_REFUNDS, *BAD_CHARGES]


@pytest.mark.parametrize("row", BAD, ids=lambda row: f"{row.call} {row.name}")
def test_a_value_of_the_wrong_kind_is_refused_by_its_name(shop: Merchant, row: Bad) -> None:
    demand_a_refusal(post(shop, row.call, row.body), 400, "validation_error", row.field)


def test_nothing_of_a_refused_body_is_stored(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    accounts = account_of(gateway, shop.sandbox["admin_key"]), account_of(gateway, shop.live["admin_key"])
    before = stored_rows(gateway, *accounts)
    for call in EVERY_CALL:
        for row in ON_EVERY_CALL:
            assert post(shop, call, row.body(call)).status == 400, row.name
    for row in BAD:
        assert post(shop, row.call, row.body).status == 400, row.name
    assert stored_rows(gateway, *accounts) == before
    assert post(shop, PAYMENTS, valid_json(PAYMENTS)).status == 201
    assert stored_rows(gateway, *accounts) != before


def test_every_fault_of_a_payment_is_told_at_once(shop: Merchant) -> None:
    body = {
        "amount": 0.001,
        "currency": "USD",
        "customer": {"email": "x", "phone": "0911223344", "name": 1},
        "description": "a" * 501,
        "callback_url": "javascript:alert(1)",
        "payment_method": "card",
        "metadata": {"a": 1, "b": "v" * 501},
        "reference": "",
        "expires_in": 1,
        "mobile_money_provider": "cash",
    }
    answer = post(shop, PAYMENTS, written(body))
    demand_a_refusal(answer, 400, "validation_error")
    assert sorted(answer.fields) == [
        *("amount", "callback_url", "currency", "customer.email", "customer.name", "customer.phone"),
        *(
            "description",
            "expires_in",
            "metadata.a",
            "metadata.b",
            "mobile_money_provider",
            "payment_method",
            "reference",
        ),
    ]


def test_faults_that_only_the_account_knows_are_told_with_the_others(shop: Merchant) -> None:
    answer = post(shop, PAYMENTS, written(valid(PAYMENTS, amount=1_000_000, description=1)))
    assert sorted(answer.fields) == ["amount", "description"]
    answer = post(shop, WEBHOOKS, written(valid(WEBHOOKS, url="http://a b/", events=[])))
    assert sorted(answer.fields) == ["events", "url"]


# Bodies that look hostile and are welcome.


@dataclass(frozen=True)
class Welcome:
    name: str
    body: AnyBody


WELCOME = [
    Welcome("white space around", lambda call: b"\r\n\t " + valid_json(call) + b" \r\n"),
    Welcome("unknown fields", behind(b',"note":1,"status":"completed","fee":[{"a":null}]')),
    Welcome("32 levels", behind(b',"note":' + b"[" * 31 + b"]" * 31)),
    Welcome("an escape", behind(b',"note":"\\u00e9\\n\\/"')),
    Welcome("a surrogate pair", behind(b',"note":"\\ud83d\\ude00"')),
    Welcome("an empty key", behind(b',"":1')),
    Welcome("an unknown number beyond a double", behind(b',"note":' + b"9" * 400)),
    Welcome("an unknown number beyond everything", behind(b',"note":1e9999999999999999999')),
    Welcome("the same key in two objects", behind(b',"note":[{"a":1},{"a":1}]')),
    Welcome("optional fields as null", behind(b',"description":null')),
    Welcome("exactly 64 KiB", lambda call: valid_json(call).ljust(64 * 1024)),
    Welcome("5,000 unknown keys", behind("".join(f',"k{number}":1' for number in range(5000)))),
    Welcome("5,000 unknown keys and an escape", behind("".join(f',"k{n}":1' for n in range(5000)) + ',"note":"\\n"')),
    Welcome("30,000 unknown backslashes", behind(',"note":"' + "\\\\" * 30_000 + '"')),
]


@pytest.mark.parametrize("call", EVERY_CALL)
@pytest.mark.parametrize("row", WELCOME, ids=lambda row: row.name)
def test_a_strange_body_that_says_all_it_must_is_accepted(gateway: Gateway, call: str, row: Welcome) -> None:
    answer = post(gateway.new_merchant(), call, row.body(call))
    demand_an_api_answer(answer)
    assert answer.status == (200 if call == CLOCK else 201)
