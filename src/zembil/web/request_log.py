"""The log of requests that merchants search: by request id, idempotency key, path or status, for thirty days.

It is a convenience beside the request's way, never in it: rows wait for up to a second and are written together, a
crash loses that second, and a database that is away loses what does not fit the queue. Payments depend on none of it.
"""

import asyncio
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import Scope

from zembil import ids
from zembil.accounts.model import Principal
from zembil.db.pool import Database, reading
from zembil.errors import ServiceUnavailable
from zembil.telemetry import log
from zembil.web import request_queries
from zembil.web.redaction import redacted_body, redacted_key, redacted_query, redacted_text
from zembil.web.request_queries import LoggedRequest
from zembil.web.responses import Answer

_WAIT_SECONDS_MAX = 1.0
_ROWS_MAX = 100  # few enough that writing them holds up nobody's answer
_QUEUE_MAX = 20_000
# The id stands at the beginning of what our answers say of an object.
_OBJECT_ID = re.compile(rb'"id":"([a-z]{3}_[0-9a-z]{26})"')
_OBJECT_ID_WITHIN_BYTES = 200


@dataclass(frozen=True, slots=True)
class _Noted:
    """A request as it was, before anything is taken out of it."""

    id: str
    principal: Principal
    scope: Scope
    body: bytes
    idempotency_key: bytes | None
    answer: Answer
    seconds: float


class RequestLog:
    """Notes the requests of accounts and writes them a little later."""

    def __init__(self, db: Database, *, is_kept: bool) -> None:
        self._db = db
        self._is_kept = is_kept
        self._queue: deque[_Noted] = deque()
        self._is_due = asyncio.Event()
        self._is_full = False

    def note(
        self,
        request_id: str,
        principal: Principal,
        scope: Scope,
        body: bytes,
        idempotency_key: bytes | None,
        answer: Answer,
        *,
        began: float,
    ) -> None:
        """Note a request that is answered; `began` is of the process's monotonic clock."""
        if not self._is_kept:
            return
        if len(self._queue) >= _QUEUE_MAX:
            if not self._is_full:
                log.warning("request_log.full", reason="requests come faster than the database takes them")
            self._is_full = True
            return
        self._is_full = False
        seconds = time.monotonic() - began
        self._queue.append(_Noted(request_id, principal, scope, body, idempotency_key, answer, seconds))
        if len(self._queue) >= _ROWS_MAX:
            self._is_due.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), _WAIT_SECONDS_MAX)
            self._is_due.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what is noted by now."""
        while self._queue:
            group = [self._queue.popleft() for _ in range(min(_ROWS_MAX, len(self._queue)))]
            try:
                async with reading(self._db) as conn:
                    await request_queries.insert_requests(conn, [_logged(noted) for noted in group])
            except ServiceUnavailable:
                self._queue.extendleft(reversed(group))
                log.info("request_log.waits", reason="the database is away")
                return
            except Exception:  # noqa: BLE001  (these rows are given up; the log of the others goes on)
                log.exception("request_log.not_written", rows=len(group))


def _logged(noted: _Noted) -> LoggedRequest:
    request_id = ids.parsed_request_id(noted.id)
    if request_id is None:
        raise ValueError(noted.id)
    refused = noted.answer.status >= 400
    changes = noted.scope["method"] not in ("GET", "HEAD")
    found = _OBJECT_ID.search(noted.answer.body, 0, _OBJECT_ID_WITHIN_BYTES) if changes and not refused else None
    key = noted.idempotency_key
    return LoggedRequest(
        account_id=noted.principal.account.id,
        id=request_id,
        key_id=noted.principal.key_id,
        method=noted.scope["method"],
        path=redacted_text(noted.scope["path"]),
        query=redacted_query(noted.scope["query_string"]),
        status=noted.answer.status,
        duration_ms=round(noted.seconds * 1000),
        idempotency_key=None if key is None else redacted_key(key.decode("latin-1")),
        object_id=found[1].decode("ascii") if found else None,
        request_body=redacted_body(noted.body),
        refusal=redacted_text(noted.answer.body.decode("utf-8", "replace")) if refused else None,
    )
