"""The figures of README.md, each measured side by side with its limit: `make bench` or `python -m benchmarks`."""
