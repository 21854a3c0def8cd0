"""The command line: a thin shell over ``hwgen.api``.

Exit status: 0 done, 1 a check failed, 2 bad input (one line on stderr), 128 + n ended by signal n (130: interrupted).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hwgen import options, processes
from hwgen.errors import CheckError, HwgenError, InputError

if TYPE_CHECKING:
    import numpy as np

    from hwgen.api import Design, Model
    from hwgen.boards import Board

EXAMPLES = r"""examples, in the folder of the sources:
  hwgen plan examples/digits/digits.onnx --board zedboard
  hwgen build examples/digits/digits.onnx --board zedboard -o build/digits
  hwgen simulate examples/digits/digits.onnx --board zedboard --input examples/digits/images.npy --output logits.npy
  hwgen plan vgg16:7@64x64 --board vc709 --dsp 2000 -o plan.json
  hwgen plan vgg16:7@64x64 --board vc709 --objective dsp --interval 1000000
  hwgen plan vgg16:7@64x64 --board vc709 --template pyramid --tile 4x4 --overlap reuse
  hwgen build vgg16:7@64x64 --board vc709 --plan plan.json
  hwgen synth examples/digits/digits.onnx --board zedboard --json synth.json
  hwgen block '56x56x128->256 k3' --memory 32KB,8MB --json blocking.json
  hwgen explore vgg19 --first 11 --json fronts.json --plot fronts.svg
  hwgen plan vgg16:7@64x64,int16 --board vc709
  hwgen golden examples/digits/digits-float.onnx --calibration examples/digits/calibration.npy --bits 16 \
      --input examples/digits/images.npy --output logits.npy
  hwgen doctor
"""


class Parser(argparse.ArgumentParser):
    """Complains in one line, like everything else, and takes no abbreviated options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see '{self.prog} --help')")


class Outputs:
    """Files to be written at the end, all of them or none.

    Refuses at once what could not be written later.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, bytes]] = []

    @staticmethod
    def check(arguments: argparse.Namespace) -> None:
        """Refuse options that name files which can't be written, are one and the same, or are read as well.

        Raises
        ------
        InputError
        """
        options.check_outputs(arguments)

    def add(self, path: str | None, content: bytes) -> None:
        if path is not None:
            self._files.append((Path(path), content))

    def write(self) -> None:
        """Write everything beside its place, then move it there.

        Raises
        ------
        InputError
            If a file can't be written.
        """
        ready: list[tuple[str, Path]] = []
        path = Path()
        try:
            for path, content in self._files:
                handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
                ready.append((name, path))
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.chmod(name, 0o666 & ~_umask())
            with processes.held():
                while ready:
                    name, path = ready[0]
                    os.replace(name, path)
                    ready.pop(0)
        except OSError as error:
            raise InputError(f"output {path} can't be written: {error.strerror or error}") from error
        finally:
            for name, _ in ready:
                with suppress(OSError):
                    os.unlink(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _npy(array: np.ndarray) -> bytes:
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _load(arguments: argparse.Namespace) -> Model:
    from hwgen import api

    model = api.load(arguments.model, calibration=arguments.calibration, bits=arguments.bits)
    for reason in model.network.left_out:
        print(f"left out: {reason}")
    for reason in model.network.warnings:
        print(f"hwgen: warning: {reason}", file=sys.stderr)
    return model


def _board(arguments: argparse.Namespace) -> Board:
    from hwgen.boards import load as load_board

    return load_board(arguments.board)


def _plan(arguments: argparse.Namespace) -> Design:
    board = _board(arguments)  # before the model: it is the cheaper of the two
    return _steered(_load(arguments), board, arguments)


def _steered(model: Model, board: Board, arguments: argparse.Namespace) -> Design:
    if arguments.plan is not None and (arguments.objective or arguments.macs_per_dsp):
        given = "--objective" if arguments.objective else "--macs-per-dsp"
        raise InputError(f"a given plan is not planned again: give {given} or --plan, not both")
    design = model.plan(
        board,
        dsp=arguments.dsp,
        objective=arguments.objective or "interval",
        interval=arguments.interval,
        groups=arguments.groups,
        in_turn=arguments.in_turn,
        macs_per_dsp=arguments.macs_per_dsp or 1,
        template=arguments.template,
        tile=arguments.tile,
        overlap=arguments.overlap,
        plan=arguments.plan,
    )
    if note := options.check_steering(arguments, design):
        print(note)
    return design


def plan(arguments: argparse.Namespace) -> int:
    outputs = Outputs()
    outputs.check(arguments)
    board = _board(arguments)
    from hwgen import network
    from hwgen.plan.choice import weights_of
    from hwgen.plan.planner import sure_refusal, what_can_be_built

    def refused(weights: list[tuple[str, int]]) -> bool:
        if refusal := sure_refusal(weights, board):
            print(f"not all of {arguments.model} can be built: {refusal}", flush=True)
        return bool(refusal)

    # Before a built-in network is quantised, and before any is planned: both may take a while.
    said = refused(network.weight_bits(arguments.model))
    model = _load(arguments)
    weights = weights_of(model.network.layers)
    if not said and not any(sure_refusal([layer], board) for layer in weights):  # a single layer is soon refused
        refused(weights)
    design = _steered(model, board, arguments)
    outputs.add(arguments.output, design.to_json().encode())
    outputs.write()
    print(design.table(), flush=True)
    if design.plan.obstacle is None:
        return 0
    steered = {name: getattr(arguments, name) for name in ("macs_per_dsp", "template", "tile", "overlap")}
    print(f"hwgen: this plan can't be built; {what_can_be_built(design.plan, **steered)}", file=sys.stderr)
    return 1


def build(arguments: argparse.Namespace) -> int:
    from hwgen import emit

    emit.check_folder(arguments.output or "build")
    design = _plan(arguments)
    print(design.table())
    folder = design.build(arguments.output, say=print)
    print(f"wrote {folder}: " + ", ".join(sorted(file.name for file in folder.iterdir())))
    return 0


def simulate(arguments: argparse.Namespace) -> int:
    from hwgen import api

    if arguments.integers and arguments.output is None:
        raise InputError("--integers says what is written with --output, which is not given")
    outputs = Outputs()
    outputs.check(arguments)
    frames = None if arguments.input is None else api.read_array(arguments.input)
    board = _board(arguments)
    model = _load(arguments)
    if frames is None:
        frames = model.random_frames(arguments.random)
        print(f"input: random {model.input.type} over its whole range, {len(frames):,} frames, seed 0")
    frames = model.prepare(frames)  # before planning, which may take a while
    if note := options.check_jobs(arguments, len(frames)):
        print(note)
    design = _steered(model, board, arguments)
    print(design.table(), flush=True)
    result = design.simulate(
        frames,
        simulator=arguments.simulator,
        waves=arguments.waves,
        progress=True,
        jobs=arguments.jobs or os.cpu_count() or 1,
        memory_latency=arguments.memory_latency,
        bandwidth=arguments.bandwidth,
    )
    outputs.add(arguments.output, _npy(result.integers if arguments.integers else result.outputs))
    if arguments.json is not None:
        outputs.add(arguments.json, _json(result.to_json()))
    outputs.write()
    print(
        f"{result.frames:,} frames, {result.cycles:,} cycles in {result.wall_s:.1f} s "
        f"({result.cycles_per_s:,.0f} cycles/s, {result.simulator}); "
        f"{result.read_bytes:,} bytes read, {result.written_bytes:,} written"
    )
    print(result.summary())
    if result.first_mismatch is not None:
        print(f"hwgen: first mismatch: {result.first_mismatch}", file=sys.stderr)
    elif not result.as_predicted:
        print("hwgen: the cycles differ from the prediction", file=sys.stderr)
    return 0 if result.ok else 1


def golden(arguments: argparse.Namespace) -> int:
    from hwgen import api

    outputs = Outputs()
    outputs.check(arguments)
    frames = api.read_array(arguments.input)
    values = _load(arguments).golden(frames, integers=arguments.integers)
    outputs.add(arguments.output, _npy(values))
    outputs.write()
    print(f"{len(values):,} frames, {values.size:,} values of {values.dtype}: {arguments.output}")
    return 0


def models(arguments: argparse.Namespace) -> int:
    from hwgen.network.zoo import builtin

    entries = builtin.names()
    width = max(len(name) for name, _ in entries)
    for name, description in entries:
        print(f"{name:<{width}}  {description}")
    print(
        "Weights are seeded random numbers. NAME:N is the first N layers, NAME@HxW another size (not of light_...); "
        "activations and weights have 8 bits, with ,int16 at the end 16."
    )
    return 0


def boards(arguments: argparse.Namespace) -> int:
    from hwgen.boards import load, names

    print(f"{'board':<10}{'device':<11}{'LUT':>9}{'FF':>9}{'DSP':>7}{'BRAM36':>8}{'MHz':>6}{'GB/s':>7}  description")
    for board in map(load, names()):
        print(
            f"{board.name:<10}{board.device:<11}{board.lut:>9,}{board.ff:>9,}{board.dsp:>7,}{board.bram36:>8,}"
            f"{board.clock_mhz:>6g}{board.memory_gb_s:>7.2f}  {board.description}"
        )
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    from hwgen import doctor as examination

    tools = examination.examine()
    print(examination.table(tools))
    return 0 if all(tool.found or not tool.required for tool in tools) else 1


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return value


def _latency(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"must be a number of cycles, 0 or more, not {text!r}")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number of GB/s above 0, not {text!r}")
    return value


def _pair(text: str) -> tuple[int, int]:
    """Rows and columns, ``4x8``."""
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be rows and columns, as in 4x8, not {text!r}")
    return int(match[1]), int(match[2])


def _examples(verb: str) -> list[str]:
    """Those of one verb, under a heading; nothing if it has none."""
    found = re.findall(rf"^  hwgen {verb} (?:.*\\\n)*.*$", EXAMPLES, re.MULTILINE)
    return ["\n".join([EXAMPLES.splitlines()[0], *found])] if found else []


def parser() -> Parser:
    from hwgen import __version__, block_cli, explore_cli, synth_cli
    from hwgen.report import legend

    top = Parser(
        prog="hwgen",
        description="From a trained, quantised CNN (ONNX) to a verified FPGA accelerator.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hwgen {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace], int], text: str, *notes: str) -> Parser:
        sub = verbs.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog="\n\n".join([*notes, *_examples(name)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

    def model_options(
        sub: Parser,
        calibration: str = "typical inputs: quantise a float model by them",
        bits: str = "with --calibration: bits of activations and weights (default 8)",
    ) -> None:
        sub.add_argument("model", metavar="MODEL", help="an .onnx file, or a built-in network (see 'hwgen models')")
        sub.add_argument("--calibration", metavar="X.npy", help=calibration)
        sub.add_argument("--bits", type=int, choices=[8, 16], help=bits)

    def plan_options(sub: Parser, *, given: bool = True) -> None:
        model_options(sub)
        sub.add_argument("--board", required=True, metavar="B", help="a board (see 'hwgen boards') or a .toml file")
        sub.add_argument("--dsp", type=_positive, metavar="N", help="use at most N DSP slices")
        sub.add_argument(
            "--macs-per-dsp",
            type=lambda text: int(text) if text in ("1", "2") else text,
            choices=[1, 2, "auto"],
            help="multiply-adds of a DSP slice in a cycle: 1 (default), 2 of 8 bits, or what makes more of the slices",
        )
        sub.add_argument(
            "--objective",
            choices=["interval", "latency", "traffic", "dsp"],
            help="what to make small: cycles between frames (default), cycles of one frame, off-chip bytes, DSP slices",
        )
        sub.add_argument(
            "--interval", type=_positive, metavar="N", help="with --objective dsp: at most N cycles between frames"
        )
        sub.add_argument(
            "--groups", metavar="A-B,C-D", help="fusion groups, by first and last layer: conv1_1-pool1,conv2_1-pool2"
        )
        sub.add_argument(
            "--in-turn",
            action="store_true",
            help="let groups share the board, each with all slices while it runs (planned, but can't be built yet)",
        )
        sub.add_argument(
            "--template",
            choices=["stream", "pyramid"],
            help="build all groups row by row, or tile by tile (default: tile by tile where rows don't fit)",
        )
        sub.add_argument("--tile", type=_pair, metavar="HxW", help="of pyramids: rows and columns of the tip")
        sub.add_argument(
            "--overlap",
            choices=["reuse", "reload", "recompute"],
            help="of pyramids: keep what neighbours share, fetch it again for the first layer, or compute it again",
        )
        if given:
            sub.add_argument("--plan", metavar="plan.json", help="follow this plan instead of planning")
        else:
            sub.set_defaults(plan=None)

    frames = "frames in the model's shape, (n, C, H, W) or (n, features), float32 or its integer type"
    integers = "write the last integer tensor, at which the hardware ends, instead of the model's own output"

    sub = verb("plan", plan, "plan an accelerator, and print the plan as a table", legend.text())
    plan_options(sub, given=False)
    sub.add_argument("-o", "--output", metavar="plan.json", help="also write the plan there")

    sub = verb("build", build, "write Verilog, a test bench and a report", legend.text())
    plan_options(sub)
    sub.add_argument("-o", "--output", metavar="DIR", help="where to (default: build/NAME-BOARD)")

    says = "run the generated hardware on real data, and compare with the golden model"
    sub = verb("simulate", simulate, says, legend.text())
    plan_options(sub)
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="X.npy", help=frames)
    source.add_argument(
        "--random", type=_positive, metavar="N", help="N random frames instead, of the model's integer type (seed 0)"
    )
    sub.add_argument("--output", metavar="Y.npy", help="write the hardware's outputs there, as the model gives them")
    sub.add_argument("--integers", action="store_true", help=integers)
    sub.add_argument(
        "--simulator",
        choices=["verilator", "icarus", "amaranth"],
        default="verilator",
        help="what runs it (default: verilator, the fastest)",
    )
    sub.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="simulations side by side (verilator), each with 16 frames or more (default: all cores)",
    )
    sub.add_argument(
        "--memory-latency",
        type=_latency,
        default=0,
        metavar="N",
        help="cycles from a read of off-chip memory to its first byte (default 0)",
    )
    sub.add_argument(
        "--bandwidth", type=_rate, metavar="GB/S", help="of off-chip memory, reads and writes (default: no limit)"
    )
    sub.add_argument("--waves", metavar="FILE", help="write waveforms there: .vcd, or .fst (not with amaranth)")
    sub.add_argument("--json", metavar="FILE", help="write mismatches and cycles there")

    says = "show what Yosys makes of each component, beside the plan's estimate (needs the extra 'synth')"
    sub = verb("synth", synth_cli.run, says, legend.text())
    plan_options(sub)
    synth_cli.add_options(sub)

    sub = verb("explore", explore_cli.run, "show the whole trade-off: every grouping and unrolling, as Pareto fronts")
    model_options(sub, "not used: exploring needs shapes only, so a float model will do", "not used")
    explore_cli.add_options(sub)

    sub = verb("block", block_cli.run, "find the best loop blocking and tiling for a memory or a hierarchy")
    block_cli.add_options(sub)

    sub = verb("golden", golden, "run the golden model alone")
    model_options(sub)
    sub.add_argument("--input", required=True, metavar="X.npy", help=frames)
    sub.add_argument(
        "--output", required=True, metavar="Y.npy", help="write the outputs there, as the model gives them"
    )
    sub.add_argument("--integers", action="store_true", help=integers)

    verb("models", models, "list the built-in networks")
    verb("boards", boards, "list the boards")
    verb("doctor", doctor, "say which tools were found, and what to install")
    return top


_BEYOND = {
    MemoryError: "this takes more memory than there is",
    OverflowError: "a number is too large to reckon with",
    RecursionError: "the input is nested too deep",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names of files may hold what the terminal has no character for
            stream.reconfigure(errors="backslashreplace")
    try:
        with processes.watch():
            arguments = parser().parse_args(argv)
            status = arguments.run(arguments)
            sys.stdout.flush()
            return status
    except CheckError as error:
        _complain(str(error))
        return 1
    except HwgenError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # the reader of our output went away, as in `hwgen plan ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{place}{error.strerror or error}")
    except (MemoryError, OverflowError, RecursionError) as error:
        reason = next(text for kind, text in _BEYOND.items() if isinstance(error, kind))
        return _complain(f"{reason}; take a smaller model, map or input")
    except (KeyboardInterrupt, processes.Stopped) as stop:
        stop = stop if isinstance(stop, processes.Stopped) else processes.Stopped(signal.SIGINT)
        with suppress(OSError):  # the terminal may be gone
            print(f"hwgen: {stop}", file=sys.stderr)
        return stop.status


def _complain(message: str) -> int:
    print(f"hwgen: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
