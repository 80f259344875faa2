"""How things are written for merchants: JSON in UTF-8, amounts as exact decimals, no key without a value."""

import msgspec

encoded = msgspec.json.Encoder(decimal_format="number").encode
