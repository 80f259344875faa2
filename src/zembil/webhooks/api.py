"""Webhook endpoints over HTTP: register, list, read, change, delete, rotate the secret."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from zembil import ids, instants
from zembil.accounts.permissions import Permission
from zembil.config import Settings
from zembil.db.pool import Connection, Database, reading
from zembil.errors import Fault, ResourceNotFound
from zembil.ids import Prefix
from zembil.web import fields
from zembil.web.cursors import taken_page
from zembil.web.idempotency import Once
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import Checks, must, parsed_body
from zembil.webhooks import endpoint_queries, operations
from zembil.webhooks.addresses import url_faults
from zembil.webhooks.model import EVERY_TYPE, Endpoint, EventType
from zembil.webhooks.operations import EndpointChange

_TYPES_IN_ORDER = [event_type.value for event_type in EventType]
_EVENTS = f'Give an array of event types, or ["*"] for every type. The types are: {", ".join(_TYPES_IN_ORDER)}.'
_OVERLAP_SECONDS, _OVERLAP_SECONDS_MAX = 86400, 604800


def _check_events(events: list[str]) -> Iterator[Fault]:
    unknown = [event for event in dict.fromkeys(events) if event not in _TYPES_IN_ORDER and event != EVERY_TYPE]
    if unknown:
        yield Fault("", f"{unknown[0][:100]!r} is no event type. {_EVENTS}")
    elif EVERY_TYPE in events and len(set(events)) > 1:
        yield Fault("", f'"*" stands alone: it means every type. {_EVENTS}')


_Url = Annotated[str, must("Give the https address that receives events.", max_length=2048)]
_Events = Annotated[list[str], must(_EVENTS, check=_check_events, min_length=1, max_length=100)]


class RegisterEndpoint(Struct, frozen=True):
    """The body of POST /webhooks."""

    url: _Url
    events: _Events
    description: fields.Description | None = None


class ChangeEndpoint(Struct, frozen=True):
    """The body of PATCH /webhooks/{id}: what is absent stays; only a description can be taken away, with null."""

    url: _Url | None = None
    events: _Events | None = None
    description: fields.Description | UnsetType | None = UNSET
    status: Annotated[Literal["enabled", "disabled"], must("Give one of: enabled, disabled.")] | None = None


class RotateSecret(Struct, frozen=True):
    """The body of POST /webhooks/{id}/rotate-secret."""

    overlap_seconds: (
        Annotated[
            int,
            must(
                f"Give whole seconds from 0 to {_OVERLAP_SECONDS_MAX}; 0 switches at once.",
                ge=0,
                le=_OVERLAP_SECONDS_MAX,
            ),
        ]
        | None
    ) = None


@dataclass(frozen=True, slots=True)
class WebhookEndpoints:
    """The endpoints of the API that manage webhook endpoints."""

    db: Database
    settings: Settings
    once: Once

    def routes(self) -> list[Route]:
        manage = Permission.MANAGE_WEBHOOKS
        return [
            Route("POST", "/webhooks", manage, self.register),
            Route("GET", "/webhooks", Permission.VIEW, self.list),
            Route("GET", "/webhooks/{webhook_id}", Permission.VIEW, self.read),
            Route("PATCH", "/webhooks/{webhook_id}", manage, self.change),
            Route("DELETE", "/webhooks/{webhook_id}", manage, self.delete),
            Route("POST", "/webhooks/{webhook_id}/rotate-secret", manage, self.rotate_secret),
        ]

    async def register(self, call: Call) -> Answer:
        asked = parsed_body(RegisterEndpoint, call.body, _checks(call))

        async def work(conn: Connection) -> Answer:
            endpoint, secret = await operations.register_endpoint(
                conn,
                call.principal,
                url=asked.url,
                events=tuple(dict.fromkeys(asked.events)),
                description=asked.description,
                secret_key=self.settings.secret_key,
                endpoints_max=self.settings.endpoints_max,
                at=call.at,
            )
            return success(_shown(endpoint, call) | {"secret": secret}, status=201)

        return await self.once.answer(call.account.id, call.key, work, at=call.account_at, holds_a_secret=True)

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        page = taken_page(parameters, "webhooks")
        parameters.finish()
        async with reading(self.db) as conn:
            endpoints, total = await endpoint_queries.list_endpoints(
                conn, call.account.id, before=page.last, limit=page.limit, offset=page.offset
            )
        return success(
            {
                "webhooks": [_shown(endpoint, call) for endpoint in endpoints],
                "pagination": page.pagination([endpoint.id for endpoint in endpoints], total=total),
            }
        )

    async def read(self, call: Call) -> Answer:
        endpoint_id = endpoint_id_of(call)
        async with reading(self.db) as conn:
            endpoint = await endpoint_queries.find_endpoint(conn, call.account.id, endpoint_id)
        if endpoint is None:
            raise ResourceNotFound
        return success(_shown(endpoint, call))

    async def change(self, call: Call) -> Answer:
        asked = parsed_body(ChangeEndpoint, call.body or b"{}", _checks(call))
        endpoint_id = endpoint_id_of(call)
        change = EndpointChange(
            url=asked.url,
            events=None if asked.events is None else tuple(dict.fromkeys(asked.events)),
            enabled=None if asked.status is None else asked.status == "enabled",
            description=None if asked.description is UNSET else asked.description,
            clears_description=asked.description is None,
        )

        async def work(conn: Connection) -> Answer:
            endpoint = await operations.change_endpoint(conn, call.principal, endpoint_id, change, at=call.at)
            return success(_shown(endpoint, call))

        return await self.once.answer(call.account.id, call.key, work, at=call.account_at)

    async def delete(self, call: Call) -> Answer:
        endpoint_id = endpoint_id_of(call)
        await operations.delete_endpoint(self.db, call.principal, endpoint_id, at=call.at)
        return success({"id": ids.shown(Prefix.ENDPOINT, endpoint_id), "deleted": True})

    async def rotate_secret(self, call: Call) -> Answer:
        asked = parsed_body(RotateSecret, call.body or b"{}")
        endpoint_id = endpoint_id_of(call)
        seconds = _OVERLAP_SECONDS if asked.overlap_seconds is None else asked.overlap_seconds

        async def work(conn: Connection) -> Answer:
            endpoint, secret = await operations.rotate_secret(
                conn,
                call.principal,
                endpoint_id,
                overlap=timedelta(seconds=seconds),
                secret_key=self.settings.secret_key,
                at=call.at,
            )
            return success(_shown(endpoint, call) | {"secret": secret})

        return await self.once.answer(call.account.id, call.key, work, at=call.account_at, holds_a_secret=True)


def endpoint_id_of(call: Call) -> UUID:
    """The endpoint that a path names. Raises ResourceNotFound for what can be none."""
    endpoint_id = ids.parsed(Prefix.ENDPOINT, call.path_values[0])
    if endpoint_id is None:
        raise ResourceNotFound
    return endpoint_id


def _checks(call: Call) -> Checks:
    return {"url": lambda url: url_faults(url, livemode=call.account.livemode)}


def _shown(endpoint: Endpoint, call: Call) -> dict[str, Any]:
    return shown(endpoint, livemode=call.account.livemode, at=call.at)


def shown(endpoint: Endpoint, *, livemode: bool, at: datetime) -> dict[str, Any]:
    """The endpoint as merchants see it, without its secrets."""
    document: dict[str, Any] = {
        "id": ids.shown(Prefix.ENDPOINT, endpoint.id),
        "url": endpoint.url,
        "events": list(endpoint.events),
        "description": endpoint.description,
        "status": "enabled" if endpoint.enabled else "disabled",
        "livemode": livemode,
        "created_at": instants.shown(ids.created_at(endpoint.id)),
    }
    if endpoint.failing_since is not None:
        document["failing_since"] = instants.shown(endpoint.failing_since)
    if endpoint.rotates_at is not None and endpoint.is_rotating(at):
        document["rotates_at"] = instants.shown(endpoint.rotates_at)
    return document
