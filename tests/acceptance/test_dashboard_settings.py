"""Settings in the dashboard: API keys, webhooks, team, account, audit log. Each role, each environment."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from tests.support.dashboard import PASSWORD, Visitor, errors, fetch, heading, new_user
from tests.support.gateway import Gateway, Merchant
from tests.support.receiver import Receiver
from zembil.accounts.model import Role
from zembil.accounts.permissions import Permission, allowed

SANDBOX, LIVE = "/dashboard/sandbox", "/dashboard/live"
KEYS = f"{SANDBOX}/settings/api-keys"


@pytest.fixture
def arrives(gateway: Gateway, merchant: Merchant) -> Iterator[Callable[..., Visitor]]:
    """Somebody of the merchant comes, signs in, and with a second step sees live pages too."""
    visitors: list[Visitor] = []

    def arrive(role: Role = Role.ADMIN, *, name: str = "Almaz", of: Merchant = merchant, live: bool = False) -> Visitor:
        visitor = Visitor(gateway.origin)
        visitors.append(visitor)
        visitor.signs_in(new_user(gateway, of, role=role, name=name))
        if live:
            visitor.sets_up_second_step()
        return visitor

    yield arrive
    for visitor in visitors:
        visitor.close()


@pytest.fixture
def admin(arrives: Callable[..., Visitor]) -> Visitor:
    return arrives()


def revealed(page: httpx2.Response) -> str:
    """The secret that a page shows this once."""
    match = re.search(r'<div class="secret">.*?<pre[^>]*>(.*?)</pre>', page.text, re.DOTALL)
    assert match is not None, page.text
    return unescape(match[1])


def followed(visitor: Visitor, answer: httpx2.Response) -> httpx2.Response:
    assert answer.status_code == 303, answer.text
    return visitor.opens(answer.headers["location"])


def once_it_says(visitor: Visitor, path: str, text: str) -> str:
    """The page when it says `text`, which may take a few seconds."""
    deadline = time.monotonic() + 20
    while text not in (found := visitor.opens(path).text):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def works(merchant: Merchant, key: str) -> bool:
    answer = httpx2.get(f"{merchant.origin}/sandbox/v1/payments", headers={"Authorization": f"Bearer {key}"})
    return answer.status_code == 200


# API keys


def made_key(visitor: Visitor, name: str = "Web shop", **fields: str) -> tuple[str, str]:
    """Make a key; answers its page and the secret."""
    page = followed(visitor, visitor.sends(f"{KEYS}/new", name=name, role="developer", **fields))
    return page.url.path, revealed(page)


def test_a_secret_on_its_way_to_the_next_page_opens_in_no_other_session(
    merchant: Merchant, admin: Visitor, arrives: Callable[..., Visitor]
) -> None:
    made = admin.sends(f"{KEYS}/new", name="Shop", role="developer")
    kept, page, colleague = admin.client.cookies["zembil-notice"], made.headers["location"], arrives()
    colleague.client.cookies.set("zembil-notice", kept, domain="127.0.0.1", path="/")
    signed_out = httpx2.get(f"{merchant.origin}/dashboard/sign-in", headers={"Cookie": f"zembil-notice={kept}"})
    for elsewhere in (colleague.get(page), signed_out):
        assert elsewhere.status_code == 200
        assert 'class="secret"' not in elsewhere.text
    assert works(merchant, revealed(followed(admin, made)))


def test_a_key_is_made_shown_once_and_works(merchant: Merchant, admin: Visitor) -> None:
    page, key = made_key(admin)
    assert works(merchant, key)
    assert key not in admin.opens(page).text
    listed = admin.opens(KEYS).text
    assert key not in listed
    assert "Web shop" in listed
    assert f"sk_test_…{key[-4:]}" in listed
    assert "Almaz" in listed


def test_a_rolled_key_keeps_working_for_the_overlap_that_was_chosen(merchant: Merchant, admin: Visitor) -> None:
    page, old = made_key(admin)
    new = revealed(followed(admin, admin.sends(page, f"{page}/roll", overlap="3600")))
    assert works(merchant, old)
    assert works(merchant, new)
    page, old = made_key(admin)
    new = revealed(followed(admin, admin.sends(page, f"{page}/roll", overlap="0")))
    assert not works(merchant, old)
    assert works(merchant, new)


def test_whoever_revokes_a_key_sees_what_it_was_used_for(merchant: Merchant, admin: Visitor) -> None:
    page, key = made_key(admin)
    assert "It is in use" not in admin.opens(f"{page}/revoke").text
    assert works(merchant, key)
    assert "It is in use" in once_it_says(admin, f"{page}/revoke", "GET /sandbox/v1/payments")
    followed(admin, admin.sends(f"{page}/revoke"))
    assert not works(merchant, key)
    assert admin.opens(page).status_code == 404


def test_a_key_ends_with_the_last_day_that_was_chosen_for_it(admin: Visitor) -> None:
    page, _ = made_key(admin, expires_at="2999-12-31")
    assert 'value="2999-12-31"' in admin.opens(page).text
    assert admin.sends(page, f"{page}/expiry", expires_at="2001-01-01").status_code == 400
    followed(admin, admin.sends(page, f"{page}/expiry", expires_at=""))
    assert "not by itself" in admin.opens(page).text


def test_every_fault_of_a_new_key_stands_beside_its_field(admin: Visitor) -> None:
    answer = admin.sends(f"{KEYS}/new", name="", role="owner", expires_at="2001-01-01")
    assert answer.status_code == 400
    assert len(errors(answer)) == 3


def test_the_last_admin_key_can_neither_be_revoked_nor_made_to_end(admin: Visitor) -> None:
    page = re.search(rf'href="({KEYS}/key_\w+)"><bdi>First admin key', admin.opens(KEYS).text)
    assert page is not None
    assert admin.sends(f"{page[1]}/revoke").status_code == 409
    assert admin.sends(page[1], f"{page[1]}/expiry", expires_at="2999-12-31").status_code == 409


EDGES = [(zone, day) for zone in ("Pacific/Honolulu", "Pacific/Kiritimati") for day in ("0001-01-01", "9999-12-31")]


@pytest.mark.parametrize(("zone", "day"), EDGES)
def test_a_day_at_the_end_of_the_calendar_is_refused_beside_its_field(admin: Visitor, zone: str, day: str) -> None:
    followed(admin, admin.sends(ACCOUNT, **SETTINGS | {"time_zone": zone}))
    page, _ = made_key(admin)
    why = "Choose a day to come" if day < "2000" else "Choose a day before the year 9999."
    for answer in (
        admin.sends(f"{KEYS}/new", name="Shop", role="developer", expires_at=day),
        admin.sends(page, f"{page}/expiry", expires_at=day),
    ):
        assert (answer.status_code, [error.startswith(why) for error in errors(answer)]) == (400, [True])
        assert f'value="{day}"' in answer.text
    last, _ = made_key(admin, expires_at="9998-12-31")
    assert 'value="9998-12-31"' in admin.opens(last).text
    assert admin.opens(KEYS).status_code == 200


@pytest.mark.parametrize(("zone", "day"), EDGES)
@pytest.mark.parametrize("field", ["date_from", "date_to"])
def test_lists_and_exports_take_or_refuse_a_day_at_the_end_of_the_calendar(
    merchant: Merchant, admin: Visitor, receiver: Receiver, zone: str, day: str, field: str
) -> None:
    followed(admin, admin.sends(ACCOUNT, **SETTINGS | {"time_zone": zone}))
    new_payment(merchant)
    endpoint, _ = registered(admin, receiver.url)
    for path in (f"{SANDBOX}/payments", f"{SANDBOX}/payments/export.csv", LOG, endpoint):
        answer = admin.opens(f"{path}?{field}={day}")
        assert answer.status_code in (200, 400)
        assert answer.status_code == 200 or f"<b>{field}</b>: Give a date" in answer.text


def test_a_key_of_the_api_ends_in_a_year_that_every_time_zone_has(merchant: Merchant, admin: Visitor) -> None:
    followed(admin, admin.sends(ACCOUNT, **SETTINGS | {"time_zone": "Pacific/Kiritimati"}))
    ends = {"9998-12-31T23:59:59Z": 201, "9999-01-01T00:00:00Z": 400, "9999-12-31T23:59:59-10:00": 400}
    for expires_at, status in ends.items():
        sent = {"name": f"Until {expires_at}", "role": "developer", "expires_at": expires_at}
        answer = merchant.client().post("/keys", json=sent)
        assert answer.status_code == status, answer.text
        if status == 400:
            assert [fault["field"] for fault in answer.json()["error"]["details"]] == ["expires_at"]
    assert "Until 9998-12-31" in admin.opens(KEYS).text


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.READ_ONLY])
def test_keys_are_the_admins(arrives: Callable[..., Visitor], admin: Visitor, role: Role) -> None:
    page, _ = made_key(admin)
    other = arrives(role)
    for path in (KEYS, f"{KEYS}/new", page, f"{page}/revoke"):
        assert other.get(path).status_code == 403
    home = f"{SANDBOX}/your-account"
    for path in (f"{KEYS}/new", f"{page}/roll", f"{page}/expiry", f"{page}/revoke"):
        assert other.sends(home, path, name="x", role="admin", overlap="0").status_code == 403
    assert "/settings/api-keys" not in other.opens(SANDBOX).text


def test_keys_of_another_merchant_and_of_the_other_environment_never_open(
    gateway: Gateway, arrives: Callable[..., Visitor], admin: Visitor
) -> None:
    page, _ = made_key(admin)
    stranger = arrives(of=gateway.new_merchant("Stranger"), live=True)
    live = page.replace(SANDBOX, LIVE)
    for path in (page, live, f"{page}/revoke"):
        assert heading(stranger.opens(path)) == heading(stranger.opens(f"{KEYS}/key_00000000000000000000000000"))
        assert stranger.get(path).status_code == 404
    assert stranger.sends(SANDBOX, f"{page}/revoke").status_code == 404
    admin.sets_up_second_step()
    assert admin.get(live).status_code == 404


# Webhooks

HOOKS = f"{SANDBOX}/settings/webhooks"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    listening = Receiver()
    yield listening
    listening.close()


def registered(visitor: Visitor, url: str, *, events: str = "*") -> tuple[str, str]:
    """Register an endpoint; answers its page and its secret."""
    page = followed(visitor, visitor.sends(f"{HOOKS}/new", url=url, events=events, description="Orders"))
    return page.url.path, revealed(page)


def delivery_page(visitor: Visitor, endpoint: str, *, says: str = "dlv_") -> str:
    """The address of the latest delivery to an endpoint."""
    match = re.search(rf'href="({HOOKS}/deliveries/dlv_\w+)"', once_it_says(visitor, endpoint, says))
    assert match is not None
    return match[1]


def test_a_simulated_event_reaches_the_endpoint_signed(admin: Visitor, receiver: Receiver) -> None:
    endpoint, secret = registered(admin, receiver.url)
    assert secret not in admin.opens(endpoint).text
    shown = followed(admin, admin.sends(HOOKS, f"{HOOKS}/events/simulate", type="refund.failed"))
    assert "refund.failed happened: evt_" in shown.text
    told = {received.event["type"] for received in receiver.wait_for(7)}
    assert {"payment.completed", "refund.created", "refund.approved", "refund.failed"} <= told
    for received in receiver.received:
        stamp = received.headers["zembil-timestamp"]
        digest = hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
        assert received.headers["zembil-signature"] == f"t={stamp},v1={digest}"


def test_events_are_simulated_in_the_sandbox_only(arrives: Callable[..., Visitor]) -> None:
    admin = arrives(live=True)
    assert "Simulate an event" in admin.opens(HOOKS).text
    assert "Simulate an event" not in admin.opens(f"{LIVE}/settings/webhooks").text
    assert admin.sends(HOOKS, f"{LIVE}/settings/webhooks/events/simulate", type="payment.created").status_code == 404


def test_a_delivery_shows_what_was_sent_and_says_that_204_is_no_success(admin: Visitor, receiver: Receiver) -> None:
    receiver.answer = lambda request: request.send_response(204)
    endpoint, _ = registered(admin, receiver.url)
    sent = followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="customer.updated"))
    page = once_it_says(admin, sent.url.path, "Answered 204: this contract counts only 200.")
    assert "customer.updated" in page
    assert "abebe@example.com" in page
    assert "1 of 3" in page


def test_a_delivery_shows_the_digest_that_was_sent_unless_the_secret_is_another_now(
    admin: Visitor, receiver: Receiver
) -> None:
    endpoint, secret = registered(admin, receiver.url)
    delivery = followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="payment.created")).url.path
    (received,) = receiver.wait_for(1)
    digest = hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
    assert received.headers["zembil-signature"].endswith(f"v1={digest}")
    assert f"v1={digest}" in admin.opens(delivery).text
    followed(admin, admin.sends(f"{endpoint}/rotate", overlap="86400"))
    page = admin.opens(delivery).text
    assert "got a new secret since, or just before" in page
    assert re.search(r"v1=\w", page) is None
    followed(admin, admin.sends(f"{endpoint}/delete"))
    assert "The secret of the endpoint was deleted with it." in admin.opens(delivery).text


def test_what_failed_is_sent_again_one_by_one_or_all_at_once(admin: Visitor, receiver: Receiver) -> None:
    endpoint, _ = registered(admin, receiver.url)
    followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="payment.created"))
    delivery = delivery_page(admin, endpoint, says="Succeeded")
    again = followed(admin, admin.sends(delivery, f"{delivery}/redeliver"))
    assert again.url.path != delivery
    assert "It repeats" in again.text
    assert len(receiver.wait_for(2)) == 2
    asked = admin.opens(f"{endpoint}/recover?since=2001-01-01T00:00")
    assert "<strong>0 events</strong>" in asked.text


def test_a_recovery_says_how_many_before_it_sends_any(
    gateway: Gateway, merchant: Merchant, admin: Visitor, receiver: Receiver
) -> None:
    endpoint, _ = registered(admin, receiver.url)
    followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="payment.created"))
    delivery_page(admin, endpoint, says="Succeeded")
    endpoint_id = merchant.client().get("/webhooks").json()["data"]["webhooks"][0]["id"]
    assert endpoint.endswith(endpoint_id)
    fetch(
        gateway,
        "UPDATE deliveries SET status = 'failed' WHERE account_id = (SELECT account_id FROM webhook_endpoints "
        "WHERE url = $1) RETURNING 1",
        receiver.url,
    )
    asked = admin.opens(f"{endpoint}/recover?since=2001-01-01T00:00")
    assert "<strong>1 event</strong>" in asked.text
    assert len(receiver.received) == 1
    since = re.search(r'name="since" value="([^"]+\+00:00)"', asked.text)
    assert since is not None
    done = followed(admin, admin.sends(f"{endpoint}/recover", since=since[1]))
    assert "1 event is sent again." in done.text
    assert len(receiver.wait_for(2)) == 2


@pytest.mark.parametrize("since", ["9999-12-31T23:59:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00", "soon"])
@pytest.mark.parametrize("zone", ["Pacific/Honolulu", "Pacific/Kiritimati"])
def test_a_recovery_since_no_day_of_the_merchants_is_refused(
    admin: Visitor, receiver: Receiver, zone: str, since: str
) -> None:
    endpoint, _ = registered(admin, receiver.url)
    followed(admin, admin.sends(ACCOUNT, **SETTINGS | {"time_zone": zone}))
    for answer in (
        admin.opens(f"{endpoint}/recover?{urlencode({'since': since})}"),
        admin.sends(f"{endpoint}/recover", since=since),
    ):
        assert answer.status_code == 400
        assert "Choose a day and a time." in answer.text


def test_an_endpoint_that_fails_for_long_is_flagged_and_stays_enabled(
    gateway: Gateway, admin: Visitor, receiver: Receiver
) -> None:
    endpoint, _ = registered(admin, receiver.url)
    assert "Failing" not in admin.opens(HOOKS).text
    failing = "UPDATE webhook_endpoints SET failing_since = now() - interval '2 days' WHERE url = $1 RETURNING enabled"
    assert fetch(gateway, failing, receiver.url)[0][0] is True
    assert "Failing" in admin.opens(HOOKS).text
    assert "Deliveries have failed since" in admin.opens(endpoint).text
    assert ">2 days ago</time>" in admin.opens(f"{endpoint}/recover").text
    assert "1 webhook endpoint is failing" in admin.opens(SANDBOX).text


def test_deliveries_are_filtered_by_state_type_object_and_day(admin: Visitor, receiver: Receiver) -> None:
    endpoint, _ = registered(admin, receiver.url)
    for event_type in ("payment.created", "customer.created"):
        followed(admin, admin.sends(endpoint, f"{endpoint}/test", type=event_type))
    receiver.wait_for(2)
    payment = next(r.event["data"]["object"]["id"] for r in receiver.received if r.event["type"] == "payment.created")

    def found(query: str) -> int:
        return len(re.findall(r"deliveries/dlv_", admin.opens(f"{endpoint}?{query}").text))

    once_it_says(admin, f"{endpoint}?status=succeeded&type=customer.created", "deliveries/dlv_")
    assert found("type=payment.created") == 1
    assert found(f"object={payment}") == 1
    assert found("date_from=2001-01-01&date_to=") == 2
    assert found("date_to=2001-01-01") == 0
    assert admin.opens(f"{endpoint}?status=lost").status_code == 400


def test_an_endpoint_is_changed_disabled_and_deleted(admin: Visitor, receiver: Receiver) -> None:
    endpoint, _ = registered(admin, receiver.url)
    followed(admin, admin.sends(f"{endpoint}/change", url=receiver.url, events="payment.failed", description=""))
    assert "payment.failed" in admin.opens(HOOKS).text
    followed(admin, admin.sends(endpoint, f"{endpoint}/disable"))
    assert "Disabled" in admin.opens(HOOKS).text
    assert admin.sends(HOOKS, f"{endpoint}/test", type="payment.created").status_code == 409
    followed(admin, admin.sends(endpoint, f"{endpoint}/enable"))
    followed(admin, admin.sends(f"{endpoint}/delete"))
    assert admin.opens(endpoint).status_code == 404


def test_a_compromised_secret_stops_signing_at_once(admin: Visitor, receiver: Receiver) -> None:
    endpoint, old = registered(admin, receiver.url)
    new = revealed(followed(admin, admin.sends(f"{endpoint}/rotate", overlap="0")))
    assert new != old
    followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="payment.created"))
    received = receiver.wait_for(1)[0]
    assert hmac.new(new.encode(), received.body, hashlib.sha256).hexdigest() in received.headers["zembil-signature"]
    followed(admin, admin.sends(f"{endpoint}/rotate", overlap="3600"))
    assert admin.sends(f"{endpoint}/rotate", overlap="3600").status_code == 409


def test_every_fault_of_a_new_endpoint_stands_beside_its_field(arrives: Callable[..., Visitor]) -> None:
    admin = arrives(live=True)
    answer = admin.sends(f"{LIVE}/settings/webhooks/new", url="http://127.0.0.1/", description="x" * 501)
    assert answer.status_code == 400
    assert len(errors(answer)) == 3


def test_developers_manage_webhooks_in_the_sandbox_and_only_look_at_them_in_live(
    arrives: Callable[..., Visitor], receiver: Receiver
) -> None:
    developer, viewer = arrives(Role.DEVELOPER, live=True), arrives(Role.READ_ONLY)
    endpoint, _ = registered(developer, receiver.url)
    live = f"{LIVE}/settings/webhooks"
    assert developer.opens(live).status_code == 200
    assert developer.get(f"{live}/new").status_code == 403
    assert developer.sends(HOOKS, f"{live}/new", url="https://shop.example.et/", events="*").status_code == 403
    assert viewer.opens(endpoint).status_code == 200
    for path in ("rotate", "delete", "disable", "test", "recover", "change"):
        assert viewer.sends(endpoint, f"{endpoint}/{path}").status_code == 403
    assert viewer.sends(HOOKS, f"{HOOKS}/events/simulate", type="payment.created").status_code == 403


def test_endpoints_and_deliveries_of_others_and_of_the_other_environment_never_open(
    gateway: Gateway, arrives: Callable[..., Visitor], admin: Visitor, receiver: Receiver
) -> None:
    endpoint, _ = registered(admin, receiver.url)
    followed(admin, admin.sends(endpoint, f"{endpoint}/test", type="payment.created"))
    delivery = delivery_page(admin, endpoint)
    stranger = arrives(of=gateway.new_merchant("Stranger"))
    admin.sets_up_second_step()
    for path in (endpoint, delivery, f"{endpoint}/rotate"):
        assert stranger.get(path).status_code == 404
        assert admin.get(path.replace(SANDBOX, LIVE)).status_code == 404
    assert stranger.sends(HOOKS, f"{delivery}/redeliver").status_code == 404
    assert stranger.sends(HOOKS, f"{endpoint}/delete").status_code == 404


# Team

TEAM = f"{SANDBOX}/settings/team"


def invited(admin: Visitor, email: str, role: str = "developer") -> str:
    """Invite somebody; answers the link."""
    return revealed(followed(admin, admin.sends(TEAM, email=email, role=role)))


def page_of(admin: Visitor, text: str) -> str:
    """The page of the person in whose row of the list this text stands."""
    rows = [row for row in re.findall(r"<tr>.*?</tr>", admin.opens(TEAM).text, re.DOTALL) if text in row]
    match = re.search(rf'href="({TEAM}/usr_\w+)"', rows[0])
    assert match is not None
    return match[1]


def test_an_invited_person_comes_by_the_link_with_the_role_that_was_given(gateway: Gateway, admin: Visitor) -> None:
    email = f"chala-{time.time_ns()}@example.et"
    link = invited(admin, email, "read_only")
    assert link.startswith(f"{gateway.origin}/dashboard/link/")
    assert "Invited" in admin.opens(page_of(admin, email)).text
    again = revealed(followed(admin, admin.sends(page_of(admin, email), f"{page_of(admin, email)}/invite")))
    guest = Visitor(gateway.origin)
    assert guest.get(link).status_code == 404
    assert guest.sends(again, name="Chala", new_password=PASSWORD).status_code == 303
    assert guest.sends("/dashboard/sign-in", email=email, password=PASSWORD).status_code == 303
    assert guest.get(KEYS).status_code == 403
    followed(admin, admin.sends(page_of(admin, email), f"{page_of(admin, email)}/role", role="admin"))
    assert guest.get(KEYS).status_code == 200
    followed(admin, admin.sends(f"{page_of(admin, email)}/remove"))
    assert not guest.is_signed_in()
    guest.close()


def test_a_person_whose_invitation_ran_out_gets_another_from_an_admin(gateway: Gateway, admin: Visitor) -> None:
    email, guest = f"chala-{time.time_ns()}@example.et", Visitor(gateway.origin)
    link = invited(admin, email)
    over = (
        "UPDATE user_links SET expires_at = now() WHERE user_id = (SELECT id FROM users WHERE email = $1) RETURNING 1"
    )
    assert len(fetch(gateway, over, email)) == 1
    assert guest.get(link).status_code == 404
    person = page_of(admin, email)
    assert "Make another invitation" in admin.opens(person).text
    again = revealed(followed(admin, admin.sends(person, f"{person}/invite")))
    assert guest.sends(again, name="Chala", new_password=PASSWORD).status_code == 303
    assert "Make another invitation" not in admin.opens(person).text
    refused = admin.sends(person, f"{person}/invite")
    assert (refused.status_code, "has come already" in refused.text) == (409, True)
    guest.close()


def test_an_e_mail_address_is_invited_once(admin: Visitor) -> None:
    email = f"chala-{time.time_ns()}@example.et"
    invited(admin, email)
    again = admin.sends(TEAM, email=email.upper(), role="admin")
    assert (again.status_code, errors(again)) == (409, ["This e-mail address belongs to somebody already."])
    assert len(errors(admin.sends(TEAM, email="nobody", role="owner"))) == 2


def test_the_last_admin_who_can_sign_in_stays_one(arrives: Callable[..., Visitor]) -> None:
    admin = arrives(name="Only admin")
    me = page_of(admin, "Only admin")
    assert admin.sends(me, f"{me}/role", role="developer").status_code == 409
    assert admin.sends(f"{me}/remove").status_code == 409
    arrives(name="Second")
    followed(admin, admin.sends(me, f"{me}/role", role="developer"))
    assert admin.get(TEAM).status_code == 403


def test_the_matrix_of_roles_is_the_table_that_requests_are_judged_by(admin: Visitor) -> None:
    page = admin.opens(TEAM).text
    for permission in Permission:
        row = re.search(rf'<th scope="row">{re.escape(permission.value.capitalize())}</th>(.*?)</tr>', unescape(page))
        assert row is not None, permission
        words = re.findall(r'<span class="status \w+">([^<]+)</span>', row[1])
        assert [word == "Yes" for word in words] == [allowed(role, permission, livemode=True) for role in Role]
        assert [word != "No" for word in words] == [allowed(role, permission, livemode=False) for role in Role]


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.READ_ONLY])
def test_the_team_is_the_admins(arrives: Callable[..., Visitor], admin: Visitor, role: Role) -> None:
    other = arrives(role, name="Other")
    page = page_of(admin, "Other")
    assert [other.get(path).status_code for path in (TEAM, page, f"{page}/remove")] == [403] * 3
    assert other.sends(f"{SANDBOX}/your-account", f"{page}/role", role="admin").status_code == 403
    assert other.sends(f"{SANDBOX}/your-account", TEAM, email="x@example.et", role="admin").status_code == 403


def test_people_of_another_merchant_never_open(
    gateway: Gateway, arrives: Callable[..., Visitor], admin: Visitor
) -> None:
    page = page_of(admin, "(you)")
    stranger = arrives(of=gateway.new_merchant("Stranger"))
    assert stranger.get(page).status_code == 404
    for what in ("role", "remove", "invite"):
        assert stranger.sends(TEAM, f"{page}/{what}", role="read_only").status_code == 404


# Audit log

LOG = f"{SANDBOX}/settings/audit-log"


def done(admin: Visitor, query: str = "") -> list[str]:
    """What the log says was done, newest first."""
    return [unescape(text) for text in re.findall(r'<td data-label="What">([^<]*)</td>', admin.opens(LOG + query).text)]


def test_what_is_done_in_the_dashboard_stands_in_the_audit_log(admin: Visitor, receiver: Receiver) -> None:
    page, _ = made_key(admin)
    followed(admin, admin.sends(page, f"{page}/roll", overlap="0"))
    endpoint, secret = registered(admin, receiver.url + "?token=hidden")
    followed(admin, admin.sends(endpoint, f"{endpoint}/disable"))
    followed(admin, admin.sends(f"{endpoint}/delete"))
    invited(admin, f"chala-{time.time_ns()}@example.et")
    assert done(admin) == [
        "invited somebody",
        "deleted an endpoint",
        "changed an endpoint",
        "registered an endpoint",
        "rolled an API key",
        "made an API key",
        "signed in",
        "came by an invitation",
        "invited somebody",
    ]
    log = admin.opens(LOG).text
    assert "Almaz" in log
    assert "in the dashboard" in log
    assert secret not in log
    assert "token=hidden" not in log
    once_it_says(admin, LOG, "No. 9")


def test_a_refund_that_is_decided_in_the_dashboard_stands_in_the_audit_log(merchant: Merchant, admin: Visitor) -> None:
    client = merchant.client()
    payment = new_payment(merchant)
    assert client.post(f"/test/payments/{payment['id']}/complete").status_code == 200
    for way, fields, words in (
        ("approve", {}, "approved a refund"),
        ("reject", {"reason": "Not ours"}, "rejected a refund"),
    ):
        refund = client.post("/refunds", json={"payment_id": payment["id"], "amount": 1}).json()["data"]["id"]
        page = f"{SANDBOX}/refunds/{refund}"
        followed(admin, admin.sends(f"{page}/{way}", f"{page}/{way}", **fields))
        assert done(admin, f"?object={refund}") == [words]
    assert "Not ours" in admin.opens(LOG).text


def test_the_audit_log_is_filtered_and_turned_page_by_page(merchant: Merchant, admin: Visitor) -> None:
    for number in range(30):
        merchant.client().post("/keys", json={"name": f"Key {number}", "role": "developer"})
    assert done(admin, "?action=user.signed_in") == ["signed in"]
    assert done(admin, "?object=key_00000000000000000000000000") == []
    assert done(admin, "?date_to=2001-01-01") == []
    assert len(done(admin, "?date_from=2001-01-01&date_to=")) == 25
    older = re.search(r'href="[^"]*(\?[^"]*)">Older', admin.opens(LOG).text)
    assert older is not None
    assert len(done(admin, unescape(older[1]))) == 8
    assert "with the API key First admin key" in admin.opens(LOG).text
    assert admin.get(f"{LOG}?action=made%20coffee").status_code == 400


def test_what_concerns_people_stands_in_both_environments_and_nothing_else_does(
    arrives: Callable[..., Visitor],
) -> None:
    admin = arrives(live=True)
    made_key(admin)
    live = admin.opens(f"{LIVE}/settings/audit-log").text
    assert "turned the second step on" in live
    assert "made an API key" not in live.split("</form>")[-1]


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.READ_ONLY])
def test_the_audit_log_is_the_admins(arrives: Callable[..., Visitor], role: Role) -> None:
    assert arrives(role).get(LOG).status_code == 403


# Account

ACCOUNT, LIVE_ACCOUNT = f"{SANDBOX}/settings/account", f"{LIVE}/settings/account"
SETTINGS = {
    "name": "Merkato Coffee",
    "name_am": "መርካቶ ቡና",
    "time_zone": "Africa/Nairobi",
    "minutes": "10",
    "late_money": "refund",
}


def new_payment(merchant: Merchant, *, livemode: bool = False) -> dict[str, Any]:
    answer = merchant.client(livemode=livemode).post("/payments", json={"amount": 10, "currency": "ETB"})
    assert answer.status_code == 201
    return answer.json()["data"]


def test_what_is_settled_shows_on_payments_and_on_their_pages(merchant: Merchant, admin: Visitor) -> None:
    followed(admin, admin.sends(ACCOUNT, **SETTINGS))
    payment = new_payment(merchant)
    lifetime = datetime.fromisoformat(payment["expires_at"]) - datetime.fromisoformat(payment["created_at"])
    assert lifetime == timedelta(minutes=10)
    page = payment["payment_link"]
    assert "Merkato Coffee" in httpx2.get(f"{page}?lang=en").text
    amharic = httpx2.get(f"{page}?lang=am").text
    assert "መርካቶ ቡና" in amharic
    assert "Merkato Coffee" not in amharic
    live = new_payment(merchant, livemode=True)  # how long payments wait is settled in each environment
    lifetime = datetime.fromisoformat(live["expires_at"]) - datetime.fromisoformat(live["created_at"])
    assert lifetime == timedelta(hours=1)
    shown = admin.opens(ACCOUNT).text
    assert 'value="Africa/Nairobi" selected' in shown
    assert 'value="refund" selected' in shown
    assert done(admin, "?action=settings.changed") == ["changed the account", "changed the account"]


def test_nothing_is_recorded_where_nothing_changed(admin: Visitor) -> None:
    for _ in range(2):
        followed(admin, admin.sends(ACCOUNT, **SETTINGS))
    assert len(done(admin, "?action=settings.changed")) == 2


def test_every_fault_of_the_settings_stands_beside_its_field(admin: Visitor) -> None:
    answer = admin.sends(ACCOUNT, name="", name_am="x" * 201, time_zone="Mars/Base", minutes="4", late_money="keep")
    assert (answer.status_code, len(errors(answer))) == (400, 5)


def test_a_second_admin_has_to_agree_who_approves_refunds_in_live(arrives: Callable[..., Visitor]) -> None:
    first, second = arrives(name="First", live=True), arrives(name="Second", live=True)
    followed(first, first.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/ask"))
    assert "Another admin has to agree" in first.opens(LIVE_ACCOUNT).text
    assert first.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/agree").status_code == 403
    assert first.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/ask").status_code == 409
    assert "Two people" in first.opens(LIVE_ACCOUNT).text
    assert "<bdi>First</bdi> asks" in second.opens(LIVE_ACCOUNT).text
    followed(second, second.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/agree"))
    assert "One person" in first.opens(LIVE_ACCOUNT).text
    assert second.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/agree").status_code == 409
    followed(second, second.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/ask"))
    followed(first, first.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/refuse"))
    assert "One person" in second.opens(LIVE_ACCOUNT).text
    log = first.opens(f"{LIVE}/settings/audit-log").text
    assert "asked for a change of who approves refunds" in log
    assert "<bdi>forbidden</bdi> → <bdi>allowed</bdi>" in log


def test_what_somebody_asked_who_left_is_void(arrives: Callable[..., Visitor]) -> None:
    first, second = arrives(name="Hana", live=True), arrives(name="Second", live=True)
    followed(first, first.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/ask"))
    person = page_of(second, "Hana")
    followed(second, second.sends(f"{person}/remove"))
    assert second.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/agree").status_code == 409
    followed(second, second.sends(LIVE_ACCOUNT, f"{LIVE_ACCOUNT}/self-approval/ask"))
    assert "One person" in second.opens(LIVE_ACCOUNT).text  # nobody else is there to agree


def test_in_the_sandbox_one_admin_settles_who_approves_refunds(arrives: Callable[..., Visitor]) -> None:
    first, _ = arrives(name="First"), arrives(name="Second")
    assert "One person" in first.opens(ACCOUNT).text
    followed(first, first.sends(ACCOUNT, f"{ACCOUNT}/self-approval/ask"))
    assert "Two people" in first.opens(ACCOUNT).text


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.READ_ONLY])
def test_settings_are_the_admins(arrives: Callable[..., Visitor], role: Role) -> None:
    other = arrives(role)
    assert other.get(ACCOUNT).status_code == 403
    for path in ("", "/self-approval/ask", "/self-approval/agree", "/self-approval/refuse"):
        assert other.sends(f"{SANDBOX}/your-account", ACCOUNT + path, **SETTINGS).status_code == 403
