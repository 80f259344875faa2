"""zembil doubt: charges of which nobody knows what became, and what the operator finds out about them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zembil.cli.database import found_database
from zembil.errors import ConfigurationError

commands = typer.Typer(help="Charges in doubt.", no_args_is_help=True)

_LISTED_MAX = 1000

Data = Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")]


class Finding(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@commands.command("list")
def list_(data: Data = Path(".zembil")) -> None:
    """List the charges in doubt of every account, oldest first."""
    import asyncio

    from zembil import ids, instants, money
    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connection
    from zembil.ids import Prefix
    from zembil.management.queries import DoubtfulCharge, list_doubtful_charges_of_all

    async def run(database_url: str) -> list[DoubtfulCharge]:
        await demand_migrated(database_url)
        async with connection(database_url) as conn:
            return await list_doubtful_charges_of_all(conn, limit=_LISTED_MAX)

    with found_database(data) as (database_url, _):
        charges = asyncio.run(run(database_url))
    for charge in charges:
        typer.echo(
            f"{ids.shown(Prefix.CHARGE, charge.id)}  {ids.shown(Prefix.PAYMENT, charge.payment_id)}  "
            f"{charge.rail.value:8}  {charge.phone:14}  {money.shown(charge.amount_santim):>12} {money.CURRENCY}  "
            f"{instants.shown(ids.created_at(charge.id))}  {charge.state.value}"
        )
    if not charges:
        typer.echo("No charge is in doubt.")


@commands.command("resolve")
def resolve(
    charge: Annotated[str, typer.Argument(help="The charge: chg_…")],
    finding: Annotated[Finding, typer.Option("--as", help="What became of it, as the wallet's own records say.")],
    reason: Annotated[str, typer.Option(help="How you know; kept in the log.")],
    data: Data = Path(".zembil"),
) -> None:
    """Say what became of a charge in doubt. Its payment, books and events follow, as if the wallet had said it."""
    import asyncio

    from zembil import ids, telemetry
    from zembil.db.clock import Clock
    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connected
    from zembil.ids import Prefix
    from zembil.management.operations import resolve_doubt
    from zembil.payments.model import Payment

    charge_id = ids.parsed(Prefix.CHARGE, charge)
    reason = reason.strip()
    if charge_id is None:
        raise ConfigurationError(f"{charge} is no id of a charge; `zembil doubt list` shows them.")
    if not 1 <= len(reason) <= 500 or not reason.isprintable():
        raise ConfigurationError("Give a reason of 1 to 500 printable characters.")

    async def run(database_url: str, public_url: str) -> Payment:
        await demand_migrated(database_url)
        async with connected(database_url, connections_max=1) as db:
            clock = Clock()
            await clock.measure(db)
            _, payment = await resolve_doubt(
                db,
                charge_id,
                succeeded=finding is Finding.SUCCEEDED,
                reason=reason,
                public_url=public_url,
                at=clock.now(),
            )
            return payment

    telemetry.configure_logs(people=False)
    with found_database(data) as (database_url, origin):
        payment = asyncio.run(run(database_url, origin))
    typer.echo(f"{charge} {finding.value}; {ids.shown(Prefix.PAYMENT, payment.id)} is {payment.status.value}")
