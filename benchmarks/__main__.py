"""Runs the benchmarks: `python -m benchmarks [name …] [--short] [--json]`."""

import argparse
import importlib
import json
import os
import platform
import sys
from typing import cast

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Benchmark, Figure

_LOOK_SECONDS = 2
NAMES = (
    "create_payments",
    "rate_limits",
    "list_payments",
    "start",
    "first_attempt",
    "deliveries",
    "payment_page",
    "dashboard",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures Zembil's speeds as ratios.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(NAMES)}; all by default")
    parser.add_argument("--short", action="store_true", help="a quick look: fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    asked = parser.parse_args()
    names: list[str] = asked.names or list(NAMES)
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    on = machine()
    progress, out = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    measured: dict[str, list[Figure]] = {}
    for name in names:
        measure = cast(Benchmark, importlib.import_module(f"benchmarks.{name}").measure)
        measured[name] = measure(short=asked.short, say=progress.print)
        if not asked.json:
            out.print(_table(name, measured[name]))
    if asked.json:
        document = {"machine": on, "short": asked.short, "figures": msgspec.to_builtins(measured)}
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        out.print(on)


def machine() -> str:
    """What the figures are measured on, and how busy others keep it; absolute numbers mean nothing without it."""
    busy = psutil.cpu_percent(interval=_LOOK_SECONDS)
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, {memory:.0f} GiB, "
        f"Python {platform.python_version()}, {busy:.0f} % busy before we began"
    )


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table("figure", title=name, title_justify="left")
    for column in ("value", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for figure in figures:
        colour = "" if not figure.target else "[green]" if figure.meets_its_target else "[red]"
        table.add_row(figure.name, f"{colour}{_shown(figure.value)} {figure.unit}".rstrip(), figure.target, figure.note)
    return table


def _shown(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


if __name__ == "__main__":
    main()
