"""zembil dev: everything on this machine, for trying and developing."""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import asyncio

    from zembil.accounts.model import Principal
    from zembil.cli.local import LocalData
    from zembil.config import Networks, Settings
    from zembil.db.clock import Clock
    from zembil.db.embedded import EmbeddedPostgres
    from zembil.db.pool import Database

_FIRST_MERCHANT = "Merkato Coffee"
_LOOK_SECONDS = 0.5
_WILDCARDS = ("0.0.0.0", "::")
_HERE_ONLY = ("127.0.0.1", "localhost", "[::1]")
# No packet goes there: the address is set aside for documents. It only asks by which way one would leave.
_SOMEWHERE = ("198.51.100.1", 9)


def dev(
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets your phone in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes any free one.", min=0, max=65535)] = 8420,
    data: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path(".zembil"),
    *,
    reset: Annotated[bool, typer.Option("--reset", help="Throw away what is kept there and start anew.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="Once it serves, write addresses and keys into this file, as JSON.")
    ] = None,
) -> None:
    """Run everything here: PostgreSQL, API, pages, dashboard, worker. Needs nothing, keeps its data; Ctrl-C ends it."""
    began = time.monotonic()
    import asyncio
    import json
    from ipaddress import ip_network

    from zembil import telemetry
    from zembil.cli.local import LocalData, ready_document, write_private
    from zembil.cli.process import listen, run
    from zembil.config import RateLimits, Settings, rate_limits_of
    from zembil.db.embedded import EmbeddedPostgres
    from zembil.db.migrate import migrate

    telemetry.configure_logs(people=sys.stderr.isatty())
    local = LocalData(data.absolute())
    listener = listen(host, port)
    if reset:
        local.reset()
    local.make()
    with EmbeddedPostgres.start(local.postgres) as postgres:
        if ready_file is not None and ready_file.is_file():
            ready_file.unlink()  # of an earlier start: it must not be taken for ours
        asyncio.run(migrate(postgres.url))
        origin = f"http://{_reachable(host)}:{listener.getsockname()[1]}"
        settings = Settings(
            database_url=postgres.url,
            secret_key=local.secret_key(),
            public_url=origin,
            # Whoever mistypes a key here sits at this machine.
            rate_limits=rate_limits_of(os.environ, RateLimits(failed_authentications=0)),
            # Receivers on this machine, and our own inbox where the phone reaches us.
            sandbox_webhook_allow_networks=(ip_network("127.0.0.0/8"), ip_network("::1/128"), *_own_address(host)),
        )

        async def ready(db: "Database", clock: "Clock") -> None:
            keys = await _first_keys(local, db, clock)
            document = ready_document(origin, keys, postgres.url)
            write_private(local.running, json.dumps(document))
            if ready_file is not None:
                write_private(ready_file, json.dumps(document))
                return
            link = await _example_link(db, clock, settings, keys)
            dashboard = await _sign_in_link(db, settings, keys)
            seconds = time.monotonic() - began
            _welcome(document, dashboard, link, local, f"PostgreSQL {postgres.version}", seconds, host)
            if not no_open and _a_person_is_here():
                typer.launch(dashboard)

        try:
            run(settings, listener=listener, with_worker=True, ready=ready, companion=partial(_watch, postgres, local))
        finally:
            local.running.unlink(missing_ok=True)
    if ready_file is None:
        typer.echo("\nStopped. Your data is kept.")


async def _watch(postgres: "EmbeddedPostgres", local: "LocalData", stopping: "asyncio.Event") -> None:
    """Without PostgreSQL every answer would be a 503; it is better to stop and to say why."""
    import asyncio

    from zembil.errors import DatabaseError

    while not stopping.is_set():
        if postgres.process.poll() is not None:
            raise DatabaseError(f"PostgreSQL has ended by itself; its log is in {_short(local.postgres)}.")
        await asyncio.sleep(_LOOK_SECONDS)


async def _first_keys(local: "LocalData", db: "Database", clock: "Clock") -> dict[str, dict[str, str]]:
    """The keys of the merchant that the first start makes; made anew if the database does not know them (any more)."""
    from zembil.accounts.operations import create_merchant
    from zembil.cli.local import named

    keys = local.first_keys()
    if keys is None or await _principal(db, keys) is None:
        new = await create_merchant(db, _FIRST_MERCHANT, at=clock.now())
        keys = {"sandbox": named(new.sandbox), "live": named(new.live)}
        local.keep_first_keys(keys)
    return keys


async def _principal(db: "Database", keys: dict[str, dict[str, str]]) -> "Principal | None":
    """Whom the first key opens to."""
    from zembil.accounts.queries import find_principal
    from zembil.accounts.secrets import hashed
    from zembil.db.pool import reading

    async with reading(db) as conn:
        return await find_principal(conn, hashed(keys["sandbox"]["admin_key"]))


async def _example_link(db: "Database", clock: "Clock", settings: "Settings", keys: dict[str, dict[str, str]]) -> str:
    """The link of a new payment to try, made as the API makes one."""
    from zembil.payments.model import link
    from zembil.payments.operations import PaymentOrder, PaymentWriter, new_payment

    principal = await _principal(db, keys)
    if principal is None:
        raise RuntimeError("the first merchant's key opens its account")
    order = PaymentOrder(amount_santim=15_000, description="A first payment, to try", lifetime_seconds=86_400)
    new = new_payment(order, principal.account, public_url=settings.public_url, at=clock.now())
    await PaymentWriter(db).create(new)
    return link(new.payment, settings.public_url)


async def _sign_in_link(db: "Database", settings: "Settings", keys: dict[str, dict[str, str]]) -> str:
    """Opens the dashboard to the first admin: no password to set, or to guess, on one's own machine."""
    from zembil.accounts import sign_in, user_queries
    from zembil.accounts.model import LinkKind
    from zembil.db.pool import transaction

    principal = await _principal(db, keys)
    if principal is None:
        raise RuntimeError("the first merchant's key opens its account")
    async with transaction(db) as conn:
        user = await user_queries.find_user(conn, principal.user_id)
        if user is None:
            return f"{settings.public_url}/dashboard"  # who was there first has left; the others have passwords
        token = await sign_in.new_link(conn, user, LinkKind.SIGN_IN, lifetime=sign_in.SIGN_IN_LINK_LIFETIME)
    return f"{settings.public_url}/dashboard/link/{token}"


def _welcome(
    document: dict[str, Any], dashboard: str, link: str, local: "LocalData", database: str, seconds: float, host: str
) -> None:
    """What a newcomer needs, ready to be pasted."""
    from zembil.qr import LinkCodes

    sandbox = document["sandbox"]
    keys_path = _short(local.keys)
    by_phone = _reachable(host) not in _HERE_ONLY
    typer.echo(
        f"""
Zembil is ready ({seconds:.1f} s) · {database}

  Dashboard  {dashboard}
             signs you in; valid 10 minutes, once
  API        {sandbox["base_url"]}
  Keys       {keys_path}

Create a payment:

  export KEY={sandbox["admin_key"]}
  curl -s {sandbox["base_url"]}/payments \\
    -H "Authorization: Bearer $KEY" \\
    -H "Content-Type: application/json" \\
    -d '{{"amount": 150.00, "currency": "ETB", "description": "Coffee"}}'

Pay this one{", here or with your phone" if by_phone else ""}:

  {link}
"""
    )
    if host in _WILDCARDS and not by_phone:
        typer.echo("No address was found at which your phone reaches this machine; name it: --host 192.168.1.5\n")
    if sys.stdout.isatty() and by_phone:
        prefix, _, _ = link.rpartition("/")
        sys.stdout.write(LinkCodes.for_links(f"{prefix}/").terminal(link) + "\n")
    typer.echo("Stop with Ctrl-C.")


def _reachable(host: str) -> str:
    """The address under which others reach a wildcard address; the host itself otherwise."""
    import socket

    if host in _WILDCARDS:
        try:
            # Not the address of our own name: on Debian that is 127.0.1.1.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(_SOMEWHERE)
                host = probe.getsockname()[0]
        except OSError:  # no network
            host = "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _own_address(host: str) -> "Networks":
    """The one address under which others reach us, if it is one."""
    from ipaddress import ip_network

    try:
        return (ip_network(_reachable(host).strip("[]")),)
    except ValueError:
        return ()


def _a_person_is_here() -> bool:
    return sys.stdout.isatty() and not any(name in os.environ for name in ("CI", "SSH_CONNECTION", "SSH_TTY"))


def _short(path: Path) -> str:
    try:
        return f"./{path.relative_to(Path.cwd())}"
    except ValueError:
        return str(path)
