"""The docs say what the code does."""

import inspect
import re
from pathlib import Path

import pytest

from zembil import config, errors
from zembil.errors import ApiError, ConfigurationError
from zembil.payments.lifecycle import CHARGE_CHANGES, PAYMENT_CHANGES
from zembil.payments.model import ChargeState, FailureCode
from zembil.rails import doubt
from zembil.refunds.lifecycle import CHANGES as REFUND_CHANGES
from zembil.refunds.model import RefundState
from zembil.webhooks.model import EventType

ROOT = Path(__file__).parents[2]


def test_every_setting_that_is_read_is_documented_and_the_other_way_round() -> None:
    read = set(re.findall(r'"(ZEMBIL_[A-Z_]+)"', inspect.getsource(config)))
    documented = set(re.findall(r"^\| `(ZEMBIL_[A-Z_]+)`", (ROOT / "docs/settings.md").read_text(), re.MULTILINE))
    assert read == documented


def test_every_missing_setting_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        config.from_environment({})
    for name in ("ZEMBIL_DATABASE_URL", "ZEMBIL_SECRET_KEY", "ZEMBIL_PUBLIC_URL"):
        assert f"Set {name}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ZEMBIL_SECRET_KEY", "c2hvcnQ="),
        ("ZEMBIL_SECRET_KEY", "A" * 43 + "="),
        ("ZEMBIL_PUBLIC_URL", "http://pay.example.et"),
        ("ZEMBIL_PUBLIC_URL", "https://pay.example.et/path"),
        ("ZEMBIL_DATABASE_URL", "mysql://db"),
        ("ZEMBIL_SERVICE_NAME", "Zembil Pay"),
        ("ZEMBIL_PAYMENT_SANTIM_MAX", "1e6"),
        ("ZEMBIL_WEBHOOK_ENDPOINTS_MAX", "0"),
        ("ZEMBIL_WEBHOOK_ALLOW_CIDRS", "10.0.0.1/8"),
    ],
)
def test_an_unsafe_setting_is_refused_by_name(name: str, value: str) -> None:
    safe = {
        "ZEMBIL_DATABASE_URL": "postgresql://db/zembil",
        "ZEMBIL_SECRET_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
    }
    assert config.from_environment(safe).public_url == "https://pay.example.et"
    with pytest.raises(ConfigurationError, match=name):
        config.from_environment(safe | {name: value})


def test_secrets_do_not_show_in_repr() -> None:
    settings = config.Settings(database_url="postgresql://user:hunter2@db/zembil", secret_key=b"k" * 32)
    assert "hunter2" not in repr(settings)
    assert "kkkk" not in repr(settings)


def test_the_diagram_of_payments_is_the_table_of_the_code() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    drawn = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(payment\.\w+)` \|$", text, re.MULTILINE))
    assert drawn == {(a.value, b.value, event.value) for (a, b), event in PAYMENT_CHANGES.items()}


def test_the_diagram_of_charges_is_the_table_of_the_code() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|$", text, re.MULTILINE)
    drawn = {state: set(re.findall(r"`(\w+)`", targets)) for state, targets in rows}
    assert drawn == {a.value: {b.value for b in targets} for a, targets in CHARGE_CHANGES.items() if targets}


def test_the_diagram_of_refunds_is_the_table_of_the_code() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    drawn = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(refund\.\w+)` \|", text, re.MULTILINE))
    assert drawn == {(a.value, b.value, event.value) for (a, b), (event, _) in REFUND_CHANGES.items()}


@pytest.mark.parametrize(("table", "states"), [("charges", ChargeState), ("refunds", RefundState)])
def test_the_database_knows_the_same_states_as_the_code(table: str, states: type[ChargeState | RefundState]) -> None:
    migrations = sorted((ROOT / "src/zembil/db/migrations").glob("*.sql"))
    sql = "\n".join(migration.read_text() for migration in migrations)
    of_table = re.findall(rf"^(?:CREATE|ALTER) TABLE {table}\b(.*?);\n", sql, re.DOTALL | re.MULTILINE)
    checks = [found for part in of_table for found in re.findall(r"CHECK \(state IN \(([^()]*)\)\)", part)]
    assert checks
    assert set(re.findall(r"'(\w+)'", checks[-1])) == {state.value for state in states}


def test_the_doubt_schedule_is_the_decided_one() -> None:
    assert [wait.total_seconds() for wait in doubt.SCHEDULE] == [
        *(5, 10, 20, 40, 60),
        *(120, 300, 900),
        *(3600, 21600, 86400),
    ]


def test_every_event_type_is_in_the_docs_of_webhooks() -> None:
    text = (ROOT / "docs/webhooks.md").read_text()
    assert all(f"`{event.value}`" in text for event in EventType)


def test_every_error_code_is_in_the_tree_of_errors() -> None:
    tree = errors.__doc__ or ""
    public = kinds(ApiError)
    assert public
    assert all(kind.__name__ in tree for kind in public)


def kinds(of: type[ApiError]) -> list[type[ApiError]]:
    found = [kind for child in of.__subclasses__() for kind in (child, *kinds(child))]
    return [kind for kind in found if kind.__module__ == "zembil.errors"]


def test_every_error_code_is_in_the_docs_of_the_api() -> None:
    text = (ROOT / "docs/api.md").read_text()
    codes = {kind.code for kind in kinds(ApiError) if hasattr(kind, "code")}
    assert "refund_amount_exceeds_available" in codes
    missing = [code for code in (*codes, *FailureCode, "internal_error") if f"`{code}`" not in text]
    assert missing == []


def test_a_relative_link_in_the_docs_leads_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]
    assert pages
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
