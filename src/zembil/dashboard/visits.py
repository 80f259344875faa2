"""The way of every dashboard request: session, environment, second step, role, form, handler, page.

An area of the dashboard is a class whose `routes()` answers pages and actions:

    page("/payments", self.list)                                     GET, everybody who is signed in
    action("/refunds/{id}/approve", self.approve, Permission.DECIDE_REFUNDS)   POST of our own form only

A handler takes a Visit, and answers a Page (a template and what it shows), a GoTo (a path inside the environment, with
a notice for the next page), or any Response of its own. What it raises as ApiError becomes a page that says so.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as HttpRoute

from zembil import ids
from zembil.accounts import secrets, sign_in
from zembil.accounts.model import Account, Principal, Role, Session, User
from zembil.accounts.permissions import Permission, allowed
from zembil.accounts.queries import find_account_of
from zembil.accounts.sign_in import Visitor
from zembil.config import Settings
from zembil.dashboard import navigation
from zembil.dashboard.forms import Form
from zembil.dashboard.rendering import Headers, exact, instant, rendered
from zembil.db.clock import Clock
from zembil.db.pool import Database, reading
from zembil.errors import ApiError, PermissionDenied, ResourceNotFound
from zembil.ids import Prefix
from zembil.telemetry import log
from zembil.web.html import FORM_BYTES_MAX, PAGE_HEADERS, form_token, own_fields
from zembil.web.parameters import Parameters
from zembil.web.rate_limits import address_group, client_address

ROOT = "/dashboard"
SIGN_IN_PATH, CODE_PATH = f"{ROOT}/sign-in", f"{ROOT}/code"
ENVIRONMENTS = {"sandbox": False, "live": True}
SECOND_STEP_PATH = "/your-account/second-step"
DELIVERIES_PATH = "/settings/webhooks/deliveries"

_SESSION, _VISITOR, _NOTICE = "zembil-session", "zembil-visitor", "zembil-notice"
_NOTICE_SECONDS = 120
_OUR_PATH = re.compile(rf"{ROOT}(?:/[A-Za-z0-9_.~-]+)*/?(?:\?[A-Za-z0-9_.~%&=+:,\[\]-]*)?")


class Notice(msgspec.Struct, frozen=True):
    """What the next page says of what was done; a secret is shown there once and kept nowhere."""

    text: str
    is_bad: bool = False
    secret_name: str = ""
    secret: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A signed-in person's request, in one environment."""

    request: Request
    session: Session
    account: Account
    visitor: Visitor
    at: datetime  # by the database's clock; `now` is the account's, which a sandbox may have moved
    form: Form = field(default_factory=Form)

    @property
    def user(self) -> User:
        return self.session.user

    @property
    def user_id(self) -> str:
        """Of the person, as it is shown and kept: usr_…"""
        return ids.shown(Prefix.USER, self.session.user.id)

    @property
    def role(self) -> Role:
        return self.session.user.role

    @property
    def livemode(self) -> bool:
        return self.account.livemode

    @property
    def environment(self) -> str:
        return "live" if self.account.livemode else "sandbox"

    @property
    def now(self) -> datetime:
        return self.account.now(self.at)

    @property
    def zone(self) -> tzinfo:
        return ZoneInfo(self.account.time_zone)

    @property
    def principal(self) -> Principal:
        """The person, as operations take whoever calls."""
        return Principal(self.account, self.session.id, self.user.id, self.role, None)

    @property
    def parameters(self) -> Parameters:
        """The query, read exactly as the API reads it; a field that was left empty is absent."""
        given = self.request.url.query.split("&")
        return Parameters("&".join(part for part in given if not part.endswith("=")).encode())

    def value(self, name: str) -> str:
        """A part of the path, or a field of the query; "" if there is none."""
        found = self.request.path_params.get(name) or self.request.query_params.get(name, "")
        return str(found).replace("\0", "�")  # which PostgreSQL does not take

    def may(self, permission: Permission) -> bool:
        return allowed(self.role, permission, livemode=self.livemode)

    def path(self, path: str = "", **query: object) -> str:
        """The address of a page of this environment; what is None is left out of the query."""
        given = {name: value for name, value in query.items() if value is not None}
        return f"{ROOT}/{self.environment}{path}" + (f"?{urlencode(given)}" if given else "")

    def here(self, **changes: object) -> str:
        """This page's address with some fields of its query changed; None leaves one out."""
        given: dict[str, object] = {**self.request.query_params, **changes}
        kept = {name: value for name, value in given.items() if value not in (None, "")}
        return self.request.url.path + (f"?{urlencode(kept)}" if kept else "")


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it shows."""

    template: str
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200


@dataclass(frozen=True, slots=True)
class GoTo:
    """On to another page of the environment, which shows the notice."""

    path: str = ""
    notice: Notice | None = None
    session_token: str | None = None  # of the session that takes this one's place


Answer = Page | GoTo | Response
Handler = Callable[[Visit], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    handler: Handler
    permission: Permission
    environments: tuple[str, ...]
    is_before_second_step: bool
    form_bytes_max: int = FORM_BYTES_MAX


def page(
    path: str,
    handler: Handler,
    permission: Permission = Permission.VIEW,
    *,
    environments: Sequence[str] = tuple(ENVIRONMENTS),
    is_before_second_step: bool = False,
) -> Route:
    """A page at a path inside the environment, for roles that have the permission there."""
    return Route("GET", path, handler, permission, tuple(environments), is_before_second_step)


def action(
    path: str,
    handler: Handler,
    permission: Permission,
    *,
    environments: Sequence[str] = tuple(ENVIRONMENTS),
    is_before_second_step: bool = False,
    form_bytes_max: int = FORM_BYTES_MAX,
) -> Route:
    """What a form of our own pages does; `visit.form` has its fields."""
    return Route("POST", path, handler, permission, tuple(environments), is_before_second_step, form_bytes_max)


def our_path(text: str) -> str:
    """Where to go on after signing in: a page of the dashboard, whatever was asked for."""
    return text if _OUR_PATH.fullmatch(text) and ".." not in text else ROOT


class Doorkeeper:
    """Lets people in to the pages, and gives every page what it needs."""

    def __init__(self, db: Database, clock: Clock, settings: Settings) -> None:
        self.db, self.clock, self.settings = db, clock, settings
        self._is_https = settings.public_url.startswith("https://")
        self._menu: dict[str, dict[str, Permission]] = {name: {} for name in ENVIRONMENTS}

    def http_routes(self, routes: Sequence[Route]) -> list[HttpRoute]:
        """The routes in each environment; those of the menu show up in it."""
        made: list[HttpRoute] = []
        for route in routes:
            for environment in route.environments:
                if route.method == "GET":
                    self._menu[environment][route.path] = route.permission
                answer = partial(self._answer, route, ENVIRONMENTS[environment])
                made.append(HttpRoute(f"{ROOT}/{environment}{route.path}", _endpoint(answer), methods=[route.method]))
        return made

    def linked(self, visit: Visit, path: str) -> str | None:
        """The address of a page, if it is there and the person may open it."""
        permission = self._menu[visit.environment].get(path)
        return visit.path(path) if permission is not None and visit.may(permission) else None

    def record_path(self, visit: Visit, area: str, record_id: str) -> str | None:
        """The address of a record of an area whose pages are `area/{id}`, if they are there and may be opened."""
        return visit.path(f"{area}/{record_id}") if self.linked(visit, f"{area}/{{id}}") else None

    async def _answer(self, route: Route, livemode: bool, request: Request) -> Response:
        session = await self.session(request)
        if session is None:
            return self.sign_in_page(request, Form(), status=401)
        if session.awaits_code:
            return RedirectResponse(CODE_PATH, status_code=303, headers=PAGE_HEADERS)
        if session.needs_code:
            # It began before the second step was set up. The team, for one, is the same in both environments: whoever
            # could invite an admin from the sandbox would come into live by that.
            on = f"{CODE_PATH}?next={quote(request.url.path)}" if route.method == "GET" else CODE_PATH
            return RedirectResponse(on, status_code=303, headers=PAGE_HEADERS)
        visit = await self._visit(request, session, livemode=livemode)
        try:
            return self._response(visit, await self._handled(route, visit))
        except ApiError as error:
            return self.refused(request, error, visit)
        except Exception as error:  # noqa: BLE001  (a bug of ours: the page says so, the log gets the rest)
            log.exception("page.failed", path=request.url.path, exc_info=error)
            return self.refused(request, error, visit)

    async def _visit(self, request: Request, session: Session, *, livemode: bool) -> Visit:
        async with reading(self.db) as conn:
            account = await find_account_of(conn, session.user.merchant_id, livemode=livemode)
        if account is None:
            raise ResourceNotFound
        return Visit(request, session, account, self.visitor(request), self.clock.now())

    async def _handled(self, route: Route, visit: Visit) -> Answer:
        if route.method == "GET" and _lacks_second_step(route, visit):
            return GoTo(SECOND_STEP_PATH, Notice("Live pages show real money. Set up the second step first."))
        _demand_admission(route, visit)
        if route.method != "GET":
            fields = await own_fields(
                visit.request,
                self.settings.secret_key,
                self._token(visit.request),
                public_url=self.settings.public_url,
                bytes_max=route.form_bytes_max,
            )
            # A form may be on its way for a while: what its sender may do is what it is now, not what it was then.
            visit = replace(await self._anew(visit), form=Form(fields))
            _demand_admission(route, visit)
        return await route.handler(visit)

    async def _anew(self, visit: Visit) -> Visit:
        """The same request, of the same session as it is now. Raises PermissionDenied if that opens nothing."""
        session = await self.session(visit.request)
        if session is None:
            raise PermissionDenied("You were signed out meanwhile. Sign in again and repeat.")
        if session.needs_code:
            raise PermissionDenied("The second step was set up meanwhile. Sign in with a code and repeat.")
        return await self._visit(visit.request, session, livemode=visit.livemode)

    def _response(self, visit: Visit, answer: Answer) -> Response:
        if isinstance(answer, GoTo):
            here, new = self._token(visit.request), answer.session_token
            return self.go_to(visit.path(answer.path), notice=answer.notice, read_in=new or here, session_token=new)
        if isinstance(answer, Page):
            return self._page(visit, answer)
        for name, value in PAGE_HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    def _page(self, visit: Visit, answer: Page, headers: Headers = ()) -> Response:
        base = f"{ROOT}/{visit.environment}"
        here = visit.request.url.path.removeprefix(base)
        notice = self._notice(visit.request, self._token(visit.request))
        context: dict[str, Any] = {
            "service": self.settings.title,
            "settings": self.settings,
            "visit": visit,
            "form": visit.form,
            "notice": notice,
            "instant": partial(instant, now=visit.now, zone=visit.zone),
            "exact": partial(exact, zone=visit.zone),
            "form_token": form_token(self.settings.secret_key, self._token(visit.request)),
            "menu": list(
                navigation.menu(
                    self._menu[visit.environment], visit.role, livemode=visit.livemode, here=here, base=base
                )
            ),
            "may": {permission.name: visit.may(permission) for permission in Permission},
            **answer.context,
        }
        response = rendered(answer.template, context, status=answer.status, headers=headers)
        if notice is not None:
            response.delete_cookie(**self._cookie(_NOTICE))
        return response

    def refused(self, request: Request, error: Exception, visit: Visit | None = None) -> Response:
        """The page for a request that cannot be answered: why in words, and the way on."""
        status, headers = (error.status, error.headers) if isinstance(error, ApiError) else (500, ())
        faults = error.details if isinstance(error, ApiError) else ()
        message = error.message if isinstance(error, ApiError) and not error.is_general else ""
        context = {"status": status, "message": message, "faults": faults}
        if visit is not None:
            return self._page(visit, Page("refused.html", context, status), headers)
        return self.plain_page(request, "refused.html", context, status=status, headers=headers)

    # People who are not signed in

    async def session(self, request: Request) -> Session | None:
        token = self._token(request)
        return await sign_in.resume(self.db, token, at=self.clock.now()) if token else None

    def visitor(self, request: Request) -> Visitor:
        address = client_address(request.scope, self.settings.trusted_proxies)
        browser = request.headers.get("user-agent", "").encode("latin-1", "replace").decode("ascii", "replace")
        return Visitor(address, address_group(address), re.sub(r"[^ -~]", "?", browser)[:300])

    def sign_in_page(self, request: Request, form: Form, *, status: int = 200, headers: Headers = ()) -> Response:
        """The sign-in form, in place of whatever page was asked for, to which it leads."""
        if "next" in form:
            wanted = form.raw("next")
        elif request.url.path.startswith(SIGN_IN_PATH):
            wanted = request.query_params.get("next", ROOT)
        else:
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        on = our_path(wanted) if request.method == "GET" or "next" in form else ROOT
        return self.plain_page(request, "sign_in.html", {"form": form, "next": on}, status=status, headers=headers)

    def plain_page(
        self, request: Request, template: str, context: Mapping[str, Any], *, status: int = 200, headers: Headers = ()
    ) -> Response:
        """A page for somebody who is not signed in, or half-way; its forms go with a cookie of the browser."""
        browser = self._read(request, _VISITOR) or secrets.random_token()
        notice = self._notice(request, "")
        page: dict[str, Any] = {
            "service": self.settings.title,
            "visit": None,
            "form": Form(),
            "notice": notice,
            "form_token": form_token(self.settings.secret_key, f"visitor|{browser}"),
            **context,
        }
        response = rendered(template, page, status=status, headers=headers)
        self._set(response, _VISITOR, browser, None)
        if notice is not None:
            response.delete_cookie(**self._cookie(_NOTICE))
        return response

    async def plain_form(self, request: Request) -> Form:
        """The form of a plain page. Raises PermissionDenied if it comes from elsewhere."""
        browser = self._read(request, _VISITOR)
        page = f"visitor|{browser}" if browser else ""
        if not page:
            raise PermissionDenied(
                "Signing in needs cookies; allow them for this site, open the page again and repeat."
            )
        fields = await own_fields(request, self.settings.secret_key, page, public_url=self.settings.public_url)
        return Form(fields)

    async def demand_own_form(self, request: Request) -> None:
        """Raises PermissionDenied if a form of the signed-in comes from elsewhere."""
        token = self._token(request)
        await own_fields(request, self.settings.secret_key, token, public_url=self.settings.public_url)

    def go_to(
        self,
        path: str,
        *,
        notice: Notice | None = None,
        read_in: str = "",
        session_token: str | None = None,
        signs_out: bool = False,
    ) -> Response:
        """A redirect to a path of ours; the notice opens in one session, or, by default, for who is not signed in."""
        response = RedirectResponse(path, status_code=303, headers=PAGE_HEADERS)
        if notice is not None:
            plain = msgspec.json.encode(notice).decode()
            sealed = secrets.seal(self.settings.secret_key, plain, bound_to=_binding(read_in))
            self._set(response, _NOTICE, sealed.hex(), _NOTICE_SECONDS)
        if session_token is not None:
            self._set(response, _SESSION, session_token, round(sign_in.SESSION_LIFETIME / timedelta(seconds=1)))
        if signs_out:
            response.delete_cookie(**self._cookie(_SESSION))
        return response

    # Cookies

    def _token(self, request: Request) -> str:
        return self._read(request, _SESSION)

    def _notice(self, request: Request, read_in: str) -> Notice | None:
        text = self._read(request, _NOTICE)
        try:
            sealed = bytes.fromhex(text)
            plain = secrets.opened(self.settings.secret_key, sealed, bound_to=_binding(read_in))
            return None if plain is None else msgspec.json.decode(plain, type=Notice)
        except ValueError:
            return None

    def _read(self, request: Request, name: str) -> str:
        return request.cookies.get(self._cookie_name(name), "")

    def _set(self, response: Response, name: str, value: str, max_age: int | None) -> None:
        response.set_cookie(value=value, max_age=max_age, **self._cookie(name))

    def _cookie_name(self, name: str) -> str:
        return f"__Host-{name}" if self._is_https else name

    def _cookie(self, name: str) -> dict[str, Any]:
        """A cookie for this host alone, that no script reads and no other site's form brings along."""
        return {
            "key": self._cookie_name(name),
            "path": "/",
            "secure": self._is_https,
            "httponly": True,
            "samesite": "lax",
        }


def _lacks_second_step(route: Route, visit: Visit) -> bool:
    return visit.livemode and not visit.session.has_second_step and not route.is_before_second_step


def _demand_admission(route: Route, visit: Visit) -> None:
    """Raises PermissionDenied unless the person may open the route, in the way in which they are signed in."""
    if _lacks_second_step(route, visit):
        raise PermissionDenied("Live pages need the second step; sign in with a code first.")
    if not visit.may(route.permission):
        role = visit.role.value.replace("_", "-")
        raise PermissionDenied(f"Your role here is {role}, which may not {route.permission.value}.")


def _binding(session_token: str) -> str:
    """What a notice is sealed with: a cookie that outlives its session, in a browser or a copy of it, opens nowhere."""
    return f"notice|{session_token}"


def _endpoint(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A function, which Starlette needs to call it with the request."""

    async def endpoint(request: Request) -> Response:
        return await answer(request)

    return endpoint
