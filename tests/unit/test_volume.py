"""What came in day by day, where the merchant is."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from zembil.dashboard.home_queries import Hour
from zembil.dashboard.volume import beginning, by_day, whole

ADDIS = ZoneInfo("Africa/Addis_Ababa")
NOON = datetime(2026, 11, 21, 9, tzinfo=UTC)  # noon in Addis Ababa


def hour(begins: datetime, completed: int = 1, ended: int = 1, santim: int = 100) -> Hour:
    return Hour(begins, completed, ended, ended, santim)


def test_a_day_ends_at_midnight_where_the_merchant_is() -> None:
    first = beginning(NOON, ADDIS, days=2)
    assert first == datetime(2026, 11, 19, 21, tzinfo=UTC)
    before_midnight, after = datetime(2026, 11, 20, 20, tzinfo=UTC), datetime(2026, 11, 20, 21, tzinfo=UTC)
    days = by_day([hour(before_midnight), hour(after, santim=5)], first, days=2)
    assert [(day.day, day.santim) for day in days] == [(date(2026, 11, 20), 100), (date(2026, 11, 21), 5)]


def test_days_without_payments_are_there_too_and_others_are_not() -> None:
    first = beginning(NOON, ADDIS, days=14)
    days = by_day([hour(first - timedelta(hours=1)), hour(first + timedelta(days=20))], first, days=14)
    assert len(days) == 14
    assert whole(days).created == 0
    assert {day.success for day in days} == {"–"}


def test_success_is_the_share_of_what_has_ended() -> None:
    first = beginning(NOON, ADDIS, days=1)
    (today,) = by_day([hour(first, completed=2, ended=3), hour(first, completed=1, ended=1)], first, days=1)
    assert (today.success, today.santim, today.created) == ("75 %", 200, 4)


def test_a_day_of_25_hours_is_one_day() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = beginning(datetime(2026, 10, 26, 12, tzinfo=UTC), zone, days=2)
    hours = [hour(first.astimezone(UTC) + timedelta(hours=number)) for number in range(26)]
    assert [day.created for day in by_day(hours, first, days=2)] == [25, 1]
