"""The rails: the mobile-money networks over which charges are collected.

`rail_for` is the registry. A sandbox account has every wallet, simulated; a live account has those that are connected.
"""

from zembil.rails.rail import Rail, Wallet
from zembil.rails.sandbox import SandboxRail

_SANDBOX: dict[Wallet, Rail] = {wallet: SandboxRail(wallet) for wallet in Wallet}
_LIVE: dict[Wallet, Rail] = {}


def rail_for(wallet: Wallet, *, livemode: bool) -> Rail | None:
    """The rail of a wallet, or None if it is not connected."""
    return (_LIVE if livemode else _SANDBOX).get(wallet)


def wallets(*, livemode: bool) -> tuple[Wallet, ...]:
    """The wallets that a payer may choose from."""
    return tuple(_LIVE if livemode else _SANDBOX)
