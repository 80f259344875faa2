"""What an operator can find out."""

from enum import StrEnum


class Finding(StrEnum):
    """What became of a charge or a refund that was in doubt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SURPLUS = "surplus"  # another amount came by a charge, and is returned
    UNSENT = "unsent"  # a refund that certainly never left
