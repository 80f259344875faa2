"""A client that a public generator makes of /openapi.json: it is complete, and it can be used."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_dev import eventually
from tests.support.gateway import Gateway, Merchant
from tests.support.reference import document_of, operations

PACKAGE = "generated_zembil_client"


class Generated:
    """The generated package, and a client of it with an admin's key of the sandbox."""

    def __init__(self, merchant: Merchant) -> None:
        self._client = self.module("client").AuthenticatedClient(
            base_url=f"{merchant.origin}/sandbox/v1",
            token=merchant.sandbox["admin_key"],
            raise_on_unexpected_status=True,
        )

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{name}")

    def model(self, kind: str, /, *values: Any, **fields: Any) -> Any:
        return getattr(self.module("models"), kind)(*values, **fields)

    def order(self, **fields: Any) -> Any:
        return self.model("CreatePayment", currency=self.model("CreatePaymentCurrency", "ETB"), **fields)

    def answer(self, operation: str, *path_values: str, status: int = 200, **arguments: Any) -> Any:
        """The answer of an operation, named `<tag>.<id>`: of the type that belongs to its status."""
        answer = self.module(f"api.{operation}").sync_detailed(*path_values, client=self._client, **arguments)
        assert answer.status_code == status, answer.content
        return answer.parsed

    def call(self, operation: str, *path_values: str, status: int = 200, **arguments: Any) -> Any:
        """What a successful answer holds."""
        return self.answer(operation, *path_values, status=status, **arguments).data

    def close(self) -> None:
        self._client.get_httpx_client().close()


@pytest.fixture(scope="module")
def package(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, as the generator makes it of the document that is served, without a word of complaint."""
    place = tmp_path_factory.mktemp("generated")
    document, config = place / "openapi.json", place / "config.json"
    document.write_bytes(httpx2.get(f"{gateway.origin}/openapi.json").content)
    config.write_text(json.dumps({"post_hooks": []}))  # it would tidy up with tools that may not be there
    command = [
        *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"),
        *("--path", str(document), "--config", str(config), "--output-path", str(place / PACKAGE)),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (said.returncode, said.stderr) == (0, ""), said.stdout + said.stderr
    assert said.stdout.split() == ["Generating", str(place / PACKAGE)]
    sys.path.insert(0, str(place))
    yield place / PACKAGE
    sys.path.remove(str(place))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture
def client(package: Path, merchant: Merchant) -> Iterator[Generated]:
    made = Generated(merchant)
    yield made
    made.close()


def test_a_generated_client_has_every_operation(gateway: Gateway, package: Path) -> None:
    made = {path.stem for path in package.glob("api/*/*.py")} - {"__init__"}
    assert made == {one.id for one in operations(document_of(gateway.origin))}


def test_a_generated_client_creates_reads_lists_and_refunds_a_payment(client: Generated) -> None:
    customer = client.model("CustomerOfPayment", phone="+251911223344", name="Abebe")
    order = client.order(amount=150.5, customer=customer, reference="1042")
    created = client.call("payments.create_payment", body=order, idempotency_key="order-1042", status=201)
    assert created.payment_link.startswith("http")
    again = client.call("payments.create_payment", body=order, idempotency_key="order-1042", status=201)
    assert again == created

    read = client.call("payments.get_payment", created.id)
    assert (read.status, read.amount, read.reference) == ("pending", 150.5, "1042")
    listed = client.call("payments.list_payments", reference="1042")
    assert ([payment.id for payment in listed.payments], listed.pagination.total) == ([created.id], 1)

    paid = client.call("sandbox.complete_sandbox_payment", created.id)
    assert (paid.status, paid.transaction_id[:4]) == ("completed", "txn_")
    asked = client.model("CreateRefund", payment_id=created.id, amount=50.25, reason="One was broken")
    refund = client.call("refunds.create_refund", body=asked, status=201)
    assert refund.status == "pending_approval"
    assert client.call("refunds.approve_refund", refund.id).approved_by == refund.requested_by
    assert eventually(lambda: client.call("refunds.get_refund", refund.id).status == "completed", seconds=10)
    assert client.call("payments.get_payment", created.id).amount_refunded == 50.25


def test_a_generated_client_pages_through_a_list(client: Generated) -> None:
    customers = [client.model("CreateCustomer", email=f"{number}@example.com") for number in range(3)]
    ids = [client.call("customers.create_customer", body=customer, status=201).id for customer in customers]
    first = client.call("customers.list_customers", limit=2)
    rest = client.call("customers.list_customers", limit=2, cursor=first.pagination.next_cursor)
    assert [customer.id for customer in first.customers + rest.customers] == ids[::-1]


def test_a_generated_client_understands_a_refusal(client: Generated) -> None:
    refused = client.answer("payments.create_payment", body=client.order(amount=-1), status=400)
    assert refused.error.code == "validation_error"
    assert [fault.field for fault in refused.error.details] == ["amount"]
