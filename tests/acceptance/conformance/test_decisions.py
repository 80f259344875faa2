"""The decisions, sections 1 to 7, in the order and the words of their page.

Hold the page beside the table and tick. What takes more than one request is in decision_steps.py. These have no row:

- `mer_ acc_` (section 1): no answer holds one.
- "a setting" of the largest amount (section 2) and of 16 endpoints (section 5): tests/unit/test_docs.py holds them.
- "changing it in live needs a second Admin; audited" (section 3), "team, settings, audit log" (section 6): they are the
  dashboard's, which has tests of its own.
- "stored payloads keep it until their retention ends" (section 4): that takes weeks; docs/api.md tells merchants.
- "Waits at most 10 s", "the rails' raw codes are mapped by a table and kept" (section 2): the sandbox's rail answers at
  once and has few codes; this is for the tests of real rails.
- "role at most its creator's" (section 6): only Admins make keys, and no role is above theirs.
- "stored on the refund with a CHECK" (section 3) and the like: no answer shows how a thing is stored.
- `internal_error` (section 6): a bug of ours, which no request can ask for.
- "`Deprecation`/`Sunset` headers at least 12 months before" (section 6): nothing is deprecated.
- "not … sessions" (section 7): only the dashboard has some.
"""

import re
from functools import partial
from typing import Any

import pytest

from tests.acceptance import (
    test_charges,
    test_customers,
    test_deliveries,
    test_deliveries_api,
    test_events_api,
    test_expiry,
    test_idempotency,
    test_isolation,
    test_keys,
    test_late_money,
    test_management,
    test_payments_as_sent,
    test_races,
    test_rate_limits,
    test_refunds,
    test_rotation,
    test_survives_kills,
    test_webhook_endpoints,
    test_webhook_tls,
)
from tests.acceptance.conformance import decision_steps as steps
from tests.acceptance.conformance.rows import (
    ABSENT,
    DELETE,
    GET,
    HEAD,
    LINK,
    NUMBER,
    PATCH,
    POST,
    PUT,
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
from tests.acceptance.conformance.stage import ANYBODY, EVERYTHING, LEAST, PAYS, Stage
from tests.integration import test_rate_limit_windows
from tests.unit import (
    test_addresses,
    test_docs,
    test_failed_authentications,
    test_payment_lifecycle,
    test_secrets,
    test_signature,
    test_telemetry,
)

PAY, CUSTOMERS, REFUNDS, WEBHOOKS, KEYS = "/payments", "/customers", "/refunds", "/webhooks", "/keys"
HOOKS = "http://shop.example.et/hooks"
FAMILY = "👩\u200d👩\u200d👧\u200d👦"  # seven code points
NOT_FOUND = refuses(404, "resource_not_found")
UNAUTHENTICATED = refuses(401, "authentication_failed", www_authenticate="Bearer")
FORBIDDEN = refuses(403, "permission_denied")
CONFLICT = refuses(409, "invalid_state")
TELEBIRR = {"mobile_money_provider": "telebirr"}


def paying(**changes: Any) -> dict[str, Any]:
    return LEAST | changes


def refunding(**changes: Any) -> dict[str, Any]:
    return {"payment_id": "{completed}", "amount": 0.01} | changes


def hooking(**changes: Any) -> dict[str, Any]:
    return {"url": HOOKS, "events": ["payment.completed"]} | changes


def written(more: str) -> bytes:
    """A payment, with this text behind its last field."""
    return ('{"amount":100,"currency":"ETB"' + more + "}").encode()


def typed(kind: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", kind),)


def keyed(*keys: str) -> tuple[tuple[str, str], ...]:
    return tuple(("Idempotency-Key", key) for key in keys)


ENVIRONMENTS: list[str | Row] = [
    "1 Base addresses",
    Row("live at {origin}/v1", GET(PAY, live=True), gives(200)),
    Row("sandbox at {origin}/sandbox/v1", GET(PAY), gives(200)),
    Row("sk_live_ keys work only on the first, sk_test_ only on the second", steps.keys_work_at_their_own_address),
    Row("the public origin is a setting, never the Host header", steps.the_host_header_changes_nothing),
    "1 Service name",
    Row("default zembil; it names the headers", the("headers"), {"zembil-signature": str, "zembil-timestamp": str}),
    Row("… and the pages", steps.the_page_has_the_services_name_and_a_request_id),
    Row("a setting", proved_by(test_signature.test_the_headers_carry_the_services_own_name)),
    "1 Identifiers",
    Row("pay_ + 26 characters", the("payment"), {"id": starts("pay_")}),
    Row("ref_", the("refund"), {"id": starts("ref_")}),
    Row("cus_", the("customer"), {"id": starts("cus_")}),
    Row("evt_", the("event"), {"id": starts("evt_")}),
    Row("txn_", the("completed"), {"transaction_id": starts("txn_")}),
    Row("whk_", the("webhook"), {"id": starts("whk_")}),
    Row("dlv_", the("delivery"), {"id": starts("dlv_")}),
    Row("key_", the("api_key"), {"id": starts("key_")}),
    Row("chg_", the("charged"), {"charge": {"id": starts("chg_")}}),
    Row("usr_", the("refund"), {"requested_by": starts("usr_")}),
    Row("time-ordered", steps.ids_are_in_the_order_of_time),
    Row("the payment page's token is another: {origin}/p/{token}", steps.the_token_is_no_id),
    "1 Request id",
    Row("on every answer: a success", GET(PAY), gives(200, zembil_request_id=str)),
    Row("on every answer: a refusal", GET(PAY, by=None), refuses(401, "authentication_failed", zembil_request_id=str)),
    Row("on every answer: a page", steps.the_page_has_the_services_name_and_a_request_id),
    Row("in every log line of the request", proved_by(test_telemetry.test_every_log_line_of_a_request_has_its_id)),
    "1 Success status",
    Row("201 for a POST that creates", POST(PAY, LEAST), gives(201)),
    Row("200 otherwise", PATCH("/customers/{customer}", {}), gives(200)),
    "1 Order of checks",
    Row("size → authentication", POST(PAY, b"x" * 65_537, by=None), refuses(413, "payload_too_large")),
    Row("authentication → rate limit", GET(PAY, by=None), refuses(401, "authentication_failed", ratelimit=None)),
    Row("rate limit → path", proved_by(test_rate_limits.test_a_refused_request_is_refused_whatever_it_asks)),
    Row("authentication → path", GET("/nowhere", by=None), UNAUTHENTICATED),
    Row("path (404) → role", POST("/nowhere", {}, by="read_only"), NOT_FOUND),
    Row("method (405) → role", PUT(PAY, {}, by="read_only"), refuses(405, "method_not_allowed")),
    Row("role → media type", POST(PAY, b"x", by="read_only", headers=typed("text/plain")), FORBIDDEN),
    Row(
        "media type → Idempotency-Key",
        POST(PAY, b"x", headers=(*typed("text/plain"), *keyed(""))),
        refuses(415, "unsupported_media_type"),
    ),
    Row("media type: missing", POST(PAY, b"{}", headers=typed("")), refuses(415, "unsupported_media_type")),
    Row("Idempotency-Key → validation", POST(PAY, {}, headers=keyed("")), faulty("Idempotency-Key")),
    Row("validation → existence", POST(REFUNDS, refunding(payment_id="{no_pay}", amount=0)), faulty("amount")),
    Row("existence", POST("/payments/{no_pay}/cancel"), NOT_FOUND),
    Row("existence → state", POST("/payments/{cancelled}/cancel"), CONFLICT),
    Row("validation → state", POST("/payments/{cancelled}/charge", {"phone": "x"} | TELEBIRR), faulty("phone")),
    "1 Bodies",
    Row("unknown fields are ignored", POST(PAY, paying(note=1)), gives(201, {"note": ABSENT})),
    Row("unknown query parameters are ignored", GET("/payments?note=1"), gives(200)),
    Row("exception: refunds", POST(REFUNDS, {"payment_id": "{completed}", "amout": 1}), faulty("amout")),
    Row('"100" is no amount', POST(PAY, paying(amount="100")), faulty("amount")),
    Row("true is no number", POST(PAY, paying(amount=True)), faulty("amount")),
    Row("null counts as absent", POST(PAY, paying(description=None, customer=None, metadata=None)), gives(201)),
    Row("null is a fault for amount", POST(PAY, paying(amount=None)), faulty("amount")),
    Row("… currency", POST(PAY, paying(currency=None)), faulty("currency")),
    Row("… payment_id", POST(REFUNDS, refunding(payment_id=None)), faulty("payment_id")),
    Row("… amount of a refund", POST(REFUNDS, refunding(amount=None)), faulty("amount")),
    Row("a call without required fields takes an empty body without Content-Type", steps.an_empty_body_is_taken),
    "1 Duplicate JSON keys …",
    Row("duplicate JSON keys", POST(PAY, written(',"note":1,"note":1')), faulty("note")),
    Row("NaN", POST(PAY, written(',"note":NaN')), faulty("body")),
    Row("Infinity", POST(PAY, written(',"note":Infinity')), faulty("body")),
    Row("1e400", POST(PAY, b'{"amount":1e400,"currency":"ETB"}'), faulty("amount")),
    Row("a NUL character", POST(PAY, written(',"description":"\\u0000"')), faulty("description")),
    Row("lone surrogates", POST(PAY, written(',"description":"\\ud800"')), faulty("description")),
    Row("nesting over 32 (32)", POST(PAY, written(',"note":' + "[" * 31 + "]" * 31)), gives(201)),
    Row("nesting over 32 (33)", POST(PAY, written(',"note":' + "[" * 32 + "]" * 32)), faulty("body")),
    Row("a repeated query parameter", GET("/payments?limit=1&limit=1"), faulty("limit")),
    Row("a body over 64 KiB (64 KiB)", POST(PAY, written("").ljust(65_536)), gives(201)),
    Row("a body over 64 KiB (one byte more)", POST(PAY, written("").ljust(65_537)), refuses(413, "payload_too_large")),
    "1 details[].field",
    Row("dotted: customer.phone", POST(PAY, paying(customer={"phone": "x"})), faulty("customer.phone")),
    Row("dotted: metadata.k", POST(PAY, paying(metadata={"k": 1})), faulty("metadata.k")),
    Row("body for the whole body", POST(PAY, b"[]"), faulty("body")),
    Row("the parameter's name", GET("/payments?status=x"), faulty("status")),
    Row("the header's name", POST(PAY, LEAST, headers=keyed("a b")), faulty("Idempotency-Key")),
    "1 Field without a value",
    Row(
        "listed by the contract: null if none",
        the("bare"),
        {"description": None, "customer": {"email": None, "phone": None}},
    ),
    Row("a refund's reason", the("bare_refund"), {"reason": None}),
    Row("a customer's email, phone, name", the("bare_customer"), {"email": None, "phone": ANYBODY, "name": None}),
    Row(
        "transaction_id, completed_at only on a completed payment",
        the("bare"),
        {"transaction_id": ABSENT, "completed_at": ABSENT},
    ),
    Row(
        "additive fields left out",
        the("bare"),
        dict.fromkeys(("reference", "callback_url", "mobile_money_provider", "failure_code"), ABSENT)
        | dict.fromkeys(("failure_message", "cancellation_reason", "metadata"), ABSENT),
    ),
    "1 Times",
    Row("UTC with Z, milliseconds", the("payment"), {"created_at": TIMESTAMP}),
    Row("stored as shown", steps.times_are_stored_as_shown),
    Row("input: YYYY-MM-DD", GET("/payments?date_from=2026-01-31"), gives(200)),
    Row("input: RFC 3339", GET("/payments?date_from=2026-01-31T10:00:00%2B03:00"), gives(200)),
    Row("no offset means UTC", steps.no_offset_means_utc),
    Row("an unescaped + is read as +", GET("/payments?date_from=2026-01-31T10:00:00+03:00"), gives(200)),
    Row("else 400", GET("/payments?date_from=31.01.2026"), faulty("date_from")),
    "1 Lengths",
    Row("in code points (500)", POST(PAY, paying(description=FAMILY * 71 + "abc")), gives(201)),
    Row("in code points (501)", POST(PAY, paying(description=FAMILY * 71 + "abcd")), faulty("description")),
    Row("trailing slash → 404", GET("/payments/"), NOT_FOUND),
    Row("HEAD as GET", HEAD(PAY), gives(200, content_type="application/json")),
]

PAYMENTS: list[str | Row] = [
    "2 Required",
    Row("amount and currency", POST(PAY, {}), faulty("amount", "currency")),
    Row("payment_method absent → mobile_money", POST(PAY, LEAST), gives(201, {"payment_method": "mobile_money"})),
    Row(
        "all faults of a body at once",
        POST(
            PAY,
            {"amount": 0, "currency": "USD", "customer": {"phone": "x", "name": 1}, "expires_in": 1, "reference": ""},
        ),
        faulty("amount", "currency", "customer.phone", "customer.name", "expires_in", "reference"),
    ),
    "2 amount",
    Row(
        "JSON number, exact decimal",
        POST(PAY, b'{"amount":0.29,"currency":"ETB"}'),
        gives(201, {"amount": digits("0.29")}),
    ),
    Row("> 0 (0)", POST(PAY, paying(amount=0)), faulty("amount")),
    Row("> 0 (0.01)", POST(PAY, paying(amount=0.01)), gives(201)),
    Row("at most 2 decimals", POST(PAY, paying(amount=1.001)), faulty("amount")),
    Row("at most 999999.99", POST(PAY, paying(amount=999999.99)), gives(201, {"amount": digits("999999.99")})),
    Row("at most 999999.99 (1000000)", POST(PAY, paying(amount=1000000)), faulty("amount")),
    Row("written with exactly two decimals", POST(PAY, paying(amount=1500)), gives(201, {"amount": digits("1500.00")})),
    "2 currency, payment_method",
    Row("anything but ETB 400", POST(PAY, paying(currency="etb")), faulty("currency")),
    Row("anything but mobile_money 400", POST(PAY, paying(payment_method="cash")), faulty("payment_method")),
    "2 customer",
    Row("optional object", POST(PAY, paying(customer="Abebe")), faulty("customer")),
    Row("e-mail syntax", POST(PAY, paying(customer={"email": "abebe@"})), faulty("customer.email")),
    Row("phone in E.164", POST(PAY, paying(customer={"phone": ANYBODY})), gives(201)),
    Row("09… refused with a helpful message", partial(steps.a_local_number_is_explained, phone="0911223344")),
    Row("07… refused with a helpful message", partial(steps.a_local_number_is_explained, phone="0711223344")),
    Row("additive customer.id links a stored customer", POST(PAY, paying(customer={"id": "{customer}"})), gives(201)),
    Row("… found by its filter", steps.a_linked_payment_is_found_by_its_customer),
    Row("unknown → 400 on that field", POST(PAY, paying(customer={"id": "{no_cus}"})), faulty("customer.id")),
    Row("a payment creates no customer", steps.a_payment_creates_no_customer),
    "2 metadata",
    Row("string → string", POST(PAY, paying(metadata={"k": True})), faulty("metadata.k")),
    Row("≤ 50 keys", POST(PAY, paying(metadata={f"k{n}": "" for n in range(50)})), gives(201)),
    Row("≤ 50 keys (51)", POST(PAY, paying(metadata={f"k{n}": "" for n in range(51)})), faulty("metadata")),
    Row("of 1–40 (1, 40)", POST(PAY, paying(metadata={"k": "", "k" * 40: ""})), gives(201)),
    Row("of 1–40 (0)", POST(PAY, paying(metadata={"": ""})), faulty("metadata")),
    Row("of 1–40 (41)", POST(PAY, paying(metadata={"k" * 41: ""})), faulty("metadata")),
    Row("values ≤ 500", POST(PAY, paying(metadata={"k": "v" * 500})), gives(201)),
    Row("values ≤ 500 (501)", POST(PAY, paying(metadata={"k": "v" * 501})), faulty("metadata.k")),
    "2 Lengths",
    Row("description ≤ 500", POST(PAY, paying(description="d" * 500)), gives(201)),
    Row("description ≤ 500 (501)", POST(PAY, paying(description="d" * 501)), faulty("description")),
    Row("reason ≤ 500", POST(REFUNDS, refunding(reason="r" * 500)), gives(201)),
    Row("reason ≤ 500 (501)", POST(REFUNDS, refunding(reason="r" * 501)), faulty("reason")),
    Row("name ≤ 200", POST(PAY, paying(customer={"name": "n" * 200})), gives(201)),
    Row("name ≤ 200 (201)", POST(PAY, paying(customer={"name": "n" * 201})), faulty("customer.name")),
    Row("URL ≤ 2048", POST(PAY, paying(callback_url="https://a.et/".ljust(2048, "x"))), gives(201)),
    Row("URL ≤ 2048 (2049)", POST(PAY, paying(callback_url="https://a.et/".ljust(2049, "x"))), faulty("callback_url")),
    "2 callback_url",
    Row("the payer's browser is sent back, with payment_id and status", steps.the_payer_is_sent_back),
    Row("http", POST(PAY, paying(callback_url="http://shop.example.et")), gives(201)),
    Row("or https, nothing else", POST(PAY, paying(callback_url="ftp://shop.example.et")), faulty("callback_url")),
    Row("… javascript:", POST(PAY, paying(callback_url="javascript:alert(1)")), faulty("callback_url")),
    Row("never an event receiver", steps.a_callback_url_hears_nothing),
    "2 Additive inputs",
    Row("reference: unique among pending and completed payments", steps.a_reference_is_taken_while_it_counts),
    Row("reference: 1 to 255 characters", POST(PAY, paying(reference="r" * 256)), faulty("reference")),
    Row("expires_in 300 …", POST(PAY, paying(expires_in=300)), gives(201)),
    Row("expires_in 300 … (299)", POST(PAY, paying(expires_in=299)), faulty("expires_in")),
    Row("expires_in … 2592000", POST(PAY, paying(expires_in=2592000)), gives(201)),
    Row("expires_in … 2592000 (2592001)", POST(PAY, paying(expires_in=2592001)), faulty("expires_in")),
    Row("mobile_money_provider telebirr", POST(PAY, paying(customer={"phone": ANYBODY}, **TELEBIRR)), gives(201)),
    Row("mobile_money_provider mpesa", steps.a_prompt_is_pushed_after_the_answer),
    Row(
        "… nothing else",
        POST(PAY, paying(mobile_money_provider="cbe")),
        faulty("mobile_money_provider", "customer.phone"),
    ),
    Row("needs customer.phone", POST(PAY, paying(**TELEBIRR)), faulty("customer.phone")),
    "2 Additive outputs of GET",
    Row("reference, mobile_money_provider", steps.what_was_given_is_read_back),
    Row(
        "metadata, callback_url",
        the("payment"),
        {"metadata": {"order": "7"}, "callback_url": EVERYTHING["callback_url"]},
    ),
    Row("payment_link, expires_at", the("payment"), {"payment_link": LINK, "expires_at": TIMESTAMP}),
    Row("amount_refunded (completed refunds)", steps.amount_refunded_counts_completed_refunds),
    Row("failure_code, failure_message", the("failed"), {"failure_code": "declined", "failure_message": str}),
    Row("cancellation_reason", the("cancelled"), {"cancellation_reason": "customer"}),
    Row("livemode: false", the("payment"), {"livemode": False}),
    Row("livemode: true", steps.a_live_payment_says_so),
    "2 expires_at",
    Row("created_at + 60 minutes", steps.a_payment_expires_after_an_hour),
    Row("unless asked otherwise", steps.a_payment_expires_when_asked),
    "2 Status",
    Row(
        "pending → completed, failed or cancelled",
        proved_by(test_payment_lifecycle.test_a_payment_leaves_pending_and_only_late_money_leaves_another_state),
    ),
    Row("processing is shown as pending", steps.processing_is_shown_as_pending),
    Row(
        "at most 5 charges that were really sent",
        proved_by(test_expiry.test_the_fifth_charge_without_success_ends_the_payment),
    ),
    Row("at most one of them live", proved_by(test_charges.test_while_a_prompt_is_open_there_is_no_second)),
    Row("at most one succeeded", proved_by(test_late_money.test_a_payer_who_pays_twice_gets_the_second_back)),
    "2 A charge comes to nothing",
    Row("by POST …/charge: the payment stays pending and the payer may try again", steps.a_payer_may_try_again),
    Row(
        "the fifth → failed with its code",
        proved_by(test_expiry.test_the_fifth_charge_without_success_ends_the_payment),
    ),
    Row(
        "pushed: refused → failed",
        partial(steps.a_pushed_prompt_ends, phone="+251900000001", status="failed", code="insufficient_funds"),
    ),
    Row(
        "pushed: wrong PIN → failed",
        partial(steps.a_pushed_prompt_ends, phone="+251900000003", status="failed", code="wrong_pin"),
    ),
    Row(
        "pushed: unavailable → failed",
        partial(steps.a_pushed_prompt_ends, phone="+251900000008", status="failed", code="provider_unavailable"),
    ),
    Row(
        "pushed: unanswered → failed",
        partial(steps.a_pushed_prompt_ends, phone="+251900000004", status="failed", code="timeout", after=120),
    ),
    Row(
        "pushed: declined → cancelled (customer)",
        partial(steps.a_pushed_prompt_ends, phone="+251900000002", status="cancelled", code=None),
    ),
    "2 failure_code",
    *(
        Row(code, partial(steps.a_payment_fails_with, code=code))
        for code in (
            *(
                "insufficient_funds",
                "customer_declined",
                "wrong_pin",
                "timeout",
                "limit_exceeded",
                "amount_out_of_range",
            ),
            *(
                "invalid_phone",
                "payer_not_eligible",
                "payer_busy",
                "provider_unavailable",
                "provider_rejected",
                "declined",
            ),
        )
    ),
    Row("no other", POST("/test/payments/{bare}/fail", {"failure_code": "unlucky"}), faulty("failure_code")),
    "2 Cancelled",
    Row("by the customer", the("cancelled"), {"cancellation_reason": "customer"}),
    Row("by the merchant", steps.a_merchant_cancels),
    Row("expired: always cancelled/expired, whatever the last charge said", steps.an_unpaid_payment_expires),
    "2 While a prompt is open",
    Row("cancel asks the rail to withdraw it; confirmed → cancelled", steps.a_prompt_is_withdrawn),
    Row("otherwise 409", proved_by(test_charges.test_what_is_confirmed_or_in_doubt_is_not_cancelled)),
    Row("stays pending past expires_at until the rail has answered", steps.an_open_charge_outlives_the_payments_end),
    "2 Unknown outcome",
    Row("is not failure: in doubt", steps.doubt_is_no_failure),
    Row(
        "asked 5, 10, 20, 40, 60 s, 2, 5, 15 min, 1, 6, 24 h after",
        proved_by(test_docs.test_the_doubt_schedule_is_the_decided_one),
    ),
    Row(
        "then the operator's queue",
        proved_by(
            test_payment_lifecycle.test_a_charge_in_doubt_is_asked_about_on_the_schedule_and_then_is_an_operators
        ),
    ),
    Row("never a second prompt meanwhile", steps.doubt_allows_no_second_prompt),
    "2 Late money",
    Row(
        "accept: a failed payment becomes completed",
        proved_by(test_late_money.test_late_money_completes_a_payment_that_had_failed),
    ),
    Row("accept: an expired one", proved_by(test_late_money.test_late_money_completes_a_payment_that_had_expired)),
    Row(
        "not if cancelled, nor if its reference is taken; refund",
        proved_by(test_late_money.test_late_money_that_nobody_waits_for_goes_back),
    ),
    Row(
        "every further success is surplus and returned",
        proved_by(test_late_money.test_a_payer_who_pays_twice_gets_the_second_back),
    ),
    "2 Guards",
    Row(
        "at most one event of each final type",
        proved_by(test_races.test_a_payment_that_everybody_ends_at_once_ends_once),
    ),
    "2 POST /payments/{id}/charge",
    Row("phone (default customer.phone)", steps.a_charge_takes_the_payments_phone),
    Row("phone: E.164", POST("/payments/{bare}/charge", {"phone": "0911223344"} | TELEBIRR), faulty("phone")),
    Row("phone: needed", POST("/payments/{bare}/charge", TELEBIRR), faulty("phone")),
    Row(
        "mobile_money_provider: needed",
        POST("/payments/{bare}/charge", {"phone": PAYS}),
        faulty("mobile_money_provider"),
    ),
    Row(
        "its key commits with the charge, before the rail is called",
        proved_by(test_charges.test_equal_keys_at_once_prompt_once),
    ),
    Row("a repeat never prompts, it answers that charge's present state", steps.a_repeated_charge_tells_how_it_stands),
    Row(
        "200: the payment + charge {id, state, mobile_money_provider, phone}",
        the("charged"),
        {
            "id": starts("pay_"),
            "status": "pending",
            "charge": {
                "id": starts("chg_"),
                "state": "awaiting_customer",
                "mobile_money_provider": "mpesa",
                "phone": ANYBODY,
            },
        },
    ),
    Row("charge: no other field", the("charged"), {"charge": exactly("id", "state", "mobile_money_provider", "phone")}),
    Row("state: in_progress, succeeded", steps.a_charge_goes_through_its_states),
    Row("state: in_doubt", steps.doubt_is_no_failure),
    Row("refused by the rail at once → 422 with the failure code", steps.a_refusal_at_once_is_answered),
    Row(
        "nothing could be sent → 503 provider_unavailable + Retry-After",
        POST("/payments/{bare}/charge", {"phone": "+251900000008"} | TELEBIRR),
        refuses(503, "provider_unavailable", retry_after=str.isdigit),
    ),
    Row(
        "another open or doubtful charge → 409",
        POST("/payments/{charged}/charge", {"phone": PAYS} | TELEBIRR),
        CONFLICT,
    ),
    Row("five used → 409", proved_by(test_expiry.test_the_fifth_charge_without_success_ends_the_payment)),
    Row("not pending → 409", POST("/payments/{completed}/charge", {"phone": PAYS} | TELEBIRR), CONFLICT),
    Row("unknown → 404", POST("/payments/{no_pay}/charge", {"phone": PAYS} | TELEBIRR), NOT_FOUND),
    "2 POST /payments/{id}/cancel",
    Row("200 payment", steps.a_merchant_cancels),
    Row("not pending → 409", POST("/payments/{completed}/cancel"), CONFLICT),
    "2 List",
    Row("newest first", steps.a_list_is_newest_first),
    Row("offset 0 by default", GET(PAY), gives(200, {"pagination": {"offset": 0}})),
    Row("limit 1", GET("/payments?limit=1"), gives(200)),
    Row("limit 1 (0)", GET("/payments?limit=0"), faulty("limit")),
    Row("limit 100", GET("/payments?limit=100"), gives(200)),
    Row("limit 100 (101)", GET("/payments?limit=101"), faulty("limit")),
    Row("total counts the filtered set exactly; every filter filters", steps.filters_filter_and_total_counts),
    Row("date_from/date_to both inclusive, a bare date is the whole UTC day", steps.both_dates_are_inclusive),
    Row("from > to → 400", GET("/payments?date_from=2026-01-02&date_to=2026-01-01"), faulty("date_from")),
    Row("from = to", GET("/payments?date_from=2026-01-02&date_to=2026-01-02"), gives(200)),
    Row(
        "items: the contract's six fields + reference, livemode",
        the("payments"),
        {
            "payments": each(
                {"id": starts("pay_"), "status": str, "amount": NUMBER, "currency": "ETB", "description": text_or_null}
                | {"created_at": TIMESTAMP, "livemode": False}
            )
        },
    ),
    Row("… reference", steps.a_listed_payment_has_its_reference),
    "2 Prompts",
    Row("at most 3 to a phone in 10 minutes per account (429)", steps.three_prompts_in_ten_minutes),
]

REFUNDED: list[str | Row] = [
    "3 Required",
    Row("payment_id", POST(REFUNDS, {"amount": 1}), faulty("payment_id")),
    Row("amount absent → all that is left", steps.without_an_amount_all_that_is_left),
    Row(
        "… and then unknown fields are refused", POST(REFUNDS, {"payment_id": "{completed}", "note": 1}), faulty("note")
    ),
    Row("… with an amount they are ignored", POST(REFUNDS, refunding(note=1)), gives(201)),
    "3 Transitions",
    Row("pending_approval", the("bare_refund"), {"status": "pending_approval"}),
    Row("→ approved → completed", steps.a_refund_is_approved_and_completed),
    Row("→ failed", steps.a_refund_fails),
    Row(
        "rejected → failed, failure_code, the reason",
        the("rejected"),
        {"status": "failed", "failure_code": "rejected", "failure_message": "The bag was empty"},
    ),
    Row(
        "unsure → stays approved and is asked about",
        proved_by(test_refunds.test_a_refund_in_doubt_stays_approved_and_is_asked_about),
    ),
    Row(
        "never sent twice",
        proved_by(test_refunds.test_refunds_and_charges_cut_off_by_a_crash_are_brought_to_their_end_once),
    ),
    "3 Bound",
    Row("Σ refunds that have not failed ≤ payment amount; freed when one fails", steps.no_more_than_was_paid),
    Row(
        "also of many at once",
        proved_by(test_refunds.test_however_many_ask_at_once_never_more_is_refunded_than_was_paid),
    ),
    Row("any number of refunds", steps.any_number_of_refunds),
    Row("a refunded payment stays completed", steps.amount_refunded_counts_completed_refunds),
    "3 Approval",
    Row("Admin only: developer", POST("/refunds/{refund}/approve", by="developer"), FORBIDDEN),
    Row("Admin only: read-only", POST("/refunds/{refund}/approve", by="read_only"), FORBIDDEN),
    Row("Admin only: reject", POST("/refunds/{refund}/reject", by="developer"), FORBIDDEN),
    Row(
        "never one's own request in live",
        proved_by(test_refunds.test_nobody_approves_what_they_asked_for_unless_the_account_allows_it),
    ),
    Row("allow_self_approval: on in the sandbox", steps.a_sandbox_allows_self_approval),
    Row(
        "requester and approver are people: the user of the key",
        proved_by(test_keys.test_a_key_belongs_to_whoever_made_it),
    ),
    Row("POST /refunds/{id}/approve → 200 refund", steps.a_refund_is_approved_and_completed),
    Row("POST /refunds/{id}/reject (reason) → 200 refund", the("rejected"), {"id": starts("ref_"), "status": "failed"}),
    Row("approve: not pending → 409", POST("/refunds/{rejected}/approve"), CONFLICT),
    Row("reject: not pending → 409", POST("/refunds/{rejected}/reject"), CONFLICT),
    Row("approve: unknown → 404", POST("/refunds/{no_ref}/approve"), NOT_FOUND),
    "3 Reads",
    Row("GET /refunds/{id}", GET("/refunds/{refund}"), gives(200, {"id": starts("ref_")})),
    Row("GET /refunds/{id}: unknown", GET("/refunds/{no_ref}"), NOT_FOUND),
    Row("GET /refunds (payment_id, status, limit, offset)", steps.refunds_are_listed),
    Row("GET /refunds: status", GET("/refunds?status=sent"), faulty("status")),
    "3 Fields",
    Row(
        "metadata, requested_by, livemode",
        the("refund"),
        {"metadata": {"order": "7"}, "requested_by": starts("usr_"), "livemode": False},
    ),
    Row("failure_code, failure_message", the("rejected"), {"failure_code": str, "failure_message": str}),
    Row(
        "approved_by, approved_at, completed_at",
        the("refunded"),
        {"approved_by": starts("usr_"), "approved_at": TIMESTAMP, "completed_at": TIMESTAMP},
    ),
    "3 Errors",
    Row("payment unknown → 404", POST(REFUNDS, refunding(payment_id="{no_pay}")), NOT_FOUND),
    Row("another account's → 404", steps.another_accounts_payment_cannot_be_refunded),
    Row("not completed → 422", steps.a_payment_that_is_not_completed_is_not_refundable),
    Row("too much → 422", steps.no_more_than_was_paid),
]

CUSTOMER: list[str | Row] = [
    "4 Customers",
    Row("at least one of email, phone", POST(CUSTOMERS, {"name": "Abebe"}), faulty("email", "phone")),
    Row("email alone", POST(CUSTOMERS, {"email": "a@example.com"}), gives(201)),
    Row("phone alone", POST(CUSTOMERS, {"phone": ANYBODY}), gives(201)),
    Row("not unique", POST(CUSTOMERS, {"email": "a@example.com"}), gives(201)),
    Row("optional unique external_id (409)", steps.an_external_id_is_unique),
    Row(
        "fields: id, email, phone, name, metadata, created_at, updated_at, livemode",
        the("customer"),
        {"id": starts("cus_"), "email": str, "phone": str, "name": str, "metadata": {"till": "2"}}
        | {"created_at": TIMESTAMP, "updated_at": TIMESTAMP, "livemode": False, "external_id": ABSENT},
    ),
    Row("fields: external_id", steps.an_external_id_is_unique),
    Row("GET /customers", GET(CUSTOMERS), gives(200, {"customers": list, "pagination": dict})),
    Row("GET /customers/{id}", GET("/customers/{customer}"), gives(200, {"id": starts("cus_")})),
    Row("GET /customers/{id}: unknown", GET("/customers/{no_cus}"), NOT_FOUND),
    Row("PATCH merges: absent keeps, null clears, metadata key by key", steps.a_change_merges),
    Row("one of email/phone stays", steps.email_or_phone_stays),
    Row(
        "emitting customer.updated only if something changed",
        proved_by(test_customers.test_a_change_is_told_with_what_was_before),
    ),
    Row("previous_attributes: just the changed keys (an unset one as null)", steps.a_change_tells_what_was_before),
    Row('DELETE → 200 {"id", "deleted": true}', steps.a_customer_is_erased),
    Row("erases the personal data from it and its payments and keeps the payments", steps.a_customer_is_erased),
    Row("DELETE: unknown", DELETE("/customers/{no_cus}"), NOT_FOUND),
]

EVENTS: list[str | Row] = [
    "5 When",
    Row("payment.created POST; pending the prompt; processing; completed", steps.a_payment_tells_its_life),
    Row("failed, cancelled at the final change", steps.an_end_is_told_once),
    Row("refund.created/approved/completed", steps.a_refund_tells_its_life),
    Row("customer.created/updated", steps.a_change_tells_what_was_before),
    Row("exactly these 12 types", POST(WEBHOOKS, hooking(events=["refund.updated"])), faulty("events")),
    Row("each reachable by a public call", proved_by(test_charges.test_an_event_of_every_type_can_be_brought_about)),
    "5 Fields",
    Row("the contract's + sequence", the("event"), exactly("id", "type", "created", "livemode", "sequence", "data")),
    Row("sequence 1, 2, 3 … per object", steps.a_payment_tells_its_life),
    Row("data.object = what the single GET answers at that moment", steps.an_event_shows_what_a_get_does),
    Row(
        "identical bytes in every attempt, to every endpoint",
        proved_by(test_deliveries.test_every_attempt_at_every_endpoint_has_the_same_bytes_and_fresh_signatures),
    ),
    "5 Pull feed",
    Row("GET /events (type, object, dates, cursor), newest first", steps.the_feed_is_filtered),
    Row("type: one of the 12", GET("/events?type=payment.paid"), faulty("type")),
    Row("object: an id", GET("/events?object=7"), faulty("object")),
    Row("dates: dates", GET("/events?date_from=x&date_to=y"), faulty("date_from", "date_to")),
    Row("cursor: of this list", GET("/events?cursor=x"), faulty("cursor")),
    Row(
        "order=asc: next_cursor is always given",
        GET("/events?order=asc", anew=True),
        gives(200, {"events": [], "pagination": {"next_cursor": str}}),
    ),
    Row("order=asc or desc", GET("/events?order=up"), faulty("order")),
    Row(
        "an event appears only once no older transaction can still commit an earlier one",
        proved_by(test_events_api.test_a_follower_waits_for_whoever_may_still_write_an_earlier_event),
    ),
    Row("GET /events/{id}", steps.an_event_is_read_as_it_was_told),
    Row("GET /events/{id}: unknown", GET("/events/{no_evt}"), NOT_FOUND),
    Row("kept ≥ 30 days", proved_by(test_events_api.test_events_are_kept_for_more_than_thirty_days)),
    "5 Endpoint",
    Row(
        "201 with id, url, events, description, status, livemode, created_at, secret",
        the("webhook"),
        exactly("id", "url", "events", "description", "status", "livemode", "created_at", "secret"),
    ),
    Row("status enabled", the("webhook"), {"status": "enabled", "livemode": False, "created_at": TIMESTAMP}),
    Row(
        "additive failing_since",
        proved_by(
            test_webhook_endpoints.test_an_endpoint_is_flagged_while_its_deliveries_fail_for_good_and_this_is_logged_once
        ),
    ),
    Row(
        "secret only here and at rotation",
        GET("/webhooks/{webhook}"),
        gives(200, {"id": starts("whk_"), "secret": ABSENT}),
    ),
    Row(
        "… not in the list",
        GET(WEBHOOKS),
        gives(200, {"webhooks": each({"id": starts("whk_"), "secret": ABSENT})}),
    ),
    Row("events: non-empty", POST(WEBHOOKS, hooking(events=[])), faulty("events")),
    Row('events: the 12 types or ["*"]', POST(WEBHOOKS, hooking(events=["*", "payment.created"])), faulty("events")),
    Row(
        "duplicates collapse",
        POST(WEBHOOKS, hooking(events=["refund.failed"] * 2), anew=True),
        gives(201, {"events": ["refund.failed"]}),
    ),
    Row("a bare string → 400", POST(WEBHOOKS, hooking(events="*")), faulty("events")),
    Row("https in live", POST(WEBHOOKS, hooking(), live=True), faulty("url")),
    Row("http allowed in the sandbox", POST(WEBHOOKS, hooking(), anew=True), gives(201)),
    Row("at most 16 per account", proved_by(test_payments_as_sent.test_the_seventeenth_endpoint_is_refused)),
    Row("equal URLs allowed", steps.equal_urls_are_allowed),
    Row(
        "registration makes no DNS look-up",
        POST(WEBHOOKS, hooking(url="https://nobody.invalid/"), anew=True),
        gives(201),
    ),
    *(
        Row(f"live refuses {what}", POST(WEBHOOKS, hooking(url=url), live=True), faulty("url"))
        for what, url in {
            "IP literals": "https://8.8.8.8/",
            "IP literals (6)": "https://[2606:4700:4700::1111]/",
            "user info": "https://user@shop.example.et/",
            "ports other than 443, 8443, ≥ 1024 (80)": "https://shop.example.et:80/",
            "ports other than 443, 8443, ≥ 1024 (1023)": "https://shop.example.et:1023/",
        }.items()
    ),
    *(
        Row(
            f"live accepts port {port}",
            POST(WEBHOOKS, hooking(url=f"https://shop.example.et:{port}/"), live=True, anew=True),
            gives(201),
        )
        for port in (443, 8443, 1024)
    ),
    "5 Manage",
    Row("GET /webhooks", GET(WEBHOOKS), gives(200, {"webhooks": list, "pagination": dict})),
    Row("GET /webhooks/{id}: unknown", GET("/webhooks/{no_whk}"), NOT_FOUND),
    Row("PATCH status, events, description, url", steps.an_endpoint_is_changed),
    Row("DELETE /webhooks/{id}", steps.an_endpoint_is_deleted),
    Row("DELETE /webhooks/{id}: unknown", DELETE("/webhooks/{no_whk}"), NOT_FOUND),
    Row(
        "disabled or deleted: no new deliveries, due ones cancelled",
        proved_by(test_webhook_endpoints.test_nothing_is_sent_to_an_endpoint_that_is_gone_and_what_waited_is_cancelled),
    ),
    Row(
        "never disabled silently",
        proved_by(
            test_webhook_endpoints.test_an_endpoint_is_flagged_while_its_deliveries_fail_for_good_and_this_is_logged_once
        ),
    ),
    "5 Secret",
    Row("whsec_ + base64 of 32 random bytes, one per endpoint", steps.a_secret_has_its_form),
    Row("AES-256-GCM at rest, bound to its row", proved_by(test_secrets.test_a_sealed_secret_opens_in_no_other_row)),
    Row("POST /webhooks/{id}/rotate-secret: default 86400, 0, 604800", steps.overlaps_have_their_bounds),
    Row(
        "overlap_seconds (-1)",
        POST("/webhooks/{webhook}/rotate-secret", {"overlap_seconds": -1}),
        faulty("overlap_seconds"),
    ),
    Row(
        "overlap_seconds (604801)",
        POST("/webhooks/{webhook}/rotate-secret", {"overlap_seconds": 604801}),
        faulty("overlap_seconds"),
    ),
    Row(
        "a second rotation during an overlap → 409, except with 0",
        proved_by(test_rotation.test_a_second_rotation_waits_for_the_first_unless_it_switches_at_once),
    ),
    "5 Contract header",
    Row(
        "zembil-signature: t=…,v1=<hex HMAC-SHA256(raw body)>, key = the whole secret string",
        steps.both_signatures_verify,
    ),
    Row("the same t alone in zembil-timestamp", the("headers"), {"zembil-timestamp": re.compile(r"\d{10}")}),
    Row(
        "during an overlap the old secret, the new one in zembil-signature-next; afterwards the new one",
        proved_by(test_rotation.test_receivers_see_no_failure_while_a_secret_is_rotated_with_an_overlap),
    ),
    "5 Replay-safe signature beside it",
    Row("webhook-id (event id)", the("headers"), {"webhook-id": starts("evt_")}),
    Row("webhook-timestamp", the("headers"), {"webhook-timestamp": re.compile(r"\d{10}")}),
    Row("webhook-signature: v1,<base64 HMAC-SHA256 of id.timestamp.body>", steps.both_signatures_verify),
    Row(
        "during an overlap both, space separated",
        proved_by(test_rotation.test_receivers_see_no_failure_while_a_secret_is_rotated_with_an_overlap),
    ),
    "5 Success",
    Row(
        "200 with complete headers within 10 s; the body changes nothing",
        proved_by(test_deliveries.test_ten_seconds_are_the_limit_and_a_200_counts_whatever_becomes_of_its_body),
    ),
    Row("its first 4 KiB are kept", steps.four_kib_of_an_answer_are_kept),
    Row(
        "nothing else is success; redirects are not followed",
        proved_by(test_deliveries.test_only_200_is_success_and_everything_else_is_tried_three_times_on_the_schedule),
    ),
    "5 Retries",
    Row(
        "at once, 60 s, 600 s; then failed",
        proved_by(test_deliveries.test_only_200_is_success_and_everything_else_is_tried_three_times_on_the_schedule),
    ),
    Row(
        "an attempt cut by a crash counts",
        proved_by(test_deliveries.test_an_attempt_cut_off_by_a_crash_counts_and_is_never_repeated_at_once),
    ),
    "5 By hand",
    Row("POST /deliveries/{id}/redeliver: same bytes, same webhook-id", steps.a_delivery_is_made_again),
    Row(
        "three attempts of their own",
        proved_by(test_deliveries_api.test_a_delivery_is_made_again_with_the_same_bytes_and_three_attempts_of_its_own),
    ),
    Row("redeliver: unknown", POST("/deliveries/{no_dlv}/redeliver"), NOT_FOUND),
    Row(
        "POST /webhooks/{id}/recover (since, dry_run) → 200 {deliveries}",
        POST("/webhooks/{webhook}/recover", {"since": "2026-01-01", "dry_run": True}),
        gives(200, {"deliveries": 0}),
    ),
    Row("recover: since", POST("/webhooks/{webhook}/recover", {}), faulty("since")),
    Row("recover: since is a time", POST("/webhooks/{webhook}/recover", {"since": "yesterday"}), faulty("since")),
    Row("recover makes new deliveries", proved_by(test_deliveries_api.test_what_failed_since_is_recovered_once)),
    Row(
        "disabled or deleted endpoint → 409",
        proved_by(test_deliveries_api.test_nothing_is_made_again_for_an_endpoint_that_is_gone),
    ),
    "5 Test",
    Row(
        "POST /webhooks/{id}/test (type) → 201 delivery",
        POST("/webhooks/{webhook}/test", {"type": "refund.failed"}),
        gives(201, {"event_type": "refund.failed"}),
    ),
    Row("through the same signer and sender; zembil-test: true", steps.a_test_event_says_so),
    Row("type", POST("/webhooks/{webhook}/test", {}), faulty("type")),
    Row(
        "in live only payment.created, livemode false, about an id that no GET finds",
        proved_by(test_deliveries_api.test_in_live_the_only_test_event_is_a_created_payment_that_is_not_live),
    ),
    "5 Delivery",
    Row(
        "id, event_id, event_type, webhook_id, status, attempts_made, created_at",
        the("delivery"),
        {
            "id": starts("dlv_"),
            "event_id": starts("evt_"),
            "event_type": "payment.completed",
            "webhook_id": starts("whk_"),
        }
        | {"status": "succeeded", "attempts_made": 1, "created_at": TIMESTAMP, "redelivery_of": ABSENT},
    ),
    Row("next_attempt_at", steps.a_delivery_waits_for_its_next_attempt),
    Row("redelivery_of", steps.a_delivery_is_made_again),
    Row(
        "statuses pending, failed",
        proved_by(test_deliveries_api.test_a_delivery_is_seen_from_its_first_attempt_to_its_last),
    ),
    Row(
        "status cancelled",
        proved_by(test_webhook_endpoints.test_nothing_is_sent_to_an_endpoint_that_is_gone_and_what_waited_is_cancelled),
    ),
    Row(
        "attempts [{number, started_at, latency_ms, status_code}]",
        the("delivery"),
        {
            "attempts": each(
                {"number": 1, "started_at": TIMESTAMP, "latency_ms": int, "status_code": 200, "error": ABSENT}
            )
        },
    ),
    Row("attempts: error", proved_by(test_deliveries_api.test_an_attempt_that_reached_nobody_tells_the_kind_of_error)),
    Row("attempts: response_body", steps.four_kib_of_an_answer_are_kept),
    Row("GET /webhooks/{id}/deliveries", GET("/webhooks/{webhook}/deliveries"), gives(200, {"deliveries": list})),
    Row("… of an unknown endpoint", GET("/webhooks/{no_whk}/deliveries"), NOT_FOUND),
    Row(
        "status, type, object, dates filter",
        proved_by(test_deliveries_api.test_a_list_of_deliveries_is_filtered_and_walked_while_they_end),
    ),
    Row("status: one of four", GET("/webhooks/{webhook}/deliveries?status=lost"), faulty("status")),
    Row("GET /deliveries/{id}", GET("/deliveries/{delivery}"), gives(200, {"id": starts("dlv_"), "attempts": list})),
    Row("GET /deliveries/{id}: unknown", GET("/deliveries/{no_dlv}"), NOT_FOUND),
    "5 Isolation",
    Row(
        "a slow or dead receiver delays no other endpoint (4 in flight)",
        proved_by(test_deliveries.test_four_are_in_flight_to_an_endpoint_at_most_and_nobody_else_waits_for_it),
    ),
    Row(
        "one account's flood no other account",
        proved_by(test_deliveries.test_when_every_place_is_taken_the_next_free_one_is_for_those_who_had_none),
    ),
    "5 SSRF",
    Row("the address really dialled is judged", proved_by(test_deliveries.test_live_events_never_reach_the_inside)),
    Row(
        "loopback, private, link-local, CGNAT, multicast, NAT64/6to4, metadata",
        proved_by(test_addresses.test_an_address_that_leads_inside_is_not_dialled),
    ),
    Row(
        "TLS verifies the name",
        proved_by(test_webhook_tls.test_a_receiver_with_a_certificate_for_another_name_hears_nothing),
    ),
    Row(
        "ZEMBIL_WEBHOOK_ALLOW_CIDRS relaxes it",
        proved_by(test_addresses.test_an_operator_may_allow_a_network_and_nothing_beside_it),
    ),
    Row(
        "zembil dev allows loopback for the sandbox only",
        proved_by(test_payments_as_sent.test_live_events_go_to_no_address_that_leads_inside),
    ),
    "5 Headers",
    Row("User-Agent: Zembil/<version>", the("headers"), {"user-agent": re.compile(r"Zembil/\d+\.\d+\.\d+")}),
    Row("only our own", steps.only_our_own_headers),
]

ROLES = [
    ("payments", "GET", "/payments/{no_pay}", "adr", "adr"),
    ("refunds", "GET", "/refunds/{no_ref}", "adr", "adr"),
    ("customers", "GET", "/customers/{no_cus}", "adr", "adr"),
    ("events", "GET", "/events/{no_evt}", "adr", "adr"),
    ("deliveries", "GET", "/deliveries/{no_dlv}", "adr", "adr"),
    ("webhooks", "GET", "/webhooks/{no_whk}", "adr", "adr"),
    ("balance", "GET", "/balance", "adr", "adr"),
    ("ledger entries", "GET", "/ledger/entries", "adr", "adr"),
    ("create payments", "POST", "/payments", "ad", "ad"),
    ("charge payments", "POST", "/payments/{no_pay}/charge", "ad", "ad"),
    ("cancel payments", "POST", "/payments/{no_pay}/cancel", "ad", "ad"),
    ("create refunds", "POST", "/refunds", "ad", "ad"),
    ("create customers", "POST", "/customers", "ad", "ad"),
    ("update customers", "PATCH", "/customers/{no_cus}", "ad", "ad"),
    ("approve refunds", "POST", "/refunds/{no_ref}/approve", "a", "a"),
    ("reject refunds", "POST", "/refunds/{no_ref}/reject", "a", "a"),
    ("create webhooks", "POST", "/webhooks", "ad", "a"),
    ("change webhooks", "PATCH", "/webhooks/{no_whk}", "ad", "a"),
    ("delete webhooks", "DELETE", "/webhooks/{no_whk}", "ad", "a"),
    ("rotate webhooks", "POST", "/webhooks/{no_whk}/rotate-secret", "ad", "a"),
    ("redeliver webhooks", "POST", "/deliveries/{no_dlv}/redeliver", "ad", "a"),
    ("recover webhooks", "POST", "/webhooks/{no_whk}/recover", "ad", "a"),
    ("test webhooks", "POST", "/webhooks/{no_whk}/test", "ad", "a"),
    ("sandbox test calls", "POST", "/test/payments/{no_pay}/complete", "ad", ""),
    ("sandbox clock", "GET", "/test/clock", "ad", ""),
    ("erase customers", "DELETE", "/customers/{no_cus}", "a", "a"),
    ("keys", "GET", "/keys", "a", "a"),
    ("create keys", "POST", "/keys", "a", "a"),
    ("roll keys", "POST", "/keys/{no_key}/roll", "a", "a"),
    ("end keys", "DELETE", "/keys/{no_key}", "a", "a"),
    ("charges in doubt", "GET", "/charges?state=in_doubt", "a", "a"),
    ("ask about charges in doubt", "POST", "/charges/{no_chg}/ask", "a", "a"),
]  # fmt: skip

LIMITS: list[str | Row] = [
    "6 Roles",
    *(
        Row(
            f"{operation}: {'sandbox' if not live else 'live'}, {'/'.join(roles) or 'nobody'}",
            partial(steps.these_roles_may, method=method, path=path, roles=roles, live=live),
        )
        for operation, method, path, *columns in ROLES
        for live, roles in enumerate(columns)
    ),
    Row(
        "every operation, each role, with valid bodies",
        proved_by(test_isolation.test_each_role_may_do_what_the_table_says),
    ),
    Row(
        "who says that money came is the operator, never the merchant: zembil doubt resolve",
        proved_by(test_management.test_the_operator_says_what_became_of_a_charge),
    ),
    Row(
        "in the sandbox POST /test/charges/{id}/resolve",
        proved_by(test_charges.test_a_sandbox_says_what_became_of_a_charge_in_doubt),
    ),
    Row("… unknown", POST("/test/charges/{no_chg}/resolve", {"outcome": "failed"}), NOT_FOUND),
    "6 Keys",
    Row(
        "POST /keys (name, role, expires_at)",
        POST(KEYS, {"name": "Till", "role": "developer", "expires_at": "2099-01-01"}),
        gives(201, {"name": "Till", "role": "developer", "expires_at": TIMESTAMP, "key": str}),
    ),
    Row("name, role", POST(KEYS, {}), faulty("name", "role")),
    Row("role: one of three", POST(KEYS, {"name": "Till", "role": "owner"}), faulty("role")),
    Row(
        "expires_at: to come",
        POST(KEYS, {"name": "Till", "role": "developer", "expires_at": "2020-01-01"}),
        faulty("expires_at"),
    ),
    Row(
        "GET /keys",
        GET(KEYS),
        gives(
            200,
            {
                "keys": each({"id": starts("key_"), "key": ABSENT, "last_four": str, "last_used_at": text_or_null}),
                "pagination": dict,
            },
        ),
    ),
    Row("POST /keys/{id}/roll (overlap_seconds)", proved_by(test_keys.test_a_rolled_key_and_its_successor_overlap)),
    Row("roll: overlap_seconds", POST("/keys/{api_key}/roll", {"overlap_seconds": -1}), faulty("overlap_seconds")),
    Row("DELETE /keys/{id}", proved_by(test_keys.test_a_revoked_key_opens_nothing_from_that_answer_on)),
    Row("DELETE /keys/{id}: unknown", DELETE("/keys/{no_key}"), NOT_FOUND),
    Row("shown once; only SHA-256 is stored", proved_by(test_keys.test_a_key_is_shown_once_and_stored_nowhere)),
    Row(
        "sk_test_ + 43 random base62 characters + 6 of checksum",
        the("api_key"),
        {"key": re.compile("sk_test_[0-9A-Za-z]{49}")},
    ),
    Row(
        "sk_live_",
        POST(KEYS, {"name": "Till", "role": "read_only"}, live=True),
        gives(201, {"key": re.compile("sk_live_[0-9A-Za-z]{49}")}),
    ),
    Row("typing errors are refused without a look-up", proved_by(test_secrets.test_every_typing_error_is_found)),
    Row("last four", steps.the_last_four_are_shown),
    Row("last used", proved_by(test_keys.test_the_last_use_is_recorded_to_the_minute)),
    "6 Errors",
    Row("400 validation_error: body", POST(PAY, b"{"), faulty("body")),
    Row("400 … field", POST(PAY, paying(amount=0)), faulty("amount")),
    Row("400 … query", GET("/payments?limit=x"), faulty("limit")),
    Row("400 … Idempotency-Key empty", POST(PAY, LEAST, headers=keyed("")), faulty("Idempotency-Key")),
    Row("400 … Idempotency-Key of 255", POST(PAY, LEAST, headers=keyed("k" * 255)), gives(201)),
    Row("400 … Idempotency-Key over 255", POST(PAY, LEAST, headers=keyed("k" * 256)), faulty("Idempotency-Key")),
    Row("400 … Idempotency-Key not visible ASCII", POST(PAY, LEAST, headers=keyed("a b")), faulty("Idempotency-Key")),
    Row("400 … Idempotency-Key twice", POST(PAY, LEAST, headers=keyed("a", "a")), faulty("Idempotency-Key")),
    Row("401 authentication_failed: missing", GET(PAY, by=None), UNAUTHENTICATED),
    Row("401 … malformed", GET(PAY, by="nonsense"), UNAUTHENTICATED),
    Row("401 … unknown", GET(PAY, by=steps.A_KEY_OF_NOBODY), UNAUTHENTICATED),
    Row("401 … revoked, expired", steps.a_key_that_ended_opens_nothing),
    Row("401 … other environment", steps.keys_work_at_their_own_address),
    Row("401 … one constant message that names both base addresses", steps.one_message_names_both_addresses),
    Row("403 permission_denied", POST(PAY, LEAST, by="read_only"), FORBIDDEN),
    Row("403 self_approval_forbidden", steps.nobody_approves_their_own_in_live),
    Row("404 resource_not_found: unknown id", GET("/payments/{no_pay}"), NOT_FOUND),
    Row("404 … another account's id (identical bytes)", steps.another_accounts_id_is_unknown),
    Row("404 … unknown path", GET("/payment"), NOT_FOUND),
    Row("405 method_not_allowed (+Allow)", DELETE(PAY), refuses(405, "method_not_allowed", allow="GET, HEAD, POST")),
    Row("413 payload_too_large", POST(PAY, b" " * 65_537), refuses(413, "payload_too_large")),
    Row(
        "415 unsupported_media_type",
        POST(PAY, b"{}", headers=typed("text/xml")),
        refuses(415, "unsupported_media_type"),
    ),
    Row("409 idempotency_in_progress + Retry-After: 1", steps.a_request_that_still_runs_is_told),
    Row("409 invalid_state", POST("/payments/{completed}/cancel"), CONFLICT),
    Row("409 duplicate_reference", steps.a_reference_is_taken_while_it_counts),
    Row(
        "422 insufficient_funds",
        POST("/payments/{bare}/charge", {"phone": "+251900000001"} | TELEBIRR),
        refuses(422, "insufficient_funds"),
    ),
    Row("422 payment_not_refundable", steps.a_payment_that_is_not_completed_is_not_refundable),
    Row("422 refund_amount_exceeds_available", steps.no_more_than_was_paid),
    Row("422 idempotency_key_reused", steps.a_key_goes_with_one_request),
    Row(
        "429 rate_limit_exceeded + Retry-After",
        proved_by(test_rate_limits.test_a_request_over_the_limit_is_told_when_to_come_back),
    ),
    Row(
        "503 provider_unavailable + Retry-After",
        POST("/payments/{bare}/charge", {"phone": "+251900000008"} | TELEBIRR),
        refuses(503, "provider_unavailable", retry_after=str.isdigit),
    ),
    Row(
        "503 service_unavailable",
        proved_by(test_survives_kills.test_a_killed_database_process_costs_refusals_and_nothing_else),
    ),
    "6 Idempotency-Key",
    Row(
        "on every POST and PATCH; replayed byte for byte with Idempotent-Replayed: true",
        steps.a_repeat_is_answered_alike,
    ),
    Row("on every POST", proved_by(test_idempotency.test_a_repeated_post_is_answered_byte_for_byte_and_does_nothing)),
    Row("one pair of surrounding quotes stripped", steps.quotes_around_a_key_are_stripped),
    Row("scoped to the account, not to the API key", steps.a_key_is_the_accounts),
    Row("role and key are checked first", proved_by(test_customers.test_a_key_that_may_no_longer_write_gets_no_replay)),
    Row(
        "key order, white space and 100 vs 100.0 do not matter",
        proved_by(test_idempotency.test_the_way_a_body_is_written_does_not_matter),
    ),
    Row("stored exactly 24 h", proved_by(test_idempotency.test_a_key_is_kept_a_day_by_the_sandboxs_clock)),
    Row("a refusal is not stored, so a corrected retry runs", steps.a_corrected_retry_runs),
    Row("same key, other request → 422", steps.a_key_goes_with_one_request),
    Row(
        "same transaction as the effect",
        proved_by(test_idempotency.test_however_often_a_key_is_sent_at_once_it_makes_one_payment),
    ),
    Row(
        "answers that hold a secret are stored encrypted",
        proved_by(test_webhook_endpoints.test_a_registration_is_repeated_with_its_key_and_the_stored_answer_is_sealed),
    ),
    Row(
        "… and replayed only to roles that may make them",
        proved_by(test_keys.test_a_replay_of_a_secret_is_for_admins_only),
    ),
    "6 Rate limits",
    Row(
        "1000 requests in any 60 seconds in the sandbox",
        GET(PAY),
        gives(200, x_ratelimit_limit="1000", ratelimit_policy='"account";q=1000;w=60'),
    ),
    Row("5000 in live", GET(PAY, live=True), gives(200, x_ratelimit_limit="5000")),
    Row("0 = none, then no headers", proved_by(test_rate_limits.test_without_limits_nothing_is_said_of_them)),
    Row(
        "a key may have a lower one",
        proved_by(test_rate_limits.test_a_request_over_the_limit_is_told_when_to_come_back),
    ),
    Row(
        "a burst up to the limit is allowed, more never",
        proved_by(test_rate_limits.test_a_burst_up_to_the_limit_is_answered_and_not_one_more),
    ),
    Row(
        "in any 60 seconds, by several processes",
        proved_by(test_rate_limit_windows.test_in_no_window_is_more_let_through_by_all_processes_together),
    ),
    Row(
        "RateLimit-Policy, RateLimit, X-RateLimit-Limit/-Remaining/-Reset",
        GET("/nowhere"),
        refuses(
            404,
            "resource_not_found",
            ratelimit=re.compile(r'"account";r=\d+;t=\d+'),
            x_ratelimit_remaining=str.isdigit,
            x_ratelimit_reset=str.isdigit,
        ),
    ),
    Row(
        "failed authentication: 60 a minute per address, never refusing a valid key",
        proved_by(test_rate_limits.test_guessing_keys_ends_after_sixty_and_a_valid_key_is_answered_all_the_same),
    ),
    Row(
        "X-Forwarded-For only from ZEMBIL_TRUSTED_PROXIES",
        proved_by(test_rate_limits.test_behind_a_trusted_proxy_each_address_is_counted_by_itself),
    ),
    Row(
        "… and its nearest word",
        proved_by(test_failed_authentications.test_an_address_is_the_peers_or_what_our_nearest_proxy_says),
    ),
    "6 Lists",
    *(
        Row(
            f"limit/offset/total: {name}",
            GET(f"/{name}"),
            gives(200, {name: list, "pagination": {"limit": 10, "offset": 0, "total": int}}),
        )
        for name in ("payments", "refunds", "customers", "webhooks", "keys")
    ),
    *(
        Row(
            f"limit/next_cursor only: {name}",
            GET(path),
            gives(200, {name: list, "pagination": {"limit": 10, "offset": ABSENT, "total": ABSENT}}),
        )
        for name, path in {
            "events": "/events",
            "deliveries": "/webhooks/{webhook}/deliveries",
            "entries": "/ledger/entries",
            "charges": "/charges",
        }.items()
    ),
    *(
        Row(
            f"maximum 100 ({limit}): {path}",
            GET(f"{path}?limit={limit}"),
            faulty("limit") if limit in (0, 101) else gives(200),
        )
        for path in (
            "/payments",
            "/refunds",
            "/customers",
            "/webhooks",
            "/keys",
            "/events",
            "/ledger/entries",
            "/charges",
            "/webhooks/{webhook}/deliveries",
        )
        for limit in (0, 1, 100, 101)
    ),
    Row("additive next_cursor: payments", partial(steps.a_list_is_walked, path=PAY)),
    Row("additive next_cursor: refunds", partial(steps.a_list_is_walked, path=REFUNDS)),
    Row("additive next_cursor: customers", partial(steps.a_list_is_walked, path=CUSTOMERS)),
    Row("additive next_cursor: webhooks", partial(steps.a_list_is_walked, path=WEBHOOKS)),
    Row("additive next_cursor: keys", partial(steps.a_list_is_walked, path=KEYS)),
    Row("next_cursor: events", partial(steps.a_list_is_walked, path="/events")),
    Row("next_cursor: ledger entries", partial(steps.a_list_is_walked, path="/ledger/entries")),
    Row(
        "next_cursor: deliveries",
        proved_by(test_deliveries_api.test_a_list_of_deliveries_is_filtered_and_walked_while_they_end),
    ),
    Row("next_cursor: charges", proved_by(test_management.test_charges_in_doubt_are_listed)),
    Row("cursor with offset or changed filters → 400", steps.a_cursor_goes_with_its_filters),
    Row(
        "rows acknowledged before the first page are each seen exactly once",
        proved_by(test_charges.test_payments_are_listed_page_by_page_whatever_comes_meanwhile),
    ),
    "6 Ledger",
    Row(
        "GET /balance {currency, available, refunds_in_transit, unallocated}",
        GET("/balance", anew=True),
        gives(
            200,
            {
                "currency": "ETB",
                "available": digits("0.00"),
                "refunds_in_transit": digits("0.00"),
                "unallocated": digits("0.00"),
            },
        ),
    ),
    Row("… after a payment and a refund", steps.the_balance_follows),
    Row(
        "GET /ledger/entries {id, debit, credit, amount, currency, source, kind, created_at}",
        steps.entries_have_their_fields,
    ),
    "6 Versioning",
    Row("v1 only grows", GET("/../v2/payments"), NOT_FOUND),
    "6 Card numbers",
    Row(
        "strings that look like card numbers are never refused",
        POST(PAY, paying(description="4111111111111111")),
        gives(201),
    ),
    Row("… masked in logs", proved_by(test_telemetry.test_what_looks_like_a_card_number_is_masked_in_logs)),
    Row("… which do not hold them anyway", steps.card_numbers_are_not_in_the_log),
    Row("… masked in pages", steps.card_numbers_are_masked_on_the_page),
]

SANDBOX: list[str | Row] = [
    "7 Phones",
    Row("+251900000000 succeeds (prompt → processing → completed)", steps.the_number_that_pays),
    Row(
        "… within 2 s; so do 02 and 03",
        proved_by(test_expiry.test_the_published_numbers_do_as_they_say_within_two_seconds),
    ),
    Row("+251900000001 insufficient_funds, said at once", steps.a_refusal_at_once_is_answered),
    Row(
        "+251900000002 customer_declined, by notification",
        partial(steps.a_charge_ends, phone="+251900000002", code="customer_declined"),
    ),
    Row(
        "+251900000003 wrong_pin, by notification",
        partial(steps.a_charge_ends, phone="+251900000003", code="wrong_pin"),
    ),
    Row("+251900000004 never answers the prompt: timeout after 120 s", steps.the_number_that_never_answers),
    Row("+251900000005 accepts, then says nothing; found succeeded when asked", steps.the_number_that_falls_silent),
    Row(
        "+251900000006 notifications arrive twice, and out of order; succeeds",
        proved_by(test_charges.test_notifications_that_come_twice_and_out_of_order_are_one_payment),
    ),
    Row(
        "+251900000007 timeout at 120 s, then succeeds 60 s after expires_at",
        proved_by(test_late_money.test_late_money_completes_a_payment_that_had_expired),
    ),
    Row(
        "+251900000008 provider_unavailable: nothing could be sent",
        POST("/payments/{bare}/charge", {"phone": "+251900000008"} | TELEBIRR),
        refuses(503, "provider_unavailable"),
    ),
    Row("+251900000009 charge succeeds, its refund fails", steps.a_refund_fails),
    Row(
        "any other valid number waits for the person", proved_by(test_expiry.test_any_other_number_waits_for_the_person)
    ),
    "7 Only under /sandbox/v1 (404 at /v1)",
    *(
        Row(f"{method} {path}", steps.LIVE[method](path), NOT_FOUND)
        for method, path in (
            *(("POST", "/test/payments/{no_pay}/complete"), ("POST", "/test/payments/{no_pay}/fail")),
            *(("POST", "/test/payments/{no_pay}/cancel"), ("POST", "/test/charges/{no_chg}/resolve")),
            *(("POST", "/test/events"), ("GET", "/test/clock"), ("POST", "/test/clock")),
        )
    ),
    "7 Test outcomes",
    Row("POST /test/payments/{id}/complete → 200 payment", the("completed"), {"status": "completed"}),
    Row("/fail (failure_code)", the("failed"), {"status": "failed", "failure_code": "declined"}),
    Row("/cancel", the("cancelled"), {"status": "cancelled"}),
    Row("complete: not pending → 409", POST("/test/payments/{failed}/complete"), CONFLICT),
    Row("fail: not pending → 409", POST("/test/payments/{completed}/fail"), CONFLICT),
    Row("cancel: not pending → 409", POST("/test/payments/{completed}/cancel"), CONFLICT),
    "7 POST /test/events",
    Row(
        "(type) … answers 201 with the event",
        POST("/test/events", {"type": "refund.approved"}),
        gives(201, {"type": "refund.approved", "livemode": False, "sequence": int}),
    ),
    Row("makes real sandbox rows", steps.a_test_event_makes_real_rows),
    Row("type: required", POST("/test/events", {}), faulty("type")),
    Row("type: one of 12", POST("/test/events", {"type": "payment.paid"}), faulty("type")),
    "7 Clock",
    Row("GET /test/clock → 200 {now}", GET("/test/clock"), gives(200, {"now": TIMESTAMP})),
    Row(
        "POST /test/clock (advance_seconds 1…)",
        POST("/test/clock", {"advance_seconds": 1}, anew=True),
        gives(200, {"now": TIMESTAMP}),
    ),
    Row("advance_seconds 1… (0)", POST("/test/clock", {"advance_seconds": 0}), faulty("advance_seconds")),
    Row("advance_seconds …31622400", POST("/test/clock", {"advance_seconds": 31622400}, anew=True), gives(200)),
    Row(
        "advance_seconds …31622400 (31622401)",
        POST("/test/clock", {"advance_seconds": 31622401}),
        faulty("advance_seconds"),
    ),
    Row("forward only", POST("/test/clock", {"advance_seconds": -1}), faulty("advance_seconds")),
    Row("per account; moves created_at", steps.a_clock_moves_created_at_of_one_account),
    Row("expiry", steps.an_unpaid_payment_expires),
    Row(
        "work that became due starts within 1 s",
        proved_by(test_expiry.test_an_unpaid_payment_is_cancelled_when_its_time_is_over_and_not_before),
    ),
    Row(
        "retries",
        proved_by(test_deliveries.test_only_200_is_success_and_everything_else_is_tried_three_times_on_the_schedule),
    ),
    Row("idempotency", proved_by(test_idempotency.test_a_key_is_kept_a_day_by_the_sandboxs_clock)),
    Row("the simulated rail", steps.the_number_that_never_answers),
    Row("not signature time", steps.a_clock_moves_no_signature),
    Row("not key expiry or rate limits", steps.a_clock_moves_neither_keys_nor_limits),
]

DECISIONS = [*ENVIRONMENTS, *PAYMENTS, *REFUNDED, *CUSTOMER, *EVENTS, *LIMITS, *SANDBOX]


@pytest.mark.parametrize("row", parameters(DECISIONS))
def test_what_was_decided_is_kept(stage: Stage, row: Row) -> None:
    row.hold(stage)
