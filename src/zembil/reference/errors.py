"""The codes of refusals: with which status they come and when."""

from zembil.payments.model import FAILURE_MESSAGES, FailureCode

ERRORS: dict[str, tuple[int, str]] = {
    "validation_error": (400, "The request is not valid; `details` names every fault."),
    "authentication_failed": (401, "The API key is missing, invalid, expired or revoked, or of the other environment."),
    "permission_denied": (403, "The role of the API key does not allow this."),
    "self_approval_forbidden": (403, "A refund is approved by another person than the one who asked for it."),
    "resource_not_found": (404, "There is no such resource in this account."),
    "invalid_state": (409, "The resource's present state does not allow this."),
    "duplicate_reference": (409, "Another resource has this reference of the merchant's."),
    "idempotency_in_progress": (409, "The first request with this Idempotency-Key is still running."),
    "payload_too_large": (413, "The body is larger than 64 KiB."),
    "unsupported_media_type": (415, "The body is not `application/json`."),
    "idempotency_key_reused": (422, "This Idempotency-Key was used for another request."),
    "payment_not_refundable": (422, "Only completed payments can be refunded."),
    "refund_amount_exceeds_available": (422, "Less than this is left to refund."),
    **{
        code.value: (422, FAILURE_MESSAGES[code])
        for code in FailureCode
        if code is not FailureCode.PROVIDER_UNAVAILABLE
    },
    "rate_limit_exceeded": (429, "Too many requests; come back after `Retry-After` seconds."),
    "internal_error": (500, "Something went wrong on our side; the request id finds it in the logs."),
    "provider_unavailable": (503, "The wallet's network could not be reached and nothing was sent; try again."),
    "service_unavailable": (503, "No answer is possible just now; try again."),
}
EVERYWHERE = (
    "authentication_failed",
    "permission_denied",
    "rate_limit_exceeded",
    "internal_error",
    "service_unavailable",
)
