"""How soon a webhook is attempted: payments arrive steadily at a `zembil dev` with one receiver.

Measured from the answer to POST /payments, by when the event is committed, and from the instant in the event's id,
which is taken while the request is handled.
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import uvloop
from aiohttp import web

from benchmarks import orders, processes
from benchmarks.figures import Figure, Say, percentile
from benchmarks.processes import Gateway
from zembil import ids, instants
from zembil.ids import Prefix

_PER_SECOND = 20
_SECONDS = 30.0
_LAST_SECONDS_MAX = 30


class _Payment(msgspec.Struct):
    id: str


class _Created(msgspec.Struct):
    data: _Payment


class _Data(msgspec.Struct):
    object: _Payment


class _Event(msgspec.Struct):
    """What we read of an event."""

    id: str
    data: _Data


@dataclass(slots=True)
class _Seen:
    """When each payment was answered, its event created, and the first attempt arrived; in seconds since 1970."""

    expected: int
    all_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    answered_at: dict[str, float] = field(default_factory=dict[str, float])
    created_at: dict[str, float] = field(default_factory=dict[str, float])
    arrived_at: dict[str, float] = field(default_factory=dict[str, float])

    async def receive(self, request: web.Request) -> web.Response:
        now = time.time()
        event = msgspec.json.decode(await request.read(), type=_Event)
        event_id = ids.parsed(Prefix.EVENT, event.id)
        if event_id is None:
            raise ValueError(f"{event.id} is no event id")
        payment_id = event.data.object.id
        self.arrived_at.setdefault(payment_id, now)
        self.created_at[payment_id] = instants.milliseconds(ids.created_at(event_id)) / 1000
        if len(self.arrived_at) == self.expected:
            self.all_arrived.set()
        return web.Response()


def measure(*, short: bool, say: Say) -> list[Figure]:
    seconds = 3.0 if short else _SECONDS
    say(f"first_attempt: {_PER_SECOND} payments a second for {seconds:.0f} s")
    with (
        tempfile.TemporaryDirectory(prefix="zembil-bench-") as name,
        processes.developed(Path(name) / "data") as gateway,
    ):
        seen = uvloop.run(_observed(gateway, int(seconds * _PER_SECOND)))
    after_answer = [1000 * (seen.arrived_at[payment] - at) for payment, at in seen.answered_at.items()]
    after_creation = [1000 * (seen.arrived_at[payment] - seen.created_at[payment]) for payment in seen.answered_at]
    note = f"{len(after_answer)} events, {_PER_SECOND} a second, one receiver"
    return [
        Figure(name="answer to first attempt, p50", value=percentile(after_answer, 50), unit="ms", note=note),
        Figure(name="answer to first attempt, p99", value=percentile(after_answer, 99), unit="ms", at_most=1000),
        Figure(name="event created to first attempt, p50", value=percentile(after_creation, 50), unit="ms"),
        Figure(
            name="event created to first attempt, p99", value=percentile(after_creation, 99), unit="ms", at_most=1000
        ),
    ]


async def _observed(gateway: Gateway, payments: int) -> _Seen:
    seen = _Seen(payments)
    app = web.Application()
    app.router.add_post("/hooks", seen.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with aiohttp.ClientSession(headers=gateway.authorization) as session:
        ((_, port),) = runner.addresses
        endpoint = {"url": f"http://127.0.0.1:{port}/hooks", "events": ["*"]}
        async with session.post(f"{gateway.base_url}/webhooks", json=endpoint) as answer:
            answer.raise_for_status()
        bodies = orders.bodies()
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(payments):
                await asyncio.sleep(began + number / _PER_SECOND - time.monotonic())
                group.create_task(_create(session, gateway, bodies[number % len(bodies)], seen))
        async with asyncio.timeout(_LAST_SECONDS_MAX):
            await seen.all_arrived.wait()
    await runner.cleanup()
    return seen


async def _create(session: aiohttp.ClientSession, gateway: Gateway, body: str, seen: _Seen) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.post(f"{gateway.base_url}/payments", data=body.encode(), headers=headers) as answer:
        now = time.time()
        answer.raise_for_status()
        seen.answered_at[msgspec.json.decode(await answer.read(), type=_Created).data.id] = now
