"""Structured logs: one event a line, JSON unless a person is looking. Secrets are never passed here."""

import itertools
import logging
import os
import sys
import time

import structlog
from structlog.typing import Processor


def configure_logs(*, people: bool) -> None:
    """Write to standard error; coloured lines for people, JSON otherwise."""
    renderer: Processor = structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


_process = os.urandom(4).hex()
_requests = itertools.count()


def begin_request() -> str:
    """A new request id, which from here on stands in every log line of the request's task.

    It begins with the milliseconds, so that the log of requests is in its order; then process and count.
    """
    request_id = f"req_{time.time_ns() // 1_000_000:012x}{_process}{next(_requests) & 0xFFFFFF:06x}"
    structlog.contextvars.bind_contextvars(request_id=request_id)
    return request_id


log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
