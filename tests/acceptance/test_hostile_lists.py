"""Queries and paths that nobody should send to GET /payments and GET /payments/{payment_id}."""

import pytest

from tests.support.database import account_of, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.wire import RawAnswer, demand_a_refusal, demand_an_api_answer, exchange, request

UNKNOWN_ID = "pay_00000000000000000000000000"


def get(shop: Merchant, target: str | bytes, method: str = "GET") -> RawAnswer:
    path = target.encode() if isinstance(target, str) else target
    return exchange(shop.origin, request(method, b"/sandbox/v1" + path, key=shop.sandbox["admin_key"]))


BAD_QUERIES: dict[str, list[str]] = {
    "limit": [
        *("limit=0", "limit=101", "limit=-1", "limit=", "limit=ten", "limit=1.0", "limit=1e1", "limit=0x10"),
        *("limit=%2B5", "limit=+5", "limit=5+", "limit=%D9%A1", "limit=1%00", "limit=%00", "limit=%ff", "limit=1_0"),
        *("limit=10&limit=99", "limit=10&limit=10", "limit=10&lim%69t=99", "limit[]=1", "limit[0]=1", "limit%5B%5D=1"),
        *("limit=10&limit[]=10", f"limit={'9' * 5000}", "limit=null", "limit=true", "limit=10;offset=5"),
    ],
    "offset": [
        *("offset=-1", "offset=9223372036854775808", f"offset={10**23}", f"offset={'9' * 5000}", "offset="),
        *("offset=1.5", "offset=NaN", "offset=0&offset=0", "offset[a]=1", "offset=%EF%BC%91", "offset=1%20"),
    ],
    "status": [
        *("status=COMPLETED", "status=processing", "status=completed,failed", "status=", "status=%00", "status=%ff"),
        *("status=completed'%20OR%201=1--", "status=pending%00", "status=pending&status=failed", "status[]=pending"),
        *("status[$ne]=x", "status=+pending", "status=pending%0a", "status=%70ending%20", "status=null", "status=%zz"),
    ],
    "date_from": [
        *("date_from=0001-01-01T00:00:00%2B14:00", "date_from=9999-12-31T23:59:59-12:00", "date_from=", "date_from=-1"),
        *("date_from=2024-01-01T00:00:00%2B23:59", "date_from=2024-01-01T00:00:00%2B15:59", "date_from=yesterday"),
        *("date_from=2024-01-01T00:00:00%2B14:01", "date_from=2024-01-01T00:00:00%2B03:60", "date_from=1700000000"),
        *("date_from=2024-02-30", "date_from=2023-02-29", "date_from=2024-13-01", "date_from=2024-1-1"),
        *("date_from=0000-01-01", "date_from=10000-01-01", "date_from=2024-01-01T24:00:00Z", "date_from=%00"),
        *("date_from=2024-01-01T23:59:60Z", "date_from=2024-01-01T10:00Z", "date_from=2024-01-01T10Z", "date_from=%ff"),
        *("date_from=2024-01-01T10:00:00%2B0300", "date_from=2024-01-01T10:00:00%2B3", "date_from=20240101"),
        *("date_from=2024-W01-1", "date_from=%D9%A2024-01-01", "date_from=2024-01-01T10:00:00.Z", "date_from=now()"),
        *("date_from=2024-01-01&date_from=2024-01-02", "date_from[]=2024-01-01", "date_from=2024-01-01T10:00:00ZZ"),
        *("date_from=2024-01-02&date_to=2024-01-01", "date_from=2024-01-01T10:00:00Z&date_to=2024-01-01T09:59:59Z"),
        *("date_from=2024-01-01%0a", "date_from=2024"),
    ],
    "date_to": [
        *("date_to=9999-12-31T23:59:59-00:01", "date_to=2024-01-01'--", "date_to=", "date_to=infinity", "date_to=%00"),
        "date_to=2024-06-31",
    ],
    "reference": ["reference=", "reference=%00", "reference=a&reference=b", "reference[]=a", "reference=%c3%28"],
    "customer": ["customer=", "customer=1", "customer=cus_1", f"customer={UNKNOWN_ID}", "customer=%00"],
    "phone": ["phone=", "phone=%00", "phone=a&phone=b", "phone=%ed%a0%80"],
    "metadata.k": ["metadata[k]=%00", "metadata[k]=%ff", "metadata[k]=a&metadata[k]=b", "metadata%5Bk]&metadata[k]="],
    "metadata.": ["metadata[]=a"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "query"), [(field, query) for field, queries in BAD_QUERIES.items() for query in queries]
)
def test_a_query_that_means_nothing_is_refused_by_its_name(shop: Merchant, field: str, query: str) -> None:
    demand_a_refusal(get(shop, f"/payments?{query}"), 400, "validation_error", field)


def test_every_fault_of_a_query_is_told_at_once(shop: Merchant) -> None:
    answer = get(shop, "/payments?limit=0&offset=-1&status=x&date_from=x&date_to=x&reference=&customer=x&metadata[]=1")
    demand_a_refusal(answer, 400, "validation_error")
    assert sorted(answer.fields) == [
        *("customer", "date_from", "date_to", "limit", "metadata.", "offset", "reference", "status")
    ]


EMPTY_PAGES = [
    *("", "?", "?&&&", "?=", "?limit=1", "?limit=100", "?limit=007", "?offset=9223372036854775807"),
    *("?unknown=1&unknown=2", "?api_version[]=1", "?sort=;DROP TABLE payments".replace(" ", "%20"), "?%00=1", "?%ff=1"),
    *("?status=pending", "?status=%70ending", "?date_from=1999-01-01&date_to=2099-12-31", "?date_from=0001-01-01"),
    *("?date_from=2024-01-01T00:00:00+03:00", "?date_from=2024-01-01T00:00:00%2B03:00", "?date_to=9999-12-30"),
    *("?date_from=2024-01-01T00:00:00-00:00", "?date_from=2024-01-01T10:00:00", "?date_to=2024-01-01T10:00:00.1234567"),
    *("?date_from=2024-01-01t10:00:00z", "?date_from=2024-01-01%2010:00:00Z", "?date_from=2024-02-29"),
    *("?date_from=9999-12-31T23:59:59Z", "?date_from=9999-12-31T23:59:59.999999Z", "?date_to=9999-12-31T23:59:59.9999"),
    *("?date_from=9999-12-31", "?date_to=9999-12-31", "?date_to=0001-01-01", "?date_to=0001-01-01T00:00:00Z"),
    *("?date_from=2024-01-01T10:00:00.9999Z&date_to=2024-01-01T10:00:00.9999Z",),
    *("?reference=x'--", "?reference=%F0%9F%98%80", f"?reference={'r' * 5000}", "?phone=+251911223344", "?phone=%25"),
    *("?customer=cus_00000000000000000000000000", "?metadata[k]=v", "?metadata[k]=", "?metadata[k'--]=v"),
    *("?metadata[a][b]=v", "?metadata[%22]=%22", "?metadata[%5C]=%5Cu0000", "?metadata=x", "?metadata[$ne]=1"),
    *("?x=" + "y" * 7000, "?" + "&".join(f"metadata[{number}]=v" for number in range(300))),
]  # fmt: skip


@pytest.mark.parametrize("query", EMPTY_PAGES)
def test_a_strange_query_that_means_something_is_answered(shop: Merchant, query: str) -> None:
    answer = get(shop, f"/payments{query}")
    demand_an_api_answer(answer)
    assert answer.status == 200
    assert answer.json["data"]["payments"] == []
    assert answer.json["data"]["pagination"]["total"] == 0


UNKNOWN_PATHS: list[str | bytes] = [
    *("/payments/%00", "/payments/%ff", b"/payments/\xff", "/payments/..%2f..%2f", "/payments/.", "/payments/.."),
    *(f"/payments/pay_{'0' * 7000}", "/payments/pay_'--", f"/payments/{UNKNOWN_ID.upper()}"),
    *(f"/payments/%20{UNKNOWN_ID}", f"/payments/{UNKNOWN_ID}%00", f"/payments/{UNKNOWN_ID}%0a"),
    *(f"/payments/{UNKNOWN_ID}", f"/payments/{UNKNOWN_ID}%20"),
    *(f"/payments/{UNKNOWN_ID}/", f"/payments/{UNKNOWN_ID};x=1", f"/payments/{UNKNOWN_ID}%2f", "/payments/pay_"),
    *("/payments/ref_00000000000000000000000000", "/payments/txn_00000000000000000000000000", "/payments/1"),
    *("/payments/pay_8zzzzzzzzzzzzzzzzzzzzzzzzz", "/payments/pay_0000000000000000000000000i", "/payments/null"),
    *("/payments/pay_7zzzzzzzzzzzzzzzzzzzzzzzzz", "/payments/pay_0000000000000000000000000", "/payments/%E1%88%B0"),
    *("/payments/{payment_id}", "/payments/*", "/payments/%", "/payments/%zz", "/payments/%25%30%30"),
    *("/payments/", "/payments//", "//payments", "/./payments", "/x/../payments", "/payments;x=1", "/payments%20"),
    *("/PAYMENTS", "/Payments", "/payment", "/payments.json", "/payments%00", "/payments%2f", "/payments/%2e%2e", "/"),
    *("", "/webhooks/", "/webhooks/x", "/test", "/test/", "/test/clock/", "/test//clock", "/v1/payments"),
    *("/docs", "/openapi.json", "/metrics", "/.git/config", "/.env", "/admin", "/debug", "/refunds;", "/customers;"),
]  # fmt: skip


@pytest.mark.parametrize("path", UNKNOWN_PATHS)
def test_a_path_to_nothing_is_not_found(shop: Merchant, path: str | bytes) -> None:
    answer = get(shop, path)
    demand_an_api_answer(answer)
    # A byte that no address may hold is refused before there is a path.
    assert (answer.status, answer.code) in [(404, "resource_not_found"), (400, "validation_error")]
    assert answer.status == 404 or b"\xff" in (path if isinstance(path, bytes) else b"")


def test_an_escaped_letter_is_that_letter(shop: Merchant) -> None:
    assert get(shop, "/%70ayments").body == get(shop, "/payments").body


WRONG_METHODS = [
    *((method, "/payments", "GET, HEAD, POST") for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")),
    *((method, f"/payments/{UNKNOWN_ID}", "GET, HEAD") for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE")),
    *((method, "/test/clock", "GET, HEAD, POST") for method in ("PUT", "PATCH", "DELETE", "PROPFIND", "LOCK")),
]


@pytest.mark.parametrize(("method", "path", "allowed"), WRONG_METHODS)
def test_a_method_that_a_path_does_not_take_is_refused_with_those_it_takes(
    shop: Merchant, method: str, path: str, allowed: str
) -> None:
    answer = get(shop, path, method)
    demand_a_refusal(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed


def test_head_answers_the_headers_of_get(shop: Merchant) -> None:
    for path in ("/payments", f"/payments/{UNKNOWN_ID}", "/test/clock"):
        head, whole = get(shop, path, "HEAD"), get(shop, path)
        assert (head.status, head.body) == (whole.status, b"")
        assert head.headers["content-length"] == str(len(whole.body))


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-Method-Override", "X-HTTP-Method"])
def test_a_header_does_not_change_the_method(shop: Merchant, name: str) -> None:
    sent = request("GET", "/sandbox/v1/payments", key=shop.sandbox["admin_key"], headers=[(name, "DELETE")])
    assert exchange(shop.origin, sent).status == 200


def test_nothing_that_is_read_or_refused_stores_anything(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    account = account_of(gateway, shop.sandbox["admin_key"])
    before = stored_rows(gateway, account)
    for query in [query for queries in BAD_QUERIES.values() for query in queries]:
        assert get(shop, f"/payments?{query}").status == 400, query
    for path in UNKNOWN_PATHS:
        assert get(shop, path).status in (400, 404), path
    for method, path, _ in WRONG_METHODS:
        assert get(shop, path, method).status == 405, (method, path)
    assert stored_rows(gateway, account) == before
