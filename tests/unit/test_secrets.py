"""API keys are recognised without a look-up, and sealed secrets open in their own row only."""

import re
import string
import zlib

import pytest
from cryptography.exceptions import InvalidTag

from zembil.accounts import secrets

SEAL_KEY = bytes(range(32))
BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


@pytest.mark.parametrize("livemode", [False, True])
def test_a_new_key_has_the_decided_form(livemode: bool) -> None:
    key = secrets.new_api_key(livemode=livemode)
    assert re.fullmatch(r"sk_(test|live)_[0-9A-Za-z]{43}[0-9A-Za-z]{6}", key)
    assert secrets.is_api_key(key)
    assert secrets.opens_live(key) is livemode


def test_the_checksum_is_the_crc_32_of_the_rest_in_base_62() -> None:
    key = secrets.new_api_key(livemode=False)
    number = 0
    for character in key[-6:]:
        number = number * 62 + BASE62.index(character)
    assert number == zlib.crc32(key[:-6].encode())


def test_no_two_keys_are_alike() -> None:
    assert len({secrets.new_api_key(livemode=True) for _ in range(1000)}) == 1000


def test_every_typing_error_is_found() -> None:
    key = secrets.new_api_key(livemode=False)
    for place in range(8, len(key)):
        for other in BASE62:
            if other != key[place]:
                assert not secrets.is_api_key(key[:place] + other + key[place + 1 :])
    for place in range(8, len(key) - 1):
        swapped = key[:place] + key[place + 1] + key[place] + key[place + 2 :]
        assert swapped == key or not secrets.is_api_key(swapped)


def test_what_is_not_exactly_a_key_is_none() -> None:
    key = secrets.new_api_key(livemode=False)
    secret = key.removeprefix("sk_test_")
    assert secrets.is_api_key(key)
    for text in ("", key[:-1], key + "0", key + "\n", " " + key, key[:-1] + "é", key.swapcase()):
        assert not secrets.is_api_key(text)
    for text in (secret, f"sk_live_{secret}", f"pk_test_{secret}", f"SK_TEST_{secret}"):
        assert not secrets.is_api_key(text)


def test_a_signing_secret_is_32_random_bytes() -> None:
    assert secrets.new_signing_secret(bytes) == "whsec_" + "A" * 43 + "="
    assert len({secrets.new_signing_secret() for _ in range(100)}) == 100


def test_a_sealed_secret_opens_in_its_own_row() -> None:
    sealed = secrets.seal(SEAL_KEY, "whsec_ሚስጥር", bound_to="webhook_endpoints|1|a")
    assert secrets.unseal(SEAL_KEY, sealed, bound_to="webhook_endpoints|1|a") == "whsec_ሚስጥር"
    assert b"whsec_" not in sealed


def test_the_same_secret_is_never_sealed_alike() -> None:
    assert len({secrets.seal(SEAL_KEY, "x", bound_to="a") for _ in range(100)}) == 100


@pytest.mark.parametrize("row", ["webhook_endpoints|2|a", "webhook_endpoints|1|b", "other|1|a", ""])
def test_a_sealed_secret_opens_in_no_other_row(row: str) -> None:
    sealed = secrets.seal(SEAL_KEY, "secret", bound_to="webhook_endpoints|1|a")
    with pytest.raises(InvalidTag):
        secrets.unseal(SEAL_KEY, sealed, bound_to=row)


def test_a_sealed_secret_opens_with_no_other_key_and_not_when_changed() -> None:
    sealed = secrets.seal(SEAL_KEY, "secret", bound_to="a")
    with pytest.raises(InvalidTag):
        secrets.unseal(bytes(32), sealed, bound_to="a")
    for place in range(len(sealed)):
        with pytest.raises(InvalidTag):
            secrets.unseal(SEAL_KEY, sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :], bound_to="a")
