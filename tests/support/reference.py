"""The operations of /openapi.json, as the tests that go through all of them see them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from tests.support.schemas import faults, resolved

Document = dict[str, Any]


@dataclass(frozen=True)
class Described:
    """One operation of the document."""

    id: str
    method: str
    path: str
    operation: Document

    @property
    def sandbox_only(self) -> bool:
        return "servers" in self.operation

    def matches(self, method: str, path: str) -> bool:
        pattern = re.sub(r"\{[a-z_]+\}", "[^/]+", self.path)
        return method == self.method and re.fullmatch(pattern, path) is not None


@cache
def document_of(origin: str) -> Document:
    answer = httpx2.get(f"{origin}/openapi.json", timeout=30)
    assert answer.status_code == 200
    return answer.json()


def operations(document: Document) -> Iterator[Described]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield Described(operation["operationId"], method.upper(), path, operation)


def demand_as_described(document: Document, method: str, path: str, status: int, answer: Any) -> None:
    """The answer is one that the document tells of: its status, its code, every field."""
    found = [one for one in operations(document) if one.matches(method, path)]
    # A plain path stands before a pattern.
    described = min(found, key=lambda one: one.path.count("{"))
    response = described.operation["responses"].get(str(status))
    assert response is not None, f"{described.id} answered {status}, of which the reference says nothing: {answer}"
    if "$ref" in response:
        response = resolved(document, response["$ref"])
    wrong = list(faults(document, response["content"]["application/json"]["schema"], answer))
    assert not wrong, f"{described.id}, {status}: {wrong}"
