"""zembil migrate: bring the database up to this version."""

import os

import typer

from zembil.errors import ConfigurationError


def migrate() -> None:
    """Apply the migrations that are missing, one process at a time. Safe to run again."""
    import asyncio

    from zembil.db.migrate import migrate as apply

    database_url = os.environ.get("ZEMBIL_DATABASE_URL")
    if not database_url:
        raise ConfigurationError("Set ZEMBIL_DATABASE_URL to the database to migrate.")
    applied = asyncio.run(apply(database_url))
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("nothing to apply: the database is up to date")
