"""Runs the loops: send webhooks, push prompts, ask rails, expire payments, keep house. Any number may run."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.migrate import make_months
from zembil.db.pool import Database, reading
from zembil.errors import ServiceUnavailable
from zembil.payments.charger import Charger
from zembil.payments.queries import realign_due_times
from zembil.telemetry import log
from zembil.webhooks.queries import end_deliveries_cut_off
from zembil.webhooks.sender import Bell, Sender

_PAYMENTS_SECONDS = 0.25
_DELIVERIES_CUT_OFF_SECONDS = 5
_CLOCK_SECONDS = 60
_MONTHS_SECONDS = 6 * 3600


async def run_worker(db: Database, clock: Clock, settings: Settings, bell: Bell, stopping: asyncio.Event) -> None:
    """Work until `stopping`, then finish what is in flight."""
    charger = Charger(db, clock, settings, bell)

    async def work_on_payments() -> None:
        async with reading(db) as conn:
            await realign_due_times(conn)
        while await charger.work() and not stopping.is_set():
            pass

    async def end_what_was_cut_off() -> None:
        async with reading(db) as conn:
            await end_deliveries_cut_off(conn, at=clock.now())

    async def measure_the_clock() -> None:
        await clock.measure(db)

    async def make_the_months() -> None:
        async with reading(db) as conn:
            await make_months(conn, at=clock.now())

    async with asyncio.TaskGroup() as loops:
        loops.create_task(Sender(db, clock, settings, bell).run(stopping))
        loops.create_task(_every(_PAYMENTS_SECONDS, work_on_payments, stopping))
        loops.create_task(_every(_DELIVERIES_CUT_OFF_SECONDS, end_what_was_cut_off, stopping))
        loops.create_task(_every(_CLOCK_SECONDS, measure_the_clock, stopping))
        loops.create_task(_every(_MONTHS_SECONDS, make_the_months, stopping))


async def _every(seconds: float, work: Callable[[], Awaitable[None]], stopping: asyncio.Event) -> None:
    """Do the work again and again; trouble is logged and the next round tries again."""
    while not stopping.is_set():
        try:
            await work()
        except ServiceUnavailable:
            log.warning("worker.waits", work=work.__name__, reason="the database is away")
        except Exception:  # noqa: BLE001  (a loop that ended would be missed by nobody)
            log.exception("worker.failed", work=work.__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), seconds)
