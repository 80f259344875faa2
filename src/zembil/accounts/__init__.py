"""Merchants, their sandbox and live accounts, API keys and what each role may do."""
