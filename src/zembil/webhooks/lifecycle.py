"""When a delivery is attempted, and when it is over."""

from datetime import timedelta

from zembil.webhooks.model import ATTEMPTS_MAX

ATTEMPT_MAX = timedelta(seconds=10)
# An attempt starts soon after its claim or not at all, lasts ten seconds at most, and is recorded a moment later. One
# that is unrecorded after this was cut off by a crash; until then it keeps its place among the four of its endpoint.
LEASE = timedelta(seconds=25)
START_MAX = timedelta(seconds=12)  # a claim whose commit waits for a slow disk is not yet lost

# After the first attempt, and after the second. One that a crash cut off counts; the wait then runs from its start.
_DELAYS = (timedelta(seconds=60), timedelta(seconds=600))


def retry_delay(attempts_made: int) -> timedelta | None:
    """How long to wait when the last of `attempts_made` attempts came to nothing; None: no more, it has failed."""
    return _DELAYS[attempts_made - 1] if attempts_made < ATTEMPTS_MAX else None
