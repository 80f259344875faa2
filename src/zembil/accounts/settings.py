"""What an admin settles: the merchant's names and zone, and how an account treats payments and refunds."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from zembil import ids
from zembil.accounts import queries, user_queries
from zembil.accounts.model import Account, AuditAction, LateMoney, Principal, Role, User
from zembil.accounts.operations import audit
from zembil.db.pool import Connection
from zembil.errors import InvalidState, PermissionDenied
from zembil.ids import Prefix

LIFETIME_SECONDS_MIN, LIFETIME_SECONDS_MAX = 300, 2_592_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MerchantSettings:
    """What holds in both environments."""

    name: str
    name_am: str | None
    time_zone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """What holds in one environment."""

    late_money: LateMoney
    payment_lifetime_seconds: int


async def change_settings(
    conn: Connection, by: Principal, merchant: MerchantSettings, account: AccountSettings, *, at: datetime
) -> None:
    """Write what is settled, and what changed into the audit log: of the merchant into that of both environments."""
    merchant_id, was = await _locked(conn, by)
    before = {"name": was.merchant_name, "name_am": was.merchant_name_am, "time_zone": was.time_zone}
    after = {"name": merchant.name, "name_am": merchant.name_am, "time_zone": merchant.time_zone}
    if told := _changed(before, after):
        await queries.update_merchant(
            conn, merchant_id, name=merchant.name, name_am=merchant.name_am, time_zone=merchant.time_zone
        )
        for account_id in await queries.list_account_ids(conn, merchant_id):
            await _audit(conn, by, merchant_id, told, at=at, account_id=account_id)
    lifetimes = was.payment_lifetime_seconds, account.payment_lifetime_seconds
    of_account = _changed(
        {"late_money": was.late_money.value, "payment_lifetime_seconds": lifetimes[0]},
        {"late_money": account.late_money.value, "payment_lifetime_seconds": lifetimes[1]},
    )
    if of_account:
        await queries.update_account(
            conn, was.id, late_money=account.late_money, payment_lifetime_seconds=account.payment_lifetime_seconds
        )
        await _audit(conn, by, merchant_id, of_account, at=at)


# Who approves refunds


async def ask_to_switch_self_approval(conn: Connection, by: Principal, *, at: datetime) -> bool:
    """Switch whether people may approve the refunds that they asked for; False if a second admin has to agree first.

    In live that is so wherever there is a second admin. Raises InvalidState if somebody has asked already.
    """
    merchant_id, account = await _locked(conn, by)
    asked_by = await asked_for_self_approval(conn, by.account.id)
    if asked_by is not None:
        raise InvalidState(f"{asked_by.name} has asked for this already.")
    if account.livemode and await _others_can_agree(conn, merchant_id, by):
        await queries.update_self_approval_asked(conn, account.id, by.user_id)
        told = {"self_approval": _word(not account.allow_self_approval)}
        await _audit(conn, by, merchant_id, told, AuditAction.SELF_APPROVAL_ASKED, at=at)
        return False
    await _switch(conn, by, merchant_id, account, at=at)
    return True


async def agree_to_switch_self_approval(conn: Connection, by: Principal, *, at: datetime) -> None:
    """The second admin agrees. Raises InvalidState if nobody asks (any more), PermissionDenied to who asked."""
    merchant_id, account = await _locked(conn, by)
    asked_by = await asked_for_self_approval(conn, by.account.id)
    if asked_by is None:
        raise InvalidState("Nobody asks for this any more.")
    if asked_by.id == by.user_id:
        raise PermissionDenied("Another admin has to agree to what you asked for.")
    await _switch(conn, by, merchant_id, account, at=at, asked_by=ids.shown(Prefix.USER, asked_by.id))


async def refuse_to_switch_self_approval(conn: Connection, by: Principal, *, at: datetime) -> None:
    """Whoever asked takes it back, or another admin does not agree. Raises InvalidState if nobody asks."""
    merchant_id, _ = await _locked(conn, by)
    asked_by = await asked_for_self_approval(conn, by.account.id)
    if asked_by is None:
        raise InvalidState("Nobody asks for this any more.")
    await queries.update_self_approval_asked(conn, by.account.id, None)
    told = {"asked_by": ids.shown(Prefix.USER, asked_by.id)}
    await _audit(conn, by, merchant_id, told, AuditAction.SELF_APPROVAL_REFUSED, at=at)


async def asked_for_self_approval(conn: Connection, account_id: int) -> User | None:
    """The admin who asks for the switch; what somebody asked who has left, or is no admin any more, is void."""
    user_id = await queries.find_self_approval_asked(conn, account_id)
    user = None if user_id is None else await user_queries.find_user(conn, user_id)
    return user if user is not None and user.role is Role.ADMIN else None


async def _others_can_agree(conn: Connection, merchant_id: uuid.UUID, by: Principal) -> bool:
    team = await user_queries.list_users(conn, merchant_id)
    return any(one.role is Role.ADMIN and one.password_hash is not None and one.id != by.user_id for one in team)


async def _switch(
    conn: Connection, by: Principal, merchant_id: uuid.UUID, account: Account, *, at: datetime, **details: str
) -> None:
    allowed = not account.allow_self_approval
    await queries.update_self_approval(conn, account.id, allowed=allowed)
    told = {"self_approval_was": _word(not allowed), "self_approval": _word(allowed)}
    await _audit(conn, by, merchant_id, told | details, at=at)


def _word(is_allowed: bool) -> str:
    return "allowed" if is_allowed else "forbidden"


async def _locked(conn: Connection, by: Principal) -> tuple[uuid.UUID, Account]:
    """The merchant's id and the account as it is now; who changes settings does so one after the other."""
    merchant_id = await queries.get_merchant_id(conn, by.account.id)
    await user_queries.lock_merchant(conn, merchant_id)
    await queries.lock_account(conn, by.account.id)
    account = await queries.find_account(conn, by.account.id)
    return merchant_id, account or by.account


def _changed(
    before: Mapping[str, str | int | None], after: Mapping[str, str | int | None]
) -> dict[str, str | int | None]:
    changed: dict[str, str | int | None] = {}
    for name, value in after.items():
        if before[name] != value:
            changed |= {f"{name}_was": before[name], name: value}
    return changed


async def _audit(
    conn: Connection,
    by: Principal,
    merchant_id: uuid.UUID,
    told: Mapping[str, str | int | None],
    action: AuditAction = AuditAction.SETTINGS_CHANGED,
    *,
    at: datetime,
    account_id: int | None = None,
) -> None:
    merchant = ids.shown(Prefix.MERCHANT, merchant_id)
    await audit(conn, account_id or by.account.id, by.actor, action, merchant, at=at, **told)
