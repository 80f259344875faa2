"""How people come in, and go: sign-in in two steps, sessions, links that work once, passwords.

A try to sign in counts as failed until it has succeeded, so that trying many at once gains nothing. An e-mail that
nobody has is treated as one that somebody has; only a lock-out is then written to no audit log.
"""

import hashlib
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from zembil import ids
from zembil.accounts import codes, passwords, user_queries
from zembil.accounts.model import Actor, ActorKind, AuditAction, LinkKind, Session, User
from zembil.accounts.operations import audit_people
from zembil.accounts.passwords import Passwords, Turn
from zembil.accounts.secrets import opened, random_token, seal
from zembil.db.pool import Connection, Database, UniqueViolation, reading, transaction
from zembil.errors import InvalidState, RateLimitExceeded, ResourceNotFound
from zembil.telemetry import log

SESSION_LIFETIME = timedelta(hours=12)
SESSION_IDLE = timedelta(minutes=30)
CODE_AWAITED = timedelta(minutes=10)
SIGN_IN_LINK_LIFETIME = timedelta(minutes=10)
RESET_LINK_LIFETIME = timedelta(hours=24)

FAILED_OF_EMAIL_MAX, FAILED_OF_ADDRESS_MAX = 20, 100
FAILED_WINDOW = timedelta(minutes=15)
WRONG_CODES_MAX = 10
CODES_LOCK = timedelta(minutes=15)

_SEEN_IS_RECORDED_EVERY = timedelta(minutes=1)
_SYSTEM = Actor(ActorKind.SYSTEM, "system")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is at the door: what a browser says of itself, and where it is."""

    address: str
    address_group: str  # what counts as one address
    browser: str


def token_hash(token: str) -> bytes:
    """What is stored of the token of a session or a link. Its 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


async def sign_in(
    db: Database, hasher: Passwords, email: str, password: str, visitor: Visitor, *, at: datetime
) -> str | None:
    """The first step; answers the token of a new session, or None. Raises RateLimitExceeded."""
    async with hasher.turn() as turn:
        async with reading(db) as conn:
            user = await user_queries.find_user_by_email(conn, email)
        is_right = await _is_right(db, turn, email, user, password, visitor, at=at)
        if not is_right or user is None or user.password_hash is None:
            return None
        known = user.password_hash
        renewed = await turn.hashed(password) if passwords.is_outdated(known) else known
    async with transaction(db) as conn:
        now = await user_queries.lock_user(conn, user.id)
        if now is None or now.password_hash != known:
            return None  # it was changed while we looked
        if renewed != known:
            await user_queries.update_password(conn, user.id, renewed)
        return await _let_in(conn, now, visitor, at=at)


async def knows_password(
    db: Database, hasher: Passwords, session: Session, password: str, visitor: Visitor, *, at: datetime
) -> bool:
    """Whether it is the password of whoever is signed in, which a stolen session does not know.

    Who has none needs none. A wrong one counts as a sign-in that failed. Raises RateLimitExceeded, ServiceUnavailable.
    """
    user = session.user
    if user.password_hash is None:
        return True
    async with hasher.turn() as turn:
        return await _is_right(db, turn, user.email or "", user, password, visitor, at=at)


async def _is_right(
    db: Database, turn: Turn, email: str, user: User | None, password: str, visitor: Visitor, *, at: datetime
) -> bool:
    scopes = [_scope("email", email), _scope("address", visitor.address_group)]
    failed_at, is_last = await _count_as_failed(db, scopes)
    is_right = await turn.is_right(password, None if user is None else user.password_hash)
    if is_right:
        async with transaction(db) as conn:
            await user_queries.forgive(conn, email=scopes[0], address=scopes[1], failed_at=failed_at)
    elif user is not None and is_last:
        async with transaction(db) as conn:
            await _tell_of_lock_out(conn, user, visitor, after="wrong passwords", at=at)
    return is_right


async def _count_as_failed(db: Database, scopes: list[bytes]) -> tuple[datetime, bool]:
    """Count a try; answers when it was, and whether it is the last one that its e-mail has."""
    async with transaction(db) as conn:
        await user_queries.lock_scopes(conn, scopes)
        failed = await user_queries.failed_sign_ins(conn, scopes, window=FAILED_WINDOW)
        waits = [
            seconds
            for (count, seconds), limit in zip(failed, (FAILED_OF_EMAIL_MAX, FAILED_OF_ADDRESS_MAX), strict=True)
            if count >= limit
        ]
        if not waits:
            failed_at = await user_queries.insert_failed_sign_in(conn, scopes, window=FAILED_WINDOW)
            return failed_at, failed[0][0] + 1 == FAILED_OF_EMAIL_MAX
    raise RateLimitExceeded(
        f"Too many sign-ins have failed. Try again in {_minutes(max(waits))}.",
        retry_after_seconds=max(1, math.ceil(max(waits))),
    )


def _minutes(seconds: float) -> str:
    minutes = max(1, math.ceil(seconds / 60))
    return "1 minute" if minutes == 1 else f"{minutes} minutes"


def _scope(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind}|{text}".encode("utf-8", "replace")).digest()


async def _tell_of_lock_out(conn: Connection, user: User, visitor: Visitor, *, after: str, at: datetime) -> None:
    told = {"after": after, "address": visitor.address, "browser": visitor.browser}
    await audit_people(conn, user, _SYSTEM, AuditAction.LOCKED_OUT, at=at, **told)


# Sessions


async def _let_in(
    conn: Connection, user: User, visitor: Visitor, *, at: datetime, has_second_step: bool = False
) -> str:
    """Begin the session of somebody who signs in; where a code is still to come, nobody is signed in yet."""
    if has_second_step or not user.has_second_step:
        told = {"address": visitor.address, "browser": visitor.browser}
        await audit_people(conn, user, user.actor, AuditAction.SIGNED_IN, at=at, **told)
    return await begin_session(conn, user, visitor, at=at, has_second_step=has_second_step)


async def begin_session(
    conn: Connection, user: User, visitor: Visitor, *, at: datetime, has_second_step: bool = False
) -> str:
    """A new session with a new token; where a second step is set up it is still to come, unless it was done."""
    token = random_token()
    awaits_code = user.has_second_step and not has_second_step
    session = Session(
        id=ids.new_id(at),
        user=user,
        awaits_code=awaits_code,
        has_second_step=has_second_step,
        address=visitor.address,
        browser=visitor.browser,
        seen_at=at,
        expires_at=at,
    )
    lifetime = CODE_AWAITED if awaits_code else SESSION_LIFETIME
    await user_queries.insert_session(conn, session, token_hash=token_hash(token), lifetime=lifetime)
    return token


async def resume(db: Database, token: str, *, at: datetime) -> Session | None:
    """The session that a token opens, with the role that its user has now."""
    async with reading(db) as conn:
        session = await user_queries.find_session(conn, token_hash(token), idle=SESSION_IDLE)
        if session is not None and session.seen_at <= at - _SEEN_IS_RECORDED_EVERY:
            await user_queries.record_seen(conn, session.id)
    return session


async def end_session(db: Database, user: User, session_id: uuid.UUID, *, how: str, at: datetime) -> bool:
    """Sign a browser of the user out; False if it is signed out already."""
    async with transaction(db) as conn:
        await user_queries.lock_user(conn, user.id)
        await _tell_of_ends(conn, user, lambda session: session.id == session_id, how=how, at=at)
        return await user_queries.delete_session(conn, user.id, session_id)


async def _tell_of_ends(
    conn: Connection, user: User, ends: Callable[[Session], bool], *, how: str, at: datetime
) -> None:
    """Tell, before it happens, which sessions of the user end; those that are over have ended by themselves."""
    for session in filter(ends, await user_queries.list_sessions(conn, user.id, idle=SESSION_IDLE)):
        told = {"how": how, "address": session.address, "browser": session.browser}
        await audit_people(conn, user, user.actor, AuditAction.SESSION_ENDED, at=at, **told)


async def _locked(conn: Connection, session: Session) -> User:
    """Whoever is signed in, whom nobody else changes until the transaction ends.

    Raises InvalidState if the session ended since it was read, or other things than then open one: what began before
    a password was changed does not go on after it.
    """
    now, read = await user_queries.lock_user(conn, session.user.id), session.user
    if (
        now is None
        or (now.email, now.password_hash) != (read.email, read.password_hash)
        or not await user_queries.session_stands(conn, session)
    ):
        raise InvalidState("You have signed in anew or out meanwhile. Open the page again.")
    return now


# The second step


async def give_code(
    db: Database, secret_key: bytes, session: Session, code: str, visitor: Visitor, *, at: datetime
) -> str | None:
    """The second step: answers the token of the session that takes this one's place, or None if the code is wrong.

    Raises RateLimitExceeded while the second step is locked.
    """
    async with transaction(db) as conn:
        user = await _locked(conn, session)
        if not await _code_is_right(conn, secret_key, user, code, visitor, at=at):
            return None
        await user_queries.delete_session(conn, user.id, session.id)
        return await _let_in(conn, user, visitor, at=at, has_second_step=True)


async def _code_is_right(
    conn: Connection, secret_key: bytes, user: User, code: str, visitor: Visitor, *, at: datetime
) -> bool:
    """Use a code, or a recovery code, up. The user's row is locked: of many at once exactly one gets through."""
    _demand_unlocked(user, at=at)
    recovery = codes.recovery_code_hash(user.id, code)
    if recovery is not None and await user_queries.use_recovery_code(conn, user.id, recovery):
        told = {"address": visitor.address, "browser": visitor.browser}
        left = await user_queries.count_recovery_codes(conn, user.id)
        await audit_people(conn, user, user.actor, AuditAction.RECOVERY_CODE_USED, at=at, left=left, **told)
        return True
    secret = _totp_secret(secret_key, user)
    step = None if secret is None else codes.step_of(secret, code, at=at)
    if step is not None and await user_queries.accept_step(conn, user.id, step):
        return True
    if await user_queries.record_wrong_code(conn, user.id, at_most=WRONG_CODES_MAX, lock=CODES_LOCK):
        await _tell_of_lock_out(conn, user, visitor, after="wrong codes", at=at)
    return False


def _demand_unlocked(user: User, *, at: datetime) -> None:
    if user.totp_locked_until is not None and user.totp_locked_until > at:
        seconds = (user.totp_locked_until - at).total_seconds()
        raise RateLimitExceeded(
            f"Too many wrong codes in a row. Codes are accepted again in {_minutes(seconds)}.",
            retry_after_seconds=max(1, math.ceil(seconds)),
        )


def _totp_secret(secret_key: bytes, user: User) -> str | None:
    """The secret of the user's second step; None if there is none, or none that was sealed here for this user."""
    if user.sealed_totp is None:
        return None
    secret = opened(secret_key, user.sealed_totp, bound_to=user.totp_binding)
    if secret is None:
        log.error("sign_in.second_step_unreadable", reason="ZEMBIL_SECRET_KEY or the row is another", user=str(user.id))
    return secret


async def propose_second_step(db: Database, secret_key: bytes, session: Session) -> str:
    """The secret for an authenticator app: the one that waits in this session to be confirmed, or a new one.

    Raises InvalidState if a second step is set up already.
    """
    async with transaction(db) as conn:
        user = await _locked(conn, session)
        if user.has_second_step:
            raise InvalidState("The second step is set up already.")
        proposed = await _proposed_secret(conn, secret_key, session)
        if proposed is not None:
            return proposed
        secret = codes.new_secret()
        sealed = seal(secret_key, secret, bound_to=session.totp_binding)
        await user_queries.update_proposed_totp(conn, session.id, sealed)
        return secret


async def _proposed_secret(conn: Connection, secret_key: bytes, session: Session) -> str | None:
    sealed = await user_queries.find_proposed_totp(conn, session.id)
    return None if sealed is None else opened(secret_key, sealed, bound_to=session.totp_binding)


async def confirm_second_step(
    db: Database, secret_key: bytes, session: Session, code: str, visitor: Visitor, *, at: datetime
) -> tuple[str, list[str]] | None:
    """Turn the second step on, for who knows the password; answers a new session's token and the recovery codes.

    None if the code is not one of the secret that was proposed in this session.
    """
    async with transaction(db) as conn:
        user = await _locked(conn, session)
        secret = await _proposed_secret(conn, secret_key, session)
        if user.has_second_step or secret is None:
            raise InvalidState("The second step is set up already, or was not begun.")
        step = codes.step_of(secret, code, at=at)
        if step is None or not await user_queries.accept_step(conn, user.id, step):
            return None
        await user_queries.turn_totp_on(conn, user.id, seal(secret_key, secret, bound_to=user.totp_binding))
        await audit_people(conn, user, user.actor, AuditAction.SECOND_STEP_ON, at=at)
        recovery = await _new_recovery_codes(conn, user)
        await user_queries.delete_session(conn, user.id, session.id)
        token = await begin_session(conn, replace(user, totp_since=at), visitor, at=at, has_second_step=True)
        return token, recovery


async def _new_recovery_codes(conn: Connection, user: User) -> list[str]:
    new = codes.new_recovery_codes()
    hashes = [codes.recovery_code_hash(user.id, code) for code in new]
    await user_queries.replace_recovery_codes(conn, user.id, [kept for kept in hashes if kept is not None])
    return new


async def remove_second_step(
    db: Database, secret_key: bytes, session: Session, code: str, visitor: Visitor, *, at: datetime
) -> bool:
    """Turn the second step off; False if the code is wrong."""
    async with transaction(db) as conn:
        user = await _locked(conn, session)
        if not user.has_second_step:
            raise InvalidState("There is no second step to remove.")
        if not await _code_is_right(conn, secret_key, user, code, visitor, at=at):
            return False
        await forget_second_step(conn, user, by=user.actor, at=at)
    return True


async def forget_second_step(conn: Connection, user: User, *, by: Actor, at: datetime) -> None:
    await user_queries.turn_totp_off(conn, user.id)
    await user_queries.replace_recovery_codes(conn, user.id, [])
    await audit_people(conn, user, by, AuditAction.SECOND_STEP_OFF, at=at)


# Passwords


async def change_password(
    db: Database, hasher: Passwords, session: Session, *, current: str, new: str, visitor: Visitor, at: datetime
) -> str | None:
    """Change one's own password: every session ends; answers the token of this browser's new one.

    None if the current password is wrong. Raises RateLimitExceeded, ServiceUnavailable.
    """
    if not await knows_password(db, hasher, session, current, visitor, at=at):
        return None
    async with hasher.turn() as turn:
        hashed = await turn.hashed(new)
    async with transaction(db) as conn:
        user = await _locked(conn, session)
        await audit_people(conn, user, user.actor, AuditAction.PASSWORD_SET, at=at)
        await _replace_password(conn, user, hashed, at=at, here=session.id)
        return await begin_session(conn, user, visitor, at=at, has_second_step=session.has_second_step)


async def _replace_password(
    conn: Connection, user: User, hashed: str, *, at: datetime, here: uuid.UUID | None = None
) -> None:
    """Every session ends; that of this browser, `here`, only to begin anew."""
    await user_queries.update_password(conn, user.id, hashed)
    await _tell_of_ends(conn, user, lambda session: session.id != here, how="new password", at=at)
    await user_queries.delete_sessions(conn, user.id)
    await user_queries.delete_links(conn, user.id)


async def change_name_and_email(db: Database, session: Session, *, name: str, email: str | None, at: datetime) -> bool:
    """Change how one is called, and, for who knows the password, with which e-mail one signs in.

    False if the e-mail is somebody else's.
    """
    try:
        async with transaction(db) as conn:
            user = await _locked(conn, session)
            await user_queries.update_user(conn, user.id, name=name, email=email)
            if (name, email) != (user.name, user.email):
                told = {"name_was": user.name, "name": name, "email_was": user.email, "email": email}
                await audit_people(conn, user, user.actor, AuditAction.USER_CHANGED, at=at, **told)
    except UniqueViolation:
        return False
    return True


# Links that work once


async def new_link(conn: Connection, user: User, kind: LinkKind, *, lifetime: timedelta) -> str:
    """The token of a new link; an earlier one of the same kind ends."""
    token = random_token()
    await user_queries.insert_link(conn, token_hash(token), user.id, kind, lifetime=lifetime)
    return token


async def open_link(db: Database, token: str) -> tuple[User, LinkKind]:
    """What a link is for; it is not used up. Raises ResourceNotFound for one that is unknown, used or over."""
    async with reading(db) as conn:
        found = await user_queries.find_link(conn, token_hash(token))
    if found is None:
        raise ResourceNotFound
    return found


async def sign_in_by_link(db: Database, token: str, visitor: Visitor, *, at: datetime) -> str:
    """Use a sign-in link up; answers the token of a new session. Raises ResourceNotFound."""
    async with transaction(db) as conn:
        user = await _used_link(conn, token, LinkKind.SIGN_IN)
        return await _let_in(conn, user, visitor, at=at)


async def accept_invitation(db: Database, token: str, *, name: str, hashed: str, at: datetime) -> User:
    """Use an invitation up. Raises ResourceNotFound."""
    async with transaction(db) as conn:
        user = await _used_link(conn, token, LinkKind.INVITATION)
        await user_queries.update_user(conn, user.id, name=name, email=user.email)
        await audit_people(conn, user, user.actor, AuditAction.USER_JOINED, at=at, name=name)
        await _replace_password(conn, user, hashed, at=at)
    return user


async def reset_password(db: Database, token: str, *, hashed: str, at: datetime) -> User:
    """Use a reset link up: the password is new, and every session has ended. Raises ResourceNotFound."""
    async with transaction(db) as conn:
        user = await _used_link(conn, token, LinkKind.PASSWORD_RESET)
        await audit_people(conn, user, user.actor, AuditAction.PASSWORD_SET, at=at, by_link="yes")
        await _replace_password(conn, user, hashed, at=at)
    return user


async def _used_link(conn: Connection, token: str, kind: LinkKind) -> User:
    """Whose link it was, whom nobody else changes until the transaction ends: a new password ends it or its session."""
    found = await user_queries.find_link(conn, token_hash(token))
    user = None if found is None or found[1] is not kind else await user_queries.lock_user(conn, found[0].id)
    if user is None or not await user_queries.use_link(conn, token_hash(token)):
        raise ResourceNotFound
    return user
