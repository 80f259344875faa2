"""What the rate limiter costs POST /payments: a process with limits and one without, in turns on the same database."""

import tempfile
from pathlib import Path
from statistics import median

import psutil

from benchmarks import load, orders, processes
from benchmarks.figures import Figure, Say
from benchmarks.processes import Gateway
from zembil.db.embedded import EmbeddedPostgres

_ROUNDS, _ROUND_SECONDS = 12, 2.5
_IN_FLIGHT = 32


def measure(*, short: bool, say: Say) -> list[Figure]:
    rounds, seconds = (2, 1.5) if short else (_ROUNDS, _ROUND_SECONDS)
    rates: dict[bool, list[float]] = {True: [], False: []}
    cpu_us: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="zembil-bench-") as name:
        directory = Path(name)
        with (
            EmbeddedPostgres.start(directory / "postgres") as postgres,
            processes.served(postgres.url, directory / "limited.log") as limited,
            processes.served(postgres.url, directory / "unlimited.log", limited=False) as unlimited,
        ):
            for gateway in (limited, unlimited):
                _posted(gateway, seconds=1)
            for number in range(1, rounds + 1):
                say(f"rate_limits: round {number} of {rounds}")
                # Each goes first as often as the other: the tables grow.
                for is_limited in (True, False) if number % 2 else (False, True):
                    per_second, cpu = _posted(limited if is_limited else unlimited, seconds=seconds)
                    rates[is_limited].append(per_second)
                    cpu_us[is_limited].append(cpu)
    ratios = [with_limits / without for with_limits, without in zip(rates[True], rates[False], strict=True)]
    added_us = median(cpu_us[True]) - median(cpu_us[False])
    return [
        Figure(name="POST /payments without limits", value=median(rates[False]), unit="req/s"),
        Figure(name="POST /payments with limits", value=median(rates[True]), unit="req/s"),
        Figure(
            name="with limits against without",
            value=median(ratios),
            at_least=0.95,
            note=f"rounds from {min(ratios):.2f} to {max(ratios):.2f}; {added_us:+.1f} µs of processor per payment",
        ),
    ]


def _posted(gateway: Gateway, *, seconds: float) -> tuple[float, float]:
    """Payments per second, and the processor time that the API process took for one."""
    process = psutil.Process(gateway.process.pid)
    cpu_seconds = sum(process.cpu_times()[:2])
    done = load.post(
        f"{gateway.base_url}/payments",
        orders.bodies(),
        headers=gateway.authorization,
        in_flight=_IN_FLIGHT,
        seconds=seconds,
    )
    return done.per_second, 1e6 * (sum(process.cpu_times()[:2]) - cpu_seconds) / done.answers
