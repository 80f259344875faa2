"""GET and POST /keys, POST /keys/{key_id}/roll, DELETE /keys/{key_id}."""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Struct

from zembil import ids, instants
from zembil.accounts import operations, queries
from zembil.accounts.model import ApiKey, Principal, Role
from zembil.accounts.operations import KeyOrder
from zembil.accounts.permissions import Permission
from zembil.db.pool import Connection, Database, reading, transaction
from zembil.errors import Fault, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.web.auth import KeyRing
from zembil.web.cursors import taken_page
from zembil.web.idempotency import Once
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body

_OVERLAP_SECONDS, _OVERLAP_SECONDS_MAX = 86_400, 604_800
_RATE_LIMIT_MAX = 10_000_000
_ROLES = tuple(role.value for role in Role)
_INSTANT = "Give a time to come, for example 2027-01-31T00:00:00Z."


def _check_instant(text: str) -> Iterator[Fault]:
    if instants.parsed_range(text) is None:
        yield Fault("", _INSTANT)


class CreateKey(Struct, frozen=True):
    """The body of POST /keys."""

    name: Annotated[str, must("Give a text of 1 to 200 characters.", min_length=1, max_length=200)]
    role: Annotated[Role, must(f"Give one of: {', '.join(_ROLES)}.")]
    expires_at: Annotated[str, must(_INSTANT, check=_check_instant, max_length=40)] | None = None
    rate_limit: (
        Annotated[int, must(f"Give a whole number from 1 to {_RATE_LIMIT_MAX}.", ge=1, le=_RATE_LIMIT_MAX)] | None
    ) = None


class RollKey(Struct, frozen=True):
    """The body of POST /keys/{key_id}/roll."""

    overlap_seconds: (
        Annotated[int, must(f"Give whole seconds from 0 to {_OVERLAP_SECONDS_MAX}.", ge=0, le=_OVERLAP_SECONDS_MAX)]
        | None
    ) = None


@dataclass(frozen=True, slots=True)
class KeyEndpoints:
    """The endpoints of the API for keys."""

    db: Database
    once: Once
    key_ring: KeyRing

    def routes(self) -> list[Route]:
        manage = Permission.MANAGE_KEYS
        return [
            Route("POST", "/keys", manage, self.create),
            Route("GET", "/keys", manage, self.list),
            Route("POST", "/keys/{key_id}/roll", manage, self.roll),
            Route("DELETE", "/keys/{key_id}", manage, self.revoke),
        ]

    async def create(self, call: Call) -> Answer:
        order = _order(parsed_body(CreateKey, call.body), call)

        async def work(conn: Connection) -> Answer:
            key, secret = await operations.create_key(conn, call.principal, order, at=call.at)
            return success(_shown(key, call.principal) | {"key": secret}, status=201)

        return await self._once(call, work)

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        page = taken_page(parameters, "keys")
        parameters.finish()
        async with reading(self.db) as conn:
            keys, total = await queries.list_api_keys(
                conn, call.account.id, before=page.last, limit=page.limit, offset=page.offset
            )
        return success(
            {
                "keys": [_shown(key, call.principal) for key in keys],
                "pagination": page.pagination([key.id for key in keys], total=total),
            }
        )

    async def roll(self, call: Call) -> Answer:
        asked = parsed_body(RollKey, call.body or b"{}")
        key_id = _key_id(call)
        seconds = _OVERLAP_SECONDS if asked.overlap_seconds is None else asked.overlap_seconds

        async def work(conn: Connection) -> Answer:
            new, old, secret = await operations.roll_key(
                conn, call.principal, key_id, overlap=timedelta(seconds=seconds), at=call.at
            )
            return success(
                _shown(new, call.principal) | {"key": secret, "replaces": _shown(old, call.principal)}, status=201
            )

        answer = await self._once(call, work)
        self.key_ring.forget()
        return answer

    async def _once(self, call: Call, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        # The answer holds a key to act in the caller's name: another admin who repeats the request must not get it, or
        # could approve the refunds that they asked for themselves.
        key = call.key and call.key.of(call.principal.user_id)
        return await self.once.answer(call.account.id, key, work, at=call.account_at, holds_a_secret=True)

    async def revoke(self, call: Call) -> Answer:
        key_id = _key_id(call)
        async with transaction(self.db) as conn:
            await operations.revoke_key(conn, call.principal, key_id, at=call.at)
        self.key_ring.forget()
        return success({"id": ids.shown(Prefix.KEY, key_id), "deleted": True})


def _order(asked: CreateKey, call: Call) -> KeyOrder:
    """What was asked for. Raises ValidationError for more than the caller has, and for an end that is past."""
    parsed = instants.parsed_range(asked.expires_at) if asked.expires_at else None
    expires_at = instants.to_the_millisecond(parsed[0]) if parsed else None
    order = KeyOrder(name=asked.name, role=asked.role, expires_at=expires_at, rate_limit=asked.rate_limit)
    if faults := list(operations.order_faults(order, call.principal, at=call.at)):
        raise ValidationError(*faults)
    return order


def _key_id(call: Call) -> uuid.UUID:
    key_id = ids.parsed(Prefix.KEY, call.path_values[0])
    if key_id is None:
        raise ResourceNotFound
    return key_id


def _shown(key: ApiKey, viewer: Principal) -> dict[str, Any]:
    """The key as merchants see it, without its secret."""
    return {
        "id": ids.shown(Prefix.KEY, key.id),
        "name": key.name,
        "role": key.role,
        "last_four": key.last_four,
        "user_id": ids.shown(Prefix.USER, key.user_id),
        "created_at": instants.shown(ids.created_at(key.id)),
        "expires_at": instants.shown(key.expires_at) if key.expires_at else None,
        "last_used_at": instants.shown(key.last_used_at) if key.last_used_at else None,
        "rate_limit": key.rate_limit,
        "livemode": viewer.account.livemode,
    }
