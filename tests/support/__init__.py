"""What the tests share: a running Zembil, merchants, receivers."""
