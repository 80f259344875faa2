"""SQL for the inbox: what came, kept for looking at."""

import uuid
from dataclasses import dataclass
from datetime import datetime

import msgspec

from zembil import ids
from zembil.db.pool import Connection, Record


@dataclass(frozen=True, slots=True)
class InboxRequest:
    """A request as it came."""

    id: uuid.UUID
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def at(self) -> datetime:
        return ids.created_at(self.id)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


async def find_or_make_token(conn: Connection, account_id: int, token: str) -> str:
    """The token of the account's inbox, which is this one if it had none."""
    await conn.execute(
        "INSERT INTO inboxes (account_id, token) VALUES ($1, $2) ON CONFLICT (account_id) DO NOTHING",
        account_id,
        token,
    )
    found: str = await conn.fetchval("SELECT token FROM inboxes WHERE account_id = $1", account_id)
    return found


async def find_inbox(conn: Connection, token: str) -> int | None:
    """The account of the inbox with this token."""
    account_id: int | None = await conn.fetchval("SELECT account_id FROM inboxes WHERE token = $1", token)
    return account_id


async def insert_request(conn: Connection, account_id: int, request: InboxRequest, *, kept: int) -> None:
    """Keep a request, and of those before only the last."""
    await conn.execute(
        "INSERT INTO inbox_requests (account_id, id, headers, body) VALUES ($1, $2, $3, $4)",
        account_id,
        request.id,
        msgspec.json.encode(request.headers).decode(),
        request.body,
    )
    await conn.execute(
        """
        DELETE FROM inbox_requests WHERE account_id = $1 AND id <= (
            SELECT id FROM inbox_requests WHERE account_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1
        )
        """,
        account_id,
        kept,
    )


async def list_requests(conn: Connection, account_id: int) -> list[InboxRequest]:
    """Newest first."""
    rows = await conn.fetch(
        "SELECT id, headers, body FROM inbox_requests WHERE account_id = $1 ORDER BY id DESC", account_id
    )
    return [_request(row) for row in rows]


async def find_request(conn: Connection, account_id: int, request_id: uuid.UUID) -> InboxRequest | None:
    row = await conn.fetchrow(
        "SELECT id, headers, body FROM inbox_requests WHERE account_id = $1 AND id = $2", account_id, request_id
    )
    return None if row is None else _request(row)


async def delete_requests(conn: Connection, account_id: int) -> None:
    await conn.execute("DELETE FROM inbox_requests WHERE account_id = $1", account_id)


def _request(row: Record) -> InboxRequest:
    return InboxRequest(row["id"], msgspec.json.decode(row["headers"], type=list[tuple[str, str]]), row["body"])
