"""Command ``hwgen explore``: compute the Pareto fronts of all groupings and unrollings of a network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.cli import options
from hwgen.cli.outputs import Outputs, json_bytes
from hwgen.errors import InputError

if TYPE_CHECKING:
    from hwgen.network.graph import Network


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen explore`` to a parser."""
    unused = "not used: exploration needs only shapes, so a float model is accepted as it is"
    options.model_options(parser, "calibration", "bits", calibration=unused, bits="not used")
    parser.add_argument("--board", metavar="B", help="mark what fits this board (see 'hwgen boards')")
    parser.add_argument("--first", type=options.positive_integer, metavar="N", help="explore only the first N layers")
    parser.add_argument("--json", metavar="FILE", help="write the fronts to this file")
    options.report_option(parser)
    parser.add_argument("--plan", metavar="plan.json", help="with --report: mark this plan, which has the same layers")
    parser.add_argument("--plot", metavar="FILE", help="plot of the fronts: .svg or .png (needs the extra 'plot')")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen explore``, which computes the Pareto fronts of a network, and return the exit status.

    The fronts are printed, and written as JSON, as a picture and as a page where the options name files.
    """
    from hwgen.boards import load as load_board
    from hwgen.explore import published
    from hwgen.explore.fronts import explore
    from hwgen.network import shapes
    from hwgen.report import fronts
    from hwgen.report.page import exploration as page
    from hwgen.report.page import html
    from hwgen.report.picture import picture_format

    outputs = Outputs(arguments)
    if arguments.calibration is not None or arguments.bits is not None:
        print("--calibration and --bits are not used: exploration needs only shapes")
    plot_format = picture_format(arguments.plot)
    board = None if arguments.board is None else load_board(arguments.board)
    network = shapes.graph(arguments.model)
    if arguments.first is not None:
        network = network.first(arguments.first)
    groups, points = published.depth_groups(network), published.points(network)
    plan = chosen_plan(arguments, network)
    result = explore(network, board, depth_groups=groups, published=points)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(result.to_json(), indent=1))
    if plot_format is not None:
        outputs.add(arguments.plot, fronts.plot(result, plot_format))
    if arguments.report is not None:
        sections: dict[str, Any] = {"fronts": page.document(result, plan)}
        if plan is not None:  # into the page of that plan, if it is there
            sections = html.merged({**sections, "plan": plan["digest"]}, arguments.report)
        title = f"{network.name}: Pareto fronts"
        outputs.add(arguments.report, html.render({"title": title, **sections}))
    outputs.write()
    print(fronts.table(result))
    return 0


def chosen_plan(arguments: argparse.Namespace, network: Network) -> dict[str, Any] | None:
    """Return a dict with name, coordinates in the fronts and digest of the plan of ``--plan``; ``None`` if not given.

    Raises
    ------
    InputError
        If the plan can't be read or is of other layers, or ``--report`` is missing.
    """
    from hwgen.report.page import exploration as page
    from hwgen.report.page import html

    if arguments.plan is None:
        return None
    if arguments.report is None:
        raise InputError("--plan is marked in the page of --report: give --report as well")
    try:
        text = Path(arguments.plan).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(f"plan {arguments.plan} can't be read: {reason}") from error
    return {**page.chosen(text, arguments.plan, network), "digest": html.digest(text)}
