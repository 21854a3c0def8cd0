"""Runs the tests that depend on a change, default and long ones, nearest first, within a given time.

A change is what differs from a commit, definition by definition, or all of the given files. A test depends on it if its
imports lead there (`dependencies`). Nearest are the tests of the file that has changed itself, then tests that build a
changed module of the gateware (as seen when they last ran, rtl_tests/ledger/built.txt), then tests from which fewer
steps lead there. Long tests that pass are noted in the ledger.

Usage: python bench/touched.py [FILE ...] [--since COMMIT] [--list] [--minutes M] [--jobs N]

Exit status 0 if nothing failed, 1 if something did, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from dependencies import PROJECT, SETTINGS, Graph, Module, settings_of
from ledger import function_of, read_built
from long import LIMIT, Checkout, failed, gather, read_collected, run, table
from recording import EVENTS

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 10.0
#: Rank of a test whose own file changed, of one that builds a changed module, and of any other one (and its distance).
OWN, BUILDS, IMPORTS = 0, 1, 10


def git(root: Path, *words: str) -> str:
    """Return what git prints."""
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def changed_files(root: Path, since: str) -> list[str]:
    """Return the files that differ from a commit, and those that git does not know."""
    git(root, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}")
    different = git(root, "diff", "--name-only", "--no-renames", "-z", since, "--")
    return sorted(
        {*different.split("\0"), *git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")} - {""}
    )


def changed_nodes(graph: Graph, path: str, before: str | None = None) -> set[str]:
    """Return the nodes of a file that differ from its text before the change; all of them without that text."""
    nodes = {path} if path in graph.files else set()
    if path == PROJECT and (before is None or settings_of(before) != settings_of(graph.files[path].read_text())):
        nodes.add(SETTINGS)
    module = graph.module_at(path)
    if module is None:
        return nodes
    texts = graph.texts(module)
    old = graph.texts(Module.read(module.name, path, before)) if before is not None else {"": ""}
    names = [name for name, text in texts.items() if text != old.get(name)]
    if set(old) - set(texts):
        names.append("*")  # what is no more may have been used by any name
    return nodes | {f"{module.name}:{name}" for name in names}


def ranks(graph: Graph, changed: Iterable[str], paths: Iterable[str], built: dict[str, set[str]]) -> dict[str, int]:
    """Return the rank of each test function that depends on ``changed``: the smaller, the nearer.

    Parameters
    ----------
    graph : Graph
        The sources.
    changed : iterable of str
        Nodes that have changed.
    paths : iterable of str
        Files that have changed.
    built : dict of set
        Modules of the gateware, without their common package, that the tests of each file build.
    """
    distances = graph.distances(changed)
    gateware = "hwgen/gateware/"
    modules = {path.removeprefix(gateware).removesuffix(".py").replace("/", ".") for path in paths if gateware in path}
    found = {}
    for path, names in graph.tests.items():
        for name in names:
            near = [distances[root] for root in graph.roots(path, name) if root in distances]
            if near and path in set(paths):
                found[f"{path}::{name}"] = OWN
            elif near:
                is_built = bool(modules & built.get(path, set()))
                found[f"{path}::{name}"] = (BUILDS if is_built else IMPORTS) + min(near)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="changed files (default: those that differ)")
    parser.add_argument("--since", metavar="COMMIT", default="HEAD", help="what differs from it (default: HEAD)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"limit of the run (default {MINUTES:g})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="tests at once")
    parser.add_argument("--list", action="store_true", help="list the tests, and run nothing")
    arguments = parser.parse_args()
    checkout = Checkout(ROOT)
    nodes, paths = change(checkout.graph, arguments)
    order = ranks(checkout.graph, nodes, paths, read_built(ROOT))
    print(f"{len(paths)} changed files; {len(order):,} test functions depend on them", flush=True)
    for name in sorted(order, key=lambda name: (order[name], name)) if arguments.list else ():
        print(f"{order[name]:4} {name}")
    return 0 if arguments.list or not order else run_touched(checkout, order, arguments)


def change(graph: Graph, arguments: argparse.Namespace) -> tuple[set[str], list[str]]:
    """Return the nodes and the files that have changed."""
    if arguments.files:
        paths = [Path(name).resolve().relative_to(ROOT).as_posix() for name in arguments.files]
        if missing := [path for path in paths if path not in graph.files]:
            raise SystemExit(f"{missing[0]}: not a file of the checkout that tests depend on")
        return {node for path in paths for node in changed_nodes(graph, path)}, paths
    paths = changed_files(ROOT, arguments.since)
    known = set(git(ROOT, "ls-tree", "-r", "--name-only", "-z", arguments.since).split("\0"))
    nodes = set()
    for path in paths:
        is_compared = path in known and path in graph.files and (path.endswith(".py") or path == PROJECT)
        nodes |= changed_nodes(graph, path, None if not is_compared else git(ROOT, "show", f"{arguments.since}:{path}"))
    return nodes, paths


def run_touched(checkout: Checkout, order: dict[str, int], arguments: argparse.Namespace) -> int:
    """Run the tests in their order, and note the long ones that pass."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / EVENTS).touch()
        checkout.choose(folder, order, fresh=[], ranked_only=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        files = sorted({name.partition("::")[0] for name in order})
        status = run(files, arguments.jobs, arguments.minutes * 60, folder, marks="")
        tests = gather((folder / EVENTS).read_text(encoding="utf-8"))
        collected = [name for name in read_collected(folder) if function_of(name) in order]
        checkout.note(folder, tests, read_collected(folder, long_only=True), is_whole=False)
    print(table(tests, time.monotonic() - begin))
    done = {test.name for test in tests if test.outcome != "unfinished"}
    print(f"{len(set(collected) - done):,} of {len(collected):,} tests did not run")
    return failed(tests) if status == LIMIT else status


if __name__ == "__main__":
    sys.exit(main())
