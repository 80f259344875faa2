"""Is this request an event from Zembil? `headers` have lower-case names, `body` is bytes as they came."""

import base64
import hmac
import time


def is_genuine(secret, headers, body, now=None):
    """Whether the webhook-signature is right, and not older than five minutes: a copy sent later is refused."""
    sent_at = headers.get("webhook-timestamp", "")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers.get('webhook-id')}.{sent_at}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(key, signed, "sha256"))
    given = headers.get("webhook-signature", "").encode().split(b" ")
    # The time is read last: once the signature is right, it is a number that we wrote.
    return any(hmac.compare_digest(one, expected) for one in given) and abs((now or time.time()) - int(sent_at)) <= 300


def has_zembil_signature(secret, headers, body):
    """Whether the zembil-signature is right. It does not cover the time: keep the ids of events and drop repeats."""
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    expected = f"t={headers.get('zembil-timestamp')},v1={digest}".encode()
    given = [headers.get(name, "").encode() for name in ("zembil-signature", "zembil-signature-next")]
    return any(hmac.compare_digest(one, expected) for one in given)
