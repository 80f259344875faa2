"""zembil merchant create: a merchant with its accounts and keys."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zembil.cli.database import found_database
from zembil.errors import ConfigurationError

if TYPE_CHECKING:
    from zembil.accounts.model import NewMerchant

_DATA = Path(".zembil")

commands = typer.Typer(help="Merchants and their keys.", no_args_is_help=True)


@commands.callback()
def merchant() -> None:
    """Merchants and their keys."""


@commands.command("create")
def create(
    name: Annotated[str, typer.Argument(help="The merchant's name, as payers read it.")],
    *,
    again: Annotated[bool, typer.Option("--again", help="Even if there is a merchant of this name.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, in the form of `zembil dev --ready-file`.")
    ] = False,
    data: Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")] = _DATA,
) -> None:
    """Create a merchant with a sandbox and a live account, and print their keys: they are shown this once."""
    import asyncio
    from datetime import UTC, datetime

    from zembil import ids
    from zembil.accounts import user_queries
    from zembil.accounts.operations import create_merchant
    from zembil.cli.local import named, ready_document
    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connected, reading

    name = name.strip()
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigurationError("A merchant's name has 1 to 200 printable characters.")

    async def run(database_url: str) -> "NewMerchant":
        await demand_migrated(database_url)
        async with connected(database_url, connections_max=1) as db:
            async with reading(db) as conn:
                is_there = bool(await user_queries.find_merchants(conn, name))
            if is_there and not again:
                raise ConfigurationError(f"There is a merchant of the name {name}. With --again another one is made.")
            return await create_merchant(db, name, at=datetime.now(UTC))

    with found_database(data) as (database_url, origin):
        new = asyncio.run(run(database_url))
    keys = {"sandbox": named(new.sandbox), "live": named(new.live)}
    if as_json:
        typer.echo(json.dumps(ready_document(origin, keys, database_url), indent=2))
        return
    typer.echo(f"{name} has two accounts. Their keys are shown this once:\n")
    for environment, base_url in (("sandbox", f"{origin}/sandbox/v1"), ("live", f"{origin}/v1")):
        typer.echo(f"{environment}  {base_url}")
        for role, key in keys[environment].items():
            typer.echo(f"  {role.removesuffix('_key'):10} {key}")
    shown = ids.shown(ids.Prefix.MERCHANT, new.id)
    typer.echo(f"\nNext, invite its first admin:\n\n  zembil user invite EMAIL --merchant {shown}{_place(data)}")


def _place(data: Path) -> str:
    """The option that names the data directory, where it is needed."""
    import shlex

    return "" if data == _DATA else f" --data {shlex.quote(str(data))}"
