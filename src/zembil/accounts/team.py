"""The people of a merchant: invited, given a role, removed. A merchant keeps an admin who can sign in."""

import uuid
from datetime import datetime, timedelta

from zembil import ids
from zembil.accounts import sign_in, user_queries
from zembil.accounts.model import Actor, AuditAction, LinkKind, Role, User
from zembil.accounts.operations import audit_people
from zembil.db.pool import Connection, Database, UniqueViolation, transaction
from zembil.errors import DuplicateReference, InvalidState, ResourceNotFound

INVITATION_LIFETIME = timedelta(days=7)


async def invite(
    db: Database, merchant_id: uuid.UUID, *, email: str, role: Role, by: Actor, at: datetime
) -> tuple[uuid.UUID, str]:
    """Ask a person to come; answers the new user and the token of the invitation, which is readable this once.

    Raises DuplicateReference if somebody has the e-mail already.
    """
    new = User(
        id=ids.new_id(at),
        merchant_id=merchant_id,
        merchant_name="",
        name=email.partition("@")[0][:200],
        role=role,
        email=email,
    )
    try:
        async with transaction(db) as conn:
            await user_queries.insert_invited_user(conn, new)
            token = await sign_in.new_link(conn, new, LinkKind.INVITATION, lifetime=INVITATION_LIFETIME)
            await audit_people(conn, new, by, AuditAction.USER_INVITED, at=at, email=email, role=role.value)
    except UniqueViolation:
        raise DuplicateReference("This e-mail address belongs to somebody already.") from None
    return new.id, token


async def invite_again(db: Database, merchant_id: uuid.UUID, user_id: uuid.UUID, *, by: Actor, at: datetime) -> str:
    """A new invitation in place of one that was lost. Raises ResourceNotFound, InvalidState if the person has come."""
    async with transaction(db) as conn:
        user = await _member(conn, merchant_id, user_id)
        if not user.is_invited:
            raise InvalidState("This person has come already.")
        await audit_people(conn, user, by, AuditAction.USER_INVITED, at=at, email=user.email, role=user.role.value)
        return await sign_in.new_link(conn, user, LinkKind.INVITATION, lifetime=INVITATION_LIFETIME)


async def change_role(
    db: Database, merchant_id: uuid.UUID, user_id: uuid.UUID, role: Role, *, by: Actor, at: datetime
) -> User:
    """Give a person another role, which holds at once; answers the user as before.

    Raises ResourceNotFound, and InvalidState for the last admin.
    """
    async with transaction(db) as conn:
        user = await _member(conn, merchant_id, user_id)
        if role is not Role.ADMIN:
            await _demand_another_admin(conn, user)
        await user_queries.update_role(conn, user.id, role)
        if role is not user.role:
            told = {"role_was": user.role.value, "role": role.value}
            await audit_people(conn, user, by, AuditAction.ROLE_CHANGED, at=at, **told)
    return user


async def remove(db: Database, merchant_id: uuid.UUID, user_id: uuid.UUID, *, by: Actor, at: datetime) -> User:
    """Remove a person: sessions and links end at once; keys made in that name stay until they are revoked.

    Raises ResourceNotFound, and InvalidState for the last admin.
    """
    async with transaction(db) as conn:
        user = await _member(conn, merchant_id, user_id)
        await _demand_another_admin(conn, user)
        await user_queries.mark_removed(conn, user.id)
        await user_queries.delete_sessions(conn, user.id)
        await user_queries.delete_links(conn, user.id)
        await audit_people(conn, user, by, AuditAction.USER_REMOVED, at=at, name=user.name, role=user.role.value)
    return user


async def _member(conn: Connection, merchant_id: uuid.UUID, user_id: uuid.UUID) -> User:
    await user_queries.lock_merchant(conn, merchant_id)
    user = await user_queries.lock_user(conn, user_id)
    if user is None or user.merchant_id != merchant_id:
        raise ResourceNotFound
    return user


async def _demand_another_admin(conn: Connection, user: User) -> None:
    """Raises InvalidState if nobody else could look after the merchant then."""
    if user.role is not Role.ADMIN or user.is_invited:
        return
    team = await user_queries.list_users(conn, user.merchant_id)
    if not any(m.role is Role.ADMIN and m.password_hash is not None and m.id != user.id for m in team):
        raise InvalidState("This is the last admin who can sign in; make another one first.")
