"""The contract, from top to bottom: every endpoint, field, error, limit and role, in the page's order and words.

Hold the page beside the table and tick. What the contract calls "not shown" is decided; it stands in test_decisions.py.
These lines have no row:

- "Keys are obtained by the merchant in the dashboard", "Webhooks can be registered … in the dashboard", "Events can be
  simulated … through the dashboard": the dashboard has tests of its own. What the API has for it has rows.
- "Keys must be kept out of client-side code and public repositories": a duty of the merchant.
- What the receiver does with a signature, with repeats and with events out of order: a duty of the receiver.
- "Delivery is best effort and may be delayed under high traffic": nothing that could fail to hold.
"""

import re
from functools import partial
from typing import Any

import pytest

from tests.acceptance import test_deliveries, test_isolation, test_webhook_endpoints
from tests.acceptance.conformance import contract_steps as steps
from tests.acceptance.conformance.rows import (
    ABSENT,
    GET,
    LINK,
    NUMBER,
    POST,
    TIMESTAMP,
    Row,
    digits,
    each,
    exactly,
    faulty,
    gives,
    parameters,
    proved_by,
    refuses,
    starts,
    text_or_null,
    the,
)
from tests.acceptance.conformance.stage import ANYBODY, EVERYTHING, LEAST, Stage

HOOKS = "http://shop.example.et/hooks"
PAY = "/payments"
TEN_SECONDS = proved_by(test_deliveries.test_ten_seconds_are_the_limit_and_a_200_counts_whatever_becomes_of_its_body)


def paying(**changes: Any) -> dict[str, Any]:
    return LEAST | changes


def hooking(**changes: Any) -> dict[str, Any]:
    return {"url": HOOKS, "events": ["payment.completed"]} | changes


CONTRACT: list[str | Row] = [
    "What the service does",
    Row("create payment requests, each of which yields a payment link", steps.the_link_opens_the_page),
    Row("… and a QR code that a customer uses to pay", steps.the_qr_code_is_a_png_of_the_link),
    Row("… a customer uses to pay", steps.a_customer_pays_by_the_link),
    Row("retrieve one payment", GET("/payments/{payment}"), gives(200, {"id": starts("pay_")})),
    Row("or list payments", GET(PAY), gives(200, {"payments": list})),
    Row(
        "create refunds for completed payments",
        POST("/refunds", {"payment_id": "{completed}", "amount": 1}),
        gives(201),
    ),
    Row("create customer records", POST("/customers", {"email": "a@example.com"}), gives(201)),
    Row("register webhooks", POST("/webhooks", hooking(), anew=True), gives(201)),
    Row("… so that the service sends HTTP POST notifications of events", steps.every_registered_url_is_told),
    Row("a test environment and a live one, each with its own keys", steps.a_key_works_in_its_own_environment_only),
    Row("the only currency is ETB", POST(PAY, paying(currency="USD")), faulty("currency")),
    Row("the only payment method is mobile_money", POST(PAY, paying(payment_method="card")), faulty("payment_method")),
    Row("the base address ends in v1 (sandbox)", GET(PAY), gives(200)),
    Row("the base address ends in v1 (live)", GET(PAY, live=True), gives(200)),
    Row("bodies are JSON", POST(PAY, b"amount=100"), faulty("body")),
    Row("… responses too", GET(PAY), gives(200, content_type="application/json")),
    Row(
        "requests with a body carry Content-Type: application/json",
        POST(PAY, LEAST, headers=(("Content-Type", "text/plain"),)),
        refuses(415, "unsupported_media_type"),
    ),
    "Response envelope",
    Row("status: success for a successful response; data", GET("/payments/{payment}"), gives(200)),
    Row("status: error for a failed one; error", GET("/payments/{no_pay}"), refuses(404, "resource_not_found")),
    Row("data: the resource", GET("/payments/{payment}"), gives(200, {"id": str, "status": str})),
    Row("data: an object holding a list and pagination", GET(PAY), gives(200, {"payments": list, "pagination": dict})),
    Row("timestamps are ISO 8601 in UTC", the("payment"), {"created_at": TIMESTAMP, "expires_at": TIMESTAMP}),
    Row("amounts are JSON decimal numbers", the("payment"), {"amount": digits("1500.00")}),
    "Payment",
    Row("id: prefix pay_", the("created"), {"id": starts("pay_")}),
    Row("status: pending", the("payment"), {"status": "pending"}),
    Row("status: completed", the("completed"), {"status": "completed"}),
    Row("status: failed", the("failed"), {"status": "failed"}),
    Row("status: cancelled", the("cancelled"), {"status": "cancelled"}),
    Row("amount: number", the("created"), {"amount": NUMBER}),
    Row("amount: must be greater than 0 (-0.01)", POST(PAY, paying(amount=-0.01)), faulty("amount")),
    Row("amount: must be greater than 0 (0)", POST(PAY, paying(amount=0)), faulty("amount")),
    Row(
        "amount: must be greater than 0 (0.01)", POST(PAY, paying(amount=0.01)), gives(201, {"amount": digits("0.01")})
    ),
    Row("currency: ETB", the("created"), {"currency": "ETB"}),
    Row("customer: a retrieved payment shows email and phone", the("payment"), {"customer": exactly("email", "phone")}),
    Row("customer.email: string", the("payment"), {"customer": {"email": "abebe@example.com"}}),
    Row("customer.phone: string, international format", the("payment"), {"customer": {"phone": ANYBODY}}),
    Row(
        "customer.phone: … another format",
        POST(PAY, paying(customer={"phone": "0911223344"})),
        faulty("customer.phone"),
    ),
    Row("customer.name: input", POST(PAY, paying(customer={"name": "Abebe"})), gives(201)),
    Row("customer.name: a string", POST(PAY, paying(customer={"name": 1})), faulty("customer.name")),
    Row("customer.email: a string", POST(PAY, paying(customer={"email": 1})), faulty("customer.email")),
    Row("description: free text", the("payment"), {"description": "Two bags of coffee"}),
    Row("description: a string", POST(PAY, paying(description=1)), faulty("description")),
    Row("callback_url: URL, input on create", the("payment"), {"callback_url": "https://shop.example.et/thanks"}),
    Row("callback_url: a URL", POST(PAY, paying(callback_url="thanks")), faulty("callback_url")),
    Row("payment_method: mobile_money", the("created"), {"payment_method": "mobile_money"}),
    Row("metadata: string-to-string map, input on create", the("payment"), {"metadata": {"order": "7"}}),
    Row("metadata: string-to-string", POST(PAY, paying(metadata={"order": 7})), faulty("metadata.order")),
    Row("metadata: a map", POST(PAY, paying(metadata=["order"])), faulty("metadata")),
    Row("payment_link: URL of a hosted payment page, returned on create", the("created"), {"payment_link": LINK}),
    Row("qr_code: PNG, base64, as a data URI, returned on create", steps.the_qr_code_is_a_png_of_the_link),
    Row("expires_at: timestamp, returned on create", the("created"), {"expires_at": TIMESTAMP}),
    Row("created_at: timestamp", the("created"), {"created_at": TIMESTAMP}),
    Row("completed_at: timestamp, shown on a completed payment", the("completed"), {"completed_at": TIMESTAMP}),
    Row("completed_at: … and on no other", the("failed"), {"completed_at": ABSENT}),
    Row(
        "transaction_id: prefix txn_, shown on a completed payment",
        the("completed"),
        {"transaction_id": starts("txn_")},
    ),
    Row("transaction_id: … and on no other", the("failed"), {"transaction_id": ABSENT}),
    "Refund",
    Row("id: prefix ref_", the("refund"), {"id": starts("ref_")}),
    Row("payment_id: id of the payment refunded", the("refund"), {"payment_id": starts("pay_")}),
    Row("status: pending_approval is the value returned on create", the("refund"), {"status": "pending_approval"}),
    Row("amount: amount to refund", the("refund"), {"amount": digits("30.00")}),
    Row("currency: copied from the payment", the("refund"), {"currency": "ETB"}),
    Row("reason: free text", the("refund"), {"reason": "One bag came back"}),
    Row("metadata: string-to-string map, input on create", the("refund"), {"metadata": {"order": "7"}}),
    Row("created_at: timestamp", the("refund"), {"created_at": TIMESTAMP}),
    "Customer",
    Row("id: prefix cus_", the("customer"), {"id": starts("cus_")}),
    Row("email: e-mail address", the("customer"), {"email": "abebe@example.com"}),
    Row("email: … and nothing else", POST("/customers", {"email": "abebe"}), faulty("email")),
    Row("phone: telephone number in international format", the("customer"), {"phone": ANYBODY}),
    Row("phone: … and in no other", POST("/customers", {"phone": "0911223344"}), faulty("phone")),
    Row("name: full name", the("customer"), {"name": "Abebe"}),
    Row("metadata: string-to-string map, input on create", the("customer"), {"metadata": {"till": "2"}}),
    Row("created_at: timestamp", the("customer"), {"created_at": TIMESTAMP}),
    "Webhook registration (input)",
    Row("url: URL that receives events", the("webhook"), {"url": re.compile(r"http://127\.0\.0\.1:\d+/hooks")}),
    Row("url: HTTPS required in production", POST("/webhooks", hooking(), live=True), faulty("url")),
    Row(
        "url: HTTPS in production",
        POST("/webhooks", hooking(url="https://shop.example.et/hooks"), live=True, anew=True),
        gives(201, {"url": "https://shop.example.et/hooks"}),
    ),
    Row("url: required", POST("/webhooks", {"events": ["*"]}), faulty("url")),
    Row("events: array of string", the("webhook"), {"events": ["*"]}),
    Row("events: event types", POST("/webhooks", hooking(events=["payment.paid"])), faulty("events")),
    Row("description: free text", the("webhook"), {"description": "The till"}),
    Row("description: a string", POST("/webhooks", hooking(description=1)), faulty("description")),
    "Event (webhook payload)",
    Row("id: prefix evt_", the("event"), {"id": starts("evt_")}),
    Row("type: one of the event types", the("event"), {"type": "payment.completed"}),
    Row(
        "created: integer, Unix time in seconds",
        the("event"),
        {"created": steps.is_now},
    ),
    Row("created: integer", the("event"), {"created": int}),
    Row("livemode: false for test-environment events", the("event"), {"livemode": False}),
    Row("livemode: true for live ones", steps.a_live_event_says_so),
    Row(
        "data: holds object: the resource the event concerns",
        the("event"),
        {"data": {"object": {"id": starts("pay_")}}},
    ),
    Row("previous_attributes: for update events, the previous values", steps.an_update_tells_what_was_before),
    Row("previous_attributes: … for update events", the("event"), {"previous_attributes": ABSENT}),
    "Pagination object",
    Row("limit: integer", the("payments"), {"pagination": {"limit": int}}),
    Row("offset: integer", the("payments"), {"pagination": {"offset": int}}),
    Row("total: integer", the("payments"), {"pagination": {"total": int}}),
    "States and transitions",
    Row("POST /payments, request valid: pending", POST(PAY, LEAST), gives(201, {"status": "pending"})),
    Row(
        "response carries payment_link, qr_code, expires_at, created_at",
        POST(PAY, LEAST),
        gives(201, {"payment_link": LINK, "qr_code": str, "expires_at": TIMESTAMP, "created_at": TIMESTAMP}),
    ),
    Row("request not valid: nothing", POST(PAY, {}), faulty("amount", "currency")),
    Row("payment.processing, but no status of that name is given for the resource", steps.processing_is_no_status),
    Row("… nor accepted by the filter", GET("/payments?status=processing"), faulty("status")),
    Row(
        "a completed payment carries completed_at and transaction_id",
        the("completed"),
        {"completed_at": TIMESTAMP, "transaction_id": str},
    ),
    Row("… a pending one does not", the("payment"), {"completed_at": ABSENT, "transaction_id": ABSENT}),
    Row("refund status: pending_approval on creation", the("bare_refund"), {"status": "pending_approval"}),
    "Endpoints",
    Row("every request carries the Authorization header", GET(PAY, by=None), refuses(401, "authentication_failed")),
    Row("paths are relative to {base_url}", GET("/nowhere"), refuses(404, "resource_not_found")),
    "POST /payments",
    Row("request body: every field", POST(PAY, EVERYTHING), gives(201, {"amount": digits("1500.00")})),
    Row(
        "response data: id, status, amount, currency, payment_method, payment_link, qr_code, expires_at, created_at",
        the("created"),
        exactly(
            *(
                "id",
                "status",
                "amount",
                "currency",
                "payment_method",
                "payment_link",
                "qr_code",
                "expires_at",
                "created_at",
            )
        ),
    ),
    "GET /payments/{payment_id}",
    Row(
        "response data: id, status, amount, currency, customer (email, phone), description, transaction_id, "
        "payment_method, created_at, completed_at",
        GET("/payments/{completed}"),
        gives(
            200,
            {
                "id": starts("pay_"),
                "status": "completed",
                "amount": digits("1500.00"),
                "currency": "ETB",
                "customer": {"email": "abebe@example.com", "phone": ANYBODY},
                "description": "Two bags of coffee",
                "transaction_id": starts("txn_"),
                "payment_method": "mobile_money",
                "created_at": TIMESTAMP,
                "completed_at": TIMESTAMP,
            },
        ),
    ),
    Row("an unknown id gives 404", GET("/payments/{no_pay}"), refuses(404, "resource_not_found")),
    Row("an unknown id gives 404 (no id at all)", GET("/payments/7"), refuses(404, "resource_not_found")),
    "GET /payments",
    Row("limit: integer", GET("/payments?limit=ten"), faulty("limit")),
    Row("limit: optional, default 10; offset: number of records to skip", steps.the_list_is_cut_into_pages),
    Row("limit: maximum 100 (100)", GET("/payments?limit=100"), gives(200, {"pagination": {"limit": 100}})),
    Row("limit: maximum 100 (101)", GET("/payments?limit=101"), faulty("limit")),
    Row("limit: (1)", GET("/payments?limit=1"), gives(200, {"pagination": {"limit": 1}})),
    Row("limit: (0)", GET("/payments?limit=0"), faulty("limit")),
    Row("offset: integer", GET("/payments?offset=1.5"), faulty("offset")),
    Row("offset: (0)", GET("/payments?offset=0"), gives(200, {"pagination": {"offset": 0}})),
    Row("offset: (-1)", GET("/payments?offset=-1"), faulty("offset")),
    Row("status: pending", partial(steps.payments_are_listed_after_the_filter, status="pending")),
    Row("status: completed", partial(steps.payments_are_listed_after_the_filter, status="completed")),
    Row("status: failed", partial(steps.payments_are_listed_after_the_filter, status="failed")),
    Row("status: cancelled", partial(steps.payments_are_listed_after_the_filter, status="cancelled")),
    Row("status: one of these", GET("/payments?status=paid"), faulty("status")),
    Row("date_from: ISO 8601 date", GET("/payments?date_from=2026-01-01"), gives(200)),
    Row("date_from: ISO 8601 time", GET("/payments?date_from=2026-01-01T10:00:00Z"), gives(200)),
    Row("date_from: … nothing else", GET("/payments?date_from=yesterday"), faulty("date_from")),
    Row("date_to: ISO 8601 date", GET("/payments?date_to=2026-01-01"), gives(200)),
    Row("date_to: ISO 8601 time", GET("/payments?date_to=2026-01-01T10:00:00Z"), gives(200)),
    Row("date_to: … nothing else", GET("/payments?date_to=tomorrow"), faulty("date_to")),
    Row("date_from: lower bound; date_to: upper bound", steps.dates_bound_the_list),
    Row(
        "response data: payments (id, status, amount, currency, description, created_at)",
        the("payments"),
        {
            "payments": each(
                {
                    "id": starts("pay_"),
                    "status": str,
                    "amount": NUMBER,
                    "currency": "ETB",
                    "description": text_or_null,
                    "created_at": TIMESTAMP,
                }
            )
        },
    ),
    Row(
        "response data: pagination (limit, offset, total)",
        the("payments"),
        {"pagination": {"limit": 100, "offset": 0, "total": int}},
    ),
    "POST /refunds",
    Row(
        "a refund for a completed payment", POST("/refunds", {"payment_id": "{completed}", "amount": 0.01}), gives(201)
    ),
    Row("request body: payment_id (string)", POST("/refunds", {"payment_id": 1, "amount": 1}), faulty("payment_id")),
    Row("request body: payment_id", POST("/refunds", {"amount": 1}), faulty("payment_id")),
    Row(
        "request body: amount (number)",
        POST("/refunds", {"payment_id": "{completed}", "amount": "1"}),
        faulty("amount"),
    ),
    Row(
        "request body: reason (string)",
        POST("/refunds", {"payment_id": "{completed}", "amount": 1, "reason": 1}),
        faulty("reason"),
    ),
    Row(
        "request body: metadata (object)",
        POST("/refunds", {"payment_id": "{completed}", "amount": 1, "metadata": 1}),
        faulty("metadata"),
    ),
    Row(
        "response data: id, payment_id, status (pending_approval), amount, currency, reason, created_at",
        the("refund"),
        {
            "id": starts("ref_"),
            "payment_id": starts("pay_"),
            "status": "pending_approval",
            "amount": digits("30.00"),
            "currency": "ETB",
            "reason": "One bag came back",
            "created_at": TIMESTAMP,
        },
    ),
    "POST /customers",
    Row("request body: email (string)", POST("/customers", {"email": 1}), faulty("email")),
    Row("request body: phone (string)", POST("/customers", {"phone": 1}), faulty("phone")),
    Row("request body: name (string)", POST("/customers", {"email": "a@example.com", "name": 1}), faulty("name")),
    Row(
        "request body: metadata (object)",
        POST("/customers", {"email": "a@example.com", "metadata": "till"}),
        faulty("metadata"),
    ),
    Row(
        "response data: id, email, phone, name, created_at",
        the("customer"),
        {
            "id": starts("cus_"),
            "email": "abebe@example.com",
            "phone": ANYBODY,
            "name": "Abebe",
            "created_at": TIMESTAMP,
        },
    ),
    "POST /webhooks",
    Row(
        "request body: url (string), events (array of string), description (string)",
        POST("/webhooks", hooking(description="The till"), anew=True),
        gives(201, {"url": HOOKS, "events": ["payment.completed"], "description": "The till"}),
    ),
    Row("url (string)", POST("/webhooks", hooking(url=1)), faulty("url")),
    Row("events (array of string)", POST("/webhooks", hooking(events="payment.completed")), faulty("events")),
    Row("description (string)", POST("/webhooks", hooking(description=["x"])), faulty("description")),
    "Authentication",
    Row("1. Authorization: Bearer <API_KEY>", GET(PAY), gives(200)),
    Row("1. … every request carries it", POST(PAY, LEAST, by=None), refuses(401, "authentication_failed")),
    Row(
        "1. … Bearer", GET(PAY, by=None, headers=(("Authorization", "Basic x"),)), refuses(401, "authentication_failed")
    ),
    Row("3. test keys start with sk_test_ and are for the sandbox", steps.the_keys_have_their_prefixes),
    Row("3. live keys start with sk_live_ and are for production", steps.the_keys_have_their_prefixes),
    Row("4. a test key in production, a live key in the sandbox", steps.a_key_works_in_its_own_environment_only),
    Row("4. an invalid key gives 401", GET(PAY, by="sk_test_x"), refuses(401, "authentication_failed")),
    Row("6. Admin: all endpoints", partial(steps.a_role_may, role="admin", create=True, everything=True)),
    Row("6. Developer: create and view transactions", partial(steps.a_role_may, role="developer", create=True)),
    Row("6. Read-only: view only", partial(steps.a_role_may, role="read_only")),
    Row("6. … on every endpoint", proved_by(test_isolation.test_each_role_may_do_what_the_table_says)),
    "Webhook signature",
    Row("1. every delivery is signed with HMAC-SHA256 using the signing secret", steps.every_delivery_is_signed),
    Row(
        "2. in the header (service)-signature, t=<timestamp>,v1=<hex_digest>",
        the("headers"),
        {"zembil-signature": steps.SIGNATURE},
    ),
    Row("3. lowercase hexadecimal HMAC-SHA256 of the payload", steps.the_signature_is_made_with_the_secret),
    "Events",
    Row("sent to each registered webhook URL", steps.every_registered_url_is_told),
    Row("… when a subscribed event occurs", steps.only_subscribed_events_arrive),
    Row("payment.created", partial(steps.an_event_arrives, event_type="payment.created", status="pending")),
    Row("payment.pending", partial(steps.an_event_arrives, event_type="payment.pending", status="pending")),
    Row("payment.processing", partial(steps.an_event_arrives, event_type="payment.processing", status="pending")),
    Row("payment.completed", partial(steps.an_event_arrives, event_type="payment.completed", status="completed")),
    Row("payment.failed", partial(steps.an_event_arrives, event_type="payment.failed", status="failed")),
    Row("payment.cancelled", partial(steps.an_event_arrives, event_type="payment.cancelled", status="cancelled")),
    Row("refund.created", partial(steps.an_event_arrives, event_type="refund.created", status="pending_approval")),
    Row("refund.approved", partial(steps.an_event_arrives, event_type="refund.approved", status="approved")),
    Row("refund.completed", partial(steps.an_event_arrives, event_type="refund.completed", status="completed")),
    Row("refund.failed", partial(steps.an_event_arrives, event_type="refund.failed", status="failed")),
    Row("customer.created", partial(steps.an_event_arrives, event_type="customer.created", status=None)),
    Row("customer.updated", partial(steps.an_event_arrives, event_type="customer.updated", status=None)),
    Row(
        "payment.completed: data.object has the fields of a completed Payment",
        the("event"),
        {
            "data": {
                "object": {
                    "id": starts("pay_"),
                    "status": "completed",
                    "amount": (int, float),
                    "currency": "ETB",
                    "customer": exactly("email", "phone"),
                    "description": text_or_null,
                    "transaction_id": starts("txn_"),
                    "payment_method": "mobile_money",
                    "created_at": TIMESTAMP,
                    "completed_at": TIMESTAMP,
                }
            }
        },
    ),
    Row("payment.completed: of a payment that was paid", steps.a_completed_payment_is_told_as_it_stands),
    "Receiver requirements",
    Row("1. HTTP POST", steps.every_registered_url_is_told),
    Row("2. it answers with status 200: successful", steps.status_200_is_success),
    Row("2. … within 10 seconds", TEN_SECONDS),
    Row("3. reachable over HTTPS in production", proved_by(test_webhook_endpoints.test_a_live_endpoint_stays_on_https)),
    Row("4. duplicates can be told by their id", the("headers"), {"webhook-id": starts("evt_")}),
    "Delivery and retries",
    Row("1. attempted at most 3 times; 3. at once, after 1 minute, after 10 minutes", steps.the_schedule_is_kept),
    Row("2. a retry happens when the receiver answers with a status other than 200", steps.another_status_is_retried),
    Row("2. … does not answer within 10 seconds", TEN_SECONDS),
    Row("2. … or is unreachable", steps.an_unreachable_receiver_is_tried_again),
    Row("5. events can be simulated in the sandbox", POST("/test/events", {"type": "payment.failed"}), gives(201)),
    "Errors",
    Row("validation_error has details: field and message", POST(PAY, paying(amount=0)), faulty("amount")),
    Row("others have none", GET("/payments/{no_pay}"), refuses(404, "resource_not_found")),
    Row("400 validation_error: amount not greater than 0", POST(PAY, paying(amount=0)), faulty("amount")),
    Row(
        "401 authentication_failed: the key is invalid", GET(PAY, by="nonsense"), refuses(401, "authentication_failed")
    ),
    Row("401 authentication_failed: of the wrong environment", steps.a_key_works_in_its_own_environment_only),
    Row("404 resource_not_found: payment", GET("/payments/{no_pay}"), refuses(404, "resource_not_found")),
    Row(
        "404 resource_not_found: the payment of a refund",
        POST("/refunds", {"payment_id": "{no_pay}", "amount": 1}),
        refuses(404, "resource_not_found"),
    ),
    Row(
        "422 insufficient_funds",
        POST("/payments/{bare}/charge", {"phone": "+251900000001", "mobile_money_provider": "telebirr"}),
        refuses(422, "insufficient_funds"),
    ),
    Row("429 rate_limit_exceeded", steps.more_than_the_limit_is_refused),
    "Limits",
    Row("limit query parameter: default 10", GET(PAY), gives(200, {"pagination": {"limit": 10}})),
    Row("limit query parameter: maximum 100", GET("/payments?limit=100"), gives(200)),
    Row("limit query parameter: maximum 100 (101)", GET("/payments?limit=101"), faulty("limit")),
    Row("amount: greater than 0 (0.01)", POST(PAY, paying(amount=0.01)), gives(201)),
    Row("amount: greater than 0 (0)", POST(PAY, paying(amount=0)), faulty("amount")),
    Row("webhook response time: 10 seconds", TEN_SECONDS),
    Row("webhook delivery attempts: 3 (at once, after 1 minute, after 10 minutes)", steps.the_schedule_is_kept),
    "Versioning",
    Row("the version is carried in the base address as the path segment v1", steps.other_versions_are_not_there),
]


@pytest.mark.parametrize("row", parameters(CONTRACT))
def test_the_contract_is_kept(stage: Stage, row: Row) -> None:
    row.hold(stage)
