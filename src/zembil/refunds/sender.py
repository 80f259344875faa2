"""Sends refunds: commit that one is being sent, call the rail, apply what it said. No transaction is open meanwhile."""

import asyncio
import uuid
from dataclasses import dataclass

from zembil.accounts.model import Account
from zembil.accounts.queries import find_account
from zembil.db.clock import Clock
from zembil.db.pool import Database, reading, transaction
from zembil.payments.model import Charge
from zembil.payments.queries import find_charge
from zembil.rails import calls, doubt, rail_for
from zembil.rails.rail import NotSent, Outcome, RefundRequest, Unknown
from zembil.refunds import operations, queries
from zembil.refunds.model import Refund, RefundState
from zembil.webhooks.sender import Bell

_DUE_MAX = 100


@dataclass(frozen=True, slots=True)
class RefundSender:
    """Everything between a refund and its rail."""

    db: Database
    clock: Clock
    bell: Bell

    async def work(self) -> bool:
        """One round of what is due: return surplus money, send, and ask rails; answers whether more may be due."""
        async with reading(self.db) as conn:
            surplus = await queries.list_unreturned_surplus(conn, limit=_DUE_MAX)
        for account_id, charge_id in surplus:
            await calls.guarded(self._return_surplus(account_id, charge_id))
        async with reading(self.db) as conn:
            now = self.clock.now()
            due = await queries.claim_due_refunds(conn, at=now, again_at=now + doubt.SUBMITTING_AT_MOST, limit=_DUE_MAX)
        await asyncio.gather(*(calls.guarded(self._bring_on(refund)) for refund in due))
        return len(due) >= _DUE_MAX

    async def _return_surplus(self, account_id: int, charge_id: uuid.UUID) -> None:
        account = await self._account(account_id)
        async with transaction(self.db) as conn:
            charge = await find_charge(conn, account_id, charge_id)
            returned = charge and await operations.return_surplus(conn, account, charge, at=self.clock.now())
        if returned:  # by nobody before
            self.bell.ring()

    async def _bring_on(self, refund: Refund) -> None:
        """Send a refund that is approved, ask about one that was sent; then commit what its rail said."""
        account = await self._account(refund.account_id)
        if refund.state is RefundState.APPROVED:
            async with transaction(self.db) as conn:
                submitted = await operations.submit_refund(conn, account, refund, at=self.clock.now())
            if submitted is None:
                return
            outcome = await self._started(account, submitted)
        else:
            outcome = await self._asked(account, refund)
        async with transaction(self.db) as conn:
            await operations.apply_outcome(conn, account, refund, outcome, at=self.clock.now())
        self.bell.ring()

    async def _started(self, account: Account, refund: Refund) -> Outcome:
        charge = await self._charge(refund)
        rail = rail_for(charge.rail, livemode=account.livemode)
        if rail is None:
            return NotSent("the rail is not connected")
        return await calls.started(rail.start_refund(_request(refund, charge), at=account.now(self.clock.now())))

    async def _asked(self, account: Account, refund: Refund) -> Outcome:
        charge = await self._charge(refund)
        rail = rail_for(charge.rail, livemode=account.livemode)
        if rail is None:
            return Unknown("the rail is not connected")
        return await calls.asked(rail.query_refund(_request(refund, charge), at=account.now(self.clock.now())))

    async def _charge(self, refund: Refund) -> Charge:
        async with reading(self.db) as conn:
            charge = await find_charge(conn, refund.account_id, refund.charge_id)
        if charge is None:
            raise RuntimeError("a refund returns the money of a charge")
        return charge

    async def _account(self, account_id: int) -> Account:
        async with reading(self.db) as conn:
            account = await find_account(conn, account_id)
        if account is None:
            raise RuntimeError("a refund belongs to an account")
        return account


def _request(refund: Refund, charge: Charge) -> RefundRequest:
    if refund.submitted_at is None:
        raise RuntimeError("a rail hears only of a refund that was recorded as being sent")
    return RefundRequest(
        reference=refund.id,
        amount_santim=refund.amount_santim,
        phone=charge.phone,
        charge_reference=charge.id,
        charge_rail_reference=charge.rail_reference,
        submitted_at=refund.submitted_at,
        rail_reference=refund.rail_reference,
    )
