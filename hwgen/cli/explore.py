"""``hwgen explore``: the whole trade-off of a network, on the terminal, as JSON and as a picture."""

from __future__ import annotations

import argparse

from hwgen.cli import options
from hwgen.cli.outputs import Outputs, json_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen explore``."""
    unused = "not used: exploring needs shapes only, so a float model will do"
    options.model_options(parser, unused, "not used")
    parser.add_argument("--board", metavar="B", help="mark what fits this board (see 'hwgen boards')")
    parser.add_argument("--first", type=options.positive, metavar="N", help="the first N layers only")
    parser.add_argument("--json", metavar="FILE", help="write the fronts there")
    parser.add_argument("--plot", metavar="FILE", help="draw the fronts there: .svg or .png (needs the extra 'plot')")


def run(arguments: argparse.Namespace) -> int:
    """Explore, print, write; returns the exit status."""
    from hwgen.boards import load as load_board
    from hwgen.explore import published
    from hwgen.explore.fronts import explore
    from hwgen.network import shapes
    from hwgen.report import fronts
    from hwgen.report.picture import kind_of

    outputs = Outputs(arguments)
    if arguments.calibration is not None or arguments.bits is not None:
        print("--calibration and --bits are not used: exploring needs shapes only")
    kind = kind_of(arguments.plot)
    board = None if arguments.board is None else load_board(arguments.board)
    network = shapes.graph(arguments.model)
    if arguments.first is not None:
        network = network.first(arguments.first)
    groups, points = published.depth_groups(network), published.points(network)
    result = explore(network, board, depth_groups=groups, published=points)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(result.to_json(), indent=1))
    if kind is not None:
        outputs.add(arguments.plot, fronts.plot(result, kind))
    outputs.write()
    print(fronts.table(result))
    return 0
