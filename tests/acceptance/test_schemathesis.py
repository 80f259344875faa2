"""Schemathesis over the served reference: no 5xx, no answer outside the schemas, nothing invalid taken, nothing valid
refused.

The short form has the same cases each time, but for what the gateway answers. The long form goes on for as long as
ZEMBIL_FUZZ_SECONDS says, with cases of its own; `make fuzz` prints what came of it. A failure comes with the requests
that show it, and the seed.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway import Gateway, Merchant
from tests.support.reference import document_of, operations

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "tests" / "support" / "fuzzer.toml"
LONG_SECONDS = int(os.environ.get("ZEMBIL_FUZZ_SECONDS", "1800"))
SETTING_UP_SECONDS_MAX = 1200  # far more than it takes, unless the machine has much else to do
EXAMPLES, SEED = 10, 20261121  # of each operation beyond those that its bounds and its links suggest


@pytest.fixture
def merchant(start: Callable[..., Gateway]) -> Iterator[Merchant]:
    """A merchant of a gateway that answers as much as is asked."""
    new = start(environment={"ZEMBIL_RATE_LIMIT_SANDBOX": "0"}).new_merchant()
    yield new
    new.close()


def fuzz(merchant: Merchant, reports: Path, *arguments: str, seconds_max: int) -> str:
    """Let Schemathesis at the sandbox, with an admin's key; what it says."""
    api = merchant.client()
    base_url, key = f"{merchant.origin}/sandbox/v1", merchant.sandbox["admin_key"]
    keys = api.get("/keys", params={"limit": 100}).json()["data"]["keys"]
    (own,) = [one["id"] for one in keys if one["last_four"] == key[-4:]]
    fuzzed = {"ZEMBIL_FUZZED_URL": base_url, "ZEMBIL_FUZZED_KEY": key, "ZEMBIL_FUZZED_KEY_ID": own}
    said = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", "--no-color"),
            *(f"{merchant.origin}/openapi.json", "--url", base_url),
            *("--report", "ndjson", "--report-ndjson-path", str(reports / "fuzzed.ndjson"), *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **fuzzed},
        timeout=seconds_max,
        check=False,
    )
    assert said.returncode == 0, said.stdout
    # All that was found would be worth nothing if the key had been refused half-way.
    assert api.get("/balance").status_code == 200
    return said.stdout


def answered(reports: Path) -> Iterator[tuple[str, int]]:
    """The operations that were asked, and the status of each answer."""
    with (reports / "fuzzed.ndjson").open() as lines:
        for line in lines:
            if not line.startswith('{"ScenarioFinished'):
                continue
            recorder: dict[str, Any] = json.loads(line)["ScenarioFinished"]["recorder"]
            for case_id, interaction in recorder.get("interactions", {}).items():
                case = recorder["cases"][case_id]["value"]
                if interaction["response"]:
                    yield f"{case['method']} {case['path']}", interaction["response"]["status_code"]


def demand_a_success_of_each(merchant: Merchant, reports: Path) -> Counter[int]:
    """No schema of an answer is held against anything unless there is one; how often each status was answered."""
    seen = list(answered(reports))
    succeeded = {operation for operation, status in seen if status < 300}
    assert {f"{one.method} {one.path}" for one in operations(document_of(merchant.origin))} - succeeded == set()
    return Counter(status for _, status in seen)


def test_no_request_is_answered_otherwise_than_the_reference_says(merchant: Merchant, tmp_path: Path) -> None:
    fuzz(merchant, tmp_path, "--max-examples", str(EXAMPLES), "--seed", str(SEED), seconds_max=SETTING_UP_SECONDS_MAX)
    demand_a_success_of_each(merchant, tmp_path)


@pytest.mark.prove
@pytest.mark.skipif("ZEMBIL_PROVE" not in os.environ, reason="takes half an hour; make fuzz and make prove run it")
def test_no_request_of_half_an_hour_is_answered_otherwise_than_the_reference_says(
    merchant: Merchant, tmp_path: Path
) -> None:
    seconds_max = LONG_SECONDS + SETTING_UP_SECONDS_MAX
    said = fuzz(merchant, tmp_path, "--max-time", str(LONG_SECONDS), seconds_max=seconds_max)
    print(said)
    print(sorted(demand_a_success_of_each(merchant, tmp_path).items()))
