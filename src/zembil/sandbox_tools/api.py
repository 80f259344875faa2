"""The calls under /test: the clock, what becomes of a payment, events on demand. Only a sandbox has them."""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Raw, Struct

from zembil import ids, instants
from zembil.accounts.permissions import Permission
from zembil.config import Settings
from zembil.db.pool import Connection
from zembil.errors import ResourceNotFound
from zembil.ids import Prefix
from zembil.payments.model import FailureCode, Payment, shown
from zembil.sandbox_tools import operations, payments
from zembil.sandbox_tools.events import make_event
from zembil.web.auth import KeyRing
from zembil.web.idempotency import Once
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body
from zembil.webhooks.model import EventType
from zembil.webhooks.sender import Bell

_ADVANCE_SECONDS_MAX = 31622400


class AdvanceClock(Struct, frozen=True):
    """The body of POST /test/clock."""

    advance_seconds: Annotated[
        int, must(f"Give whole seconds from 1 to {_ADVANCE_SECONDS_MAX}.", ge=1, le=_ADVANCE_SECONDS_MAX)
    ]


class DecidePayment(Struct, frozen=True):
    """The body of POST /test/payments/{payment_id}/complete and …/cancel: nothing is asked for."""


class FailPayment(Struct, frozen=True):
    """The body of POST /test/payments/{payment_id}/fail."""

    failure_code: Annotated[FailureCode, must(f"Give one of: {', '.join(FailureCode)}.")] | None = None


class ResolveCharge(Struct, frozen=True):
    """The body of POST /test/charges/{charge_id}/resolve."""

    outcome: Annotated[Literal["succeeded", "failed"], must("Give one of: succeeded, failed.")]


class MakeEvent(Struct, frozen=True):
    """The body of POST /test/events."""

    type: Annotated[EventType, must(f"Give one of: {', '.join(EventType)}.")]


@dataclass(frozen=True, slots=True)
class SandboxEndpoints:
    """The endpoints of the API that only a sandbox has."""

    settings: Settings
    key_ring: KeyRing
    once: Once
    bell: Bell

    def routes(self) -> list[Route]:
        tools = Permission.USE_SANDBOX_TOOLS
        return [
            Route("GET", "/test/clock", tools, self.read_clock, sandbox_only=True),
            Route("POST", "/test/clock", tools, self.advance_clock, sandbox_only=True),
            Route("POST", "/test/events", tools, self.make_event, sandbox_only=True),
            Route("POST", "/test/charges/{charge_id}/resolve", tools, self.resolve, sandbox_only=True),
            Route("POST", "/test/payments/{payment_id}/complete", tools, self.complete, sandbox_only=True),
            Route("POST", "/test/payments/{payment_id}/fail", tools, self.fail, sandbox_only=True),
            Route("POST", "/test/payments/{payment_id}/cancel", tools, self.cancel, sandbox_only=True),
        ]

    async def read_clock(self, call: Call) -> Answer:
        return success({"now": instants.shown(call.account_at)})

    async def advance_clock(self, call: Call) -> Answer:
        asked = parsed_body(AdvanceClock, call.body)

        async def work(conn: Connection) -> Answer:
            now = await operations.advance_clock(conn, call.account, seconds=asked.advance_seconds, at=call.at)
            return success({"now": instants.shown(now)})

        answer = await self._told(call, work)
        self.key_ring.forget()
        return answer

    async def make_event(self, call: Call) -> Answer:
        asked = parsed_body(MakeEvent, call.body)

        async def work(conn: Connection) -> Answer:
            payload = await make_event(conn, call.account, asked.type, public_url=self.settings.public_url, at=call.at)
            return success(Raw(payload), status=201)

        return await self._told(call, work)

    async def resolve(self, call: Call) -> Answer:
        asked = parsed_body(ResolveCharge, call.body)

        async def decide(conn: Connection, charge_id: uuid.UUID) -> Payment:
            succeeded = asked.outcome == "succeeded"
            return await payments.resolve_charge(
                conn, call.account, charge_id, succeeded=succeeded, public_url=self.settings.public_url, at=call.at
            )

        return await self._decided(call, decide, prefix=Prefix.CHARGE)

    async def complete(self, call: Call) -> Answer:
        parsed_body(DecidePayment, call.body or b"{}")

        async def decide(conn: Connection, payment_id: uuid.UUID) -> Payment:
            return await payments.complete_payment(
                conn, call.account, payment_id, public_url=self.settings.public_url, at=call.at
            )

        return await self._decided(call, decide)

    async def fail(self, call: Call) -> Answer:
        asked = parsed_body(FailPayment, call.body or b"{}")
        code = asked.failure_code or FailureCode.DECLINED

        async def decide(conn: Connection, payment_id: uuid.UUID) -> Payment:
            return await payments.fail_payment(
                conn, call.account, payment_id, code, public_url=self.settings.public_url, at=call.at
            )

        return await self._decided(call, decide)

    async def cancel(self, call: Call) -> Answer:
        parsed_body(DecidePayment, call.body or b"{}")

        async def decide(conn: Connection, payment_id: uuid.UUID) -> Payment:
            return await payments.cancel_payment(
                conn, call.account, payment_id, public_url=self.settings.public_url, at=call.at
            )

        return await self._decided(call, decide)

    async def _decided(
        self,
        call: Call,
        decide: Callable[[Connection, uuid.UUID], Awaitable[Payment]],
        *,
        prefix: Prefix = Prefix.PAYMENT,
    ) -> Answer:
        async def work(conn: Connection) -> Answer:
            named = ids.parsed(prefix, call.path_values[0])
            if named is None:
                raise ResourceNotFound
            payment = await decide(conn, named)
            return success(shown(payment, livemode=False, public_url=self.settings.public_url))

        return await self._told(call, work)

    async def _told(self, call: Call, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Do the work once for its key; what it tells is sent without waiting for the next round."""
        answer = await self.once.answer(call.account.id, call.key, work, at=call.account_at)
        self.bell.ring()
        return answer
