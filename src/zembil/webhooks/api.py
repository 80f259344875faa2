"""POST /webhooks."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Struct

from zembil import ids, instants
from zembil.accounts.permissions import Permission
from zembil.config import Settings
from zembil.db.pool import Database
from zembil.errors import Fault
from zembil.ids import Prefix
from zembil.web import fields
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body
from zembil.webhooks import operations
from zembil.webhooks.addresses import url_faults
from zembil.webhooks.model import EVERY_TYPE, Endpoint, EventType

_TYPES_IN_ORDER = [event_type.value for event_type in EventType]
_EVENTS = f'Give an array of event types, or ["*"] for every type. The types are: {", ".join(_TYPES_IN_ORDER)}.'


def _check_events(events: list[str]) -> Iterator[Fault]:
    unknown = [event for event in dict.fromkeys(events) if event not in _TYPES_IN_ORDER and event != EVERY_TYPE]
    if unknown:
        yield Fault("", f"{unknown[0][:100]!r} is no event type. {_EVENTS}")
    elif EVERY_TYPE in events and len(set(events)) > 1:
        yield Fault("", f'"*" stands alone: it means every type. {_EVENTS}')


class RegisterEndpoint(Struct, frozen=True):
    """The body of POST /webhooks."""

    url: Annotated[str, must("Give the https address that receives events.", max_length=2048)]
    events: Annotated[list[str], must(_EVENTS, check=_check_events, min_length=1, max_length=100)]
    description: fields.Description | None = None


class WebhookEndpoints:
    """The endpoints of the API that manage webhook endpoints."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings

    def routes(self) -> list[Route]:
        return [Route("POST", "/webhooks", Permission.MANAGE_WEBHOOKS, self.register)]

    async def register(self, call: Call) -> Answer:
        livemode = call.account.livemode
        asked = parsed_body(RegisterEndpoint, call.body, {"url": lambda url: url_faults(url, livemode=livemode)})
        endpoint, secret = await operations.register_endpoint(
            self._db,
            call.account,
            url=asked.url,
            events=tuple(dict.fromkeys(asked.events)),
            description=asked.description,
            secret_key=self._settings.secret_key,
            endpoints_max=self._settings.endpoints_max,
            at=call.at,
        )
        return success(shown(endpoint, livemode=livemode) | {"secret": secret}, status=201)


def shown(endpoint: Endpoint, *, livemode: bool) -> dict[str, Any]:
    """The endpoint as merchants see it, without its secret."""
    return {
        "id": ids.shown(Prefix.ENDPOINT, endpoint.id),
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "status": "enabled" if endpoint.enabled else "disabled",
        "livemode": livemode,
        "created_at": instants.shown(ids.created_at(endpoint.id)),
    }
