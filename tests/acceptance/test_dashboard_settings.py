"""Settings in the dashboard: API keys, webhooks, team, account, audit log. Each role, each environment."""

import re
import time
from collections.abc import Callable, Iterator
from html import unescape

import httpx2
import pytest

from tests.support.dashboard import Visitor, errors, heading, new_user
from tests.support.gateway import Gateway, Merchant
from zembil.accounts.model import Role

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
