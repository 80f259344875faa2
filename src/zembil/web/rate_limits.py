"""Rate limits: so many requests of an account in any 60 seconds, and never one more, however many processes answer.

A process leases permits in blocks from PostgreSQL and spends them in memory. A block is spent within a second of its
lease, or what is left is given back. What was spent counts until the block's last request is 60 seconds old: so limits
may refuse a little early and never late, and a burst up to the limit is allowed.
"""

import asyncio
import ipaddress
import math
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta

from starlette.types import Scope

from zembil.accounts.model import Principal
from zembil.config import Networks, RateLimits
from zembil.db.pool import Database, reading, transaction
from zembil.errors import RateLimitExceeded
from zembil.telemetry import log
from zembil.web import queries
from zembil.web.queries import UsedLease
from zembil.web.responses import Headers

WINDOW_SECONDS = 60.0
BLOCK_SECONDS = 1.0
_BLOCKS = 20  # of a limit; fewer lease less often, more leave less unused in a process
_DECIDE_SECONDS_MAX = 1.0
_ASK_AGAIN_SECONDS = 1.0
_CLEAN_SECONDS = 60.0
_COUNTED_MAX = 10_000


class _Window:
    """One limit as this process knows it: the block that it spends now, and what is left besides."""

    __slots__ = (
        "asks_again_at", "block", "frees_at", "lease_id", "leased_at", "limit", "lock", "name", "policy", "scope",
        "spare", "spent_at", "state_form", "unspent",
    )  # fmt: skip

    def __init__(self, name: str, scope: str, limit: int, *, window_seconds: float) -> None:
        self.name = name
        self.scope = scope
        self.limit = limit
        self.policy = f'"{name}";q={limit};w={round(window_seconds)}'.encode()
        self.state_form = f'"{name}";r=%d;t=%d'.encode()
        self.block = self.unspent = 0
        self.spare = limit  # what nobody had leased when this block was
        self.lease_id: uuid.UUID | None = None
        self.leased_at = self.spent_at = -math.inf
        self.frees_at = -math.inf  # when something that counts now will count no more
        self.asks_again_at = -math.inf  # nothing was to be had: until then it is not asked for again
        self.lock = asyncio.Lock()

    def has_permit(self, now: float, block_seconds: float) -> bool:
        return self.unspent > 0 and now < self.leased_at + block_seconds

    @property
    def remaining(self) -> int:
        return self.spare + self.unspent

    def reset_seconds(self, now: float) -> int:
        return max(1, math.ceil(self.frees_at - now))

    def state(self, now: float) -> bytes:
        return self.state_form % (self.spare + self.unspent, self.reset_seconds(now))

    def used(self, now: float) -> UsedLease | None:
        """The block that this process has, to be settled; None if it has none."""
        if self.lease_id is None:
            return None
        return UsedLease(self.scope, self.lease_id, self.block - self.unspent, max(0.0, now - self.spent_at))


class RateLimiter:
    """Spends permits of accounts, and of keys that have a lower limit."""

    def __init__(
        self,
        db: Database,
        limits: RateLimits,
        *,
        window_seconds: float = WINDOW_SECONDS,
        block_seconds: float = BLOCK_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._limits = limits
        self._window_seconds = window_seconds
        self._block_seconds = block_seconds
        self._now = now
        self._windows: dict[int | uuid.UUID, _Window] = {}
        self._undecided_until = -math.inf

    async def admit(self, principal: Principal) -> Headers:
        """Spend a permit; answers the headers that tell what is left. Raises RateLimitExceeded."""
        account = principal.account
        limit = self._limits.live if account.livemode else self._limits.sandbox
        if principal.rate_limit is None:
            if limit == 0:
                return ()
            window = self._windows.get(account.id)
            if window is not None:
                now = self._now()
                if window.has_permit(now, self._block_seconds):  # nearly always
                    window.unspent -= 1
                    window.spent_at = now
                    return _headers(now, window)
        windows: list[_Window] = []
        if principal.rate_limit is not None:
            scope = f"key {principal.key_id}"
            windows.append(self._window(principal.key_id, "key", scope, principal.rate_limit))
        if limit:
            windows.append(self._window(account.id, "account", f"account {account.id}", limit))
        return await self._admit(windows)

    def _window(self, of: int | uuid.UUID, name: str, scope: str, limit: int) -> _Window:
        window = self._windows.get(of)
        if window is None or window.limit != limit:
            window = self._windows[of] = _Window(name, scope, limit, window_seconds=self._window_seconds)
        return window

    async def _admit(self, windows: list[_Window]) -> Headers:
        """Spend a permit of every window, or of none."""
        while True:
            now = self._now()
            without = next((window for window in windows if not window.has_permit(now, self._block_seconds)), None)
            if without is None:
                for window in windows:
                    window.unspent -= 1
                    window.spent_at = now
                return _headers(now, *windows)
            if now < self._undecided_until:
                return ()
            if now < without.asks_again_at:
                raise _exceeded(now, without, windows)
            await self._lease(without)

    async def _lease(self, window: _Window) -> None:
        """Get a block, or learn that there is none; those who come meanwhile wait for it too."""
        async with window.lock:
            now = self._now()
            if window.has_permit(now, self._block_seconds) or now < window.asks_again_at or now < self._undecided_until:
                return
            try:
                async with asyncio.timeout(_DECIDE_SECONDS_MAX):
                    await self._lease_from_database(window)
            except Exception as error:  # noqa: BLE001  (whatever it is: a limiter that cannot decide refuses nobody)
                self._undecided_until = self._now() + _ASK_AGAIN_SECONDS
                log.warning("rate_limits.undecided", reason=type(error).__name__)

    async def _lease_from_database(self, window: _Window) -> None:
        lease_id = uuid.uuid4()
        # Read before the database is asked, so that a block is over for us before it is over there.
        asked_at = self._now()
        used = window.used(asked_at)
        window.lease_id, window.block, window.unspent = None, 0, 0
        async with transaction(self._db) as conn:
            await queries.lock_limit(conn, window.scope)
            if used is not None:
                await queries.settle_leases(conn, [used], window=timedelta(seconds=self._window_seconds))
            lease = await queries.lease_permits(
                conn,
                window.scope,
                lease_id,
                limit=window.limit,
                wanted=max(1, window.limit // _BLOCKS),
                counts=timedelta(seconds=self._window_seconds + self._block_seconds),
            )
        now = self._now()
        frees_in = self._window_seconds if lease.first_ends_seconds is None else lease.first_ends_seconds
        window.frees_at = now + frees_in
        window.spare = max(0, window.limit - lease.held - lease.granted)
        if lease.granted:
            window.lease_id, window.leased_at = lease_id, asked_at
            window.block = window.unspent = lease.granted
            window.spent_at = asked_at
        else:
            window.asks_again_at = now + min(max(0.01, frees_in), _ASK_AGAIN_SECONDS)

    async def run(self) -> None:
        """Give back what was not spent, again and again, until cancelled."""
        cleans_at = self._now() + _CLEAN_SECONDS
        while True:
            await asyncio.sleep(self._block_seconds)
            try:
                await self.settle()
                if self._now() >= cleans_at:
                    cleans_at = self._now() + _CLEAN_SECONDS
                    async with reading(self._db) as conn:
                        await queries.delete_old_leases(conn)
            except Exception as error:  # noqa: BLE001  (what is not given back counts as spent for a minute)
                log.warning("rate_limits.not_settled", reason=type(error).__name__)

    async def settle(self) -> None:
        """Give back what is left of blocks that are over, and forget limits that nobody uses any more."""
        now = self._now()
        over = [
            (of, window)
            for of, window in self._windows.items()
            if now >= window.leased_at + self._block_seconds
            and now >= window.asks_again_at
            and not window.lock.locked()
        ]
        for of, _ in over:
            del self._windows[of]
        used = [used for _, window in over if (used := window.used(now)) is not None]
        if used:
            async with reading(self._db) as conn:
                await queries.settle_leases(conn, used, window=timedelta(seconds=self._window_seconds))


def _headers(now: float, *windows: _Window) -> Headers:
    tightest = windows[0] if len(windows) == 1 else min(windows, key=lambda window: window.remaining)
    return (
        (b"ratelimit-policy", b", ".join([window.policy for window in windows])),
        (b"ratelimit", b", ".join([window.state(now) for window in windows])),
        (b"x-ratelimit-limit", b"%d" % tightest.limit),
        (b"x-ratelimit-remaining", b"%d" % tightest.remaining),
        (b"x-ratelimit-reset", b"%d" % tightest.reset_seconds(now)),
    )


def _exceeded(now: float, refusing: _Window, windows: list[_Window]) -> RateLimitExceeded:
    seconds = refusing.reset_seconds(now)
    error = RateLimitExceeded(
        f"This {refusing.name} may make {refusing.limit} requests in a minute; go on in {seconds} s.",
        retry_after_seconds=seconds,
    )
    error.headers += tuple((name.decode(), value.decode()) for name, value in _headers(now, *windows))
    return error


class RecentCounts:
    """Counts what came within the last minute from each of many, in this process; it forgets the quietest first."""

    def __init__(self, limit: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._now = now
        self._recent: OrderedDict[str, deque[float]] = OrderedDict()

    def count(self, of: str) -> int:
        """Count one more and answer 0; or, if there were too many within a minute, only how many seconds to wait."""
        now = self._now()
        recent = self._recent.setdefault(of, deque(maxlen=self._limit))
        self._recent.move_to_end(of)
        while len(self._recent) > _COUNTED_MAX:
            self._recent.popitem(last=False)
        if len(recent) == self._limit and now - recent[0] < WINDOW_SECONDS:
            return math.ceil(WINDOW_SECONDS - (now - recent[0]))
        recent.append(now)
        return 0


class FailedAuthentications:
    """Counts, for each address, those who come without a valid key. Whoever has one is not refused for others."""

    def __init__(self, limit: int, *, trusted_proxies: Networks, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._trusted = trusted_proxies
        self._counts = RecentCounts(limit, now=now)

    def count(self, scope: Scope) -> None:
        """Raises RateLimitExceeded instead of counting, once there were too many within a minute."""
        if self._limit == 0:
            return
        if seconds := self._counts.count(address_group(client_address(scope, self._trusted))):
            raise RateLimitExceeded(
                "Too many requests without a valid API key came from your address; a valid key is still answered.",
                retry_after_seconds=seconds,
            )


def client_address(scope: Scope, trusted_proxies: Networks) -> str:
    """Where a request came from: the peer, or what the nearest of our own proxies says of it."""
    client: tuple[str, int] | None = scope.get("client")
    address = client[0] if client else ""
    if not _is_within(address, trusted_proxies):
        return address
    named = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
    for part in reversed(named.split(",")):
        hop = part.strip()
        if not _is_address(hop):
            break
        address = hop
        if not _is_within(hop, trusted_proxies):
            break
    return address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_within(text: str, networks: Networks) -> bool:
    return bool(networks) and _is_address(text) and any(ipaddress.ip_address(text) in network for network in networks)


def address_group(address: str) -> str:
    """Whose address it is: a whole /64 of IPv6 is one customer's."""
    if ":" not in address or not _is_address(address):
        return address
    return str(ipaddress.ip_network((address, 64), strict=False))
