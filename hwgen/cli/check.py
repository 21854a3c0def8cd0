"""Command ``hwgen check``: report whether each operator of a model can be built in hardware."""

from __future__ import annotations

import argparse

from hwgen.cli import options
from hwgen.cli.outputs import Outputs, json_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen check`` to a parser."""
    options.model_options(parser)
    parser.add_argument("--board", metavar="B", help="compare the weights with this board's memory: see 'hwgen boards'")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen check`` and return the exit status: 0 if all operators can be built, 1 if one is not supported."""
    from hwgen import api

    outputs = Outputs(arguments)
    report = api.check(arguments.model, board=arguments.board, **options.model_given(arguments))
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(report.to_json()))
    outputs.write()
    print(report.table())
    return 0 if report.supported else 1
