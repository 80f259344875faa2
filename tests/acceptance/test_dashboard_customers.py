"""Customers in the dashboard: found, changed with every fault beside its field, erased for good."""

import re
from html import unescape
from typing import Any

import httpx2
import pytest

from tests.acceptance.conftest import SignsIn
from tests.support.dashboard import Visitor, errors, heading, notice, text_of
from tests.support.gateway import Gateway, Merchant
from tests.support.money import created, found, paid
from zembil.accounts.model import Role

CUSTOMERS = "/dashboard/sandbox/customers"


@pytest.fixture
def api(merchant: Merchant) -> httpx2.Client:
    return merchant.client()


def remembered(api: httpx2.Client, **fields: Any) -> str:
    answer = api.post("/customers", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["data"]["id"]


def listed(page: httpx2.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return re.findall(r'href="/dashboard/sandbox/customers/(cus_\w+)"', page.text)


def test_customers_are_found_by_what_one_knows_of_them(api: httpx2.Client, admin: Visitor) -> None:
    abebe = remembered(api, name="አበበ", phone="+251911223344", external_id="c-1")
    hirut = remembered(api, name="Hirut", email="hirut@example.et")
    assert listed(admin.get(CUSTOMERS)) == [hirut, abebe]
    for search, customer in (("0911 223 344", abebe), ("c-1", abebe), ("hirut@example.et", hirut)):
        assert listed(admin.get(CUSTOMERS, params={"search": search})) == [customer]
    assert heading(admin.opens(f"{CUSTOMERS}?search={hirut}")) == "Hirut"
    assert "No customer matches" in admin.get(f"{CUSTOMERS}?search=nobody").text
    for unreadable in ("%00", "%ff", "a&search=b"):
        assert admin.get(f"{CUSTOMERS}?search={unreadable}").status_code == 400


def test_a_customer_stands_with_what_was_paid(api: httpx2.Client, admin: Visitor) -> None:
    customer = remembered(api, name="Abebe", phone="+251911223344", metadata={"since": "2019"})
    payments = [created(api, customer={"id": customer})["id"] for _ in range(12)]
    page = admin.get(f"{CUSTOMERS}/{customer}")
    assert re.findall(r"payments/(pay_\w+)", page.text) == payments[:1:-1]
    assert "2019" in text_of(page)
    assert "All 12 payments" in text_of(page)
    assert "12 payments" in text_of(admin.get(f"/dashboard/sandbox/payments?customer={customer}"))


def test_every_fault_of_a_change_stands_beside_its_field(api: httpx2.Client, admin: Visitor) -> None:
    remembered(api, phone="+251911000000", external_id="taken")
    customer = remembered(api, name="Abebe", phone="+251911223344")
    path = f"{CUSTOMERS}/{customer}/edit"
    refused = admin.sends(path, name="x" * 201, email="nobody", phone="12", external_id="y" * 256)
    assert (refused.status_code, len(errors(refused))) == (400, 4)
    cleared = admin.sends(path, name="Abebe", email="", phone="", external_id="")
    assert errors(cleared) == ["A customer keeps an e-mail address or a phone."] * 2
    taken = admin.sends(path, name="Abebe", phone="0911223344", external_id="taken")
    assert errors(taken) == ["Another customer has this id of yours."]
    done = admin.sends(path, name=" አበበ ", email="abebe@example.et", phone="0911 22 33 44", external_id="c-7")
    assert done.headers["location"] == f"{CUSTOMERS}/{customer}"
    shown = api.get(f"/customers/{customer}").json()["data"]
    assert (shown["name"], shown["phone"], shown["external_id"]) == ("አበበ", "+251911223344", "c-7")
    told = api.get("/events", params={"type": "customer.updated"}).json()["data"]["events"]
    assert [event["previous_attributes"]["name"] for event in told] == ["Abebe"]


def test_a_customer_is_added_with_every_fault_beside_its_field(api: httpx2.Client, admin: Visitor) -> None:
    path = f"{CUSTOMERS}/new"
    assert f'href="{path}"' in admin.get(CUSTOMERS).text
    refused = admin.sends(path, name="x" * 201, email="nobody", phone="12", external_id="y" * 256, metadata="no sign")
    assert (refused.status_code, len(errors(refused))) == (400, 5)
    nobody = admin.sends(path, name="Abebe", metadata="city = Addis Ababa")
    assert [error.partition(";")[0] for error in errors(nobody)] == [
        "Give a phone, an e-mail address or both",
        "Give an e-mail address, a phone or both",
    ]
    assert "city = Addis Ababa</textarea>" in nobody.text
    done = admin.sends(
        path,
        name=" አበበ ",
        phone="0911 22 33 44",
        external_id="c-7",
        metadata="city = Addis Ababa\r\n\r\n eq=1 = 1 \r\n",
    )
    (customer,) = listed(admin.get(CUSTOMERS))
    assert done.headers["location"] == f"{CUSTOMERS}/{customer}"
    shown = api.get(f"/customers/{customer}").json()["data"]
    assert (shown["name"], shown["phone"], shown["email"], shown["external_id"]) == (
        "አበበ",
        "+251911223344",
        None,
        "c-7",
    )
    assert shown["metadata"] == {"city": "Addis Ababa", "eq": "1 = 1"}
    told = api.get("/events", params={"type": "customer.created"}).json()["data"]["events"]
    assert [event["data"]["object"] for event in told] == [shown]
    taken = admin.sends(path, phone="0911223344", external_id="c-7")
    assert errors(taken) == ["Another customer has this id of yours."]


AWKWARD = {
    "note": "one\r\n two\n",
    " edge ": "  x ",
    "a=b": "c",
    "empty": "",
    "የከተማ ስም": "አዲስ አበባ",
    "bell": "\a\u2028\x0b.",
}


def metadata_shown(page: httpx2.Response) -> dict[str, str]:
    """The two fields of metadata, as a browser sends them."""
    area = re.search(r'<textarea id="metadata"[^>]*>(.*?)</textarea>', page.text, re.DOTALL)
    marks = re.search(r'name="metadata_shown" value="(.*?)"', page.text, re.DOTALL)
    assert area is not None
    assert marks is not None
    sent = {"metadata": unescape(area[1]), "metadata_shown": unescape(marks[1])}
    return {name: value.replace("\r\n", "\n").replace("\n", "\r\n") for name, value in sent.items()}


def test_metadata_is_changed_line_by_line(api: httpx2.Client, admin: Visitor) -> None:
    customer = remembered(api, phone="+251911223344", metadata={**AWKWARD, "till": "3", "size": "L"})
    path = f"{CUSTOMERS}/{customer}/edit"

    def stored() -> dict[str, str]:
        return api.get(f"/customers/{customer}").json()["data"]["metadata"]

    shown = metadata_shown(admin.get(path))
    same = admin.sends(path, phone="0911223344", name="Abebe", **shown)
    assert same.headers["location"] == f"{CUSTOMERS}/{customer}"
    assert stored() == {**AWKWARD, "till": "3", "size": "L"}
    api.patch(f"/customers/{customer}", json={"metadata": {"size": "XL", "since": "2019"}})
    changed = shown["metadata"].replace("till = 3", "till = 4\r\nnew=one⏎two").replace("empty = \r\n", "")
    admin.sends(path, phone="0911223344", name="Abebe", **{**shown, "metadata": changed})
    kept = {key: value for key, value in AWKWARD.items() if key != "empty"}
    assert stored() == {**kept, "till": "4", "new": "one\ntwo", "size": "XL", "since": "2019"}
    told = api.get("/events", params={"type": "customer.updated"}).json()["data"]["events"]
    assert told[0]["previous_attributes"] == {"metadata": {"empty": "", "new": None, "till": "3"}}


def test_a_customer_with_all_the_metadata_that_the_api_takes_is_edited(api: httpx2.Client, admin: Visitor) -> None:
    longest = {f"{'ቁ' * 38}{number}": "🧺" * 300 + "ባ" * 200 for number in range(10, 60)}
    customer = remembered(api, phone="+251911223344")
    for first in range(0, 50, 10):
        some = dict(list(longest.items())[first : first + 10])
        assert api.patch(f"/customers/{customer}", json={"metadata": some}).status_code == 200
    path = f"{CUSTOMERS}/{customer}/edit"
    shown = metadata_shown(admin.get(path))
    assert len(shown["metadata_shown"]) < 1000
    changed = shown["metadata"].replace(f"{'ቁ' * 38}10 = ", f"{'ቁ' * 38}10 = ቡ", 1)
    refused = admin.sends(path, phone="0911223344", name="Abebe", **{**shown, "metadata": changed})
    assert "A value has at most 500 characters." in errors(refused)[0]
    assert metadata_shown(refused) == {**shown, "metadata": changed}
    done = admin.sends(path, phone="0911223344", name="Abebe", **shown)
    assert done.headers["location"] == f"{CUSTOMERS}/{customer}"
    stored = api.get(f"/customers/{customer}").json()["data"]
    assert (stored["name"], stored["metadata"]) == ("Abebe", longest)
    assert admin.sends(path, phone="0911223344", metadata="x" * 400_000).status_code == 413
    assert admin.sends(CUSTOMERS, f"{path.removesuffix('edit')}erase", more="x" * 20_000).status_code == 413


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("till", "“till” is no key and value: write one key = value on each line."),
        ("= 3", "“= 3” is no key and value: write one key = value on each line."),
        ("a = 1\na = 2", "“a” stands there twice; write each key once."),
        ("size = L\nsize = M", "“size” stands there twice; write each key once."),
        (f"{'k' * 41} = 1", "A key has 1 to 40 characters."),
        (f"k = {'v' * 501}", "k: A value has at most 500 characters."),
        ("\n".join(f"k{number} = 1" for number in range(51)), "There may be at most 50 keys."),
        (
            "size = L\n" + "\n".join(f"k{number} = 1" for number in range(50)),
            "There may be at most 50 keys, old and new",
        ),
        ("\n".join(f"k{number} = 1" for number in range(9999)), "There may be at most 50 keys."),
        ("a = \0", "“a = \0” is no key and value"),
    ],
)
def test_a_fault_of_metadata_stands_beside_it(api: httpx2.Client, admin: Visitor, lines: str, fault: str) -> None:
    customer = remembered(api, phone="+251911223344", metadata={"size": "L"})
    path = f"{CUSTOMERS}/{customer}/edit"
    shown = metadata_shown(admin.get(path))
    refused = admin.sends(path, phone="0911223344", **{**shown, "metadata": lines})
    assert refused.status_code == 400
    (said,) = errors(refused)
    assert said.startswith(fault)
    assert api.get(f"/customers/{customer}").json()["data"]["metadata"] == {"size": "L"}


def test_erasing_leaves_the_payment_and_nothing_of_the_person(api: httpx2.Client, admin: Visitor) -> None:
    customer = remembered(api, name="Abebe", phone="+251911223344")
    payment = paid(api)
    theirs = created(api, customer={"id": customer, "phone": "+251911223344", "name": "Abebe"})
    path = f"{CUSTOMERS}/{customer}"
    assert "The payments, refunds and ledger entries stay" in text_of(admin.get(f"{path}/erase"))
    assert admin.sends(f"{path}/erase").headers["location"] == CUSTOMERS
    assert notice(admin.get(CUSTOMERS)).startswith("Erased.")
    assert admin.get(path).status_code == 404
    assert found(api, theirs)["customer"]["phone"] is None
    assert "Abebe" not in text_of(admin.get(f"/dashboard/sandbox/payments/{theirs['id']}"))
    assert found(api, payment)["status"] == "completed"


def test_nobody_is_erased_while_money_is_on_its_way(api: httpx2.Client, admin: Visitor) -> None:
    customer = remembered(api, name="Abebe", phone="+251900000004")
    payment = api.post(
        "/payments",
        json={"amount": 5, "currency": "ETB", "customer": {"id": customer, "phone": "+251900000004"}},
    ).json()["data"]
    charged = api.post(f"/payments/{payment['id']}/charge", json={"mobile_money_provider": "telebirr"})
    assert charged.status_code == 200, charged.text
    path = f"{CUSTOMERS}/{customer}"
    assert admin.sends(f"{path}/erase").headers["location"] == path
    assert "under way" in notice(admin.get(path))
    assert heading(admin.get(path)) == "Abebe"


def test_roles_and_other_merchants(
    gateway: Gateway, signs_in: SignsIn, merchant: Merchant, api: httpx2.Client, admin: Visitor
) -> None:
    customer, other = remembered(api, phone="+251911223344"), gateway.new_merchant()
    theirs = remembered(other.client(), phone="+251911223344")
    path = f"{CUSTOMERS}/{customer}"
    for role, refused in ((Role.DEVELOPER, ("erase",)), (Role.READ_ONLY, ("edit", "erase"))):
        visitor = signs_in(merchant, role=role)
        page = visitor.get(path)
        assert page.status_code == 200
        may_add = "edit" not in refused
        assert (f"{CUSTOMERS}/new" in visitor.get(CUSTOMERS).text) == may_add
        assert visitor.get(f"{CUSTOMERS}/new").status_code == (200 if may_add else 403)
        if not may_add:
            assert visitor.sends(path, f"{CUSTOMERS}/new", phone="+251911223344").status_code == 403
        for name in refused:
            assert f"{path}/{name}" not in page.text
            assert visitor.get(f"{path}/{name}").status_code == 403
            assert visitor.sends(path, f"{path}/{name}", name="x", phone="+251911223344").status_code == 403
    for name in ("", "/edit", "/erase"):
        assert admin.get(f"{CUSTOMERS}/{theirs}{name}").status_code == 404
        if name:
            sent = admin.sends(CUSTOMERS, f"{CUSTOMERS}/{theirs}{name}", name="x", phone="+251911223344")
            assert sent.status_code == 404
    assert listed(admin.get(f"{CUSTOMERS}?search=0911223344")) == [customer]
    assert other.client().get(f"/customers/{theirs}").json()["data"]["name"] is None
    other.close()
