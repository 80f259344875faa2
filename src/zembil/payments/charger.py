"""Charges payments: commit the charge, call the rail, apply what it said. No transaction is open during the call."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from zembil.accounts.model import Account
from zembil.accounts.queries import find_account
from zembil.config import Settings
from zembil.db.clock import Clock
from zembil.db.pool import Database, reading
from zembil.errors import InvalidState, RateLimitExceeded
from zembil.payments import lifecycle, operations, queries
from zembil.payments.model import Charge, ChargeState, FailureCode, Payment
from zembil.payments.operations import Begun, PromptOpen
from zembil.rails import calls, doubt, rail_for
from zembil.rails.rail import ChargeRequest, Outcome, Rail, Unknown, Wallet
from zembil.telemetry import log
from zembil.web.idempotency import IdempotencyKey
from zembil.webhooks.sender import Bell

_DUE_MAX = 100

Done = TypeVar("Done")
Receive = Callable[[Account, Wallet, bytes], Awaitable[object]]
"""Takes a notification: rail_notifications.receive."""


@dataclass(frozen=True, slots=True)
class Charger:
    """Everything between a payment and its rail."""

    db: Database
    clock: Clock
    settings: Settings
    bell: Bell

    async def charge_payment(
        self,
        account: Account,
        payment: Payment,
        wallet: Wallet,
        *,
        phone: str,
        pushed: bool,
        key: IdempotencyKey | None = None,
    ) -> Begun:
        """Prompt the customer; answers payment and charge as they stand when the rail has taken or refused the charge.

        With a `key` that an earlier request had, nobody is prompted: its charge is answered. Raises what
        operations.begin_charge raises, and InvalidState if the wallet is not connected.
        """
        rail = rail_for(wallet, livemode=account.livemode)
        if rail is None:
            raise InvalidState(f"{wallet.value} is not connected for this account.")
        begun = await operations.begin_charge(
            self.db, account, payment.id, rail, phone=phone, pushed=pushed, at=self.clock.now(), key=key
        )
        return await self._start(account, rail, begun) if begun.is_new else begun

    async def _start(self, account: Account, rail: Rail, begun: Begun) -> Begun:
        """Tell the rail of a charge that is committed; answers how payment and charge stand then."""
        request = _request(begun.payment, begun.charge, account)
        outcome = await calls.started(rail.start_charge(request, at=self._now(account)))
        payment = await self.apply(account, begun.charge, outcome)
        async with reading(self.db) as conn:
            charge = await queries.find_charge(conn, account.id, begun.charge.id)
        return Begun(payment, charge or begun.charge)

    async def withdraw(self, account: Account, payment: Payment, charge: Charge) -> bool:
        """Ask the rail to take back a prompt; answers whether it confirmed that."""
        rail = rail_for(charge.rail, livemode=account.livemode)
        if rail is None or charge.state is ChargeState.SUBMITTING:
            return False
        request = _request(payment, charge, account)
        return await calls.confirmed(rail.cancel_charge(request, at=self._now(account)))

    async def cancel_payment(self, account: Account, cancel: Callable[[uuid.UUID | None], Awaitable[Done]]) -> Done:
        """Have a payment cancelled by `cancel`, one transaction; an open prompt is first taken back by its rail.

        `cancel` takes the charge that was taken back and hands it to operations.cancel_payment_in. Raises what that
        raises, and InvalidState if the rail does not confirm.
        """
        try:
            done = await cancel(None)
        except PromptOpen as prompt:
            if not await self.withdraw(account, prompt.payment, prompt.charge):
                raise InvalidState(
                    "The wallet's network has not taken back the prompt; wait until the charge has ended."
                ) from None
            done = await cancel(prompt.charge.id)
        self.bell.ring()
        return done

    async def prompt_again(self, account: Account, payment: Payment, charge: Charge) -> bool:
        """Have the prompt of an open charge taken back, and send another; answers whether the rail took it back.

        If it did not, the first prompt can still be approved, and a second one could be paid as well: so there is none.
        Raises InvalidState, RateLimitExceeded.
        """
        rail = rail_for(charge.rail, livemode=account.livemode)
        if rail is None or payment.charges_sent >= lifecycle.CHARGES_MAX:
            raise InvalidState("This payment cannot be charged again.")
        if charge.phone not in rail.test_phones:
            async with reading(self.db) as conn:
                await operations.demand_few_prompts(conn, account, charge.phone, at=self.clock.now())
        if not await self.withdraw(account, payment, charge):
            return False
        begun = await operations.replace_charge(
            self.db, account, charge, rail, public_url=self.settings.public_url, at=self.clock.now()
        )
        await self._start(account, rail, begun)
        return True

    async def apply(self, account: Account, charge: Charge, outcome: Outcome) -> Payment:
        """Commit what a rail said of a charge, in answer or of its own accord."""
        payment = await operations.apply_outcome(
            self.db, account, charge, outcome, public_url=self.settings.public_url, at=self.clock.now()
        )
        self.bell.ring()
        return payment

    async def work(self, receive: Receive) -> bool:
        """One round of what is due: expire, push, and ask rails; answers whether more may be due.

        What a simulated network has to tell goes to `receive`, as the notifications of real ones do.
        """
        to_push, expired = await operations.expire_payments(
            self.db, public_url=self.settings.public_url, at=self.clock.now(), limit=_DUE_MAX
        )
        if expired:
            self.bell.ring()
        async with reading(self.db) as conn:
            now = self.clock.now()
            to_ask = await queries.claim_charges_to_ask(
                conn, at=now, again_at=now + doubt.SUBMITTING_AT_MOST, limit=_DUE_MAX
            )
        await asyncio.gather(
            *(calls.guarded(self._push(payment)) for payment in to_push),
            *(calls.guarded(self._ask(charge, receive)) for charge in to_ask),
        )
        return expired + len(to_push) >= _DUE_MAX or len(to_ask) >= _DUE_MAX

    async def _push(self, payment: Payment) -> None:
        """Prompt as asked for at creation. Whoever else begins first, the payment is charged once."""
        account = await self._account(payment.account_id)
        if payment.mobile_money_provider is None or payment.phone is None:
            raise RuntimeError("only a payment with a wallet and a phone is due before it expires")
        wallet = Wallet(payment.mobile_money_provider)
        try:
            if rail_for(wallet, livemode=account.livemode) is None:
                await self._give_up(account, payment, FailureCode.PROVIDER_UNAVAILABLE)
            else:
                await self.charge_payment(account, payment, wallet, phone=payment.phone, pushed=True)
        except InvalidState:
            log.info("payment.not_pushed", reason="another charge was first")
        except RateLimitExceeded:
            await self._give_up(account, payment, FailureCode.PAYER_BUSY)

    async def _give_up(self, account: Account, payment: Payment, failure_code: FailureCode) -> None:
        await operations.fail_unpushed(
            self.db, account, payment.id, failure_code, public_url=self.settings.public_url, at=self.clock.now()
        )
        self.bell.ring()

    async def _ask(self, charge: Charge, receive: Receive) -> None:
        """Ask the rail what became of a charge."""
        account = await self._account(charge.account_id)
        async with reading(self.db) as conn:
            payment = await queries.find_payment(conn, charge.account_id, charge.payment_id)
        rail = rail_for(charge.rail, livemode=account.livemode)
        if payment is None or rail is None:
            await self.apply(account, charge, Unknown("the rail is not connected"))
            return
        request = _request(payment, charge, account)
        if owed := rail.owed_notifications(request, at=self._now(account)):
            for body in owed:
                await receive(account, charge.rail, body)
            return
        await self.apply(account, charge, await calls.asked(rail.query_charge(request, at=self._now(account))))

    async def ask_now(self, account: Account, charge: Charge) -> Payment:
        """Ask the rail on somebody's word; what settles nothing changes nothing, also not the schedule."""
        async with reading(self.db) as conn:
            payment = await queries.find_payment(conn, charge.account_id, charge.payment_id)
        rail = rail_for(charge.rail, livemode=account.livemode)
        if payment is None or rail is None:
            raise InvalidState(f"{charge.rail.value} is not connected for this account.")
        outcome = await calls.asked(rail.query_charge(_request(payment, charge, account), at=self._now(account)))
        return payment if isinstance(outcome, Unknown) else await self.apply(account, charge, outcome)

    async def _account(self, account_id: int) -> Account:
        async with reading(self.db) as conn:
            account = await find_account(conn, account_id)
        if account is None:
            raise RuntimeError("a payment belongs to an account")
        return account

    def _now(self, account: Account) -> datetime:
        return account.now(self.clock.now())


def _request(payment: Payment, charge: Charge, account: Account) -> ChargeRequest:
    return ChargeRequest(
        reference=charge.id,
        amount_santim=payment.amount_santim,
        phone=charge.phone,
        title=account.merchant_name,
        started_at=charge.started_at,
        expires_at=payment.expires_at,
        confirmed_at=charge.confirmed_at,
        rail_reference=charge.rail_reference,
    )
