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
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")  # of 32 bytes
_STANDARD_MAX = 4  # of Standard Webhooks in one header; we send two at most
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


def standard_digest(secret: str, body: bytes, *, event_id: str, timestamp: str) -> str:
    """What Standard Webhooks asks for after `v1,`, with id and time as they stand in the headers."""
    return base64.b64encode(hmac.digest(_decoded_key(secret), _before(event_id, timestamp) + body, "sha256")).decode()


def is_standard_right(signature: str, body: bytes, secrets: list[str], *, event_id: str, timestamp: str) -> bool:
    """Whether one of Standard Webhooks, with or without its `v1,`, is that of a request with one of the secrets."""
    if not event_id or not timestamp:
        return False
    made = [standard_digest(secret, body, event_id=event_id, timestamp=timestamp).encode() for secret in secrets]
    return any(hmac.compare_digest(given.encode(), one) for given in _standard_in(signature) for one in made)


def _standard_in(signature: str) -> list[str]:
    return [one for text in signature.split() if (one := text.removeprefix("v1,"))][:_STANDARD_MAX]


def _decoded_key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_"))


def _before(event_id: str, timestamp: str) -> bytes:
    return f"{event_id}.{timestamp}.".encode("utf-8", "replace")


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

    It may be the contract's or that of Standard Webhooks. `other_secrets` are those of other endpoints, each with the
    name of its endpoint.
    """
    given = _digest_in(signature)
    if is_right(signature, body, secrets):
        return Verdict(True, "It is right: HMAC-SHA256 of the body as it came, with the secret of the endpoint.")
    if is_standard_right(signature, body, secrets, event_id=event_id, timestamp=timestamp):
        return Verdict(True, "It is right: the webhook-signature, made with the decoded secret over id.timestamp.body.")
    for name, secret in other_secrets:
        if _is(given, secret.encode(), body):
            return Verdict(False, f"Wrong secret: it was made with the secret of another endpoint, {name}.")
    rewritten = list(_rewritten(body))
    others = [*_with_too_much(body, event_id=event_id, timestamp=timestamp), *rewritten]
    for secret in secrets:
        for words in _mistakes(given, body, secret, others):
            return Verdict(False, words)
    forms = dict(form for one in _standard_in(given) for form in _decoded(one))
    if not forms:
        return Verdict(
            False,
            "It has not the form of a digest: 64 hexadecimal characters in lower case, or for the webhook-signature "
            "v1, and 44 characters of base64.",
        )
    if not event_id or not timestamp:
        if not _HEX.fullmatch(given):
            return Verdict(False, "A webhook-signature covers webhook-id and webhook-timestamp: the request lacks one.")
    else:
        for words in _standard_mistakes(forms, body, secrets, other_secrets, rewritten, event_id, timestamp):
            return Verdict(False, words)
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


def _decoded(given: str) -> Iterator[tuple[bytes, str]]:
    """The bytes of a digest, and what is wrong about writing a webhook-signature so; nothing if it is no digest."""
    if _HEX.fullmatch(given):
        yield bytes.fromhex(given), "Hexadecimal: the webhook-signature is written in base64."
    elif _BASE64.fullmatch(given):
        decoded = base64.urlsafe_b64decode(given.rstrip("=").replace("+", "-").replace("/", "_") + "=")
        is_usual = base64.b64encode(decoded).decode() == given
        yield decoded, "" if is_usual else "Another base64: it is written with + and /, and with = at its end."


def _standard_mistakes(
    forms: dict[bytes, str],
    body: bytes,
    secrets: list[str],
    other_secrets: list[tuple[str, str]],
    rewritten: list[tuple[str, bytes]],
    event_id: str,
    timestamp: str,
) -> Iterator[str]:
    """What was done instead, for each usual mistake with Standard Webhooks; key, message and form may all be wrong."""
    before = _before(event_id, timestamp)
    tried = [
        *(
            (f"{about_key} {about_message}", key, message)
            for secret in secrets
            for about_key, key in _standard_keys(secret)
            for about_message, message in _standard_messages(body, event_id, timestamp)
        ),
        *((words, _decoded_key(secret), before + other) for secret in secrets for words, other in rewritten),
        *(
            (
                f"Wrong secret: it was made with the secret of another endpoint, {name}.",
                _decoded_key(secret),
                before + body,
            )
            for name, secret in other_secrets
        ),
    ]
    for words, key, message in tried:
        about_form = forms.get(hmac.digest(key, message, "sha256"))
        if about_form is not None:
            yield " ".join(f"{about_form} {words}".split())


def _standard_keys(secret: str) -> Iterator[tuple[str, bytes]]:
    yield "", _decoded_key(secret)
    right = "The key of the webhook-signature is the bytes that the part after whsec_ is the base64 of."
    yield f"Wrong key: the whole secret as text. {right}", secret.encode()
    yield f"Wrong key: the secret without whsec_ as text. {right}", secret.removeprefix("whsec_").encode()


def _standard_messages(body: bytes, event_id: str, timestamp: str) -> Iterator[tuple[str, bytes]]:
    right = "Sign webhook-id, webhook-timestamp and body, with a dot after each of the first two."
    yield "", _before(event_id, timestamp) + body
    for words, before in (
        ("Id and time were left out.", ""),
        ("The id was left out.", f"{timestamp}."),
        ("The time was left out.", f"{event_id}."),
        ("The time stands before the id.", f"{timestamp}.{event_id}."),
        ("The dots were left out.", f"{event_id}{timestamp}"),
    ):
        yield f"{words} {right}", before.encode("utf-8", "replace") + body


def _other_keys(secret: str) -> Iterator[tuple[str, bytes]]:
    bare = secret.removeprefix("whsec_")
    yield "the secret without whsec_", bare.encode()
    try:
        yield "the bytes that the secret is the base64 of", base64.b64decode(bare, validate=True)
    except ValueError:
        return
    yield "the secret with a line break at its end", f"{secret}\n".encode()


def _with_too_much(body: bytes, *, event_id: str, timestamp: str) -> Iterator[tuple[str, bytes]]:
    for prefix in (f"{timestamp}.", f"{event_id}.{timestamp}."):
        words = f"Too much was signed: {prefix[:60]} stands before the body. Here the body alone is signed."
        yield words, prefix.encode("utf-8", "replace") + body


def _rewritten(body: bytes) -> Iterator[tuple[str, bytes]]:
    """What is signed instead of the body by usual code, and how to say so."""
    for name, end in (("line break", b"\n"), ("line break (CR LF)", b"\r\n")):
        yield f"A trailing {name} was added to the body before it was signed.", body + end
    if (stripped := body.strip()) != body:
        yield "White space around the body was taken away before it was signed.", stripped
    try:
        document, as_javascript = json.loads(body), json.loads(body, parse_float=_javascript_number)
    except (ValueError, RecursionError):
        return
    if not is_shallow(document):
        return
    said = "Re-serialised JSON: the body was parsed and written anew{}. Sign the bytes as they came."
    for how, value, options in _ways_to_write(document, as_javascript):
        written = json.dumps(value, **options)
        yield said.format(how), written.encode("utf-8", "replace")
        yield said.format(f"{how}, with / escaped"), written.replace("/", "\\/").encode("utf-8", "replace")


def is_shallow(document: Any) -> bool:
    """Whether a document is nested no deeper than an event may be, so that an indent does not blow it up."""
    return _is_nested_within(_LEVELS_MAX, document)


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
