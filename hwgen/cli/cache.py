"""``hwgen cache``: what is kept so that it is not made twice, and clearing it."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen cache``."""
    parser.add_argument("--clear", action="store_true", help="take all of it away")


def run(arguments: argparse.Namespace) -> int:
    """Say what is kept and where, or clear it; returns the exit status."""
    from hwgen import cache

    if arguments.clear:
        try:
            freed = cache.clear()
        except OSError as error:
            raise cache.refused(error) from error
        print(f"{cache.folder()}: cleared, {freed / 1e6:,.1f} MB")
        return 0
    entries, limit = cache.entries(), cache.limit() / 1e6
    print(f"{cache.folder()}: {sum(entry.size for entry in entries) / 1e6:,.1f} MB of at most {limit:,.0f}")
    for kind in cache.KINDS:
        sizes = [entry.size for entry in entries if entry.kind == kind]
        print(f"  {kind:<11}{len(sizes):>6,}{sum(sizes) / 1e6:>12,.1f} MB")
    return 0
