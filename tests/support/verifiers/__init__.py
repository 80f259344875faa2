"""Whoever verifies a delivery: the examples that we publish, and the two libraries of Standard Webhooks.

Those in other languages run as a program that reads all cases at once and answers all verdicts at once.
"""

import json
import os
import runpy
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import standardwebhooks

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/webhooks"
_NODE_MODULES = ROOT / ".venv/node_modules"


@dataclass(frozen=True)
class Case:
    """A request as a receiver sees it; `now` is the receiver's clock, or None for the real one."""

    secret: str
    headers: Mapping[str, str]
    body: str
    now: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Which of the two signatures is right; None for what this verifier does not look at."""

    webhook_signature: bool
    zembil_signature: bool | None


Verifier = Callable[[Sequence[Case]], list[Verdict]]


def python_example(cases: Sequence[Case]) -> list[Verdict]:
    example = runpy.run_path(str(EXAMPLES / "verify.py"))
    return [
        Verdict(
            example["is_genuine"](case.secret, case.headers, case.body.encode(), case.now),
            example["has_zembil_signature"](case.secret, case.headers, case.body.encode()),
        )
        for case in cases
    ]


def javascript_example(cases: Sequence[Case]) -> list[Verdict]:
    return _answered(_program("node", "nodejs"), "examples.mjs", cases)


def php_example(cases: Sequence[Case]) -> list[Verdict]:
    return _answered(_program("php", "php-cli"), "examples.php", cases)


def javascript_library(cases: Sequence[Case]) -> list[Verdict]:
    """The npm package standardwebhooks."""
    if not (_NODE_MODULES / "standardwebhooks").is_dir():
        pytest.fail("This test needs the npm package standardwebhooks; `make tools` fetches it", pytrace=False)
    return _answered(_program("node", "nodejs"), "library.cjs", cases)


def python_library(cases: Sequence[Case]) -> list[Verdict]:
    """The PyPI package standardwebhooks."""

    def verdict(case: Case) -> Verdict:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> "Clock":
                return cls.fromtimestamp(datetime.now().astimezone().timestamp() if case.now is None else case.now, tz)

        with mock.patch("standardwebhooks.webhooks.datetime", Clock):
            try:
                standardwebhooks.Webhook(case.secret).verify(case.body, dict(case.headers), json_parse=False)
            except (standardwebhooks.WebhookVerificationError, ValueError):  # it trips over what is no signature at all
                return Verdict(webhook_signature=False, zembil_signature=None)
        return Verdict(webhook_signature=True, zembil_signature=None)

    return [verdict(case) for case in cases]


EXAMPLE_VERIFIERS: tuple[Verifier, ...] = (python_example, javascript_example, php_example)
LIBRARIES: tuple[Verifier, ...] = (python_library, javascript_library)


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"This test needs {name}; on Debian: apt-get install {package}", pytrace=False)
    return found


def _answered(program: str, script: str, cases: Sequence[Case]) -> list[Verdict]:
    done = subprocess.run(
        [program, Path(__file__).with_name(script)],
        input=json.dumps([asdict(case) for case in cases]),
        env={**os.environ, "NODE_PATH": str(_NODE_MODULES)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers: list[Any] = json.loads(done.stdout)
    assert len(answers) == len(cases)
    return [Verdict(*answer) for answer in answers]
