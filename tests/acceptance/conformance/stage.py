"""The stage of the conformance tables: a merchant with one of everything, made when a row first names it."""

import json
import re
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from tests.acceptance.conformance.rows import GET, POST, Asks, data_of
from tests.support.gateway import Gateway
from tests.support.receiver import Received, Receiver
from tests.support.wire import RawAnswer, exchange, request

PAYS = "+251900000000"
ANYBODY = "+251911223344"  # waits for the person
EVERYTHING: dict[str, Any] = {
    "amount": 1500.00,
    "currency": "ETB",
    "customer": {"email": "abebe@example.com", "phone": ANYBODY, "name": "Abebe"},
    "description": "Two bags of coffee",
    "callback_url": "https://shop.example.et/thanks",
    "payment_method": "mobile_money",
    "metadata": {"order": "7"},
}
LEAST: dict[str, Any] = {"amount": 100, "currency": "ETB"}
_NOTHING = "0" * 26


class Stage:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.merchant = gateway.new_merchant()
        self._others: list[Stage] = []
        self._held: set[Callable[[Stage], None]] = set()

    def anew(self) -> "Stage":
        """The same with a merchant who has nothing yet."""
        self._others.append(Stage(self.gateway))
        return self._others[-1]

    def close(self) -> None:
        for other in self._others:
            other.close()
        self.merchant.close()
        if "receiver" in self.__dict__:
            self.receiver.close()

    def once(self, steps: "Callable[[Stage], None]") -> None:
        """Take these steps. A page may promise one thing in several places; it is tried once."""
        if steps not in self._held:
            steps(self)
            self._held.add(steps)

    # Asking

    @property
    def origin(self) -> str:
        return self.gateway.origin

    def key(self, role: str, *, live: bool = False) -> str:
        keys = self.merchant.live if live else self.merchant.sandbox
        return keys.get(f"{role}_key", role)

    def answer(self, asks: Asks) -> RawAnswer:
        body = asks.body
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(self._filled(body)).encode()
        sent = request(
            asks.method,
            ("/v1" if asks.live else "/sandbox/v1") + self._filled(asks.path),
            key=None if asks.by is None else self.key(asks.by, live=asks.live),
            headers=asks.headers,
            body=body or b"",
        )
        return exchange(self.origin, sent)

    def data(self, asks: Asks) -> Any:
        """What a request that has to succeed is answered."""
        answer = self.answer(asks)
        assert answer.status in (200, 201), answer.body
        return data_of(answer)

    def _filled(self, part: Any) -> Any:
        if isinstance(part, str):
            return re.sub(r"\{([a-z_]+)\}", lambda found: self._id(found[1]), part)
        if isinstance(part, dict):
            return {name: self._filled(value) for name, value in part.items()}  # pyright: ignore[reportUnknownVariableType]
        return part

    def _id(self, name: str) -> str:
        if name.startswith("no_"):
            return f"{name.removeprefix('no_')}_{_NOTHING}"
        return getattr(self, name)["id"]

    def until(self, holds: Callable[[], Any], *, seconds: float = 20) -> Any:
        """The first answer that holds."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < deadline, holds
            time.sleep(0.05)
        return found

    def found(self, thing: dict[str, Any]) -> dict[str, Any]:
        """A thing as its GET answers it now."""
        kinds = {"pay": "payments", "ref": "refunds", "cus": "customers", "whk": "webhooks", "dlv": "deliveries"}
        return self.data(GET(f"/{kinds[thing['id'][:3]]}/{thing['id']}"))

    def is_now(self, thing: dict[str, Any], *statuses: str, seconds: float = 20) -> dict[str, Any]:
        """The thing once it has one of these statuses."""
        return self.until(lambda: (now := self.found(thing))["status"] in statuses and now, seconds=seconds)

    def advance(self, seconds: int) -> None:
        self.data(POST("/test/clock", {"advance_seconds": seconds}))

    # Payments

    @cached_property
    def created(self) -> Any:
        """The answer to a POST of every field of the contract."""
        return self.data(POST("/payments", EVERYTHING))

    @cached_property
    def payment(self) -> Any:
        return self.found(self.created)

    @cached_property
    def bare(self) -> Any:
        """A payment of which only the required was said."""
        return self.found(self.data(POST("/payments", LEAST)))

    @cached_property
    def completed(self) -> Any:
        return self._decided("complete")

    @cached_property
    def failed(self) -> Any:
        return self._decided("fail")

    @cached_property
    def cancelled(self) -> Any:
        return self._decided("cancel")

    def _decided(self, what: str) -> Any:
        made = self.data(POST("/payments", EVERYTHING))
        self.data(POST(f"/test/payments/{made['id']}/{what}", {}))
        return self.found(made)

    @cached_property
    def payments(self) -> Any:
        """The list, with one payment of each status in it."""
        assert self.payment["status"] + self.completed["status"] + self.failed["status"] + self.cancelled["status"]
        return self.data(GET("/payments?limit=100"))

    @cached_property
    def charged(self) -> Any:
        """The answer to a charge of a phone that waits for the person."""
        made = self.data(POST("/payments", LEAST))
        return self.data(POST(f"/payments/{made['id']}/charge", {"phone": ANYBODY, "mobile_money_provider": "mpesa"}))

    # Refunds

    def paid(self, amount: float = 100, phone: str = PAYS) -> Any:
        """Another payment that was paid by this number."""
        made = self.data(POST("/payments", LEAST | {"amount": amount, "customer": {"phone": phone}}))
        return self.data(POST(f"/test/payments/{made['id']}/complete", {}))

    def refund_of(self, payment: Any, **fields: Any) -> Any:
        return self.data(POST("/refunds", {"payment_id": payment["id"], **fields}, by="developer"))

    @cached_property
    def refund(self) -> Any:
        """The answer to a POST of every field of the contract."""
        return self.refund_of(self.paid(), amount=30, reason="One bag came back", metadata={"order": "7"})

    @cached_property
    def bare_refund(self) -> Any:
        return self.refund_of(self.paid(), amount=1)

    @cached_property
    def refunded(self) -> Any:
        """A refund that is over."""
        asked = self.refund_of(self.paid(), amount=30)
        self.data(POST(f"/refunds/{asked['id']}/approve", {}))
        return self.is_now(asked, "completed")

    @cached_property
    def rejected(self) -> Any:
        asked = self.refund_of(self.paid(), amount=30)
        return self.data(POST(f"/refunds/{asked['id']}/reject", {"reason": "The bag was empty"}))

    # Customers, keys

    @cached_property
    def customer(self) -> Any:
        """The answer to a POST of every field of the contract."""
        body = {"email": "abebe@example.com", "phone": ANYBODY, "name": "Abebe", "metadata": {"till": "2"}}
        return self.data(POST("/customers", body))

    @cached_property
    def bare_customer(self) -> Any:
        return self.data(POST("/customers", {"phone": ANYBODY}))

    @cached_property
    def api_key(self) -> Any:
        return self.data(POST("/keys", {"name": "Till", "role": "read_only"}))

    # Webhooks

    @cached_property
    def receiver(self) -> Receiver:
        return Receiver()

    @cached_property
    def webhook(self) -> Any:
        """The answer to the registration of a receiver for every event."""
        return self.listening(self.receiver.url, "*", description="The till")

    def listening(self, url: str, *events: str, **fields: Any) -> Any:
        return self.data(POST("/webhooks", {"url": url, "events": list(events), **fields}))

    def received(self, event: dict[str, Any]) -> Received:
        """What the receiver got of an event."""

        def arrived() -> list[Received]:
            return [one for one in list(self.receiver.received) if one.headers["webhook-id"] == event["id"]]

        return self.until(arrived)[0]

    def told_of(self, event_type: str) -> Received:
        """An event of this type, as it arrived at the receiver."""
        assert self.webhook["status"] == "enabled"
        return self.received(self.data(POST("/test/events", {"type": event_type})))

    @cached_property
    def told(self) -> Received:
        return self.told_of("payment.completed")

    @cached_property
    def event(self) -> Any:
        """The payload of a payment that was completed."""
        return self.told.event

    @cached_property
    def update(self) -> Any:
        return self.told_of("customer.updated").event

    @cached_property
    def headers(self) -> dict[str, str]:
        return self.told.headers

    @cached_property
    def delivery(self) -> Any:
        """A delivery that has arrived."""
        event_id = self.event["id"]

        def ended() -> Any:
            listed = self.data(GET("/webhooks/{webhook}/deliveries?status=succeeded&limit=100"))["deliveries"]
            return next((one for one in listed if one["event_id"] == event_id), None)

        return self.found(self.until(ended))
