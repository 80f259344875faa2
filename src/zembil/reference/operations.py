"""What each route does, in words: the part of the reference that no type can say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct, structs

from zembil.customers import api as customers
from zembil.ids import Prefix
from zembil.management import keys
from zembil.payments import api as payments
from zembil.payments import charge_api as charges
from zembil.payments.model import FailureCode, PaymentStatus, ShownPayment
from zembil.reference import resources
from zembil.reference.narrowing import INSTANT, identifier
from zembil.refunds import api as refunds
from zembil.refunds.model import RefundStatus, ShownRefund
from zembil.sandbox_tools import api as sandbox
from zembil.webhooks import api as webhooks
from zembil.webhooks import delivery_api as deliveries
from zembil.webhooks.model import DeliveryStatus, EventType

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter; all of them are optional."""

    name: str
    description: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of a list: `name` holds `items`."""

    name: str
    items: type[Struct]
    has_offset: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route as the reference shows it."""

    id: str
    tag: str
    summary: str
    answer: type[Struct] | Listing
    description: str = ""
    status: int = 200
    body: type[Struct] | None = None
    query: tuple[Query, ...] = ()
    errors: tuple[str, ...] = ()  # beyond those that every operation of its kind has
    yields: Mapping[str, str] = field(default_factory=dict[str, str])  # ids for other operations: where `data` has them

    @property
    def needs_a_body(self) -> bool:
        """Whether an empty body is refused: some field is required, or one of several is."""
        return self.body is not None and (
            any(field.required for field in structs.fields(self.body)) or self.body is customers.CreateCustomer
        )


def _text(name: str, description: str) -> Query:
    return Query(name, description, {"type": "string", "minLength": 1})


def _one_of(name: str, description: str, values: Any) -> Query:
    return Query(name, description, {"type": "string", "enum": [str(value) for value in values]})


_DATES = (
    Query("date_from", "The earliest creation, inclusive: a date (a whole day in UTC) or a time, ISO 8601.", INSTANT),
    Query("date_to", "The latest creation, inclusive: a date (a whole day in UTC) or a time, ISO 8601.", INSTANT),
)
_TYPE = _one_of("type", "Only events of this type.", EventType)
_OBJECT = Query(
    "object",
    "Only what is about this object: the id of a payment, a refund or a customer.",
    identifier(Prefix.PAYMENT, Prefix.REFUND, Prefix.CUSTOMER),
)
_CHARGE_CODES = tuple(code.value for code in FailureCode if code is not FailureCode.PROVIDER_UNAVAILABLE)

_PAYMENTS = {
    ("POST", "/payments"): Operation(
        id="create_payment",
        tag="Payments",
        summary="Create a payment",
        description="The answer holds the payment link and a QR code of it; the customer pays there. With "
        "`mobile_money_provider` and `customer.phone` a prompt is pushed to the phone at once.",
        status=201,
        body=payments.CreatePayment,
        answer=payments.CreatedPayment,
        errors=("duplicate_reference",),
        yields={"payment_id": "/id"},
    ),
    ("GET", "/payments"): Operation(
        id="list_payments",
        tag="Payments",
        summary="List payments, newest first",
        answer=Listing("payments", resources.ListedPayment),
        query=(
            _one_of("status", "Only payments in this status.", PaymentStatus),
            *_DATES,
            _text("reference", "Only payments with this reference of the merchant's."),
            Query("customer", "Only payments of this stored customer.", identifier(Prefix.CUSTOMER)),
            _text("phone", "Only payments of this phone, in international form; write its + as %2B."),
            Query(
                "metadata",
                "Only payments that have all of these: `metadata[key]=value`.",
                {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"minLength": 1}},
            ),
        ),
    ),
    ("GET", "/payments/{payment_id}"): Operation(
        id="get_payment", tag="Payments", summary="Get a payment", answer=ShownPayment
    ),
    ("POST", "/payments/{payment_id}/charge"): Operation(
        id="charge_payment",
        tag="Payments",
        summary="Prompt the customer's phone",
        description="Waits at most 10 seconds for the wallet's network. A repeat with the same Idempotency-Key never "
        "prompts again; it answers how the charge stands.",
        body=charges.ChargePayment,
        answer=charges.ChargedPayment,
        errors=("invalid_state", "provider_unavailable", *_CHARGE_CODES),
        yields={"charge_id": "/charge/id"},
    ),
    ("POST", "/payments/{payment_id}/cancel"): Operation(
        id="cancel_payment",
        tag="Payments",
        summary="Cancel a pending payment",
        body=charges.CancelPayment,
        answer=ShownPayment,
        errors=("invalid_state",),
    ),
}
_REFUNDS = {
    ("POST", "/refunds"): Operation(
        id="create_refund",
        tag="Refunds",
        summary="Ask for a refund of a completed payment",
        description="Without `amount`, all that is left is refunded; unknown fields are then refused. The refund waits "
        "for an admin's approval.",
        status=201,
        body=refunds.CreateRefund,
        answer=ShownRefund,
        errors=("resource_not_found", "payment_not_refundable", "refund_amount_exceeds_available"),
        yields={"refund_id": "/id"},
    ),
    ("GET", "/refunds"): Operation(
        id="list_refunds",
        tag="Refunds",
        summary="List refunds, newest first",
        answer=Listing("refunds", ShownRefund),
        query=(
            Query("payment_id", "Only refunds of this payment.", identifier(Prefix.PAYMENT)),
            _one_of("status", "Only refunds in this status.", RefundStatus),
        ),
    ),
    ("GET", "/refunds/{refund_id}"): Operation(
        id="get_refund", tag="Refunds", summary="Get a refund", answer=ShownRefund
    ),
    ("POST", "/refunds/{refund_id}/approve"): Operation(
        id="approve_refund",
        tag="Refunds",
        summary="Approve a refund; it is then sent",
        body=refunds.ApproveRefund,
        answer=ShownRefund,
        errors=("invalid_state", "self_approval_forbidden"),
    ),
    ("POST", "/refunds/{refund_id}/reject"): Operation(
        id="reject_refund",
        tag="Refunds",
        summary="Reject a refund; it fails",
        body=refunds.RejectRefund,
        answer=ShownRefund,
        errors=("invalid_state",),
    ),
}
_CUSTOMERS = {
    ("POST", "/customers"): Operation(
        id="create_customer",
        tag="Customers",
        summary="Create a customer",
        description="At least one of `email` and `phone` is required.",
        status=201,
        body=customers.CreateCustomer,
        answer=resources.Customer,
        errors=("duplicate_reference",),
        yields={"customer_id": "/id"},
    ),
    ("GET", "/customers"): Operation(
        id="list_customers",
        tag="Customers",
        summary="List customers, newest first",
        answer=Listing("customers", resources.Customer),
        query=(
            _text("email", "Only customers with this e-mail address."),
            _text("phone", "Only customers with this phone, in international form; write its + as %2B."),
            _text("external_id", "Only the customer with this id of the merchant's."),
        ),
    ),
    ("GET", "/customers/{customer_id}"): Operation(
        id="get_customer", tag="Customers", summary="Get a customer", answer=resources.Customer
    ),
    ("PATCH", "/customers/{customer_id}"): Operation(
        id="update_customer",
        tag="Customers",
        summary="Change a customer",
        description="What is absent stays, null clears; metadata is changed key by key. One of `email` and `phone` "
        "stays.",
        body=customers.UpdateCustomer,
        answer=resources.Customer,
        errors=("duplicate_reference",),
    ),
    ("DELETE", "/customers/{customer_id}"): Operation(
        id="erase_customer",
        tag="Customers",
        summary="Erase a customer's personal data, also from their payments",
        answer=resources.Deleted,
        errors=("invalid_state",),
    ),
}
_WEBHOOKS = {
    ("POST", "/webhooks"): Operation(
        id="create_webhook",
        tag="Webhooks",
        summary="Register a URL for events",
        status=201,
        body=webhooks.RegisterEndpoint,
        answer=resources.WebhookEndpointWithSecret,
        yields={"webhook_id": "/id"},
    ),
    ("GET", "/webhooks"): Operation(
        id="list_webhooks",
        tag="Webhooks",
        summary="List webhooks, newest first",
        answer=Listing("webhooks", resources.WebhookEndpoint),
    ),
    ("GET", "/webhooks/{webhook_id}"): Operation(
        id="get_webhook", tag="Webhooks", summary="Get a webhook", answer=resources.WebhookEndpoint
    ),
    ("PATCH", "/webhooks/{webhook_id}"): Operation(
        id="update_webhook",
        tag="Webhooks",
        summary="Change, disable or enable a webhook",
        body=webhooks.ChangeEndpoint,
        answer=resources.WebhookEndpoint,
    ),
    ("DELETE", "/webhooks/{webhook_id}"): Operation(
        id="delete_webhook",
        tag="Webhooks",
        summary="Delete a webhook; deliveries that are due are cancelled",
        answer=resources.Deleted,
    ),
    ("POST", "/webhooks/{webhook_id}/rotate-secret"): Operation(
        id="rotate_webhook_secret",
        tag="Webhooks",
        summary="Give a webhook a new signing secret",
        description="Both secrets sign during the overlap, by default a day; with 0 the new one signs alone at once.",
        body=webhooks.RotateSecret,
        answer=resources.WebhookEndpointWithSecret,
        errors=("invalid_state",),
    ),
    ("POST", "/webhooks/{webhook_id}/test"): Operation(
        id="send_test_event",
        tag="Webhooks",
        summary="Send a test event to a webhook",
        description="It tells of an object that does not exist and carries the header `zembil-test: true`. In live the "
        "only test event is payment.created.",
        status=201,
        body=deliveries.SendTestEvent,
        answer=resources.Delivery,
        errors=("invalid_state",),
        yields={"delivery_id": "/id"},
    ),
    ("POST", "/webhooks/{webhook_id}/recover"): Operation(
        id="recover_deliveries",
        tag="Webhooks",
        summary="Send again what failed since a time",
        body=deliveries.Recover,
        answer=resources.Recovered,
        errors=("invalid_state",),
    ),
    ("GET", "/webhooks/{webhook_id}/deliveries"): Operation(
        id="list_deliveries",
        tag="Webhooks",
        summary="List a webhook's deliveries, newest first",
        answer=Listing("deliveries", resources.Delivery, has_offset=False),
        query=(_one_of("status", "Only deliveries in this status.", DeliveryStatus), _TYPE, _OBJECT, *_DATES),
    ),
    ("GET", "/deliveries/{delivery_id}"): Operation(
        id="get_delivery",
        tag="Webhooks",
        summary="Get a delivery with its attempts",
        answer=resources.DeliveryWithAttempts,
    ),
    ("POST", "/deliveries/{delivery_id}/redeliver"): Operation(
        id="redeliver",
        tag="Webhooks",
        summary="Deliver an event again",
        description="A new delivery of the same event, byte for byte, with three attempts of its own.",
        status=201,
        answer=resources.Delivery,
        errors=("invalid_state",),
        yields={"delivery_id": "/id"},
    ),
}
_EVENTS = {
    ("GET", "/events"): Operation(
        id="list_events",
        tag="Events",
        summary="List events",
        description="Newest first. With `order=asc` it can be followed: `next_cursor` is always given, and an event "
        "appears only once no earlier one can still come.",
        answer=Listing("events", resources.Event, has_offset=False),
        query=(
            _TYPE,
            _OBJECT,
            *_DATES,
            Query("order", "Which come first.", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
        ),
    ),
    ("GET", "/events/{event_id}"): Operation(
        id="get_event", tag="Events", summary="Get an event", answer=resources.Event
    ),
}
_MONEY = {
    ("GET", "/balance"): Operation(id="get_balance", tag="Money", summary="Get the balance", answer=resources.Balance),
    ("GET", "/ledger/entries"): Operation(
        id="list_ledger_entries",
        tag="Money",
        summary="List movements of money, newest first",
        answer=Listing("entries", resources.LedgerEntry, has_offset=False),
    ),
    ("GET", "/charges"): Operation(
        id="list_charges_in_doubt",
        tag="Charges",
        summary="List charges in doubt, newest first",
        answer=Listing("charges", resources.DoubtfulCharge, has_offset=False),
        query=(_one_of("state", "These are the only ones that are listed.", ("in_doubt",)),),
    ),
    ("POST", "/charges/{charge_id}/ask"): Operation(
        id="ask_about_charge",
        tag="Charges",
        summary="Ask the network about a charge now",
        answer=resources.AskedCharge,
        errors=("invalid_state",),
    ),
}
_KEYS = {
    ("POST", "/keys"): Operation(
        id="create_key",
        tag="Keys",
        summary="Make an API key",
        status=201,
        body=keys.CreateKey,
        answer=resources.ApiKeyWithSecret,
        yields={"key_id": "/id"},
    ),
    ("GET", "/keys"): Operation(
        id="list_keys", tag="Keys", summary="List API keys, newest first", answer=Listing("keys", resources.ApiKey)
    ),
    ("POST", "/keys/{key_id}/roll"): Operation(
        id="roll_key",
        tag="Keys",
        summary="Replace an API key by a new one",
        description="The old one works on for `overlap_seconds`, by default a day.",
        status=201,
        body=keys.RollKey,
        answer=resources.RolledApiKey,
        errors=("invalid_state",),
        yields={"key_id": "/id"},
    ),
    ("DELETE", "/keys/{key_id}"): Operation(
        id="revoke_key",
        tag="Keys",
        summary="Revoke an API key at once",
        answer=resources.Deleted,
        errors=("invalid_state",),
    ),
}
_SANDBOX = {
    ("GET", "/test/clock"): Operation(
        id="get_sandbox_clock", tag="Sandbox", summary="Read the sandbox's clock", answer=resources.SandboxClock
    ),
    ("POST", "/test/clock"): Operation(
        id="advance_sandbox_clock",
        tag="Sandbox",
        summary="Move the sandbox's clock forward",
        description="It moves expiry, retries, idempotency keys and the simulated networks; what became due starts "
        "within a second.",
        body=sandbox.AdvanceClock,
        answer=resources.SandboxClock,
    ),
    ("POST", "/test/events"): Operation(
        id="make_sandbox_event",
        tag="Sandbox",
        summary="Bring about an event of a type",
        description="Real sandbox objects go through everything that comes before such an event.",
        status=201,
        body=sandbox.MakeEvent,
        answer=resources.Event,
        yields={"event_id": "/id"},
    ),
    ("POST", "/test/charges/{charge_id}/resolve"): Operation(
        id="resolve_sandbox_charge",
        tag="Sandbox",
        summary="Say what became of a charge in doubt",
        body=sandbox.ResolveCharge,
        answer=ShownPayment,
        errors=("invalid_state",),
    ),
    ("POST", "/test/payments/{payment_id}/complete"): Operation(
        id="complete_sandbox_payment",
        tag="Sandbox",
        summary="Let the customer pay",
        body=sandbox.DecidePayment,
        answer=ShownPayment,
        errors=("invalid_state",),
        yields={"payment_id": "/id"},
    ),
    ("POST", "/test/payments/{payment_id}/fail"): Operation(
        id="fail_sandbox_payment",
        tag="Sandbox",
        summary="Let a payment fail",
        body=sandbox.FailPayment,
        answer=ShownPayment,
        errors=("invalid_state",),
    ),
    ("POST", "/test/payments/{payment_id}/cancel"): Operation(
        id="cancel_sandbox_payment",
        tag="Sandbox",
        summary="Let the customer cancel",
        body=sandbox.DecidePayment,
        answer=ShownPayment,
        errors=("invalid_state",),
    ),
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **_PAYMENTS,
    **_REFUNDS,
    **_CUSTOMERS,
    **_WEBHOOKS,
    **_EVENTS,
    **_MONEY,
    **_KEYS,
    **_SANDBOX,
}
