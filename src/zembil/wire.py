"""How things are written for merchants: JSON in UTF-8, amounts as exact decimals, no key without a value."""

from collections.abc import Mapping

import msgspec

encoded = msgspec.json.Encoder(decimal_format="number").encode


def in_kept_order(metadata: Mapping[str, str]) -> dict[str, str]:
    """The keys in the order in which PostgreSQL keeps them, so that what was given and what is read look the same."""
    return dict(sorted(metadata.items(), key=lambda field: (len(name := field[0].encode()), name)))


def read_back(kept: str) -> msgspec.Raw:
    """A JSON document of the database as we write it: without the spaces that PostgreSQL puts in."""
    return msgspec.Raw(msgspec.json.format(kept.encode(), indent=-1))
