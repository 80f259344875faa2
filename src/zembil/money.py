"""Exact amounts. Inside Zembil money is an integer number of santim (1/100 birr), never a float."""

from decimal import Context, Decimal, Inexact, InvalidOperation

CURRENCY = "ETB"

# A context that refuses to round: an amount is exact or it is no amount.
_EXACT = Context(prec=40, traps=[Inexact, InvalidOperation])
_SANTIM = Decimal("0.01")


def santim_of(amount: Decimal) -> int | None:
    """The amount (birr) in santim, or None if it has more than two decimals or forty digits."""
    if not amount.is_finite():
        return None
    try:
        return int(_EXACT.quantize(amount, _SANTIM).scaleb(2, _EXACT))
    except (Inexact, InvalidOperation):
        return None


def birr_of(santim: int) -> Decimal:
    """The amount in birr with exactly two decimals, as it stands in every answer."""
    return Decimal(santim).scaleb(-2)


def shown(santim: int) -> str:
    """The amount as people read it: `1,500.00`."""
    return f"{santim // 100:,}.{santim % 100:02d}"
