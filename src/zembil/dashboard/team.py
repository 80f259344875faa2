"""Settings → Team: who works here, with which role, and what each role may do."""

from collections.abc import Sequence
from dataclasses import dataclass

from zembil import ids
from zembil.accounts import team, user_queries
from zembil.accounts.model import Role, User
from zembil.accounts.permissions import Permission, allowed
from zembil.dashboard import people_queries
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import ROOT, Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading
from zembil.errors import DuplicateReference, ResourceNotFound
from zembil.ids import Prefix
from zembil.web.fields import check_email

PATH = "/settings/team"
_EMAIL_MAX = 254
_ROLES = tuple((role.value, role.value.replace("_", "-").capitalize()) for role in Role)


@dataclass(frozen=True, slots=True)
class TeamPages:
    door: Doorkeeper

    def routes(self) -> list[Route]:
        manage, one = Permission.MANAGE_TEAM, f"{PATH}/{{id}}"
        return [
            page(PATH, self.list, manage),
            action(PATH, self.invite, manage),
            page(one, self.show, manage),
            action(f"{one}/role", self.change_role, manage),
            action(f"{one}/invite", self.invite_again, manage),
            page(f"{one}/remove", self.ask_to_remove, manage),
            action(f"{one}/remove", self.remove, manage),
        ]

    async def list(self, visit: Visit) -> Answer:
        return await self._list_page(visit, visit.form)

    async def _list_page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        async with reading(self.door.db) as conn:
            users = await user_queries.list_users(conn, visit.user.merchant_id)
        form.values.setdefault("role", Role.DEVELOPER)
        context = {
            "form": form,
            "people": [(ids.shown(Prefix.USER, user.id), user, _standing(user)) for user in users],
            "roles": _ROLES,
            "matrix": matrix(),
        }
        return Page("team.html", context, status)

    async def invite(self, visit: Visit) -> Answer:
        form = visit.form
        email = form.text("email", "Give an e-mail address.", max_length=_EMAIL_MAX, check=check_email).lower()
        role = form.choice("role", Role, "Choose a role.")
        if role is None or form.errors:
            return await self._list_page(visit, form, status=400)
        try:
            _, token = await team.invite(
                self.door.db, visit.user.merchant_id, email=email, role=role, by=visit.principal.actor, at=visit.at
            )
        except DuplicateReference as error:
            form.fail("email", error.message)
            return await self._list_page(visit, form, status=409)
        return self._invited(email, token)

    def _invited(self, email: str, token: str) -> GoTo:
        link = f"{self.door.settings.public_url}{ROOT}/link/{token}"
        text = f"Give this link to {email}, and make sure who it is. It is valid 7 days and works once."
        return GoTo(PATH, Notice(text, secret_name="Invitation", secret=link))  # noqa: S106  (its name, not itself)

    async def show(self, visit: Visit) -> Answer:
        user = await self._member(visit)
        visit.form.values.setdefault("role", user.role)
        context = {"person": user, "person_id": visit.value("id"), "standing": _standing(user), "roles": _ROLES}
        return Page("team_member.html", {"form": visit.form, **context})

    async def change_role(self, visit: Visit) -> Answer:
        user, role = await self._member(visit), visit.form.choice("role", Role, "Choose a role.")
        if role is None:
            return await self.show(visit)
        await team.change_role(
            self.door.db, visit.user.merchant_id, user.id, role, by=visit.principal.actor, at=visit.at
        )
        # Whoever is no admin any more may not see the team.
        leaves = user.id == visit.user.id and role is not Role.ADMIN
        return GoTo("" if leaves else PATH, Notice(f"{user.name} is {_word(role)} from now on."))

    async def invite_again(self, visit: Visit) -> Answer:
        user = await self._member(visit)
        token = await team.invite_again(
            self.door.db, visit.user.merchant_id, user.id, by=visit.principal.actor, at=visit.at
        )
        return self._invited(user.email or user.name, token)

    async def ask_to_remove(self, visit: Visit) -> Answer:
        user = await self._member(visit)
        async with reading(self.door.db) as conn:
            keys = await people_queries.count_keys_of(conn, user.id)
        return Page("team_remove.html", {"person": user, "person_id": visit.value("id"), "keys": keys})

    async def remove(self, visit: Visit) -> Answer:
        user = await self._member(visit)
        await team.remove(self.door.db, visit.user.merchant_id, user.id, by=visit.principal.actor, at=visit.at)
        return GoTo(PATH, Notice(f"{user.name} is removed and signed out everywhere."))

    async def _member(self, visit: Visit) -> User:
        user_id = ids.parsed(Prefix.USER, visit.value("id"))
        async with reading(self.door.db) as conn:
            user = None if user_id is None else await user_queries.find_user(conn, user_id)
        if user is None or user.merchant_id != visit.user.merchant_id:
            raise ResourceNotFound
        return user


def matrix() -> Sequence[tuple[str, Sequence[str]]]:
    """What each role may do, as the table says that every request is judged by."""
    return [(permission.value, [_where(role, permission) for role in Role]) for permission in Permission]


def _where(role: Role, permission: Permission) -> str:
    sandbox, live = (allowed(role, permission, livemode=livemode) for livemode in (False, True))
    return {(True, True): "Yes", (True, False): "In the sandbox", (False, True): "In live"}.get((sandbox, live), "No")


def _word(role: Role) -> str:
    return role.value.replace("_", "-")


def _standing(user: User) -> tuple[str, str]:
    """How somebody comes in, in words, and the kind of its colour."""
    if user.is_invited:
        return "Invited", "wait"
    if user.password_hash is None:
        return "No password", "quiet"
    return ("Two steps", "good") if user.has_second_step else ("Password only", "wait")
