"""Command ``hwgen quantise``: quantise a float ONNX model, and write the quantised model."""

from __future__ import annotations

import argparse
import sys

from hwgen.cli import options
from hwgen.cli.outputs import Outputs


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen quantise`` to a parser."""
    options.model_options(
        parser,
        "calibration",
        "bits",
        model="a float model, an .onnx file",
        calibration="typical inputs, float32, that determine the activations' ranges; for a model with several inputs, "
        "an X.npz with their names (required)",
        bits="bits of activations and weights (default 8)",
    )
    parser.add_argument("-o", "--output", required=True, metavar="Q.onnx", help="file for the quantised model")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen quantise`` and return the exit status: 1 if an operator of the result can't be built, else 0."""
    from hwgen import api, network

    outputs = Outputs(arguments)
    given = options.model_given(arguments)
    made = network.quantised(arguments.model, api.model_options(given.get("calibration"), given.get("bits"), {}))
    outputs.add(arguments.output, made.SerializeToString())
    outputs.write()
    report = api.check(arguments.output)
    print(f"wrote {arguments.output}: {report.counts()}")
    if not report.supported:
        print(f"hwgen: not every operator can be built; see 'hwgen check {arguments.output}'", file=sys.stderr)
    return 0 if report.supported else 1
