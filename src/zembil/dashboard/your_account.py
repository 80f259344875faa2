"""Your account: name and e-mail, password, second step, and where you are signed in."""

import uuid
from dataclasses import dataclass

import segno
from markupsafe import Markup

from zembil import ids
from zembil.accounts import codes, passwords, sign_in, user_queries
from zembil.accounts.passwords import Passwords
from zembil.accounts.permissions import Permission
from zembil.dashboard.forms import Form
from zembil.dashboard.sign_in import new_password
from zembil.dashboard.visits import SECOND_STEP_PATH, Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading
from zembil.errors import InvalidState, ResourceNotFound
from zembil.ids import Prefix
from zembil.web.fields import check_email

PATH = "/your-account"
_WRONG_PASSWORD = "This is not your password."  # noqa: S105
_WRONG_CODE = "This code is wrong or was used before. Wait for the next one and try again."


@dataclass(frozen=True, slots=True)
class YourAccountPages:
    """One's own person; nobody needs a permission for it."""

    door: Doorkeeper
    hasher: Passwords

    def routes(self) -> list[Route]:
        anybody = Permission.VIEW
        return [
            page(PATH, self.show, is_before_second_step=True),
            action(f"{PATH}/name", self.change_name, anybody, is_before_second_step=True),
            action(f"{PATH}/password", self.change_password, anybody, is_before_second_step=True),
            page(SECOND_STEP_PATH, self.show_second_step, is_before_second_step=True),
            action(SECOND_STEP_PATH, self.confirm_second_step, anybody, is_before_second_step=True),
            action(f"{SECOND_STEP_PATH}/remove", self.remove_second_step, anybody, is_before_second_step=True),
            action(f"{PATH}/sessions/{{id}}/end", self.end_session, anybody, is_before_second_step=True),
        ]

    async def show(self, visit: Visit) -> Answer:
        return await self._page(visit, visit.form)

    async def _page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        async with reading(self.door.db) as conn:
            sessions = await user_queries.list_sessions(conn, visit.user.id, idle=sign_in.SESSION_IDLE)
            recovery_codes = await user_queries.count_recovery_codes(conn, visit.user.id)
        form.values.setdefault("name", visit.user.name)
        form.values.setdefault("email", visit.user.email or "")
        context = {
            "form": form,
            "sessions": [(ids.shown(Prefix.SESSION, session.id), session) for session in sessions],
            "recovery_codes": recovery_codes,
            "length_min": passwords.LENGTH_MIN,
        }
        return Page("your_account.html", context, status)

    async def change_name(self, visit: Visit) -> Answer:
        form = visit.form
        name = form.text("name", "Say how you are called, in at most 200 characters.")
        email = form.text("email", "Give an e-mail address.", max_length=254, required=False, check=check_email)
        if not email and visit.user.password_hash is not None:
            form.fail("email", "Give an e-mail address: you sign in with it.")
        address = email.lower() or None
        if not form.errors and address != visit.user.email:
            await self._demand_password(visit, "password_for_email")
        if not form.errors and not await sign_in.change_name_and_email(
            self.door.db, visit.session, name=name, email=address, at=visit.at
        ):
            form.fail("email", "This e-mail address belongs to somebody already.")
        if form.errors:
            return await self._page(visit, form, status=400)
        return GoTo(PATH, Notice("Saved."))

    async def _demand_password(self, visit: Visit, name: str) -> None:
        """What opens the account is changed by who knows its password, not by who found a browser open."""
        given = visit.form.raw(name)
        if not await sign_in.knows_password(
            self.door.db, self.hasher, visit.session, given, visit.visitor, at=visit.at
        ):
            visit.form.fail(name, _WRONG_PASSWORD)

    async def change_password(self, visit: Visit) -> Answer:
        form = visit.form
        if visit.user.email is None:
            form.fail("new_password", "Give your e-mail address first, above: you sign in with both.")
        password = new_password(form, email=visit.user.email or "")
        if not form.errors:
            token = await sign_in.change_password(
                self.door.db,
                self.hasher,
                visit.session,
                current=form.raw("current_password"),
                new=password,
                visitor=visit.visitor,
                at=visit.at,
            )
            if token is not None:
                text = "Your password is changed, and every other browser is signed out."
                return GoTo(PATH, Notice(text), session_token=token)
            form.fail("current_password", _WRONG_PASSWORD)
        return await self._page(visit, form, status=400)

    async def show_second_step(self, visit: Visit) -> Answer:
        if visit.user.has_second_step:
            return GoTo(PATH)
        return await self._second_step_page(visit, visit.form)

    async def _second_step_page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        secret = await sign_in.propose_second_step(self.door.db, self.door.settings.secret_key, visit.session)
        link = codes.app_link(secret, user=visit.user.email or visit.user.name, service=self.door.settings.title)
        groups = " ".join(secret[start : start + 4] for start in range(0, len(secret), 4))
        return Page("second_step.html", {"form": form, "secret": groups, "qr_code": _qr_code(link)}, status)

    async def confirm_second_step(self, visit: Visit) -> Answer:
        await self._demand_password(visit, "current_password")
        if visit.form.errors:
            return await self._second_step_page(visit, visit.form, status=400)
        confirmed = await sign_in.confirm_second_step(
            self.door.db,
            self.door.settings.secret_key,
            visit.session,
            visit.form.raw("code")[:50],
            visit.visitor,
            at=visit.at,
        )
        if confirmed is None:
            visit.form.fail("code", _WRONG_CODE)
            return await self._second_step_page(visit, visit.form, status=400)
        token, recovery_codes = confirmed
        notice = Notice(
            "The second step is on. Keep these recovery codes where your phone is not: each signs you in once.",
            secret_name="Recovery codes",  # noqa: S106  (its name, not itself)
            secret="\n".join(recovery_codes),
        )
        return GoTo(PATH, notice, session_token=token)

    async def remove_second_step(self, visit: Visit) -> Answer:
        removed = await sign_in.remove_second_step(
            self.door.db,
            self.door.settings.secret_key,
            visit.session,
            visit.form.raw("code")[:50],
            visit.visitor,
            at=visit.at,
        )
        if not removed:
            visit.form.fail("code", _WRONG_CODE)
            return await self._page(visit, visit.form, status=400)
        return GoTo(PATH, Notice("The second step is off. Live pages are closed to you until you set it up again."))

    async def end_session(self, visit: Visit) -> Answer:
        session_id = ids.parsed(Prefix.SESSION, visit.value("id"))
        if session_id is None or not await self._ended(visit, session_id):
            raise ResourceNotFound
        return GoTo(PATH, Notice("That browser is signed out."))

    async def _ended(self, visit: Visit, session_id: uuid.UUID) -> bool:
        if session_id == visit.session.id:
            raise InvalidState("This is the browser that you use now; sign out instead.")
        how = "signed out from another browser"
        return await sign_in.end_session(self.door.db, visit.user, session_id, how=how, at=visit.at)


def _qr_code(link: str) -> Markup:
    drawn: str = segno.make_qr(link, error="m").svg_inline(scale=5, light="#fff", omitsize=False)
    return Markup(drawn)  # noqa: S704  (segno's own squares; what they encode stands nowhere in it as text)
