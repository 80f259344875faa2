"""What a receiver is given works: the published vectors, and the code that the docs show in three languages."""

import json
import re
from typing import Any

import pytest

from tests.support.verifiers import EXAMPLE_VERIFIERS, EXAMPLES, LIBRARIES, ROOT, Case, Verdict, Verifier
from zembil.webhooks import signature

VECTORS: list[dict[str, Any]] = json.loads((ROOT / "docs/webhook-vectors.json").read_text())["vectors"]
CASES = [Case(vector["secret"], vector["headers"], vector["body"], vector["now"]) for vector in VECTORS]
EXPECTED = [Verdict(vector["webhook_signature_is_right"], vector["zembil_signature_is_right"]) for vector in VECTORS]
NAMES = [vector["name"] for vector in VECTORS]
OLD, NEW = CASES[0].secret, CASES[NAMES.index("during a rotation, with the new secret")].secret


@pytest.mark.parametrize("verify", EXAMPLE_VERIFIERS)
def test_the_code_in_the_docs_judges_every_published_vector_rightly(verify: Verifier) -> None:
    assert dict(zip(NAMES, verify(CASES), strict=True)) == dict(zip(NAMES, EXPECTED, strict=True))


@pytest.mark.parametrize("verify", LIBRARIES)
def test_the_libraries_of_standard_webhooks_judge_every_published_vector_rightly(verify: Verifier) -> None:
    judged = {name: verdict.webhook_signature for name, verdict in zip(NAMES, verify(CASES), strict=True)}
    assert judged == {name: verdict.webhook_signature for name, verdict in zip(NAMES, EXPECTED, strict=True)}


@pytest.mark.parametrize(
    ("name", "secrets"),
    [
        ("a genuine event", (OLD,)),
        ("a body that is not ASCII", (OLD,)),
        ("an empty body", (OLD,)),
        ("during a rotation, with the old secret", (OLD, NEW)),
        ("after a rotation, with the new secret", (NEW,)),
    ],
)
def test_the_genuine_vectors_are_what_we_send(name: str, secrets: tuple[str, ...]) -> None:
    case = CASES[NAMES.index(name)]
    sent = signature.headers(
        secrets[0],
        case.body.encode(),
        event_id=case.headers["webhook-id"],
        timestamp=int(case.headers["webhook-timestamp"]),
        service_name="zembil",
        version="1",
        next_secret=secrets[1] if len(secrets) > 1 else None,
    )
    assert case.headers == {name: value for name, value in sent.items() if name not in ("content-type", "user-agent")}


def test_each_kind_of_vector_is_there_for_acceptance_and_for_refusal() -> None:
    assert len(VECTORS) >= 40
    assert len(set(NAMES)) == len(NAMES)
    for accepted in (True, False):
        assert sum(verdict.webhook_signature is accepted for verdict in EXPECTED) >= 10
        assert sum(verdict.zembil_signature is accepted for verdict in EXPECTED) >= 10
    # What the docs warn of: a copy under a new time passes for the one signature and not for the other.
    assert Verdict(webhook_signature=False, zembil_signature=True) in EXPECTED


@pytest.mark.parametrize("name", ["verify.py", "verify.mjs", "verify.php"])
def test_the_docs_show_the_code_that_is_tested(name: str) -> None:
    shown = re.findall(r"```\w+\n(.*?)```", (ROOT / "docs/webhooks.md").read_text(), re.DOTALL)
    assert (EXAMPLES / name).read_text() in shown
