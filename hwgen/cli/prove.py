"""Command ``hwgen prove``: prove the obligations of a folder that ``hwgen build`` wrote."""

from __future__ import annotations

import argparse
from pathlib import Path

from hwgen import work
from hwgen.cli.options import check_jobs, positive, work_options
from hwgen.cli.outputs import Outputs, json_bytes
from hwgen.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen prove`` to a parser."""
    parser.add_argument("folder", metavar="DIR", help="a folder that 'hwgen build' wrote")
    parser.add_argument(
        "--time-limit", type=positive, default=300, metavar="S", help="seconds for one property (default: 300)"
    )
    parser.add_argument("--only", metavar="KIND[,KIND]", help="only these kinds of properties, such as stream,credits")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument(
        "--traces", metavar="DIR", help="folder for the traces of refuted properties (default: DIR/refuted)"
    )
    work_options(parser, "proofs that run at the same time (default: one per core)")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen prove``, and return the exit status: 0 if all is proved, 1 if something is refuted or undecided."""
    from hwgen.prove import discharge, table, tools

    check_jobs(arguments)
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise InputError(f"folder {folder} is not there: give one that 'hwgen build' wrote")
    outputs = Outputs(arguments)
    pairs = discharge.obligations_of(folder)
    kinds = sorted({obligation.kind for obligation, _ in pairs})
    if arguments.only is not None:
        asked = arguments.only.split(",")
        if unknown := [kind for kind in asked if kind not in kinds]:
            raise InputError(f"--only must be of {', '.join(kinds)}, not {unknown[0]!r}")
        pairs = [pair for pair in pairs if pair[0].kind in asked]
    if not pairs:
        raise InputError(f"folder {folder} has no obligation to prove: its *.proofs.json are empty")
    traces = Path(arguments.traces) if arguments.traces is not None else folder / "refuted"
    discharge.check_traces(traces)
    tools.require()
    with work.pool(arguments.cluster, arguments.jobs, programs=True) as pool:
        proofs = discharge.discharge(pairs, seconds=arguments.time_limit, pool=pool)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(table.document(proofs)))
    outputs.write()
    print(table.table(proofs))
    print(table.summary(proofs))
    for path in discharge.write_traces(proofs, traces):
        print(f"wrote {path}")
    return 0 if all(proof.verdict.result == "proved" for proof in proofs) else 1
