"""Zembil: a self-hosted payment gateway for mobile money."""

__version__ = "0.1.0"
