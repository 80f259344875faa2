"""/openapi.json: complete, sound in itself, and there for everyone."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.gateway import Gateway, Merchant
from tests.support.reference import Document, document_of, operations
from tests.support.schemas import resolved
from zembil.reference.operations import OPERATIONS
from zembil.webhooks.model import EventType

UNKNOWN = {
    name: f"{prefix}_00000000000000000000000000"
    for name, prefix in {
        "payment": "pay", "refund": "ref", "customer": "cus", "webhook": "whk", "key": "key", "charge": "chg",
    }.items()
}  # fmt: skip


@pytest.fixture
def document(gateway: Gateway) -> Document:
    return document_of(gateway.origin)


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    parts: list[Any] = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for part in parts:
        yield from _nodes(part)


def test_every_route_is_described_and_nothing_else(document: Document) -> None:
    # The document is made of the very routes that are served, and refuses one without a description.
    assert {(one.method, one.path) for one in operations(document)} == set(OPERATIONS)


def test_every_reference_leads_somewhere(document: Document) -> None:
    references = {node["$ref"] for node in _nodes(document) if isinstance(node.get("$ref"), str)}
    assert len(references) > 50
    for reference in references:
        assert resolved(document, reference)


def test_no_schema_is_described_for_nothing(document: Document) -> None:
    references = {node["$ref"] for node in _nodes(document) if isinstance(node.get("$ref"), str)}
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert schemas <= references


def test_every_operation_has_a_name_of_its_own(document: Document) -> None:
    names = [one.id for one in operations(document)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


def test_every_operation_tells_its_parameters_and_its_refusals(document: Document) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    for one in operations(document):
        in_path = [parameter["name"] for parameter in one.operation["parameters"] if parameter.get("in") == "path"]
        assert in_path == re.findall(r"\{([a-z_]+)\}", one.path)
        assert set(one.operation["tags"]) <= tags
        assert {"401", "403", "429", "500", "503"} <= one.operation["responses"].keys()
        keyed = {"$ref": "#/components/parameters/idempotency_key"} in one.operation["parameters"]
        assert keyed == (one.method in ("POST", "PATCH"))
        assert ("404" in one.operation["responses"]) >= bool(in_path)


def test_every_body_has_an_example_and_examples_are_valid(document: Document, merchant: Merchant) -> None:
    bodies = {one.id: one.operation["requestBody"] for one in operations(document) if "requestBody" in one.operation}
    assert len(bodies) > 20
    api = merchant.client()
    for one in operations(document):
        if one.id in bodies:
            path = re.sub(r"\{([a-z]+)[a-z_]*\}", lambda match: UNKNOWN[match[1]], one.path)
            answer = api.request(one.method, path, json=bodies[one.id]["content"]["application/json"]["example"])
            # What is wrong with a body is told before what does not exist.
            assert answer.status_code in ((404,) if "{" in one.path or one.id == "create_refund" else (200, 201)), (
                one.id
            )


def test_links_lead_to_operations_that_take_what_they_bring(document: Document) -> None:
    described = {one.id: one for one in operations(document)}
    followed = set[str]()
    for one in described.values():
        for response in one.operation["responses"].values():
            for link in response.get("links", {}).values():
                target = described[link["operationId"]]
                for name, value in (link.get("parameters") or link["requestBody"]).items():
                    assert value.startswith("$response.body#/data/")
                    assert f"{{{name}}}" in target.path or target.id == "create_refund"
                followed.add(target.id)
    assert followed == {one.id for one in described.values() if "{" in one.path} | {"create_refund"}


def test_both_environments_are_named_and_what_only_the_sandbox_has(document: Document, gateway: Gateway) -> None:
    assert [server["url"] for server in document["servers"]] == [f"{gateway.origin}/sandbox/v1", f"{gateway.origin}/v1"]
    for one in operations(document):
        assert one.sandbox_only == one.path.startswith("/test/")


def test_every_type_of_event_is_described(document: Document) -> None:
    assert set(document["webhooks"]) == set(EventType)


def test_the_sentences_of_refusals_are_the_descriptions(document: Document) -> None:
    amount = document["components"]["schemas"]["CreatePayment"]["properties"]["amount"]
    assert amount["type"] == "number"
    assert amount["description"].startswith("Give a JSON number greater than 0")


def test_the_document_needs_no_key_and_is_sent_once(gateway: Gateway) -> None:
    first = httpx2.get(f"{gateway.origin}/openapi.json")
    assert (first.status_code, first.headers["content-type"]) == (200, "application/json")
    again = httpx2.get(f"{gateway.origin}/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert httpx2.head(f"{gateway.origin}/openapi.json").headers["etag"] == first.headers["etag"]
    assert httpx2.post(f"{gateway.origin}/openapi.json").status_code == 405
