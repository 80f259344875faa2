"""The payment page: what a payer sees behind a payment link."""
