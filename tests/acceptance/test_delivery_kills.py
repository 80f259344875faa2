"""Workers are killed at any moment: every event arrives or has visibly failed, after three attempts at most."""

import base64
import os
import random
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.acceptance.test_deliveries import create, register, reset
from tests.acceptance.test_dev import environment, eventually
from tests.support.database import account_of, query
from tests.support.gateway import STOP_SECONDS_MAX, ZEMBIL, Merchant, new_merchant
from tests.support.receiver import Receiver
from tests.support.serving import serving
from zembil import ids
from zembil.db.embedded import EmbeddedPostgres
from zembil.ids import Prefix

MERCHANTS, ENDPOINTS_OF_EACH = 4, 2
ALL_RETRIES_SECONDS = 700

_UNFINISHED = """
    SELECT id FROM payments WHERE account_id = ANY ($1) AND status = 'pending'
    UNION ALL
    SELECT id FROM pending_deliveries WHERE account_id = ANY ($1)
"""
_DELIVERIES = """
    SELECT d.id, d.event_id, w.url, d.status, d.attempts_made, count(a.number) AS recorded,
        count(*) FILTER (WHERE a.status_code = 200) AS arrived,
        count(*) FILTER (WHERE a.number IS NOT NULL AND a.latency_ms IS NULL) AS cut_off
    FROM deliveries d
        JOIN webhook_endpoints w ON w.account_id = d.account_id AND w.id = d.endpoint_id
        LEFT JOIN delivery_attempts a ON a.account_id = d.account_id AND a.delivery_id = d.id
    WHERE d.account_id = ANY ($1)
    GROUP BY d.id, d.event_id, w.url, d.status, d.attempts_made
"""


@dataclass(frozen=True)
class Served:
    """The API without a worker, and what it stores."""

    origin: str
    database_url: str
    settings: Mapping[str, str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    data = tmp_path / "postgres"
    with EmbeddedPostgres.start(data) as postgres:
        settings = {
            "ZEMBIL_DATABASE_URL": postgres.url,
            "ZEMBIL_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
            "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
            "ZEMBIL_RATE_LIMIT_SANDBOX": "0",  # more is asked here than an account may in a minute
        }
        with serving(postgres.url, tmp_path / "serve.log", **settings) as origin:
            yield Served(origin, postgres.url, settings)
    EmbeddedPostgres.reset(data)


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    """Each request has a chance of its own: mostly 200, otherwise 500, a reset, or no answer; and not at once."""
    chance = random.Random(20261121)  # noqa: S311  (what a receiver does is no secret)

    def whatever(request: BaseHTTPRequestHandler) -> None:
        what = chance.random()
        time.sleep(what / 4)
        if what < 0.75:
            request.send_response(200)
        elif what < 0.9:
            request.send_response(500)
        elif what < 0.99:
            reset(request)
        else:
            time.sleep(11)
            request.send_response(200)

    with ExitStack() as stack:
        listening = [Receiver(whatever) for _ in range(MERCHANTS * ENDPOINTS_OF_EACH)]
        for receiver in listening:
            stack.callback(receiver.close)
        yield listening


def shop(merchant: Merchant, payments: int, seconds: float) -> None:
    """Create payments, evenly; every tenth is asked for twice with one reference, and the second is rolled back."""
    began = time.monotonic()
    with merchant.client() as api:
        for number in range(payments):
            time.sleep(max(0.0, began + seconds * number / payments - time.monotonic()))
            if number % 10:
                create(api)
            else:
                create(api, reference=f"order-{number}")
                again = api.post("/payments", json={"amount": 1.00, "currency": "ETB", "reference": f"order-{number}"})
                assert again.status_code == 409


@contextmanager
def workers_that_are_killed(settings: Mapping[str, str], receivers: list[Receiver]) -> Generator["Workers"]:
    workers = Workers(settings, {urlsplit(receiver.url).port or 0 for receiver in receivers})
    try:
        yield workers
    finally:
        for process in workers.running:
            process.kill()
            process.wait(STOP_SECONDS_MAX)


class Workers:
    """Two workers on one database; one that is killed is followed by another."""

    def __init__(self, settings: Mapping[str, str], ports: set[int]) -> None:
        self._environment = environment(settings)
        self._ports = ports
        self._chance = random.Random(4)  # noqa: S311  (whom to kill, and when, is no secret)
        self.running = [self._started() for _ in range(2)]

    def _started(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([*ZEMBIL, "worker"], env=self._environment)

    def _is_sending(self, worker: "subprocess.Popen[bytes]") -> bool:
        connections = psutil.Process(worker.pid).net_connections("tcp")
        return any(connection.raddr and connection.raddr.port in self._ports for connection in connections)

    def kill_one(self) -> None:
        """Kill one that is sending, if there is any, after a moment."""
        time.sleep(self._chance.uniform(0.5, 2))
        eventually(lambda: any(map(self._is_sending, self.running)), seconds=5)
        time.sleep(self._chance.uniform(0, 0.3))
        sending = [worker for worker in self.running if self._is_sending(worker)]
        victim = self._chance.choice(sending or self.running)
        victim.kill()
        victim.wait(STOP_SECONDS_MAX)
        self.running[self.running.index(victim)] = self._started()

    def stop(self) -> None:
        for worker in self.running:
            worker.terminate()
        assert [worker.wait(STOP_SECONDS_MAX) for worker in self.running] == [0, 0]


def demand_that_nothing_is_lost(served: Served, accounts: list[int], receivers: list[Receiver]) -> Counter[str]:
    """What holds when everything is over; answers how the deliveries ended."""
    events = query(served, "SELECT id, object_id, sequence FROM events WHERE account_id = ANY ($1)", accounts)
    payments = query(served, "SELECT id, sequence FROM payments WHERE account_id = ANY ($1)", accounts)
    # One event for every committed change, and none for one that was rolled back.
    changes = [(row["id"], sequence) for row in payments for sequence in range(1, row["sequence"] + 1)]
    assert sorted((row["object_id"], row["sequence"]) for row in events) == sorted(changes)

    deliveries: list[Any] = query(served, _DELIVERIES, accounts)
    assert Counter(row["event_id"] for row in deliveries) == {row["id"]: ENDPOINTS_OF_EACH for row in events}
    received = Counter(
        (receiver.url, request.headers["webhook-id"]) for receiver in receivers for request in receiver.received
    )
    for row in deliveries:
        arrived = received.pop((row["url"], ids.shown(Prefix.EVENT, row["event_id"])), 0)
        assert arrived <= row["recorded"] == row["attempts_made"] <= 3
        if row["status"] == "succeeded":
            assert arrived >= 1
            assert row["arrived"] == 1
        else:
            assert (row["status"], row["attempts_made"], row["arrived"]) == ("failed", 3, 0)
    assert received == {}  # nothing was sent that is not on record
    ended = Counter(row["status"] for row in deliveries)
    ended["attempts cut off"] = sum(row["cut_off"] for row in deliveries)
    return ended


def deliver_under_kills(served: Served, receivers: list[Receiver], *, kills: int, payments: int) -> None:
    """Nobody pays, so every payment expires: two events each, for two endpoints."""
    merchants = [new_merchant(served, f"Shop {number}") for number in range(MERCHANTS)]
    apis = [merchant.client() for merchant in merchants]
    accounts = [account_of(served, merchant.sandbox["admin_key"]) for merchant in merchants]
    for number, receiver in enumerate(receivers):
        register(apis[number % MERCHANTS], receiver.url, "*")
    shops = [
        threading.Thread(target=shop, args=(merchant, payments // MERCHANTS, 1.5 * kills)) for merchant in merchants
    ]

    def unfinished() -> int:
        for api in apis:  # what failed or was cut off before is due again; 503 is said to whoever gets in the way
            assert api.post("/test/clock", json={"advance_seconds": ALL_RETRIES_SECONDS}).status_code in (200, 503)
        time.sleep(0.5)
        return len(query(served, _UNFINISHED, accounts))

    with workers_that_are_killed(served.settings, receivers) as workers:
        for thread in shops:
            thread.start()
        for _ in range(kills):
            workers.kill_one()
            unfinished()
        for thread in shops:
            thread.join()
        fewest, since = unfinished(), time.monotonic()
        while left := unfinished():
            if left < fewest:
                fewest, since = left, time.monotonic()
            assert time.monotonic() - since < 60, f"{left} payments and deliveries are stuck"
        workers.stop()
    ended = demand_that_nothing_is_lost(served, accounts, receivers)
    print(f"{kills} kills, {payments} payments: {dict(ended)}")
    assert sum(ended[status] for status in ("succeeded", "failed")) == payments * 2 * ENDPOINTS_OF_EACH
    assert ended["attempts cut off"] > 0
    for merchant in merchants:
        merchant.close()


def test_every_event_arrives_or_has_failed_visibly_while_workers_are_killed_again_and_again(
    served: Served, receivers: list[Receiver]
) -> None:
    deliver_under_kills(served, receivers, kills=5, payments=200)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_of_five_thousand_events_none_is_lost_in_thirty_kills(served: Served, receivers: list[Receiver]) -> None:
    deliver_under_kills(served, receivers, kills=30, payments=2500)
