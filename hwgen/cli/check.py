"""``hwgen check``: what of a model can be built, operator by operator."""

from __future__ import annotations

import argparse

from hwgen.cli import options
from hwgen.cli.outputs import Outputs, json_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen check``."""
    options.model_options(parser)
    parser.add_argument("--board", metavar="B", help="hold the weights against its memory (see 'hwgen boards')")
    parser.add_argument("--json", metavar="FILE", help="write what is found there")


def run(arguments: argparse.Namespace) -> int:
    """Check, print, write; returns the exit status: 0 if all can be built, 1 if something is not supported."""
    from hwgen import api

    outputs = Outputs(arguments)
    found = api.check(arguments.model, arguments.calibration, arguments.bits, board=arguments.board)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(found.to_json()))
    outputs.write()
    print(found.table())
    return 0 if found.supported else 1
