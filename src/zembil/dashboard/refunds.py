"""Refunds: those that wait for approval first; approved or rejected on a page that says what happens then."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.dashboard import words
from zembil.dashboard.forms import Form
from zembil.dashboard.people_queries import names_of_people
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import InvalidState, ResourceNotFound, SelfApprovalForbidden
from zembil.ids import Prefix
from zembil.payments.queries import find_charge, find_payment
from zembil.refunds import operations
from zembil.refunds.model import SYSTEM, Refund, RefundState, RefundStatus
from zembil.refunds.queries import find_refund, list_refunds
from zembil.web.cursors import taken_page
from zembil.webhooks.sender import Bell

PATH = "/refunds"
ROWS, _QUEUE_ROWS = 25, 50


@dataclass(frozen=True, slots=True)
class RefundPages:
    door: Doorkeeper
    bell: Bell

    def routes(self) -> list[Route]:
        decide = Permission.DECIDE_REFUNDS
        return [
            page(PATH, self.list),
            page(f"{PATH}/{{id}}", self.show),
            page(f"{PATH}/{{id}}/approve", self.ask_to_approve, decide),
            action(f"{PATH}/{{id}}/approve", self.approve, decide),
            page(f"{PATH}/{{id}}/reject", self.ask_to_reject, decide),
            action(f"{PATH}/{{id}}/reject", self.reject, decide),
        ]

    async def list(self, visit: Visit) -> Answer:
        if search := visit.value("search").strip():
            return _found(search)
        parameters = visit.parameters
        status = parameters.take("status", _status, "Choose one of the statuses.")
        asked = taken_page(parameters, "refunds", {"status": status}, has_offset=False, limit_default=ROWS)
        parameters.finish()
        is_first = status is None and asked.last is None
        async with reading(self.door.db) as conn:
            refunds, total = await list_refunds(
                conn, visit.account.id, payment_id=None, status=status, before=asked.last, limit=asked.limit, offset=0
            )
            waiting, waiting_total = await list_refunds(
                conn,
                visit.account.id,
                payment_id=None,
                status=RefundStatus.PENDING_APPROVAL,
                before=None,
                limit=_QUEUE_ROWS,
                offset=0,
            )
            names = await names_of_people(conn, visit.user.merchant_id)
        context = {
            "waiting": [_row(refund, names) for refund in reversed(waiting)] if is_first else [],
            "waiting_total": waiting_total,
            "refunds": [_row(refund, names) for refund in refunds],
            "total": total,
            "next_cursor": asked.next_cursor([refund.id for refund in refunds]),
            "statuses": [(status.value, word) for status, (word, _) in words.REFUND.items()],
            "is_filtered": status is not None,
        }
        return Page("refunds.html", context)

    async def show(self, visit: Visit) -> Answer:
        return await self._page(visit, "refund.html")

    async def _page(self, visit: Visit, template: str, form: Form | None = None, *, status: int = 200) -> Page:
        refund_id = _refund_id(visit)
        async with reading(self.door.db) as conn:
            refund = await find_refund(conn, visit.account.id, refund_id)
            payment = await find_payment(conn, visit.account.id, refund.payment_id) if refund else None
            charge = await find_charge(conn, visit.account.id, refund.charge_id) if refund else None
            names = await names_of_people(conn, visit.user.merchant_id)
        if refund is None or payment is None or charge is None:
            raise ResourceNotFound
        metadata: dict[str, str] = json.loads(bytes(refund.metadata)) if refund.metadata else {}
        context = {
            "form": form or visit.form,
            "refund": refund,
            "refund_id": ids.shown(Prefix.REFUND, refund.id),
            "word": words.of_refund(refund),
            "payment": payment,
            "payment_id": ids.shown(Prefix.PAYMENT, refund.payment_id),
            "phone": charge.phone or "a number that was erased",
            "wallet": charge.rail.brand,
            "requested_by": _name(refund.requested_by, names),
            "approved_by": _name(refund.approved_by, names) if refund.approved_by else None,
            "is_waiting": refund.state is RefundState.PENDING_APPROVAL,
            "is_own": refund.requested_by == visit.user_id and not visit.account.allow_self_approval,
            "metadata": metadata,
            "path": visit.path(f"{PATH}/{visit.value('id')}"),
        }
        return Page(template, context, status)

    async def ask_to_approve(self, visit: Visit) -> Answer:
        return await self._question(visit, "refund_approve.html")

    async def ask_to_reject(self, visit: Visit) -> Answer:
        return await self._question(visit, "refund_reject.html")

    async def _question(self, visit: Visit, template: str) -> Answer:
        asked = await self._page(visit, template)
        if asked.context["is_waiting"]:
            return asked
        return GoTo(f"{PATH}/{visit.value('id')}", Notice("This refund is decided already.", is_bad=True))

    async def approve(self, visit: Visit) -> Answer:
        path = f"{PATH}/{visit.value('id')}"
        try:
            async with transaction(self.door.db) as conn:
                await operations.approve_refund(
                    conn,
                    visit.account,
                    _refund_id(visit),
                    by=visit.principal.actor,
                    allow_self_approval=visit.account.allow_self_approval,
                    at=visit.at,
                )
        except SelfApprovalForbidden:
            text = "You asked for this refund yourself, so another admin has to approve it."
            return GoTo(path, Notice(text, is_bad=True))
        except InvalidState as error:
            return GoTo(path, Notice(error.message, is_bad=True))
        self.bell.ring()
        return GoTo(path, Notice("Approved. The money is being sent back now."))

    async def reject(self, visit: Visit) -> Answer:
        reason = visit.form.text("reason", "Give a reason of at most 500 characters.", max_length=500)
        if visit.form.errors:
            return await self._page(visit, "refund_reject.html", visit.form, status=400)
        path = f"{PATH}/{visit.value('id')}"
        try:
            async with transaction(self.door.db) as conn:
                await operations.reject_refund(
                    conn, visit.account, _refund_id(visit), by=visit.principal.actor, reason=reason, at=visit.at
                )
        except InvalidState as error:
            return GoTo(path, Notice(error.message, is_bad=True))
        self.bell.ring()
        return GoTo(path, Notice("Rejected. The amount can be refunded again."))


def _found(search: str) -> Answer:
    """An id leads to what it names; refunds are found by nothing else."""
    if ids.parsed(Prefix.REFUND, search) is not None:
        return GoTo(f"{PATH}/{search}")
    if ids.parsed(Prefix.PAYMENT, search) is not None:
        return GoTo(f"/payments/{search}")
    raise ResourceNotFound("Search for the id of a refund (ref_…) or of its payment (pay_…).")


def _refund_id(visit: Visit) -> uuid.UUID:
    refund_id = ids.parsed(Prefix.REFUND, visit.value("id"))
    if refund_id is None:
        raise ResourceNotFound
    return refund_id


def _status(text: str) -> RefundStatus | None:
    return RefundStatus(text) if text in list(RefundStatus) else None


def _row(refund: Refund, names: Mapping[str, str]) -> tuple[str, Refund, words.Worded, str]:
    return ids.shown(Prefix.REFUND, refund.id), refund, words.of_refund(refund), _name(refund.requested_by, names)


def _name(person: str, names: Mapping[str, str]) -> str:
    return "The system" if person == SYSTEM else names.get(person, person)
