"""What the verbs' options have in common: the parser, kinds of values, and options that several verbs take."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from hwgen.errors import InputError

FRAMES = (
    "frames in the model's shape, such as (n, C, H, W), (n, H, W, C) or (n, features), float32 or its integer type; of "
    "a model with several inputs give --input for each, in its order, or an X.npz by the inputs' names"
)
AS_GIVEN = "as the model gives them; of a model with several outputs a Y.npz, by the outputs' names"
BATCH = "of an engine: frames that a program computes; dense layers at its end fetch weights once for all (default: 1)"
INTEGERS = "write the last integer tensor, at which the hardware ends, instead of the model's own output"


class Parser(argparse.ArgumentParser):
    """Complains in one line, like everything else, and takes no abbreviated options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see '{self.prog} --help')")


def positive(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return value


def latency(text: str) -> int:
    """Cycles, 0 or more."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"must be a number of cycles, 0 or more, not {text!r}")
    return int(text)


def rate(text: str) -> float:
    """GB/s."""
    return number(text, " of GB/s", below=1e6)


def number(text: str, unit: str = "", below: float = 1e12) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < below:
        raise argparse.ArgumentTypeError(f"must be a number{unit} above 0, not {text!r}")
    return value


def pair(text: str) -> tuple[int, int]:
    """Rows and columns, ``4x8``."""
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be rows and columns, as in 4x8, not {text!r}")
    return int(match[1]), int(match[2])


def part(text: str) -> str:
    """A part of the 7 series."""
    from hwgen.boards import is_part

    if not is_part(text):
        raise argparse.ArgumentTypeError(f"must be a part of the 7 series, such as xc7z010clg400-1, not {text!r}")
    return text


def model_options(
    sub: argparse.ArgumentParser,
    calibration: str = "typical inputs: quantise a float model by them",
    bits: str = "with --calibration: bits of activations and weights (default 8)",
) -> None:
    """MODEL, and how a float one is quantised."""
    sub.add_argument("model", metavar="MODEL", help="an .onnx file, or a built-in network (see 'hwgen models')")
    sub.add_argument("--calibration", metavar="X.npy", help=calibration)
    sub.add_argument("--bits", type=int, choices=[8, 16], help=bits)


def until_option(sub: argparse.ArgumentParser) -> None:
    """``--until``, of verbs that build a model or run what is built."""
    sub.add_argument(
        "--until",
        metavar="TENSOR",
        help="build the part of the model up to this tensor, or with 'auto' what comes before the operators that can't "
        "be built; ONNX Runtime runs the rest on the host (see 'hwgen check')",
    )


def report_option(sub: argparse.ArgumentParser) -> None:
    """``--report``, of verbs whose findings can be looked at in a browser."""
    sub.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page for a browser there; what it holds already of the same design, from other commands, stays",
    )


STEPS = "steps of a long search at a time, which a plan on an engine has (default: all cores)"
"""What ``--jobs`` is of verbs that plan."""


def work_options(sub: argparse.ArgumentParser, jobs: str) -> None:
    """``--cluster`` and ``--jobs``, of verbs that do much side by side."""
    sub.add_argument("--jobs", type=positive, metavar="N", help=jobs)
    sub.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="work on the cluster of this Dask scheduler, or with local:N on one of N workers here (needs the extra "
        "'cluster')",
    )


def check_jobs(arguments: argparse.Namespace) -> None:
    """Refuse ``--jobs`` beside ``--cluster``.

    Raises
    ------
    InputError
    """
    if arguments.jobs is not None and arguments.cluster is not None:
        raise InputError("--jobs is of this machine, and a cluster knows how much it does at a time: leave one out")


def board_options(sub: argparse.ArgumentParser, metavar: str, text: str, *, required: bool) -> None:
    """``--board``, or ``--part`` instead of it."""
    where = sub.add_mutually_exclusive_group(required=required)
    where.add_argument("--board", metavar=metavar, help=text)
    where.add_argument(
        "--part",
        dest="board",
        type=part,
        metavar="PART",
        help="a part without a board, such as xc7z010clg400-1: at 100 MHz, with 1 GB/s of memory, unless --clock and "
        "--bandwidth say others",
    )


def group_options(sub: argparse.ArgumentParser) -> None:
    """``--groups`` and ``--in-turn``: where a network is cut, and whether its groups take turns."""
    sub.add_argument(
        "--groups", metavar="A-B,C-D", help="fusion groups, by first and last layer: conv1_1-pool1,conv2_1-pool2"
    )
    sub.add_argument(
        "--in-turn",
        action="store_true",
        help="let groups share the board, each with all slices while it runs (planned, but can't be built yet)",
    )


def weights_option(sub: argparse.ArgumentParser) -> None:
    """``--weights``: whether the hardware can take others."""
    sub.add_argument(
        "--weights",
        choices=["constant", "runtime"],
        help="build weights in (default), or let the hardware take those of a retrained model while it runs",
    )


def plan_options(sub: argparse.ArgumentParser, *, given: bool = True, board: bool = True) -> None:
    """MODEL, the board, and what steers a plan; ``given``: also ``--plan``; ``board``: there must be one."""
    model_options(sub)
    until_option(sub)
    board_options(sub, "B", "a board (see 'hwgen boards') or a .toml file", required=board)
    sub.add_argument("--dsp", type=positive, metavar="N", help="use at most N DSP slices")
    sub.add_argument("--lut", type=positive, metavar="N", help="use at most N LUTs")
    sub.add_argument("--bram", type=positive, metavar="N", help="use at most N block RAMs of 36 kbit")
    sub.add_argument("--clock", type=number, metavar="MHz", help="run at this clock (default: the board's own)")
    sub.add_argument(
        "--bandwidth",
        type=rate,
        metavar="GB/S",
        help="of off-chip memory, reads and writes (default: the board's; without a limit where streams are simulated)",
    )
    sub.add_argument(
        "--macs-per-dsp",
        type=lambda text: int(text) if text in ("1", "2") else text,
        choices=[1, 2, "auto"],
        help="multiply-adds of a DSP slice in a cycle: 1 (default), 2 of 8 bits, or what makes more of the slices",
    )
    sub.add_argument(
        "--requantise",
        choices=["dsp", "lut", "auto"],
        help="multiply in requantisers by DSP slices (default), about 1,000 LUTs each, or what serves the goal better",
    )
    sub.add_argument(
        "--objective",
        choices=["interval", "latency", "traffic", "dsp"],
        help="what to make small: cycles between frames (default), cycles of one frame, off-chip bytes, DSP slices",
    )
    sub.add_argument(
        "--interval", type=positive, metavar="N", help="with --objective dsp: at most N cycles between frames"
    )
    sub.add_argument(
        "--fps", type=number, metavar="N", help="at least N frames a second, with as few DSP slices as that takes"
    )
    group_options(sub)
    sub.add_argument(
        "--template",
        choices=["stream", "pyramid", "tile"],
        help="build all groups row by row, or tile by tile, or compute all layers on an engine (tile) from off-chip "
        "memory (default: the first of these that fits)",
    )
    sub.add_argument("--tile", type=pair, metavar="HxW", help="of pyramids: rows and columns of the tip")
    sub.add_argument(
        "--overlap",
        choices=["reuse", "reload", "recompute"],
        help="of pyramids: keep what neighbours share, fetch it again for the first layer, or compute it again",
    )
    sub.add_argument(
        "--array", type=pair, metavar="MxP", help="of an engine: output maps and pixels at once, such as 32x13"
    )
    sub.add_argument(
        "--bus-bits",
        type=int,
        choices=(32, 64, 128),
        help="of an engine: width of its port to memory (default: 64, or 128 if --bandwidth is more than that moves)",
    )
    sub.add_argument("--batch", type=positive, metavar="N", help=BATCH)
    weights_option(sub)
    if given:
        sub.add_argument("--plan", metavar="plan.json", help="follow this plan instead of planning")
    else:
        sub.set_defaults(plan=None)
