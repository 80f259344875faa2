"""Merchants, accounts, roles and keys."""

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class Role(StrEnum):
    ADMIN = "admin"
    DEVELOPER = "developer"
    READ_ONLY = "read_only"


@dataclass(frozen=True, slots=True)
class Account:
    """One merchant in one environment; every row belongs to an account."""

    id: int
    merchant_name: str
    livemode: bool
    clock_offset: timedelta  # how far a sandbox's clock was moved forward

    def now(self, at: datetime) -> datetime:
        """The account's time at the instant `at`."""
        return at + self.clock_offset


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: an API key and the account it opens."""

    account: Account
    key_id: uuid.UUID
    role: Role
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """The keys of a new account, readable this once."""

    admin_key: str = field(repr=False)
    developer_key: str = field(repr=False)
    read_only_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class NewMerchant:
    id: uuid.UUID
    sandbox: AccountKeys
    live: AccountKeys
