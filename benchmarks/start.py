"""Starting `zembil dev`: seconds until it serves, on an empty directory and later, and the memory it takes."""

import tempfile
from pathlib import Path
from statistics import median

import psutil

from benchmarks import load, orders, processes
from benchmarks.figures import Figure, Say

_STARTS = 5
_PAYMENTS = 20_000
_PAYMENTS_SECONDS_MAX = 60


def measure(*, short: bool, say: Say) -> list[Figure]:
    starts, payments = (2, 2_000) if short else (_STARTS, _PAYMENTS)
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        first: list[float] = []
        later: list[float] = []
        for number in range(1, starts + 1):
            say(f"start: {number} of {starts}")
            for seconds in (first, later):
                with processes.developed(directory / str(number)) as gateway:
                    seconds.append(gateway.start_seconds)
        say(f"start: memory, with {payments:,} payments")
        with processes.developed(directory / "1") as gateway:
            process = psutil.Process(gateway.process.pid)
            fresh_mb = _resident_mb(process)
            done = load.post(
                f"{gateway.base_url}/payments",
                orders.bodies(),
                headers=gateway.authorization,
                in_flight=32,
                seconds=_PAYMENTS_SECONDS_MAX,
                requests_max=payments,
            )
            used_mb = _resident_mb(process)
    return [
        Figure(name="first start, on an empty directory", value=median(first), unit="s", at_most=3, note=_span(first)),
        Figure(name="later start", value=median(later), unit="s", at_most=1.5, note=_span(later)),
        Figure(name="memory once started", value=fresh_mb, unit="MB", at_most=120, note="API, pages and worker"),
        Figure(name=f"memory after {done.answers:,} payments", value=used_mb, unit="MB", at_most=120),
    ]


def _resident_mb(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6


def _span(seconds: list[float]) -> str:
    return f"{len(seconds)} starts, from {min(seconds):.2f} to {max(seconds):.2f}"
