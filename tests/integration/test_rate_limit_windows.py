"""Rate limits between processes: in no window is more let through than the limit, and nearly all of it is."""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from tests.support.gateway import Gateway
from zembil.accounts.model import Account, LateMoney, Principal, Role
from zembil.config import RateLimits
from zembil.db.pool import connected
from zembil.errors import RateLimitExceeded
from zembil.web import rate_limits as web_rate_limits
from zembil.web.rate_limits import RateLimiter

WINDOW_SECONDS, BLOCK_SECONDS = 1.0, 0.05
LIMIT = 60
# Where nothing is waited for, nothing is shortened: a busy machine may hold a process up for longer than a short block
# lasts, and what was left of the block then counts as spent.
IN_SERVICE = (web_rate_limits.WINDOW_SECONDS, web_rate_limits.BLOCK_SECONDS)

# Accounts of nobody: leases ask for none, and no two tests share one.
_account_ids = iter(random.sample(range(10**9, 10**12), 1000))


def principal(*, livemode: bool = False, rate_limit: int | None = None) -> Principal:
    account = Account(next(_account_ids), "Shop", livemode, timedelta(0), LateMoney.ACCEPT, False)
    return Principal(account, uuid.uuid4(), uuid.uuid4(), Role.ADMIN, None, rate_limit)


@asynccontextmanager
async def process(
    gateway: Gateway,
    limit: int = LIMIT,
    times: tuple[float, float] = (WINDOW_SECONDS, BLOCK_SECONDS),
) -> AsyncGenerator[RateLimiter]:
    """A limiter as a process of its own has it: a pool of its own, and nothing in common but the database."""
    async with connected(gateway.database_url, connections_max=4) as db:
        window_seconds, block_seconds = times
        limiter = RateLimiter(
            db, RateLimits(sandbox=limit, live=limit), window_seconds=window_seconds, block_seconds=block_seconds
        )
        running = asyncio.create_task(limiter.run())
        yield limiter
        running.cancel()
        await asyncio.wait([running])


async def is_admitted(limiter: RateLimiter, who: Principal) -> bool:
    try:
        await limiter.admit(who)
    except RateLimitExceeded:
        return False
    return True


def most_in_a_window(admitted_at: list[float], seconds: float = WINDOW_SECONDS) -> int:
    times, first, most = sorted(admitted_at), 0, 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


async def test_a_burst_up_to_the_limit_is_allowed_and_not_one_more(gateway: Gateway) -> None:
    who = principal()
    async with process(gateway, times=IN_SERVICE) as limiter:
        began = time.monotonic()
        answers = await asyncio.gather(*(is_admitted(limiter, who) for _ in range(3 * LIMIT)))
        assert time.monotonic() - began < web_rate_limits.WINDOW_SECONDS
        assert sum(answers) == LIMIT


async def test_the_limit_is_there_again_when_the_burst_is_a_window_old(gateway: Gateway) -> None:
    who = principal()
    async with process(gateway) as limiter:
        for _ in range(2):
            assert sum([await is_admitted(limiter, who) for _ in range(LIMIT)]) == LIMIT
            ended = time.monotonic()
            assert not await is_admitted(limiter, who)
            await asyncio.sleep(ended + WINDOW_SECONDS + BLOCK_SECONDS - time.monotonic())


@pytest.mark.parametrize("seed", range(3))
async def test_in_no_window_is_more_let_through_by_all_processes_together(gateway: Gateway, seed: int) -> None:
    who, chance = principal(), random.Random(seed)  # noqa: S311
    admitted_at: list[float] = []

    async def client(limiter: RateLimiter, until: float) -> None:
        while time.monotonic() < until:
            admitted_at.extend(
                [time.monotonic() for _ in range(chance.randrange(1, 30)) if await is_admitted(limiter, who)]
            )
            await asyncio.sleep(chance.choice([0, 0.01, 0.05, 0.3]))

    async with process(gateway) as one, process(gateway) as two, process(gateway) as three:
        until = time.monotonic() + 4 * WINDOW_SECONDS
        await asyncio.gather(*(client(limiter, until) for limiter in (one, two, three) for _ in range(2)))
    assert most_in_a_window(admitted_at) <= LIMIT
    assert len(admitted_at) > 2.5 * LIMIT  # a little early, not by much


async def test_what_a_process_does_not_use_it_gives_back(gateway: Gateway) -> None:
    who = principal()
    async with process(gateway) as idle, process(gateway) as busy:
        assert await is_admitted(idle, who)
        await asyncio.sleep(4 * BLOCK_SECONDS)
        assert sum([await is_admitted(busy, who) for _ in range(LIMIT)]) == LIMIT - 1


async def test_a_slow_client_is_never_refused(gateway: Gateway) -> None:
    who = principal()
    async with process(gateway, 20) as limiter:
        for _ in range(36):
            assert await is_admitted(limiter, who)
            await asyncio.sleep(WINDOW_SECONDS / 18)


async def test_a_lower_limit_of_a_key_counts_within_its_accounts(gateway: Gateway) -> None:
    who = principal(rate_limit=7)
    everyone = Principal(who.account, uuid.uuid4(), who.user_id, who.role, None)
    async with process(gateway, times=IN_SERVICE) as limiter:
        assert sum([await is_admitted(limiter, who) for _ in range(20)]) == 7
        assert sum([await is_admitted(limiter, everyone) for _ in range(LIMIT)]) == LIMIT - 7


async def test_accounts_do_not_count_for_each_other(gateway: Gateway) -> None:
    async with process(gateway, 5, times=IN_SERVICE) as limiter:
        for who in (principal(), principal(livemode=True), principal()):
            assert sum([await is_admitted(limiter, who) for _ in range(10)]) == 5


async def test_without_a_limit_nobody_is_counted_and_nothing_is_said(gateway: Gateway) -> None:
    who = principal()
    async with process(gateway, 0) as limiter:
        assert [await limiter.admit(who) for _ in range(50)] == [()] * 50


async def test_a_limiter_that_cannot_decide_lets_everyone_through() -> None:
    async with connected("postgresql://nobody@127.0.0.1:1/nowhere", connections_max=1) as db:
        limiter = RateLimiter(db, RateLimits(sandbox=5, live=5))
        who = principal()
        assert [await limiter.admit(who) for _ in range(50)] == [()] * 50
