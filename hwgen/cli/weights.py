"""``hwgen weights``, and how ``hwgen simulate`` loads weights into a design that was built."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hwgen import simulators, work
from hwgen.cli import options, waves
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs, check_default
from hwgen.errors import InputError
from hwgen.options import flag

if TYPE_CHECKING:
    from hwgen.api import Inputs, Model, Result


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen weights``."""
    options.model_options(parser)
    options.until_option(parser)
    parser.add_argument(
        "--design", required=True, metavar="DIR", help="the design, which hwgen build --weights runtime wrote"
    )
    parser.add_argument("--board", metavar="B", help="a board's .toml file, if the design was planned for one")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (default: NAME.weights)")


def run(arguments: argparse.Namespace) -> int:
    """Check that the model fits the design, write; returns the exit status."""
    from hwgen.emit import weights

    weights.read_design(arguments.design)  # before the model, which may take a while
    model = common.load(arguments)
    if arguments.output is None:
        arguments.output = weights.file_name_of(model.name)
        check_default(arguments.output, weights.MAGIC)
    outputs = Outputs(arguments)
    found = model.retrained(arguments.design, board=arguments.board)
    outputs.add(arguments.output, found.weights)
    outputs.write()
    count = model.network.weight_count
    print(f"wrote {arguments.output}: {count:,} weights of {model.name}, {len(found.weights):,} bytes")
    return 0


def add_simulate_options(parser: argparse.ArgumentParser) -> None:
    """Those that ``hwgen simulate`` has for designs that exist."""
    parser.add_argument(
        "--design", metavar="DIR", help="load the model's weights into this design, as 'hwgen weights' makes them"
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse what doesn't go with ``--design``.

    Raises
    ------
    InputError
    """
    steering = [
        *common.asked(arguments),
        *(name for name in ("engine", "plan") if getattr(arguments, name) is not None),
    ]
    if given := [name for name in steering if name != "bandwidth"]:
        names = " and ".join(flag(name) for name in given)
        raise InputError(f"{names} would be another circuit than that of --design: leave one of them out")
    if not simulators.entry(arguments.simulator).reads_verilog:
        able = simulators.names(lambda each: each.reads_verilog)
        raise InputError(f"--design is Verilog, which {able} simulates, not {arguments.simulator}")


def simulate(model: Model, frames: Inputs, arguments: argparse.Namespace) -> Result:
    """Run in the design that is given, with the model's weights."""
    design = model.retrained(arguments.design, board=arguments.board)
    print(design.table(), flush=True)
    return design.simulate(
        frames,
        simulator=arguments.simulator,
        waves=arguments.waves,
        **waves.choice(arguments),
        progress=True,
        jobs=arguments.jobs or (None if arguments.cluster else work.cores()),
        cluster=arguments.cluster,
        memory_latency=arguments.memory_latency,
        bandwidth=arguments.bandwidth,
    )
