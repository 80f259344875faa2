"""GET /events and GET /events/{event_id}: the events themselves, for whoever would rather ask than be told."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msgspec import Raw

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.db.pool import Database, reading
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.web.cursors import Page, taken_page
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.webhooks import event_filters, event_queries
from zembil.webhooks.event_queries import EventFilter

_BEFORE_ALL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class EventEndpoints:
    """The endpoints of the API for events."""

    db: Database

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/events", Permission.VIEW, self.list),
            Route("GET", "/events/{event_id}", Permission.VIEW, self.read),
        ]

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        date_from, date_to = parameters.dates()
        wanted = EventFilter(
            event_type=event_filters.taken_type(parameters),
            object_id=event_filters.taken_object(parameters),
            created_from=date_from,
            created_to=date_to,
        )
        order = parameters.take("order", _order, "Give one of: asc, desc.") or "desc"
        filters = {**event_filters.fingerprinted(wanted), "order": order}
        page = taken_page(parameters, "events", filters, has_offset=False)
        parameters.finish()
        async with reading(self.db) as conn:
            if order == "asc":
                events = await event_queries.list_events_in_order_of_writing(
                    conn, call.account.id, wanted, after=page.last, limit=page.limit
                )
            else:
                events = await event_queries.list_events(
                    conn, call.account.id, wanted, before=page.last, limit=page.limit
                )
        listed = [event_id for event_id, _ in events]
        pagination = _to_be_followed(page, listed) if order == "asc" else page.pagination(listed)
        return success({"events": [Raw(payload) for _, payload in events], "pagination": pagination})

    async def read(self, call: Call) -> Answer:
        event_id = ids.parsed(Prefix.EVENT, call.path_values[0])
        if event_id is None:
            raise ResourceNotFound
        async with reading(self.db) as conn:
            payload = await event_queries.find_payload(conn, call.account.id, event_id)
        if payload is None:
            raise ResourceNotFound
        return success(Raw(payload))


def _to_be_followed(page: Page, listed: list[UUID]) -> dict[str, Any]:
    """A follower asks again from where it is, also when there is nothing new yet."""
    last = listed[-1] if listed else page.last or _BEFORE_ALL
    return {"limit": page.limit, "next_cursor": page.cursor_at(last)}


def _order(text: str) -> str | None:
    return text if text in ("asc", "desc") else None
