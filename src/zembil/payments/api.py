"""POST /payments, GET /payments/{payment_id}, GET /payments."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Struct, to_builtins

from zembil import ids, instants, money
from zembil.accounts.permissions import Permission
from zembil.config import Settings
from zembil.customers.queries import find_customer
from zembil.db.pool import Database, UniqueViolation, reading
from zembil.errors import DuplicateReference, Fault, IdempotencyInProgress, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.payments import queries
from zembil.payments.list_queries import ListedPayment, PaymentFilter, list_payments
from zembil.payments.model import Payment, PaymentStatus, ShownPayment, shown
from zembil.payments.operations import PaymentOrder, PaymentWriter, new_payment
from zembil.qr import LinkCodes
from zembil.rails import rail_for
from zembil.rails.rail import Wallet
from zembil.web import fields
from zembil.web.cursors import taken_page
from zembil.web.idempotency import IdempotencyKey, as_replay, demand_same_request
from zembil.web.parameters import Parameters
from zembil.web.queries import find_answer
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import Checks, must, parsed_body
from zembil.webhooks.sender import Bell
from zembil.wire import encoded

_AMOUNT = "Give a JSON number greater than 0 with at most two decimals, for example 1500.00."
_WALLETS = tuple(wallet.value for wallet in Wallet)


def _check_amount(amount: Decimal) -> Iterator[Fault]:
    santim = money.santim_of(amount)
    if santim is None or santim <= 0:
        yield Fault("", _AMOUNT)


class CustomerOfPayment(Struct, frozen=True):
    """`customer` in the body of POST /payments."""

    id: Annotated[str, must("Give the id of a customer: cus_…")] | None = None
    email: fields.Email | None = None
    phone: fields.Phone | None = None
    name: fields.Name | None = None


class CreatePayment(Struct, frozen=True):
    """The body of POST /payments."""

    amount: Annotated[Decimal, must(_AMOUNT, check=_check_amount)]
    currency: Annotated[Literal["ETB"], must("The only currency is ETB.")]
    customer: Annotated[CustomerOfPayment, must("Give an object with email, phone and name.")] | None = None
    description: fields.Description | None = None
    callback_url: fields.Url | None = None
    payment_method: Annotated[Literal["mobile_money"], must("The only payment method is mobile_money.")] | None = None
    metadata: fields.Metadata | None = None
    reference: Annotated[str, must("Give a text of 1 to 255 characters.", min_length=1, max_length=255)] | None = None
    expires_in: Annotated[int, must("Give whole seconds from 300 to 2592000.", ge=300, le=2592000)] | None = None
    mobile_money_provider: Annotated[Wallet, must(f"Give one of: {', '.join(_WALLETS)}.")] | None = None

    @staticmethod
    def faults_between(field: Callable[[str], Any]) -> Iterator[Fault]:
        if field("mobile_money_provider") is not None and field("customer.phone") is None:
            yield Fault("customer.phone", "A prompt is pushed to this phone; it is required here.")


class CreatedPayment(Struct, frozen=True):
    """The answer to POST /payments."""

    id: str
    status: PaymentStatus
    amount: Decimal
    currency: str
    payment_method: str
    payment_link: str
    qr_code: str
    expires_at: str
    created_at: str


@dataclass(frozen=True, slots=True)
class PaymentEndpoints:
    """The endpoints of the API for payments."""

    db: Database
    settings: Settings
    writer: PaymentWriter
    codes: LinkCodes
    bell: Bell

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/payments", Permission.CREATE_TRANSACTIONS, self.create),
            Route("GET", "/payments", Permission.VIEW, self.list),
            Route("GET", "/payments/{payment_id}", Permission.VIEW, self.read),
        ]

    async def create(self, call: Call) -> Answer:
        asked = parsed_body(CreatePayment, call.body, self._checks(livemode=call.account.livemode))
        order = _order(asked, await self._customer_id(call, asked))
        new = new_payment(order, call.account, public_url=self.settings.public_url, at=call.at, key=call.key)
        try:
            is_first = await self.writer.create(new)
        except UniqueViolation:
            raise DuplicateReference(
                "Another pending or completed payment has this reference; look it up with GET /payments?reference=…"
            ) from None
        if not is_first and call.key is not None:
            return await self._replay(call, call.key)
        self.bell.ring()
        return self._created(new.shown)

    async def _customer_id(self, call: Call, asked: CreatePayment) -> uuid.UUID | None:
        """The stored customer that is to be linked. Raises ValidationError if there is none."""
        if asked.customer is None or asked.customer.id is None:
            return None
        customer_id = ids.parsed(Prefix.CUSTOMER, asked.customer.id)
        if customer_id is not None:
            async with reading(self.db) as conn:
                is_there = await find_customer(conn, call.account.id, customer_id) is not None
                # A repeated request is answered as it was the first time, also if the customer is gone since then.
                if is_there or (call.key and await find_answer(conn, call.account.id, call.key.key)):
                    return customer_id
        raise ValidationError(Fault("customer.id", "There is no customer with this id."))

    async def _replay(self, call: Call, key: IdempotencyKey) -> Answer:
        """What the first request with this key was answered: made again, since nothing in it changes."""
        async with reading(self.db) as conn:
            stored = await find_answer(conn, call.account.id, key.key)
            if stored is None:
                raise IdempotencyInProgress
            demand_same_request(stored, key)
            payment = (
                await queries.find_payment(conn, call.account.id, stored.resource_id) if stored.resource_id else None
            )
        if payment is None:
            raise IdempotencyInProgress
        pending = replace(payment, status=PaymentStatus.PENDING)
        return as_replay(self._created(self._shown(call, pending)))

    def _created(self, payment: ShownPayment) -> Answer:
        return success(
            CreatedPayment(
                payment.id,
                payment.status,
                payment.amount,
                payment.currency,
                payment.payment_method,
                payment.payment_link,
                self.codes.png_data_uri(payment.payment_link),
                payment.expires_at,
                payment.created_at,
            ),
            status=201,
        )

    def _shown(self, call: Call, payment: Payment) -> ShownPayment:
        return shown(payment, livemode=call.account.livemode, public_url=self.settings.public_url)

    def _checks(self, *, livemode: bool) -> Checks:
        """What the settings and the account say of the fields."""

        def check_maximum(amount: Decimal) -> Iterator[Fault]:
            if (money.santim_of(amount) or 0) > self.settings.payment_santim_max:
                yield Fault("", f"The most is {money.shown(self.settings.payment_santim_max)} {money.CURRENCY}.")

        def check_connected(wallet: Wallet) -> Iterator[Fault]:
            if rail_for(wallet, livemode=livemode) is None:
                yield Fault("", "This wallet is not connected for this account.")

        return {"amount": check_maximum, "mobile_money_provider": check_connected}

    async def read(self, call: Call) -> Answer:
        payment_id = ids.parsed(Prefix.PAYMENT, call.path_values[0])
        if payment_id is None:
            raise ResourceNotFound
        async with reading(self.db) as conn:
            payment = await queries.find_payment(conn, call.account.id, payment_id)
        if payment is None:
            raise ResourceNotFound
        return success(self._shown(call, payment))

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        wanted = _filter(parameters)
        page = taken_page(parameters, "payments", to_builtins(wanted))
        parameters.finish()
        async with reading(self.db) as conn:
            payments, total = await list_payments(
                conn, call.account.id, wanted, limit=page.limit, offset=page.offset, before=page.last
            )
        return success(
            {
                "payments": [_listed(payment, livemode=call.account.livemode) for payment in payments],
                "pagination": page.pagination([payment.id for payment in payments], total=total),
            }
        )


def _order(asked: CreatePayment, customer_id: uuid.UUID | None) -> PaymentOrder:
    customer = asked.customer or CustomerOfPayment()
    return PaymentOrder(
        amount_santim=money.santim_of(asked.amount) or 0,
        lifetime_seconds=asked.expires_in,
        email=customer.email,
        phone=customer.phone,
        name=customer.name,
        customer_id=customer_id,
        description=asked.description,
        reference=asked.reference,
        callback_url=asked.callback_url,
        metadata=asked.metadata,
        mobile_money_provider=asked.mobile_money_provider,
    )


def _filter(parameters: Parameters) -> PaymentFilter:
    date_from, date_to = parameters.dates()
    metadata = parameters.take_map("metadata")
    return PaymentFilter(
        status=parameters.take("status", _status, "Give one of: pending, completed, failed, cancelled."),
        created_from=date_from,
        created_to=date_to,
        reference=parameters.take("reference", _text, "Give a reference."),
        customer_id=parameters.take("customer", _customer_id, "Give the id of a customer: cus_…"),
        phone=parameters.take("phone", _text, "Give a phone number in international form, its + written as %2B."),
        metadata_json=encoded(metadata).decode() if metadata else None,
    )


def _status(text: str) -> PaymentStatus | None:
    return PaymentStatus(text) if text in list(PaymentStatus) else None


def _customer_id(text: str) -> Any:
    return ids.parsed(Prefix.CUSTOMER, text)


def _text(text: str) -> str | None:
    return text or None


def _listed(payment: ListedPayment, *, livemode: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": ids.shown(Prefix.PAYMENT, payment.id),
        "status": payment.status,
        "amount": money.birr_of(payment.amount_santim),
        "currency": money.CURRENCY,
        "description": payment.description,
        "created_at": instants.shown(ids.created_at(payment.id)),
        "livemode": livemode,
    }
    if payment.reference is not None:
        item["reference"] = payment.reference
    return item
