"""Command ``hwgen compile``, and the simulation of a model on an existing engine (programmable MAC array)."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.cli import options
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs, check_default
from hwgen.errors import InputError
from hwgen.options import flag

if TYPE_CHECKING:
    from hwgen.api import Design, Inputs, Model, Result


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen compile`` to a parser."""
    options.model_options(parser)
    parser.add_argument("--engine", required=True, metavar="DIR", help="folder of an engine that hwgen build wrote")
    parser.add_argument("--plan", metavar="plan.json", help="use this plan for the same engine instead of planning")
    options.steering_options(parser, "batch", "fuse")
    parser.add_argument("-o", "--output", metavar="FILE", help="the program file (default: NAME.program in DIR)")
    options.work_options(parser, options.STEPS)


def compile_program(arguments: argparse.Namespace) -> int:
    """Run ``hwgen compile``, which writes a model's program for an existing engine, and return the exit status.

    The model is planned for the engine of ``--engine``, and its program is written.
    """
    from hwgen.emit import engine

    options.check_jobs(arguments)
    engine.read(arguments.engine)  # before the model, which can take long to load
    model = common.load(arguments)
    if arguments.output is None:
        arguments.output = str(Path(arguments.engine) / engine.program_name(model.name))
        check_default(arguments.output, engine.PROGRAM_HEAD)
    outputs = Outputs(arguments)
    design = _compiled(model, arguments)
    outputs.add(arguments.output, bytes(design.program))
    print(design.table())
    outputs.write()
    print(f"wrote {arguments.output}: {os.path.getsize(arguments.output):,} bytes")
    return 0


def _compiled(model: Model, arguments: argparse.Namespace) -> Design:
    beside = common.side_by_side(arguments)
    design = model.compile(arguments.engine, plan=arguments.plan, batch=arguments.batch, fuse=arguments.fuse, **beside)
    if note := common.without_steps(arguments, design):
        print(note)
    return design


def add_simulate_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--engine`` and ``--program``, for an existing engine, to the parser of ``hwgen simulate``."""
    parser.add_argument("--engine", metavar="DIR", help="run on this engine, written by hwgen build --template engine")
    parser.add_argument("--program", metavar="FILE", help="with --engine: run this program instead of compiling one")


def check_options(arguments: argparse.Namespace) -> None:
    """Raise InputError for options of ``hwgen simulate`` that contradict ``--engine``, or that need it.

    Raises
    ------
    InputError
        If options contradict each other, or neither a board nor an engine is named.
    """
    if arguments.engine is None:
        if arguments.program is not None:
            raise InputError("--program needs an engine to run on: give the engine's folder with --engine")
        if arguments.board is None:
            raise InputError(
                "no board or design is given: give --board, --design DIR or --engine DIR (see 'hwgen simulate --help')"
            )
        return
    steering = [*common.request_options(arguments), *(["board"] if arguments.board is not None else [])]
    if refused := [name for name in steering if name not in ("bandwidth", "batch", "fuse")]:
        names = " and ".join(flag(name) for name in refused)
        raise InputError(f"{names} would change the circuit, but --engine's is already built: leave one of them out")
    if arguments.simulator != "verilator":
        raise InputError(f"an engine runs in --simulator verilator only, not in {arguments.simulator}")
    if arguments.program is not None and arguments.plan is not None:
        raise InputError("--program is already compiled from a plan: give --program or --plan, not both")
    if arguments.program is not None and arguments.batch is not None:
        raise InputError("--program is compiled for a fixed number of frames: leave --batch out, or recompile it")


def simulate(model: Model, frames: Inputs, arguments: argparse.Namespace, run_options: dict[str, Any]) -> Result:
    """Simulate frames on the engine in the folder ``--engine``; return a `Result` with outputs and cycles.

    The engine runs the program of ``--program``, or else one that is compiled now.
    """
    if arguments.program is not None:
        return model.run(arguments.engine, arguments.program, frames, **run_options)
    design = _compiled(model, arguments)
    print(design.table(), flush=True)
    return design.simulate(frames, **run_options)
