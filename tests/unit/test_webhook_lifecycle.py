"""A delivery is attempted at once, a minute later and ten minutes later, and then it has failed."""

import itertools
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from zembil import ids
from zembil.accounts.model import Account, LateMoney
from zembil.webhooks.lifecycle import retry_delay
from zembil.webhooks.model import ATTEMPTS_MAX, Attempted, EventType, event_about

AT = datetime(2026, 11, 21, 9, 54, tzinfo=UTC)


def test_a_delivery_is_tried_three_times_in_all() -> None:
    assert ATTEMPTS_MAX == 3
    waits = [retry_delay(made) for made in range(1, ATTEMPTS_MAX + 1)]
    assert waits == [timedelta(minutes=1), timedelta(minutes=10), None]


@pytest.mark.parametrize(
    "status_code", [100, 199, 201, 202, 204, 206, 226, 300, 301, 302, 304, 307, 400, 410, 429, 500]
)
def test_only_200_is_success(status_code: int) -> None:
    assert Attempted(1, status_code=200).succeeded
    assert not Attempted(1, status_code=status_code).succeeded


@pytest.mark.parametrize("error", ["timeout", "refused", "tls"])
def test_an_attempt_with_an_error_is_no_success(error: str) -> None:
    assert not Attempted(1, error=error).succeeded
    assert not Attempted(1, status_code=200, error=error).succeeded


@pytest.mark.parametrize(("event_type", "livemode"), list(itertools.product(EventType, [False, True])))
def test_an_event_says_what_the_contract_names_and_counts_per_object(event_type: EventType, livemode: bool) -> None:
    offset = timedelta(0) if livemode else timedelta(days=3)
    account = Account(7, "Abebe's shop", livemode, offset, LateMoney.ACCEPT, allow_self_approval=not livemode)
    event = event_about(account, event_type, {"id": "pay_1"}, object_id=ids.id_at(AT), sequence=4, at=AT)
    payload = msgspec.json.decode(event.payload)
    assert payload == {
        "id": ids.shown(ids.Prefix.EVENT, event.id),
        "type": event_type.value,
        "created": int((AT + offset).timestamp()),
        "livemode": livemode,
        "sequence": 4,
        "data": {"object": {"id": "pay_1"}},
    }
    assert event.created_at == AT + offset
    assert ids.created_at(event.id) == AT  # the id carries the database's time: it is kept by month


def test_there_are_the_contracts_twelve_types() -> None:
    assert [event_type.value for event_type in EventType] == [
        *("payment.created", "payment.pending", "payment.processing", "payment.completed", "payment.failed"),
        *("payment.cancelled", "refund.created", "refund.approved", "refund.completed", "refund.failed"),
        *("customer.created", "customer.updated"),
    ]
