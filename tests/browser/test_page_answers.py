"""What the pages answer, seen without a browser: headers, refusals, weight."""

import re
from collections.abc import Callable, Iterator

import httpx2
import pytest

from tests.browser.application import without_a_database
from tests.support.gateway import Gateway, Merchant
from zembil.ids import TOKEN_LENGTH

STRICT = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SENT_BYTES_MAX = 15_000


class Visitor:
    """A payer without a browser, in front of a payment of its own."""

    def __init__(self, gateway: Gateway, merchant: Merchant) -> None:
        created = merchant.client().post("/payments", json={"amount": 1500, "currency": "ETB"})
        self.link: str = created.json()["data"]["payment_link"]
        self.origin = gateway.origin
        self.http = httpx2.Client(timeout=30)
        self.form = {"form_token": self.token, "mobile_money_provider": "telebirr", "phone": "0911 223 344"}

    @property
    def token(self) -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.http.get(self.link).text)
        assert found is not None
        return found[1]

    def get(self, path: str) -> httpx2.Response:
        return self.http.get(self.origin + path)

    def sends(
        self, changed: dict[str, str] | None = None, *, to: str = "charge", headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """The form of the page, with some fields changed; an empty one is left out."""
        form = {name: value for name, value in (self.form | (changed or {})).items() if value}
        return self.http.post(f"{self.link}/{to}", data=form, headers=headers)

    def asked_too_often(self) -> httpx2.Response:
        for _ in range(3):
            assert self.sends().status_code == 303
            assert self.sends({"answer": "decline"}, to="handset").status_code == 303
        return self.sends()


@pytest.fixture
def visitor(gateway: Gateway, merchant: Merchant) -> Iterator[Visitor]:
    new = Visitor(gateway, merchant)
    yield new
    new.http.close()


ANSWERS: dict[str, tuple[int, Callable[[Visitor], httpx2.Response]]] = {
    "the payment": (200, lambda visitor: visitor.http.get(visitor.link)),
    "its head": (200, lambda visitor: visitor.http.head(visitor.link)),
    "the bare address": (200, lambda visitor: visitor.get("/")),
    "a form was taken": (303, lambda visitor: visitor.sends()),
    "cancelled": (303, lambda visitor: visitor.sends(to="cancel")),
    "a form opened as a page": (303, lambda visitor: visitor.http.get(f"{visitor.link}/charge")),
    "a wrong phone": (400, lambda visitor: visitor.sends({"phone": "12"})),
    "no phone": (400, lambda visitor: visitor.sends({"phone": ""})),
    "no such wallet": (400, lambda visitor: visitor.sends({"mobile_money_provider": "cash"})),
    "no token": (403, lambda visitor: visitor.sends({"form_token": ""})),
    "no such payment": (404, lambda visitor: visitor.get(f"/p/{'A' * TOKEN_LENGTH}")),
    "no such form": (404, lambda visitor: visitor.get("/p/short/charge")),
    "a slash too many": (404, lambda visitor: visitor.http.get(f"{visitor.link}/")),
    "no such receipt": (404, lambda visitor: visitor.get(f"/r/{'A' * TOKEN_LENGTH}")),
    "no receipt before the money": (404, lambda visitor: visitor.http.get(visitor.link.replace("/p/", "/r/"))),
    "how it stands": (200, lambda visitor: visitor.http.get(f"{visitor.link}/status")),
    "no such path": (404, lambda visitor: visitor.get("/wp-login.php")),
    "no such answer": (404, lambda visitor: visitor.sends({"answer": "bribe"}, to="handset")),
    "a post to the page": (405, lambda visitor: visitor.http.post(visitor.link)),
    "no such method": (405, lambda visitor: visitor.http.put(f"{visitor.link}/charge")),
    "too large": (413, lambda visitor: visitor.sends({"phone": "9" * 20_000})),
    "too many prompts": (429, lambda visitor: visitor.asked_too_often()),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_page_has_the_strict_headers(name: str, visitor: Visitor) -> None:
    status, answer = ANSWERS[name]
    given = answer(visitor)
    assert given.status_code == status
    assert {name: given.headers.get(name) for name in STRICT} == STRICT
    if given.headers.get("content-type", "").startswith("text/html") and given.request.method != "HEAD":
        assert "</html>" in given.text
    assert "set-cookie" not in given.headers


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("path", [f"/p/{'A' * TOKEN_LENGTH}", f"/p/{'A' * TOKEN_LENGTH}/charge"])
async def test_without_a_database_the_page_asks_for_patience(path: str) -> None:
    async with without_a_database() as client:
        answer = await client.request("POST" if path.endswith("charge") else "GET", f"http://127.0.0.1{path}")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert {name: answer.headers.get(name) for name in STRICT} == STRICT
    assert "Just a moment" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("form", ["charge", "cancel", "handset"])
def test_a_form_from_elsewhere_does_nothing(form: str, headers: dict[str, str], visitor: Visitor) -> None:
    answer = visitor.sends({"answer": "approve"}, to=form, headers=headers)
    assert answer.status_code == 403
    assert "Not sent from this page" in answer.text
    assert "Pay 1,500.00" in visitor.http.get(visitor.link).text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize("token", ["", "0" * 32, "é"])
def test_a_form_with_a_wrong_token_does_nothing(token: str, visitor: Visitor) -> None:
    assert visitor.sends({"form_token": token}, to="cancel").status_code == 403


def test_the_token_of_one_payment_does_not_open_another(gateway: Gateway, merchant: Merchant, visitor: Visitor) -> None:
    other = Visitor(gateway, merchant)
    other.http.close()
    assert visitor.sends({"form_token": other.form["form_token"]}, to="cancel").status_code == 403


def test_a_form_of_a_thousand_fields_does_nothing(visitor: Visitor) -> None:
    fields = {f"field{number}": "1" for number in range(1000)}
    assert visitor.sends(fields, to="cancel").status_code == 403


def test_a_form_of_another_type_does_nothing(visitor: Visitor) -> None:
    assert visitor.http.post(f"{visitor.link}/cancel", json=visitor.form).status_code == 403
    assert visitor.http.post(f"{visitor.link}/cancel", files={"form_token": visitor.token}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-origin", "Origin": "null"}, {"Sec-Fetch-Site": "none"}],
)
def test_our_own_form_is_taken_however_little_the_browser_says(headers: dict[str, str], visitor: Visitor) -> None:
    answer = visitor.sends(headers=headers)
    assert answer.status_code == 303
    assert answer.headers["location"] == visitor.link.removeprefix(visitor.origin)


def test_no_redirect_goes_where_the_host_header_says(visitor: Visitor) -> None:
    for path in ("", "/", "/charge"):
        answer = visitor.http.get(
            visitor.link + path, headers={"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
        )
        assert "evil.example" not in answer.text + answer.headers.get("location", "")


def test_a_refused_method_names_the_right_one(visitor: Visitor) -> None:
    answer = visitor.http.put(f"{visitor.link}/charge")
    assert answer.headers["allow"] == "POST"
    assert "This did not work" in answer.text


@pytest.mark.parametrize("language", ["en", "am"])
def test_all_of_a_page_is_light_enough_for_slow_phones(language: str, visitor: Visitor) -> None:
    """What is sent for it: the page, its stylesheet, its script and its code, as a browser gets them."""
    page = visitor.http.get(f"{visitor.link}?lang={language}")
    addresses = re.findall(r'(?:href|src)="(/(?:static|p)/[^"?]+\.(?:css|js|png))"', page.text)
    assert [address.rpartition(".")[2] for address in dict.fromkeys(addresses)] == ["css", "js", "png"]
    answers = [page, *map(visitor.get, dict.fromkeys(addresses))]
    for answer in answers[1:3]:
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-encoding"] == "gzip"
    assert sum(int(answer.headers["content-length"]) for answer in answers) <= SENT_BYTES_MAX


def test_a_browser_that_does_not_unpack_gets_the_page_as_it_is(visitor: Visitor) -> None:
    for encoding in ("identity", "gzip;q=0", "br"):
        plain = visitor.http.get(visitor.link, headers={"Accept-Encoding": encoding})
        assert "content-encoding" not in plain.headers
        assert plain.headers["vary"] == "Accept-Encoding, Accept-Language"
        assert "1,500.00" in plain.text


LANGUAGES_ASKED = [
    ("", "", "en"),
    ("", "am-ET,am;q=0.9,en-US;q=0.8,en;q=0.7", "am"),
    ("", "en-GB,en;q=0.9,am;q=0.8", "en"),
    ("", "om-ET,am;q=0.5", "am"),
    ("", "am;q=0", "en"),
    ("", "fr, *;q=0.1", "en"),
    ("", "am;q=x, ,;;,=", "en"),
    ("", "am" * 5000, "en"),
    ("?lang=am", "en", "am"),
    ("?lang=en", "am", "en"),
    ("?lang=AM", "en", "en"),
    ("?lang=fr", "am", "am"),
    ("?lang=am%22%3E%3Cscript%3E", "en", "en"),
    ("?lang=en&lang=am", "en", "am"),
]


@pytest.mark.parametrize(("query", "accepted", "language"), LANGUAGES_ASKED)
def test_the_language_is_the_one_asked_for_and_else_the_one_liked_best(
    query: str, accepted: str, language: str, visitor: Visitor
) -> None:
    page = visitor.http.get(visitor.link + query, headers={"Accept-Language": accepted})
    assert page.status_code == 200
    assert f'<html lang="{language}">' in page.text
    assert "<script>" not in page.text


def test_a_chosen_language_stays_chosen(visitor: Visitor) -> None:
    page = visitor.http.get(f"{visitor.link}?lang=am").text
    path = visitor.link.removeprefix(visitor.origin)
    assert f'action="{path}/charge?lang=am"' in page
    assert f'href="{path}?lang=en"' in page
    for form in ("charge", "cancel"):
        answer = visitor.http.post(f"{visitor.link}/{form}?lang=am", data=visitor.form)
        assert answer.headers["location"] == f"{path}?lang=am"
        assert visitor.http.get(f"{visitor.link}/{form}?lang=am").headers["location"] == f"{path}?lang=am"
    assert f'href="{path}?lang=en"' in visitor.http.post(f"{visitor.link}/charge?lang=am").text


@pytest.mark.parametrize(("name", "media_type"), [("qr.png", "image/png"), ("qr.svg", "image/svg+xml")])
def test_the_code_can_be_had_as_a_picture(name: str, media_type: str, visitor: Visitor) -> None:
    answer = visitor.http.get(f"{visitor.link}/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert {name: answer.headers.get(name) for name in STRICT} == STRICT
    assert visitor.get(f"/p/{'A' * TOKEN_LENGTH}/{name}").status_code == 404


def test_every_page_names_its_request(gateway: Gateway) -> None:
    answers = [httpx2.get(gateway.origin + path) for path in ("/", "/p/wrong", "/livez", "/readyz")]
    names = [answer.headers["zembil-request-id"] for answer in answers]
    assert len(set(names)) == len(answers)
    assert "strict-transport-security" not in answers[0].headers
