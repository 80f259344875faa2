"""Fixtures of the acceptance tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.support.dashboard import Visitor, signed_in
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Answer, Receiver
from zembil.accounts.model import Role


@pytest.fixture(scope="module")
def shop(gateway: Gateway) -> Iterator[Merchant]:
    """One merchant for a whole table of requests, of which none depends on another."""
    new = gateway.new_merchant()
    yield new
    new.close()


class SignsIn(Protocol):
    def __call__(self, merchant: Merchant, *, role: Role = Role.ADMIN, name: str = "Almaz") -> Visitor: ...


@pytest.fixture
def signs_in(gateway: Gateway) -> Iterator[SignsIn]:
    """Signs people of a merchant's team in, in the sandbox."""
    made: list[Visitor] = []

    def new(merchant: Merchant, *, role: Role = Role.ADMIN, name: str = "Almaz") -> Visitor:
        made.append(signed_in(gateway, merchant, role=role, name=name))
        return made[-1]

    yield new
    for visitor in made:
        visitor.close()


@pytest.fixture
def admin(signs_in: SignsIn, merchant: Merchant) -> Visitor:
    """An admin of the test's merchant."""
    return signs_in(merchant)


@pytest.fixture
def listen() -> Iterator[Callable[[Answer], Receiver]]:
    """Makes receivers."""
    with ExitStack() as stack:

        def make(answer: Answer) -> Receiver:
            receiver = Receiver(answer)
            stack.callback(receiver.close)
            return receiver

        yield make
