"""Runs the loops: webhooks, prompts, questions to rails, expiry, refunds, housekeeping. Any number may run."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

from zembil import rail_notifications
from zembil.accounts.operations import seal_audit_log
from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.days import drop_days, make_days
from zembil.db.migrate import drop_months, make_months
from zembil.db.pool import Database, reading
from zembil.errors import ServiceUnavailable
from zembil.payments.charger import Charger
from zembil.payments.queries import realign_due_times
from zembil.refunds.sender import RefundSender
from zembil.telemetry import log
from zembil.web.queries import delete_old_keys
from zembil.webhooks.operations import tidy_queue
from zembil.webhooks.sender import Bell, Sender

_PAYMENTS_SECONDS = 0.25
_QUEUE_SECONDS = 5
_CLOCK_SECONDS = 60
_MONTHS_SECONDS = 6 * 3600
_KEYS_SECONDS = 60
_AUDIT_SECONDS = 5
_KEYS_MAX = 1000


async def run_worker(db: Database, clock: Clock, settings: Settings, bell: Bell, stopping: asyncio.Event) -> None:
    """Work until `stopping`, then finish what is in flight."""
    charger = Charger(db, clock, settings, bell)
    receive = partial(rail_notifications.receive, charger)
    refunds = RefundSender(db, clock, bell)

    async def work_on_payments() -> None:
        async with reading(db) as conn:
            await realign_due_times(conn)
        while await charger.work(receive) and not stopping.is_set():
            pass

    async def work_on_refunds() -> None:
        while await refunds.work() and not stopping.is_set():
            pass

    async def tidy_the_queue() -> None:
        await tidy_queue(db, at=clock.now())

    async def measure_the_clock() -> None:
        await clock.measure(db)

    async def keep_the_months() -> None:
        async with reading(db) as conn:
            await make_months(conn, at=clock.now())
            dropped = await drop_months(conn, before=clock.now() - timedelta(days=settings.history_days))
        for month in dropped:
            log.info("history.dropped", month=month)

    async def turn_the_days() -> None:
        async with reading(db) as conn:
            await make_days(conn, at=clock.now())
            await drop_days(conn, before=clock.now() - timedelta(days=settings.request_log_days))

    async def forget_old_keys() -> None:
        forgotten = _KEYS_MAX
        while forgotten >= _KEYS_MAX and not stopping.is_set():
            async with reading(db) as conn:
                forgotten = await delete_old_keys(conn, at=clock.now(), limit=_KEYS_MAX)

    async def seal_the_audit_log() -> None:
        await seal_audit_log(db)

    async with asyncio.TaskGroup() as loops:
        loops.create_task(Sender(db, clock, settings, bell).run(stopping))
        loops.create_task(_every(_PAYMENTS_SECONDS, work_on_payments, stopping))
        loops.create_task(_every(_PAYMENTS_SECONDS, work_on_refunds, stopping))
        loops.create_task(_every(_QUEUE_SECONDS, tidy_the_queue, stopping))
        loops.create_task(_every(_CLOCK_SECONDS, measure_the_clock, stopping))
        loops.create_task(_every(_MONTHS_SECONDS, keep_the_months, stopping))
        loops.create_task(_every(_MONTHS_SECONDS, turn_the_days, stopping))
        loops.create_task(_every(_KEYS_SECONDS, forget_old_keys, stopping))
        loops.create_task(_every(_AUDIT_SECONDS, seal_the_audit_log, stopping))


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
