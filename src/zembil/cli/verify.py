"""zembil verify: recompute what must add up."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zembil.cli.database import found_database

if TYPE_CHECKING:
    from zembil.management.verification import Verdict


def verify(
    data: Annotated[Path, typer.Option(help="The data directory of `zembil dev`.")] = Path(".zembil"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute balances, refunds, totals and events from their rows, and name the first row that is wrong.

    Reads ZEMBIL_DATABASE_URL, or the data of `zembil dev`. Writes nothing; exit status 1 if anything does not add up.
    """
    import asyncio

    from zembil.db.migrate import demand_migrated
    from zembil.management.verification import verify as recompute

    async def run(database_url: str) -> "list[Verdict]":
        await demand_migrated(database_url)
        return await recompute(database_url)

    with found_database(data) as (database_url, _):
        verdicts = asyncio.run(run(database_url))
    is_right = all(verdict.mismatch is None for verdict in verdicts)
    if as_json:
        typer.echo(json.dumps({"ok": is_right, "checks": [_document(verdict) for verdict in verdicts]}, indent=2))
    else:
        for verdict in verdicts:
            typer.echo(f"{'wrong' if verdict.mismatch else 'ok':6}{verdict.check.name}")
            if verdict.mismatch:
                typer.echo(f"      {verdict.mismatch.count} wrong; the first: {verdict.first_wrong}")
    if not is_right:
        raise typer.Exit(1)


def _document(verdict: "Verdict") -> dict[str, Any]:
    count = verdict.mismatch.count if verdict.mismatch else 0
    return {"name": verdict.check.name, "wrong": count, "first": verdict.first_wrong}
