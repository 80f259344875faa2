"""POST /payments/{payment_id}/charge and POST /payments/{payment_id}/cancel."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from msgspec import Struct

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.db.pool import Connection, reading
from zembil.errors import (
    ChargeRefused,
    Fault,
    IdempotencyInProgress,
    ProviderUnavailable,
    ResourceNotFound,
    ValidationError,
)
from zembil.ids import Prefix
from zembil.payments import operations, queries
from zembil.payments.charger import Charger
from zembil.payments.model import (
    FAILURE_MESSAGES,
    CancellationReason,
    Charge,
    ChargeState,
    FailureCode,
    Payment,
    ShownPayment,
    shown,
)
from zembil.rails import rail_for
from zembil.rails.rail import Wallet
from zembil.web import fields
from zembil.web.idempotency import Once, as_replay
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body

_WALLET = f"Give one of: {', '.join(wallet.value for wallet in Wallet)}."

# What a merchant sees of an open charge, and of one that brought money.
_SHOWN_STATES: dict[ChargeState, str] = {
    ChargeState.AWAITING_CUSTOMER: "awaiting_customer",
    ChargeState.IN_PROGRESS: "in_progress",
    ChargeState.IN_DOUBT: "in_doubt",
    ChargeState.NEEDS_REVIEW: "in_doubt",
    ChargeState.SUCCEEDED: "succeeded",
    ChargeState.SURPLUS: "succeeded",
}


class ChargePayment(Struct, frozen=True):
    """The body of POST /payments/{payment_id}/charge; what it leaves out, the payment says."""

    phone: fields.Phone | None = None
    mobile_money_provider: Annotated[Wallet, must(_WALLET)] | None = None


class CancelPayment(Struct, frozen=True):
    """The body of POST /payments/{payment_id}/cancel: nothing is asked for."""


class ShownCharge(Struct, frozen=True):
    id: str
    state: str
    mobile_money_provider: Wallet
    phone: str


class ChargedPayment(ShownPayment, frozen=True, kw_only=True):
    """The answer to POST /payments/{payment_id}/charge: the payment, and the charge that was begun."""

    charge: ShownCharge


@dataclass(frozen=True, slots=True)
class ChargeEndpoints:
    """The endpoints of the API that call the rail of a payment."""

    charger: Charger
    once: Once

    def routes(self) -> list[Route]:
        write = Permission.CREATE_TRANSACTIONS
        return [
            Route("POST", "/payments/{payment_id}/charge", write, self.charge),
            Route("POST", "/payments/{payment_id}/cancel", write, self.cancel),
        ]

    async def charge(self, call: Call) -> Answer:
        asked = parsed_body(ChargePayment, call.body or b"{}")
        async with reading(self.charger.db) as conn:
            payment = await queries.find_payment(conn, call.account.id, _payment_id(call))
        if payment is None:
            raise ResourceNotFound
        wallet, phone = _way(asked, payment, livemode=call.account.livemode)
        begun = await self.charger.charge_payment(
            call.account, payment, wallet, phone=phone, pushed=False, key=call.key
        )
        answer = success(self._charged(call, begun.payment, begun.charge))
        return answer if begun.is_new else as_replay(answer)

    def _charged(self, call: Call, payment: Payment, charge: Charge) -> ChargedPayment:
        """How the charge stands. Raises ChargeRefused, ProviderUnavailable, IdempotencyInProgress."""
        if charge.state is ChargeState.SUBMITTING:
            raise IdempotencyInProgress  # a repeated request; the first is still calling the rail
        if charge.state not in _SHOWN_STATES:
            code = charge.failure_code or FailureCode.DECLINED
            if code is FailureCode.PROVIDER_UNAVAILABLE:
                raise ProviderUnavailable(f"{FAILURE_MESSAGES[code]} Nothing was sent; try again.")
            raise ChargeRefused(code.value, FAILURE_MESSAGES[code])
        plain = self._shown(call, payment)
        as_charged = ShownCharge(
            ids.shown(Prefix.CHARGE, charge.id), _SHOWN_STATES[charge.state], charge.rail, charge.phone
        )
        return ChargedPayment(
            **{name: getattr(plain, name) for name in ShownPayment.__struct_fields__}, charge=as_charged
        )

    async def cancel(self, call: Call) -> Answer:
        parsed_body(CancelPayment, call.body or b"{}")
        return await self.charger.cancel_payment(call.account, partial(self._cancelled, call))

    async def _cancelled(self, call: Call, withdrawn: uuid.UUID | None) -> Answer:
        async def work(conn: Connection) -> Answer:
            payment = await operations.cancel_payment_in(
                conn,
                call.account,
                _payment_id(call),
                CancellationReason.MERCHANT,
                public_url=self.charger.settings.public_url,
                at=call.at,
                withdrawn=withdrawn,
            )
            return success(self._shown(call, payment))

        return await self.once.answer(call.account.id, call.key, work, at=call.account_at)

    def _shown(self, call: Call, payment: Payment) -> ShownPayment:
        return shown(payment, livemode=call.account.livemode, public_url=self.charger.settings.public_url)


def _way(asked: ChargePayment, payment: Payment, *, livemode: bool) -> tuple[Wallet, str]:
    """The wallet and the phone to charge. Raises ValidationError if neither the request nor the payment says."""
    wallet = asked.mobile_money_provider or (payment.mobile_money_provider and Wallet(payment.mobile_money_provider))
    phone = asked.phone or payment.phone

    def faults() -> Iterator[Fault]:
        if not phone:
            yield Fault("phone", "The payment has no customer.phone; say here who is to be prompted.")
        if not wallet:
            yield Fault("mobile_money_provider", f"This field is required. {_WALLET}")
        elif rail_for(wallet, livemode=livemode) is None:
            yield Fault("mobile_money_provider", "This wallet is not connected for this account.")

    if found := tuple(faults()):
        raise ValidationError(*found)
    assert wallet
    assert phone
    return wallet, phone


def _payment_id(call: Call) -> uuid.UUID:
    payment_id = ids.parsed(Prefix.PAYMENT, call.path_values[0])
    if payment_id is None:
        raise ResourceNotFound
    return payment_id
