"""Logs: one JSON object a line, with the id of its request, without what looks like a card number."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from zembil import ids
from zembil.accounts.secrets import new_api_key, random_token
from zembil.telemetry import masked


def logged(*statements: str) -> list[dict[str, Any]]:
    """What a process of its own logs, since logging is configured once in a process."""
    program = "from zembil.telemetry import *; configure_logs(people=False); " + "; ".join(statements)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_every_log_line_of_a_request_has_its_id() -> None:
    two = ("print(begin_request())", "log.info('one')", "log.info('two')")
    lines = logged(*two, *two)
    ids = [line["request_id"] for line in lines]
    assert len(set(ids)) == 2
    assert (ids[0], ids[2]) == (ids[1], ids[3])


def test_what_looks_like_a_card_number_is_masked_in_logs() -> None:
    (line,) = logged("log.info('a', path='/payments/4111111111111111')")
    assert line["path"] == "/payments/************1111"
    assert line["event"] == "a"


def test_what_opens_something_to_whoever_has_it_is_not_in_logs() -> None:
    link, key = ids.link_token(7, ids.new_id(datetime.now(UTC)), bytes(range(16))), new_api_key(livemode=True)
    kept = [f"/p/{link}", f"/p/{link}/events", f"/r/{link}", f"/dashboard/link/{random_token()}", f"/v1/{key}"]
    kept += [f"ValueError: http://127.0.0.1:8000/inbox/{random_token()}?x=1", "/dashboard/sandbox/inbox/requests/x"]
    lines = logged(*(f"log.info('a', path={text!r})" for text in kept))
    shown = ["/p/…", "/p/…/events", "/r/…", "/dashboard/link/…", "/v1/sk_live_…"]
    shown += ["ValueError: http://127.0.0.1:8000/inbox/…?x=1", "/dashboard/sandbox/inbox/requests/x"]
    assert [line["path"] for line in lines] == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("4111111111111111", "************1111"),
        ("5500 0000 0000 0004.", "**** **** **** 0004."),
        ("3782-822463-10005", "****-******-*0005"),
        ("4222222222222", "*********2222"),
        ("6304000000000000000", "***************0000"),
        ("two: 4111111111111111, 5500000000000004", "two: ************1111, ************0004"),
    ],
)
def test_of_a_card_number_four_digits_are_left(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        *("", "Two bags of coffee", "4111111111111112", "411111111111", "41111111111111111111", "٤١١١١١١١١١١١١١١١"),
        *("+4111111111111111", "req_4111111111111111", "pay_04111111111111111000000000", "2026-11-21T10:00:00.000Z"),
    ],
)
def test_other_numbers_are_left_alone(text: str) -> None:
    assert masked(text) == text
