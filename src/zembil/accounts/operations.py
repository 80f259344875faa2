"""What is done with merchants and accounts."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from zembil import ids, instants
from zembil.accounts import audit_queries, queries, secrets
from zembil.accounts.model import (
    AccountKeys,
    Actor,
    ApiKey,
    AuditAction,
    AuditEntry,
    NewMerchant,
    Principal,
    Role,
    User,
)
from zembil.db.pool import Connection, Database, reading, transaction
from zembil.errors import Fault, InvalidState, ResourceNotFound
from zembil.ids import Prefix
from zembil.telemetry import log

SEALED_MAX = 1000
END_YEAR_MAX = 9998  # of keys: the last year that has an instant in every time zone

# What each role may give: at most itself.
_RANKS: dict[Role, int] = {Role.READ_ONLY: 0, Role.DEVELOPER: 1, Role.ADMIN: 2}


async def create_merchant(db: Database, name: str, *, at: datetime) -> NewMerchant:
    """Create a merchant: a user of each role, a sandbox and a live account, and a key of each user in both."""
    merchant_id = ids.new_id(at)
    users = {role: ids.new_id(at) for role in Role}
    async with transaction(db) as conn:
        await queries.insert_merchant(conn, merchant_id, name)
        for role, user_id in users.items():
            await queries.insert_user(conn, user_id, merchant_id, name=f"First {_in_words(role)}", role=role)
        sandbox = await _open_account(conn, merchant_id, users, livemode=False, at=at)
        live = await _open_account(conn, merchant_id, users, livemode=True, at=at)
    return NewMerchant(merchant_id, users[Role.ADMIN], sandbox, live)


async def _open_account(
    conn: Connection, merchant_id: uuid.UUID, users: dict[Role, uuid.UUID], *, livemode: bool, at: datetime
) -> AccountKeys:
    account_id = await queries.insert_account(conn, merchant_id, livemode=livemode)
    keys: dict[Role, str] = {}
    for role, user_id in users.items():
        keys[role] = key = secrets.new_api_key(livemode=livemode)
        kept = ApiKey(
            account_id=account_id,
            id=ids.new_id(at),
            user_id=user_id,
            name=f"First {_in_words(role)} key",
            role=role,
            last_four=key[-4:],
        )
        await queries.insert_api_key(conn, kept, secret_hash=secrets.hashed(key))
    return AccountKeys(keys[Role.ADMIN], keys[Role.DEVELOPER], keys[Role.READ_ONLY])


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """The key that somebody wants, checked."""

    name: str
    role: Role
    expires_at: datetime | None = None
    rate_limit: int | None = None


def order_faults(order: KeyOrder, by: Principal, *, at: datetime) -> Iterator[Fault]:
    """What is wrong with an order: more than who asks has, or an end that is past or too far away."""
    if _RANKS[order.role] > _RANKS[by.role]:
        yield Fault("role", f"A key with the role {by.role.value} makes none that may do more.")
    if order.expires_at is not None and order.expires_at <= at:
        yield Fault("expires_at", "Give a time to come, for example 2027-01-31T00:00:00Z.")
    elif order.expires_at is not None and order.expires_at.year > END_YEAR_MAX:
        yield Fault("expires_at", f"Give a time before the year {END_YEAR_MAX + 1}.")


async def create_key(conn: Connection, by: Principal, order: KeyOrder, *, at: datetime) -> tuple[ApiKey, str]:
    """Make a key in the name of whoever asks for it; answers it with its secret, which is readable this once."""
    key, secret = await _make_key(conn, by, order, at=at)
    await _audit_key(conn, by, AuditAction.KEY_CREATED, key.id, at=at, name=key.name, role=key.role.value)
    return key, secret


async def _make_key(conn: Connection, by: Principal, order: KeyOrder, *, at: datetime) -> tuple[ApiKey, str]:
    secret = secrets.new_api_key(livemode=by.account.livemode)
    key = ApiKey(
        account_id=by.account.id,
        id=ids.new_id(at),
        user_id=by.user_id,
        name=order.name,
        role=order.role,
        last_four=secret[-4:],
        expires_at=order.expires_at,
        rate_limit=order.rate_limit,
    )
    await queries.insert_api_key(conn, key, secret_hash=secrets.hashed(secret))
    return key, secret


async def roll_key(
    conn: Connection, by: Principal, key_id: uuid.UUID, *, overlap: timedelta, at: datetime
) -> tuple[ApiKey, ApiKey, str]:
    """Make a key that takes another's place, which ends after the overlap; answers new, old and the new one's secret.

    The new one is made in the name of whoever rolls it: nobody gets a key to act as somebody else.
    Raises ResourceNotFound, and InvalidState if the key has ended already.
    """
    old = await _lock_key(conn, by, key_id)
    if old.expired(at=at):
        raise InvalidState("This key has expired; make a new one with POST /keys.")
    order = KeyOrder(name=old.name, role=old.role, expires_at=old.expires_at, rate_limit=old.rate_limit)
    new, secret = await _make_key(conn, by, order, at=at)
    ends_at = at + overlap
    ended = replace(old, expires_at=ends_at if old.expires_at is None else min(old.expires_at, ends_at))
    await queries.update_key_expiry(conn, ended)
    if not overlap:
        await queries.revoke_api_key(conn, old.account_id, old.id)
    replaced_by = ids.shown(Prefix.KEY, new.id)
    seconds = int(overlap.total_seconds())
    await _audit_key(conn, by, AuditAction.KEY_ROLLED, old.id, at=at, replaced_by=replaced_by, overlap_seconds=seconds)
    return new, ended, secret


async def change_key_expiry(
    conn: Connection, by: Principal, key_id: uuid.UUID, expires_at: datetime | None, *, at: datetime
) -> ApiKey:
    """Set when a key ends by itself, or that it does not. Raises ResourceNotFound, InvalidState."""
    key = await _lock_key(conn, by, key_id)
    if key.expired(at=at):
        raise InvalidState("This key has expired; make a new one.")
    if expires_at is not None:
        await _demand_another_admin_key(conn, key, at=at)
    changed = replace(key, expires_at=expires_at)
    await queries.update_key_expiry(conn, changed)
    ends = {name: instants.shown(end) if end else None for name, end in (("was", key.expires_at), ("is", expires_at))}
    await _audit_key(conn, by, AuditAction.KEY_EXPIRY_CHANGED, key.id, at=at, **ends)
    return changed


async def revoke_key(conn: Connection, by: Principal, key_id: uuid.UUID, *, at: datetime) -> None:
    """End a key at once. Raises ResourceNotFound, and InvalidState for the last one that may manage keys."""
    key = await _lock_key(conn, by, key_id)
    await _demand_another_admin_key(conn, key, at=at)
    await queries.revoke_api_key(conn, key.account_id, key.id)
    await _audit_key(conn, by, AuditAction.KEY_REVOKED, key.id, at=at, name=key.name, role=key.role.value)


async def _demand_another_admin_key(conn: Connection, key: ApiKey, *, at: datetime) -> None:
    if key.role is Role.ADMIN and not key.expired(at=at) and not await queries.has_another_admin_key(conn, key, at=at):
        raise InvalidState("This is the account's last admin key; make another one first, or roll this one.")


async def _audit_key(
    conn: Connection,
    by: Principal,
    action: AuditAction,
    key_id: uuid.UUID,
    *,
    at: datetime,
    **details: str | int | None,
) -> None:
    await audit(conn, by.account.id, by.actor, action, ids.shown(Prefix.KEY, key_id), at=at, **details)


async def _lock_key(conn: Connection, by: Principal, key_id: uuid.UUID) -> ApiKey:
    await queries.lock_account(conn, by.account.id)
    key = await queries.find_api_key(conn, by.account.id, key_id)
    if key is None:
        raise ResourceNotFound
    return key


def _in_words(role: Role) -> str:
    return role.value.replace("_", "-")


# The audit log


async def audit(
    conn: Connection,
    account_id: int,
    actor: Actor,
    action: AuditAction,
    object_id: str,
    *,
    at: datetime,
    **details: str | int | None,
) -> None:
    """Record for good who did what, in the transaction in which it is done. `at` is the database's time."""
    entry = AuditEntry(
        account_id=account_id, id=ids.new_id(at), actor=actor, action=action, object=object_id, details=details
    )
    await audit_queries.insert_audit_entry(conn, entry)


async def audit_people(
    conn: Connection,
    user: User,
    actor: Actor,
    action: AuditAction,
    *,
    at: datetime,
    **details: str | int | None,
) -> None:
    """Record what concerns a person: it holds in both environments, so it stands in the log of each."""
    for account_id in await queries.list_account_ids(conn, user.merchant_id):
        await audit(conn, account_id, actor, action, ids.shown(Prefix.USER, user.id), at=at, **details)


async def seal_audit_log(db: Database) -> None:
    """Put new entries at the end of their accounts' chains. The log tells each end, to be kept outside the database."""
    async with reading(db) as conn:
        account_ids = await audit_queries.list_accounts_to_seal(conn, limit=SEALED_MAX)
    for account_id in account_ids:
        async with transaction(db) as conn:
            await queries.lock_account(conn, account_id)
            end = await audit_queries.seal_entries(conn, account_id, limit=SEALED_MAX)
        if end is not None:
            log.info("audit.sealed", account=account_id, number=end.number, seal=end.seal.hex())
