"""SQL of the log of requests."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from zembil.db.pool import Connection, Record

_COLUMNS = """
    account_id, id, key_id, method, path, query, status, duration_ms, idempotency_key, object_id, request_body, refusal
"""
_ID_MAX = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request of an account's key; its id says when."""

    account_id: int
    id: uuid.UUID
    key_id: uuid.UUID
    method: str
    path: str
    query: str | None
    status: int
    duration_ms: int
    idempotency_key: str | None
    object_id: str | None
    request_body: str | None
    refusal: str | None


async def insert_requests(conn: Connection, requests: Sequence[LoggedRequest]) -> None:
    await conn.execute(
        "INSERT INTO api_requests ("
        + _COLUMNS
        + """
        ) SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::smallint[],
                               $8::integer[], $9::text[], $10::text[], $11::text[], $12::text[])
        ON CONFLICT DO NOTHING
        """,
        [request.account_id for request in requests],
        [request.id for request in requests],
        [request.key_id for request in requests],
        [request.method for request in requests],
        [request.path for request in requests],
        [request.query for request in requests],
        [request.status for request in requests],
        [request.duration_ms for request in requests],
        [request.idempotency_key for request in requests],
        [request.object_id for request in requests],
        [request.request_body for request in requests],
        [request.refusal for request in requests],
    )


async def list_requests(
    conn: Connection,
    account_id: int,
    *,
    refused: bool = False,
    method: str | None = None,
    path: str | None = None,
    before: uuid.UUID | None = None,
    limit: int,
) -> list[LoggedRequest]:
    """Newest first; `path` is how the path begins."""
    rows = await conn.fetch(
        "SELECT"
        + _COLUMNS
        + "FROM api_requests WHERE account_id = $1 AND id < $2"
        + (" AND status >= 400" if refused else "")
        + """
            AND ($3::text IS NULL OR method = $3) AND ($4::text IS NULL OR starts_with(path, $4))
        ORDER BY id DESC LIMIT $5
        """,
        account_id,
        before or _ID_MAX,
        method,
        path,
        limit,
    )
    return [_request(row) for row in rows]


async def find_request(conn: Connection, account_id: int, request_id: uuid.UUID) -> LoggedRequest | None:
    row = await conn.fetchrow(
        "SELECT" + _COLUMNS + "FROM api_requests WHERE account_id = $1 AND id = $2", account_id, request_id
    )
    return None if row is None else _request(row)


async def list_requests_with_key(conn: Connection, account_id: int, key: str, *, limit: int) -> list[LoggedRequest]:
    """Every request that carried this idempotency key, newest first."""
    rows = await conn.fetch(
        "SELECT"
        + _COLUMNS
        + "FROM api_requests WHERE account_id = $1 AND idempotency_key = $2 ORDER BY id DESC LIMIT $3",
        account_id,
        key,
        limit,
    )
    return [_request(row) for row in rows]


async def list_requests_about(conn: Connection, account_id: int, object_id: str, *, limit: int) -> list[LoggedRequest]:
    """The requests that made or changed an object, oldest first."""
    rows = await conn.fetch(
        "SELECT" + _COLUMNS + "FROM api_requests WHERE account_id = $1 AND object_id = $2 ORDER BY id LIMIT $3",
        account_id,
        object_id,
        limit,
    )
    return [_request(row) for row in rows]


def _request(row: Record) -> LoggedRequest:
    return LoggedRequest(
        account_id=row["account_id"],
        id=row["id"],
        key_id=row["key_id"],
        method=row["method"],
        path=row["path"],
        query=row["query"],
        status=row["status"],
        duration_ms=row["duration_ms"],
        idempotency_key=row["idempotency_key"],
        object_id=row["object_id"],
        request_body=row["request_body"],
        refusal=row["refusal"],
    )
