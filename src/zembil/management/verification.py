"""What must add up, recomputed row by row from what the rows themselves say."""

from dataclasses import dataclass
from typing import LiteralString

from zembil import ids
from zembil.db.pool import connection
from zembil.ids import Prefix
from zembil.management import queries
from zembil.management.queries import Mismatch


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, and the statement that finds where it does not."""

    name: str
    statement: LiteralString
    prefix: Prefix | None = None  # what its rows are


CHECKS = (
    Check("every debit is a credit", queries.DEBITS_ARE_CREDITS),
    Check("balances are the sums of their entries", queries.BALANCES_ARE_SUMS_OF_ENTRIES),
    Check("money that came is booked, and nothing else", queries.CHARGES_ARE_BOOKED, Prefix.CHARGE),
    Check("money that goes back is booked, and nothing else", queries.REFUNDS_ARE_BOOKED, Prefix.REFUND),
    Check("a payment is completed if a charge succeeded", queries.COMPLETED_PAYMENTS_ARE_PAID, Prefix.PAYMENT),
    Check("refunds are at most their payment", queries.REFUNDS_ARE_WITHIN_PAYMENTS, Prefix.PAYMENT),
    Check("what is reserved is the sum of the refunds", queries.RESERVED_IS_THE_SUM_OF_REFUNDS, Prefix.PAYMENT),
    Check(
        "what is refunded is the sum of the completed refunds",
        queries.REFUNDED_IS_THE_SUM_OF_COMPLETED_REFUNDS,
        Prefix.PAYMENT,
    ),
    Check("surplus goes back up to what came", queries.SURPLUS_REFUNDS_ARE_WHAT_CAME, Prefix.REFUND),
    Check("totals of lists are the rows there are", queries.COUNTS_ARE_COUNTED),
    Check("the volume is the sum of the completed payments", queries.VOLUME_IS_THE_SUM_OF_PAYMENTS),
    Check("the end of a payment was told once", queries.ENDS_ARE_TOLD_ONCE, Prefix.PAYMENT),
    Check("nothing in the audit log was changed or taken out", queries.AUDIT_LOG_IS_WHOLE, Prefix.AUDIT_ENTRY),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one check."""

    check: Check
    mismatch: Mismatch | None

    @property
    def first_wrong(self) -> str | None:
        """The first row that is wrong, in words."""
        wrong = self.mismatch
        if wrong is None:
            return None
        row = "" if wrong.id is None or self.check.prefix is None else f"{ids.shown(self.check.prefix, wrong.id)} of "
        return f"{row}account {wrong.account_id}: {wrong.named} should be {wrong.expected}, found {wrong.found}"


async def verify(database_url: str) -> list[Verdict]:
    """Every check, on one snapshot of the database; nothing is written and nobody has to wait."""
    async with connection(database_url) as conn:
        await queries.begin_snapshot(conn)
        return [Verdict(check, await queries.find_mismatch(conn, check.statement)) for check in CHECKS]
