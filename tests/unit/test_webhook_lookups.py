"""Names are looked up so that silent name servers keep nobody else waiting."""

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from zembil.webhooks.sender import Resolver

Found = list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]


async def test_a_look_up_waits_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> Found:
        if host.startswith("silent"):
            answered.wait(10)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    resolver = Resolver()
    silent = [asyncio.create_task(resolver.resolve(f"silent{number}.example", 443)) for number in range(100)]
    began = time.monotonic()
    found = await resolver.resolve("shop.example", 443)
    assert time.monotonic() - began < 2
    assert [(address["host"], address["port"]) for address in found] == [("192.0.2.7", 443)]
    silent[0].cancel()  # an attempt that waited long enough
    answered.set()
    assert all(await asyncio.gather(*silent[1:]))


async def test_a_name_that_is_not_found_is_an_error_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> Found:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match="unknown"):
        await Resolver().resolve("nowhere.example", 443)
