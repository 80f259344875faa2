"""What is done about a charge or a refund of which nobody knows what became: the rail is asked, on a schedule."""

from datetime import datetime, timedelta

# When the rail is asked, counted from when the doubt began; then it is an operator's.
SCHEDULE = tuple(
    timedelta(seconds=seconds) for seconds in (5, 10, 20, 40, 60, 120, 300, 900, 3600, 6 * 3600, 24 * 3600)
)
# A call that was cut off by a crash: no call lasts longer, so the rail can be asked.
SUBMITTING_AT_MOST = timedelta(seconds=15)
# A rail may not know at once what it was told; before this, "not found" proves nothing.
NOT_FOUND_PROVES_AFTER = timedelta(seconds=60)
# Rails that notify are asked now and then all the same: notifications get lost.
SILENCE_AT_MOST = timedelta(seconds=30)


def next_question(asked: int, *, at: datetime) -> datetime | None:
    """When to ask again after `asked` questions that settled nothing, the last of them at `at`; None: never."""
    if asked >= len(SCHEDULE):
        return None
    return at + SCHEDULE[asked] - (SCHEDULE[asked - 1] if asked else timedelta(0))
