"""How soon a payment page answers: people open links steadily at a `zembil dev`, half of them in Amharic.

A page is timed from the instant at which it was to be asked for, so that a server that falls behind shows it, until its
last byte. What is sent for a first visit is weighed too: the page, its stylesheet, its script and its code.
"""

import asyncio
import re
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import psutil
import uvloop

from benchmarks import orders, processes
from benchmarks.figures import Figure, Say, percentile
from benchmarks.processes import Gateway

_PER_SECOND = 200
_SECONDS = 30.0
_PAYMENTS = 500
_LANGUAGES = ("en", "am")
_PARTS = re.compile(rb'(?:href|src)="(/(?:static|p)/[^"?]+\.(?:css|js|png))"')


class _Payment(msgspec.Struct):
    payment_link: str


class _Created(msgspec.Struct):
    data: _Payment


@dataclass(slots=True)
class _Visits:
    """What the visitors saw."""

    seconds: list[float] = field(default_factory=list[float])
    cpu_us: float = 0
    sent_bytes: int = 0  # for one first visit


def measure(*, short: bool, say: Say) -> list[Figure]:
    seconds = 3.0 if short else _SECONDS
    say(f"payment_page: {_PER_SECOND} pages a second for {seconds:.0f} s")
    with (
        tempfile.TemporaryDirectory(prefix="zembil-bench-") as name,
        processes.developed(Path(name) / "data") as gateway,
    ):
        visits = uvloop.run(_visited(gateway, int(seconds * _PER_SECOND)))
    latencies = [1000 * latency for latency in visits.seconds]
    note = f"{len(latencies)} pages of {_PAYMENTS} payments, {_PER_SECOND} a second"
    return [
        Figure(name="payment page, p50", value=percentile(latencies, 50), unit="ms", note=note),
        Figure(name="payment page, p99", value=percentile(latencies, 99), unit="ms", at_most=20),
        Figure(name="processor per page", value=visits.cpu_us, unit="µs", note="with the worker of the same process"),
        Figure(name="a first visit in all", value=visits.sent_bytes / 1000, unit="kB", at_most=15, note="compressed"),
    ]


async def _visited(gateway: Gateway, pages: int) -> _Visits:
    visits = _Visits()
    async with aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "gzip"}) as session:
        links = [await _created(session, gateway, body) for body in orders.bodies()[:_PAYMENTS]]
        addresses = [f"{link}?lang={_LANGUAGES[number % 2]}" for number, link in enumerate(links)]
        visits.sent_bytes = await _weighed(addresses[1])
        for address in addresses[:50]:  # templates are compiled when they are first used
            await _visit(session, address, time.perf_counter(), [])
        process = psutil.Process(gateway.process.pid)
        cpu_seconds = sum(process.cpu_times()[:2])
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(pages):
                due = began + number / _PER_SECOND
                await asyncio.sleep(due - time.perf_counter())
                group.create_task(_visit(session, addresses[number % len(addresses)], due, visits.seconds))
        visits.cpu_us = 1e6 * (sum(process.cpu_times()[:2]) - cpu_seconds) / pages
    return visits


async def _created(session: aiohttp.ClientSession, gateway: Gateway, body: str) -> str:
    headers = {"Content-Type": "application/json", **gateway.authorization}
    async with session.post(f"{gateway.base_url}/payments", data=body.encode(), headers=headers) as answer:
        answer.raise_for_status()
        return msgspec.json.decode(await answer.read(), type=_Created).data.payment_link


async def _visit(session: aiohttp.ClientSession, address: str, due: float, seconds: list[float]) -> None:
    async with session.get(address) as answer:
        answer.raise_for_status()
        await answer.read()
        seconds.append(time.perf_counter() - due)


async def _weighed(address: str) -> int:
    """The bytes of all bodies that a browser gets on a first visit."""
    async with aiohttp.ClientSession(headers={"Accept-Encoding": "gzip"}) as session:
        async with session.get(address) as answer:
            sent = int(answer.headers["Content-Length"])
            parts = dict.fromkeys(_PARTS.findall(await answer.read()))
        for part in parts:
            async with session.get(str(answer.url.origin()) + part.decode()) as answer:
                answer.raise_for_status()
                sent += int(answer.headers["Content-Length"])
    return sent
