"""SQL for looking through the audit log."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from zembil import ids
from zembil.accounts.model import AuditAction
from zembil.db.pool import Connection

_ID_MAX = uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What somebody looks for; None looks for nothing in particular."""

    action: AuditAction | None = None
    actor: str | None = None  # usr_…, or an operator's name
    object: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry, with its place in the chain once it has one."""

    id: uuid.UUID
    actor_kind: str
    actor: str
    key_id: uuid.UUID | None
    action: str
    object: str
    details: Mapping[str, Any]
    number: int | None

    @property
    def at(self) -> datetime:
        return ids.created_at(self.id)


async def list_entries(
    conn: Connection, account_id: int, wanted: AuditFilter, *, before: uuid.UUID | None, limit: int
) -> list[AuditRow]:
    """Newest first."""
    rows = await conn.fetch(
        """
        SELECT id, actor_kind, actor, key_id, action, object, details, number FROM audit_entries
        WHERE account_id = $1 AND id < $2 AND id >= $3
            AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR actor = $5)
            AND ($6::text IS NULL OR object = $6)
        ORDER BY id DESC LIMIT $7
        """,
        account_id,
        min(before or _ID_MAX, ids.id_at(wanted.until) if wanted.until else _ID_MAX),
        ids.id_at(wanted.since) if wanted.since else uuid.UUID(int=0),
        wanted.action,
        wanted.actor,
        wanted.object,
        limit,
    )
    return [
        AuditRow(
            row["id"],
            row["actor_kind"],
            row["actor"],
            row["key_id"],
            row["action"],
            row["object"],
            msgspec.json.decode(row["details"]),
            row["number"],
        )
        for row in rows
    ]
