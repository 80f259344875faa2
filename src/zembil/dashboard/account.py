"""Settings → Account: names, time zone, how long payments wait, late money, who approves refunds."""

from dataclasses import dataclass
from functools import cache
from zoneinfo import available_timezones

from zembil.accounts import settings
from zembil.accounts.model import LateMoney
from zembil.accounts.permissions import Permission
from zembil.accounts.settings import AccountSettings, MerchantSettings
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.web.auth import KeyRing

PATH = "/settings/account"
_MINUTES_MIN, _MINUTES_MAX = settings.LIFETIME_SECONDS_MIN // 60, settings.LIFETIME_SECONDS_MAX // 60
_LATE_MONEY = (
    (LateMoney.ACCEPT.value, "Accept it: the payment becomes completed"),
    (LateMoney.REFUND.value, "Send it back to the payer"),
)


@dataclass(frozen=True, slots=True)
class AccountPages:
    door: Doorkeeper
    key_ring: KeyRing

    def routes(self) -> list[Route]:
        change = Permission.CHANGE_SETTINGS
        return [
            page(PATH, self.show, change),
            action(PATH, self.change, change),
            action(f"{PATH}/self-approval/ask", self.ask, change),
            action(f"{PATH}/self-approval/agree", self.agree, change),
            action(f"{PATH}/self-approval/refuse", self.refuse, change),
        ]

    async def show(self, visit: Visit) -> Answer:
        account = visit.account
        visit.form.values |= {
            "name": account.merchant_name,
            "name_am": account.merchant_name_am or "",
            "time_zone": account.time_zone,
            "minutes": str(account.payment_lifetime_seconds // 60),
            "late_money": account.late_money.value,
        }
        return await self._page(visit, visit.form)

    async def _page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        async with reading(self.door.db) as conn:
            asked_by = await settings.asked_for_self_approval(conn, visit.account.id)
        context = {
            "form": form,
            "zones": [(zone, zone.replace("_", " ")) for zone in _zones()],
            "late_money": _LATE_MONEY,
            "minutes_min": _MINUTES_MIN,
            "minutes_max": _MINUTES_MAX,
            "asked_by": asked_by,
        }
        return Page("account.html", context, status)

    async def change(self, visit: Visit) -> Answer:
        form = visit.form
        name = form.text("name", "Give the name that payers know, in at most 200 characters.")
        name_am = form.text("name_am", "Give at most 200 characters.", required=False)
        minutes = form.whole_number(
            "minutes",
            f"Give whole minutes from {_MINUTES_MIN} to {_MINUTES_MAX:,}.",
            least=_MINUTES_MIN,
            most=_MINUTES_MAX,
        )
        late_money = form.choice("late_money", LateMoney, "Choose what is done with late money.")
        time_zone = form.raw("time_zone")
        if time_zone not in _zones():
            form.fail("time_zone", "Choose one of the time zones.")
        if minutes is None or late_money is None or form.errors:
            return await self._page(visit, form, status=400)
        merchant = MerchantSettings(name=name, name_am=name_am or None, time_zone=time_zone)
        account = AccountSettings(late_money=late_money, payment_lifetime_seconds=minutes * 60)
        async with transaction(self.door.db) as conn:
            await settings.change_settings(conn, visit.principal, merchant, account, at=visit.at)
        return self._done("Saved.")

    async def ask(self, visit: Visit) -> Answer:
        async with transaction(self.door.db) as conn:
            is_switched = await settings.ask_to_switch_self_approval(conn, visit.principal, at=visit.at)
        return self._done("It holds now." if is_switched else "It holds once another admin agrees, on this page.")

    async def agree(self, visit: Visit) -> Answer:
        async with transaction(self.door.db) as conn:
            await settings.agree_to_switch_self_approval(conn, visit.principal, at=visit.at)
        return self._done("You agreed; it holds now.")

    async def refuse(self, visit: Visit) -> Answer:
        async with transaction(self.door.db) as conn:
            await settings.refuse_to_switch_self_approval(conn, visit.principal, at=visit.at)
        return self._done("It stays as it is.")

    def _done(self, text: str) -> GoTo:
        self.key_ring.forget()  # which remembers accounts for a moment
        return GoTo(PATH, Notice(text))


@cache
def _zones() -> tuple[str, ...]:
    """The zones that people live in, by name; not the many abbreviations."""
    return ("UTC", *sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith("Etc/")))
