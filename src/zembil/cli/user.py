"""zembil user: links for people to come in, where no mail is sent."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zembil.accounts.model import Role
from zembil.cli.database import found_database, user_name
from zembil.errors import ConfigurationError, DuplicateReference

if TYPE_CHECKING:
    from uuid import UUID

    from zembil.accounts.model import Actor
    from zembil.db.pool import Database

Data = Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")]
_DATA = Path(".zembil")

commands = typer.Typer(help="People who sign in to the dashboard.", no_args_is_help=True)


@commands.callback()
def user() -> None:
    """People who sign in to the dashboard."""


@commands.command("invite")
def invite(
    email: Annotated[str, typer.Argument(help="The person's e-mail address, to sign in with.")],
    *,
    merchant: Annotated[str, typer.Option(help="The merchant's name, exactly, or its id (mer_…).")],
    role: Annotated[Role, typer.Option(help="What the person may do.")] = Role.ADMIN,
    data: Data = _DATA,
) -> None:
    """Print a link with which a person comes in: valid 7 days, once. The first admin of a merchant comes this way.

    For somebody who was invited and has not come, it is a new link in place of the one that was lost or ran out.
    """
    from datetime import UTC, datetime

    from zembil.accounts import team

    address = _email(email)

    async def run(db: "Database") -> str:
        merchant_id = await _the_merchant(db, merchant)
        try:
            _, token = await team.invite(
                db, merchant_id, email=address, role=role, by=_operator(), at=datetime.now(UTC)
            )
        except DuplicateReference as error:
            token = await _invited_again(db, merchant_id, address, role)
            if token is None:
                raise ConfigurationError(error.message) from None
        return token

    typer.echo(_with_database(data, run))


@commands.command("reset-link")
def reset_link(
    email: Annotated[str, typer.Argument(help="The person's e-mail address.")],
    *,
    remove_second_step: Annotated[
        bool, typer.Option("--remove-second-step", help="Also forget the phone, when it is lost.")
    ] = False,
    data: Data = _DATA,
) -> None:
    """Print a link with which a person sets a new password: valid 24 hours, once. Make sure whom you give it to."""
    from datetime import UTC, datetime

    from zembil.accounts import sign_in, user_queries
    from zembil.accounts.model import AuditAction, LinkKind
    from zembil.accounts.operations import audit_people
    from zembil.db.pool import transaction

    address = _email(email)

    async def run(db: "Database") -> str:
        async with transaction(db) as conn:
            found = await user_queries.find_user_by_email(conn, address)
            if found is None:
                raise ConfigurationError(f"Nobody signs in with {address}.")
            if remove_second_step:
                await sign_in.forget_second_step(conn, found, by=_operator(), at=datetime.now(UTC))
            await audit_people(conn, found, _operator(), AuditAction.RESET_LINK_MADE, at=datetime.now(UTC))
            # Who was invited and has not come says their name too.
            kind, lifetime = LinkKind.PASSWORD_RESET, sign_in.RESET_LINK_LIFETIME
            return await sign_in.new_link(
                conn, found, LinkKind.INVITATION if found.is_invited else kind, lifetime=lifetime
            )

    typer.echo(_with_database(data, run))


async def _the_merchant(db: "Database", named: str) -> "UUID":
    """The one merchant of a name, or of an id."""
    from zembil import ids
    from zembil.accounts import user_queries
    from zembil.db.pool import reading

    merchant_id = ids.parsed(ids.Prefix.MERCHANT, named)
    async with reading(db) as conn:
        found = await user_queries.find_merchants(conn, named, merchant_id)
    if not found:
        raise ConfigurationError(f"There is no merchant of the {'name' if merchant_id is None else 'id'} {named}.")
    if len(found) > 1:
        shown = ", ".join(ids.shown(ids.Prefix.MERCHANT, one) for one in found)
        raise ConfigurationError(f"There are {len(found)} merchants of the name {named}; give the id of one: {shown}.")
    return found[0]


async def _invited_again(db: "Database", merchant_id: "UUID", email: str, role: Role) -> str | None:
    """A new link for who was invited to the merchant and has not come; None for anybody else."""
    from datetime import UTC, datetime

    from zembil.accounts import team, user_queries
    from zembil.db.pool import reading

    async with reading(db) as conn:
        found = await user_queries.find_user_by_email(conn, email)
    if found is None or found.merchant_id != merchant_id or not found.is_invited:
        return None
    if found.role is not role:
        raise ConfigurationError(
            f"{email} was invited as {found.role.value}: repeat with --role {found.role.value}. "
            "An admin changes the role under Settings, Team."
        )
    return await team.invite_again(db, merchant_id, found.id, by=_operator(), at=datetime.now(UTC))


def _operator() -> "Actor":
    from zembil.accounts.model import Actor, ActorKind

    return Actor(ActorKind.OPERATOR, user_name())


def _email(text: str) -> str:
    from zembil.web.fields import check_email

    address = text.strip().lower()
    if len(address) > 254 or any(check_email(address)):
        raise ConfigurationError(f"{text} is not an e-mail address.")
    return address


def _with_database(data: Path, run: "Callable[[Database], Awaitable[str]]") -> str:
    """Make a link in the database that is found; answers its address."""
    import asyncio

    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connected

    async def token(database_url: str) -> str:
        await demand_migrated(database_url)
        async with connected(database_url, connections_max=1) as db:
            return await run(db)

    with found_database(data) as (database_url, origin):
        return f"{origin}/dashboard/link/{asyncio.run(token(database_url))}"
