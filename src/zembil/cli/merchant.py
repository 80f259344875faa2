"""zembil merchant create: a merchant with its accounts and keys."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from zembil.errors import ConfigurationError, DatabaseError

commands = typer.Typer(help="Merchants and their keys.", no_args_is_help=True)


@commands.callback()
def merchant() -> None:
    """Merchants and their keys."""


@commands.command("create")
def create(
    name: Annotated[str, typer.Argument(help="The merchant's name, as payers read it.")],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, in the form of `zembil dev --ready-file`.")
    ] = False,
    data: Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")] = Path(".zembil"),
) -> None:
    """Create a merchant with a sandbox and a live account, and print their keys: they are shown this once."""
    import asyncio
    from datetime import UTC, datetime

    from zembil.accounts.operations import create_merchant
    from zembil.cli.local import named, ready_document
    from zembil.db.migrate import demand_migrated
    from zembil.db.pool import connected

    name = name.strip()
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigurationError("A merchant's name has 1 to 200 printable characters.")

    async def run(database_url: str) -> dict[str, dict[str, str]]:
        await demand_migrated(database_url)
        async with connected(database_url, connections_max=1) as db:
            new = await create_merchant(db, name, at=datetime.now(UTC))
        return {"sandbox": named(new.sandbox), "live": named(new.live)}

    with _database(data) as (database_url, origin):
        keys = asyncio.run(run(database_url))
    if as_json:
        typer.echo(json.dumps(ready_document(origin, keys, database_url), indent=2))
        return
    typer.echo(f"{name} has two accounts. Their keys are shown this once:\n")
    for environment, base_url in (("sandbox", f"{origin}/sandbox/v1"), ("live", f"{origin}/v1")):
        typer.echo(f"{environment}  {base_url}")
        for role, key in keys[environment].items():
            typer.echo(f"  {role.removesuffix('_key'):10} {key}")


@contextmanager
def _database(data: Path) -> Generator[tuple[str, str]]:
    """The database's URL and the public origin: from the environment, a running `zembil dev`, or its data at rest."""
    if database_url := os.environ.get("ZEMBIL_DATABASE_URL"):
        yield database_url, os.environ.get("ZEMBIL_PUBLIC_URL", "http://127.0.0.1:8420").rstrip("/")
        return
    import asyncio

    from zembil.cli.local import LocalData
    from zembil.db.embedded import EmbeddedPostgres
    from zembil.db.migrate import migrate
    from zembil.db.pool import connection

    async def answers(database_url: str) -> bool:
        with suppress(DatabaseError):
            async with connection(database_url):
                return True
        return False

    local = LocalData(data)
    running = json.loads(local.running.read_text()) if local.running.exists() else None
    # One that was killed leaves its file behind.
    if running is not None and asyncio.run(answers(running["database_url"])):
        yield running["database_url"], running["origin"]
    elif local.postgres.exists():
        with EmbeddedPostgres.start(local.postgres.resolve()) as postgres:
            asyncio.run(migrate(postgres.url))
            yield postgres.url, "http://127.0.0.1:8420"
    else:
        raise ConfigurationError(
            f"There is no data in {data}. Start `zembil dev` first, or set ZEMBIL_DATABASE_URL to your database."
        )
