"""Bearer authentication: which account and role a request speaks for."""

import asyncio
import time
from collections import OrderedDict
from datetime import timedelta

from zembil.accounts import queries, secrets
from zembil.accounts.model import Principal
from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.pool import Database, reading
from zembil.errors import AuthenticationFailed, ServiceUnavailable
from zembil.telemetry import log

# A key revoked by another process still opens its account for at most this long.
REMEMBERED_SECONDS = 1.0
_REMEMBERED_MAX = 10_000
_USE_IS_RECORDED_EVERY = timedelta(minutes=1)


class KeyRing:
    """Finds the principal of an API key, and remembers it for a second so that a busy key costs no look-up."""

    def __init__(self, db: Database, clock: Clock, settings: Settings) -> None:
        self._db = db
        self._clock = clock
        self._remembered: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._forgotten = 0  # how often
        self._recording: set[asyncio.Task[None]] = set()
        self._refusal = (
            "Send your API key: `Authorization: Bearer sk_…`. None came, or the one that came is invalid, expired or "
            f"revoked, or belongs to the other environment: test keys (sk_test_…) work at "
            f"{settings.base_url(livemode=False)}, live keys (sk_live_…) at {settings.base_url(livemode=True)}."
        )

    async def principal(self, authorization: bytes | None, *, livemode: bool) -> Principal:
        """The principal of an Authorization header. Raises AuthenticationFailed, always with the same message."""
        key = _bearer_key(authorization)
        if key is None or secrets.opens_live(key) != livemode:
            raise AuthenticationFailed(self._refusal)
        secret_hash = secrets.hashed(key)
        found = self._remembered.get(secret_hash)
        if found is not None and found[0] > time.monotonic():
            principal = found[1]
        else:
            principal = await self._look_up(key, secret_hash)
        if queries.expired(principal, at=self._clock.now()):
            raise AuthenticationFailed(self._refusal)
        return principal

    def forget(self) -> None:
        """Look every key up again: keys or clocks were changed in this process."""
        self._remembered.clear()
        self._forgotten += 1  # what is being looked up right now may be old already

    async def _look_up(self, key: str, secret_hash: bytes) -> Principal:
        if not secrets.is_api_key(key):
            raise AuthenticationFailed(self._refusal)
        forgotten = self._forgotten
        async with reading(self._db) as conn:
            principal = await queries.find_principal(conn, secret_hash)
        if principal is None:
            raise AuthenticationFailed(self._refusal)
        if forgotten == self._forgotten:
            self._remembered[secret_hash] = (time.monotonic() + REMEMBERED_SECONDS, principal)
        while len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        if principal.last_used_at is None or principal.last_used_at <= self._clock.now() - _USE_IS_RECORDED_EVERY:
            recording = asyncio.create_task(self._record_use(principal))
            self._recording.add(recording)
            recording.add_done_callback(self._recording.discard)
        return principal

    async def _record_use(self, principal: Principal) -> None:
        """Off the request's path, and no trouble of it."""
        try:
            async with reading(self._db) as conn:
                await queries.record_use(conn, principal.key_id)
        except ServiceUnavailable:
            log.info("keys.use_not_recorded", reason="the database is away")

    async def drain(self) -> None:
        """Wait until every use is recorded."""
        if self._recording:
            await asyncio.wait(self._recording)


def _bearer_key(authorization: bytes | None) -> str | None:
    if authorization is None or authorization[:7].lower() != b"bearer ":
        return None
    key = authorization[7:].strip(b" ")
    return key.decode("ascii") if key.startswith(b"sk_") and key.isascii() else None
