"""Merchants, accounts, roles and keys."""

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from zembil import ids
from zembil.ids import Prefix


class Role(StrEnum):
    ADMIN = "admin"
    DEVELOPER = "developer"
    READ_ONLY = "read_only"


class LateMoney(StrEnum):
    """What is done with money for a payment that had failed or expired."""

    ACCEPT = "accept"
    REFUND = "refund"


@dataclass(frozen=True, slots=True)
class Account:
    """One merchant in one environment; every row belongs to an account."""

    id: int
    merchant_name: str
    livemode: bool
    clock_offset: timedelta  # how far a sandbox's clock was moved forward
    late_money: LateMoney
    allow_self_approval: bool  # whether one may approve the refunds that one asked for
    merchant_name_am: str | None = None
    time_zone: str = "Africa/Addis_Ababa"
    payment_lifetime_seconds: int = 3600  # of payments that ask for no other

    def name_in(self, language: str) -> str:
        """The merchant's name on pages in a language, `en` or `am`."""
        return self.merchant_name_am if language == "am" and self.merchant_name_am else self.merchant_name

    def now(self, at: datetime) -> datetime:
        """The account's time at the instant `at`."""
        return at + self.clock_offset


class ActorKind(StrEnum):
    USER = "user"
    OPERATOR = "operator"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did what the audit log tells of."""

    kind: ActorKind
    name: str  # usr_…, or an operator's name
    key_id: uuid.UUID | None = None  # through which a user did it


class AuditAction(StrEnum):
    """What the audit log tells of: what somebody may have to answer for."""

    KEY_CREATED = "key.created"
    KEY_ROLLED = "key.rolled"
    KEY_EXPIRY_CHANGED = "key.expiry_changed"
    KEY_REVOKED = "key.revoked"
    ENDPOINT_REGISTERED = "endpoint.registered"
    ENDPOINT_CHANGED = "endpoint.changed"
    ENDPOINT_DELETED = "endpoint.deleted"
    SECRET_ROTATED = "endpoint.secret_rotated"  # noqa: S105  (what was done, not a secret)
    REFUND_APPROVED = "refund.approved"
    REFUND_REJECTED = "refund.rejected"
    CUSTOMER_ERASED = "customer.erased"
    CHARGE_RESOLVED = "charge.resolved"
    REFUND_RESOLVED = "refund.resolved"
    SIGNED_IN = "user.signed_in"
    SESSION_ENDED = "user.session_ended"
    LOCKED_OUT = "user.locked_out"
    RECOVERY_CODE_USED = "user.recovery_code_used"
    PASSWORD_SET = "user.password_set"  # noqa: S105
    SECOND_STEP_ON = "user.second_step_on"
    SECOND_STEP_OFF = "user.second_step_off"
    USER_CHANGED = "user.changed"
    RESET_LINK_MADE = "user.reset_link_made"
    USER_INVITED = "user.invited"
    USER_JOINED = "user.joined"
    ROLE_CHANGED = "user.role_changed"
    USER_REMOVED = "user.removed"
    SETTINGS_CHANGED = "settings.changed"
    SELF_APPROVAL_ASKED = "settings.self_approval_asked"
    SELF_APPROVAL_REFUSED = "settings.self_approval_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What somebody did, as it is kept for good."""

    account_id: int
    id: uuid.UUID  # of the database's time, which is when it was done
    actor: Actor
    action: AuditAction
    object: str  # the id of what it was done to, as it is shown
    details: dict[str, str | int | None]  # never a secret


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling: an API key and the account it opens."""

    account: Account
    key_id: uuid.UUID  # in the dashboard: the session's id
    user_id: uuid.UUID  # in whose name the key was made
    role: Role
    expires_at: datetime | None
    rate_limit: int | None = None  # requests in any 60 seconds; None: the account's limit alone
    last_used_at: datetime | None = None  # as it is recorded, once a minute

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.USER, ids.shown(Prefix.USER, self.user_id), self.key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is kept: without its secret."""

    account_id: int
    id: uuid.UUID
    user_id: uuid.UUID  # in whose name it was made
    name: str
    role: Role
    last_four: str
    expires_at: datetime | None = None
    rate_limit: int | None = None
    last_used_at: datetime | None = None

    def expired(self, *, at: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= at


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """The keys of a new account, readable this once."""

    admin_key: str = field(repr=False)
    developer_key: str = field(repr=False)
    read_only_key: str = field(repr=False)


class LinkKind(StrEnum):
    """What a link that works once is for."""

    SIGN_IN = "sign_in"
    INVITATION = "invitation"
    PASSWORD_RESET = "password_reset"  # noqa: S105  (a kind of link)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person with a role in a merchant."""

    id: uuid.UUID
    merchant_id: uuid.UUID
    merchant_name: str
    name: str
    role: Role
    email: str | None = None
    password_hash: str | None = field(default=None, repr=False)
    sealed_totp: bytes | None = field(default=None, repr=False)
    totp_since: datetime | None = None
    totp_locked_until: datetime | None = None

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.USER, ids.shown(Prefix.USER, self.id))

    @property
    def has_second_step(self) -> bool:
        return self.totp_since is not None

    @property
    def is_invited(self) -> bool:
        """Whether the person was asked to come and has not come yet."""
        return self.email is not None and self.password_hash is None

    @property
    def totp_binding(self) -> str:
        """What the secret of the second step is sealed with: it opens in this row only."""
        return f"users.sealed_totp|{self.id}|{self.merchant_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A browser in which somebody is signed in, or half-way: then the code is still to come."""

    id: uuid.UUID
    user: User
    awaits_code: bool
    has_second_step: bool  # a code was given in it
    address: str
    browser: str
    seen_at: datetime
    expires_at: datetime

    @property
    def needs_code(self) -> bool:
        """Whether it opens nothing without a code; also if it began before the second step was set up."""
        return self.awaits_code or (self.user.has_second_step and not self.has_second_step)

    @property
    def totp_binding(self) -> str:
        """What a secret that waits here to be confirmed is sealed with: no other session confirms it."""
        return f"sessions.proposed_totp|{self.id}|{self.user.id}"


@dataclass(frozen=True, slots=True)
class NewMerchant:
    id: uuid.UUID
    admin_id: uuid.UUID  # its first user
    sandbox: AccountKeys
    live: AccountKeys
