"""The schedule of deliveries and the ten seconds, by the clock on the wall: eleven minutes that nothing shortens."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import pytest

from tests.acceptance.test_deliveries import attempts, create, dripping, ended, register, reset, status
from tests.acceptance.test_dev import eventually
from tests.support.gateway import Gateway
from tests.support.receiver import Answer, Receiver

Start = Callable[..., Gateway]


@pytest.fixture
def receivers() -> Iterator[dict[str, Receiver]]:
    def late(seconds: float) -> Answer:
        def answer(request: BaseHTTPRequestHandler) -> None:
            time.sleep(seconds)
            request.send_response(200)

        return answer

    answers = {
        "500": status(500),
        "reset": reset,
        "at 9.5 s": late(9.5),
        "at 10.5 s": late(10.5),
        "drips": dripping(b"HTTP/1.1 200 OK\r\nx-slow: ", seconds=30),
    }
    with ExitStack() as stack:
        listening: dict[str, Receiver] = {}
        for name, answer in answers.items():
            listening[name] = Receiver(answer)
            stack.callback(listening[name].close)
        yield listening


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes twelve minutes; make prove runs it")
def test_attempts_come_at_once_after_one_minute_and_after_ten(start: Start, receivers: dict[str, Receiver]) -> None:
    gateway = start()
    merchant = gateway.new_merchant()
    with merchant.client() as api:
        for receiver in receivers.values():
            register(api, receiver.url)
        create(api)
        created = time.monotonic()
    assert eventually(lambda: len(ended(gateway, merchant)) == len(receivers), seconds=750)
    names = {receiver.url: name for name, receiver in receivers.items()}
    outcome = {names[url]: how for url, how in ended(gateway, merchant).items()}
    assert outcome == dict.fromkeys(receivers, ("failed", 3)) | {"at 9.5 s": ("succeeded", 1)}

    recorded = {(names[row["url"]], row["number"]): row for row in attempts(gateway, merchant)}
    for name, receiver in receivers.items():
        arrived = [received.at for received in receiver.received]
        took = [recorded[name, number]["latency_ms"] / 1000 for number in range(1, len(arrived) + 1)]
        gaps = [later - before - last for before, later, last in zip(arrived, arrived[1:], took, strict=False)]
        print(f"{name}: first after {arrived[0] - created:.3f} s, gaps {gaps}, took {took}")
        assert arrived[0] - created < 1
        if name == "at 9.5 s":
            assert len(arrived) == 1
            assert took[0] == pytest.approx(9.5, abs=0.3)
            continue
        assert gaps == [pytest.approx(60, abs=2), pytest.approx(600, abs=5)]
        assert all(seconds == pytest.approx(10, abs=0.3) for seconds in took) or name in ("500", "reset")
    for name in ("at 10.5 s", "drips"):
        assert {recorded[name, number]["error"] for number in (1, 2, 3)} == {"timeout"}
