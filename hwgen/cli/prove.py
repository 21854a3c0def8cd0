"""Command ``hwgen prove``: prove the properties (obligations) of the Verilog in a folder that ``hwgen build`` wrote."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hwgen import work
from hwgen.cli.options import check_jobs, positive_integer, work_options
from hwgen.cli.outputs import Outputs, json_bytes
from hwgen.errors import InputError

if TYPE_CHECKING:
    from hwgen.prove.discharge import Proof

#: End of the names of files with the contents of memories, such as weights.
_CONTENTS = ".mem"
#: Longest time limit of a property, in seconds: a week.
MAX_SECONDS = 7 * 24 * 3600


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen prove`` to a parser."""
    parser.add_argument("folder", metavar="DIR", help="a folder that 'hwgen build' wrote")
    parser.add_argument(
        "--time-limit", type=_time_limit, default=600, metavar="S", help="seconds per property (default 600)"
    )
    parser.add_argument("--complete", action="store_true", help="fail if an instance has no functional property")
    parser.add_argument("--only", metavar="KIND[,KIND]", help="prove only these kinds of properties: stream,credits")
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    parser.add_argument(
        "--traces", metavar="DIR", help="folder for traces of refuted properties (default: DIR/refuted)"
    )
    work_options(parser, "number of proofs to run in parallel (default: one per core)")


def _time_limit(text: str) -> int:
    """Return a time limit in seconds, 1 to `MAX_SECONDS`, parsed from text, or raise ArgumentTypeError.

    Another text raises ArgumentTypeError.
    """
    if (seconds := positive_integer(text)) > MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_SECONDS:,} seconds, a week, not {text!r}")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen prove``, and return the exit status: 0 if all is proved, 1 if something is refuted or undecided.

    With ``--complete``, it is also 1 if an instance has no functional property.
    """
    from hwgen.prove import discharge, lists, table, tools

    check_jobs(arguments)
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise InputError(f"folder {folder} does not exist: give one that 'hwgen build' wrote")
    traces = Path(arguments.traces) if arguments.traces is not None else folder / "refuted"
    _check_json(arguments.json, traces)
    outputs = Outputs(arguments, folder)
    changed = _changed_files(folder)
    listed = lists.read_lists(folder)
    pairs, covered = lists.obligations_of(listed), lists.coverage_of(listed)
    kinds = sorted({obligation.kind for obligation, _ in pairs})
    if arguments.only is not None:
        chosen_kinds = arguments.only.split(",")
        if unknown := [kind for kind in chosen_kinds if kind not in kinds]:
            raise InputError(f"--only must list some of {', '.join(kinds)}, not {unknown[0]!r}")
        pairs = discharge.selected(pairs, chosen_kinds)
    if not pairs:
        raise InputError(f"folder {folder} has nothing to prove, its *.proofs.json are empty: build the design again")
    discharge.check_traces(traces)
    tools.require()

    def tell(proofs: Sequence[Proof], text: str = "") -> None:
        print(table.table(proofs))
        print(f"{table.summary(proofs)}{text}")
        for path in discharge.write_traces(proofs, traces):
            print(f"wrote {path}")
        if changed:
            print(f"changed since the build, and proved as they are now: {', '.join(changed)}")
        print(table.uncovered(covered))
        print(table.SOURCE)
        sys.stdout.flush()

    def ended(proofs: Sequence[Proof]) -> None:
        if not proofs:
            print(f"none of the {len(pairs)} obligations was decided", flush=True)
            return
        tell(proofs, f"; {len(pairs) - len(proofs)} of {len(pairs)} obligations were not tried")

    with work.pool(arguments.cluster, arguments.jobs, programs=True) as pool:
        proofs = discharge.discharge(pairs, seconds=arguments.time_limit, pool=pool, ended=ended)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(table.document(proofs, covered, changed)))
    outputs.write()
    tell(proofs)
    is_complete = not (arguments.complete and not all(instance.is_whole for instance in covered))
    return 0 if is_complete and all(proof.verdict.result == "proved" for proof in proofs) else 1


def _check_json(path: str | None, traces: Path) -> None:
    """Raise InputError if the results' file would be read as proof obligations, or is the folder of traces.

    Raises
    ------
    InputError
        If ``path`` is such a file.
    """
    from hwgen.obligations.obligation import SUFFIX

    if path is not None and path.endswith(SUFFIX):
        raise InputError(f"--json {path} would be read as obligations, as its name ends in {SUFFIX}: give another file")
    if path is not None and Path(path).absolute() == traces.absolute():
        raise InputError(f"--json {path} is the folder of --traces: give another file")


def _changed_files(folder: Path) -> list[str]:
    """Return a list of paths of files that were changed since the build: Verilog with obligations, and memory contents.

    The manifest of a result folder has the digest of each file.

    Raises
    ------
    InputError
        If a list of obligations of the build is missing, or was changed since. Also if a folder has lists and no
        manifest of hwgen, or if the manifest lacks a digest.
    """
    from hwgen.emit import manifest
    from hwgen.obligations.obligation import SUFFIX

    changed = []
    for result in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        files = manifest.read(result)
        lists = sorted(path.name for path in result.glob(f"*{SUFFIX}"))
        if lists and not files:
            raise InputError(
                f"folder {result} has no {manifest.NAME}, so {lists[0]} can't be checked against the build: build the "
                "design again"
            )
        listed = [name for name in lists if f"{name.removesuffix(SUFFIX)}.v" in files]
        if without := [*manifest.without_digest(result), *(name for name in listed if name not in files)]:
            raise InputError(f"{result / manifest.NAME} has no valid SHA-256 of {without[0]}: build the design again")
        for name in manifest.changed(result):
            path = result / name
            if name.endswith(SUFFIX):
                state = "was changed since the build" if path.exists() else "is missing"
                raise InputError(
                    f"{path} {state}: build the design again, and put your own properties into another file whose "
                    f"name ends in {SUFFIX}"
                )
            if name.endswith(_CONTENTS) or f"{name.removesuffix('.v')}{SUFFIX}" in files:
                changed.append(str(path))
    return changed
