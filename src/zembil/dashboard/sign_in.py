"""Signing in: e-mail and password, the code, links that work once; and signing out."""

from dataclasses import dataclass
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zembil.accounts import passwords, sign_in
from zembil.accounts.model import LinkKind, Session, User
from zembil.accounts.passwords import Passwords
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import CODE_PATH, ROOT, SIGN_IN_PATH, Doorkeeper, Notice, our_path
from zembil.errors import RateLimitExceeded, ResourceNotFound, ServiceUnavailable
from zembil.web.fields import check_email

_EMAIL_MAX = 254
_WRONG = "E-mail and password do not belong together. Check both and try again."
_WRONG_CODE = "This code is wrong or was used before. Wait for the next one and try again."

_OVER = "This link is over: it was used, a newer one was made, or its time is up."
_IN_ALREADY = "You are signed in here already: go on to the first page."
_NEW_LINK = (
    "For a new one, start zembil dev again if this is your own machine; "
    "otherwise ask an admin, or whoever runs this service (zembil user reset-link)."
)


@dataclass(frozen=True, slots=True)
class SignInPages:
    """The doors of the dashboard."""

    door: Doorkeeper
    hasher: Passwords

    def routes(self) -> list[Route]:
        return [
            Route(ROOT, self.home),
            Route(f"{ROOT}/", self.home),
            Route(SIGN_IN_PATH, self.show),
            Route(SIGN_IN_PATH, self.sign_in, methods=["POST"]),
            Route(CODE_PATH, self.show_code),
            Route(CODE_PATH, self.give_code, methods=["POST"]),
            Route(f"{ROOT}/link/{{token}}", self.show_link),
            Route(f"{ROOT}/link/{{token}}", self.use_link, methods=["POST"]),
            Route(f"{ROOT}/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def home(self, _: Request) -> Response:
        return self.door.go_to(f"{ROOT}/sandbox")

    async def show(self, request: Request) -> Response:
        return self.door.sign_in_page(request, Form())

    async def sign_in(self, request: Request) -> Response:
        form = await self.door.plain_form(request)
        # A text that is no e-mail address is nobody's, and is refused as any other that is nobody's.
        given = form.raw("email").strip().lower()
        email = given if len(given) <= _EMAIL_MAX and not any(check_email(given)) else ""
        visitor = self.door.visitor(request)
        try:
            token = await sign_in.sign_in(
                self.door.db, self.hasher, email, form.raw("password"), visitor, at=self.door.clock.now()
            )
        except (RateLimitExceeded, ServiceUnavailable) as error:
            form.fail("email", error.message)
            return self.door.sign_in_page(request, form, status=error.status, headers=error.headers)
        if token is None:
            form.fail("email", _WRONG)
            return self.door.sign_in_page(request, form, status=401)
        return await self._let_in(request, token, our_path(form.raw("next")))

    async def _let_in(self, request: Request, token: str, on: str) -> Response:
        """Go on in the new session, by way of the code where one is needed; the browser's old session ends."""
        at = self.door.clock.now()
        old, new = await self.door.session(request), await sign_in.resume(self.door.db, token, at=at)
        if old is not None:
            await sign_in.end_session(self.door.db, old.user, old.id, how="signed in anew", at=at)
        if new is not None and new.awaits_code:
            on = f"{CODE_PATH}?next={quote(on)}"
        return self.door.go_to(on, session_token=token)

    # The second step

    async def show_code(self, request: Request) -> Response:
        session = await self._half_way(request)
        if session is None:
            return self.door.go_to(SIGN_IN_PATH)
        return self._code_page(request, Form([("next", our_path(request.query_params.get("next", "")))]))

    async def give_code(self, request: Request) -> Response:
        form = await self.door.plain_form(request)
        session = await self._half_way(request)
        if session is None:
            return self.door.go_to(
                SIGN_IN_PATH, notice=Notice("That took too long. Please sign in again.", is_bad=True)
            )
        try:
            token = await sign_in.give_code(
                self.door.db,
                self.door.settings.secret_key,
                session,
                form.raw("code")[:50],
                self.door.visitor(request),
                at=self.door.clock.now(),
            )
        except RateLimitExceeded as error:
            form.fail("code", error.message)
            return self._code_page(request, form, status=error.status)
        if token is None:
            form.fail("code", _WRONG_CODE)
            return self._code_page(request, form, status=401)
        return self.door.go_to(our_path(form.raw("next")), session_token=token)

    async def _half_way(self, request: Request) -> Session | None:
        """The session that needs a code to go on, if there is one."""
        session = await self.door.session(request)
        needs_it = session is not None and session.user.has_second_step and not session.has_second_step
        return session if needs_it else None

    def _code_page(self, request: Request, form: Form, *, status: int = 200) -> Response:
        form.values.setdefault("next", ROOT)
        return self.door.plain_page(request, "code.html", {"form": form}, status=status)

    # Links that work once

    async def show_link(self, request: Request) -> Response:
        """What the link is for. Looking does not use it up: programs that look at links before people do are many."""
        user, kind = await self._linked(request)
        return self._link_page(request, user, kind, Form([("name", user.name)]))

    async def use_link(self, request: Request) -> Response:
        form = await self.door.plain_form(request)
        user, kind = await self._linked(request)
        token: str = request.path_params["token"]
        if kind is LinkKind.SIGN_IN:
            visitor, at = self.door.visitor(request), self.door.clock.now()
            return await self._let_in(request, await sign_in.sign_in_by_link(self.door.db, token, visitor, at=at), ROOT)
        name = user.name
        if kind is LinkKind.INVITATION:
            name = form.text("name", "Say how you are called, in at most 200 characters.")
        password = new_password(form, email=user.email or "")
        if form.errors:
            return self._link_page(request, user, kind, form, status=400)
        async with self.hasher.turn() as turn:
            hashed = await turn.hashed(password)
        if kind is LinkKind.INVITATION:
            await sign_in.accept_invitation(self.door.db, token, name=name, hashed=hashed, at=self.door.clock.now())
        else:
            await sign_in.reset_password(self.door.db, token, hashed=hashed, at=self.door.clock.now())
        return self.door.go_to(SIGN_IN_PATH, notice=Notice("Your password is set. Sign in with it."))

    async def _linked(self, request: Request) -> tuple[User, LinkKind]:
        try:
            return await sign_in.open_link(self.door.db, request.path_params["token"])
        except ResourceNotFound:
            is_signed_in = await self.door.session(request) is not None
            raise ResourceNotFound(f"{_OVER} {_IN_ALREADY if is_signed_in else _NEW_LINK}") from None

    def _link_page(self, request: Request, user: User, kind: LinkKind, form: Form, *, status: int = 200) -> Response:
        context = {"form": form, "kind": kind.value, "user": user, "length_min": passwords.LENGTH_MIN}
        return self.door.plain_page(request, "link.html", context, status=status)

    async def sign_out(self, request: Request) -> Response:
        """End this browser's session; whoever is signed out already is signed out."""
        session = await self.door.session(request)
        if session is not None:
            await self.door.demand_own_form(request)
            at = self.door.clock.now()
            await sign_in.end_session(self.door.db, session.user, session.id, how="signed out", at=at)
        return self.door.go_to(SIGN_IN_PATH, notice=Notice("You are signed out."), signs_out=True)


def new_password(form: Form, *, email: str) -> str:
    """The password that somebody chose, in the field `new_password`."""
    password = form.raw("new_password")
    for fault in passwords.faults(password, email=email):
        form.fail("new_password", fault)
    return password
