"""Requests that are wrong before anybody reads their body: heads, sizes, lengths, media types, and time."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.database import account_of, query, stored_rows
from tests.support.gateway import Gateway, Merchant
from tests.support.requests import CLOCK, EVERY_CALL, PAYMENTS, valid_json
from tests.support.wire import (
    Header,
    RawAnswer,
    connect,
    demand_a_refusal,
    demand_an_api_answer,
    exchange,
    read_answer,
    request,
)

BODY_BYTES_MAX = 64 * 1024
SLOW_BODY_SECONDS = 20
SLOW_HEAD_SECONDS = 10
PAYMENT = valid_json(PAYMENTS)


def post(
    shop: Merchant,
    call: str = PAYMENTS,
    body: bytes = PAYMENT,
    headers: tuple[Header, ...] = (),
    *,
    role: str = "admin",
    livemode: bool = False,
) -> RawAnswer:
    keys = shop.live if livemode else shop.sandbox
    target = f"{'' if livemode else '/sandbox'}/v1{call}"
    return exchange(shop.origin, request("POST", target, key=keys[f"{role}_key"], headers=headers, body=body))


# Sizes.


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_body_over_64_kib_is_refused_and_the_connection_closed(shop: Merchant, call: str) -> None:
    assert post(shop, call, valid_json(call).ljust(BODY_BYTES_MAX)).status in (200, 201)
    answer = post(shop, call, valid_json(call).ljust(BODY_BYTES_MAX + 1))
    demand_a_refusal(answer, 413, "payload_too_large")
    assert answer.closed


@pytest.mark.parametrize("length", ["65537", "10000000000", "9" * 18, "9" * 19])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_body_that_announces_too_much_is_refused_before_it_comes(shop: Merchant, method: str, length: str) -> None:
    sent = request(method, "/sandbox/v1/payments", key=shop.sandbox["admin_key"], headers=[("Content-Length", length)])
    answer = exchange(shop.origin, sent)
    demand_a_refusal(answer, 413, "payload_too_large")
    assert answer.closed


def test_a_client_that_asks_first_is_told_no_instead_of_go_on(shop: Merchant) -> None:
    headers = [("Content-Length", "10000000000"), ("Expect", "100-continue")]
    sent = request("POST", "/sandbox/v1/payments", key=shop.sandbox["admin_key"], headers=headers)
    demand_a_refusal(exchange(shop.origin, sent), 413, "payload_too_large")


def test_chunks_without_end_are_cut_off(shop: Merchant) -> None:
    head = request(
        "POST",
        "/sandbox/v1/payments",
        key=shop.sandbox["admin_key"],
        headers=[("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")],
    )
    chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    with connect(shop.origin) as connection:
        connection.sendall(head)
        sent = 0
        with suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                connection.sendall(chunk)
                sent += 0x1000
        assert sent < 64 * 1024 * 1024
        # The refusal may be lost to the reset, but nothing else may come.
        with suppress(ConnectionError, EOFError):
            demand_a_refusal(read_answer(connection), 413, "payload_too_large")


def test_chunks_are_a_body_like_any_other(shop: Merchant) -> None:
    chunked = b"".join(b"%x;note=x\r\n%c\r\n" % (1, byte) for byte in PAYMENT) + b"0\r\n\r\n"
    answer = post(shop, body=chunked, headers=(("Transfer-Encoding", "chunked"),))
    demand_an_api_answer(answer)
    assert answer.status == 201


# Heads.

Head = Callable[[str], bytes]


def with_key(first_line: bytes, *more: bytes, body: bytes = b"", end: bytes = b"\r\n") -> Head:
    """A request written line by line; the key comes as the second line."""

    def head(key: str) -> bytes:
        lines = [first_line, b"Authorization: Bearer " + key.encode(), *more]
        return end.join(lines) + end * 2 + body

    return head


HOST = b"Host: zembil.test"
JSON = b"Content-Type: application/json"
LENGTH = b"Content-Length: %d" % len(PAYMENT)
POST_LINE = b"POST /sandbox/v1/payments HTTP/1.1"
GET_LINE = b"GET /sandbox/v1/payments HTTP/1.1"
CHUNKED = b"Transfer-Encoding: chunked"
SMUGGLED = b"0\r\n\r\nGET /sandbox/v1/payments HTTP/1.1\r\n\r\n"

MALFORMED: dict[str, Head] = {
    "length and chunks": with_key(
        POST_LINE, HOST, JSON, LENGTH, CHUNKED, body=b"0\r\n\r\n" + PAYMENT
    ),
    "chunks and length": with_key(POST_LINE, HOST, JSON, CHUNKED, b"Content-Length: 4", body=SMUGGLED),
    "two lengths": with_key(POST_LINE, HOST, JSON, LENGTH, b"Content-Length: 4", body=PAYMENT),
    "the same length twice": with_key(POST_LINE, HOST, JSON, LENGTH, LENGTH, body=PAYMENT),
    "a list of lengths": with_key(POST_LINE, HOST, JSON, b"Content-Length: 4, 4", body=PAYMENT),
    "a negative length": with_key(POST_LINE, HOST, JSON, b"Content-Length: -1", body=PAYMENT),
    "a length with a sign": with_key(POST_LINE, HOST, JSON, b"Content-Length: +40", body=PAYMENT),
    "a hexadecimal length": with_key(POST_LINE, HOST, JSON, b"Content-Length: 0x28", body=PAYMENT),
    "a length of 400 digits": with_key(POST_LINE, HOST, JSON, b"Content-Length: " + b"9" * 400),
    "xchunked": with_key(POST_LINE, HOST, JSON, b"Transfer-Encoding: xchunked", body=SMUGGLED),
    "chunked, but not last": with_key(POST_LINE, HOST, JSON, b"Transfer-Encoding: chunked, identity", body=SMUGGLED),
    "two transfer encodings": with_key(
        POST_LINE, HOST, JSON, CHUNKED, b"Transfer-Encoding: identity", body=SMUGGLED
    ),
    "a chunk without a size": with_key(POST_LINE, HOST, JSON, CHUNKED, body=b"\r\nx\r\n0\r\n\r\n"),
    "a chunk of a negative size": with_key(POST_LINE, HOST, JSON, CHUNKED, body=b"-1\r\nx\r\n0\r\n\r\n"),
    "a chunk longer than it says": with_key(POST_LINE, HOST, JSON, CHUNKED, body=b"1\r\nxx\r\n0\r\n\r\n"),
    "a chunk of an endless size": with_key(POST_LINE, HOST, JSON, CHUNKED, body=b"f" * 20 + b"\r\nx"),
    "white space before the colon": with_key(GET_LINE, HOST, b"X-Note : 1"),
    "a folded header": with_key(GET_LINE, HOST, b"X-Note: a", b" b: c"),
    "a header without a name": with_key(GET_LINE, HOST, b": x"),
    "a header without a colon": with_key(GET_LINE, HOST, b"X-Note"),
    "a zero byte in a header": with_key(GET_LINE, HOST, b"X-Note: a\0b"),
    "a zero byte in a name": with_key(GET_LINE, HOST, b"X\0Note: a"),
    "a bare line feed": with_key(GET_LINE, HOST, end=b"\n"),
    "a bare carriage return": with_key(GET_LINE, HOST, b"X-Note: a\rGET /x: b"),
    "HTTP/3.0": with_key(b"GET /sandbox/v1/payments HTTP/3.0", HOST),
    "HTTP/9.9": with_key(b"GET /sandbox/v1/payments HTTP/9.9", HOST),
    "HTTP/1.10": with_key(b"GET /sandbox/v1/payments HTTP/1.10", HOST),
    "http/1.1 in small letters": with_key(b"GET /sandbox/v1/payments http/1.1", HOST),
    "no version": with_key(b"GET /sandbox/v1/payments", HOST),
    "no target": with_key(b"GET  HTTP/1.1", HOST),
    "an unknown method": with_key(b"FETCH /sandbox/v1/payments HTTP/1.1", HOST),
    "a method in small letters": with_key(b"get /sandbox/v1/payments HTTP/1.1", HOST),
    "a space in the target": with_key(b"GET /sandbox/v1/payments HTTP/1.1 HTTP/1.1", HOST),
    "a zero byte in the target": with_key(b"GET /sandbox/v1/pay\0ments HTTP/1.1", HOST),
    "a tunnel": with_key(b"CONNECT zembil.test:443 HTTP/1.1", HOST),
    "TLS": lambda _: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
    "HTTP/2": lambda _: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another protocol": lambda _: b"EHLO zembil.test\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_request_that_two_readers_could_read_differently_is_refused(gateway: Gateway, name: str) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["admin_key"]
    account = account_of(gateway, key)
    before = stored_rows(gateway, account)
    answer = exchange(shop.origin, MALFORMED[name](key))
    demand_an_api_answer(answer)
    assert answer.status == 400
    assert stored_rows(gateway, account) == before


def test_an_endless_address_is_refused(shop: Merchant) -> None:
    sent = request("GET", "/sandbox/v1/payments/pay_" + "0" * 70_000, key=shop.sandbox["admin_key"])
    answer = exchange(shop.origin, sent)
    demand_an_api_answer(answer)
    assert (answer.status, answer.closed) == (414, True)


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Note", "x" * 33_000)],
        [("X-Note", "x")] * 6000,
        [("x" * 33_000, "")],
        [("Cookie", "x" * 40_000)],
        [("Authorization", "Bearer " + "x" * 40_000)],
    ],
    ids=["one long", "many", "a long name", "cookies", "an endless key"],
)
def test_headers_over_32_kib_are_refused(shop: Merchant, headers: list[Header]) -> None:
    answer = exchange(shop.origin, request("GET", "/sandbox/v1/payments", headers=headers))
    demand_an_api_answer(answer)
    assert (answer.status, answer.closed) == (431, True)


def test_a_header_without_end_is_cut_off(shop: Merchant) -> None:
    part = b"x" * 65_536
    with connect(shop.origin) as connection:
        connection.sendall(GET_LINE + b"\r\nX-Note: ")
        sent = 0
        with suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                connection.sendall(part)
                sent += len(part)
        assert sent < 64 * 1024 * 1024


def test_a_trailer_is_no_header(shop: Merchant) -> None:
    key = shop.sandbox["admin_key"]
    body = b"%x\r\n%s\r\n0\r\nAuthorization: Bearer %s\r\n\r\n" % (len(PAYMENT), PAYMENT, key.encode())
    headers = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json"), ("Trailer", "Authorization")]
    answer = exchange(shop.origin, request("POST", "/sandbox/v1/payments", headers=headers, body=body))
    demand_a_refusal(answer, 401, "authentication_failed")


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "HTTP/3.0"])
def test_an_offer_of_another_protocol_is_passed_over(shop: Merchant, upgrade: str) -> None:
    answer = post(shop, headers=(("Connection", "Upgrade"), ("Upgrade", upgrade)))
    demand_an_api_answer(answer)
    assert answer.status == 201


def test_requests_in_one_go_are_answered_one_after_the_other(shop: Merchant) -> None:
    key = shop.sandbox["admin_key"]
    first = request("POST", "/sandbox/v1/payments", key=key, body=PAYMENT)
    second = request("GET", "/sandbox/v1/nowhere", key=key)
    third = request("GET", "/sandbox/v1/payments", headers=[("Connection", "close")])
    with connect(shop.origin) as connection:
        connection.sendall(first + second + third)
        stream = b""
        with suppress(ConnectionError):
            while received := connection.recv(65_536):
                stream += received
    assert stream.count(b"HTTP/1.1 ") == 3
    assert stream.index(b"201 Created") < stream.index(b"404 Not Found") < stream.index(b"401 Unauthorized")


# Media types.

MEDIA_TYPES = [
    *("", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    *("application/json; charset=utf-16", "application/json; charset=latin-1", "application/json; charset=nonsense"),
    *("application/xml", "application/jsonx", "application/json-patch+json", "json", "*/*", "application/*"),
    *("application/vnd.api+json", "application/json, text/plain", "application/json; charset=", "application/ndjson"),
]
ENCODINGS = ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-gzip", "compress", "nonsense", ""]


@pytest.mark.parametrize("call", EVERY_CALL)
@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_a_body_that_is_not_said_to_be_json_is_refused(shop: Merchant, call: str, media_type: str) -> None:
    answer = post(shop, call, valid_json(call), (("Content-Type", media_type),))
    demand_a_refusal(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("call", EVERY_CALL)
@pytest.mark.parametrize("encoding", ENCODINGS[:-1])
def test_a_compressed_body_is_refused_and_never_inflated(shop: Merchant, call: str, encoding: str) -> None:
    answer = post(shop, call, valid_json(call), (("Content-Encoding", encoding),))
    demand_a_refusal(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "media_type",
    [
        *("application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;charset=UTF-8"),
        *('application/json; charset="utf-8"', "application/json ; charset=utf-8", " application/json "),
    ],
)
def test_json_by_any_of_its_spellings_is_accepted(shop: Merchant, media_type: str) -> None:
    assert post(shop, headers=(("Content-Type", media_type),)).status == 201


# The order of the checks: each of these is wrong in two ways, and the first is told.


def test_too_large_is_told_before_who_are_you(shop: Merchant) -> None:
    sent = request("POST", "/sandbox/v1/payments", body=b" " * (BODY_BYTES_MAX + 1))
    demand_a_refusal(exchange(shop.origin, sent), 413, "payload_too_large")


@pytest.mark.parametrize("base", ["/v1", "/sandbox/v1"])
@pytest.mark.parametrize("path", ["/nowhere", "/", "", "/payments/pay_1", "/test/clock"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "TRACE"])
def test_who_are_you_is_asked_before_there_is_nothing_here(shop: Merchant, base: str, path: str, method: str) -> None:
    demand_a_refusal(exchange(shop.origin, request(method, base + path)), 401, "authentication_failed")


def test_there_is_nothing_here_is_told_before_you_may_not(shop: Merchant) -> None:
    demand_a_refusal(post(shop, "/nowhere", role="read_only"), 404, "resource_not_found")
    demand_a_refusal(post(shop, "/payments/pay_1", role="read_only"), 405, "method_not_allowed")
    demand_a_refusal(post(shop, CLOCK, role="read_only", livemode=True), 404, "resource_not_found")


@pytest.mark.parametrize("call", EVERY_CALL)
def test_you_may_not_is_told_before_not_in_this_form(shop: Merchant, call: str) -> None:
    answer = post(shop, call, b"nonsense", (("Content-Type", "text/plain"),), role="read_only")
    demand_a_refusal(answer, 403, "permission_denied")


@pytest.mark.parametrize("call", EVERY_CALL)
def test_not_in_this_form_is_told_before_what_is_wrong_in_it(shop: Merchant, call: str) -> None:
    answer = post(shop, call, b"nonsense", (("Content-Type", "text/plain"),))
    demand_a_refusal(answer, 415, "unsupported_media_type")


def test_what_is_wrong_is_told_before_what_is_taken(shop: Merchant) -> None:
    taken = valid_json(PAYMENTS, ',"reference":"order-1"')
    assert post(shop, body=taken).status == 201
    answer = post(shop, body=valid_json(PAYMENTS, ',"reference":"order-1","description":1'))
    demand_a_refusal(answer, 400, "validation_error", "description")
    demand_a_refusal(post(shop, body=taken), 409, "duplicate_reference")


# Time. These wait for real bounds, all at once.


def seconds_until_closed(connection: socket.socket, drip: Callable[[], None]) -> tuple[float, bytes]:
    """Send a little every half second until the server closes; how long that took, and what it said."""
    began, said = time.monotonic(), b""
    connection.settimeout(0.5)
    while time.monotonic() - began < 2 * SLOW_BODY_SECONDS:
        with suppress(TimeoutError):
            try:
                received = connection.recv(65_536)
            except ConnectionError:
                return time.monotonic() - began, said
            if not received:
                return time.monotonic() - began, said
            said += received
            continue
        with suppress(ConnectionError):
            drip()
    raise AssertionError("the server holds on to a connection that does not end its request")


def test_who_does_not_finish_a_request_is_cut_off_and_nobody_waits_for_them(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["admin_key"]
    long = [("Content-Length", "1000"), ("Content-Type", "application/json")]
    chunks = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")]
    slow_body = request("POST", "/sandbox/v1/payments", key=key, headers=long) + b'{"amount":'
    slow_chunks = request("POST", "/sandbox/v1/payments", key=key, headers=chunks)
    slow_stranger = request("POST", "/sandbox/v1/payments", headers=long)
    starts = {
        "a body, byte by byte": (slow_body, b" ", SLOW_BODY_SECONDS),
        "a body that never goes on": (slow_body, b"", SLOW_BODY_SECONDS),
        "a body that never begins": (slow_stranger, b"", SLOW_BODY_SECONDS),
        "chunks that never begin": (slow_chunks, b"", SLOW_BODY_SECONDS),
        "chunks, byte by byte": (slow_chunks, b"1\r\n \r\n", SLOW_BODY_SECONDS),
        "a body of nobody we know": (slow_stranger, b" ", SLOW_BODY_SECONDS),
        "a head, byte by byte": (GET_LINE + b"\r\nX-Note: ", b"x", SLOW_HEAD_SECONDS),
        "headers without end": (GET_LINE + b"\r\n", b"X-Note: x\r\n", SLOW_HEAD_SECONDS),
        "nothing at all": (b"", b"", SLOW_HEAD_SECONDS),
    }

    def run(name: str) -> tuple[str, float, bytes]:
        start, drop, _ = starts[name]
        with connect(shop.origin) as connection:
            connection.sendall(start)
            seconds, said = seconds_until_closed(connection, lambda: connection.sendall(drop))
        return name, seconds, said

    half_open = [connect(shop.origin) for _ in range(200)]
    for number, connection in enumerate(half_open):
        connection.sendall((slow_body, GET_LINE)[number % 2])
    with ThreadPoolExecutor(len(starts)) as pool:
        slow = [pool.submit(run, name) for name in starts]
        for _ in range(10):
            assert post(shop).status == 201
        for name, seconds, said in [future.result() for future in slow]:
            bound = starts[name][2]
            assert bound - 1 < seconds < bound + 8, name
            assert said == b"" or b" 400 Bad Request" in said, name
    for connection in half_open:
        connection.settimeout(10)
        with suppress(ConnectionError):
            while connection.recv(65_536):
                pass
        connection.close()
    account = account_of(gateway, key)
    assert query(gateway, "SELECT count(*) AS n FROM payments WHERE account_id = $1", account)[0]["n"] == 10


def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(gateway: Gateway) -> None:
    shop = gateway.new_merchant()
    key = shop.sandbox["admin_key"]
    account = account_of(gateway, key)
    before = stored_rows(gateway, account)
    whole = request("POST", "/sandbox/v1/payments", key=key, body=PAYMENT)
    for length in range(10, len(whole), 10):
        with connect(shop.origin) as connection:
            connection.sendall(whole[:length])
    assert exchange(shop.origin, request("GET", "/sandbox/v1/payments", key=key)).status == 200
    assert stored_rows(gateway, account) == before
    # One that leaves before the answer has been heard all the same.
    with connect(shop.origin) as connection:
        connection.sendall(whole)
    deadline = time.monotonic() + 10
    while stored_rows(gateway, account)["payments"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
