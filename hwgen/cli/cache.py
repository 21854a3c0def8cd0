"""Command ``hwgen cache``: list or clear the cache of compiled simulators, Verilog and plans."""

from __future__ import annotations

import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen cache`` to a parser."""
    parser.add_argument("--clear", action="store_true", help="remove all entries")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen cache``, which lists or clears the cache, and return the exit status.

    The folder, the number of entries and their sizes in MB are printed. With ``--clear`` all entries are removed.
    """
    from hwgen import cache

    if arguments.clear:
        try:
            freed = cache.clear()
        except OSError as error:
            raise cache.write_error(error) from error
        print(f"{cache.folder()}: cleared, {freed / 1e6:,.1f} MB")
        return 0
    entries, limit = cache.entries(), cache.limit() / 1e6
    print(f"{cache.folder()}: {sum(entry.size for entry in entries) / 1e6:,.1f} MB of at most {limit:,.0f}")
    for kind in cache.KINDS:
        sizes = [entry.size for entry in entries if entry.kind == kind]
        print(f"  {kind:<11}{len(sizes):>6,}{sum(sizes) / 1e6:>12,.1f} MB")
    return 0
