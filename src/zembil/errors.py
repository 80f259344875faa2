"""Every error that Zembil raises on purpose.

ZembilError
├── ApiError                        answered to a merchant in the envelope: status, code, message
│   ├── ValidationError             400 validation_error (always with details)
│   │   └── BodyTooSlow             the body did not arrive in time; the connection is closed
│   ├── AuthenticationFailed        401 authentication_failed
│   ├── PermissionDenied            403 permission_denied
│   │   └── SelfApprovalForbidden   self_approval_forbidden
│   ├── ResourceNotFound            404 resource_not_found
│   ├── MethodNotAllowed            405 method_not_allowed
│   ├── InvalidState                409 invalid_state
│   ├── DuplicateReference          409 duplicate_reference
│   ├── IdempotencyInProgress       409 idempotency_in_progress
│   ├── PayloadTooLarge             413 payload_too_large
│   ├── UnsupportedMediaType        415 unsupported_media_type
│   ├── ChargeRefused               422 with the failure code of the charge
│   ├── IdempotencyKeyReused        422 idempotency_key_reused
│   ├── PaymentNotRefundable        422 payment_not_refundable
│   ├── RefundExceedsAvailable      422 refund_amount_exceeds_available
│   ├── RateLimitExceeded           429 rate_limit_exceeded
│   ├── ProviderUnavailable         503 provider_unavailable
│   └── ServiceUnavailable          503 service_unavailable
├── ConfigurationError              a setting is missing or unsafe; says which and what to set
└── DatabaseError                   the database cannot be used as it is; says what to do
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a request: the field (`customer.phone`, `body`, a header's name) and what to do."""

    field: str
    message: str


class ZembilError(Exception):
    """The root of every error raised on purpose."""


class ApiError(ZembilError):
    """An answer that is not a success; `code` and `status` are part of the public contract."""

    status: ClassVar[int]
    code: str
    is_general: bool = False  # its message says no more than its code: a page has better words for it

    def __init__(
        self, message: str, *, details: tuple[Fault, ...] = (), headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.headers = headers


class ValidationError(ApiError):
    status, code = 400, "validation_error"

    def __init__(self, *faults: Fault) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__(f"The request has {count}; see details.", details=faults)


class BodyTooSlow(ValidationError):
    def __init__(self, seconds_max: int) -> None:
        super().__init__(Fault("body", f"The body did not arrive within {seconds_max} seconds."))
        self.headers = (("Connection", "close"),)


class AuthenticationFailed(ApiError):
    status, code = 401, "authentication_failed"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=(("WWW-Authenticate", "Bearer"),))


class PermissionDenied(ApiError):
    status, code = 403, "permission_denied"


class SelfApprovalForbidden(PermissionDenied):
    code = "self_approval_forbidden"


class ResourceNotFound(ApiError):
    status, code = 404, "resource_not_found"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The requested resource does not exist.")
        self.is_general = not message


class MethodNotAllowed(ApiError):
    status, code = 405, "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This path accepts {allowed}.", headers=(("Allow", allowed),))


class InvalidState(ApiError):
    status, code = 409, "invalid_state"


class DuplicateReference(ApiError):
    status, code = 409, "duplicate_reference"


class IdempotencyInProgress(ApiError):
    status, code = 409, "idempotency_in_progress"

    def __init__(self) -> None:
        super().__init__(
            "The first request with this Idempotency-Key is still running; repeat in a moment.",
            headers=(("Retry-After", "1"),),
        )


class PayloadTooLarge(ApiError):
    status, code = 413, "payload_too_large"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"The body is larger than {bytes_max} bytes.", headers=(("Connection", "close"),))


class UnsupportedMediaType(ApiError):
    status, code = 415, "unsupported_media_type"


class ChargeRefused(ApiError):
    """The rail refused a charge at once; the code is the charge's failure code."""

    status = 422

    def __init__(self, failure_code: str, message: str) -> None:
        super().__init__(message)
        self.code = failure_code


class IdempotencyKeyReused(ApiError):
    status, code = 422, "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was used for another request; take a new key for a new request.")


class PaymentNotRefundable(ApiError):
    status, code = 422, "payment_not_refundable"


class RefundExceedsAvailable(ApiError):
    status, code = 422, "refund_amount_exceeds_available"


class RateLimitExceeded(ApiError):
    status, code = 429, "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message, headers=(("Retry-After", str(retry_after_seconds)),))


class ProviderUnavailable(ApiError):
    status, code = 503, "provider_unavailable"

    def __init__(self, message: str, *, retry_after_seconds: int = 30) -> None:
        super().__init__(message, headers=(("Retry-After", str(retry_after_seconds)),))


class ServiceUnavailable(ApiError):
    status, code = 503, "service_unavailable"

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "Zembil cannot answer just now; try again.", headers=(("Retry-After", "1"),))
        self.is_general = not message


class ConfigurationError(ZembilError):
    """A setting is missing or unsafe; the message says which and what to set."""


class DatabaseError(ZembilError):
    """The database cannot be used as it is; the message says what to do."""
