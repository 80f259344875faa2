"""Customers: added, found, changed and erased, each with what it paid."""

import hashlib
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypedDict

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.customers import operations, queries
from zembil.customers.api import CreateCustomer
from zembil.customers.model import Customer
from zembil.customers.operations import CustomerChange, CustomerOrder
from zembil.customers.queries import CustomerFilter
from zembil.dashboard import payments_queries, words
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import DuplicateReference, InvalidState, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.payments.list_queries import PaymentFilter, list_payments
from zembil.web.cursors import taken_page
from zembil.web.fields import METADATA_KEYS_MAX, check_email, check_metadata, check_phone, international
from zembil.webhooks.sender import Bell

PATH = "/customers"
ROWS, _PAYMENTS = 25, 10
# All the metadata that the API takes: 50 times 540 characters, of which a browser makes up to twelve bytes each.
_FORM_BYTES_MAX = 384 * 1024
_LINE_BREAK = "⏎"  # in a value of metadata, which stands on one line


@dataclass(frozen=True, slots=True)
class CustomerPages:
    door: Doorkeeper
    bell: Bell

    def routes(self) -> list[Route]:
        write, erase = Permission.CREATE_TRANSACTIONS, Permission.ERASE_CUSTOMERS
        return [
            page(PATH, self.list),
            page(f"{PATH}/new", self.show_new, write),
            action(f"{PATH}/new", self.create, write, form_bytes_max=_FORM_BYTES_MAX),
            page(f"{PATH}/{{id}}", self.show),
            page(f"{PATH}/{{id}}/edit", self.show_form, write),
            action(f"{PATH}/{{id}}/edit", self.change, write, form_bytes_max=_FORM_BYTES_MAX),
            page(f"{PATH}/{{id}}/erase", self.ask_to_erase, erase),
            action(f"{PATH}/{{id}}/erase", self.erase, erase),
        ]

    async def list(self, visit: Visit) -> Answer:
        parameters = visit.parameters
        search = parameters.take("search", str.strip, "Give an e-mail address, a phone or an id.") or ""
        if ids.parsed(Prefix.CUSTOMER, search) is not None:
            return GoTo(f"{PATH}/{search}")
        asked = taken_page(parameters, "customers", {"search": search}, has_offset=False, limit_default=ROWS)
        parameters.finish()
        async with reading(self.door.db) as conn:
            customers, total = await queries.list_customers(
                conn, visit.account.id, _filter(search), before=asked.last, limit=asked.limit, offset=0
            )
        context = {
            "customers": [(ids.shown(Prefix.CUSTOMER, customer.id), customer) for customer in customers],
            "total": total,
            "next_cursor": asked.next_cursor([customer.id for customer in customers]),
            "search": search,
            "base_url": self.door.settings.base_url(livemode=visit.livemode),
        }
        return Page("customers.html", context)

    async def show(self, visit: Visit) -> Answer:
        customer = await self._customer(visit)
        wanted = PaymentFilter(customer_id=customer.id)
        async with reading(self.door.db) as conn:
            listed, total = await list_payments(conn, visit.account.id, wanted, limit=_PAYMENTS)
            rows = await payments_queries.find_rows(conn, visit.account.id, [payment.id for payment in listed])
        context = {
            "customer": customer,
            "customer_id": visit.value("id"),
            "payments": [(ids.shown(Prefix.PAYMENT, row.id), row, ids.created_at(row.id)) for row in rows],
            "total": total,
            "words": words,
        }
        return Page("customer.html", context)

    async def _customer(self, visit: Visit) -> Customer:
        async with reading(self.door.db) as conn:
            customer = await queries.find_customer(conn, visit.account.id, _customer_id(visit))
        if customer is None:
            raise ResourceNotFound
        return customer

    async def show_new(self, visit: Visit) -> Answer:
        return Page("customer_new.html")

    async def create(self, visit: Visit) -> Answer:
        form = visit.form
        person = _person(form)
        for fault in CreateCustomer.faults_between(lambda name: form.raw(name).strip() or None):
            form.fail(fault.field, fault.message)
        metadata = {key: value for key, value in _metadata_change(form, {}).items() if value is not None}
        if not form.errors:
            order = CustomerOrder(**person, metadata=metadata)
            with _faults_beside_fields(form):
                async with transaction(self.door.db) as conn:
                    customer = await operations.create_customer(conn, visit.account, order, at=visit.at)
                self.bell.ring()
                return GoTo(f"{PATH}/{ids.shown(Prefix.CUSTOMER, customer.id)}", Notice("Added."))
        return Page("customer_new.html", {"form": form}, 400)

    async def show_form(self, visit: Visit) -> Answer:
        customer = await self._customer(visit)
        form = visit.form
        for name in ("name", "email", "phone", "external_id"):
            form.values[name] = getattr(customer, name) or ""
        lines = [_line(key, value) for key, value in customer.metadata.items()]
        form.values["metadata"] = "\n".join(lines)
        form.values["metadata_shown"] = " ".join(map(_mark, lines))
        return self._form_page(visit)

    def _form_page(self, visit: Visit, *, status: int = 200) -> Page:
        return Page(
            "customer_edit.html", {"form": visit.form, "path": visit.path(f"{PATH}/{visit.value('id')}")}, status
        )

    async def change(self, visit: Visit) -> Answer:
        customer = await self._customer(visit)
        form = visit.form
        change = CustomerChange(**_person(form), metadata=_metadata_change(form, customer.metadata))
        if not form.errors:
            with _faults_beside_fields(form):
                async with transaction(self.door.db) as conn:
                    await operations.update_customer(conn, visit.account, customer.id, change, at=visit.at)
                self.bell.ring()
                return GoTo(f"{PATH}/{visit.value('id')}", Notice("Saved."))
        return self._form_page(visit, status=400)

    async def ask_to_erase(self, visit: Visit) -> Answer:
        customer = await self._customer(visit)
        return Page("customer_erase.html", {"customer": customer, "path": visit.path(f"{PATH}/{visit.value('id')}")})

    async def erase(self, visit: Visit) -> Answer:
        try:
            async with transaction(self.door.db) as conn:
                await operations.erase_customer(
                    conn, visit.account, _customer_id(visit), by=visit.principal.actor, at=visit.at
                )
        except InvalidState as error:
            return GoTo(f"{PATH}/{visit.value('id')}", Notice(error.message, is_bad=True))
        return GoTo(PATH, Notice("Erased. What was paid stays, without saying by whom."))


def _customer_id(visit: Visit) -> uuid.UUID:
    customer_id = ids.parsed(Prefix.CUSTOMER, visit.value("id"))
    if customer_id is None:
        raise ResourceNotFound
    return customer_id


def _filter(search: str) -> CustomerFilter:
    """What was typed is an e-mail address, a phone, or the merchant's own id: what there is an index for."""
    if not search:
        return CustomerFilter()
    if "@" in search:
        return CustomerFilter(email=search)
    phone = international(search)
    return CustomerFilter(phone=phone) if phone.startswith("+") else CustomerFilter(external_id=search)


@contextmanager
def _faults_beside_fields(form: Form) -> Generator[None]:
    """What the API would refuse stands in the form."""
    try:
        yield
    except ValidationError as error:
        for fault in error.details:
            form.fail(fault.field, fault.message)
    except DuplicateReference:
        form.fail("external_id", "Another customer has this id of yours.")


class _Person(TypedDict):
    name: str | None
    email: str | None
    phone: str | None
    external_id: str | None


def _person(form: Form) -> _Person:
    """The fields that say who it is; None where one is empty or faulty."""
    phone = international(form.raw("phone").strip())
    form.values["phone"] = phone
    return _Person(
        name=form.text("name", "Give a name of at most 200 characters.", required=False) or None,
        email=form.text("email", "Give an e-mail address.", max_length=254, required=False, check=check_email) or None,
        phone=form.text("phone", "Give a phone number.", max_length=16, required=False, check=check_phone) or None,
        external_id=form.text("external_id", "Give at most 255 characters.", max_length=255, required=False) or None,
    )


def _line(key: str, value: str) -> str:
    """A key and its value as they stand in the form."""
    return _LINE_BREAK.join(f"{key} = {value}".splitlines())


def _mark(line: str) -> str:
    """By which a line is known again, without sending all of it twice."""
    return hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()[:16]


def _lines(text: str) -> list[str]:
    return [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def _metadata_change(form: Form, stored: Mapping[str, str]) -> dict[str, str | None]:
    """What to change of the metadata: the lines that were added, and None for the keys whose lines are gone.

    A line that stands as it was shown changes nothing: not what somebody else has changed since, and not a value that
    a line cannot show exactly.
    """
    shown, lines = set(form.raw("metadata_shown").split()), _lines(form.raw("metadata"))
    if len(lines) > 2 * METADATA_KEYS_MAX:  # as many as may be shown, and as many in their place: no need to read on
        form.fail("metadata", f"There may be at most {METADATA_KEYS_MAX} keys.")
        return {}
    marked = [(_mark(line), line) for line in lines]
    kept = {_key(line) for mark, line in marked if mark in shown}
    given = _read(form, [line for mark, line in marked if mark not in shown], kept)
    if (fault := next(check_metadata(given), None)) is not None:
        form.fail("metadata", f"{fault.field.removeprefix('.')}: {fault.message}" if fault.field else fault.message)
    gone = shown - {mark for mark, _ in marked}
    return {key: None for key, value in stored.items() if _mark(_line(key, value)) in gone} | given


def _read(form: Form, lines: Sequence[str], taken: set[str]) -> dict[str, str | None]:
    """The keys and values of lines that somebody wrote; `taken` are the keys of the others."""
    given: dict[str, str | None] = {}
    for line in lines:
        key, sign, value = _key(line), "=" in line, line.partition("=")[2].strip()
        if not sign or not key or "\0" in line:
            form.fail("metadata", f"“{line.strip()[:40]}” is no key and value: write one key = value on each line.")
        elif key in taken or key in given:
            form.fail("metadata", f"“{key[:40]}” stands there twice; write each key once.")
        given[key] = value.replace(_LINE_BREAK, "\n")
    return given


def _key(line: str) -> str:
    return line.partition("=")[0].strip()
