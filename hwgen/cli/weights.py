"""Command ``hwgen weights``, and the options that simulate a retrained model on an existing design."""

from __future__ import annotations

import argparse

from hwgen import simulators
from hwgen.cli import options
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs, check_default
from hwgen.errors import InputError
from hwgen.options import flag


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen weights`` to a parser."""
    options.model_options(parser)
    parser.add_argument(
        "--design", required=True, metavar="DIR", help="folder of a design built with --weights runtime"
    )
    parser.add_argument("--board", metavar="B", help="the board's .toml file, if the design was planned for one")
    parser.add_argument("-o", "--output", metavar="FILE", help="weights file to write (default: NAME.weights)")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen weights``, which writes a model's weights file for an existing design, and return the exit status.

    The model is compared with the design of ``--design``, and the file of its weights is written.
    """
    from hwgen.emit import weights

    weights.read_design(arguments.design)  # before the model, which can take long to load
    model = common.load(arguments)
    if arguments.output is None:
        arguments.output = weights.file_name_of(model.name)
        check_default(arguments.output, weights.MAGIC)
    outputs = Outputs(arguments)
    retrained = model.retrained(arguments.design, board=arguments.board)
    outputs.add(arguments.output, retrained.weights)
    outputs.write()
    count = model.network.weight_count
    print(f"wrote {arguments.output}: {count:,} weights of {model.name}, {len(retrained.weights):,} bytes")
    return 0


def add_simulate_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--design``, for an existing design, to the parser of ``hwgen simulate``."""
    parser.add_argument(
        "--design", metavar="DIR", help="load the model's weights into this design, as 'hwgen weights' makes them"
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError for options of ``hwgen simulate`` that contradict ``--design``.

    Raises
    ------
    InputError
        If an option steers a plan or names an engine, or the simulator reads no Verilog.
    """
    steering = [
        *common.request_options(arguments),
        *(name for name in ("engine", "plan") if getattr(arguments, name) is not None),
    ]
    if refused := [name for name in steering if name != "bandwidth"]:
        names = " and ".join(flag(name) for name in refused)
        raise InputError(f"{names} would change the circuit, but --design's is already built: leave one of them out")
    if not simulators.entry(arguments.simulator).reads_verilog:
        able = simulators.names(lambda simulator: simulator.reads_verilog)
        raise InputError(f"--design is Verilog, which needs --simulator {able}, not {arguments.simulator}")
