"""What is done with endpoints, and with deliveries by hand; none of it sends."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from zembil import ids, instants
from zembil.accounts import secrets
from zembil.accounts.model import Account, AuditAction, Principal
from zembil.accounts.operations import audit
from zembil.db.pool import Connection, Database, transaction
from zembil.errors import Fault, InvalidState, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.telemetry import log
from zembil.webhooks import delivery_queries, endpoint_queries, event_queries, queries, samples
from zembil.webhooks.model import Delivery, DeliveryStatus, Endpoint, EventType, event_about

RECOVERED_MAX = 50_000


def secret_binding(account_id: int, endpoint_id: uuid.UUID) -> str:
    """What a sealed secret is bound to: its own row and no other."""
    return f"webhook_endpoints|{account_id}|{endpoint_id}"


async def register_endpoint(
    conn: Connection,
    by: Principal,
    *,
    url: str,
    events: tuple[str, ...],
    description: str | None,
    secret_key: bytes,
    endpoints_max: int,
    at: datetime,
) -> tuple[Endpoint, str]:
    """Register an endpoint; answers it with its signing secret, which is readable this once."""
    account, endpoint_id = by.account, ids.new_id(by.account.now(at))
    secret = secrets.new_signing_secret()
    sealed = secrets.seal(secret_key, secret, bound_to=secret_binding(account.id, endpoint_id))
    endpoint = Endpoint(account.id, endpoint_id, url, events, description, sealed)
    if not await endpoint_queries.insert_endpoint(conn, endpoint, endpoints_max=endpoints_max):
        raise ValidationError(
            Fault("url", f"This account has {endpoints_max} endpoints already; delete one that is no longer used.")
        )
    told = {"url": _without_query(url), "events": " ".join(events)}
    await _audit(conn, by, AuditAction.ENDPOINT_REGISTERED, endpoint_id, at=at, **told)
    return endpoint, secret


async def _audit(
    conn: Connection,
    by: Principal,
    action: AuditAction,
    endpoint_id: uuid.UUID,
    *,
    at: datetime,
    **details: str | int | None,
) -> None:
    await audit(conn, by.account.id, by.actor, action, ids.shown(Prefix.ENDPOINT, endpoint_id), at=at, **details)


def _without_query(url: str) -> str:
    """What the audit log keeps of an address: its query may hold a token."""
    return url.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """What a merchant changes of an endpoint; None keeps what is there."""

    url: str | None = None
    events: tuple[str, ...] | None = None
    enabled: bool | None = None
    description: str | None = None
    clears_description: bool = False


async def change_endpoint(
    conn: Connection, by: Principal, endpoint_id: uuid.UUID, change: EndpointChange, *, at: datetime
) -> Endpoint:
    """Change an endpoint. What waits for one that is disabled is cancelled. Raises ResourceNotFound."""
    account_id = by.account.id
    if change.enabled is False:
        # First, since there may be many: whoever records the end of an attempt must not wait for the endpoint's row.
        await queries.cancel_deliveries(conn, account_id, endpoint_id, at=at)
    was = await _locked(conn, account_id, endpoint_id)
    description = was.description if change.description is None else change.description
    endpoint = replace(
        was,
        url=was.url if change.url is None else change.url,
        events=was.events if change.events is None else change.events,
        enabled=was.enabled if change.enabled is None else change.enabled,
        description=None if change.clears_description else description,
    )
    await endpoint_queries.update_endpoint(conn, endpoint)
    if changed := _changed(was, endpoint):
        await _audit(conn, by, AuditAction.ENDPOINT_CHANGED, endpoint_id, at=at, **changed)
    return endpoint


def _changed(was: Endpoint, now: Endpoint) -> dict[str, str | int | None]:
    """What differs, before and after."""
    before, after = _told(was), _told(now)
    changed: dict[str, str | int | None] = {}
    for name, value in after.items():
        if before[name] != value:
            changed |= {f"{name}_was": before[name], name: value}
    if was.url != now.url and not changed:
        changed["url"] = _without_query(now.url)  # what differs is its query, which is not told
    return changed


def _told(endpoint: Endpoint) -> dict[str, str | None]:
    return {
        "url": _without_query(endpoint.url),
        "events": " ".join(endpoint.events),
        "description": endpoint.description,
        "status": "enabled" if endpoint.enabled else "disabled",
    }


async def delete_endpoint(db: Database, by: Principal, endpoint_id: uuid.UUID, *, at: datetime) -> None:
    """Delete an endpoint; what waits for it is cancelled, what is over stays on record. Raises ResourceNotFound."""
    async with transaction(db) as conn:
        await queries.cancel_deliveries(conn, by.account.id, endpoint_id, at=at)
        was = await _locked(conn, by.account.id, endpoint_id)
        await endpoint_queries.delete_endpoint(conn, by.account.id, endpoint_id)
        await _audit(conn, by, AuditAction.ENDPOINT_DELETED, endpoint_id, at=at, url=_without_query(was.url))


async def rotate_secret(
    conn: Connection, by: Principal, endpoint_id: uuid.UUID, *, overlap: timedelta, secret_key: bytes, at: datetime
) -> tuple[Endpoint, str]:
    """Give an endpoint a new signing secret, which takes over after the overlap; answers it, readable this once.

    The switch is in the database's time, as signatures are: no sandbox clock moves it, and no job makes it. Without an
    overlap nothing but the new secret is left. Raises ResourceNotFound, InvalidState during another overlap.
    """
    was = await _locked(conn, by.account.id, endpoint_id)
    secret = secrets.new_signing_secret()
    sealed = secrets.seal(secret_key, secret, bound_to=secret_binding(by.account.id, endpoint_id))
    if not overlap:
        endpoint = replace(was, sealed_secret=sealed, sealed_next_secret=None, rotates_at=None)
    elif was.is_rotating(at):
        raise InvalidState(
            "A rotation of this secret is under way. Wait until it is over, or switch at once with overlap_seconds 0."
        )
    else:
        signing = was.sealed_next_secret or was.sealed_secret  # a rotation that is over left its secret there
        endpoint = replace(was, sealed_secret=signing, sealed_next_secret=sealed, rotates_at=at + overlap)
    await endpoint_queries.update_endpoint(conn, endpoint)
    seconds = int(overlap.total_seconds())
    await _audit(conn, by, AuditAction.SECRET_ROTATED, endpoint_id, at=at, overlap_seconds=seconds)
    return endpoint, secret


# Deliveries by hand


def demand_test_type(account: Account, event_type: EventType) -> None:
    """Raises ValidationError for what an account must not be told in a test."""
    if account.livemode and event_type is not EventType.PAYMENT_CREATED:
        raise ValidationError(Fault("type", "In live the only test event is payment.created."))


async def send_test_event(
    conn: Connection, account: Account, endpoint_id: uuid.UUID, event_type: EventType, *, public_url: str, at: datetime
) -> Delivery:
    """Queue a delivery of an event that tells of nothing real, whatever the endpoint is registered for.

    Raises ResourceNotFound, InvalidState.
    """
    await _demand_enabled(conn, account.id, endpoint_id)
    object_id = ids.new_id(account.now(at))
    event = event_about(
        replace(account, livemode=False),
        event_type,
        samples.sample_object(event_type, object_id, public_url=public_url, at=account.now(at)),
        object_id=object_id,
        sequence=1,
        at=at,
    )
    await event_queries.insert_test_event(conn, event)
    return await _queued(conn, account, endpoint_id, event.id, event_type, created_at=event.created_at, at=at)


async def redeliver(conn: Connection, account: Account, delivery_id: uuid.UUID, *, at: datetime) -> Delivery:
    """Queue a new delivery of the same event to the same endpoint. Raises ResourceNotFound, InvalidState."""
    delivery = await delivery_queries.find_delivery(conn, account.id, delivery_id)
    if delivery is None:
        raise ResourceNotFound
    try:
        await _demand_enabled(conn, account.id, delivery.endpoint_id)
    except ResourceNotFound:
        raise InvalidState("The endpoint of this delivery was deleted.") from None
    return await _queued(
        conn,
        account,
        delivery.endpoint_id,
        delivery.event_id,
        delivery.event_type,
        created_at=account.now(at),
        redelivery_of=delivery_id,
        at=at,
    )


async def _queued(
    conn: Connection,
    account: Account,
    endpoint_id: uuid.UUID,
    event_id: uuid.UUID,
    event_type: str,
    *,
    created_at: datetime,
    at: datetime,
    redelivery_of: uuid.UUID | None = None,
) -> Delivery:
    delivery = Delivery(
        ids.new_id(at),
        endpoint_id,
        event_id,
        event_type,
        DeliveryStatus.PENDING,
        0,
        instants.to_the_millisecond(created_at),
        redelivery_of,
        at,
    )
    await delivery_queries.insert_delivery(conn, account.id, delivery)
    return delivery


async def recover(
    conn: Connection, account: Account, endpoint_id: uuid.UUID, *, since: datetime, dry_run: bool, at: datetime
) -> int:
    """Queue new deliveries of what failed since (in the account's time); answers how many, at most RECOVERED_MAX.

    Raises ResourceNotFound, InvalidState.
    """
    # Whoever recovers the same endpoint at the same time waits here, and then sees what is pending.
    await delivery_queries.lock_recovery(conn, account.id, endpoint_id)
    await _demand_enabled(conn, account.id, endpoint_id)
    failed = await delivery_queries.list_to_recover(
        conn,
        account.id,
        endpoint_id,
        since=since,
        # Not the other way round: before the year 1 there is no instant that could be compared.
        first=ids.id_at(max(instants.EPOCH + account.clock_offset, since) - account.clock_offset),
        limit=RECOVERED_MAX,
    )
    if not dry_run:
        await delivery_queries.insert_redeliveries(
            conn, account.id, failed, first=ids.new_id(at), created_at=instants.to_the_millisecond(account.now(at))
        )
    return len(failed)


async def _locked(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> Endpoint:
    endpoint = await endpoint_queries.lock_endpoint(conn, account_id, endpoint_id)
    if endpoint is None:
        raise ResourceNotFound
    return endpoint


async def _demand_enabled(conn: Connection, account_id: int, endpoint_id: uuid.UUID) -> None:
    """Its row is not held: what is queued while it is being disabled is never sent, and cancelled soon."""
    endpoint = await endpoint_queries.find_endpoint(conn, account_id, endpoint_id)
    if endpoint is None:
        raise ResourceNotFound
    if not endpoint.enabled:
        raise InvalidState("This endpoint is disabled; enable it first with PATCH /webhooks/{id}.")


# House-keeping


async def tidy_queue(db: Database, *, at: datetime) -> None:
    """Settle what nothing else settles: attempts that a crash cut off, and what waits for endpoints that are gone."""
    async with transaction(db) as conn:
        await queries.plan_anew(conn)
        failing = await queries.end_deliveries_cut_off(conn)
        await queries.update_deliveries_cut_off(conn)
    for endpoint_id in failing:
        log_failing(endpoint_id)
    async with transaction(db) as conn:
        await queries.plan_anew(conn)
        await queries.cancel_stray_deliveries(conn, at=at)


def log_failing(endpoint_id: uuid.UUID) -> None:
    """Said once, when the first delivery has failed since the last that succeeded."""
    log.warning("endpoint.failing", endpoint_id=ids.shown(Prefix.ENDPOINT, endpoint_id))
