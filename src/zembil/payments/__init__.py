"""Payments and charges: created, charged over a rail, ended once."""
