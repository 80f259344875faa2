"""Fixtures of the acceptance tests."""

from collections.abc import Iterator

import pytest

from tests.support.gateway import Gateway, Merchant


@pytest.fixture(scope="module")
def shop(gateway: Gateway) -> Iterator[Merchant]:
    """One merchant for a whole table of requests, of which none depends on another."""
    new = gateway.new_merchant()
    yield new
    new.close()
