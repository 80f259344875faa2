"""Orders as a shop sends them: the bodies that every benchmark posts."""

import json

CUSTOMERS = range(10_000_000, 10_001_000)


def body(customer: int) -> str:
    return json.dumps(
        {
            "amount": 1500.00,
            "currency": "ETB",
            "customer": {
                "email": f"customer{customer}@example.com",
                "phone": f"+2519{customer}",
                "name": "Abebe Kebede",
            },
            "description": "Two bags of coffee from Yirgacheffe, 1 kg",
            "callback_url": "https://shop.example.et/thanks?order=2026-000714",
            "metadata": {"order": "2026-000714", "branch": "Merkato", "cashier": "14"},
        },
    )


def bodies() -> list[str]:
    """One order of each customer."""
    return [body(customer) for customer in CUSTOMERS]
