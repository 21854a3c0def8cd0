"""Command ``hwgen compare``: compare ONNX Runtime, the golden model and the hardware, layer by layer."""

from __future__ import annotations

import argparse
import sys

from hwgen.cli import options
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs, json_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen compare`` to a parser."""
    options.plan_options(parser)
    options.frame_options(parser)
    parser.add_argument("--labels", metavar="L.npy", help="the true class of each frame, to report the accuracy")
    parser.add_argument("--json", metavar="FILE", help="write the result to this file")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen compare`` and return the exit status: 1 if the hardware differs from the golden model, else 0."""
    from hwgen import api
    from hwgen.network import floats
    from hwgen.report import compare as report

    outputs = Outputs(arguments)
    frames = None if arguments.input is None else api.read_inputs(arguments.input)
    labels = None if arguments.labels is None else api.read_array(arguments.labels, "labels")
    board = common.board_of(arguments)
    model = common.load(arguments)
    options.check_frames(arguments, model, frames)
    if frames is None:
        frames = model.random_frames(arguments.random)
    options.frame_count(model, frames, labels)  # refuses unfit frames before planning, which can take long
    runtime = model.runtime(arguments.model, **options.model_given(arguments))
    design = common.steered(model, board, arguments)
    comparison = design.compare(frames, runtime, labels=labels)
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(comparison.to_json()))
    outputs.write()
    print(report.table(comparison))
    print(report.verdict(comparison))
    if in_floats := floats.summary_line(model.network.in_floats, model.network.layers):
        print(in_floats)
    if not comparison.as_runtime:
        print("hwgen: warning: the golden model differs from ONNX Runtime", file=sys.stderr)
    if not comparison.ok:
        print("hwgen: the hardware differs from the golden model", file=sys.stderr)
    return 0 if comparison.ok else 1
