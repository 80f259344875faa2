"""zembil worker: only the loops, for a machine of its own."""

import os


def worker() -> None:
    """Run the worker alone: send webhooks, push prompts, ask rails, expire payments. Any number may run."""
    import asyncio

    from zembil import config, telemetry
    from zembil.cli.process import run
    from zembil.db.migrate import demand_migrated

    telemetry.configure_logs(people=False)
    settings = config.from_environment(os.environ)
    asyncio.run(demand_migrated(settings.database_url))
    run(settings, listener=None, with_worker=True)
