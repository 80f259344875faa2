"""Signatures of a delivery: the contract's header, and the replay-safe one of Standard Webhooks beside it."""

import base64
import hmac


def contract_signature(secret: str, body: bytes, *, timestamp: int) -> str:
    """`t=…,v1=…`; the key is the whole secret as text, the message the body alone (contract, Webhook signature)."""
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    return f"t={timestamp},v1={digest}"


def standard_signature(secret: str, body: bytes, *, event_id: str, timestamp: int) -> str:
    """`v1,…` of Standard Webhooks; the key is the decoded part of the secret, the message covers id and time too."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    message = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, message, "sha256")).decode("ascii")


def headers(
    secret: str,
    body: bytes,
    *,
    event_id: str,
    timestamp: int,
    service_name: str,
    version: str,
    next_secret: str | None = None,
    is_test: bool = False,
) -> dict[str, str]:
    """Every header of an attempt made at `timestamp` (Unix seconds).

    The contract's header holds one signature, so during a rotation the old secret makes it and the next one has a
    header of its own; Standard Webhooks knows several in one header.
    """
    secrets = [secret] if next_secret is None else [secret, next_secret]
    made = {
        "content-type": "application/json",
        "user-agent": f"{service_name.title()}/{version}",
        f"{service_name}-signature": contract_signature(secret, body, timestamp=timestamp),
        f"{service_name}-timestamp": str(timestamp),
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(
            [standard_signature(one, body, event_id=event_id, timestamp=timestamp) for one in secrets]
        ),
    }
    if next_secret is not None:
        made[f"{service_name}-signature-next"] = contract_signature(next_secret, body, timestamp=timestamp)
    if is_test:
        made[f"{service_name}-test"] = "true"
    return made
