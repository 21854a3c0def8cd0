"""Parts of the command line that several commands share: the parser, types of values, and options."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from hwgen.errors import InputError
from hwgen.options import Option, flag, table
from hwgen.options.kinds import positive

if TYPE_CHECKING:
    from hwgen.api import Inputs, Model
    from hwgen.network.pixels import Pixels

FRAMES = (
    "frames in the model's shape, such as (n, C, H, W), (n, H, W, C) or (n, features), float32 or its integer type "
    "(see --quantised); of a model with several inputs give --input for each, in its order, or an X.npz by the inputs' "
    "names"
)
AS_GIVEN = "as the model gives them; of a model with several outputs a Y.npz, by the outputs' names"
INTEGERS = "write the last integer tensor, at which the hardware ends, instead of the model's own output"


class Parser(argparse.ArgumentParser):
    """Parser of a command line that raises InputError with one line, and accepts no abbreviated options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)
        # Numbers with commas between them, such as -0.1,0.2, are values as well, and no options.
        self._negative_number_matcher = re.compile(r"^-(\d|\.\d)[\d.,eE+-]*$")

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{_with_nearest(message)} (see '{self.prog} --help')")


def _with_nearest(message: str) -> str:
    """Return an error message of argparse; one about a wrong choice proposes the nearest right one."""
    choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message)
    if choice is None:
        return message
    near = difflib.get_close_matches(choice[1], re.findall(r"[\w.-]+", choice[2]), n=1, cutoff=0.5)
    return f"{message}; did you mean {near[0]!r}?" if near else message


def latency(text: str) -> int:
    """Convert a number of cycles on the command line, 0 or more, to an integer, or raise ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"must be a number of cycles, 0 or more, not {text!r}")
    return int(text)


def part(text: str) -> str:
    """Return a part number unchanged, or raise ArgumentTypeError if no device family has the part."""
    from hwgen.devices import FAMILIES, capacity_error, family_of, spelling_error, unsupported_error

    if error := spelling_error(text) or capacity_error(text) or unsupported_error(text):
        raise argparse.ArgumentTypeError(error)
    if family_of(text) is None:
        *examples, last = [f"{family.part_example} ({family.title})" for family in FAMILIES.values()]
        raise argparse.ArgumentTypeError(f"must be a part, such as {', '.join(examples)} or {last}, not {text!r}")
    return text


def model_options(
    sub: argparse.ArgumentParser,
    calibration: str = "typical inputs: quantise a float model by them",
    bits: str = "with --calibration: bits of activations and weights (default 8)",
) -> None:
    """Add the argument MODEL, and the options that quantise a float model, to a command's parser.

    ``calibration`` and ``bits`` are the options' help.
    """
    sub.add_argument("model", metavar="MODEL", help="an .onnx file, or a built-in network (see 'hwgen models')")
    sub.add_argument("--calibration", metavar="X.npy", help=calibration)
    sub.add_argument("--bits", type=int, choices=[8, 16], help=bits)


def end_options(sub: argparse.ArgumentParser) -> None:
    """Add the options of a model's ends to a command's parser: ``--until``, and those of raw pixels as inputs."""
    sub.add_argument(
        "--until",
        metavar="TENSOR",
        help="build the part of the model up to this tensor, or with 'auto' what comes before the operators that can't "
        "be built; ONNX Runtime runs the rest on the host (see 'hwgen check')",
    )
    sub.add_argument(
        "--input-type",
        choices=["uint8"],
        help="inputs are raw pixels, 0 to 255, of which the hardware makes (pixel / 255 - mean) / deviation",
    )
    sub.add_argument("--mean", type=_numbers, metavar="M,..", help="with --input-type: of all channels or each (0)")
    sub.add_argument("--deviation", type=_numbers, metavar="D,..", help="with --input-type: likewise (1)")
    sub.add_argument(
        "--pixel-range", type=int, choices=[1, 255], help="with --input-type: 255 leaves the division by 255 out (1)"
    )


def _numbers(text: str) -> tuple[float, ...]:
    """Convert numbers with commas between them to a tuple, or raise ArgumentTypeError."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, or numbers with commas between them, not {text!r}"
        ) from None


def pixels_of(arguments: argparse.Namespace) -> Pixels | None:
    """Return the preprocessing of raw pixels that the command line gives; ``None`` without ``--input-type``.

    Raises
    ------
    InputError
        If options of raw pixels are given without it, or make no sense.
    """
    from hwgen.network.pixels import Pixels

    named = {"mean": "mean", "deviation": "deviation", "range": "pixel_range"}
    given = {field: getattr(arguments, name, None) for field, name in named.items()}
    settings = {field: value for field, value in given.items() if value is not None}
    if getattr(arguments, "input_type", None) is not None:
        return Pixels(**settings)
    if settings:
        raise InputError(f"{flag(named[next(iter(settings))])} is of raw pixels: give --input-type uint8 as well")
    return None


def quantised_option(sub: argparse.ArgumentParser) -> None:
    """Add ``--quantised`` to a command's parser: integers of ``--input`` are quantised already."""
    sub.add_argument(
        "--quantised",
        action="store_true",
        help="with --input: integers for a float input are quantised already (they are refused otherwise)",
    )


def check_frames(arguments: argparse.Namespace, model: Model, frames: Inputs | None) -> None:
    """Refuse integers of ``--input`` for a float input of the model, unless ``--quantised`` says what they are.

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
        raise InputError("--quantised says what --input holds, which is not given")
    if frames is not None and not arguments.quantised:
        quantise.check_types(model.network, frames, "--quantised")


def report_option(sub: argparse.ArgumentParser) -> None:
    """Add ``--report`` to a command's parser: the file of a page that shows the results in a browser."""
    sub.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page for a browser there; sections that other commands wrote for the same design stay",
    )


STEPS = "steps of a long search in parallel, for a plan on an engine (default: all cores)"
"""Help text of ``--jobs`` for commands that plan."""


def work_options(sub: argparse.ArgumentParser, jobs: str) -> None:
    """Add ``--jobs``, with the help ``jobs``, and ``--cluster`` to the parser of a command with parallel work."""
    sub.add_argument("--jobs", type=positive, metavar="N", help=jobs)
    sub.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="work on the cluster of this Dask scheduler, or with local:N on one of N workers here (needs the extra "
        "'cluster')",
    )


def check_jobs(arguments: argparse.Namespace) -> None:
    """Refuse a command line with both ``--jobs`` and ``--cluster``.

    Raises
    ------
    InputError
        If both options are given.
    """
    if arguments.jobs is not None and arguments.cluster is not None:
        raise InputError("--jobs is of this machine, and a cluster knows how much it does at a time: leave one out")


def board_options(sub: argparse.ArgumentParser, metavar: str, text: str, *, required: bool) -> None:
    """Add ``--board``, with help ``text`` and ``metavar``, and its alternative ``--part`` to a command's parser."""
    group = sub.add_mutually_exclusive_group(required=required)
    group.add_argument("--board", metavar=metavar, help=text)
    group.add_argument(
        "--part",
        dest="board",
        type=part,
        metavar="PART",
        help="a part without a board, such as xc7z010clg400-1: at 100 MHz, with 1 GB/s of memory, unless --clock and "
        "--bandwidth say otherwise",
    )


def steering_options(sub: argparse.ArgumentParser, *names: str) -> None:
    """Add the plan's options in ``names``, or all without names, to a command's parser, with one value each."""
    for name, entry in _in_sections(names):
        argument = entry.kind.argument()
        if entry.kind.former:
            argument["type"] = _telling_new_names(name, entry, argument["type"])
        sub.add_argument(flag(name), help=entry.help, **argument)


def swept_options(sub: argparse.ArgumentParser) -> None:
    """Add all options of a plan to the parser of ``hwgen sweep``, most of them with several values to combine."""
    entries = _in_sections()
    for name, entry in entries:
        if entry.swept is not None:
            parse = _telling_new_names(name, entry, entry.kind.parse_values)
            sub.add_argument(flag(name), help=entry.swept, metavar=entry.kind.swept_metavar, type=parse)
    steering_options(sub, *(name for name, entry in entries if entry.swept is None))


def _telling_new_names(name: str, entry: Option, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap an option's ``parse`` function to print on stderr the present name of each former name in the text."""

    def parse_and_tell(text: str) -> Any:
        for word in text.split(","):
            if word in entry.kind.former:
                current = entry.kind.current(word)
                print(f"hwgen: {flag(name)} {word} is now called {flag(name)} {current}", file=sys.stderr)
        return parse(text)

    return parse_and_tell


def _in_sections(names: Sequence[str] = ()) -> list[tuple[str, Option]]:
    """Return pairs of name and entry of the plan's options in ``names``, or of all, in the order of the help."""
    entries = [(name, entry) for name, entry in table().items() if not names or name in names]
    return sorted(entries, key=lambda entry: entry[1].section)


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the plan's options that the command line sets, by the options' names in Python."""
    return {name: value for name in table() if (value := getattr(arguments, name)) not in (None, False)}


def plan_options(sub: argparse.ArgumentParser, *, with_plan: bool = True, board: bool = True) -> None:
    """Add MODEL, the board and the options of a plan to a command's parser.

    ``with_plan`` adds ``--plan``, which follows an existing plan. ``board`` requires a board or a part.
    """
    model_options(sub)
    end_options(sub)
    board_options(sub, "B", "a board (see 'hwgen boards') or a .toml file", required=board)
    steering_options(sub)
    if with_plan:
        sub.add_argument("--plan", metavar="plan.json", help="follow this plan instead of planning")
    else:
        sub.set_defaults(plan=None)
