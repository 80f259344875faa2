"""When a delivery is attempted, and when it is over."""

from datetime import datetime, timedelta

from zembil.webhooks.model import ATTEMPTS_MAX

# After the first attempt, and after the second. One that a crash cut off counts; the wait then runs from its start.
_DELAYS = (timedelta(seconds=60), timedelta(seconds=600))


def next_attempt_at(attempts_made: int, *, at: datetime) -> datetime | None:
    """When to try again if the last of `attempts_made` attempts came to nothing at `at`; None: never, it has failed."""
    return at + _DELAYS[attempts_made - 1] if attempts_made < ATTEMPTS_MAX else None
