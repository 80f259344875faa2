"""POST /refunds, GET /refunds, GET /refunds/{refund_id}, and the decision about one: approve, reject."""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Raw, Struct

from zembil import ids, money
from zembil.accounts.permissions import Permission
from zembil.db.pool import Connection, Database, reading
from zembil.errors import Fault, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.refunds import operations, queries
from zembil.refunds.model import Refund, RefundStatus, shown
from zembil.refunds.operations import RefundOrder
from zembil.web import fields
from zembil.web.cursors import taken_page
from zembil.web.idempotency import Once
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body
from zembil.webhooks.sender import Bell
from zembil.wire import encoded, in_kept_order

_AMOUNT = "Give a JSON number greater than 0 with at most two decimals; without it all that is left is refunded."


def _check_amount(amount: Decimal) -> Iterator[Fault]:
    santim = money.santim_of(amount)
    if santim is None or santim <= 0:
        yield Fault("", _AMOUNT)


class CreateRefund(Struct, frozen=True):
    """The body of POST /refunds."""

    payment_id: Annotated[str, must("Give the id of the payment: pay_…")]
    amount: Annotated[Decimal, must(_AMOUNT, check=_check_amount)] | None = None
    reason: fields.Description | None = None
    metadata: fields.Metadata | None = None


class RejectRefund(Struct, frozen=True):
    """The body of POST /refunds/{refund_id}/reject."""

    reason: fields.Description | None = None


class ApproveRefund(Struct, frozen=True):
    """The body of POST /refunds/{refund_id}/approve: nothing is asked for."""


@dataclass(frozen=True, slots=True)
class RefundEndpoints:
    """The endpoints of the API for refunds."""

    db: Database
    once: Once
    bell: Bell

    def routes(self) -> list[Route]:
        create, decide, view = Permission.CREATE_TRANSACTIONS, Permission.DECIDE_REFUNDS, Permission.VIEW
        return [
            Route("POST", "/refunds", create, self.create),
            Route("GET", "/refunds", view, self.list),
            Route("GET", "/refunds/{refund_id}", view, self.read),
            Route("POST", "/refunds/{refund_id}/approve", decide, self.approve),
            Route("POST", "/refunds/{refund_id}/reject", decide, self.reject),
        ]

    async def create(self, call: Call) -> Answer:
        asked = _parsed_refund(call.body)

        async def work(conn: Connection) -> Answer:
            order = _order(asked)
            refund = await operations.request_refund(conn, call.account, order, by=_user(call), at=call.at)
            return _answer(call, refund, status=201)

        return await self._told(call, work)

    async def approve(self, call: Call) -> Answer:
        parsed_body(ApproveRefund, call.body or b"{}")

        async def work(conn: Connection) -> Answer:
            refund = await operations.approve_refund(
                conn,
                call.account,
                _refund_id(call),
                by=call.principal.actor,
                allow_self_approval=call.account.allow_self_approval,
                at=call.at,
            )
            return _answer(call, refund)

        return await self._told(call, work)

    async def reject(self, call: Call) -> Answer:
        asked = parsed_body(RejectRefund, call.body or b"{}")

        async def work(conn: Connection) -> Answer:
            refund = await operations.reject_refund(
                conn, call.account, _refund_id(call), by=call.principal.actor, reason=asked.reason, at=call.at
            )
            return _answer(call, refund)

        return await self._told(call, work)

    async def _told(self, call: Call, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Do the work once for its key; what it tells is sent without waiting for the next round."""
        answer = await self.once.answer(call.account.id, call.key, work, at=call.account_at)
        self.bell.ring()
        return answer

    async def read(self, call: Call) -> Answer:
        async with reading(self.db) as conn:
            refund = await queries.find_refund(conn, call.account.id, _refund_id(call))
        if refund is None:
            raise ResourceNotFound
        return _answer(call, refund)

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        payment_id = parameters.take("payment_id", _payment_id, "Give the id of a payment: pay_…")
        status = parameters.take("status", _status, f"Give one of: {', '.join(RefundStatus)}.")
        page = taken_page(parameters, "refunds", {"payment_id": payment_id, "status": status})
        parameters.finish()
        async with reading(self.db) as conn:
            refunds, total = await queries.list_refunds(
                conn,
                call.account.id,
                payment_id=payment_id,
                status=status,
                before=page.last,
                limit=page.limit,
                offset=page.offset,
            )
        return success(
            {
                "refunds": [shown(refund, livemode=call.account.livemode) for refund in refunds],
                "pagination": page.pagination([refund.id for refund in refunds], total=total),
            }
        )


def _parsed_refund(body: bytes) -> CreateRefund:
    """The body, and what must not be overlooked in one without an amount: that would refund everything."""
    faults = list(_faults_without_an_amount(body))
    try:
        asked = parsed_body(CreateRefund, body)
    except ValidationError as error:
        told = {fault.field for fault in error.details}
        raise ValidationError(*error.details, *(fault for fault in faults if fault.field not in told)) from None
    if faults:
        raise ValidationError(*faults)
    return asked


def _faults_without_an_amount(body: bytes) -> Iterator[Fault]:
    try:
        given = msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return  # it is refused for what it is
    if bytes(given.get("amount", b"")) == b"null":
        yield Fault("amount", f"null is no amount. {_AMOUNT}")
    elif "amount" not in given:
        for name in given.keys() - {field.name for field in msgspec.structs.fields(CreateRefund)}:
            yield Fault(name[:100] or "body", "There is no such field; without an amount all that is left is refunded.")


def _order(asked: CreateRefund) -> RefundOrder:
    payment_id = ids.parsed(Prefix.PAYMENT, asked.payment_id)
    if payment_id is None:
        raise ResourceNotFound("There is no payment with this id.")
    return RefundOrder(
        payment_id=payment_id,
        amount_santim=None if asked.amount is None else money.santim_of(asked.amount),
        reason=asked.reason,
        metadata=Raw(encoded(in_kept_order(asked.metadata))) if asked.metadata else None,
    )


def _answer(call: Call, refund: Refund, *, status: int = 200) -> Answer:
    return success(shown(refund, livemode=call.account.livemode), status=status)


def _user(call: Call) -> str:
    """In whose name the key was made: a refund is asked for and approved by people."""
    return call.principal.actor.name


def _refund_id(call: Call) -> uuid.UUID:
    refund_id = ids.parsed(Prefix.REFUND, call.path_values[0])
    if refund_id is None:
        raise ResourceNotFound
    return refund_id


def _payment_id(text: str) -> uuid.UUID | None:
    return ids.parsed(Prefix.PAYMENT, text)


def _status(text: str) -> RefundStatus | None:
    return RefundStatus(text) if text in list(RefundStatus) else None
