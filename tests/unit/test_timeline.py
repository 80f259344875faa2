"""The time line of a payment: what came first stands first, also where clocks differ a little."""

from datetime import UTC, datetime, timedelta

from zembil import ids
from zembil.dashboard.payments_queries import ChargeRow, EventRow
from zembil.dashboard.timeline import Happened, Line, lines
from zembil.payments.model import ChargeState
from zembil.rails.rail import Wallet
from zembil.web.request_queries import LoggedRequest
from zembil.webhooks.model import EventType

NOON = datetime(2026, 11, 21, 9, tzinfo=UTC)
NONE, DAY, A_BIT = timedelta(0), timedelta(days=1), timedelta(milliseconds=4)
PAYMENT = ids.new_id(NOON)


def request(at: datetime, method: str = "POST", path: str = "") -> LoggedRequest:
    path = f"/v1/payments{path}"
    return LoggedRequest(1, ids.new_id(at), ids.new_id(at), method, path, None, 200, 5, None, None, None, None)


def event(at: datetime, *, ahead: timedelta = NONE) -> EventRow:
    return EventRow(ids.new_id(at), PAYMENT, EventType.PAYMENT_CREATED, at + ahead)


def charge(at: datetime) -> ChargeRow:
    return ChargeRow(
        id=ids.new_id(at),
        rail=Wallet.TELEBIRR,
        phone="+251911223344",
        state=ChargeState.AWAITING_CUSTOMER,
        failure_code=None,
        raw_code=None,
        rail_reference=None,
        ended_at=None,
    )


def shown(*happened: LoggedRequest | EventRow | ChargeRow, clock_offset: timedelta = NONE) -> list[Line]:
    requests = [what for what in happened if isinstance(what, LoggedRequest)]
    events = [what for what in happened if isinstance(what, EventRow)]
    charges = [what for what in happened if isinstance(what, ChargeRow)]
    on_record = Happened(requests=requests, events=events, charges=charges, refunds=[], attempts=[])
    return lines(on_record, clock_offset=clock_offset, process_offset=NONE, delivery_path=lambda _: None)


def kinds(shown: list[Line]) -> list[str]:
    return [line.kind for line in shown]


def test_the_request_that_made_a_payment_stands_first_although_the_clocks_differ() -> None:
    assert kinds(shown(request(NOON + A_BIT), event(NOON))) == ["Request", "Event"]


def test_what_was_only_read_stands_where_it_was_read() -> None:
    assert kinds(shown(request(NOON + A_BIT, "GET"), event(NOON))) == ["Event", "Request"]


def test_a_later_request_stays_behind_what_it_did_not_cause() -> None:
    soon = NOON + 5 * A_BIT
    made = shown(
        request(NOON), request(soon, path="/pay_1/cancel"), event(NOON + A_BIT), event(soon + A_BIT, ahead=DAY)
    )
    assert kinds(made) == ["Request", "Event", "Request", "Event"]
    assert [line.at for line in made[2:]] == [soon + DAY, soon + A_BIT + DAY]


def test_a_request_stands_in_the_time_that_the_account_had_then() -> None:
    first, second = shown(request(NOON), event(NOON + A_BIT, ahead=DAY), clock_offset=2 * DAY)
    assert (first.kind, first.at) == ("Request", NOON + DAY)
    assert second.at == NOON + DAY + A_BIT


def test_a_request_to_charge_stands_before_its_charge_although_the_clocks_differ() -> None:
    asked = request(NOON + A_BIT, path="/pay_1/charge")
    assert kinds(shown(asked, charge(NOON))) == ["Request", "Charge"]
    assert kinds(shown(asked, charge(NOON - timedelta(seconds=1)))) == ["Charge", "Request"]
