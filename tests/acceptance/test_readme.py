"""What the README tells a newcomer to paste does what it says."""

import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx2

from tests.support.gateway import Gateway, Merchant

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_request_to_paste_creates_a_payment(gateway: Gateway, merchant: Merchant) -> None:
    answer = pasted(block('"amount": 150.00'), gateway, merchant)
    assert '"status":"success"' in answer
    assert '"payment_link"' in answer
    assert '"qr_code":"data:image/png;base64,' in answer


def test_the_receiver_to_paste_prints_a_genuine_event(gateway: Gateway, merchant: Merchant, tmp_path: Path) -> None:
    port = free_port()
    answer = pasted(block('"url": "http://127.0.0.1:4242/"').replace("4242", port), gateway, merchant)
    (secret,) = re.findall(r'"secret":"(whsec_[^"]+)"', answer)
    program = tmp_path / "receiver.py"
    program.write_text(block("class Receiver", "python").replace("whsec_…", secret).replace("4242", port))
    with subprocess.Popen(
        [sys.executable, "-u", str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as receiver:
        assert receiver.stdout is not None
        wait_until_it_listens(int(port))
        pasted(block('"amount": 150.00'), gateway, merchant)
        told = receiver.stdout.readline().decode()
        unsigned = httpx2.post(f"http://127.0.0.1:{port}/", content=b"{}")
        receiver.kill()
    assert '"type":"payment.created"' in told
    assert unsigned.status_code == 400


def block(containing: str, language: str = "") -> str:
    """The one code block of the README that contains these words."""
    blocks = [text for name, text in re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL) if name == language]
    (found,) = [text for text in blocks if containing in text]
    return found


def pasted(command: str, gateway: Gateway, merchant: Merchant) -> str:
    done = subprocess.run(
        ["bash", "-euc", command.replace("http://127.0.0.1:8420", gateway.origin)],
        env={"KEY": merchant.sandbox["admin_key"], "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.02)
    raise AssertionError("the receiver does not listen")
