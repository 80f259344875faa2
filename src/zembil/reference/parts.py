"""What many operations of the reference share: parameters, headers, the error, the tags."""

from zembil.reference.operations import Schema
from zembil.reference.schemas import REF
from zembil.web.idempotency import HEADER
from zembil.web.parameters import LIMIT_DEFAULT, LIMIT_MAX, OFFSET_MAX

TAGS: dict[str, str] = {
    "Payments": "Ask for money, and see whether it came.",
    "Refunds": "Give money back; an admin approves.",
    "Customers": "People whom a merchant remembers.",
    "Webhooks": "URLs that are told of events, and what became of each delivery.",
    "Events": "What happened, for those who would rather ask than be told.",
    "Money": "The balance and the ledger behind it.",
    "Charges": "Charges whose outcome nobody knows yet.",
    "Keys": "API keys, for admins.",
    "Sandbox": "What only a sandbox has: the clock, and decisions that in live customers make.",
}

PARAMETERS: dict[str, Schema] = {
    "limit": {
        "name": "limit",
        "in": "query",
        "description": "How many are listed.",
        "schema": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    },
    "offset": {
        "name": "offset",
        "in": "query",
        # No default is given here: clients that are generated would send it, also together with a cursor.
        "description": "How many are skipped, 0 if it is absent. Not together with `cursor`.",
        "schema": {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    },
    "cursor": {
        "name": "cursor",
        "in": "query",
        "description": "The `next_cursor` of the page before, with the same filters: no row is missed or seen twice.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{32}$"},
    },
    "idempotency_key": {
        "name": HEADER,
        "in": "header",
        "description": "Makes a repeat safe for 24 hours: the same request with the same key does nothing again and is "
        "answered as it was. Take a new one, for example a UUID, for each thing that you want done.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    },
}


def _header(description: str, kind: str = "string") -> Schema:
    return {"description": description, "schema": {"type": kind}}


HEADERS: dict[str, Schema] = {
    "Zembil-Request-Id": _header("Finds this request in the logs."),
    "RateLimit-Policy": _header(
        "The rate limit and its window, as the IETF draft writes them; absent without a limit."
    ),
    "RateLimit": _header("What is left of the rate limit, as the IETF draft writes it; absent without a limit."),
    "X-RateLimit-Limit": _header("How many requests a window admits.", "integer"),
    "X-RateLimit-Remaining": _header("How many requests are left.", "integer"),
    "X-RateLimit-Reset": _header("In how many seconds there are more.", "integer"),
    "Idempotent-Replayed": _header("`true` if this is the answer to an earlier request with the same Idempotency-Key."),
    "Retry-After": _header("In how many seconds a repeat makes sense.", "integer"),
    "WWW-Authenticate": _header("`Bearer`"),
}

_FAULT: Schema = {
    "type": "object",
    "description": "One fault of a request.",
    "properties": {
        "field": {"type": "string", "description": "Dotted (`customer.phone`), or `body`, or a parameter or header."},
        "message": {"type": "string", "description": "What to do."},
    },
    "required": ["field", "message"],
}
SCHEMAS: dict[str, Schema] = {
    "Fault": _FAULT,
    "Error": {
        "type": "object",
        "description": "A refusal.",
        "properties": {
            "status": {"type": "string", "const": "error"},
            "error": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "description": "For programs."},
                    "message": {"type": "string", "description": "For people."},
                    "details": {"type": "array", "items": {"$ref": REF + "Fault"}},
                },
                "required": ["code", "message"],
            },
        },
        "required": ["status", "error"],
    },
}


def delivery_headers(service_name: str) -> list[Schema]:
    """The headers of a delivery that a receiver reads; those of a rotation and of a test are not always there."""
    described = {
        f"{service_name}-signature": "`t=<unix seconds>,v1=<hex HMAC-SHA256 of the body>`, keyed with the secret.",
        f"{service_name}-timestamp": "The same `t`.",
        "webhook-id": "The id of the event (Standard Webhooks).",
        "webhook-timestamp": "Unix seconds of this attempt (Standard Webhooks).",
        "webhook-signature": "`v1,<base64 HMAC-SHA256 of id.timestamp.body>`, several during a rotation.",
    }
    sometimes = {
        f"{service_name}-signature-next": "During a rotation: the signature made with the next secret.",
        f"{service_name}-test": "`true` on a test event.",
    }
    return [
        {"name": name, "in": "header", "required": name in described, "description": text, "schema": {"type": "string"}}
        for name, text in (described | sometimes).items()
    ]
