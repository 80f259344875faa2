"""Receivers that misbehave in every way known to us, all at once: three attempts each, and nobody else notices."""

import socket
import ssl
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import httpx2
import psutil
import pytest

from tests.acceptance.test_deliveries import advance, create, register, waiting
from tests.acceptance.test_dev import eventually
from tests.acceptance.test_webhook_endpoints import deliveries
from tests.support.certificates import Authority
from tests.support.gateway import Gateway, Merchant
from tests.support.hostile import (
    Behaviour,
    FullServer,
    HostileServer,
    answers,
    drips,
    floods,
    late,
    resets,
    says,
    stalls,
)
from tests.support.receiver import Receiver
from tests.support.serving import Deployment, deployed, names_as_told

GROWTH_BYTES_MAX = 50 * 1024 * 1024
WAIT_SECONDS_MAX = 3  # of somebody whose receiver behaves
KEPT_BYTES_MAX = 4096
TAKEN_BYTES_MAX = 1024 * 1024  # of one answer, with all that buffers hold
TAKEN: Counter[str] = Counter()

OK = b"HTTP/1.1 200 OK\r\n"
NO = b"HTTP/1.1 500 No\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
ODD = b"\x00 NUL, \xff\xfe no UTF-8, \xed\xa0\x80 half a pair, \xe1\x89"
BOMB = zlib.compress(bytes(100_000_000), wbits=31)
HUNDRED_MB = b"Content-Length: 100000000\r\n\r\n"


@dataclass(frozen=True)
class Row:
    """What a receiver does, and what is recorded of each of its attempts: a status, or a kind of error."""

    does: Behaviour
    status: int | None = None
    error: str | None = None


def flood(name: str, first: bytes, again: bytes) -> Behaviour:
    return floods(first, again, written=TAKEN, name=name)


METADATA_SERVICE = "http://169.254.169.254/latest/meta-data/"
ROWS: dict[str, Row] = {
    # In time, and not.
    "200-at-9-s": Row(late(9), 200),
    "200-at-10.3-s": Row(late(10.3), error="timeout"),
    "hangs": Row(stalls(), error="timeout"),
    "hangs-in-status-line": Row(stalls(b"HTTP/1.1 2"), error="timeout"),
    "hangs-in-headers": Row(stalls(OK + b"x-half: "), error="timeout"),
    "drips-headers": Row(drips(OK + b"x-slow: "), error="timeout"),
    "drips-interim": Row(drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), error="timeout"),
    "drips-body": Row(drips(OK + b"Content-Length: 100\r\n\r\n"), 200),
    "drips-body-500": Row(drips(NO + b"Content-Length: 100\r\n\r\n"), 500),
    "hangs-in-body": Row(stalls(OK + b"Content-Length: 100\r\n\r\nhalf"), 200),
    # Connections that end.
    "closes": Row(says(), error="connection_reset"),
    "resets": Row(resets(), error="connection_reset"),
    "resets-in-headers": Row(resets(OK + b"x-half: "), error="connection_reset"),
    "closes-in-headers": Row(says(OK + b"x-half: "), error="connection_reset"),
    "resets-after-headers": Row(resets(OK + b"Content-Length: 100\r\n\r\n"), 200),
    "resets-after-headers-500": Row(resets(NO + b"Content-Length: 100\r\n\r\n"), 500),
    # Too much.
    "100-mb": Row(flood("100-mb", OK + HUNDRED_MB, b"x" * 65536), 200),
    "100-mb-500": Row(flood("100-mb-500", NO + HUNDRED_MB, b"x" * 65536), 500),
    "endless-chunks": Row(flood("endless-chunks", NO + CHUNKED, b"2000\r\n" + b"z" * 8192 + b"\r\n"), 500),
    "endless-tiny-chunks": Row(flood("endless-tiny-chunks", NO + CHUNKED, b"1\r\nz\r\n" * 1000), 500),
    "endless-chunk-size": Row(flood("endless-chunk-size", NO + CHUNKED, b"0" * 8192), 500),
    "endless-chunk-extension": Row(flood("endless-chunk-extension", NO + CHUNKED + b"1;", b"a=b;" * 1000), 500),
    "endless-trailers": Row(flood("endless-trailers", NO + CHUNKED + b"0\r\n", b"a: b\r\n" * 1000), 500),
    "endless-body": Row(flood("endless-body", NO + b"\r\n", b"y" * 65536), 500),
    "endless-status-line": Row(flood("endless-status-line", b"HTTP/1.1 200 ", b"O" * 8192), error="invalid_answer"),
    "endless-header": Row(flood("endless-header", OK + b"x: ", b"a" * 8192), error="invalid_answer"),
    "endless-headers": Row(flood("endless-headers", OK, b"a: b\r\n" * 1000), error="invalid_answer"),
    "endless-empty-lines": Row(flood("endless-empty-lines", b"", b"\r\n" * 4000), error="invalid_answer"),
    "endless-continue": Row(
        flood("endless-continue", b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500), error="invalid_answer"
    ),
    "endless-early-hints": Row(
        flood("endless-early-hints", b"", b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n" * 300),
        error="invalid_answer",
    ),
    "header-of-1-mb": Row(says(OK + b"x: " + b"a" * 1_000_000 + b"\r\n\r\n"), error="invalid_answer"),
    "100000-headers": Row(says(OK + b"a: b\r\n" * 100_000 + b"\r\n"), error="invalid_answer"),
    "gzip-bomb": Row(says(OK + b"Content-Encoding: gzip\r\n\r\n", BOMB), 200),
    "gzip-bomb-500": Row(says(NO + b"Content-Encoding: gzip\r\n\r\n", BOMB), 500),
    "deflate-bomb": Row(says(NO + b"Content-Encoding: deflate, gzip, br\r\n\r\n", BOMB), 500),
    # Bodies that are no text.
    "nul-and-no-utf-8": Row(says(NO + b"\r\n", ODD * 300), 500),
    "all-bytes": Row(says(NO + b"\r\n", bytes(range(256)) * 32), 500),
    "says-utf-16": Row(says(NO + b"Content-Type: text/html; charset=utf-16\r\n\r\n", b"\xd8\x00" * 3000), 500),
    "unknown-charset": Row(says(NO + b"Content-Type: application/json; charset=utf-99\r\n\r\n", b"{"), 500),
    # Other answers.
    **{
        str(code): Row(answers(code), code)
        for code in (201, 202, 203, 204, 205, 206, 226, 299, 300, 304, 400, 404, 410, 500, 503, 599, 999)
    },
    "429": Row(answers(429, Retry_After="31536000"), 429),
    "503-retry-at-once": Row(answers(503, Retry_After="0"), 503),
    "199-and-no-more": Row(answers(199), error="connection_reset"),
    "100-then-200": Row(says(b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"), 200),
    "101": Row(says(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"), 101),
    **{f"{code}-inside": Row(answers(code, Location=METADATA_SERVICE), code) for code in (301, 302, 303, 307, 308)},
    "302-nowhere": Row(
        says(b"HTTP/1.1 302 X\r\nLocation: \xff\x00//[::\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"
    ),
    "cookies": Row(answers(500, Set_Cookie="a=b; Domain=127.0.0.1", Refresh=f"0; url={METADATA_SERVICE}"), 500),
    # Answers that contradict themselves.
    "length-too-long": Row(says(NO + b"Content-Length: 5000\r\n\r\nshort"), 500),
    "length-too-short": Row(says(NO + b"Content-Length: 2\r\n\r\nlonger than that"), 500),
    "200-length-too-short": Row(says(OK + b"Content-Length: 2\r\n\r\nlonger than that"), 200),
    "200-chunk-no-number": Row(says(OK + CHUNKED + b"zz\r\n"), 200),
    "200-head-in-pieces": Row(says(OK + CHUNKED[:-1], b"\nzz\r\n"), 200),
    "length-negative": Row(says(OK + b"Content-Length: -1\r\n\r\n"), error="invalid_answer"),
    "length-no-number": Row(says(OK + b"Content-Length: many\r\n\r\n"), error="invalid_answer"),
    "length-immense": Row(says(NO + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"), error="invalid_answer"),
    "lengths-two": Row(says(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), error="invalid_answer"),
    "length-and-chunks": Row(
        says(NO + b"Content-Length: 3\r\n" + CHUNKED + b"1\r\na\r\n0\r\n\r\n"), error="invalid_answer"
    ),
    "chunk-immense": Row(says(NO + CHUNKED + b"F" * 17 + b"\r\nx"), 500),
    "chunk-no-number": Row(says(NO + CHUNKED + b"5\r\nhello\r\nzz\r\n"), 500),
    "transfer-unknown": Row(says(NO + b"Transfer-Encoding: cow\r\n\r\nmoo"), 500),
    "answers-twice": Row(says(NO + b"Content-Length: 0\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n"), 500),
    # What is no HTTP.
    "ssh": Row(says(b"SSH-2.0-OpenSSH_9.9\r\n"), error="invalid_answer"),
    "http-0.9": Row(says(b"<html>OK</html>"), error="invalid_answer"),
    "http-2": Row(says(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"), error="invalid_answer"),
    "icy": Row(says(b"ICY 200 OK\r\n\r\n"), error="invalid_answer"),
    "http-9.9": Row(says(b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"),
    "status-2000": Row(says(b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"),
    "status-20": Row(says(b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"),
    "status-negative": Row(says(b"HTTP/1.1 -200 OK\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"),
    "status-word": Row(says(b"HTTP/1.1 OK 200\r\nContent-Length: 0\r\n\r\n"), error="invalid_answer"),
    "nul-in-header": Row(says(OK + b"x: a\x00b\r\n\r\n"), error="invalid_answer"),
    "nameless-header": Row(says(OK + b": x\r\n\r\n"), error="invalid_answer"),
    "header-without-colon": Row(says(OK + b"nothing\r\n\r\n"), error="invalid_answer"),
}


@dataclass(frozen=True)
class Elsewhere:
    """A receiver that is not one path of the server."""

    url: str
    error: str | None


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


NAMES: dict[str, list[list[str]]] = {
    "nowhere.test": [[]],
    "slow.test": [["wait 15", "127.0.0.1"]],
    "inside.test": [["10.1.2.3", "127.0.0.2", "169.254.169.254"]],
    "tls.test": [["127.0.0.1"]],
}


@pytest.fixture(scope="module")
def deployment(
    gateway: Gateway, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("hostile")
    settings = {
        "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.1/32",
        "ZEMBIL_WEBHOOK_ENDPOINTS_MAX": "1000",
        "ZEMBIL_RATE_LIMIT_SANDBOX": "0",
        "SSL_CERT_FILE": str(authority.bundle),
        **names_as_told(directory, NAMES),
    }
    with deployed(gateway, directory / "log", **settings) as deployment:
        yield deployment


class Bystander(threading.Thread):
    """A merchant whose receiver behaves: creates payments, and watches how long the process keeps what it takes."""

    def __init__(self, api: httpx2.Client, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.created_at: dict[str, float] = {}
        self.resident_bytes_max = 0
        self._api = api
        self._process = process
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.2):
            began = time.monotonic()
            self.created_at[create(self._api)["id"]] = began
            self.resident_bytes_max = max(self.resident_bytes_max, self._process.memory_info().rss)


def test_hostile_receivers_get_three_attempts_and_nobody_else_notices_them(
    deployment: Deployment, authority: Authority
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(closing(HostileServer({name: row.does for name, row in ROWS.items()})))
        elsewhere = _elsewhere(stack, authority)
        healthy = stack.enter_context(closing(Receiver()))
        hostile_merchant, merchant = deployment.new_merchant(), deployment.new_merchant()
        stack.callback(hostile_merchant.close)
        stack.callback(merchant.close)
        api, other_api = hostile_merchant.client(), merchant.client()
        register(other_api, healthy.url)
        for count in range(20):
            create(other_api)
            healthy.wait_for(count + 1)
        process = psutil.Process(deployment.process.pid)
        resident_bytes = process.memory_info().rss

        endpoints = {name: register(api, server.url(name)) for name in ROWS}
        endpoints |= {name: register(api, row.url) for name, row in elsewhere.items()}
        bystander = Bystander(other_api, process)
        stack.callback(bystander.stop)
        bystander.start()
        create(api)
        let_all_three_pass(deployment, hostile_merchant)
        bystander.stop()

        expected = {name: (row.status, row.error) for name, row in ROWS.items()}
        expected |= {name: (None if row.error else 200, row.error) for name, row in elsewhere.items()}
        recorded = {name: recorded_attempts(api, endpoint) for name, endpoint in endpoints.items()}
        made = {name: _kinds(attempts) for name, attempts in recorded.items()}
        wanted = {name: [kind] * (1 if kind == (200, None) else 3) for name, kind in expected.items()}
        assert [(name, made[name], wanted[name]) for name in expected if made[name] != wanted[name]] == []
        assert server.requests == {name: len(recorded[name]) for name in ROWS}
        for name, attempts in recorded.items():
            for attempt in attempts:
                assert attempt["latency_ms"] <= 10_600, name
                assert len(attempt.get("response_body", "")) <= KEPT_BYTES_MAX
        taken = {name: written / server.requests[name] for name, written in TAKEN.items()}
        assert max(taken.values()) < TAKEN_BYTES_MAX, taken

        told = healthy.wait_for(20 + len(bystander.created_at))[20:]
        waited = [one.at - bystander.created_at[one.event["data"]["object"]["id"]] for one in told]
        assert len(waited) >= 50
        assert max(waited) < WAIT_SECONDS_MAX
        assert len(healthy.received) == 20 + len(waited)  # each once
        grown_bytes = max(bystander.resident_bytes_max, process.memory_info().rss) - resident_bytes
        assert grown_bytes < GROWTH_BYTES_MAX, grown_bytes


def _elsewhere(stack: ExitStack, authority: Authority) -> dict[str, Elsewhere]:
    """Receivers over TLS, and those whom nobody finds or reaches."""

    def over_tls(tls: ssl.SSLContext, host: str = "tls.test") -> str:
        server = stack.enter_context(closing(HostileServer({"": answers(200)}, tls=tls)))
        return server.url("", scheme="https", host=host)

    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = authority.server("tls.test", newest=ssl.TLSVersion.TLSv1_1)
    plain = stack.enter_context(closing(HostileServer({}, greeting=b"HTTP/1.1 400 TLS, please\r\n\r\n")))
    silent = stack.enter_context(closing(HostileServer({})))
    full = stack.enter_context(closing(FullServer()))
    return {
        "tls": Elsewhere(over_tls(authority.server("tls.test")), None),
        "tls-of-an-address": Elsewhere(over_tls(authority.server("127.0.0.1"), "127.0.0.1"), None),
        "tls-expired": Elsewhere(over_tls(authority.server("tls.test", expired=True)), "tls"),
        "tls-self-signed": Elsewhere(over_tls(authority.server("tls.test", self_signed=True)), "tls"),
        "tls-of-another": Elsewhere(over_tls(authority.server("other.test")), "tls"),
        "tls-wildcard-too-wide": Elsewhere(over_tls(authority.server("*.test", "*")), "tls"),
        "tls-name-for-an-address": Elsewhere(over_tls(authority.server("tls.test"), "127.0.0.1"), "tls"),
        "tls-1.1": Elsewhere(over_tls(old), "connection_reset"),
        "tls-plain": Elsewhere(plain.url("", scheme="https"), "tls"),
        "tls-silent": Elsewhere(silent.url("", scheme="https"), "timeout"),
        "never-accepts": Elsewhere(full.url, "timeout"),
        "nobody-listens": Elsewhere(nobody, "connection_refused"),
        "no-such-name": Elsewhere("http://nowhere.test/", "dns"),
        "slow-name": Elsewhere("http://slow.test/", "timeout"),
        "name-that-leads-inside": Elsewhere("http://inside.test/", "address_refused"),
    }


def let_all_three_pass(deployment: Deployment, merchant: Merchant) -> None:
    """Wait for each attempt of all who fail, and move the clock to the next."""
    for made, seconds in ((1, 60), (2, 600), (3, 0)):

        def over(made: int = made) -> bool:
            rows = waiting(deployment, merchant)
            return all(row["attempts_made"] == made and row["in_flight_until"] is None for row in rows)

        assert eventually(over, seconds=30)
        if seconds:
            advance(merchant.client(), seconds)
    assert waiting(deployment, merchant) == []


def recorded_attempts(api: httpx2.Client, endpoint: dict[str, Any]) -> list[dict[str, Any]]:
    (delivery,) = deliveries(api, endpoint)
    answer = api.get(f"/deliveries/{delivery['id']}")
    assert answer.status_code == 200
    shown = answer.json()["data"]
    assert [attempt["number"] for attempt in shown["attempts"]] == list(range(1, shown["attempts_made"] + 1))
    return shown["attempts"]


def _kinds(attempts: list[dict[str, Any]]) -> list[tuple[int | None, str | None]]:
    return [(attempt.get("status_code"), attempt.get("error")) for attempt in attempts]
