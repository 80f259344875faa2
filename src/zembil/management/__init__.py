"""What merchants manage: their keys and balance, and charges in doubt."""
