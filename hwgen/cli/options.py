"""Parser class, value types and options that several commands of the command line share."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hwgen.errors import InputError
from hwgen.network.options import ModelOptions
from hwgen.options import Option, PlanOptions, flag, table
from hwgen.options.kinds import positive_integer

if TYPE_CHECKING:
    import numpy as np

    from hwgen.api import Inputs, Model

FRAMES = (
    "frames in the model's shape, such as (n, C, H, W), (n, H, W, C) or (n, features), in float32 or the input's "
    "integer type (see --quantised). For a model with several inputs, repeat --input in the inputs' order, or give an "
    "X.npz with their names"
)
AS_GIVEN = "in the model's shape and type; for a model with several outputs, a Y.npz with their names"
INTEGERS = "write the hardware's own output, the last integer tensor, instead of the model's output"


class Parser(argparse.ArgumentParser):
    """Argument parser that raises InputError with a one-line message, and accepts no abbreviated options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)
        # Numbers with commas between them, such as -0.1,0.2, are values as well, and no options.
        self._negative_number_matcher = re.compile(r"^-(\d|\.\d)[\d.,eE+-]*$")

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{_with_nearest(message)} (see '{self.prog} --help')")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print argparse's text, such as the help; unlike argparse, raise file system errors."""
        (file or sys.stderr).write(message)


def _with_nearest(message: str) -> str:
    """Return argparse's error message; for a wrong choice, with the nearest right one proposed."""
    choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)
    if choice is None:
        return message
    near = difflib.get_close_matches(choice[1], re.findall(r"[\w.-]+", choice[2]), n=1, cutoff=0.5)
    return f"{message}; did you mean {near[0]!r}?" if near else message


def latency(text: str) -> int:
    """Return a memory latency in cycles (integer, 0 or more) parsed from text, or raise ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"must be a number of cycles, 0 or more, not {text!r}")
    return int(text)


def part(text: str) -> str:
    """Return an FPGA part number unchanged, or raise ArgumentTypeError if no device family has the part."""
    from hwgen.devices import FAMILIES, capacity_error, family_of, spelling_error, unsupported_error

    if error := spelling_error(text) or capacity_error(text) or unsupported_error(text):
        raise argparse.ArgumentTypeError(error)
    if family_of(text) is None:
        *examples, last = [f"{family.part_example} ({family.title})" for family in FAMILIES.values()]
        raise argparse.ArgumentTypeError(f"must be a part, such as {', '.join(examples)} or {last}, not {text!r}")
    return text


def model_options(sub: argparse.ArgumentParser, *names: str, nargs: str | None = None, **texts: str) -> None:
    """Add the argument MODEL and the options for reading a model (only those in ``names``, if given) to a parser.

    ``nargs`` is MODEL's. ``texts`` are the command's own help texts, by argument name.
    """
    text = texts.get("model", "an .onnx file, or a built-in network (see 'hwgen models')")
    sub.add_argument("model", metavar="MODEL", nargs=nargs, help=text)
    for name, entry in _in_sections(names, ModelOptions):
        _add(sub, name, entry, texts.get(name, entry.help))


def frame_options(sub: argparse.ArgumentParser, seed: str = "") -> None:
    """Add the options ``--input``, ``--random`` and ``--quantised`` to a command's parser.

    ``seed`` ends the help of ``--random``.
    """
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="X.npy", action="append", help=FRAMES)
    random = f"use N random frames of the model's integer type instead{seed}"
    source.add_argument("--random", type=positive_integer, metavar="N", help=random)
    quantised_option(sub)


def quantised_option(sub: argparse.ArgumentParser) -> None:
    """Add the option ``--quantised`` to a command's parser: integers in ``--input`` are already quantised."""
    sub.add_argument(
        "--quantised",
        action="store_true",
        help="with --input: integer arrays for a float input are already quantised (refused otherwise)",
    )


def check_frames(arguments: argparse.Namespace, model: Model, frames: Inputs | None) -> None:
    """Raise InputError for integers in ``--input`` at a model's float input, unless ``--quantised`` is given.

    Parameters
    ----------
    frames : Inputs or None
        Frames of ``--input``, if it is given.

    Raises
    ------
    InputError
        If there are such integers, or ``--quantised`` is given without ``--input``.
    """
    from hwgen.network import quantise

    if frames is None and arguments.quantised:
        raise InputError("--quantised describes the arrays of --input: give --input as well, or leave --quantised out")
    if frames is not None and not arguments.quantised:
        quantise.check_types(model.network, frames, "--quantised")


def frame_count(model: Model, frames: Inputs, labels: np.ndarray | None) -> int:
    """Return the number of frames that a command gives a model; unfit frames or labels raise InputError.

    Raises
    ------
    InputError
        If they do not fit.
    """
    from hwgen.report.page.checks import check_labels

    prepared = model.prepare(frames)
    count = len(next(iter(prepared.values())) if isinstance(prepared, dict) else prepared)
    if labels is not None:
        check_labels(labels, count, len(model.output_names), ragged=bool(model.ragged_outputs))
    return count


def report_option(sub: argparse.ArgumentParser) -> None:
    """Add the option ``--report`` to a command's parser: file for an HTML page with the results."""
    sub.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a report for a browser to this file; sections from other commands on the same design are kept",
    )


STEPS = "number of processes for a long search for an engine's plan (default: all cores)"
"""Help text of the option ``--jobs`` for commands that plan."""


def work_options(sub: argparse.ArgumentParser, jobs: str) -> None:
    """Add the options ``--jobs`` (with the help ``jobs``) and ``--cluster`` to a command's parser."""
    sub.add_argument("--jobs", type=positive_integer, metavar="N", help=jobs)
    sub.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="run the work on the Dask cluster with this scheduler, or with local:N on N local workers (needs the "
        "extra 'cluster')",
    )


def check_jobs(arguments: argparse.Namespace) -> None:
    """Raise InputError if the command line has both ``--jobs`` (parallel processes here) and ``--cluster``.

    Raises
    ------
    InputError
        If both options are given.
    """
    if arguments.jobs is not None and arguments.cluster is not None:
        raise InputError("--jobs applies to this machine only, not to a cluster: leave --jobs or --cluster out")


def board_options(sub: argparse.ArgumentParser, metavar: str, text: str, *, required: bool) -> None:
    """Add the option ``--board`` (help ``text``) and its alternative ``--part`` to a command's parser."""
    group = sub.add_mutually_exclusive_group(required=required)
    group.add_argument("--board", metavar=metavar, help=text)
    group.add_argument(
        "--part",
        dest="board",
        type=part,
        metavar="PART",
        help="a part without a board, such as xc7z010clg400-1 (100 MHz and 1 GB/s of memory, unless --clock or "
        "--bandwidth is given)",
    )


def steering_options(sub: argparse.ArgumentParser, *names: str) -> None:
    """Add a plan's options, with one value each, to a command's parser: those in ``names``, by default all."""
    for name, entry in _in_sections(names):
        _add(sub, name, entry, entry.help)


def _add(sub: argparse.ArgumentParser, name: str, entry: Option, help: str) -> None:
    """Add one option of a plan or a model, with a single value, to a command's parser."""
    argument = entry.kind.argument()
    if entry.kind.former:
        argument["type"] = _telling_new_names(name, entry, argument["type"])
    sub.add_argument(entry.kind.flag or flag(name), help=help, **argument)
    for further, argument in entry.kind.more_arguments().items():
        sub.add_argument(further, **argument)


def swept_options(sub: argparse.ArgumentParser) -> None:
    """Add all options of a plan to the parser of ``hwgen sweep``; most accept several values to combine."""
    entries = _in_sections()
    for name, entry in entries:
        if entry.swept is not None:
            parse = _telling_new_names(name, entry, entry.kind.parse_values)
            sub.add_argument(flag(name), help=entry.swept, metavar=entry.kind.swept_metavar, type=parse)
    steering_options(sub, *(name for name, entry in entries if entry.swept is None))


def _telling_new_names(name: str, entry: Option, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return an option's parser (text to value) that also prints the current name if a former name is used."""

    def parse_and_tell(text: str) -> Any:
        for word in text.split(","):
            if word in entry.kind.former:
                current = entry.kind.current(word)
                print(f"hwgen: {flag(name)} {word} is now called {flag(name)} {current}", file=sys.stderr)
        return parse(text)

    return parse_and_tell


def _in_sections(names: Sequence[str] = (), options: type = PlanOptions) -> list[tuple[str, Option]]:
    """Return a list of pairs (name, `Option`) of the options ``names``, by default all, in the help's order."""
    entries = [(name, entry) for name, entry in table(options).items() if not names or name in names]
    return sorted(entries, key=lambda entry: entry[1].section)


def given_options(arguments: argparse.Namespace, options: type = PlanOptions) -> dict[str, Any]:
    """Return a dict by Python name with the plan options (or ``options``) that the command line sets."""
    values = {name: entry.kind.given_value(arguments, name) for name, entry in table(options).items()}
    return {name: value for name, value in values.items() if value not in (None, False)}


def model_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a dict by Python name with the values of the model's options that the command line sets.

    Raises
    ------
    InputError
        If options of raw pixels are given without ``--input-type``, or make no sense.
    """
    return given_options(arguments, ModelOptions)


def plan_options(sub: argparse.ArgumentParser, *, with_plan: bool = True, board: bool = True) -> None:
    """Add the argument MODEL, the board and the options of a plan to a command's parser.

    ``with_plan`` adds ``--plan``, which follows an existing plan. ``board`` requires a board or a part.
    """
    model_options(sub)
    board_options(sub, "B", "a board (see 'hwgen boards') or a .toml file", required=board)
    steering_options(sub)
    if with_plan:
        sub.add_argument("--plan", metavar="plan.json", help="follow this plan instead of planning")
    else:
        sub.set_defaults(plan=None)
