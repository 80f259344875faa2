"""zembil doubt: what nobody knows the end of, and what the operator finds out about it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zembil.cli.database import found_database, user_name
from zembil.errors import ConfigurationError
from zembil.management.model import Finding

if TYPE_CHECKING:
    from zembil.management.queries import DoubtfulCharge, DoubtfulRefund

commands = typer.Typer(help="Charges and refunds in doubt.", no_args_is_help=True)

_LISTED_MAX = 1000

Data = Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command("list")
def list_(data: Data = Path(".zembil"), *, as_json: AsJson = False) -> None:
    """List the charges and refunds in doubt of every account, oldest first, and why each is."""
    import asyncio

    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connection
    from zembil.management.queries import list_doubtful_charges_of_all, list_doubtful_refunds_of_all

    async def run(database_url: str) -> "list[DoubtfulCharge | DoubtfulRefund]":
        await demand_migrated(database_url)
        async with connection(database_url) as conn:
            charges = await list_doubtful_charges_of_all(conn, limit=_LISTED_MAX)
            return [*charges, *await list_doubtful_refunds_of_all(conn, limit=_LISTED_MAX)]

    with found_database(data) as (database_url, _):
        doubts = [_document(doubt) for doubt in asyncio.run(run(database_url))]
    if as_json:
        typer.echo(json.dumps({"doubts": doubts}, indent=2))
        return
    for doubt in doubts:
        typer.echo(
            f"{doubt['id']}  {doubt['payment_id']}  {doubt['mobile_money_provider']:8}  {doubt['phone']:14}  "
            f"{doubt['amount']:>12} {doubt['currency']}  {doubt['created_at']}  {doubt['state']:12}  {doubt['why']}"
        )
    if not doubts:
        typer.echo("Nothing is in doubt.")


def _document(doubt: "DoubtfulCharge | DoubtfulRefund") -> dict[str, Any]:
    from zembil import ids, instants, money
    from zembil.ids import Prefix
    from zembil.management.queries import DoubtfulCharge

    prefix = Prefix.CHARGE if isinstance(doubt, DoubtfulCharge) else Prefix.REFUND
    return {
        "id": ids.shown(prefix, doubt.id),
        "payment_id": ids.shown(Prefix.PAYMENT, doubt.payment_id),
        "account": doubt.account_id,
        "mobile_money_provider": doubt.rail.value,
        "phone": doubt.phone,
        "amount": money.shown(doubt.amount_santim),
        "currency": money.CURRENCY,
        "created_at": instants.shown(ids.created_at(doubt.id)),
        "state": doubt.state.value,
        "why": doubt.why,
        "asks_again_at": instants.shown(doubt.ask_at) if doubt.ask_at else None,
    }


@commands.command("resolve")
def resolve(
    of: Annotated[str, typer.Argument(metavar="ID", help="The charge or the refund: chg_… or ref_…")],
    finding: Annotated[
        Finding,
        typer.Option(
            "--as",
            help="What became of it, as the wallet's own records say. By a charge another amount came (surplus): it is "
            "returned. A refund that certainly never left (unsent) is sent again.",
        ),
    ],
    reason: Annotated[str, typer.Option(help="How you know; kept in the audit log.")],
    by: Annotated[
        str | None, typer.Option(help="Who says so; kept in the audit log. By default your user name.")
    ] = None,
    data: Data = Path(".zembil"),
    *,
    as_json: AsJson = False,
) -> None:
    """Say what became of a charge or a refund in doubt. Books and events follow, as if the wallet had said it."""
    from zembil import ids, telemetry
    from zembil.ids import Prefix

    charge_id, refund_id = ids.parsed(Prefix.CHARGE, of), ids.parsed(Prefix.REFUND, of)
    if charge_id is None and refund_id is None:
        raise ConfigurationError(f"{of} is no id of a charge or a refund; `zembil doubt list` shows them.")
    reason, operator = reason.strip(), (user_name() if by is None else by).strip()
    if not 1 <= len(reason) <= 500 or not reason.isprintable():
        raise ConfigurationError("Give a --reason of 1 to 500 printable characters.")
    if not 1 <= len(operator) <= 200 or not operator.isprintable():
        raise ConfigurationError("Say --by whom, in 1 to 200 printable characters.")

    telemetry.configure_logs(people=False)
    with found_database(data) as (database_url, origin):
        resolved = _resolved(database_url, origin, of, finding, reason=reason, operator=operator)
    if as_json:
        typer.echo(json.dumps({"id": of, "finding": finding.value, **resolved}, indent=2))
    else:
        typer.echo(f"{of} {finding.value}; {resolved['of']} is {resolved['status']}")


def _resolved(
    database_url: str, origin: str, of: str, finding: Finding, *, reason: str, operator: str
) -> dict[str, str]:
    """What the finding led to: the payment of a charge, or the refund, and its status."""
    import asyncio

    from zembil import ids
    from zembil.accounts.model import Actor, ActorKind
    from zembil.db.clock import Clock
    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connected
    from zembil.ids import Prefix
    from zembil.management.operations import resolve_charge, resolve_refund

    actor = Actor(ActorKind.OPERATOR, operator)

    async def run() -> dict[str, str]:
        await demand_migrated(database_url)
        async with connected(database_url, connections_max=1) as db:
            clock = Clock()
            await clock.measure(db)
            if charge_id := ids.parsed(Prefix.CHARGE, of):
                payment = await resolve_charge(
                    db, charge_id, finding, reason=reason, by=actor, public_url=origin, at=clock.now()
                )
                return {"of": ids.shown(Prefix.PAYMENT, payment.id), "status": payment.status.value}
            refund_id = ids.parsed(Prefix.REFUND, of)
            if refund_id is None:
                raise ConfigurationError(f"{of} is no id of a charge or a refund.")
            refund = await resolve_refund(db, refund_id, finding, reason=reason, by=actor, at=clock.now())
            return {"of": ids.shown(Prefix.REFUND, refund.id), "status": refund.status.value}

    return asyncio.run(run())
