"""The dashboard: pages on which a merchant's people look after payments, keys, webhooks and each other."""
