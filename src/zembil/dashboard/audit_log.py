"""Settings → Audit log: who did what that somebody may have to answer for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from zembil.accounts.model import AuditAction
from zembil.accounts.permissions import Permission
from zembil.dashboard import audit_log_queries, people_queries
from zembil.dashboard.audit_log_queries import AuditFilter, AuditRow
from zembil.dashboard.rendering import browser_name
from zembil.dashboard.visits import Answer, Doorkeeper, Page, Route, Visit, page
from zembil.db.pool import reading
from zembil.web.cursors import taken_page

PATH = "/settings/audit-log"
_LIMIT = 25

WORDS: dict[AuditAction, str] = {
    AuditAction.KEY_CREATED: "made an API key",
    AuditAction.KEY_ROLLED: "rolled an API key",
    AuditAction.KEY_EXPIRY_CHANGED: "changed when an API key ends",
    AuditAction.KEY_REVOKED: "revoked an API key",
    AuditAction.ENDPOINT_REGISTERED: "registered an endpoint",
    AuditAction.ENDPOINT_CHANGED: "changed an endpoint",
    AuditAction.ENDPOINT_DELETED: "deleted an endpoint",
    AuditAction.SECRET_ROTATED: "gave an endpoint a new secret",
    AuditAction.REFUND_APPROVED: "approved a refund",
    AuditAction.REFUND_REJECTED: "rejected a refund",
    AuditAction.CUSTOMER_ERASED: "erased a customer",
    AuditAction.CHARGE_RESOLVED: "said what became of a charge in doubt",
    AuditAction.REFUND_RESOLVED: "said what became of a refund in doubt",
    AuditAction.SIGNED_IN: "signed in",
    AuditAction.SESSION_ENDED: "signed a browser out",
    AuditAction.LOCKED_OUT: "locked somebody out after wrong guesses",
    AuditAction.RECOVERY_CODE_USED: "used a recovery code",
    AuditAction.PASSWORD_SET: "set a new password",
    AuditAction.SECOND_STEP_ON: "turned the second step on",
    AuditAction.SECOND_STEP_OFF: "turned the second step off",
    AuditAction.USER_CHANGED: "changed name or e-mail",
    AuditAction.RESET_LINK_MADE: "made a link to reset a password",
    AuditAction.USER_INVITED: "invited somebody",
    AuditAction.USER_JOINED: "came by an invitation",
    AuditAction.ROLE_CHANGED: "changed a role",
    AuditAction.USER_REMOVED: "removed somebody from the team",
    AuditAction.SETTINGS_CHANGED: "changed the account",
    AuditAction.SELF_APPROVAL_ASKED: "asked for a change of who approves refunds",
    AuditAction.SELF_APPROVAL_REFUSED: "put an end to a change that was asked for",
}


@dataclass(frozen=True, slots=True)
class AuditLogPages:
    door: Doorkeeper

    def routes(self) -> list[Route]:
        return [page(PATH, self.list, Permission.READ_AUDIT_LOG)]

    async def list(self, visit: Visit) -> Answer:
        parameters = visit.parameters
        date_from, date_to = parameters.dates(visit.zone)
        wanted = AuditFilter(
            action=parameters.take("action", _action, "Choose one of the actions."),
            actor=parameters.take("actor", str, "Choose somebody."),
            object=parameters.take("object", str, "Give an id."),
            since=date_from,
            until=date_to + timedelta(milliseconds=1) if date_to else None,
        )
        filters = {
            "action": wanted.action,
            "actor": wanted.actor,
            "object": wanted.object,
            "since": wanted.since,
            "until": wanted.until,
        }
        asked = taken_page(parameters, "audit", filters, has_offset=False, limit_default=_LIMIT)
        parameters.finish()
        async with reading(self.door.db) as conn:
            rows = await audit_log_queries.list_entries(
                conn, visit.account.id, wanted, before=asked.last, limit=asked.limit
            )
            people = await people_queries.names_of_people(conn, visit.user.merchant_id)
            key_ids = [row.key_id for row in rows if row.key_id is not None]
            keys = await people_queries.names_of_keys(conn, visit.account.id, key_ids)
        context = {
            "log_rows": [
                (
                    row,
                    people.get(row.actor, row.actor),
                    _through(row, keys.get(row.key_id) if row.key_id else None),
                    WORDS[AuditAction(row.action)] if row.action in list(AuditAction) else row.action,
                    people.get(row.object, row.object),
                    list(_told(row)),
                )
                for row in rows
            ],
            "actions": [(action.value, WORDS[action][0].upper() + WORDS[action][1:]) for action in AuditAction],
            "people": sorted(people.items(), key=lambda one: one[1]),
            "next_cursor": asked.next_cursor([row.id for row in rows]),
        }
        return Page("audit_log.html", context)


def _told(row: AuditRow) -> Iterator[tuple[str, str | None, str]]:
    """The details: what, what it was before if that is told, and what it is."""
    for name, value in row.details.items():
        if not name.endswith("_was"):
            shown = browser_name(str(value)) if name == "browser" else value
            was = f"{name}_was"
            yield name.replace("_", " "), _shown(row.details[was]) if was in row.details else None, _shown(shown)


def _shown(value: object) -> str:
    return "–" if value is None else str(value)


def _through(row: AuditRow, key_name: str | None) -> str:
    """By which way it was done."""
    if row.actor_kind == "operator":
        return "operator, at the machine"
    if row.actor_kind == "system":
        return "by itself"
    return f"with the API key {key_name}" if key_name else "in the dashboard"


def _action(text: str) -> AuditAction | None:
    return AuditAction(text) if text in list(AuditAction) else None
