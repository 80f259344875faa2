"""Settings → Webhooks: endpoints, their secrets, recovery and tests; events on demand in the sandbox."""

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.dashboard.deliveries import PATH as DELIVERIES_PATH
from zembil.dashboard.deliveries import delivery_list
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import Fault, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.sandbox_tools.events import make_event
from zembil.webhooks import endpoint_queries, operations
from zembil.webhooks.addresses import url_faults
from zembil.webhooks.model import EVERY_TYPE, Endpoint, EventType
from zembil.webhooks.operations import EndpointChange
from zembil.webhooks.sender import Bell

PATH = "/settings/webhooks"
_TYPES = tuple(event_type.value for event_type in EventType)
_DESCRIPTION_MAX = 500
_OVERLAPS = (
    (86_400, "For 24 hours both secrets sign"),
    (3600, "For 1 hour both secrets sign"),
    (604_800, "For 7 days both secrets sign"),
    (0, "The secret is compromised: the new one alone signs at once"),
)


@dataclass(frozen=True, slots=True)
class WebhookPages:
    door: Doorkeeper
    bell: Bell

    def routes(self) -> list[Route]:
        manage, one = Permission.MANAGE_WEBHOOKS, f"{PATH}/{{id}}"
        return [
            page(PATH, self.list),
            page(f"{PATH}/new", self.show_new, manage),
            action(f"{PATH}/new", self.register, manage),
            action(f"{PATH}/events/simulate", self.simulate, Permission.USE_SANDBOX_TOOLS, environments=("sandbox",)),
            page(one, self.show),
            page(f"{one}/change", self.show_change, manage),
            action(f"{one}/change", self.change, manage),
            action(f"{one}/enable", partial(self.switch, enabled=True), manage),
            action(f"{one}/disable", partial(self.switch, enabled=False), manage),
            page(f"{one}/delete", self.ask_to_delete, manage),
            action(f"{one}/delete", self.delete, manage),
            page(f"{one}/rotate", self.show_rotate, manage),
            action(f"{one}/rotate", self.rotate, manage),
            page(f"{one}/recover", self.ask_to_recover, manage),
            action(f"{one}/recover", self.recover, manage),
            action(f"{one}/test", self.test, manage),
        ]

    async def list(self, visit: Visit) -> Answer:
        async with reading(self.door.db) as conn:
            endpoints, _ = await endpoint_queries.list_endpoints(
                conn, visit.account.id, before=None, limit=self.door.settings.endpoints_max, offset=0
            )
        context = {
            "endpoints": [(ids.shown(Prefix.ENDPOINT, endpoint.id), endpoint) for endpoint in endpoints],
            "types": [(event_type, event_type) for event_type in _TYPES],
        }
        return Page("webhooks.html", context)

    async def simulate(self, visit: Visit) -> Answer:
        """Make an event happen, as POST /test/events does."""
        event_type = visit.form.choice("type", EventType, "Choose a type.")
        if event_type is None:
            raise ValidationError(Fault("type", "Choose one of the event types."))
        async with transaction(self.door.db) as conn:
            payload = await make_event(
                conn, visit.account, event_type, public_url=self.door.settings.public_url, at=visit.at
            )
        self.bell.ring()
        told: dict[str, Any] = msgspec.json.decode(payload)
        text = f"{told['type']} happened: {told['id']}, about {told['data']['object']['id']}."
        return GoTo(PATH, Notice(f"{text} Every endpoint that wants it gets it now."))

    # Endpoints

    async def show_new(self, visit: Visit) -> Answer:
        return self._form_page(visit.form, None)

    def _form_page(self, form: Form, endpoint: Endpoint | None, *, status: int = 200) -> Page:
        ticked = set(form.all("events")) if "form_token" in form else set(endpoint.events if endpoint else ())
        if endpoint is not None and "form_token" not in form:
            form.values |= {"url": endpoint.url, "description": endpoint.description or ""}
        context = {"form": form, "endpoint": endpoint, "types": (EVERY_TYPE, *_TYPES), "ticked": ticked}
        return Page("webhook_form.html", context | _named(endpoint), status)

    async def register(self, visit: Visit) -> Answer:
        asked = _asked(visit)
        if asked is None:
            return self._form_page(visit.form, None, status=400)
        try:
            async with transaction(self.door.db) as conn:
                endpoint, secret = await operations.register_endpoint(
                    conn,
                    visit.principal,
                    url=asked.url or "",
                    events=asked.events or (),
                    description=asked.description,
                    secret_key=self.door.settings.secret_key,
                    endpoints_max=self.door.settings.endpoints_max,
                    at=visit.at,
                )
        except ValidationError as error:
            for fault in error.details:
                visit.form.fail(fault.field, fault.message)
            return self._form_page(visit.form, None, status=400)
        return _revealed("The endpoint is registered. Give its secret to your receiver.", endpoint, secret)

    async def show(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        context = {
            "endpoint": endpoint,
            "types": [(event_type, event_type) for event_type in _TYPES],
            "test_types": [(event_type, event_type) for event_type in (_TYPES[:1] if visit.livemode else _TYPES)],
            "clear": visit.path(f"{PATH}/{visit.value('id')}"),
            **await delivery_list(self.door.db, visit, endpoint.id),
        }
        return Page("webhook.html", context | _named(endpoint))

    async def show_change(self, visit: Visit) -> Answer:
        return self._form_page(visit.form, await self._endpoint(visit))

    async def change(self, visit: Visit) -> Answer:
        endpoint, asked = await self._endpoint(visit), _asked(visit)
        if asked is None:
            return self._form_page(visit.form, endpoint, status=400)
        return await self._changed(visit, endpoint, asked, "Saved.")

    async def switch(self, visit: Visit, *, enabled: bool) -> Answer:
        text = "The endpoint is enabled." if enabled else "The endpoint is disabled; what waited for it is cancelled."
        return await self._changed(visit, await self._endpoint(visit), EndpointChange(enabled=enabled), text)

    async def _changed(self, visit: Visit, endpoint: Endpoint, change: EndpointChange, text: str) -> Answer:
        async with transaction(self.door.db) as conn:
            await operations.change_endpoint(conn, visit.principal, endpoint.id, change, at=visit.at)
        return GoTo(f"{PATH}/{visit.value('id')}", Notice(text))

    async def ask_to_delete(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        return Page("webhook_delete.html", {"endpoint": endpoint, **_named(endpoint)})

    async def delete(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        await operations.delete_endpoint(self.door.db, visit.principal, endpoint.id, at=visit.at)
        return GoTo(PATH, Notice("The endpoint is deleted; what waited for it is cancelled."))

    async def show_rotate(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        return Page("webhook_rotate.html", {"endpoint": endpoint, "overlaps": _OVERLAPS, **_named(endpoint)})

    async def rotate(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        seconds = visit.form.whole_number("overlap", "Choose when the new secret takes over.", least=0, most=604_800)
        if seconds is None:
            context = {"endpoint": endpoint, "overlaps": _OVERLAPS, **_named(endpoint)}
            return Page("webhook_rotate.html", context, 400)
        async with transaction(self.door.db) as conn:
            endpoint, secret = await operations.rotate_secret(
                conn,
                visit.principal,
                endpoint.id,
                overlap=timedelta(seconds=seconds),
                secret_key=self.door.settings.secret_key,
                at=visit.at,
            )
        over = "It signs from now on." if not seconds else "Until it takes over, the old one signs too."
        return _revealed(f"The endpoint has a new secret. {over}", endpoint, secret)

    # Sending again, and for a test

    async def ask_to_recover(self, visit: Visit) -> Answer:
        """How many deliveries a recovery would make, before it makes them."""
        endpoint = await self._endpoint(visit)
        parameters = visit.parameters
        since = parameters.take("since", partial(_instant, visit), "Choose a day and a time.")
        parameters.finish()
        since = since or endpoint.failing_since or visit.now - timedelta(days=1)
        async with transaction(self.door.db) as conn:
            count = await operations.recover(conn, visit.account, endpoint.id, since=since, dry_run=True, at=visit.at)
        since_text = since.astimezone(visit.zone).strftime("%Y-%m-%dT%H:%M")
        context = {"endpoint": endpoint, "count": count, "since": since, "since_text": since_text}
        return Page("webhook_recover.html", context | _named(endpoint))

    async def recover(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        since = _instant(visit, visit.form.raw("since"))
        if since is None:
            raise ValidationError(Fault("since", "Choose a day and a time."))
        async with transaction(self.door.db) as conn:
            count = await operations.recover(conn, visit.account, endpoint.id, since=since, dry_run=False, at=visit.at)
        self.bell.ring()
        text = "1 event is sent again." if count == 1 else f"{count:,} events are sent again."
        return GoTo(f"{PATH}/{visit.value('id')}", Notice(text))

    async def test(self, visit: Visit) -> Answer:
        endpoint = await self._endpoint(visit)
        event_type = visit.form.choice("type", EventType, "Choose a type.")
        if event_type is None:
            raise ValidationError(Fault("type", "Choose one of the event types."))
        operations.demand_test_type(visit.account, event_type)
        async with transaction(self.door.db) as conn:
            delivery = await operations.send_test_event(
                conn,
                visit.account,
                endpoint.id,
                event_type,
                public_url=self.door.settings.public_url,
                at=visit.at,
            )
        self.bell.ring()
        return GoTo(
            f"{DELIVERIES_PATH}/{ids.shown(Prefix.DELIVERY, delivery.id)}",
            Notice("A test event is on its way. What came of it stands here a moment later; reload the page."),
        )

    async def _endpoint(self, visit: Visit) -> Endpoint:
        endpoint_id = ids.parsed(Prefix.ENDPOINT, visit.value("id"))
        async with reading(self.door.db) as conn:
            endpoint = (
                None
                if endpoint_id is None
                else await endpoint_queries.find_endpoint(conn, visit.account.id, endpoint_id)
            )
        if endpoint is None:
            raise ResourceNotFound
        return endpoint


def _asked(visit: Visit) -> EndpointChange | None:
    """What the form says of an endpoint, or None if something is wrong with it."""
    form = visit.form
    url = form.text(
        "url",
        "Give the https address that receives events.",
        max_length=2048,
        check=partial(url_faults, livemode=visit.livemode),
    )
    events = form.choices("events", (EVERY_TYPE, *_TYPES), "Choose what it hears of.")
    description = form.text(
        "description", f"Give at most {_DESCRIPTION_MAX} characters.", max_length=_DESCRIPTION_MAX, required=False
    )
    if form.errors:
        return None
    heard = (EVERY_TYPE,) if EVERY_TYPE in events else tuple(events)
    return EndpointChange(url=url, events=heard, description=description or None, clears_description=not description)


def _named(endpoint: Endpoint | None) -> dict[str, object]:
    return {"endpoint_id": "" if endpoint is None else ids.shown(Prefix.ENDPOINT, endpoint.id)}


def _instant(visit: Visit, text: str) -> datetime | None:
    """An instant as a form's field says it, where the merchant is; None if it is none."""
    try:
        at = datetime.fromisoformat(text)
        if not MINYEAR < at.year < MAXYEAR:  # at the ends of time not every zone has a day
            return None
        return (at if at.tzinfo else at.replace(tzinfo=visit.zone)).astimezone(visit.at.tzinfo)
    except (ValueError, OverflowError):
        return None


def _revealed(text: str, endpoint: Endpoint, secret: str) -> GoTo:
    notice = Notice(text, secret_name="Signing secret", secret=secret)  # noqa: S106  (its name, not itself)
    return GoTo(f"{PATH}/{ids.shown(Prefix.ENDPOINT, endpoint.id)}", notice)
