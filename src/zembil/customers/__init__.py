"""Customers: people whom a merchant remembers."""
