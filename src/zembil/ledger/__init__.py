"""The books: accounts, entries and balances, posted with the fact they record."""
