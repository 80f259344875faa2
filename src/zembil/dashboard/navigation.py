"""What the dashboard's menu holds, in this order. An entry shows once its page is there, to those who may open it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zembil.accounts.model import Role
from zembil.accounts.permissions import Permission, allowed


@dataclass(frozen=True, slots=True)
class Entry:
    label: str
    path: str  # inside the environment
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    label: str
    entries: tuple[Entry, ...]


MENU = (
    Group(
        "",
        (
            Entry("Home", ""),
            Entry("Payments", "/payments"),
            Entry("Refunds", "/refunds"),
            Entry("Customers", "/customers"),
            Entry("Balance", "/balance"),
        ),
    ),
    Group("Developers", (Entry("Request log", "/requests"), Entry("Inbox", "/inbox"))),
    Group(
        "Settings",
        (
            Entry("API keys", "/settings/api-keys"),
            Entry("Webhooks", "/settings/webhooks"),
            Entry("Team", "/settings/team"),
            Entry("Account", "/settings/account"),
            Entry("Audit log", "/settings/audit-log"),
        ),
    ),
)


def menu(permissions: Mapping[str, Permission], role: Role, *, livemode: bool, here: str, base: str) -> Iterable[Group]:
    """The menu for a role: of the pages that are there (`permissions` by path), those that it may open."""
    for group in MENU:
        entries = tuple(
            Entry(entry.label, base + entry.path, _leads_to(entry.path, here))
            for entry in group.entries
            if entry.path in permissions and allowed(role, permissions[entry.path], livemode=livemode)
        )
        if entries:
            yield Group(group.label, entries)


def _leads_to(path: str, here: str) -> bool:
    return here == path or (path != "" and here.startswith(path + "/"))
