"""Why a signature is not the one that was sent: what receivers usually get wrong is tried, and what matches is said."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

_V1 = re.compile(r"\bv1=([^,\s]+)")
_HEX = re.compile(r"[0-9a-fA-F]+")
# Deeper than any event of ours. Written with an indent, a body takes as much again for each level.
_LEVELS_MAX = 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a signature is right, and in words why, or why not."""

    is_right: bool
    words: str


def digest(secret: str, body: bytes) -> str:
    """The digest that the contract asks for."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_right(signature: str, body: bytes, secrets: list[str]) -> bool:
    """Whether a signature, the whole header or its digest alone, is that of a body with one of the secrets."""
    given = _digest_in(signature)
    return any(hmac.compare_digest(given.encode(), digest(secret, body).encode()) for secret in secrets)


def _digest_in(signature: str) -> str:
    match = _V1.search(signature)
    return (match[1] if match else signature).strip()


def judged(
    signature: str,
    body: bytes,
    *,
    secrets: list[str],
    other_secrets: list[tuple[str, str]],
    event_id: str = "",
    timestamp: str = "",
) -> Verdict:
    """What a signature is, the whole header or its digest alone, of a body that was sent with one of `secrets`.

    `other_secrets` are those of other endpoints, each with the name of its endpoint.
    """
    given = _digest_in(signature)
    if is_right(signature, body, secrets):
        return Verdict(True, "It is right: HMAC-SHA256 of the body as it came, with the secret of the endpoint.")
    for name, secret in other_secrets:
        if _is(given, secret.encode(), body):
            return Verdict(False, f"Wrong secret: it was made with the secret of another endpoint, {name}.")
    others = list(_other_bodies(body, event_id=event_id, timestamp=timestamp))
    for secret in secrets:
        for words in _mistakes(given, body, secret, others):
            return Verdict(False, words)
    if not _HEX.fullmatch(given) or len(given) != 64:
        return Verdict(False, "It has not the form of a digest: 64 hexadecimal characters in lower case.")
    return Verdict(
        False,
        "Nothing that is usually done gives this one. Most likely the secret is another: each endpoint has its own, "
        "and a new one after a rotation. Or the body was changed on its way to your code.",
    )


def _mistakes(given: str, body: bytes, secret: str, others: list[tuple[str, bytes]]) -> Iterator[str]:
    """What was done instead, for each usual mistake that gives this signature."""
    key = secret.encode()
    if given.lower() == digest(secret, body):
        yield "Upper case: the digest is written in lower case."
    if _is_base64(given, key, body):
        yield "Base64: the digest is written in hexadecimal."
    for words, other_key in _other_keys(secret):
        if _is(given, other_key, body):
            yield f"Wrong key: {words}. The key is the whole secret as text, with whsec_."
    for words, message in others:
        if _is(given, key, message):
            yield words
    for name in ("sha1", "sha512", "md5"):
        if hmac.new(key, body, name).hexdigest() == given.lower():
            yield f"Another hash: it is HMAC with {name.upper()}; take SHA-256."
    if hashlib.sha256(body).hexdigest() == given.lower():
        yield "No key: it is the plain SHA-256 of the body; take HMAC-SHA256 with the secret."
    if hashlib.sha256(key + body).hexdigest() == given.lower():
        yield "No HMAC: it is the SHA-256 of secret and body one after the other; take HMAC-SHA256."


def _other_keys(secret: str) -> Iterator[tuple[str, bytes]]:
    bare = secret.removeprefix("whsec_")
    yield "the secret without whsec_", bare.encode()
    try:
        yield "the bytes that the secret is the base64 of", base64.b64decode(bare, validate=True)
    except ValueError:
        return
    yield "the secret with a line break at its end", f"{secret}\n".encode()


def _other_bodies(body: bytes, *, event_id: str, timestamp: str) -> Iterator[tuple[str, bytes]]:
    """What is signed instead of the body by usual code, and how to say so."""
    for prefix in (f"{timestamp}.", f"{event_id}.{timestamp}."):
        words = f"Too much was signed: {prefix[:60]} stands before the body. Here the body alone is signed."
        yield words, prefix.encode("utf-8", "replace") + body
    for name, end in (("line break", b"\n"), ("line break (CR LF)", b"\r\n")):
        yield f"A trailing {name} was added to the body before it was signed.", body + end
    if (stripped := body.strip()) != body:
        yield "White space around the body was taken away before it was signed.", stripped
    try:
        document, as_javascript = json.loads(body), json.loads(body, parse_float=_javascript_number)
    except (ValueError, RecursionError):
        return
    if not _is_nested_within(_LEVELS_MAX, document):
        return
    said = "Re-serialised JSON: the body was parsed and written anew{}. Sign the bytes as they came."
    for how, value, options in _ways_to_write(document, as_javascript):
        written = json.dumps(value, **options)
        yield said.format(how), written.encode("utf-8", "replace")
        yield said.format(f"{how}, with / escaped"), written.replace("/", "\\/").encode("utf-8", "replace")


def _is_nested_within(levels: int, value: Any) -> bool:
    parts = list(cast("dict[str, Any]", value).values()) if isinstance(value, dict) else value
    if not isinstance(parts, list):
        return True
    return levels > 0 and all(_is_nested_within(levels - 1, part) for part in cast("list[Any]", parts))


def _ways_to_write(document: Any, as_javascript: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    compact = (",", ":")
    yield " as JavaScript does", as_javascript, {"separators": compact, "ensure_ascii": False}
    yield " as PHP does", as_javascript, {"separators": compact}
    yield " as Python does", document, {}
    yield " as Python does", document, {"ensure_ascii": False}
    yield " without white space", document, {"separators": compact}
    yield " without white space", document, {"separators": compact, "ensure_ascii": False}
    for sorted_value in (document, as_javascript):
        yield " with sorted keys", sorted_value, {"sort_keys": True}
        yield " with sorted keys", sorted_value, {"sort_keys": True, "separators": compact, "ensure_ascii": False}
    for indent in (2, 4):
        yield f" with an indent of {indent}", document, {"indent": indent, "ensure_ascii": False}
        yield f" with an indent of {indent}", as_javascript, {"indent": indent, "ensure_ascii": False}


def _javascript_number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _is(given: str, key: bytes, message: bytes) -> bool:
    return hmac.compare_digest(given.lower().encode(), hmac.new(key, message, hashlib.sha256).hexdigest().encode())


def _is_base64(given: str, key: bytes, message: bytes) -> bool:
    made = hmac.new(key, message, hashlib.sha256).digest()
    return given.rstrip("=") in (
        base64.b64encode(made).decode().rstrip("="),
        base64.urlsafe_b64encode(made).decode().rstrip("="),
    )
