"""Payments: found by filters that stand in the address, exported as they are shown, and each with its time line."""

import hashlib
import json
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from urllib.parse import urlencode

from msgspec import to_builtins

from zembil import ids, money
from zembil.accounts.permissions import Permission
from zembil.dashboard import payments_queries, spreadsheets, timeline, words
from zembil.dashboard.forms import Form
from zembil.dashboard.payments_queries import PaymentRow
from zembil.dashboard.visits import DELIVERIES_PATH, Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import Database, reading, transaction
from zembil.errors import InvalidState, PaymentNotRefundable, RefundExceedsAvailable, ResourceNotFound
from zembil.ids import Prefix
from zembil.payments import operations, queries
from zembil.payments.charger import Charger
from zembil.payments.list_queries import PaymentFilter, list_payment_ids, list_payments
from zembil.payments.model import FAILURE_MESSAGES, CancellationReason, ChargeState, Payment, PaymentStatus, link_prefix
from zembil.rails.rail import Wallet
from zembil.refunds.model import Refund
from zembil.refunds.operations import RefundOrder, request_refund
from zembil.refunds.queries import list_refunds
from zembil.web.cursors import taken_page
from zembil.web.fields import international
from zembil.web.idempotency import IdempotencyKey, claimed
from zembil.web.parameters import Parameters
from zembil.web.queries import find_answer
from zembil.web.request_queries import list_requests_about
from zembil.wire import encoded

PATH = "/payments"
ROWS = 25
_REQUESTS_MAX, _REFUNDS_MAX = 100, 100
_AMOUNT = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,12})(?:\.(\d{1,2}))?", re.ASCII)
_FORM_KEY = re.compile(r"[0-9a-f]{32}")
_UNPAID = (ChargeState.FAILED, ChargeState.CANCELLED)
_FILTERS = ("status", "date_from", "date_to", "reference", "phone", "customer", "metadata")


@dataclass(frozen=True, slots=True)
class PaymentPages:
    door: Doorkeeper
    charger: Charger

    def routes(self) -> list[Route]:
        write = Permission.CREATE_TRANSACTIONS
        return [
            page(PATH, self.list),
            page(f"{PATH}/export.csv", self.export),
            page(f"{PATH}/{{id}}", self.show),
            action(f"{PATH}/{{id}}/refund", self.refund, write),
            page(f"{PATH}/{{id}}/cancel", self.ask_to_cancel, write),
            action(f"{PATH}/{{id}}/cancel", self.cancel, write),
        ]

    # The list

    async def list(self, visit: Visit) -> Answer:
        if search := visit.value("search").strip():
            return await self._found(visit, search)
        parameters = visit.parameters
        wanted = _filter(visit, parameters)
        asked = taken_page(parameters, "payments", to_builtins(wanted), has_offset=False, limit_default=ROWS)
        parameters.finish()
        async with reading(self.door.db) as conn:
            listed, total = await list_payments(conn, visit.account.id, wanted, limit=asked.limit, before=asked.last)
            rows = await payments_queries.find_rows(conn, visit.account.id, [payment.id for payment in listed])
        given = {name: visit.value(name) for name in _FILTERS if visit.value(name)}
        context = {
            "payments": [(ids.shown(Prefix.PAYMENT, row.id), row) for row in rows],
            "total": total,
            "next_cursor": asked.next_cursor([row.id for row in rows]),
            "created_at": _created_at,
            "words": words,
            "statuses": [(status.value, word) for status, (word, _) in words.PAYMENT.items()],
            "export_path": visit.path(f"{PATH}/export.csv") + (f"?{urlencode(given)}" if given else ""),
            "is_filtered": bool(given),
            "base_url": self.door.settings.base_url(livemode=visit.livemode),
        }
        return Page("payments.html", context)

    async def _found(self, visit: Visit, search: str) -> Answer:
        """An id and a wallet's number lead to what they name; a phone and everything else become filters."""
        for prefix, path in ((Prefix.PAYMENT, PATH), (Prefix.REFUND, "/refunds"), (Prefix.CUSTOMER, "/customers")):
            if ids.parsed(prefix, search) is not None:
                return GoTo(f"{path}/{search}")
        if (charge_id := ids.parsed(Prefix.CHARGE, search)) is not None:
            async with reading(self.door.db) as conn:
                payment_id = await payments_queries.find_payment_of_charge(conn, visit.account.id, charge_id)
            if payment_id is None:
                raise ResourceNotFound("There is no charge with this id in this environment.")
            return GoTo(f"{PATH}/{ids.shown(Prefix.PAYMENT, payment_id)}")
        if international(search).startswith("+"):
            return GoTo(f"{PATH}?{urlencode({'phone': search})}")
        async with reading(self.door.db) as conn:
            payment_id = await payments_queries.find_payment_of_receipt(conn, visit.account.id, search)
        if payment_id is not None:
            return GoTo(f"{PATH}/{ids.shown(Prefix.PAYMENT, payment_id)}")
        return GoTo(f"{PATH}?{urlencode({'reference': search})}")

    async def export(self, visit: Visit) -> Answer:
        """Exactly what the list shows, all pages of it."""
        parameters = visit.parameters
        wanted = _filter(visit, parameters)
        parameters.finish()
        groups = _groups(self.door.db, visit.account.id, wanted)
        first = await anext(groups)  # a database that is away is told before anything is sent
        zone = str(visit.zone)

        async def all_groups() -> AsyncIterator[list[PaymentRow]]:
            yield first
            async for group in groups:
                yield group

        day = visit.now.astimezone(visit.zone).date().isoformat()
        columns = [
            *("Payment", f"Created ({zone})", "Status", f"Amount ({money.CURRENCY})", f"Refunded ({money.CURRENCY})"),
            *("Reference", "Description", "Customer", "Name", "Phone", "E-mail", f"Ended ({zone})", "Transaction"),
            *("Failed because", "Cancelled by", "Metadata", "Wallet", "Number at the wallet"),
        ]
        return spreadsheets.download(
            f"payments-{visit.environment}-{day}.csv", columns, all_groups(), partial(_exported, visit.zone)
        )

    # One payment

    async def show(self, visit: Visit) -> Answer:
        return await self._page(visit, visit.form)

    async def _page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        account, payment_id = visit.account, _payment_id(visit)
        shown_id = ids.shown(Prefix.PAYMENT, payment_id)
        async with reading(self.door.db) as conn:
            payment = await queries.find_payment(conn, account.id, payment_id)
            if payment is None:
                raise ResourceNotFound
            refunds, _ = await list_refunds(
                conn, account.id, payment_id=payment_id, status=None, before=None, limit=_REFUNDS_MAX, offset=0
            )
            events = await payments_queries.list_events_about(
                conn, account.id, [payment_id, *(refund.id for refund in refunds)]
            )
            happened = timeline.Happened(
                requests=await list_requests_about(conn, account.id, shown_id, limit=_REQUESTS_MAX),
                events=events,
                charges=await payments_queries.list_charges(conn, account.id, payment_id),
                refunds=refunds,
                attempts=await payments_queries.list_attempts_of_events(conn, account.id, [e.id for e in events]),
            )
        available = payment.amount_santim - payment.reserved_santim
        form.values.setdefault("amount", money.shown(available))
        form.values.setdefault("form_key", uuid.uuid4().hex)
        metadata: dict[str, str] = json.loads(bytes(payment.metadata)) if payment.metadata else {}
        context = {
            "form": form,
            "payment": payment,
            "payment_id": shown_id,
            "word": words.PAYMENT[payment.status],
            "failure": FAILURE_MESSAGES[payment.failure_code] if payment.failure_code else None,
            "wallet": Wallet(payment.mobile_money_provider).brand if payment.mobile_money_provider else None,
            "paid_by": next((charge for charge in happened.charges if charge.state is ChargeState.SUCCEEDED), None),
            "customer_id": ids.shown(Prefix.CUSTOMER, payment.customer_id) if payment.customer_id else None,
            "transaction_id": ids.shown(Prefix.TRANSACTION, payment.transaction_id) if payment.transaction_id else None,
            "metadata": metadata,
            "link": link_prefix(self.door.settings.public_url) + payment.link_token,
            "link_path": f"/p/{payment.link_token}",
            "available": available if payment.status is PaymentStatus.COMPLETED else 0,
            "refunds": [(ids.shown(Prefix.REFUND, refund.id), refund, words.of_refund(refund)) for refund in refunds],
            "is_unpaid": all(charge.state in _UNPAID for charge in happened.charges),
            "lines": timeline.lines(
                happened,
                clock_offset=account.clock_offset,
                process_offset=self.door.clock.offset,
                delivery_path=partial(self.door.record_path, visit, DELIVERIES_PATH),
            ),
        }
        return Page("payment.html", context, status)

    async def refund(self, visit: Visit) -> Answer:
        form = visit.form
        asked = form.text("amount", "Say how much goes back.", max_length=20)
        reason = form.text("reason", "Give the reason in at most 500 characters.", max_length=500, required=False)
        amount_santim = _santim(asked)
        if asked and not amount_santim:
            form.fail("amount", "Give an amount with at most two decimals, for example 1,500.00.")
        if not form.errors:
            order = RefundOrder(payment_id=_payment_id(visit), amount_santim=amount_santim, reason=reason or None)
            try:
                refund = await self._request_once(visit, order)
            except RefundExceedsAvailable as error:
                form.fail("amount", f"This is too much: {error.message}")
            except PaymentNotRefundable as error:
                form.fail("amount", error.message)
            else:
                self.charger.bell.ring()
                text = f"Asked for. {_who_decides(visit)}"
                return GoTo(f"/refunds/{ids.shown(Prefix.REFUND, refund)}", Notice(text))
        return await self._page(visit, form, status=400)

    async def _request_once(self, visit: Visit, order: RefundOrder) -> uuid.UUID:
        """Ask for a refund once for each time that the form was shown: a second press leads to the same refund."""
        sent = visit.form.raw("form_key")
        fingerprint = hashlib.sha256(f"{order.payment_id}|{order.amount_santim}|{order.reason}".encode()).digest()
        key = IdempotencyKey(f"dashboard {sent if _FORM_KEY.fullmatch(sent) else uuid.uuid4().hex}", fingerprint)
        async with transaction(self.door.db) as conn:
            if not await claimed(conn, visit.account.id, key, at=visit.now):
                stored = await find_answer(conn, visit.account.id, key.key)
                if stored is None or stored.resource_id is None or stored.fingerprint != fingerprint:
                    raise InvalidState("This form was used already; open the payment again.")
                return stored.resource_id
            refund: Refund = await request_refund(conn, visit.account, order, by=visit.user_id, at=visit.at)
            await queries.update_key(conn, visit.account.id, key.key, resource_id=refund.id)
            return refund.id

    async def ask_to_cancel(self, visit: Visit) -> Answer:
        async with reading(self.door.db) as conn:
            payment = await queries.find_payment(conn, visit.account.id, _payment_id(visit))
        if payment is None:
            raise ResourceNotFound
        path = f"{PATH}/{visit.value('id')}"
        if payment.status is not PaymentStatus.PENDING:
            return GoTo(path, Notice("Only a pending payment can be cancelled.", is_bad=True))
        return Page("payment_cancel.html", {"payment": payment, "path": visit.path(path)})

    async def cancel(self, visit: Visit) -> Answer:
        payment_id = _payment_id(visit)

        async def cancelled(withdrawn: uuid.UUID | None) -> Payment:
            async with transaction(self.door.db) as conn:
                return await operations.cancel_payment_in(
                    conn,
                    visit.account,
                    payment_id,
                    CancellationReason.MERCHANT,
                    public_url=self.door.settings.public_url,
                    at=visit.at,
                    withdrawn=withdrawn,
                )

        path = f"{PATH}/{visit.value('id')}"
        try:
            await self.charger.cancel_payment(visit.account, cancelled)
        except InvalidState as error:
            return GoTo(path, Notice(error.message, is_bad=True))
        return GoTo(path, Notice("Cancelled. Nobody can pay it any more."))


def _payment_id(visit: Visit) -> uuid.UUID:
    payment_id = ids.parsed(Prefix.PAYMENT, visit.value("id"))
    if payment_id is None:
        raise ResourceNotFound
    return payment_id


def _who_decides(visit: Visit) -> str:
    if visit.account.allow_self_approval:
        return "It goes out once an admin approves it."
    return "It goes out once another admin approves it."


def _santim(text: str) -> int | None:
    """An amount as people write it, `1,500` or `1500.00`, in santim; None if it is none."""
    found = _AMOUNT.fullmatch(text)
    return int(found[1].replace(",", "")) * 100 + int((found[2] or "0").ljust(2, "0")) if found else None


def _created_at(row: PaymentRow) -> datetime:
    return ids.created_at(row.id)


# Filters, as they stand in the address


def _filter(visit: Visit, parameters: Parameters) -> PaymentFilter:
    date_from, date_to = parameters.dates(visit.zone)
    return PaymentFilter(
        status=parameters.take("status", _status, "Choose one of the statuses."),
        created_from=date_from,
        created_to=date_to,
        reference=parameters.take("reference", _text, "Give a reference."),
        customer_id=parameters.take("customer", _customer_id, "Give the id of a customer: cus_…"),
        phone=parameters.take("phone", _phone, "Give a phone number, for example +251911223344."),
        metadata_json=parameters.take("metadata", _metadata, "Give a key and its value: order=1042."),
    )


def _status(text: str) -> PaymentStatus | None:
    return PaymentStatus(text) if text in list(PaymentStatus) else None


def _customer_id(text: str) -> uuid.UUID | None:
    return ids.parsed(Prefix.CUSTOMER, text.strip())


def _text(text: str) -> str | None:
    return text.strip() or None


def _phone(text: str) -> str | None:
    return international(text) or None


def _metadata(text: str) -> str | None:
    key, is_given, value = text.partition("=")
    return encoded({key.strip(): value.strip()}).decode() if is_given and key.strip() else None


# The export


async def _groups(db: Database, account_id: int, wanted: PaymentFilter) -> AsyncIterator[list[PaymentRow]]:
    """The rows group by group; between two groups no connection is held, however slowly they are taken."""
    last: uuid.UUID | None = None
    while True:
        async with reading(db) as conn:
            found = await list_payment_ids(conn, account_id, wanted, before=last)
            rows = await payments_queries.find_rows(conn, account_id, found)
        yield rows
        if not found:
            return
        last = found[-1]


def _exported(zone: tzinfo, row: PaymentRow) -> list[str]:
    return [
        ids.shown(Prefix.PAYMENT, row.id),
        _local(ids.created_at(row.id), zone),
        row.status.value,
        str(money.birr_of(row.amount_santim)),
        str(money.birr_of(row.refunded_santim)),
        spreadsheets.guarded(row.reference),
        spreadsheets.guarded(row.description),
        ids.shown(Prefix.CUSTOMER, row.customer_id) if row.customer_id else "",
        spreadsheets.guarded(row.name),
        spreadsheets.guarded(row.phone),
        spreadsheets.guarded(row.email),
        _local(row.ended_at, zone) if row.ended_at else "",
        ids.shown(Prefix.TRANSACTION, row.transaction_id) if row.transaction_id else "",
        row.failure_code.value if row.failure_code else "",
        row.cancellation_reason.value if row.cancellation_reason else "",
        spreadsheets.guarded(row.metadata),
        row.wallet.brand if row.wallet else "",
        spreadsheets.guarded(row.rail_reference),
    ]


def _local(at: datetime, zone: tzinfo) -> str:
    return at.astimezone(zone).isoformat(" ", "seconds")[:19]
