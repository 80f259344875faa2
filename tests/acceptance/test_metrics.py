"""What a monitoring system reads at /metrics, and who may."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.test_dev import eventually
from tests.support.database import query
from tests.support.gateway import Gateway, Merchant
from tests.support.money import PAYS, advance, created, paid, refund
from tests.support.receiver import Receiver
from tests.support.serving import Deployment, deployed

TOKEN = "a-token-of-a-monitoring-system"
SETTINGS = {"ZEMBIL_METRICS_TOKEN": TOKEN, "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8"}

SILENT = "+251900000005"  # takes the charge and says nothing more

Gauges = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def deployment(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(gateway, tmp_path_factory.mktemp("metrics") / "serve.log", **SETTINGS) as running:
        yield running


@pytest.fixture
def merchant(deployment: Deployment) -> Iterator[Merchant]:
    new = deployment.new_merchant()
    yield new
    new.close()


def asked(origin: str, authorization: str | None = f"Bearer {TOKEN}") -> httpx2.Response:
    headers = {} if authorization is None else {"Authorization": authorization}
    return httpx2.get(f"{origin}/metrics", headers=headers, timeout=30)


def gauges(deployment: Deployment) -> Gauges:
    """Every value, by name and labels in the order of their names."""
    answer = asked(deployment.origin)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_metrics_say_what_is_open_and_how_payments_stand(deployment: Deployment, merchant: Merchant) -> None:
    api, before = merchant.client(), gauges(deployment)
    created(merchant.client(livemode=True))
    charged = api.post(
        f"/payments/{created(api)['id']}/charge", json={"phone": SILENT, "mobile_money_provider": "mpesa"}
    )
    assert charged.status_code == 200
    query(deployment, "UPDATE charges SET ask_at = ask_at + interval '1 day' WHERE state = 'in_doubt'")
    refund(api, paid(api, PAYS))
    after = gauges(deployment)
    assert {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)} == {
        ("zembil_payments", "live", "pending"): 1,
        ("zembil_payments", "sandbox", "completed"): 1,
        ("zembil_payments", "sandbox", "pending"): 1,
        ("zembil_charges_open", "sandbox", "in_doubt"): 1,
        ("zembil_refunds_open", "sandbox", "pending_approval"): 1,
    }


def test_an_endpoint_that_fails_is_counted_until_it_receives_again(deployment: Deployment, merchant: Merchant) -> None:
    api, name = merchant.client(), ("zembil_endpoints_failing", "sandbox")
    answers = [500, 500, 500, 200]
    receiver = Receiver(lambda request: request.send_response(answers.pop(0)))
    assert api.post("/webhooks", json={"url": receiver.url, "events": ["payment.created"]}).status_code == 201
    created(api)
    assert ("zembil_deliveries_waiting", "sandbox") in gauges(deployment)
    for attempts, seconds in ((1, 60), (2, 600)):
        receiver.wait_for(attempts)
        assert eventually(
            lambda: not query(deployment, "SELECT FROM pending_deliveries WHERE in_flight_until IS NOT NULL")
        )
        advance(api, seconds)
    assert eventually(lambda: gauges(deployment).get(name) == 1)
    created(api)
    assert eventually(lambda: name not in gauges(deployment))
    assert ("zembil_deliveries_waiting", "sandbox") not in gauges(deployment)
    receiver.close()


def test_a_queue_that_nobody_works_off_is_seen_by_its_oldest_delivery(gateway: Gateway, tmp_path: Path) -> None:
    with (
        deployed(gateway, tmp_path / "serve.log", "--no-worker", **SETTINGS) as deployment,
        closing(deployment.new_merchant()) as merchant,
    ):
        api = merchant.client()
        url = "https://shop.example.et/hooks"
        assert api.post("/webhooks", json={"url": url, "events": ["payment.created"]}).status_code == 201
        created(api)
        query(deployment, "UPDATE pending_deliveries SET due_at = due_at - interval '1 hour'")
        created(api)
        found = gauges(deployment)
    assert found["zembil_deliveries_waiting", "sandbox"] == 2
    assert 3600 <= found["zembil_deliveries_oldest_due_seconds", "sandbox"] < 3700


@pytest.mark.parametrize("authorization", [None, "Bearer", "Bearer wrong", TOKEN, f"bearer {TOKEN}x", "Basic YTpi"])
def test_without_the_token_nothing_is_told(deployment: Deployment, authorization: str | None) -> None:
    answer = asked(deployment.origin, authorization)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "zembil_" not in answer.text


def test_where_no_token_is_set_there_are_no_metrics(gateway: Gateway) -> None:
    for authorization in (None, "Bearer", f"Bearer {TOKEN}"):
        assert asked(gateway.origin, authorization).status_code == 404
