"""POST /customers, GET /customers, and GET, PATCH and DELETE /customers/{customer_id}."""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from zembil import ids
from zembil.accounts.permissions import Permission
from zembil.customers import operations, queries
from zembil.customers.model import shown
from zembil.customers.operations import CustomerChange, CustomerOrder
from zembil.customers.queries import CustomerFilter
from zembil.db.pool import Connection, Database, reading, transaction
from zembil.errors import Fault, ResourceNotFound
from zembil.ids import Prefix
from zembil.web import fields
from zembil.web.cursors import taken_page
from zembil.web.idempotency import Once
from zembil.web.parameters import Parameters
from zembil.web.responses import Answer, success
from zembil.web.routing import Call, Route
from zembil.web.validation import must, parsed_body
from zembil.webhooks.sender import Bell

ExternalId = Annotated[str, must("Give a text of 1 to 255 characters.", min_length=1, max_length=255)]


class CreateCustomer(Struct, frozen=True):
    """The body of POST /customers."""

    email: fields.Email | None = None
    phone: fields.Phone | None = None
    name: fields.Name | None = None
    external_id: ExternalId | None = None
    metadata: fields.Metadata | None = None

    @staticmethod
    def faults_between(field: Callable[[str], Any]) -> Iterator[Fault]:
        if field("email") is None and field("phone") is None:
            yield Fault("email", "Give an e-mail address, a phone or both; abebe@example.com, for example.")
            yield Fault("phone", "Give a phone, an e-mail address or both; +251911223344, for example.")


class UpdateCustomer(Struct, frozen=True):
    """The body of PATCH /customers/{customer_id}: absent keeps, null clears, metadata key by key."""

    email: fields.Email | UnsetType | None = UNSET
    phone: fields.Phone | UnsetType | None = UNSET
    name: fields.Name | UnsetType | None = UNSET
    external_id: ExternalId | UnsetType | None = UNSET
    metadata: fields.MetadataChange | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True)
class CustomerEndpoints:
    """The endpoints of the API for customers."""

    db: Database
    once: Once
    bell: Bell

    def routes(self) -> list[Route]:
        write = Permission.CREATE_TRANSACTIONS
        return [
            Route("POST", "/customers", write, self.create),
            Route("GET", "/customers", Permission.VIEW, self.list),
            Route("GET", "/customers/{customer_id}", Permission.VIEW, self.read),
            Route("PATCH", "/customers/{customer_id}", write, self.update),
            Route("DELETE", "/customers/{customer_id}", Permission.ERASE_CUSTOMERS, self.erase),
        ]

    async def create(self, call: Call) -> Answer:
        asked = parsed_body(CreateCustomer, call.body)
        order = CustomerOrder(
            email=asked.email,
            phone=asked.phone,
            name=asked.name,
            external_id=asked.external_id,
            metadata=asked.metadata or {},
        )

        async def work(conn: Connection) -> Answer:
            customer = await operations.create_customer(conn, call.account, order, at=call.at)
            return success(shown(customer, livemode=call.account.livemode), status=201)

        return await self._told(call, work)

    async def update(self, call: Call) -> Answer:
        asked = parsed_body(UpdateCustomer, call.body or b"{}")
        customer_id = _customer_id(call)
        change = CustomerChange(
            email=asked.email,
            phone=asked.phone,
            name=asked.name,
            external_id=asked.external_id,
            metadata=asked.metadata,
        )

        async def work(conn: Connection) -> Answer:
            customer = await operations.update_customer(conn, call.account, customer_id, change, at=call.at)
            return success(shown(customer, livemode=call.account.livemode))

        return await self._told(call, work)

    async def _told(self, call: Call, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Do the work once for its key; what it tells is sent without waiting for the next round."""
        answer = await self.once.answer(call.account.id, call.key, work, at=call.account_at)
        self.bell.ring()
        return answer

    async def read(self, call: Call) -> Answer:
        customer_id = _customer_id(call)
        async with reading(self.db) as conn:
            customer = await queries.find_customer(conn, call.account.id, customer_id)
        if customer is None:
            raise ResourceNotFound
        return success(shown(customer, livemode=call.account.livemode))

    async def list(self, call: Call) -> Answer:
        parameters = Parameters(call.query_string)
        wanted = CustomerFilter(
            email=parameters.take("email", _text, "Give an e-mail address."),
            phone=parameters.take("phone", _text, "Give a phone number in international form, its + written as %2B."),
            external_id=parameters.take("external_id", _text, "Give an external_id."),
        )
        filters = {"email": wanted.email, "phone": wanted.phone, "external_id": wanted.external_id}
        page = taken_page(parameters, "customers", filters)
        parameters.finish()
        async with reading(self.db) as conn:
            customers, total = await queries.list_customers(
                conn, call.account.id, wanted, before=page.last, limit=page.limit, offset=page.offset
            )
        return success(
            {
                "customers": [shown(customer, livemode=call.account.livemode) for customer in customers],
                "pagination": page.pagination([customer.id for customer in customers], total=total),
            }
        )

    async def erase(self, call: Call) -> Answer:
        customer_id = _customer_id(call)
        async with transaction(self.db) as conn:
            await operations.erase_customer(conn, call.account, customer_id, by=call.principal.actor, at=call.at)
        return success({"id": ids.shown(Prefix.CUSTOMER, customer_id), "deleted": True})


def _customer_id(call: Call) -> uuid.UUID:
    customer_id = ids.parsed(Prefix.CUSTOMER, call.path_values[0])
    if customer_id is None:
        raise ResourceNotFound
    return customer_id


def _text(text: str) -> str | None:
    return text or None
