"""Calls to rails: bounded in time, and whatever goes wrong in one is what nobody knows, never failure."""

import asyncio
from collections.abc import Awaitable

from zembil.errors import ServiceUnavailable
from zembil.rails.rail import NotSent, Outcome, Unknown
from zembil.telemetry import log

CALL_SECONDS_MAX = 10


async def started(call: Awaitable[Outcome]) -> Outcome:
    """What a rail said when it was told to do something."""
    try:
        async with asyncio.timeout(CALL_SECONDS_MAX):
            return await call
    except TimeoutError:
        return Unknown("the rail did not answer in time")
    except Exception:  # noqa: BLE001
        log.exception("rail.failed")
        return Unknown("the connector failed")


async def asked(call: Awaitable[Outcome]) -> Outcome:
    """What a rail said when it was asked: a question that did not get through says nothing of what it was about."""
    outcome = await started(call)
    return Unknown(outcome.reason) if isinstance(outcome, NotSent) else outcome


async def guarded(work: Awaitable[None]) -> None:
    """Do what is due of one charge or refund: its trouble keeps nobody from the others, and it stays due."""
    try:
        await work
    except ServiceUnavailable:
        log.warning("worker.postponed", reason="the database is away")
    except Exception:  # noqa: BLE001
        log.exception("worker.failed")


async def confirmed(call: Awaitable[bool]) -> bool:
    """Whether a rail confirmed what it was told; silence is no confirmation."""
    try:
        async with asyncio.timeout(CALL_SECONDS_MAX):
            return await call
    except TimeoutError:
        return False
    except Exception:  # noqa: BLE001
        log.exception("rail.failed")
        return False
