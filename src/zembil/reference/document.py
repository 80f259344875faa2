"""The OpenAPI document: every route, what it takes and answers, and the events that webhooks receive."""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from zembil import __version__
from zembil.accounts.model import Role
from zembil.accounts.permissions import Permission, allowed
from zembil.config import Settings
from zembil.ids import Prefix
from zembil.payments.model import ShownPayment
from zembil.reference import resources
from zembil.reference.errors import ERRORS, EVERYWHERE
from zembil.reference.examples import EXAMPLES
from zembil.reference.narrowing import identifier
from zembil.reference.operations import OPERATIONS, Listing, Operation, Query, Schema
from zembil.reference.parts import HEADERS, PARAMETERS, SCHEMAS, TAGS, delivery_headers
from zembil.reference.schemas import REF, components, name_of, ref_to
from zembil.refunds.model import ShownRefund
from zembil.web.routing import Route
from zembil.webhooks.model import EventType

_PATH_VALUE = re.compile(r"\{([a-z_]+)\}")
_PREFIXES = {
    "payment_id": Prefix.PAYMENT, "refund_id": Prefix.REFUND, "customer_id": Prefix.CUSTOMER,
    "webhook_id": Prefix.ENDPOINT, "delivery_id": Prefix.DELIVERY, "event_id": Prefix.EVENT, "key_id": Prefix.KEY,
    "charge_id": Prefix.CHARGE,
}  # fmt: skip
_OBJECTS: dict[str, type[Struct]] = {
    "payment": ShownPayment,
    "refund": ShownRefund,
    "customer": resources.Customer,
}


def document(routes: Iterable[Route], settings: Settings) -> Schema:
    """The reference of these routes. Raises KeyError for a route that nobody has described."""
    paths: dict[str, dict[str, Schema]] = {}
    bodies: list[type[Struct]] = []
    answers: list[type[Struct]] = [
        resources.Event,
        resources.Pagination,
        resources.CursorPagination,
        *_OBJECTS.values(),
    ]
    for route in routes:
        described = OPERATIONS[route.method, route.path]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, described, settings)
        bodies += [described.body] if described.body else []
        answers.append(described.answer.items if isinstance(described.answer, Listing) else described.answer)
    schemas = {**components(dict.fromkeys(bodies), dict.fromkeys(answers), settings), **SCHEMAS}
    schemas["EventData"]["properties"]["object"]["anyOf"] = [ref_to(kind) for kind in _OBJECTS.values()]
    return {
        "openapi": "3.1.1",
        "info": _info(settings),
        "servers": _servers(settings),
        "security": [{"api_key": []}],
        "tags": [{"name": name, "description": sentence} for name, sentence in TAGS.items()],
        "paths": paths,
        "webhooks": {event_type.value: _webhook(event_type, settings) for event_type in EventType},
        "components": {
            "securitySchemes": {
                "api_key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A secret API key: `sk_test_…` in the sandbox, `sk_live_…` in live.",
                }
            },
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "responses": {code: _refusal(status, [code]) for code, (status, _) in ERRORS.items()},
            "schemas": schemas,
        },
    }


def _info(settings: Settings) -> Schema:
    return {
        "title": f"{settings.title} API",
        "version": __version__,
        "summary": "Payments by mobile money.",
        "description": "Every answer is an envelope: `status` and `data`, or `status` and `error` with a `code`. "
        "Clients ignore fields that they do not know; v1 only grows. Repeat a POST or PATCH safely by sending the "
        "same `Idempotency-Key`.",
    }


def _servers(settings: Settings, *, sandbox_only: bool = False) -> list[Schema]:
    sandbox = {"url": settings.base_url(livemode=False), "description": "Sandbox: no real money moves."}
    live = {"url": settings.base_url(livemode=True), "description": "Live"}
    return [sandbox] if sandbox_only else [sandbox, live]


def _operation(route: Route, described: Operation, settings: Settings) -> Schema:
    operation: Schema = {
        "operationId": described.id,
        "tags": [described.tag],
        "summary": described.summary,
        "description": " ".join(filter(None, [described.description, _who_may(route.permission, route.sandbox_only)])),
        "parameters": list(_parameters(route, described)),
        "responses": {str(described.status): _success(route, described), **_refusals(route, described)},
    }
    if described.body:
        operation["requestBody"] = {
            "required": route.method == "PATCH" or described.needs_a_body,
            "content": {"application/json": {"schema": ref_to(described.body), "example": EXAMPLES[described.body]}},
        }
    if route.sandbox_only:
        operation["servers"] = _servers(settings, sandbox_only=True)
    return operation


def _who_may(permission: Permission, sandbox_only: bool) -> str:
    sandbox, live = (
        [role.value for role in Role if allowed(role, permission, livemode=livemode)] for livemode in (False, True)
    )
    if sandbox_only:
        return f"Only in the sandbox. Roles: {', '.join(sandbox)}."
    if sandbox == live:
        return f"Roles: {', '.join(sandbox)}."
    return f"Roles: {', '.join(sandbox)} in the sandbox; {', '.join(live)} in live."


def _parameters(route: Route, described: Operation) -> Iterator[Schema]:
    for name in _PATH_VALUE.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": identifier(_PREFIXES[name])}
    for query in described.query:
        yield _query(query)
    if isinstance(described.answer, Listing):
        for name in ("limit", "offset", "cursor") if described.answer.has_offset else ("limit", "cursor"):
            yield {"$ref": f"#/components/parameters/{name}"}
    if route.method in ("POST", "PATCH"):
        yield {"$ref": "#/components/parameters/idempotency_key"}


def _query(query: Query) -> Schema:
    shown: Schema = {"name": query.name, "in": "query", "description": query.description, "schema": query.schema}
    return shown | ({"style": "deepObject", "explode": True} if query.schema.get("type") == "object" else {})


def _success(route: Route, described: Operation) -> Schema:
    headers = ["Zembil-Request-Id", "RateLimit-Policy", "RateLimit"]
    headers += ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
    if route.method in ("POST", "PATCH"):
        headers.append("Idempotent-Replayed")
    success: Schema = {
        "description": described.summary,
        "headers": _headers(headers),
        "content": {"application/json": {"schema": _envelope(_data(described))}},
    }
    links = {
        operation_id: link for name, where in described.yields.items() for operation_id, link in _links(name, where)
    }
    return success | ({"links": links} if links else {})


def _links(name: str, where: str) -> Iterator[tuple[str, Schema]]:
    """The operations that can be asked next, with an id that this answer gives."""
    value = f"$response.body#/data{where}"
    for (_, path), described in OPERATIONS.items():
        if f"{{{name}}}" in path:
            yield described.id, {"operationId": described.id, "parameters": {name: value}}
        elif described.body and name in described.body.__struct_fields__:
            yield described.id, {"operationId": described.id, "requestBody": {name: value}}


def _headers(names: Iterable[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _envelope(data: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"status": {"type": "string", "const": "success"}, "data": data},
        "required": ["status", "data"],
    }


def _data(described: Operation) -> Schema:
    answer = described.answer
    if not isinstance(answer, Listing):
        return ref_to(answer)
    pagination = resources.Pagination if answer.has_offset else resources.CursorPagination
    return {
        "type": "object",
        "properties": {
            answer.name: {"type": "array", "items": ref_to(answer.items), "maxItems": 100},
            "pagination": ref_to(pagination),
        },
        "required": [answer.name, "pagination"],
    }


def _refusals(route: Route, described: Operation) -> dict[str, Schema]:
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys([*_codes(route, described)]):
        by_status.setdefault(ERRORS[code][0], []).append(code)
    return {str(status): _shared_refusal(status, by_status[status]) for status in sorted(by_status)}


def _shared_refusal(status: int, codes: list[str]) -> Schema:
    """What is refused for one reason alone is the same for every operation."""
    return _refusal(status, codes) if len(codes) > 1 else {"$ref": f"#/components/responses/{codes[0]}"}


def _codes(route: Route, described: Operation) -> Iterator[str]:
    yield from EVERYWHERE
    yield from described.errors
    if "{" in route.path or route.sandbox_only:
        yield "resource_not_found"
    if route.method in ("POST", "PATCH"):
        yield from ("validation_error", "idempotency_in_progress", "idempotency_key_reused")
        yield from ("payload_too_large", "unsupported_media_type")
    elif isinstance(described.answer, Listing):
        yield "validation_error"


def _refusal(status: int, codes: list[str]) -> Schema:
    more = {401: ["WWW-Authenticate"], 409: ["Retry-After"], 429: ["Retry-After"], 503: ["Retry-After"]}
    of_these = {"properties": {"error": {"properties": {"code": {"enum": codes}}}}}
    return {
        "description": "\n".join(f"- `{code}`: {ERRORS[code][1]}" for code in codes),
        "headers": _headers(["Zembil-Request-Id", *more.get(status, [])]),
        "content": {"application/json": {"schema": {"allOf": [{"$ref": REF + "Error"}, of_these]}}},
    }


def _webhook(event_type: EventType, settings: Settings) -> Schema:
    kind = _OBJECTS[event_type.value.partition(".")[0]]
    of_this = {
        "properties": {
            "type": {"const": event_type.value},
            "data": {"properties": {"object": ref_to(kind)}},
        }
    }
    return {
        "post": {
            "operationId": "receive_" + event_type.value.replace(".", "_"),
            "tags": ["Events"],
            "summary": event_type.value,
            "description": f"Sent to webhooks that listen for `{event_type.value}`. Events may come twice and out of "
            f"order: `id` tells them apart, `sequence` orders those of one {name_of(kind)}.",
            "security": [],
            "parameters": delivery_headers(settings.service_name),
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"allOf": [ref_to(resources.Event), of_this]}}},
            },
            "responses": {
                "200": {"description": "Received. Any other status, or none within 10 seconds, is retried twice."}
            },
        }
    }
