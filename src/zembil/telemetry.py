"""Structured logs: one event a line, JSON unless a person is looking. Secrets are never passed here."""

import itertools
import logging
import os
import re
import sys
import time

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# It begins with its first digit, for which the engine looks quickly, and only then looks back.
_LIKE_A_CARD_NUMBER = re.compile(r"[0-9](?<![\w+][0-9])(?:[ -]?[0-9]){12,18}(?!\w)", re.ASCII)
# What opens something to whoever has it: API keys, and the links of payments, receipts, people and inboxes.
_OPENS_SOMETHING = re.compile(r"(sk_(?:test|live)_|/(?:p|r|inbox|dashboard/link)/)[\w-]{20,}", re.ASCII)


def masked(text: str) -> str:
    """The text with what looks like a card number cut to its last four digits (decisions, section 6)."""
    return _LIKE_A_CARD_NUMBER.sub(lambda found: _cut(found[0]), text)


def _cut(text: str) -> str:
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    if (sum(digits[-1::-2]) + sum(doubled)) % 10:
        return text  # every card number passes this check of its last digit
    return re.sub(r"[0-9](?=(?:[ -]?[0-9]){4})", "*", text)


def _mask(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {name: _safe(value) if isinstance(value, str) else value for name, value in event.items()}


def _safe(text: str) -> str:
    return masked(_OPENS_SOMETHING.sub(r"\1…", text))


def configure_logs(*, people: bool) -> None:
    """Write to standard error; coloured lines for people, JSON otherwise."""
    renderer: Processor = structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _mask,
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
