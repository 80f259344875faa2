"""One event: the bytes that every endpoint gets, and where they went."""

from dataclasses import dataclass

import msgspec

from zembil import ids
from zembil.dashboard import payments_queries, words
from zembil.dashboard.visits import DELIVERIES_PATH, Answer, Doorkeeper, Page, Route, Visit, page
from zembil.db.pool import reading
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.webhooks.event_queries import find_payload


@dataclass(frozen=True, slots=True)
class EventPages:
    door: Doorkeeper

    def routes(self) -> list[Route]:
        return [page("/events/{id}", self.show)]

    async def show(self, visit: Visit) -> Answer:
        event_id = ids.parsed(Prefix.EVENT, visit.value("id"))
        if event_id is None:
            raise ResourceNotFound
        async with reading(self.door.db) as conn:
            payload = await find_payload(conn, visit.account.id, event_id)
            attempts = await payments_queries.list_attempts_of_events(conn, visit.account.id, [event_id])
        if payload is None:
            raise ResourceNotFound
        document = msgspec.json.decode(payload)
        object_id: str = document["data"]["object"]["id"]
        context = {
            "event_id": visit.value("id"),
            "type": document["type"],
            "object_id": object_id,
            "object_path": self._object_path(visit, object_id),
            "body": msgspec.json.format(payload, indent=2).decode(),  # its numbers as they were written
            "attempts": [
                (
                    attempt,
                    self.door.record_path(visit, DELIVERIES_PATH, ids.shown(Prefix.DELIVERY, attempt.delivery_id)),
                )
                for attempt in attempts
            ],
            "words": words,
        }
        return Page("event.html", context)

    def _object_path(self, visit: Visit, object_id: str) -> str | None:
        areas = {Prefix.PAYMENT: "/payments", Prefix.REFUND: "/refunds", Prefix.CUSTOMER: "/customers"}
        found = next((area for prefix, area in areas.items() if object_id.startswith(prefix)), None)
        return None if found is None else self.door.record_path(visit, found, object_id)
