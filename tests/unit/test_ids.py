"""Identifiers sort by creation, are read exactly as they are written, and cannot be guessed."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zembil import ids
from zembil.ids import Prefix

AT = datetime(2026, 11, 21, 9, 54, 0, 123000, tzinfo=UTC)
ANY_ID = uuid.UUID(int=(2**128 - 1) // 3)
SHOWN = ids.shown(Prefix.PAYMENT, ANY_ID)
SECRET = bytes(range(16))

uuids = st.uuids() | st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)])


@given(uuids, st.sampled_from(list(Prefix)))
def test_what_is_shown_is_read_back(identifier: uuid.UUID, prefix: Prefix) -> None:
    text = ids.shown(prefix, identifier)
    assert len(text) == len(prefix) + 26
    assert ids.parsed(prefix, text) == identifier


@given(uuids, uuids)
def test_shown_ids_sort_like_ids(one: uuid.UUID, other: uuid.UUID) -> None:
    assert (one < other) == (ids.shown(Prefix.EVENT, one) < ids.shown(Prefix.EVENT, other))


def test_ids_sort_by_creation_and_tell_it() -> None:
    instants = [AT + timedelta(milliseconds=number) for number in range(100)]
    made = [ids.new_id(at) for at in instants]
    assert made == sorted(made)
    assert [ids.created_at(identifier) for identifier in made] == instants


def test_ids_of_one_millisecond_differ_and_lie_in_its_range() -> None:
    made = {ids.new_id(AT) for _ in range(10_000)}
    assert len(made) == 10_000
    assert all(ids.id_at(AT) <= one < ids.id_at(AT + timedelta(milliseconds=1)) for one in made)


@pytest.mark.parametrize(
    "text",
    [
        *("", "pay_", SHOWN[4:], SHOWN[:-1], SHOWN + "0", SHOWN.upper(), SHOWN + "\n", " " + SHOWN, SHOWN + " "),
        *(SHOWN.replace("pay_", "ref_"), "PAY_" + SHOWN[4:], "pay_" + "8" + "0" * 25, "pay_" + "z" * 26),
        *("pay_" + "0" * 25 + letter for letter in "iloIuUL_-٠é\0'"),
    ],
)
def test_what_we_did_not_write_is_no_id(text: str) -> None:
    assert ids.parsed(Prefix.PAYMENT, text) is None


@given(st.integers(min_value=0, max_value=2**56 - 1), uuids, st.binary(min_size=16, max_size=16))
def test_a_link_token_is_read_back(account_id: int, payment_id: uuid.UUID, secret: bytes) -> None:
    token = ids.link_token(account_id, payment_id, secret)
    assert len(token) == ids.TOKEN_LENGTH
    assert ids.parsed_link_token(token) == (account_id, payment_id, secret)


TOKEN = ids.link_token(7, ANY_ID, SECRET)


@pytest.mark.parametrize(
    "token",
    [
        *(
            "",
            TOKEN[:-1],
            TOKEN + "A",
            TOKEN + "=",
            TOKEN + "\n",
            " " + TOKEN,
            TOKEN.replace(TOKEN[3], "/", 1),
            "=" * 52,
        ),
        *(TOKEN[:-1] + letter for letter in "+/=.é\0"),
    ],
)
def test_what_we_did_not_write_is_no_link_token(token: str) -> None:
    assert ids.parsed_link_token(token) is None


def test_two_spellings_never_open_the_same_link() -> None:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [TOKEN[:place] + letter + TOKEN[place + 1 :] for place in range(52) for letter in letters]
    read = {ids.parsed_link_token(token) for token in others if token != TOKEN}
    assert ids.parsed_link_token(TOKEN) not in read
    assert len(read) == 52 * 63
