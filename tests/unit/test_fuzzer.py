"""What the fuzzer lets pass: of all that looks like a failure of ours, only a wallet that is away."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from requests import Request
from schemathesis.core.failures import ServerError
from schemathesis.core.transport import Response

from tests.support.fuzzer import filter_failure

AWAY: dict[str, Any] = {
    "operation": "charge_payment",
    "status": 503,
    "code": "provider_unavailable",
    "headers": {"Retry-After": ["30"]},
}


def is_kept(*, operation: str, status: int, code: str, headers: dict[str, list[str]]) -> bool:
    """Whether a failure stays one, of an answer of ours to this operation."""
    raw = {"operationId": operation}
    case = SimpleNamespace(path_parameters={}, operation=SimpleNamespace(definition=SimpleNamespace(raw=raw)))
    answer = json.dumps({"status": "error", "error": {"code": code, "message": "Away."}}).encode()
    request = Request("POST", "http://127.0.0.1/").prepare()
    response = Response(status, headers, answer, request, elapsed=0.1, verify=True)
    return filter_failure(None, ServerError(operation=operation, status_code=status), case, response)


def test_a_wallet_that_is_away_is_no_failure_of_ours() -> None:
    assert not is_kept(**AWAY)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"operation": "create_payment"},
        {"operation": "create_refund"},
        {"status": 500},
        {"code": "service_unavailable"},
        {"code": "internal_error"},
        {"headers": {}},
    ],
    ids=str,
)
def test_every_other_5xx_is_a_failure(otherwise: dict[str, Any]) -> None:
    assert is_kept(**AWAY | otherwise)
