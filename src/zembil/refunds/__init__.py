"""Refunds: asked for, approved by another person, sent once, never more than was paid."""
