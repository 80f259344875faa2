"""What each role may do: the table that the code, the docs and the dashboard share (decisions, section 6)."""

from enum import StrEnum

from zembil.accounts.model import Role


class Permission(StrEnum):
    VIEW = "view"
    CREATE_TRANSACTIONS = "create transactions"
    DECIDE_REFUNDS = "approve or reject refunds"
    MANAGE_WEBHOOKS = "manage webhooks"
    USE_SANDBOX_TOOLS = "use sandbox tools"
    ERASE_CUSTOMERS = "erase customers"
    MANAGE_KEYS = "manage keys"
    MANAGE_TEAM = "manage the team"
    CHANGE_SETTINGS = "change the account's settings"
    READ_AUDIT_LOG = "read the audit log"
    ASK_ABOUT_DOUBT = "look into charges in doubt"


_EVERYONE = frozenset(Role)
_WRITERS = frozenset({Role.ADMIN, Role.DEVELOPER})
_ADMINS = frozenset({Role.ADMIN})

_SANDBOX: dict[Permission, frozenset[Role]] = {
    Permission.VIEW: _EVERYONE,
    Permission.CREATE_TRANSACTIONS: _WRITERS,
    Permission.DECIDE_REFUNDS: _ADMINS,
    Permission.MANAGE_WEBHOOKS: _WRITERS,
    Permission.USE_SANDBOX_TOOLS: _WRITERS,
    Permission.ERASE_CUSTOMERS: _ADMINS,
    Permission.MANAGE_KEYS: _ADMINS,
    Permission.MANAGE_TEAM: _ADMINS,
    Permission.CHANGE_SETTINGS: _ADMINS,
    Permission.READ_AUDIT_LOG: _ADMINS,
    Permission.ASK_ABOUT_DOUBT: _ADMINS,
}
_LIVE: dict[Permission, frozenset[Role]] = {
    **_SANDBOX,
    Permission.MANAGE_WEBHOOKS: frozenset({Role.ADMIN}),
    Permission.USE_SANDBOX_TOOLS: frozenset(),
}


def allowed(role: Role, permission: Permission, *, livemode: bool) -> bool:
    return role in (_LIVE if livemode else _SANDBOX)[permission]
