"""What an endpoint of the API is: a method, a path, the permission it needs, and the function that answers."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from zembil.accounts.model import Account, Principal
from zembil.accounts.permissions import Permission
from zembil.errors import MethodNotAllowed, ResourceNotFound
from zembil.web.idempotency import IdempotencyKey
from zembil.web.responses import Answer


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request, as an endpoint sees it."""

    principal: Principal
    path_values: tuple[str, ...]  # what stands in the places of {…} in the path
    query_string: bytes
    body: bytes
    at: datetime  # the database's time; `account_at` is the account's
    key: IdempotencyKey | None = None

    @property
    def account(self) -> Account:
        return self.principal.account

    @property
    def account_at(self) -> datetime:
        return self.principal.account.now(self.at)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str  # below the base address: /payments/{payment_id}
    permission: Permission
    answer: Callable[[Call], Awaitable[Answer]]
    sandbox_only: bool = False


class Routes:
    """Finds the route of a request, or says why there is none."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._plain: dict[str, dict[str, Route]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            if "{" in route.path:
                self._patterns.setdefault(tuple(route.path.split("/")), {})[route.method] = route
            else:
                self._plain.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str, *, livemode: bool) -> tuple[Route, tuple[str, ...]]:
        """Raises ResourceNotFound or MethodNotAllowed. HEAD is answered as GET."""
        methods, values = self._at(path)
        if livemode:
            methods = {name: route for name, route in methods.items() if not route.sandbox_only}
        if not methods:
            raise ResourceNotFound("There is nothing at this path; see the API reference for the paths there are.")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise MethodNotAllowed(", ".join(sorted({*methods, *({"HEAD"} if "GET" in methods else ())})))
        return route, values

    def _at(self, path: str) -> tuple[dict[str, Route], tuple[str, ...]]:
        if methods := self._plain.get(path):
            return methods, ()
        parts = path.split("/")
        for pattern, methods in self._patterns.items():
            if len(pattern) == len(parts) and all(p == q or p[:1] == "{" for p, q in zip(pattern, parts, strict=True)):
                return methods, tuple(q for p, q in zip(pattern, parts, strict=True) if p[:1] == "{")
        return {}, ()
