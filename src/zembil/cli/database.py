"""Where an operator's commands find the database."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from zembil.errors import ConfigurationError, DatabaseError


@contextmanager
def found_database(data: Path) -> Generator[tuple[str, str]]:
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


def user_name() -> str:
    """Who is signed in to this machine."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"
