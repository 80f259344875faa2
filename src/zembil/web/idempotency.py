"""Idempotency keys: a repeated request does nothing twice and is answered as it was the first time.

The key's row commits in the transaction of the effect, so a crash leaves both or neither, and nothing to clean.
"""

import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from zembil.accounts import secrets
from zembil.db.pool import Connection, Database, LockNotAvailable, transaction
from zembil.errors import Fault, IdempotencyInProgress, IdempotencyKeyReused, ValidationError
from zembil.web import queries
from zembil.web.queries import StoredAnswer
from zembil.web.responses import Answer

HEADER = "Idempotency-Key"
_FORM = re.compile(rb"[!-~]{1,255}")
_EXPONENT_MAX = 40
_REPLAYED = (b"idempotent-replayed", b"true")


def _number(text: str) -> Any:
    """`100`, `100.0` and `1e2` are one number, so they are written alike."""
    number = Decimal(text)
    if abs(number.adjusted()) > _EXPONENT_MAX:
        return str(number)  # in a field that nobody reads; a number that large is not written out
    return int(number) if number == number.to_integral_value() else number.normalize()


_decoder = msgspec.json.Decoder(float_hook=_number)
_encoder = msgspec.json.Encoder(order="sorted", decimal_format="string")


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key of a request, and what the request asks for."""

    key: str
    fingerprint: bytes

    def of(self, user_id: uuid.UUID) -> "IdempotencyKey":
        """The key, where its answer is for one person alone: the same request of anybody else is another one."""
        return IdempotencyKey(self.key, hashlib.sha256(self.fingerprint + user_id.bytes).digest())


def idempotency_key(values: list[bytes], *, method: str, path: str, body: bytes) -> IdempotencyKey | None:
    """The key that a request carries; None without one. Raises ValidationError for a header that is not one key."""
    if not values:
        return None
    value = values[0]
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        value = value[1:-1]
    if len(values) > 1 or not _FORM.fullmatch(value):
        raise ValidationError(Fault(HEADER, "Give one key of 1 to 255 visible ASCII characters."))
    return IdempotencyKey(value.decode("ascii"), _fingerprint(method, path, body))


def _fingerprint(method: str, path: str, body: bytes) -> bytes:
    """SHA-256 of the request in canonical form: key order, white space and ways to write a number do not matter."""
    try:
        canonical = _encoder.encode(_decoder.decode(body)) if body else b""
    except (msgspec.MsgspecError, ValueError, RecursionError, ArithmeticError):
        canonical = body  # it will be refused for what it is
    return hashlib.sha256(b"\n".join((method.encode(), path.encode("utf-8", "replace"), canonical))).digest()


@dataclass(frozen=True, slots=True)
class Once:
    """Answers requests once for each key."""

    db: Database
    secret_key: bytes

    async def answer(
        self,
        account_id: int,
        key: IdempotencyKey | None,
        work: Callable[[Connection], Awaitable[Answer]],
        *,
        at: datetime,
        holds_a_secret: bool = False,
    ) -> Answer:
        """Run `work` in one transaction with its key, or replay. `at` is the account's time.

        Raises IdempotencyKeyReused, IdempotencyInProgress, and what `work` raises: then nothing is kept.
        """
        async with transaction(self.db) as conn:
            if key is None:
                return await work(conn)
            if not await claimed(conn, account_id, key, at=at):
                return self.replayed(await queries.find_answer(conn, account_id, key.key), account_id, key)
            answer = await work(conn)
            kept = self._sealed(answer.body, account_id, key) if holds_a_secret else answer.body
            await queries.store_answer(
                conn, account_id, key.key, status=answer.status, answer=kept, is_sealed=holds_a_secret
            )
            return answer

    def replayed(self, stored: StoredAnswer | None, account_id: int, key: IdempotencyKey) -> Answer:
        """The answer of the first request with this key. Raises IdempotencyKeyReused, IdempotencyInProgress."""
        if stored is None:
            raise IdempotencyInProgress
        demand_same_request(stored, key)
        if stored.status is None or stored.answer is None:
            raise IdempotencyInProgress
        body = stored.answer
        if stored.is_sealed:
            body = secrets.unseal(self.secret_key, body, bound_to=_binding(account_id, key)).encode()
        return Answer(stored.status, body, (_REPLAYED,))

    def _sealed(self, body: bytes, account_id: int, key: IdempotencyKey) -> bytes:
        return secrets.seal(self.secret_key, body.decode(), bound_to=_binding(account_id, key))


async def claimed(conn: Connection, account_id: int, key: IdempotencyKey, *, at: datetime) -> bool:
    """Whether the key is this transaction's. Raises IdempotencyInProgress if another holds it for long."""
    try:
        return await queries.claim_key(conn, account_id, key.key, fingerprint=key.fingerprint, at=at)
    except LockNotAvailable:
        raise IdempotencyInProgress from None


def demand_same_request(stored: StoredAnswer, key: IdempotencyKey) -> None:
    if stored.fingerprint != key.fingerprint:
        raise IdempotencyKeyReused


def as_replay(answer: Answer) -> Answer:
    """An answer that was made again from what the first request created."""
    return Answer(answer.status, answer.body, (*answer.headers, _REPLAYED))


def _binding(account_id: int, key: IdempotencyKey) -> str:
    return f"idempotency_keys|{account_id}|{key.key}"
