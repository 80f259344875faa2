"""Developers → Inbox: a receiver of ours for a sandbox's webhooks, which says why a signature differs."""

import asyncio
import hmac
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route as HttpRoute

from zembil import ids
from zembil.accounts import secrets
from zembil.accounts.permissions import Permission
from zembil.dashboard import inbox_queries
from zembil.dashboard.inbox_queries import InboxRequest
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.web.rate_limits import RecentCounts, address_group, client_address
from zembil.webhooks import diagnosis, endpoint_queries, operations, signature
from zembil.webhooks.diagnosis import Verdict
from zembil.webhooks.model import EVERY_TYPE, Endpoint

PATH, RECEIVER_PATH = "/inbox", "/inbox"
KEPT, BODY_BYTES_MAX = 100, 64 * 1024
_BODY_SECONDS_MAX = 10
_SIGNATURE_MAX = 500
_TYPE = re.compile(rb'"type":\s*"([a-z]+\.[a-z]+)"')
_NOT_KEPT = frozenset({"authorization", "cookie"})
# In a minute, of what no endpoint of the account has signed: enough for trying things out by hand, and so little that
# it takes more than three minutes to push everything else out of an inbox.
_OF_AN_ADDRESS_MAX, _OF_STRANGERS_MAX = 20, 30
_SIGNATURES_MAX = 2  # while a secret is being rotated
_STANDARD_HEADER = "webhook-signature"
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNED_WITHIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class InboxPages:
    door: Doorkeeper
    by_address: RecentCounts = field(default_factory=lambda: RecentCounts(_OF_AN_ADDRESS_MAX))
    by_inbox: RecentCounts = field(default_factory=lambda: RecentCounts(_OF_STRANGERS_MAX))

    def routes(self) -> list[Route]:
        sandbox = ("sandbox",)
        return [
            page(PATH, self.list, environments=sandbox),
            action(f"{PATH}/endpoint", self.register, Permission.MANAGE_WEBHOOKS, environments=sandbox),
            action(f"{PATH}/clear", self.clear, Permission.USE_SANDBOX_TOOLS, environments=sandbox),
            page(f"{PATH}/requests/{{id}}", self.show, environments=sandbox),
            action(f"{PATH}/requests/{{id}}", self.compare, Permission.VIEW, environments=sandbox),
        ]

    def receiver(self) -> HttpRoute:
        """Where the events arrive: no page, and open to whoever knows the token."""
        return HttpRoute(f"{RECEIVER_PATH}/{{token}}", self.receive, methods=["POST"])

    async def receive(self, request: Request) -> Response:
        """Keep a request and answer 200, as a receiver should: at once."""
        token = request.path_params["token"].replace("\0", "�")
        async with reading(self.door.db) as conn:
            account_id = await inbox_queries.find_inbox(conn, token)
        if account_id is None:
            return PlainTextResponse("There is no inbox at this address.\n", 404)
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS_MAX):
                async for part in request.stream():
                    body += part
                    if len(body) > BODY_BYTES_MAX:
                        return PlainTextResponse(f"At most {BODY_BYTES_MAX} bytes are kept.\n", 413)
        except TimeoutError:
            return PlainTextResponse("The body took too long.\n", 408)
        if not await self._is_ours(request, bytes(body), account_id) and (seconds := self._count(request, account_id)):
            return PlainTextResponse(
                f"Too much came that no endpoint of this account has signed; go on in {seconds} s.\n",
                429,
                {"Retry-After": str(seconds)},
            )
        headers = [(name, value.replace("\0", "")) for name, value in request.headers.items() if name not in _NOT_KEPT]
        kept = InboxRequest(ids.new_id(self.door.clock.now()), headers, bytes(body))
        async with transaction(self.door.db) as conn:
            await inbox_queries.insert_request(conn, account_id, kept, kept=KEPT)
        return PlainTextResponse("Kept.\n")

    def _count(self, request: Request, account_id: int) -> int:
        """How many seconds a stranger has to wait; 0: not at all."""
        address = client_address(request.scope, self.door.settings.trusted_proxies)
        of = f"{account_id} {address_group(address)}"
        return self.by_address.count(of) or self.by_inbox.count(str(account_id))

    async def _is_ours(self, request: Request, body: bytes, account_id: int) -> bool:
        """Whether an endpoint of the account has signed it just now: then it is a delivery, of which there may be many.

        The contract's signature says nothing of the time, so whoever has seen one could send it for ever. Nobody is
        refused before that is known: our own deliveries may come from the address of whoever tries things out.
        """
        event_id, timestamp = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        given = request.headers.get("webhook-signature", "").encode("utf-8", "replace").split()
        if not given or not _TIMESTAMP.fullmatch(timestamp):
            return False
        if abs(self.door.clock.now().timestamp() - int(timestamp)) > _SIGNED_WITHIN.total_seconds():
            return False
        opened = await self._opened(account_id)

        def is_one_of_them() -> bool:
            return any(
                hmac.compare_digest(one, made.encode())
                for _, secret in opened
                for made in [signature.standard_signature(secret, body, event_id=event_id, timestamp=int(timestamp))]
                for one in given[:_SIGNATURES_MAX]
            )

        return await asyncio.to_thread(is_one_of_them)  # a body of 64 KiB, by as many secrets as there may be

    async def list(self, visit: Visit) -> Answer:
        address = await self._address(visit)
        async with reading(self.door.db) as conn:
            requests = await inbox_queries.list_requests(conn, visit.account.id)
        known = await self._secrets(visit, address)
        context = {
            "address": address,
            "endpoint": known.endpoint_at(address),
            "moved_from": None if known.endpoint_at(address) or not known.own else _origin(known.own[0][0].url),
            "kept": KEPT,
            "requests": await asyncio.to_thread(self._rows, requests, known),
        }
        return Page("inbox.html", context)

    def _rows(
        self, requests: Sequence[InboxRequest], known: "_Secrets"
    ) -> Sequence[tuple[str, InboxRequest, str, bool | None]]:
        """The requests with whether their signature is right; None if none came, or nothing is known to judge it by."""
        return [(str(request.id), request, _kind(request), self._is_right(request, known)) for request in requests]

    def _is_right(self, request: InboxRequest, known: "_Secrets") -> bool | None:
        """Whether every signature that came is right, of the two that there may be."""
        own = [secret for _, secret in known.own]
        came = [name for name in (self._signature_header, _STANDARD_HEADER) if request.header(name)]
        return all(_is_right(name, request, own) for name in came) if came and known.own + known.others else None

    async def register(self, visit: Visit) -> Answer:
        """Let every event come here; an endpoint that leads to where this inbox was before is moved."""
        address = await self._address(visit)
        known = await self._secrets(visit, address)
        if known.own:
            return await self._move(visit, known.endpoint_at(address) or known.own[0][0], address)
        async with transaction(self.door.db) as conn:
            endpoint, secret = await operations.register_endpoint(
                conn,
                visit.principal,
                url=address,
                events=(EVERY_TYPE,),
                description="The inbox",
                secret_key=self.door.settings.secret_key,
                endpoints_max=self.door.settings.endpoints_max,
                at=visit.at,
            )
        text = f"Every event comes here from now on, by the endpoint {ids.shown(Prefix.ENDPOINT, endpoint.id)}."
        return GoTo(PATH, Notice(text, secret_name="Signing secret", secret=secret))  # noqa: S106

    async def _move(self, visit: Visit, endpoint: Endpoint, address: str) -> Answer:
        change = operations.EndpointChange(url=address)
        async with transaction(self.door.db) as conn:
            await operations.change_endpoint(conn, visit.principal, endpoint.id, change, at=visit.at)
        shown = ids.shown(Prefix.ENDPOINT, endpoint.id)
        return GoTo(PATH, Notice(f"The endpoint {shown} sends here. Its secret is the one that it had."))

    async def clear(self, visit: Visit) -> Answer:
        async with transaction(self.door.db) as conn:
            await inbox_queries.delete_requests(conn, visit.account.id)
        return GoTo(PATH, Notice("The inbox is empty."))

    async def show(self, visit: Visit) -> Answer:
        return await self._page(visit, None)

    async def compare(self, visit: Visit) -> Answer:
        """Say what it is that somebody's code computes for this request."""
        return await self._page(visit, visit.form.raw("signature").strip()[:_SIGNATURE_MAX])

    async def _page(self, visit: Visit, computed: str | None) -> Page:
        request = await self._request(visit)
        known = await self._secrets(visit, await self._address(visit))
        context = {
            "request": request,
            "kind": _kind(request),
            "body": request.body.decode("utf-8", "replace").replace("\0", "�"),
            "indented": _indented(request.body),
            "signatures": [
                (name, request.header(name), await self._verdict(name, request, known), _expected(name, request, known))
                for name in (self._signature_header, _STANDARD_HEADER)
            ],
            "computed": computed,
            "verdict_of_computed": await asyncio.to_thread(_judged, computed, request, known) if computed else None,
        }
        return Page("inbox_request.html", context)

    @property
    def _signature_header(self) -> str:
        return f"{self.door.settings.service_name}-signature"

    async def _verdict(self, name: str, request: InboxRequest, known: "_Secrets") -> Verdict | None:
        """Of the signature that came in this header; None if none came, or nothing is known to judge it by."""
        received = request.header(name)
        if not received or not (known.own or known.others):
            return None
        # In a thread: trying all that may be wrong takes a while.
        verdict = await asyncio.to_thread(_judged, received, request, known)
        if verdict.is_right and not _is_right(name, request, [secret for _, secret in known.own]):
            return Verdict(False, "It is what the other header should hold.")
        return verdict

    async def _address(self, visit: Visit) -> str:
        async with transaction(self.door.db) as conn:
            token = await inbox_queries.find_or_make_token(conn, visit.account.id, secrets.random_token())
        return f"{self.door.settings.public_url}{RECEIVER_PATH}/{token}"

    async def _secrets(self, visit: Visit, address: str) -> "_Secrets":
        """What the account's endpoints sign with: those that lead here, and the others."""
        opened = await self._opened(visit.account.id)
        path = urlsplit(address).path  # at whatever origin: a restart on another port makes them no strangers
        own = [pair for pair in opened if urlsplit(pair[0].url).path == path]
        return _Secrets(own, [pair for pair in opened if pair not in own])

    async def _opened(self, account_id: int) -> Sequence[tuple[Endpoint, str]]:
        """The account's endpoints, each with every secret that it signs with."""
        async with reading(self.door.db) as conn:
            endpoints, _ = await endpoint_queries.list_endpoints(
                conn, account_id, before=None, limit=self.door.settings.endpoints_max, offset=0
            )
        return await asyncio.to_thread(self._unsealed, account_id, endpoints)

    def _unsealed(self, account_id: int, endpoints: Sequence[Endpoint]) -> Sequence[tuple[Endpoint, str]]:
        return [
            (endpoint, secret)
            for endpoint in endpoints
            for sealed in (endpoint.sealed_secret, endpoint.sealed_next_secret)
            if sealed is not None
            and (
                secret := secrets.opened(
                    self.door.settings.secret_key, sealed, bound_to=operations.secret_binding(account_id, endpoint.id)
                )
            )
            is not None
        ]

    async def _request(self, visit: Visit) -> InboxRequest:
        try:
            request_id = uuid.UUID(visit.value("id"))
        except ValueError:
            raise ResourceNotFound from None
        async with reading(self.door.db) as conn:
            request = await inbox_queries.find_request(conn, visit.account.id, request_id)
        if request is None:
            raise ResourceNotFound
        return request


@dataclass(frozen=True, slots=True)
class _Secrets:
    own: list[tuple[Endpoint, str]]  # of the endpoints that lead here
    others: list[tuple[Endpoint, str]]

    def endpoint_at(self, address: str) -> Endpoint | None:
        return next((endpoint for endpoint, _ in self.own if endpoint.url == address), None)


def _is_right(name: str, request: InboxRequest, own: list[str]) -> bool:
    """Whether the signature in a header is the one that belongs there."""
    if name != _STANDARD_HEADER:
        return diagnosis.is_right(request.header(name), request.body, own)
    return diagnosis.is_standard_right(
        request.header(name),
        request.body,
        own,
        event_id=request.header("webhook-id"),
        timestamp=request.header("webhook-timestamp"),
    )


def _expected(name: str, request: InboxRequest, known: _Secrets) -> list[tuple[str, str]]:
    """What the secret of each endpoint that leads here gives for a header, beside the name of the endpoint."""
    if name != _STANDARD_HEADER:
        return [(_named(endpoint), f"v1={diagnosis.digest(secret, request.body)}") for endpoint, secret in known.own]
    event_id, timestamp = request.header("webhook-id"), request.header("webhook-timestamp")
    if not event_id or not timestamp:
        return []
    return [
        (
            _named(endpoint),
            f"v1,{diagnosis.standard_digest(secret, request.body, event_id=event_id, timestamp=timestamp)}",
        )
        for endpoint, secret in known.own
    ]


def _judged(given: str, request: InboxRequest, known: _Secrets) -> Verdict:
    return diagnosis.judged(
        given,
        request.body,
        secrets=[secret for _, secret in known.own],
        other_secrets=[(_named(endpoint), secret) for endpoint, secret in known.others],
        event_id=request.header("webhook-id"),
        timestamp=request.header("webhook-timestamp"),
    )


def _named(endpoint: Endpoint) -> str:
    return endpoint.description or endpoint.url


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _indented(body: bytes) -> str | None:
    """The body for reading, its numbers as they came; None if it is no JSON, or too deep to be one of ours."""
    try:
        return msgspec.json.format(body, indent=2).decode() if diagnosis.is_shallow(json.loads(body)) else None
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None  # Python reads more than JSON: NaN, UTF-16


def _kind(request: InboxRequest) -> str:
    """The type of the event that came, as far as the body says."""
    found = _TYPE.search(request.body, 0, 200)
    return found[1].decode("ascii") if found else "A request"
