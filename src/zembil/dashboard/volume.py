"""What came in day by day, where the merchant is: the days of the home page's chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

from zembil.dashboard.home_queries import Hour


@dataclass(frozen=True, slots=True)
class Day:
    """The payments that were created on a day."""

    day: date
    created: int
    completed: int
    ended: int
    santim: int  # of the completed ones

    @property
    def success(self) -> str:
        """How many of those that have ended were completed."""
        return f"{round(100 * self.completed / self.ended)} %" if self.ended else "–"

    @property
    def name(self) -> str:
        return f"{self.day.day} {self.day:%b}"


def beginning(now: datetime, zone: tzinfo, *, days: int) -> datetime:
    """When the first of so many days begins, of which the last is today."""
    first = now.astimezone(zone).date() - timedelta(days=days - 1)
    return datetime.combine(first, time.min, zone)


def by_day(hours: Sequence[Hour], first: datetime, *, days: int) -> list[Day]:
    """Each day with what is counted in its hours; where a zone is off by half an hour, the hour's beginning decides."""
    zone = first.tzinfo
    found = [Day(first.date() + timedelta(days=number), 0, 0, 0, 0) for number in range(days)]
    for hour in hours:
        number = (hour.begins.astimezone(zone).date() - first.date()).days
        if 0 <= number < days:
            day = found[number]
            found[number] = Day(
                day.day,
                day.created + hour.created,
                day.completed + hour.completed,
                day.ended + hour.ended,
                day.santim + hour.completed_santim,
            )
    return found


def whole(days: Sequence[Day]) -> Day:
    """All days together, as if they were the last."""
    return Day(
        days[-1].day,
        sum(day.created for day in days),
        sum(day.completed for day in days),
        sum(day.ended for day in days),
        sum(day.santim for day in days),
    )
