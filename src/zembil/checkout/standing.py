"""How a payment stands, as far as its page shows it: a page is out of date when its version is another one."""

import hashlib
import uuid
from dataclasses import dataclass

from zembil.payments.model import Charge, Payment, PaymentStatus


@dataclass(frozen=True, slots=True)
class Standing:
    """What has to change before the page of a payment says something else."""

    status: str
    sequence: int
    refunded_santim: int
    charge_id: uuid.UUID | None  # of the last charge
    charge_state: str | None

    @property
    def version(self) -> str:
        """Opaque: it tells two standings apart, and nothing of either."""
        shown = f"{self.status} {self.sequence} {self.refunded_santim} {self.charge_id} {self.charge_state}"
        return hashlib.blake2s(shown.encode(), digest_size=8).hexdigest()

    @property
    def is_final(self) -> bool:
        return self.status != PaymentStatus.PENDING.value


def standing_of(payment: Payment, charge: Charge | None) -> Standing:
    """How a payment stands; `charge` is its last."""
    return Standing(
        payment.status.value,
        payment.sequence,
        payment.refunded_santim,
        charge.id if charge else None,
        charge.state.value if charge else None,
    )
