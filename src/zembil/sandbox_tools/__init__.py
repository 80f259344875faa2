"""The sandbox's own calls: what a merchant's tests need and a live account must not have."""
