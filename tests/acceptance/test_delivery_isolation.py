"""One receiver that holds every request and one that refuses: nobody else waits for them."""

import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from tests.acceptance.test_deliveries import create, register
from tests.support.database import query
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Answer, Receiver

Start = Callable[..., Gateway]

HEALTHY_OF_EACH = 10
UNLIMITED = {"ZEMBIL_RATE_LIMIT_SANDBOX": "0"}


class Held:
    """Holds requests for almost ten seconds, or until all is over, and counts how many there are at once."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.at_once_max = 0
        self._at_once = 0
        self._counting = threading.Lock()

    def __call__(self, request: BaseHTTPRequestHandler) -> None:
        with self._counting:
            self._at_once += 1
            self.at_once_max = max(self.at_once_max, self._at_once)
        self.over.wait(9.5)
        # Not after the answer: by then the next request may be on its way.
        with self._counting:
            self._at_once -= 1
        request.send_response(200)


def ok(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)


def refused(request: BaseHTTPRequestHandler) -> None:
    request.send_response(503)


def ask_for_customers(merchant: Merchant, customers: int) -> None:
    with merchant.client() as api:
        for number in range(customers):
            assert api.post("/customers", json={"email": f"abebe{number}@example.com"}).status_code == 201


def demand_isolation(
    start: Start, listen: Callable[[Answer], Receiver], *, waiting: int, payments: int, seconds_max: float
) -> None:
    """Healthy endpoints get payments; the two bad ones, of the first merchant, have customers waiting."""
    gateway = start(environment=UNLIMITED)
    merchants = [gateway.new_merchant() for _ in range(2)]
    holding = Held()
    held, refusing = listen(holding), listen(refused)
    healthy: list[list[Receiver]] = []
    for merchant in merchants:
        healthy.append([listen(ok) for _ in range(HEALTHY_OF_EACH)])
        with merchant.client() as api:
            for receiver in healthy[-1]:
                register(api, receiver.url, "payment.created")
    with merchants[0].client() as api:
        register(api, held.url, "customer.created")
        register(api, refusing.url, "customer.created")
    try:
        ask_for_customers(merchants[0], waiting)
        held.wait_for(4)
        answered: dict[str, float] = {}
        for _ in range(payments):
            for merchant in merchants:
                with merchant.client() as api:
                    answered[create(api)["id"]] = time.monotonic()
                time.sleep(0.05)
        waits = [
            received.at - answered[received.event["data"]["object"]["id"]]
            for receivers in healthy
            for receiver in receivers
            for received in receiver.wait_for(payments)
        ]
        assert len(waits) == 2 * HEALTHY_OF_EACH * payments
        waits.sort()
        p99 = waits[int(len(waits) * 0.99)]
        print(f"{len(waits)} deliveries to healthy endpoints, p99 {p99:.3f} s")
        assert p99 <= seconds_max
        assert holding.at_once_max == 4
        assert len(query(gateway, "SELECT id FROM pending_deliveries WHERE attempts_made = 0")) > waiting / 2
    finally:
        holding.over.set()
        for merchant in merchants:
            merchant.close()
    assert len(refusing.wait_for(waiting, seconds=60)) == waiting
    assert gateway.stop() == 0


def test_twenty_endpoints_do_not_wait_for_one_that_holds_and_one_that_refuses(
    start: Start, listen: Callable[[Answer], Receiver]
) -> None:
    demand_isolation(start, listen, waiting=100, payments=10, seconds_max=2)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes minutes; make prove runs it")
def test_twenty_endpoints_do_not_wait_for_five_hundred_events_that_are_held(
    start: Start, listen: Callable[[Answer], Receiver]
) -> None:
    demand_isolation(start, listen, waiting=500, payments=50, seconds_max=2)
