"""Customers: found, changed and erased, each with what it paid."""

import uuid
from dataclasses import dataclass

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.customers import operations, queries
from zembil.customers.model import Customer
from zembil.customers.operations import CustomerChange
from zembil.customers.queries import CustomerFilter
from zembil.dashboard import payments_queries, words
from zembil.dashboard.forms import Form
from zembil.dashboard.visits import Answer, Doorkeeper, GoTo, Notice, Page, Route, Visit, action, page
from zembil.db.pool import reading, transaction
from zembil.errors import DuplicateReference, InvalidState, ResourceNotFound, ValidationError
from zembil.ids import Prefix
from zembil.payments.list_queries import PaymentFilter, list_payments
from zembil.web.cursors import taken_page
from zembil.web.fields import check_email, check_phone, international
from zembil.webhooks.sender import Bell

PATH = "/customers"
ROWS, _PAYMENTS = 25, 10


@dataclass(frozen=True, slots=True)
class CustomerPages:
    door: Doorkeeper
    bell: Bell

    def routes(self) -> list[Route]:
        write, erase = Permission.CREATE_TRANSACTIONS, Permission.ERASE_CUSTOMERS
        return [
            page(PATH, self.list),
            page(f"{PATH}/{{id}}", self.show),
            page(f"{PATH}/{{id}}/edit", self.show_form, write),
            action(f"{PATH}/{{id}}/edit", self.change, write),
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

    async def show_form(self, visit: Visit) -> Answer:
        customer = await self._customer(visit)
        form = visit.form
        for name in ("name", "email", "phone", "external_id"):
            form.values[name] = getattr(customer, name) or ""
        return self._form_page(visit, form)

    def _form_page(self, visit: Visit, form: Form, *, status: int = 200) -> Page:
        return Page("customer_edit.html", {"form": form, "path": visit.path(f"{PATH}/{visit.value('id')}")}, status)

    async def change(self, visit: Visit) -> Answer:
        change = _change(visit.form)
        if not visit.form.errors and await self._changed(visit, change):
            self.bell.ring()
            return GoTo(f"{PATH}/{visit.value('id')}", Notice("Saved."))
        return self._form_page(visit, visit.form, status=400)

    async def _changed(self, visit: Visit, change: CustomerChange) -> bool:
        """Whether the change is made; otherwise the form says why not. Raises ResourceNotFound."""
        try:
            async with transaction(self.door.db) as conn:
                await operations.update_customer(conn, visit.account, _customer_id(visit), change, at=visit.at)
        except ValidationError as error:
            for fault in error.details:
                visit.form.fail(fault.field, fault.message)
        except DuplicateReference:
            visit.form.fail("external_id", "Another customer has this id of yours.")
        return not visit.form.errors

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


def _change(form: Form) -> CustomerChange:
    phone = international(form.raw("phone").strip())
    form.values["phone"] = phone
    return CustomerChange(
        name=form.text("name", "Give a name of at most 200 characters.", required=False) or None,
        email=form.text("email", "Give an e-mail address.", max_length=254, required=False, check=check_email) or None,
        phone=form.text("phone", "Give a phone number.", max_length=16, required=False, check=check_phone) or None,
        external_id=form.text("external_id", "Give at most 255 characters.", max_length=255, required=False) or None,
    )
