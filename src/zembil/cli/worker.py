"""zembil worker: only the loops, for a machine of its own."""

import os


def worker() -> None:
    """Run the worker alone: send webhooks, push prompts, ask rails, expire payments. Any number may run."""
    from zembil import config, telemetry
    from zembil.cli.process import run

    telemetry.configure_logs(people=False)
    run(config.from_environment(os.environ), listener=None, with_worker=True)
