"""`python -m zembil` is `zembil`."""

from zembil.cli import main

main()
