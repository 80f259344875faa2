"""Home: what needs you, what came in day by day, and the first request to make."""

from dataclasses import dataclass
from datetime import timedelta

from zembil.dashboard import home_queries, volume
from zembil.dashboard.visits import Answer, Doorkeeper, Page, Route, Visit, page
from zembil.db.pool import reading
from zembil.rails import wallets

_KEYS_WITHIN = timedelta(days=14)
_DAYS = 14


@dataclass(frozen=True, slots=True)
class HomePages:
    door: Doorkeeper

    def routes(self) -> list[Route]:
        return [page("", self.show), page("/", self.show)]

    async def show(self, visit: Visit) -> Answer:
        async with reading(self.door.db) as conn:
            first = volume.beginning(visit.now, visit.zone, days=_DAYS)
            days = volume.by_day(await home_queries.list_hours(conn, visit.account.id, since=first), first, days=_DAYS)
            waiting = await home_queries.count_waiting(conn, visit.account.id, at=visit.at, keys_within=_KEYS_WITHIN)
        needs = [
            (count, f"{count} {one if count == 1 else many}", path)
            for count, one, many, path in (
                (waiting.refunds, "refund waits for approval", "refunds wait for approval", "/refunds"),
                (
                    waiting.endpoints,
                    "webhook endpoint is failing",
                    "webhook endpoints are failing",
                    "/settings/webhooks",
                ),
                (waiting.charges, "charge is in doubt", "charges are in doubt", "/balance"),
                (waiting.keys, "API key ends within 14 days", "API keys end within 14 days", "/settings/api-keys"),
            )
        ]
        context = {
            "needs": [(text, self.door.linked(visit, path)) for count, text, path in needs if count],
            "days": days,
            "whole": volume.whole(days),
            "most": max(days, key=lambda day: day.santim),
            "can_be_paid": bool(wallets(livemode=visit.livemode)),
            "base_url": self.door.settings.base_url(livemode=visit.livemode),
        }
        return Page("home.html", context)
