"""zembil serve: API, pages and worker, for production."""

import os
from typing import Annotated

import typer


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8420,
    *,
    worker: Annotated[bool, typer.Option(help="Run the worker in this process too.")] = True,
) -> None:
    """Serve the API and the payment pages, and run the worker.

    Reads its settings from the environment (ZEMBIL_DATABASE_URL, ZEMBIL_SECRET_KEY, ZEMBIL_PUBLIC_URL …) and applies
    missing migrations first. Put a reverse proxy with TLS in front.
    """
    import asyncio

    from zembil import config, telemetry
    from zembil.cli.process import listen, run
    from zembil.db.migrate import migrate

    telemetry.configure_logs(people=False)
    settings = config.from_environment(os.environ)
    asyncio.run(migrate(settings.database_url))
    run(settings, listener=listen(host, port), with_worker=worker)
