"""The command line: one file per command. What a command needs is imported when it runs, so that --help is quick."""

import sys

import typer

from zembil import __version__
from zembil.cli import dev, doubt, merchant, migrate, serve, user, verify, worker
from zembil.errors import ZembilError

app = typer.Typer(
    name="zembil",
    help="Zembil, a self-hosted payment gateway for mobile money.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("dev")(dev.dev)
app.command("serve")(serve.serve)
app.command("worker")(worker.worker)
app.command("migrate")(migrate.migrate)
app.command("verify")(verify.verify)
app.add_typer(merchant.commands, name="merchant")
app.add_typer(user.commands, name="user")
app.add_typer(doubt.commands, name="doubt")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"zembil {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def main() -> None:
    """Run a command; what went wrong on purpose is one sentence on standard error and exit status 1."""
    try:
        app()
    except ZembilError as error:
        sys.stderr.write(f"zembil: {error}\n")
        raise SystemExit(1) from None
