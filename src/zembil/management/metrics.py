"""What a monitoring system reads: how the deployment stands as a whole, in the text format of Prometheus.

All of it is read from the database when it is asked for. So it is the same from every process, none has to add up what
others counted, and a process that died takes no number with it.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zembil.db.pool import Connection
from zembil.management import queries
from zembil.management.queries import Measured
from zembil.webhooks.sender import IN_FLIGHT_PER_ENDPOINT_MAX

CONTENT_TYPE = CONTENT_TYPE_LATEST

# By name: what it is, and what tells its values apart beside the environment.
_GAUGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "zembil_payments": ("Payments by status.", ("status",)),
    "zembil_charges_open": ("Charges that may still bring money, by state.", ("state",)),
    "zembil_refunds_open": ("Refunds that are not over, by state.", ("state",)),
    "zembil_deliveries_waiting": ("Deliveries that are to be attempted, now or later, or in flight.", ()),
    "zembil_deliveries_oldest_due_seconds": (
        "How long the delivery that is due longest has been due, of endpoints with room for it.",
        (),
    ),
    "zembil_endpoints_failing": ("Enabled webhook endpoints whose last delivery failed for good.", ()),
}


async def exposition(conn: Connection) -> bytes:
    """Every gauge in the text format; those without a value have only their description."""
    registry = CollectorRegistry()
    registry.register(_Measurements(await queries.measure(conn, per_endpoint=IN_FLIGHT_PER_ENDPOINT_MAX)))
    return generate_latest(registry)


class _Measurements(Collector):
    """What was measured once, as the library wants to be told it."""

    def __init__(self, measured: Sequence[Measured]) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        for name, (description, labels) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, description, labels=("environment", *labels))
            for found in self._measured:
                if found.name == name:
                    environment = "live" if found.livemode else "sandbox"
                    gauge.add_metric([environment, *([found.label] if labels else [])], found.value)
            yield gauge
