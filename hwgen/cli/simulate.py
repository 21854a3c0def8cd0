"""Commands ``hwgen simulate``, which simulates the hardware, and ``hwgen golden``, which runs the golden model."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hwgen import work
from hwgen.cli import engine, options, weights
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs, add_page, check_values_file, json_bytes, values_bytes, write_frames
from hwgen.errors import InputError
from hwgen.simulators import DEFAULT, SIMULATORS, entry
from hwgen.simulators import names as simulator_names

if TYPE_CHECKING:
    from hwgen.api import Inputs, Model, Result
    from hwgen.boards import Board


def _add_wave_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--wave-frames`` and ``--wave-layers`` to the parser of ``hwgen simulate``."""
    parser.add_argument(
        "--wave-frames",
        type=_frames,
        metavar="A:B",
        help="with --waves: record only frames A to B - 1, counted from 0 (verilator only)",
    )
    parser.add_argument(
        "--wave-layers",
        metavar="NAME,..",
        help="with --waves: record only these layers, named as in the plan (verilator only)",
    )


def _frames(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"frames must be A:B, such as 0:8, not {text!r}")
    return int(match[1]), int(match[2])


def _wave_choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return, as a dictionary, the frames and layers to record, as keyword arguments of ``Design.simulate``."""
    layers = arguments.wave_layers
    return {"wave_frames": arguments.wave_frames, "wave_layers": None if layers is None else layers.split(",")}


def _check_waves(arguments: argparse.Namespace) -> None:
    """Raise InputError for ``--wave-frames`` or ``--wave-layers`` if the simulator can't restrict waveforms.

    Raises
    ------
    InputError
        If no waveforms are recorded, they are of an engine, or the simulator records everything.
    """
    choices = [name for name in ("frames", "layers") if getattr(arguments, f"wave_{name}") is not None]
    if not choices:
        return
    names = " and ".join(f"--wave-{name}" for name in choices)
    if arguments.waves is None:
        raise InputError(f"{names} selects what --waves records: give --waves as well")
    if arguments.engine is not None:
        raise InputError(f"waveforms of an engine cover one frame and the whole engine: leave out {names}")
    if not entry(arguments.simulator).selects_waves:
        able = simulator_names(lambda simulator: simulator.selects_waves)
        raise InputError(f"{names} needs --simulator {able}, not {arguments.simulator}: leave it out")


def add_simulate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen simulate`` to a parser."""
    options.plan_options(parser, board=False)
    engine.add_simulate_options(parser)
    weights.add_simulate_options(parser)
    options.frame_options(parser, " (seed 0)")
    parser.add_argument("--output", metavar="Y.npy", help=f"file for the outputs, {options.AS_GIVEN}")
    parser.add_argument("--integers", action="store_true", help=options.INTEGERS)
    parser.add_argument(
        "--simulator",
        choices=SIMULATORS,
        default=DEFAULT,
        help="simulator (default: verilator, the fastest)",
    )
    options.work_options(
        parser,
        "number of parallel simulations (verilator, at least 16 frames each), and of processes for a long search for "
        "an engine's plan (default: all cores)",
    )
    parser.add_argument(
        "--memory-latency",
        type=options.latency,
        metavar="N",
        help="cycles from a read request to the memory's first byte (default: 0; for an engine, its plan's latency)",
    )
    parser.add_argument("--waves", metavar="FILE", help="file for waveforms: .fst (not with amaranth) or .vcd")
    _add_wave_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write mismatches and cycles to this file")
    parser.add_argument("--labels", metavar="L.npy", help="the true class of each frame, to report the accuracy")
    options.report_option(parser)


def simulate(arguments: argparse.Namespace) -> int:
    """Run ``hwgen simulate`` and return the exit status: 1 if a value, a cycle or a byte count is not as predicted.

    The hardware is planned, or read from the folder of ``--engine`` or ``--design``.
    """
    from hwgen import api
    from hwgen.report.page.checks import accuracy_line

    if arguments.integers and arguments.output is None:
        raise InputError("--integers selects what --output writes: give --output as well")
    outputs = Outputs(arguments)
    frames = None if arguments.input is None else api.read_inputs(arguments.input)
    labels = None if arguments.labels is None else api.read_array(arguments.labels, "labels")
    (engine if arguments.design is None else weights).check_options(arguments)
    _check_waves(arguments)
    board = None if arguments.board is None else common.board_of(arguments)
    model = common.load(arguments)
    _check_output(arguments, model)
    options.check_frames(arguments, model, frames)
    if frames is None:
        frames = model.random_frames(arguments.random)
        for name, tensor in model.inputs.items():
            of_input = f" {name}" if len(model.inputs) > 1 else ""
            print(f"input{of_input}: random {tensor.type} over its whole range, {arguments.random:,} frames, seed 0")
    count = options.frame_count(model, frames, labels)  # refuses unfit frames before planning, which can take long
    if note := check_jobs(arguments, count):
        print(note)
    result, known = _simulated(model, board, frames, arguments)
    accuracy = None if labels is None else result.accuracy(labels)
    outputs.add(arguments.output, values_bytes(result.integers if arguments.integers else result.outputs))
    if arguments.json is not None:
        outputs.add(arguments.json, json_bytes(result.to_json() | ({"accuracy": accuracy} if accuracy else {})))
    if arguments.report is not None:
        add_page(outputs, arguments.report, {**known, **result.document(labels)})
    outputs.write()
    print(
        f"{result.frames:,} frames, {result.cycles:,} cycles in {result.wall_s:.1f} s "
        f"({result.cycles_per_s:,.0f} cycles/s, {result.simulator}); "
        f"{result.read_bytes:,} bytes read, {result.written_bytes:,} written"
    )
    print(result.summary())
    if accuracy is not None:
        print(accuracy_line(accuracy))
    if result.first_mismatch is not None:
        print(f"hwgen: first mismatch: {result.first_mismatch}", file=sys.stderr)
    elif not result.as_predicted:
        bytes_too = "" if result.predicted_bytes is None else " or bytes"
        print(f"hwgen: the cycles{bytes_too} differ from the prediction", file=sys.stderr)
    return 0 if result.ok else 1


def _simulated(
    model: Model, board: Board | None, frames: Inputs, arguments: argparse.Namespace
) -> tuple[Result, dict[str, Any]]:
    """Simulate a design or an engine; return a pair: the `Result`, and the report page's part about the hardware.

    The hardware is the design of ``--design``, a plan for ``board``, or the engine of ``--engine``.
    """
    run_options = {
        "waves": arguments.waves,
        "progress": True,
        "jobs": arguments.jobs or (None if arguments.cluster else work.cores()),
        "cluster": arguments.cluster,
        "memory_latency": arguments.memory_latency,
        "bandwidth": arguments.bandwidth,
    }
    known: dict[str, Any] = {}
    if arguments.design is not None:
        design = model.retrained(arguments.design, board=arguments.board)
        known = {"title": f"{model.name} in the design in {arguments.design}"}
    elif board is not None:
        design = common.steered(model, board, arguments)
    else:
        known = {"title": f"{model.name} on the engine in {arguments.engine}"}
        return engine.simulate(model, frames, arguments, run_options), known
    print(design.table(), flush=True)
    result = design.simulate(frames, simulator=arguments.simulator, **_wave_choice(arguments), **run_options)
    if not known and arguments.report is not None:
        known = design.document()
    return result, known


def add_golden_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen golden`` to a parser."""
    options.model_options(parser)
    parser.add_argument("--input", required=True, metavar="X.npy", action="append", help=options.FRAMES)
    options.quantised_option(parser)
    parser.add_argument("--output", required=True, metavar="Y.npy", help=f"file for the outputs, {options.AS_GIVEN}")
    parser.add_argument("--integers", action="store_true", help=options.INTEGERS)


def golden(arguments: argparse.Namespace) -> int:
    """Run ``hwgen golden``, which writes the golden model's outputs to a file, and return the exit status."""
    from hwgen import api

    outputs = Outputs(arguments)
    frames = api.read_inputs(arguments.input)
    model = common.load(arguments)
    _check_output(arguments, model)
    options.check_frames(arguments, model, frames)
    names = model.network.output_names if arguments.integers else model.output_names
    if len(names) == 1 and not arguments.output.endswith(".npz"):
        _golden_in_batches(model, frames, arguments, outputs)
        return 0
    values = model.golden(frames, integers=arguments.integers)
    outputs.add(arguments.output, values_bytes(values))
    outputs.write()
    for name, array in values.items() if isinstance(values, dict) else [("", values)]:
        of_output = f" {name}" if name else ""
        print(f"{len(array):,} frames, {array.size:,} values of {array.dtype}: {arguments.output}{of_output}")
    return 0


def _check_output(arguments: argparse.Namespace, model: Model) -> None:
    """Raise InputError if the format of the file ``--output`` can't hold the values to be written."""
    if arguments.integers:
        check_values_file(arguments.output, model.network.output_names)
    else:
        check_values_file(arguments.output, model.output_names, model.ragged_outputs)


def _golden_in_batches(model: Model, frames: Inputs, arguments: argparse.Namespace, outputs: Outputs) -> None:
    """Write the golden model's only output to a file, computed in batches, as all frames may exceed memory."""
    arrays = frames.values() if isinstance(frames, dict) else frames if isinstance(frames, list) else [frames]
    count, written = len(next(iter(arrays))), []

    def write(file: BinaryIO) -> None:
        batches = model.golden_parts(frames, integers=arguments.integers)
        written[:] = write_frames(file, count, cast(Any, batches))

    outputs.add(arguments.output, write)
    outputs.write()
    size, dtype = written
    print(f"{count:,} frames, {size:,} values of {dtype}: {arguments.output}")


def check_jobs(arguments: argparse.Namespace, frames: int) -> str | None:
    """Return a note (text) if there are too few frames for ``--jobs`` parallel simulations; otherwise ``None``.

    Raises
    ------
    InputError
        If the simulator can't run several simulations in parallel, or waveforms are recorded.
    """
    from hwgen.simulate import MIN_SHARE_FRAMES

    if arguments.jobs is None or arguments.jobs == 1:
        return None
    if not entry(arguments.simulator).is_parallel:
        able = simulator_names(lambda simulator: simulator.is_parallel)
        raise InputError(f"--jobs needs --simulator {able}, not {arguments.simulator}: leave it out")
    if arguments.waves is not None:
        raise InputError("--jobs runs several simulations, but --waves records one: leave one of them out")
    limit = max(1, frames // MIN_SHARE_FRAMES)
    if limit >= arguments.jobs:
        return None
    return f"--jobs {arguments.jobs}: {frames:,} frames allow {limit}, with at least {MIN_SHARE_FRAMES} frames each"
