"""Amounts are exact or they are none."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zembil.money import birr_of, santim_of, shown


@pytest.mark.parametrize(
    ("amount", "santim"),
    [
        *(("0.01", 1), ("0.1", 10), ("1", 100), ("1e2", 10_000), ("1.0e+2", 10_000), ("100.000000", 10_000)),
        *(
            ("0.29", 29),
            ("4.35", 435),
            ("70.07", 7007),
            ("999999.99", 99_999_999),
            ("-1.50", -150),
            ("0", 0),
            ("-0", 0),
        ),
        *(("12345678901234567890123456789012345678.90", 1234567890123456789012345678901234567890),),
    ],
)
def test_an_amount_of_at_most_two_decimals_is_a_whole_number_of_santim(amount: str, santim: int) -> None:
    assert santim_of(Decimal(amount)) == santim


@pytest.mark.parametrize(
    "amount",
    [
        *("0.001", "0.005", "10.999", "1e-3", "1e-400", "NaN", "sNaN", "Infinity", "-Infinity", "1e400", "1e40"),
        *("0.0" + "0" * 100 + "1", "9" * 41, "1E+999999"),
    ],
)
def test_what_would_have_to_be_rounded_is_no_amount(amount: str) -> None:
    assert santim_of(Decimal(amount)) is None


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))  # what a column holds
def test_santim_and_birr_are_the_same_money(santim: int) -> None:
    assert santim_of(birr_of(santim)) == santim
    assert str(birr_of(santim)).partition(".")[2].isdigit()
    assert len(str(birr_of(santim)).partition(".")[2]) == 2


def test_ten_thousand_times_ten_santim_is_a_thousand_birr() -> None:
    assert str(sum(birr_of(10) for _ in range(10_000))) == "1000.00"


@pytest.mark.parametrize(
    ("santim", "text"), [(1, "0.01"), (100, "1.00"), (150_000, "1,500.00"), (99_999_999, "999,999.99")]
)
def test_people_read_an_amount_with_two_decimals_and_thousands(santim: int, text: str) -> None:
    assert shown(santim) == text
