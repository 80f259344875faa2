"""Settings → API keys: make, roll with an overlap, let end, revoke. A key is shown once, when it is made."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta

from zembil import ids
from zembil.accounts import operations, queries
from zembil.accounts.model import ApiKey, Role
from zembil.accounts.operations import KeyOrder
from zembil.accounts.permissions import Permission
from zembil.dashboard import api_key_queries, people_queries
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.web.auth import KeyRing
from zembil.web.cursors import taken_page

PATH = "/settings/api-keys"
_OVERLAPS = (
    (86_400, "Both work for 24 hours"),
    (3600, "Both work for 1 hour"),
    (604_800, "Both work for 7 days"),
    (0, "The old one ends at once"),
)
_LATELY = timedelta(days=1)
_REQUESTS_LOOKED_AT_MAX = 20_000


@dataclass(frozen=True, slots=True)
class ApiKeyPages:
    door: Doorkeeper
    key_ring: KeyRing

    def routes(self) -> list[Route]:
        manage = Permission.MANAGE_KEYS
        return [
            page(PATH, self.list, manage),
            page(f"{PATH}/new", self.show_new, manage),
            action(f"{PATH}/new", self.create, manage),
            page(f"{PATH}/{{id}}", self.show, manage),
            action(f"{PATH}/{{id}}/roll", self.roll, manage),
            action(f"{PATH}/{{id}}/expiry", self.change_expiry, manage),
            page(f"{PATH}/{{id}}/revoke", self.ask_to_revoke, manage),
            action(f"{PATH}/{{id}}/revoke", self.revoke, manage),
        ]

    async def list(self, visit: Visit) -> Answer:
        parameters = visit.parameters
        asked = taken_page(parameters, "keys")
        parameters.finish()
        async with reading(self.door.db) as conn:
            keys, total = await queries.list_api_keys(
                conn, visit.account.id, before=asked.last, limit=asked.limit, offset=asked.offset
            )
            people = await people_queries.names_of_people(conn, visit.user.merchant_id)
        context = {
            "keys": [(ids.shown(Prefix.KEY, key.id), key, _maker(key, people)) for key in keys],
            "beginning": _beginning(visit),
            "total": total,
            "next_cursor": asked.next_cursor([key.id for key in keys]),
        }
        return Page("api_keys.html", context)

    async def show_new(self, visit: Visit) -> Answer:
        return self._new_page(visit.form)

    def _new_page(self, form: Form, *, status: int = 200) -> Page:
        form.values.setdefault("role", Role.DEVELOPER)
        return Page("api_key_new.html", {"form": form, "roles": _ROLES}, status)

    async def create(self, visit: Visit) -> Answer:
        form = visit.form
        name = form.text("name", "Give the key a name of at most 200 characters, for example where it is used.")
        role = form.choice("role", Role, "Choose what the key may do.")
        order = KeyOrder(name=name, role=role or Role.READ_ONLY, expires_at=_end_of_day(visit, form))
        for fault in operations.order_faults(order, visit.principal, at=visit.at):
            form.fail(fault.field, "Choose a day to come." if fault.field == "expires_at" else fault.message)
        if form.errors:
            return self._new_page(form, status=400)
        async with transaction(self.door.db) as conn:
            key, secret = await operations.create_key(conn, visit.principal, order, at=visit.at)
        return _revealed(f"The key {key.name} is made.", key, secret)

    async def show(self, visit: Visit) -> Answer:
        return await self._page(visit, await self._key(visit))

    async def _page(self, visit: Visit, key: ApiKey, *, template: str = "api_key.html", status: int = 200) -> Page:
        async with reading(self.door.db) as conn:
            people = await people_queries.names_of_people(conn, visit.user.merchant_id)
            uses = await api_key_queries.list_uses(
                conn, visit.account.id, key.id, since=visit.at - _LATELY, requests_max=_REQUESTS_LOOKED_AT_MAX
            )
        form = visit.form
        if key.expires_at is not None:
            form.values.setdefault("expires_at", key.expires_at.astimezone(visit.zone).date().isoformat())
        context = {
            "form": form,
            "key": key,
            "key_id": ids.shown(Prefix.KEY, key.id),
            "maker": _maker(key, people),
            "beginning": _beginning(visit),
            "overlaps": _OVERLAPS,
            "uses": [(use, ids.shown_request_id(use.latest), ids.created_at(use.latest)) for use in uses],
            "was_used_lately": key.last_used_at is not None and key.last_used_at > visit.at - _LATELY,
        }
        return Page(template, context, status)

    async def roll(self, visit: Visit) -> Answer:
        key = await self._key(visit)
        overlap = visit.form.whole_number("overlap", "Choose how long both work.", least=0, most=604_800)
        if overlap is None:
            return await self._page(visit, key, status=400)
        async with transaction(self.door.db) as conn:
            new, _, secret = await operations.roll_key(
                conn, visit.principal, key.id, overlap=timedelta(seconds=overlap), at=visit.at
            )
        self.key_ring.forget()
        ends = "ends at once" if not overlap else f"works for {timedelta(seconds=overlap) // timedelta(hours=1)} h more"
        return _revealed(f"The key {new.name} has a new secret; the old one {ends}.", new, secret)

    async def change_expiry(self, visit: Visit) -> Answer:
        key = await self._key(visit)
        expires_at = _end_of_day(visit, visit.form)
        if expires_at is not None and expires_at <= visit.at:
            visit.form.fail("expires_at", "Choose a day to come, or none.")
        if visit.form.errors:
            return await self._page(visit, key, status=400)
        async with transaction(self.door.db) as conn:
            await operations.change_key_expiry(conn, visit.principal, key.id, expires_at, at=visit.at)
        self.key_ring.forget()
        return GoTo(f"{PATH}/{visit.value('id')}", Notice("Saved."))

    async def ask_to_revoke(self, visit: Visit) -> Answer:
        return await self._page(visit, await self._key(visit), template="api_key_revoke.html")

    async def revoke(self, visit: Visit) -> Answer:
        key = await self._key(visit)
        async with transaction(self.door.db) as conn:
            await operations.revoke_key(conn, visit.principal, key.id, at=visit.at)
        self.key_ring.forget()
        return GoTo(PATH, Notice(f"The key {key.name} is revoked; it opens nothing any more."))

    async def _key(self, visit: Visit) -> ApiKey:
        key_id = ids.parsed(Prefix.KEY, visit.value("id"))
        async with reading(self.door.db) as conn:
            key = None if key_id is None else await queries.find_api_key(conn, visit.account.id, key_id)
        if key is None:
            raise ResourceNotFound
        return key


_ROLES = (
    (Role.ADMIN.value, "Admin: everything"),
    (Role.DEVELOPER.value, "Developer: create and view transactions"),
    (Role.READ_ONLY.value, "Read-only: view"),
)


def _end_of_day(visit: Visit, form: Form) -> datetime | None:
    """The end of the chosen day, where the merchant is; None if no day was chosen, or none that there is."""
    day = form.day("expires_at", "Choose a day.")
    if day is not None and day.year > operations.END_YEAR_MAX:
        form.fail("expires_at", f"Choose a day before the year {operations.END_YEAR_MAX + 1}.")
        return None
    return None if day is None else datetime.combine(day, time.max, visit.zone).replace(microsecond=999_000)


def _maker(key: ApiKey, people: dict[str, str]) -> str:
    return people.get(ids.shown(Prefix.USER, key.user_id), "–")


def _beginning(visit: Visit) -> str:
    return "sk_live_" if visit.livemode else "sk_test_"


def _revealed(text: str, key: ApiKey, secret: str) -> GoTo:
    return GoTo(f"{PATH}/{ids.shown(Prefix.KEY, key.id)}", Notice(text, secret_name="API key", secret=secret))  # noqa: S106
