"""Fixtures of the conformance tables."""

from collections.abc import Iterator

import pytest

from tests.acceptance.conformance.stage import Stage
from tests.support.gateway import Gateway


@pytest.fixture(scope="session")
def stage(gateway: Gateway) -> Iterator[Stage]:
    new = Stage(gateway)
    yield new
    new.close()
