"""Command ``hwgen synth``: measure a planned circuit's resources with Yosys, and compare them with the estimate."""

from __future__ import annotations

import argparse

from hwgen import work
from hwgen.cli.options import check_jobs, plan_options, report_option, work_options
from hwgen.cli.outputs import Outputs, add_page, json_bytes
from hwgen.cli.plan import board_of, load, steered


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen synth`` to a parser."""
    plan_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file")
    report_option(parser)
    work_options(parser, "number of parallel runs of Yosys (default: one per core and 4 GiB of memory)")
    parser.add_argument("--paths", action="store_true", help="also state worst logic delays (cells, without wires)")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen synth``, which prints and writes each component's resources, and return the exit status."""
    from hwgen.tools import synthesis

    check_jobs(arguments)
    outputs = Outputs(arguments)
    board = board_of(arguments)
    synthesis.require(board.family, with_paths=arguments.paths)  # before planning, which can take long
    design = steered(load(arguments), board, arguments)
    print(design.table(), flush=True)
    circuits = design.plan.circuits()
    with work.pool(arguments.cluster, arguments.jobs or synthesis.max_runs()) as pool:
        parts = [
            synthesis.synthesise(circuit, device=board.family, with_paths=arguments.paths, pool=pool)
            for circuit in circuits
        ]
    result = synthesis.Synthesis(tuple(row for part in parts for row in part.rows), with_paths=arguments.paths)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(result.to_json()))
    if arguments.report is not None:
        add_page(outputs, arguments.report, {**design.document(), "synthesis": result.document()})
    outputs.write()
    print()
    print(result.table())
    if arguments.paths:
        print()
        print(result.path_table())
    return 0
