"""Deliveries: when they are attempted, what is sent, what is recorded, and that nobody waits for somebody else's."""

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually, running
from tests.acceptance.test_main_job import is_a_standard_webhook, is_signed_as_the_contract_says
from tests.support.database import account_of, query
from tests.support.gateway import Deployed, Gateway, Merchant
from tests.support.receiver import Answer, AnsweredByHand, Receiver

COFFEE = {"amount": 150.00, "currency": "ETB", "description": "ቡና"}
MINUTE, TEN_MINUTES = 60, 600

Start = Callable[..., Gateway]


def register(api: httpx2.Client, url: str, *events: str) -> dict[str, Any]:
    answer = api.post("/webhooks", json={"url": url, "events": list(events) or ["payment.created"]})
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def create(api: httpx2.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/payments", json=COFFEE | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]


def advance(api: httpx2.Client, seconds: float) -> None:
    assert api.post("/test/clock", json={"advance_seconds": seconds}).status_code == 200


def attempts(gateway: Deployed, merchant: Merchant, *, livemode: bool = False) -> list[Any]:
    """What is recorded of every attempt, with the endpoint's URL."""
    keys = merchant.live if livemode else merchant.sandbox
    return query(
        gateway,
        """
        SELECT w.url, a.number, a.started_at, a.latency_ms, a.status_code, a.error, a.response_body
        FROM delivery_attempts a
            JOIN (SELECT id, endpoint_id FROM pending_deliveries UNION SELECT id, endpoint_id FROM deliveries) d
                ON d.id = a.delivery_id
            JOIN webhook_endpoints w ON w.account_id = a.account_id AND w.id = d.endpoint_id
        WHERE a.account_id = $1 ORDER BY w.url, a.delivery_id, a.number
        """,
        account_of(gateway, keys["admin_key"]),
    )


def recorded_attempts(gateway: Gateway, merchant: Merchant) -> int:
    """How many attempts are over."""
    return sum(row["latency_ms"] is not None for row in attempts(gateway, merchant))


def waiting(gateway: Deployed, merchant: Merchant) -> list[Any]:
    """What waits, and until when: in the account's time, as attempts are recorded."""
    return query(
        gateway,
        """
        SELECT w.url, d.attempts_made, d.due_at + a.clock_offset AS due_at, d.in_flight_until
        FROM pending_deliveries d JOIN webhook_endpoints w ON w.account_id = d.account_id AND w.id = d.endpoint_id
            JOIN accounts a ON a.id = d.account_id
        WHERE d.account_id = $1
        """,
        account_of(gateway, merchant.sandbox["admin_key"]),
    )


def ended(gateway: Gateway, merchant: Merchant) -> dict[str, tuple[str, int]]:
    """How the deliveries that are over ended, by URL; one delivery for each is expected."""
    rows = query(
        gateway,
        """
        SELECT w.url, d.status, d.attempts_made
        FROM deliveries d JOIN webhook_endpoints w ON w.account_id = d.account_id AND w.id = d.endpoint_id
        WHERE d.account_id = $1
        """,
        account_of(gateway, merchant.sandbox["admin_key"]),
    )
    assert len({row["url"] for row in rows}) == len(rows)
    return {row["url"]: (row["status"], row["attempts_made"]) for row in rows}


def worker_settings(gateway: Gateway) -> dict[str, str]:
    """What another worker of the same deployment is started with."""
    return {
        "ZEMBIL_DATABASE_URL": gateway.database_url,
        "ZEMBIL_SECRET_KEY": (gateway.data / "secret.key").read_text().strip(),
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
        "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
    }


# Answers


def status(code: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)

    return answer


def written(*parts: bytes) -> Answer:
    """Write the bytes and close."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        for part in parts:
            request.wfile.write(part)
            time.sleep(0.1)
        raise AnsweredByHand

    return answer


def dripping(first: bytes, *, seconds: float) -> Answer:
    """Write something, then a byte now and then."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(first)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            request.wfile.write(b"x")
            time.sleep(0.5)
        raise AnsweredByHand

    return answer


def reset(request: BaseHTTPRequestHandler) -> None:
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()
    raise AnsweredByHand


def endless(first: bytes, again: bytes) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(first)
        while True:  # until the other side has had enough
            request.wfile.write(again)

    return answer


ODD_BODY = b"\x00\xff\xfe NUL and half a character \xe1\x89" + b"n" * 5000
GZIP_BOMB = zlib.compress(bytes(50_000_000), wbits=31)

# What each receiver does, and what is recorded of it: the status, or the kind of error.
REFUSALS: dict[str, tuple[Answer, int | None, str | None]] = {
    "201": (status(201), 201, None),
    "204": (status(204), 204, None),
    "304": (status(304), 304, None),
    "410": (status(410), 410, None),
    "429": (status(429, **{"Retry-After": "1"}), 429, None),
    "500": (status(500), 500, None),
    "odd": (written(b"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n", ODD_BODY), 500, None),
    "reset": (reset, None, "connection_reset"),
    "silence": (written(), None, "connection_reset"),
    "nonsense": (written(b"SSH-2.0-OpenSSH_9.9\r\n"), None, "invalid_answer"),
    "headers": (written(b"HTTP/1.1 200 OK\r\nx: ", b"a" * 1_000_000, b"\r\n\r\n"), None, "invalid_answer"),
    "continues": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), None, "invalid_answer"),
    "endless headers": (endless(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 1000), None, "invalid_answer"),
}


def test_only_200_is_success_and_everything_else_is_tried_three_times_on_the_schedule(
    gateway: Gateway, merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    canary = listen(status(200))
    receivers = {name: listen(answer) for name, (answer, _, _) in REFUSALS.items()}
    receivers["302"] = listen(status(302, Location=canary.url))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    good = listen(status(200))
    api = merchant.client()
    for receiver in (*receivers.values(), good):
        register(api, receiver.url)
    register(api, nobody)
    create(api)
    unlucky = [*(receiver.url for receiver in receivers.values()), nobody]

    def all_wait_after(made: int) -> bool:
        rows = waiting(gateway, merchant)
        return [(row["attempts_made"], row["in_flight_until"]) for row in rows] == [(made, None)] * len(unlucky)

    for made, delay in ((1, MINUTE), (2, TEN_MINUTES)):
        assert eventually(lambda made=made: all_wait_after(made)), waiting(gateway, merchant)
        last = {row["url"]: row for row in attempts(gateway, merchant) if row["number"] == made}
        for row in waiting(gateway, merchant):
            attempt = last[row["url"]]
            ended_at = attempt["started_at"] + timedelta(milliseconds=attempt["latency_ms"])
            assert timedelta(0) <= row["due_at"] - ended_at - timedelta(seconds=delay) < timedelta(seconds=2)
        advance(api, delay - 5)
        time.sleep(0.6)
        assert all_wait_after(made)  # not before its time
        advance(api, 5)

    assert eventually(lambda: len(ended(gateway, merchant)) == len(unlucky) + 1)
    assert ended(gateway, merchant) == {good.url: ("succeeded", 1)} | dict.fromkeys(unlucky, ("failed", 3))
    assert waiting(gateway, merchant) == []
    advance(api, 86_400)
    time.sleep(0.6)
    assert [len(receiver.received) for receiver in receivers.values()] == [3] * len(receivers)
    assert len(good.received) == 1
    assert canary.received == []

    recorded = attempts(gateway, merchant)
    assert len(recorded) == 3 * len(unlucky) + 1
    for name, (_, code, error) in REFUSALS.items():
        mine = [row for row in recorded if row["url"] == receivers[name].url]
        assert [row["number"] for row in mine] == [1, 2, 3]
        assert {(row["status_code"], row["error"]) for row in mine} == {(code, error)}, name
        assert all(0 <= row["latency_ms"] < 5000 for row in mine)
    assert {row["error"] for row in recorded if row["url"] == nobody} == {"connection_refused"}
    assert {row["status_code"] for row in recorded if row["url"] == receivers["302"].url} == {302}
    odd = [row["response_body"] for row in recorded if row["url"] == receivers["odd"].url]
    assert odd == [ODD_BODY[:4096]] * 3


def test_ten_seconds_are_the_limit_and_a_200_counts_whatever_becomes_of_its_body(
    gateway: Gateway, merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    def late(seconds: float) -> Answer:
        def answer(request: BaseHTTPRequestHandler) -> None:
            time.sleep(seconds)
            request.send_response(200)

        return answer

    good = {
        "in time": late(9),
        "drips": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", seconds=12),
        "breaks off": written(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf"),
        "bomb": written(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", GZIP_BOMB),
        "endless": endless(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2000\r\n" + b"z" * 8192 + b"\r\n"
        ),
        "bad chunk": written(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nhello\r\nzz\r\n"),
    }
    bad = {
        "too late": late(10.5),
        "drips its headers": dripping(b"HTTP/1.1 200 OK\r\nx-slow: ", seconds=12),
    }
    receivers = {name: listen(answer) for name, answer in (good | bad).items()}
    api = merchant.client()
    for receiver in receivers.values():
        register(api, receiver.url)
    create(api)
    assert eventually(lambda: recorded_attempts(gateway, merchant) == len(receivers))
    recorded = {row["url"]: row for row in attempts(gateway, merchant)}
    for name in good:
        row = recorded[receivers[name].url]
        assert (row["status_code"], row["error"]) == (200, None), name
    assert ended(gateway, merchant) == {receivers[name].url: ("succeeded", 1) for name in good}
    for name in bad:
        row = recorded[receivers[name].url]
        assert (row["status_code"], row["error"]) == (None, "timeout"), name
        assert 9_900 <= row["latency_ms"] <= 10_500, name
    assert recorded[receivers["breaks off"].url]["response_body"] == b"half"
    assert recorded[receivers["bomb"].url]["response_body"] == GZIP_BOMB[:4096]


def test_every_attempt_at_every_endpoint_has_the_same_bytes_and_fresh_signatures(
    gateway: Gateway, merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    receivers = [listen(status(500)), listen(status(500))]
    secrets = [register(api, receiver.url)["secret"] for receiver in receivers]
    assert len(set(secrets)) == 2
    create(api, metadata={"order": "7", "ስም": "አበበ"}, customer={"email": "abebe@example.com"})
    wall = time.time() - time.monotonic()
    for made, delay in ((1, 0), (2, MINUTE), (3, TEN_MINUTES)):
        if delay:
            time.sleep(1.1)  # so that a signature's second tells the attempts apart
            advance(api, delay)
        for receiver in receivers:
            receiver.wait_for(made)
        assert eventually(lambda: all(row["in_flight_until"] is None for row in waiting(gateway, merchant)))
    told = [received for receiver in receivers for received in receiver.received]
    assert len(told) == 6
    assert len({received.body for received in told}) == 1
    assert {received.headers["webhook-id"] for received in told} == {told[0].event["id"]}
    for receiver, secret in zip(receivers, secrets, strict=True):
        times = [int(received.headers["zembil-timestamp"]) for received in receiver.received]
        assert len(set(times)) == 3  # fresh, and the real time although the sandbox's clock was moved
        for received, timestamp in zip(receiver.received, times, strict=True):
            assert abs(wall + received.at - timestamp) < 2.5
            assert received.headers["webhook-timestamp"] == str(timestamp)
            assert is_signed_as_the_contract_says(received, secret)
            assert is_a_standard_webhook(received, secret)
    own = {"content-type", "user-agent", "zembil-signature", "zembil-timestamp"}
    own |= {"webhook-id", "webhook-timestamp", "webhook-signature", "host", "content-length"}
    assert {frozenset(received.headers) for received in told} == {frozenset(own)}
    assert told[0].headers["user-agent"].startswith("Zembil/")


def test_an_endpoint_gets_the_types_it_asked_for_and_no_others(
    merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    api = merchant.client()
    everything, some, one = (listen(status(200)) for _ in range(3))
    register(api, everything.url, "*")
    register(api, some.url, "payment.created", "payment.failed", "payment.completed")
    register(api, one.url, "payment.completed")
    payment = create(api, customer={"phone": "+251900000000"}, mobile_money_provider="mpesa")
    assert len(everything.wait_for(4)) == 4
    created, completed = some.wait_for(2)
    assert created.event["type"] == "payment.created"
    assert completed.event["type"] == "payment.completed"
    assert one.wait_for(1)[0].body == completed.body
    assert completed.event["data"]["object"]["id"] == payment["id"]
    time.sleep(0.3)
    assert [len(receiver.received) for receiver in (everything, some, one)] == [4, 2, 1]


# Isolation


def test_four_are_in_flight_to_an_endpoint_at_most_and_nobody_else_waits_for_it(
    gateway: Gateway, merchant: Merchant, listen: Callable[[Answer], Receiver]
) -> None:
    release, at_once = threading.Event(), threading.Semaphore(4)
    too_many: list[int] = []

    def hold(request: BaseHTTPRequestHandler) -> None:
        if not at_once.acquire(blocking=False):
            too_many.append(1)
        release.wait(9)
        at_once.release()
        request.send_response(200)

    dead, healthy, elsewhere = listen(hold), listen(status(200)), listen(status(200))
    api = merchant.client()
    register(api, dead.url)
    register(api, healthy.url)
    other = gateway.new_merchant()
    other_api = other.client()
    register(other_api, elsewhere.url)
    try:
        created_at: dict[str, float] = {}
        for number in range(40):
            payment = create(api if number % 2 else other_api)
            created_at[payment["id"]] = time.monotonic()
        for receiver in (healthy, elsewhere):
            for received in receiver.wait_for(20, seconds=5):
                assert received.at - created_at[received.event["data"]["object"]["id"]] < 2
        assert len(dead.received) == 4
    finally:
        release.set()
        other.close()
    dead.wait_for(20)
    assert too_many == []
    assert len({received.event["id"] for received in dead.received}) == 20


def test_a_receiver_that_floods_keeps_nobody_busy(merchant: Merchant, listen: Callable[[Answer], Receiver]) -> None:
    api = merchant.client()
    for name in ("continues", "endless headers", "headers"):
        register(api, listen(REFUSALS[name][0]).url)
    longest = 0.0
    for _ in range(20):
        began = time.monotonic()
        create(api)
        longest = max(longest, time.monotonic() - began)
    assert longest < 1


def test_when_every_place_is_taken_the_next_free_one_is_for_those_who_had_none(
    gateway: Gateway, listen: Callable[[Answer], Receiver]
) -> None:
    over = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        over.wait(10.5)
        request.send_response(200)

    hanging, healthy = listen(hang), listen(status(200))
    flood = [gateway.new_merchant() for _ in range(4)]
    patient = gateway.new_merchant()  # the last of all accounts
    try:
        for merchant in flood:
            with merchant.client() as api:
                for _ in range(16):
                    register(api, hanging.url)
                for _ in range(8):
                    create(api)
        hanging.wait_for(256)  # all there are; as many are waiting
        with patient.client() as api:
            register(api, healthy.url)
            create(api)
        healthy.wait_for(1, seconds=14)
    finally:
        over.set()
        for merchant in (*flood, patient):
            merchant.close()
    hanging.wait_for(512, seconds=30)


def test_any_number_of_workers_sends_each_delivery_once(
    gateway: Gateway, merchant: Merchant, receiver: Receiver
) -> None:
    settings = worker_settings(gateway)
    api = merchant.client()
    register(api, receiver.url, "*")
    phones = ("+251900000000", "+251900000002")
    with running("worker", settings=settings) as one, running("worker", settings=settings) as two:
        time.sleep(1)
        for number in range(40):
            create(api, customer={"phone": phones[number % 2]}, mobile_money_provider="telebirr")
        told = receiver.wait_for(
            20 * 4 + 20 * 3
        )  # created, pending, processing, completed; created, pending, cancelled
        for worker in (one, two):
            worker.terminate()
        assert [worker.wait(30) for worker in (one, two)] == [0, 0]
    time.sleep(0.5)
    assert len(receiver.received) == len(told)
    assert len({received.event["id"] for received in told}) == len(told)


def test_live_events_never_reach_the_inside(gateway: Gateway, merchant: Merchant) -> None:
    api = merchant.client(livemode=True)
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.setblocking(False)
        port = canary.getsockname()[1]
        account = account_of(gateway, merchant.live["admin_key"])
        # The API refuses such addresses; a name may come to mean one later, which is what this stands for.
        for number, host in enumerate(("127.0.0.1", "localhost", "[::ffff:127.0.0.1]")):
            register(api, f"https://shop{number}.example.et/hooks")
            query(
                gateway,
                "UPDATE webhook_endpoints SET url = $2 WHERE account_id = $1 AND url LIKE 'https:%'",
                account,
                f"http://{host}:{port}/",
            )
        create(api)
        assert eventually(lambda: len(attempts(gateway, merchant, livemode=True)) == 3)
        assert eventually(lambda: all(row["error"] for row in attempts(gateway, merchant, livemode=True)))
        assert {row["error"] for row in attempts(gateway, merchant, livemode=True)} == {"address_refused"}
        with pytest.raises(BlockingIOError):
            canary.accept()


# Crashes


def test_an_attempt_cut_off_by_a_crash_counts_and_is_never_repeated_at_once(
    start: Start, listen: Callable[[Answer], Receiver]
) -> None:
    crashed = threading.Event()

    def hang_until_the_crash(request: BaseHTTPRequestHandler) -> None:
        if not crashed.is_set():
            time.sleep(30)
        request.send_response(200)

    def refuse_twice_then_hang(request: BaseHTTPRequestHandler) -> None:
        if len(last.received) < 3:
            request.send_response(500)
        else:
            hang_until_the_crash(request)

    first, last = listen(hang_until_the_crash), listen(refuse_twice_then_hang)
    gateway = start()
    merchant = gateway.new_merchant()
    with merchant.client() as api:
        endpoint = register(api, last.url)
        create(api)
        for made, delay in ((1, MINUTE), (2, TEN_MINUTES)):
            assert eventually(
                lambda made=made: (
                    [(row["attempts_made"], row["in_flight_until"]) for row in waiting(gateway, merchant)]
                    == [(made, None)]
                )
            )
            advance(api, delay)
        last.wait_for(3)
        register(api, first.url, "payment.created")
        query(gateway, "UPDATE webhook_endpoints SET enabled = false WHERE url = $1", endpoint["url"])
        create(api)
        first.wait_for(1)
    gateway.kill_tree()
    crashed.set()

    gateway = start()
    cut_off = {row["url"]: row for row in waiting(gateway, merchant)}
    started = {row["url"]: row["started_at"] for row in attempts(gateway, merchant)}
    assert cut_off[first.url]["attempts_made"] == 1
    assert cut_off[first.url]["due_at"] == started[first.url] + timedelta(seconds=MINUTE)
    assert cut_off[last.url]["attempts_made"] == 3
    time.sleep(2)
    assert (len(first.received), len(last.received)) == (1, 3)  # never at once
    again = Merchant(gateway.origin, merchant.sandbox, merchant.live)
    with again.client() as api:
        advance(api, MINUTE)
        # The clock cannot move what may still be in flight elsewhere: for 25 s nobody knows that it is not.
        assert first.wait_for(2, seconds=35)[1].body == first.received[0].body
        assert eventually(lambda: len(ended(gateway, merchant)) == 2)
        assert ended(gateway, merchant) == {first.url: ("succeeded", 2), last.url: ("failed", 3)}
        advance(api, 86_400)
    time.sleep(0.6)
    assert (len(first.received), len(last.received)) == (2, 3)
    recorded = [(row["url"], row["number"], row["status_code"]) for row in attempts(gateway, merchant)]
    assert sorted(recorded, key=str) == sorted(
        [(first.url, 1, None), (first.url, 2, 200), (last.url, 1, 500), (last.url, 2, 500), (last.url, 3, None)],
        key=str,
    )
