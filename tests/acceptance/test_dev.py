"""The commands, as a newcomer and an operator meet them: every test runs the real program."""

import asyncio
import base64
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.gateway import STOP_SECONDS_MAX, ZEMBIL, Gateway, Merchant, kill_all, remaining, tree_of
from tests.support.receiver import Receiver
from tests.support.wire import connect, read_answer, request
from zembil import __version__
from zembil.db.embedded import EmbeddedPostgres
from zembil.db.pool import connection

Start = Callable[..., Gateway]

KEYS = ("admin_key", "developer_key", "read_only_key")
COFFEE = {"amount": 150.00, "currency": "ETB", "description": "Coffee"}
SETTINGS = ("ZEMBIL_DATABASE_URL", "ZEMBIL_SECRET_KEY", "ZEMBIL_PUBLIC_URL")


def environment(settings: Mapping[str, str] | None = None) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ZEMBIL_")}
    return {**ours, **(settings or {})}


def zembil(*arguments: str, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*ZEMBIL, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment(settings)
    )


@contextmanager
def running(
    *arguments: str, settings: Mapping[str, str] | None = None, output: int | None = None
) -> Generator[subprocess.Popen[str]]:
    """A command that runs until it is told to stop."""
    with subprocess.Popen(
        [*ZEMBIL, *arguments], stdout=output, text=True, start_new_session=True, env=environment(settings)
    ) as process:
        try:
            yield process
        finally:
            kill_all(tree_of(process.pid))


def sentences(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a refused command says: sentences on standard error, exit status 1, and nothing else."""
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("zembil: ")
    return done.stderr.removeprefix("zembil: ").splitlines()


def eventually(is_met: Callable[[], bool], *, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := is_met()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return met


def fetch(database_url: str, statement: str) -> list[Any]:
    async def rows() -> list[Any]:
        async with connection(database_url) as conn:
            driver: Any = conn
            return await driver.fetch(statement)

    return asyncio.run(rows())


def new_payment(merchant: Merchant) -> dict[str, Any]:
    api = merchant.client()
    created = api.post("/payments", json=COFFEE)
    assert created.status_code == 201
    payment: dict[str, Any] = api.get(f"/payments/{created.json()['data']['id']}").json()["data"]
    api.close()
    return payment


def is_there(merchant: Merchant, payment: dict[str, Any]) -> bool:
    """Whether the payment is found as it was; its link follows the address of the process that answers."""
    api = merchant.client()
    found = api.get(f"/payments/{payment['id']}").json()["data"]
    api.close()
    token = payment["payment_link"].rpartition("/")[2]
    return found == payment | {"payment_link": f"{merchant.origin}/p/{token}"}


def demand_the_form(document: dict[str, Any]) -> None:
    """The form of the ready file, to the letter."""
    origin = document["origin"]
    assert document.keys() == {"origin", "sandbox", "live", "database_url"}
    for environment_name, path, prefix in (("sandbox", "/sandbox/v1", "sk_test_"), ("live", "/v1", "sk_live_")):
        part = document[environment_name]
        assert part.keys() == {"base_url", *KEYS}
        assert part["base_url"] == origin + path
        assert all(re.fullmatch(prefix + "[0-9A-Za-z]{49}", part[name]) for name in KEYS)
    keys = [document[part][name] for part in ("sandbox", "live") for name in KEYS]
    assert len(set(keys)) == len(keys)
    assert document["database_url"].startswith("postgresql://")


def demand_keys_that_open(document: dict[str, Any]) -> None:
    for part in (document["sandbox"], document["live"]):
        for name in KEYS:
            answer = httpx2.get(f"{part['base_url']}/payments", headers={"Authorization": f"Bearer {part[name]}"})
            assert answer.status_code == 200


# zembil dev: how it starts


def test_the_ready_file_has_the_promised_form_and_everything_in_it_works(gateway: Gateway) -> None:
    demand_the_form(gateway.ready)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", gateway.origin)
    demand_keys_that_open(gateway.ready)
    assert fetch(gateway.database_url, "SELECT count(*) >= 2 FROM accounts")[0][0]
    assert gateway.ready_file.stat().st_mode & 0o777 == 0o600
    assert list(gateway.ready_file.parent.glob(f".{gateway.ready_file.name}*")) == []


def test_the_ready_file_appears_in_one_step_and_only_once_it_serves(data: Path, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    ready_file.write_text("of an earlier start")
    arguments = ("dev", "--port", "0", "--data", str(data), "--no-open", "--ready-file", str(ready_file))
    with running(*arguments) as process:
        text = ready_file.read_text()
        while not text.startswith("{"):
            assert text in ("of an earlier start", "")
            assert process.poll() is None
            text = ""
            with suppress(FileNotFoundError):
                text = ready_file.read_text()
        # No second look and no patience: what is there is whole, and what it says is true.
        document = json.loads(text)
        demand_the_form(document)
        demand_keys_that_open(document)
        process.terminate()
        assert process.wait(STOP_SECONDS_MAX) == 0


def test_what_it_prints_can_be_pasted_and_opened(data: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with running("dev", "--port", "0", "--data", str(data), output=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "Stop with Ctrl-C" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended early"
        printed = "".join(lines)
        base_url = re.search(r"http://127\.0\.0\.1:\d+/sandbox/v1$", printed, re.MULTILINE)
        key = re.search(r"sk_test_\w+", printed)
        assert base_url
        assert key
        command = printed[printed.index("  export KEY=") :].split("\n\n")[0]
        pasted = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert json.loads(pasted.stdout)["data"]["amount"] == 150
        page = httpx2.get(re.findall(r"http://\S+/p/\S+", printed)[0])
        assert page.status_code == 200
        assert "150.00" in page.text
        headers = {"Authorization": f"Bearer {key[0]}"}
        listed = httpx2.get(f"{base_url[0]}/payments", headers=headers).json()["data"]
        assert listed["pagination"]["total"] == 2
        process.send_signal(signal.SIGINT)
        assert "Your data is kept." in process.stdout.read()
        assert process.wait(STOP_SECONDS_MAX) == 0


def test_host_chooses_the_address(start: Start) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    gateway = start("--host", "::1")
    assert re.fullmatch(r"http://\[::1\]:\d+", gateway.origin)
    demand_keys_that_open(gateway.ready)
    port = int(gateway.origin.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_port_in_use_is_told_in_one_sentence(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = sentences(zembil("dev", "--port", str(port), "--data", str(data), "--reset", "--no-open"))
    choose = "Choose another port with --port; 0 takes any free one."
    assert said == [f"Cannot listen on 127.0.0.1:{port} (Address already in use). {choose}"]
    assert not data.exists()


def test_data_in_use_is_neither_shared_nor_reset(gateway: Gateway) -> None:
    payment = new_payment(gateway.merchant)
    for arguments in ((), ("--reset",)):
        said = sentences(zembil("dev", "--port", "0", "--data", str(gateway.data), "--no-open", *arguments))
        assert len(said) == 1
        assert f"is in use by process {gateway.process.pid}" in said[0]
    assert is_there(gateway.merchant, payment)
    assert json.loads((gateway.data / "running.json").read_text()) == gateway.ready


def test_a_file_that_cannot_be_written_is_told_in_one_sentence(data: Path, tmp_path: Path) -> None:
    ready_file = tmp_path / "nowhere" / "ready.json"
    arguments = ("dev", "--port", "0", "--data", str(data), "--no-open", "--ready-file", str(ready_file))
    assert sentences(zembil(*arguments)) == [f"Cannot write {ready_file}: No such file or directory."]
    occupied = tmp_path / "thesis.txt"
    occupied.write_text("three years of work")
    said = sentences(zembil("dev", "--port", "0", "--data", str(occupied), "--no-open"))
    assert said == [f"Cannot keep data in {occupied}: File exists."]


# zembil dev: what it keeps


def test_a_second_start_has_the_same_keys_and_the_same_data(start: Start, data: Path) -> None:
    first = start()
    assert (data / ".gitignore").read_text() == "*\n"
    payment = new_payment(first.merchant)
    assert first.stop() == 0
    assert not (data / "running.json").exists()
    second = start()
    for part in ("sandbox", "live"):
        assert [second.ready[part][name] for name in KEYS] == [first.ready[part][name] for name in KEYS]
    assert is_there(second.merchant, payment)


def test_reset_starts_anew_and_leaves_what_is_not_ours(start: Start, data: Path) -> None:
    data.mkdir()
    (data / ".gitignore").write_text("*.pyc\n")
    first = start()
    new_payment(first.merchant)
    assert first.stop() == 0
    second = start("--reset")
    before = {first.ready[part][name] for part in ("sandbox", "live") for name in KEYS}
    after = {second.ready[part][name] for part in ("sandbox", "live") for name in KEYS}
    assert not before & after
    demand_keys_that_open(second.ready)
    with second.merchant.client() as api:
        assert api.get("/payments").json()["data"]["pagination"]["total"] == 0
    old_key = {"Authorization": f"Bearer {first.ready['sandbox']['admin_key']}"}
    assert httpx2.get(f"{second.ready['sandbox']['base_url']}/payments", headers=old_key).status_code == 401
    assert (data / ".gitignore").read_text() == "*.pyc\n"
    # As if a reset had been cut off: the keys are there, the database that knows them is not.
    assert second.stop() == 0
    EmbeddedPostgres.reset(data / "postgres")
    demand_keys_that_open(start().ready)


# zembil dev: how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_finishes_what_is_in_flight_and_leaves_nothing_behind(
    start: Start, receiver: Receiver, number: signal.Signals
) -> None:
    receiver.answer = answer_late
    gateway = start()
    processes = tree_of(gateway.process.pid)
    assert len(processes) > 2
    key = gateway.ready["sandbox"]["admin_key"]
    with gateway.merchant.client() as api:
        api.post("/webhooks", json={"url": receiver.url, "events": ["payment.created"]})
    new_payment(gateway.merchant)
    receiver.wait_for(1)
    whole = request("POST", "/sandbox/v1/payments", key=key, body=json.dumps(COFFEE).encode())
    with connect(gateway.origin) as idle, connect(gateway.origin) as busy:
        idle.sendall(request("GET", "/livez"))
        assert read_answer(idle).status == 200
        busy.sendall(whole[:-10])
        time.sleep(0.2)
        gateway.process.send_signal(number)
        time.sleep(0.2)
        gateway.process.send_signal(number)  # people are impatient
        busy.sendall(whole[-10:])
        assert read_answer(busy).status == 201
        assert idle.recv(1) == b""
    assert gateway.process.wait(STOP_SECONDS_MAX) == 0
    assert remaining(processes, after_seconds=0) == []
    assert not (gateway.data / "running.json").exists()
    assert "rror" not in gateway.log.read_text()
    with EmbeddedPostgres.start(gateway.data / "postgres") as postgres:
        assert fetch(postgres.url, "SELECT count(*) FROM payments")[0][0] == 2
        told = fetch(postgres.url, "SELECT status, attempts_made FROM deliveries")
        assert [tuple(row) for row in told] == [("succeeded", 1)]
        waiting = fetch(postgres.url, "SELECT attempts_made, in_flight_until FROM pending_deliveries")
        assert [tuple(row) for row in waiting] == [(0, None)]


def answer_late(handler: Any) -> None:
    time.sleep(1)
    handler.send_response(200)


def test_a_request_that_never_ends_does_not_keep_it(start: Start) -> None:
    gateway = start()
    key = gateway.ready["sandbox"]["admin_key"]
    with connect(gateway.origin) as stuck:
        stuck.sendall(request("POST", "/sandbox/v1/payments", key=key, body=b'{"amount": 1}')[:-5])
        time.sleep(0.2)
        began = time.monotonic()
        assert gateway.stop() == 0
    assert time.monotonic() - began < 13


def test_stopped_while_it_starts_it_leaves_nothing_behind_and_starts_the_next_time(start: Start, data: Path) -> None:
    with running("dev", "--port", "0", "--data", str(data), "--no-open") as process:
        assert eventually(lambda: len(tree_of(process.pid)) > 1)
        processes = tree_of(process.pid)
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
        assert remaining(processes, after_seconds=10) == []
    demand_keys_that_open(start().ready)


@pytest.mark.parametrize("victims", ["the process", "its whole tree"])
def test_killed_it_leaves_nothing_behind_and_the_next_start_has_everything(
    start: Start, data: Path, victims: str
) -> None:
    gateway = start()
    processes = tree_of(gateway.process.pid)
    payment = new_payment(gateway.merchant)
    if victims == "the process":
        gateway.kill()
    else:
        gateway.kill_tree()
    assert remaining(processes, after_seconds=10) == []
    assert (data / "running.json").exists()  # nobody was left to remove it; it must mislead no one
    added = zembil("merchant", "create", "Selam's", "--json", "--data", str(data))
    assert added.returncode == 0, added.stderr
    again = start()
    assert again.ready["sandbox"]["admin_key"] == gateway.ready["sandbox"]["admin_key"]
    assert is_there(again.merchant, payment)
    assert again.start_seconds < 10


# zembil merchant create


def test_a_merchant_is_made_while_it_runs_and_while_it_does_not(start: Start, data: Path) -> None:
    gateway = start()
    while_running = zembil("merchant", "create", "Almaz' spices", "--json", "--data", str(data))
    document = json.loads(while_running.stdout)
    demand_the_form(document)
    assert document["origin"] == gateway.origin
    demand_keys_that_open(document)
    assert gateway.stop() == 0
    at_rest = json.loads(zembil("merchant", "create", "Selam's", "--json", "--data", str(data)).stdout)
    demand_the_form(at_rest)
    again = start()
    for part in ("sandbox", "live"):
        for made in (document, at_rest):
            made[part]["base_url"] = again.ready[part]["base_url"]
    demand_keys_that_open(document)
    demand_keys_that_open(at_rest)


def test_a_merchant_without_a_place_or_a_name_is_refused_in_a_sentence(data: Path) -> None:
    assert "There is no data in" in sentences(zembil("merchant", "create", "Almaz", "--data", str(data)))[0]
    assert "1 to 200 printable" in sentences(zembil("merchant", "create", " ", "--data", str(data)))[0]
    assert not data.exists()


def test_a_second_merchant_of_a_name_is_made_only_when_asked_for_and_told_apart_by_its_id(
    start: Start, data: Path
) -> None:
    start()

    def create(*options: str) -> subprocess.CompletedProcess[str]:
        return zembil("merchant", "create", "Almaz", *options, "--data", str(data))

    first = create()
    assert first.returncode == 0, first.stderr
    assert sentences(create()) == ["There is a merchant of the name Almaz. With --again another one is made."]
    printed = [first.stdout, create("--again").stdout]
    invite = [shlex.split(text.splitlines()[-1].replace("EMAIL", "almaz@example.et"))[1:] for text in printed]
    assert invite[0] != invite[1]
    ids = [words[words.index("--merchant") + 1] for words in invite]
    assert sentences(zembil("user", "invite", "almaz@example.et", "--merchant", "Almaz", "--data", str(data))) == [
        f"There are 2 merchants of the name Almaz; give the id of one: {ids[0]}, {ids[1]}."
    ]
    made = zembil(*invite[1])
    assert "/dashboard/link/" in made.stdout, made.stderr
    assert "Almaz" in httpx2.get(made.stdout.strip()).text


# The other commands


def test_version_and_help() -> None:
    assert zembil("--version").stdout == f"zembil {__version__}\n"
    helped = zembil("--help")
    assert helped.returncode == 0
    for command in ("dev", "serve", "worker", "migrate", "merchant"):
        assert re.search(rf"\b{command}\b", helped.stdout)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_without_settings_production_refuses_with_a_sentence_for_each(command: str) -> None:
    said = sentences(zembil(command))
    assert len(said) == len(SETTINGS)
    for name, sentence in zip(("DATABASE_URL", "SECRET_KEY", "PUBLIC_URL"), said, strict=True):
        assert sentence.startswith(f"Set ZEMBIL_{name} to ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ZEMBIL_DATABASE_URL", "mysql://localhost/zembil"),
        ("ZEMBIL_SECRET_KEY", base64.b64encode(bytes(32)).decode()),
        ("ZEMBIL_SECRET_KEY", "secret"),
        ("ZEMBIL_PUBLIC_URL", "http://pay.example.et"),
        ("ZEMBIL_PUBLIC_URL", "https://pay.example.et/zembil"),
        ("ZEMBIL_SERVICE_NAME", "My Gateway"),
        ("ZEMBIL_DATABASE_CONNECTIONS_MAX", "1"),
        ("ZEMBIL_WEBHOOK_ALLOW_CIDRS", "everywhere"),
    ],
)
def test_an_unsafe_setting_is_refused_by_name(name: str, value: str) -> None:
    safe = {
        "ZEMBIL_DATABASE_URL": "postgresql://127.0.0.1:1/zembil",
        "ZEMBIL_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(),
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
    }
    said = sentences(zembil("serve", settings=safe | {name: value}))
    assert len(said) == 1
    assert name in said[0]


def test_a_database_that_is_away_is_told_in_one_sentence() -> None:
    settings = {
        "ZEMBIL_DATABASE_URL": "postgresql://127.0.0.1:1/zembil",
        "ZEMBIL_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(),
        "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
    }
    for arguments in (("serve", "--port", "0"), ("worker",), ("migrate",), ("merchant", "create", "Almaz")):
        said = sentences(zembil(*arguments, settings=settings))
        assert len(said) == 1
        assert said[0].startswith("The database cannot be reached: ")


@pytest.fixture
def production(data: Path) -> Iterator[dict[str, str]]:
    """The settings of a production process, with an empty database."""
    with EmbeddedPostgres.start(data / "postgres") as postgres:
        yield {
            "ZEMBIL_DATABASE_URL": postgres.url,
            "ZEMBIL_SECRET_KEY": base64.b64encode(os.urandom(32)).decode(),
            "ZEMBIL_PUBLIC_URL": "https://pay.example.et",
            "ZEMBIL_SANDBOX_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        }


def test_migrations_may_run_twice_and_at_once_and_a_newer_schema_is_left_alone(production: dict[str, str]) -> None:
    for arguments in (("worker",), ("merchant", "create", "Almaz")):
        said = sentences(zembil(*arguments, settings=production))
        assert said == ["The database is not up to date; run `zembil migrate` first."]
    both = [
        subprocess.Popen([*ZEMBIL, "migrate"], stdout=subprocess.PIPE, text=True, env=environment(production))
        for _ in range(2)
    ]
    printed = sorted(process.communicate(timeout=60)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert "applied 0001_main_job.sql\n" in printed[0]
    assert printed[1] == "nothing to apply: the database is up to date\n"
    again = zembil("migrate", settings=production)
    assert (again.returncode, again.stdout) == (0, printed[1])

    database_url = production["ZEMBIL_DATABASE_URL"]
    tables = fetch(database_url, "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') ORDER BY relname")
    fetch(database_url, "INSERT INTO schema_migrations (name) VALUES ('9999_the_future.sql')")
    for arguments in (("migrate",), ("serve", "--port", "0"), ("worker",), ("merchant", "create", "Almaz")):
        said = sentences(zembil(*arguments, settings=production))
        assert len(said) == 1
        assert said[0].startswith("The database was made by a newer Zembil (it has 9999_the_future.sql)")
    assert tables == fetch(database_url, "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') ORDER BY relname")


def test_what_one_process_accepts_a_worker_on_its_own_delivers(
    production: dict[str, str], receiver: Receiver, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running("serve", "--no-worker", "--port", str(port), settings=production) as serve:
        assert eventually(lambda: is_ready(port))
        made = zembil("merchant", "create", "Almaz", "--json", settings=production)
        document = json.loads(made.stdout)
        demand_the_form(document)
        assert document["origin"] == "https://pay.example.et"
        merchant = Merchant(f"http://127.0.0.1:{port}", document["sandbox"], document["live"])
        api = merchant.client()
        assert api.post("/webhooks", json={"url": receiver.url, "events": ["*"]}).status_code == 201
        payment = api.post("/payments", json=COFFEE).json()["data"]
        assert payment["payment_link"].startswith("https://pay.example.et/p/")
        time.sleep(1)
        assert receiver.received == []
        with running("worker", settings=production) as worker:
            assert receiver.wait_for(1)[0].event["data"]["object"]["id"] == payment["id"]
            worker.terminate()
            assert worker.wait(STOP_SECONDS_MAX) == 0
        merchant.close()
        serve.send_signal(signal.SIGINT)
        assert serve.wait(STOP_SECONDS_MAX) == 0


def is_ready(port: int) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    return False


def test_when_its_postgresql_dies_alone_it_stops_with_a_sentence(start: Start) -> None:
    gateway = start()
    (postmaster,) = [
        process
        for process in tree_of(gateway.process.pid)
        if process.pid != gateway.process.pid and is_postmaster(process)
    ]
    postmaster.kill()
    assert gateway.process.wait(timeout=STOP_SECONDS_MAX) == 1
    assert "PostgreSQL has ended by itself" in gateway.log.read_text()


def is_postmaster(process: psutil.Process) -> bool:
    return "-D" in process.cmdline()
