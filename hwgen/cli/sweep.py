"""``hwgen sweep``: many plans as one table."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

from hwgen.cli import options
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs
from hwgen.errors import CheckError, InputError

MOST_VALUES = 100_000
"""Of one option."""

SMALLEST = Decimal("1e-12")
"""Of what numbers and steps may be; by a smaller one a range can't be divided."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen sweep``."""
    parser.add_argument("model", nargs="+", metavar="MODEL", help="an .onnx file, or a built-in network")
    parser.add_argument("--calibration", metavar="X.npy", help="typical inputs: quantise a single float model by them")
    parser.add_argument("--bits", type=int, choices=[8, 16], help="with --calibration: bits of activations and weights")
    options.until_option(parser)
    options.board_options(parser, "B,C", "boards (see 'hwgen boards') or .toml files", required=True)
    what = {
        "dsp": ("N", partial(values, integers=True), "DSP slices at most, as in 50:220:10 or 50,100"),
        "lut": ("N", partial(values, integers=True), "LUTs at most"),
        "bram": ("N", partial(values, integers=True), "block RAMs at most"),
        "clock": ("MHz", values, "clocks"),
        "bandwidth": ("GB/S", values, "of off-chip memory"),
        "macs-per-dsp": ("1,2,auto", partial(words, known=("1", "2", "auto")), "multiply-adds of a slice in a cycle"),
        "requantise": ("dsp,lut,auto", partial(words, known=("dsp", "lut", "auto")), "what multiplies in requantisers"),
        "objective": (
            "NAMES",
            partial(words, known=("interval", "latency", "traffic", "dsp")),
            "what to make small: interval, latency, traffic, dsp",
        ),
        "interval": ("N", partial(values, integers=True), "with --objective dsp: cycles between frames at most"),
        "fps": ("N", values, "frames a second at least"),
        "template": ("NAMES", partial(words, known=("stream", "pyramid", "tile")), "how layers are computed"),
        "tile": ("HxW,..", pairs, "of pyramids: rows and columns of the tip"),
        "overlap": ("NAMES", partial(words, known=("reuse", "reload", "recompute")), "of pyramids"),
        "bus-bits": ("32,64,128", partial(words, known=("32", "64", "128")), "of an engine: the width of its port"),
        "array": ("MxP,..", pairs, "of an engine: output maps and pixels at once"),
        "batch": ("N", partial(values, integers=True), "of an engine: frames that a program computes"),
    }
    for name, (metavar, kind, text) in what.items():
        parser.add_argument(f"--{name}", metavar=metavar, type=kind, help=text)
    options.group_options(parser)
    options.weights_option(parser)
    parser.add_argument(
        "--front", default="interval,dsp", metavar="NAMES", help="what the front weighs (default: interval,dsp)"
    )
    parser.add_argument(
        "-o", "--output", default="sweep.csv", metavar="FILE", help="the table: .csv or .parquet (default: sweep.csv)"
    )
    options.work_options(parser, "plans made at a time on this machine (default: all cores)")


def run(arguments: argparse.Namespace) -> int:
    """Plan, print, write; returns the exit status."""
    from hwgen import api
    from hwgen.explore import parquet
    from hwgen.plan import Request
    from hwgen.report import sweep as report

    outputs = Outputs(arguments)
    kind = Path(arguments.output).suffix
    if kind not in (".csv", ".parquet"):
        raise InputError(f"--output {arguments.output} must end in .csv or .parquet")
    if kind == ".parquet":
        parquet.require()
    front = [_GOALS.get(name, name) for name in str(arguments.front).split(",")]
    asked = {name: found for name in Request.names() if (found := getattr(arguments, name)) not in (None, False)}
    options.check_jobs(arguments)
    if arguments.calibration is not None and len(arguments.model) > 1:
        raise InputError("--calibration quantises one model, not several: sweep them one by one")
    models = [
        api.load(model, arguments.calibration, arguments.bits, until=arguments.until) for model in arguments.model
    ]
    for model in models:
        common.tell_of(model)
    table = api.sweep(
        models,
        arguments.board.split(","),
        front=front,
        cluster=arguments.cluster,
        jobs=arguments.jobs,
        progress=True,
        **asked,
    )
    outputs.add(arguments.output, table.csv() if kind == ".csv" else table.parquet())
    outputs.write()
    print(report.summary(table, arguments.output))
    print(f"wrote {arguments.output}: {len(table.rows):,} rows")
    if not table.planned:
        raise CheckError("no plan was found; the table says why, row by row")
    return 0


_GOALS = {"interval": "interval_ms", "latency": "latency_ms", "bram": "bram36", "traffic": "map_bytes"}


def words(text: str, known: tuple[str, ...]) -> list[Any]:
    """Some words of those that are known, by commas; numbers among them become numbers."""
    found = text.split(",")
    if unknown := [word for word in found if word not in known]:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(known)}, not {unknown[0]!r}")
    return _different([int(word) if word.isdigit() else word for word in found], text)


def pairs(text: str) -> list[tuple[int, int]]:
    """Some pairs, ``4x8,8x8``."""
    return _different([options.pair(part) for part in text.split(",")], text)


def values(text: str, integers: bool = False) -> list[Any]:
    """Some numbers and ranges, ``20,50:220:10``; a range has its last number, if a step meets it."""
    found: list[Any] = []
    for part in text.split(","):
        found += _range(part, integers)
        if len(found) > MOST_VALUES:
            raise argparse.ArgumentTypeError(f"has more than {MOST_VALUES:,} values: {text!r}")
    return _different(found, text)


def _range(part: str, integers: bool) -> list[Any]:
    what = "positive integers" if integers else "numbers above 0"
    number: Callable[[Decimal], Any] = int if integers else float
    try:
        ends = [Decimal(end) for end in part.split(":")]
    except InvalidOperation:
        ends = []
    good = len(ends) in (1, 3) and all(end.is_finite() and SMALLEST <= end < 10**12 for end in ends)
    if not good or (integers and any(end != int(end) for end in ends)):
        raise argparse.ArgumentTypeError(f"must be {what}, or first:last:step of these, as in 50:220:10, not {part!r}")
    if len(ends) == 1:
        return [number(ends[0])]
    first, last, step = ends
    if first > last:
        raise argparse.ArgumentTypeError(f"must go from the least to the greatest, first:last:step, not {part!r}")
    count = int((last - first) / step) + 1
    if count > MOST_VALUES:
        raise argparse.ArgumentTypeError(f"has more than {MOST_VALUES:,} values: {part!r}")
    return [number(first + place * step) for place in range(count)]


def _different(found: list[Any], text: str) -> list[Any]:
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"has a value twice: {text!r}")
    return found
