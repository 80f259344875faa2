"""Why a signature differs: each usual mistake is found and named."""

import base64
import hashlib
import hmac
import json
import tracemalloc
from collections.abc import Callable

import pytest

from zembil.webhooks.diagnosis import digest, judged
from zembil.webhooks.signature import standard_signature

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
BODY = '{"id":"evt_1","data":{"object":{"amount":1500.00,"name":"አበበ","url":"https://x/y"}},"type":"payment.created"}'.encode()


def made(key: bytes | str, message: bytes | str, name: str = "sha256") -> str:
    return hmac.new(_bytes(key), _bytes(message), name).hexdigest()


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def rewritten(**options: object) -> str:
    return json.dumps(json.loads(BODY), **options)  # type: ignore[arg-type]


def told(signature: str) -> tuple[bool, str]:
    verdict = judged(
        signature,
        BODY,
        secrets=[SECRET],
        other_secrets=[("The old shop", OTHER)],
        event_id="evt_1",
        timestamp="1763710000",
    )
    return verdict.is_right, verdict.words


@pytest.mark.parametrize("header", ["t=1763710000,v1={}", "{}", " {} "])
def test_the_right_signature_is_right_as_a_header_and_as_a_digest(header: str) -> None:
    assert told(header.format(digest(SECRET, BODY)))[0] is True


MISTAKES: dict[str, tuple[Callable[[], str], str]] = {
    "another endpoint's secret": (lambda: made(OTHER, BODY), "the secret of another endpoint, The old shop"),
    "the secret without its prefix": (lambda: made(SECRET[6:], BODY), "without whsec_"),
    "the decoded secret": (lambda: made(bytes(range(32)), BODY), "the base64 of"),
    "a trailing newline": (lambda: made(SECRET, BODY + b"\n"), "A trailing line break was added"),
    "a secret with a newline": (lambda: made(SECRET + "\n", BODY), "a line break at its end"),
    "Python's JSON": (lambda: made(SECRET, rewritten()), "as Python does"),
    "JavaScript's JSON": (
        lambda: made(SECRET, BODY.decode().replace("1500.00", "1500")),
        "Re-serialised JSON: the body was parsed and written anew as JavaScript does",
    ),
    "PHP's JSON": (
        lambda: made(SECRET, rewritten(separators=(",", ":")).replace("1500.0", "1500").replace("/", "\\/")),
        "as PHP does, with / escaped",
    ),
    "sorted keys": (lambda: made(SECRET, rewritten(sort_keys=True)), "with sorted keys"),
    "the time before the body": (lambda: made(SECRET, b"1763710000." + BODY), "stands before the body"),
    "id and time before the body": (lambda: made(SECRET, b"evt_1.1763710000." + BODY), "stands before the body"),
    "upper case": (lambda: digest(SECRET, BODY).upper(), "Upper case"),
    "base64": (
        lambda: base64.b64encode(hmac.new(SECRET.encode(), BODY, hashlib.sha256).digest()).decode(),
        "Base64",
    ),
    "SHA-1": (lambda: made(SECRET, BODY, "sha1"), "HMAC with SHA1"),
    "no key": (lambda: hashlib.sha256(BODY).hexdigest(), "plain SHA-256"),
    "no HMAC": (lambda: hashlib.sha256(SECRET.encode() + BODY).hexdigest(), "No HMAC"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_usual_mistake_is_found_and_named(mistake: str) -> None:
    sign, words = MISTAKES[mistake]
    is_right, said = told(sign())
    assert not is_right
    assert words in said


def standard(key: bytes | str, message: bytes | str) -> str:
    return "v1," + base64.b64encode(hmac.digest(_bytes(key), _bytes(message), "sha256")).decode()


KEY, BEFORE = bytes(range(32)), b"evt_1.1763710000."
RIGHT = standard_signature(SECRET, BODY, event_id="evt_1", timestamp=1763710000)


@pytest.mark.parametrize("text", ["{}", " {} ", "v1,AAAA {}", "webhook-signature: {}"])
@pytest.mark.parametrize("start", [0, len("v1,")])
def test_the_right_webhook_signature_is_right_with_and_without_its_version(text: str, start: int) -> None:
    assert told(text.format(RIGHT[start:]))[0] is True


STANDARD_MISTAKES: dict[str, tuple[Callable[[], str], str]] = {
    "the whole secret as text": (lambda: standard(SECRET, BEFORE + BODY), "Wrong key: the whole secret as text"),
    "the secret as text": (lambda: standard(SECRET[6:], BEFORE + BODY), "Wrong key: the secret without whsec_ as text"),
    "the body alone": (lambda: standard(KEY, BODY), "Id and time were left out"),
    "no id": (lambda: standard(KEY, b"1763710000." + BODY), "The id was left out"),
    "no time": (lambda: standard(KEY, b"evt_1." + BODY), "The time was left out"),
    "another order": (lambda: standard(KEY, b"1763710000.evt_1." + BODY), "The time stands before the id"),
    "no dots": (lambda: standard(KEY, b"evt_11763710000" + BODY), "The dots were left out"),
    "Python's JSON": (lambda: standard(KEY, BEFORE + rewritten().encode()), "as Python does"),
    "a trailing newline": (lambda: standard(KEY, BEFORE + BODY + b"\n"), "A trailing line break was added"),
    "another endpoint's secret": (
        lambda: standard(bytes(range(32, 64)), BEFORE + BODY),
        "the secret of another endpoint, The old shop",
    ),
    "hexadecimal": (lambda: "v1," + made(KEY, BEFORE + BODY), "Hexadecimal"),
    "hexadecimal alone": (lambda: made(KEY, BEFORE + BODY), "Hexadecimal"),
    "no padding": (lambda: RIGHT.rstrip("="), "Another base64"),
    "two at once": (lambda: standard(SECRET, BODY), "Wrong key: the whole secret as text. The key of the"),
}


@pytest.mark.parametrize("mistake", STANDARD_MISTAKES)
def test_a_usual_mistake_with_the_webhook_signature_is_found_and_named(mistake: str) -> None:
    sign, words = STANDARD_MISTAKES[mistake]
    is_right, said = told(sign())
    assert not is_right
    assert words in said


def test_a_webhook_signature_is_not_judged_without_id_and_time() -> None:
    verdict = judged(RIGHT, BODY, secrets=[SECRET], other_secrets=[])
    assert not verdict.is_right
    assert "webhook-id and webhook-timestamp" in verdict.words


def test_what_nothing_explains_is_not_explained() -> None:
    assert "Nothing that is usually done" in told("0" * 64)[1]
    assert "Nothing that is usually done" in told("t=1763710000,v1=" + "0" * 64)[1]
    assert "Nothing that is usually done" in told("v1," + "A" * 43 + "=")[1]
    assert "has not the form" in told("hello ☕")[1]
    assert "has not the form" in told("")[1]


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b"null", b'"' + b"a" * 60_000 + b'"'])
def test_a_body_of_any_kind_is_judged(body: bytes) -> None:
    assert judged(digest(SECRET, body), body, secrets=[SECRET], other_secrets=[]).is_right
    assert not judged("0" * 64, body, secrets=[SECRET], other_secrets=[]).is_right


def test_a_deeply_nested_body_is_judged_with_little_memory() -> None:
    body = b"[" * 700 + b"1," * 16_000 + b"1" + b"]" * 700
    tracemalloc.start()
    try:
        verdict = judged("0" * 64, body, secrets=[SECRET], other_secrets=[])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not verdict.is_right
    assert most < 20_000_000
