"""What is done about what is in doubt: its rail is asked, or an operator who knows says what became of it."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from zembil import ids, money
from zembil.accounts.model import Account, Actor, AuditAction
from zembil.accounts.operations import audit
from zembil.accounts.queries import find_account
from zembil.db.pool import Connection, Database, UniqueViolation, reading, transaction
from zembil.errors import InvalidState, ResourceNotFound
from zembil.ids import Prefix
from zembil.management import queries
from zembil.management.model import Finding
from zembil.payments import operations as payments
from zembil.payments.charger import Charger
from zembil.payments.model import Charge, ChargeState, FailureCode, Payment
from zembil.payments.queries import find_charge, lock_payment
from zembil.rails.rail import Failed, Outcome, Succeeded
from zembil.refunds import operations as refunds
from zembil.refunds.lifecycle import failed_all_the_same, sent_again
from zembil.refunds.model import Refund, RefundState
from zembil.refunds.queries import find_refund
from zembil.telemetry import log

IN_DOUBT = frozenset({ChargeState.IN_DOUBT, ChargeState.NEEDS_REVIEW})
_BY_THE_OPERATOR = "operator"


async def ask_about_charge(charger: Charger, account: Account, charge_id: uuid.UUID) -> tuple[Charge, Payment]:
    """Ask the rail now what became of a charge in doubt. Raises ResourceNotFound, InvalidState."""
    async with reading(charger.db) as conn:
        charge = await find_charge(conn, account.id, charge_id)
    if charge is None:
        raise ResourceNotFound
    if charge.state not in IN_DOUBT:
        raise InvalidState("This charge is not in doubt; GET its payment to see what became of it.")
    payment = await charger.ask_now(account, charge)
    async with reading(charger.db) as conn:
        return await find_charge(conn, account.id, charge_id) or charge, payment


async def resolve_charge(
    db: Database, charge_id: uuid.UUID, finding: Finding, *, reason: str, by: Actor, public_url: str, at: datetime
) -> Payment:
    """Commit what the operator found out about a charge in doubt, and that it was the operator.

    Raises ResourceNotFound if there is no such charge in doubt, InvalidState for what cannot be of a charge.
    """
    async with reading(db) as conn:
        doubtful = await queries.find_doubtful_charge(conn, charge_id)
        account = None if doubtful is None else await find_account(conn, doubtful.account_id)
    if doubtful is None or account is None:
        raise _nothing_in_doubt()
    if finding is Finding.UNSENT:
        raise InvalidState("Only a refund is sent again. A charge that never left has failed: say --as failed.")

    async def commit() -> Payment:
        async with transaction(db) as conn:
            await lock_payment(conn, account.id, doubtful.payment_id)
            charge = await find_charge(conn, account.id, charge_id)
            if charge is None or charge.state not in IN_DOUBT:
                raise _nothing_in_doubt()
            if finding is Finding.SURPLUS:
                payment = await payments.set_apart_in(conn, account, charge, public_url=public_url, at=at)
            else:
                outcome = _outcome(finding, charge, amount_santim=doubtful.amount_santim)
                payment = await payments.apply_outcome_in(conn, account, charge, outcome, public_url=public_url, at=at)
            resolved = Resolved(ids.shown(Prefix.CHARGE, charge_id), finding, reason, payment.status.value)
            await _record(conn, account, AuditAction.CHARGE_RESOLVED, resolved, by=by, at=at)
            return payment

    try:
        return await commit()
    except UniqueViolation:
        # As payments.apply_outcome does: another payment took the reference in this moment, so the money is surplus.
        return await commit()


def _outcome(finding: Finding, charge: Charge, *, amount_santim: int) -> Outcome:
    """What its rail would have said. Raises InvalidState where another amount came than the payment's."""
    if charge.received_santim is not None:
        raise InvalidState(
            f"{money.shown(charge.received_santim)} {money.CURRENCY} came by this charge, where the payment asks for "
            f"{money.shown(amount_santim)}. Say --as surplus to have it returned. If the wallet names the payment's "
            "amount by now, have it asked again with POST /charges/{id}/ask."
        )
    if finding is Finding.SUCCEEDED:
        return Succeeded(amount_santim)
    return Failed(FailureCode.DECLINED, _BY_THE_OPERATOR)


async def resolve_refund(
    db: Database, refund_id: uuid.UUID, finding: Finding, *, reason: str, by: Actor, at: datetime
) -> Refund:
    """Commit what the operator found out about a refund in doubt; answers it, or the one that takes its place.

    Raises ResourceNotFound if there is no such refund in doubt, InvalidState for what cannot be of it.
    """
    async with reading(db) as conn:
        doubtful = await queries.find_doubtful_refund(conn, refund_id)
        account = None if doubtful is None else await find_account(conn, doubtful.account_id)
    if doubtful is None or account is None:
        raise _nothing_in_doubt()
    if finding is Finding.SURPLUS:
        raise InvalidState("Only a charge brings surplus money. Say --as succeeded, --as failed or --as unsent.")
    async with transaction(db) as conn:
        found = await find_refund(conn, account.id, refund_id)
        if found is None:
            raise _nothing_in_doubt()
        _, refund = await refunds.lock_refund(conn, account, found)
        # Looked for again, now that its row is held: it may have ended meanwhile.
        if await queries.find_doubtful_refund(conn, refund_id) is None:
            raise _nothing_in_doubt()
        resolved_refund = await _RESOLUTIONS[finding](conn, account, refund, at)
        resolved = Resolved(
            ids.shown(Prefix.REFUND, refund_id),
            finding,
            reason,
            resolved_refund.status.value,
            None if resolved_refund.id == refund_id else ids.shown(Prefix.REFUND, resolved_refund.id),
        )
        await _record(conn, account, AuditAction.REFUND_RESOLVED, resolved, by=by, at=at)
    return resolved_refund


async def _it_succeeded(conn: Connection, account: Account, refund: Refund, at: datetime) -> Refund:
    await refunds.apply_outcome(conn, account, refund, Succeeded(refund.amount_santim), at=at)
    resolved = await find_refund(conn, account.id, refund.id) or refund
    if resolved.state is not RefundState.COMPLETED:
        raise InvalidState(
            "What this refund had reserved was refunded another way since, so its money went twice. "
            "Claim it back from the wallet's network, then say --as failed."
        )
    return resolved


async def _it_failed(conn: Connection, account: Account, refund: Refund, at: datetime) -> Refund:
    if refund.state is not RefundState.FAILED:
        await refunds.apply_outcome(
            conn, account, refund, Failed(FailureCode.PROVIDER_REJECTED, _BY_THE_OPERATOR), at=at
        )
        return await find_refund(conn, account.id, refund.id) or refund
    if refund.late_success_at is None:
        raise InvalidState(
            "This refund has failed already, and its money is still here. Say --as unsent to have it sent again, or "
            "--as succeeded once the payer has it back another way."
        )
    return await refunds.write(conn, account, failed_all_the_same(refund), at=at)


async def _it_never_left(conn: Connection, account: Account, refund: Refund, at: datetime) -> Refund:
    if refund.state is not RefundState.FAILED:
        change = sent_again(refund, at=at)
        if change is None:
            raise InvalidState(
                "The wallet's network had taken this refund; sent again it could be paid twice. "
                "Say --as succeeded or --as failed."
            )
        return await refunds.write(conn, account, change, at=at)
    charge = await find_charge(conn, account.id, refund.charge_id)
    if charge is None or not refund.of_surplus or refund.late_success_at is not None:
        raise InvalidState("The wallet's network says that this refund was paid. Say --as succeeded or --as failed.")
    again = await refunds.return_surplus(conn, account, charge, at=at, again=True)
    if again is None:
        raise InvalidState("This money is being returned already.")
    return again


_RESOLUTIONS = {Finding.SUCCEEDED: _it_succeeded, Finding.FAILED: _it_failed, Finding.UNSENT: _it_never_left}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was resolved as what, and what came of it."""

    id: str
    finding: Finding
    reason: str
    status: str  # of the payment, or of the refund
    replaced_by: str | None = None


async def _record(
    conn: Connection, account: Account, action: AuditAction, resolved: Resolved, *, by: Actor, at: datetime
) -> None:
    details = {"finding": resolved.finding.value, "reason": resolved.reason, "status": resolved.status}
    if resolved.replaced_by is not None:
        details["replaced_by"] = resolved.replaced_by
    await audit(conn, account.id, by, action, resolved.id, at=at, **details)
    log.warning("doubt.resolved", account=account.id, id=resolved.id, by=by.name, **details)


def _nothing_in_doubt() -> ResourceNotFound:
    return ResourceNotFound("Nothing in doubt has this id; `zembil doubt list` shows what there is.")
