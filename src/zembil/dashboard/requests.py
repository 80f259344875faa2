"""The request log: what was asked of the API, found by request id, idempotency key, path or outcome."""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from urllib.parse import quote

import msgspec
from msgspec import Struct

from zembil import ids
from zembil.accounts.queries import find_api_key
from zembil.dashboard.forms import Choice
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, page
from zembil.db.pool import reading
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.web import request_queries
from zembil.web.cursors import taken_page
from zembil.web.redaction import API_KEY, KEPT_CHARACTERS_MAX, MARKS, NO_JSON, REMOVED, is_whole, redacted_key
from zembil.web.request_queries import LoggedRequest

PATH = "/requests"
_WITH_ONE_KEY_MAX = 100
_PAGES = {Prefix.PAYMENT: "/payments", Prefix.REFUND: "/refunds", Prefix.CUSTOMER: "/customers"}


class _Fault(Struct):
    field: str


class _Error(Struct):
    code: str
    details: list[_Fault] = []


class _Refusal(Struct):
    """An answer that was no success, as the log keeps it."""

    error: _Error


class _Outcome(StrEnum):
    REFUSED = "refused"


class _Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PATCH = "PATCH"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class RequestLogPages:
    door: Doorkeeper

    def routes(self) -> list[Route]:
        return [page(PATH, self.list), page(f"{PATH}/{{id}}", self.show)]

    async def list(self, visit: Visit) -> Answer:
        if search := visit.value("search").strip():
            return await self._found(visit, search)
        parameters = visit.parameters
        outcome = parameters.take("outcome", _one_of(_Outcome), "Choose one of the outcomes.")
        method = parameters.take("method", _one_of(_Method), "Choose one of the methods.")
        path = parameters.take("path", str, "Give how the path begins.")
        asked = taken_page(
            parameters, "requests", {"outcome": outcome, "method": method, "path": path}, has_offset=False
        )
        parameters.finish()
        async with reading(self.door.db) as conn:
            requests = await request_queries.list_requests(
                conn,
                visit.account.id,
                refused=outcome is _Outcome.REFUSED,
                method=method,
                path=path,
                before=asked.last,
                limit=asked.limit,
            )
        return self._listed(visit, requests, asked.next_cursor([request.id for request in requests]))

    async def _found(self, visit: Visit, search: str) -> Answer:
        """A request id leads to its request, everything else is taken for an idempotency key or an object's id."""
        if ids.parsed_request_id(search) is not None:
            return GoTo(f"{PATH}/{search}")
        async with reading(self.door.db) as conn:
            requests = await request_queries.list_requests_with_key(
                conn, visit.account.id, redacted_key(search), limit=_WITH_ONE_KEY_MAX
            ) or await request_queries.list_requests_about(conn, visit.account.id, search, limit=_WITH_ONE_KEY_MAX)
        return self._listed(visit, requests, None)

    def _listed(self, visit: Visit, requests: Sequence[LoggedRequest], next_cursor: str | None) -> Page:
        context = {
            "requests": [(ids.shown_request_id(request.id), request, _why(request)) for request in requests],
            "created_at": _created_at,
            "next_cursor": next_cursor,
            "days": self.door.settings.request_log_days,
            "methods": [(method.value, method.value) for method in _Method],
            "base_url": self.door.settings.base_url(livemode=visit.livemode),
        }
        return Page("requests.html", context)

    async def show(self, visit: Visit) -> Answer:
        request_id = ids.parsed_request_id(visit.value("id"))
        if request_id is None:
            raise ResourceNotFound
        async with reading(self.door.db) as conn:
            request = await request_queries.find_request(conn, visit.account.id, request_id)
            key = await find_api_key(conn, visit.account.id, request.key_id) if request else None
        if request is None:
            days = self.door.settings.request_log_days
            text = f"There is no request {visit.value('id')} in this environment; requests are kept for {days} days."
            return GoTo(PATH, Notice(text, is_bad=True))
        context = {
            "request": request,
            "request_id": visit.value("id"),
            "at": _created_at(request),
            "object_path": _path_of(request.object_id or ""),
            "key_name": key.name if key else ids.shown(Prefix.KEY, request.key_id),
            "body": _indented(request.request_body),
            "refusal": _indented(request.refusal),
            "has_whole_key": is_whole(request.idempotency_key or ""),
            "command": _command(request, self.door.settings.public_url),
            "remarks": list(_remarks(request)),
        }
        return Page("request.html", context)


def _created_at(request: LoggedRequest) -> datetime:
    return ids.created_at(request.id)


def _path_of(object_id: str) -> str | None:
    """Where the page of what a request made or changed is, if there is one."""
    found = (path for prefix, path in _PAGES.items() if ids.parsed(prefix, object_id) is not None)
    return next((f"{path}/{object_id}" for path in found), None)


def _why(request: LoggedRequest) -> str | None:
    """The code of the error that was answered, and its first faulty field."""
    try:
        error = msgspec.json.decode(request.refusal or "", type=_Refusal).error
    except msgspec.MsgspecError:
        return None
    return f"{error.code}: {error.details[0].field}" if error.details else error.code


def _indented(text: str | None) -> str | None:
    """JSON as people read it; what is no JSON, or was cut off, as it is."""
    try:
        return None if text is None else json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _command(request: LoggedRequest, origin: str) -> str:
    """The request for a POSIX shell, as far as it was kept; the key is whoever's runs it."""
    query = "?" + _quoted(request.query, safe="%&=+:") if request.query else ""
    address = origin + _quoted(request.path) + query
    method = "--head" if request.method == "HEAD" else f"-X {shlex.quote(request.method)}"
    as_it_is = " --path-as-is" if "/." in request.path else ""
    # curl takes brackets of an address for a pattern; only those of our marks stand there as they are.
    literally = " --globoff" if "[" in address else ""
    lines = [f"curl {method}{as_it_is}{literally} {shlex.quote(address)}", '-H "Authorization: Bearer $KEY"']
    if request.request_body and request.method != "HEAD":  # with which curl sends none
        lines += ["-H 'Content-Type: application/json'", f"--data-raw {shlex.quote(request.request_body)}"]
    return " \\\n  ".join(lines)


def _quoted(text: str, *, safe: str = "/") -> str:
    """A part of an address, in which what was removed stands as it does in the log."""
    text = quote(text, safe=safe + "*")
    for mark in (REMOVED, API_KEY):
        text = text.replace(quote(mark), mark)
    return text


def _remarks(request: LoggedRequest) -> Iterator[str]:
    """What whoever copies the command has to know of it."""
    if request.idempotency_key is not None:
        yield "The Idempotency-Key is left out: with it the repeat would be answered from the first request."
    body = request.request_body or ""
    kept = f"{request.path}{request.query}{body}"
    if signs := [sign for sign in MARKS if sign in kept]:
        yield f"What is personal or secret was not kept: put it back where {' or '.join(signs)} stands."
    if body.endswith(NO_JSON):
        yield "The body was no JSON, and is not kept."
    elif len(body) == KEPT_CHARACTERS_MAX:
        yield f"The body was longer; its first {KEPT_CHARACTERS_MAX:,} characters were kept."


def _one_of(kinds: type[Choice]) -> Callable[[str], Choice | None]:
    return lambda text: next((kind for kind in kinds if kind.value == text), None)
