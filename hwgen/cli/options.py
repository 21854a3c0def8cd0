"""What the verbs' options have in common: the parser, kinds of values, and options that several verbs take."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hwgen.errors import InputError
from hwgen.options import Option, flag, table
from hwgen.options.kinds import positive

FRAMES = (
    "frames in the model's shape, such as (n, C, H, W), (n, H, W, C) or (n, features), float32 or its integer type; of "
    "a model with several inputs give --input for each, in its order, or an X.npz by the inputs' names"
)
AS_GIVEN = "as the model gives them; of a model with several outputs a Y.npz, by the outputs' names"
INTEGERS = "write the last integer tensor, at which the hardware ends, instead of the model's own output"


class Parser(argparse.ArgumentParser):
    """Complains in one line, like everything else, and takes no abbreviated options."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see '{self.prog} --help')")


def latency(text: str) -> int:
    """Cycles, 0 or more."""
    if not re.fullmatch(r"\d{1,6}", text):
        raise argparse.ArgumentTypeError(f"must be a number of cycles, 0 or more, not {text!r}")
    return int(text)


def part(text: str) -> str:
    """Return the name of a part that a family has."""
    from hwgen.devices import FAMILIES, family_of

    if family_of(text) is None:
        known = ", or ".join(
            f"a part of the {family.title}, such as {family.part_example}" for family in FAMILIES.values()
        )
        raise argparse.ArgumentTypeError(f"must be {known}, not {text!r}")
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


def steering_options(sub: argparse.ArgumentParser, *names: str) -> None:
    """Options that steer a plan, one value each; all of them if none is named."""
    for name, entry in _in_sections(names):
        argument = entry.kind.argument()
        if entry.kind.former:
            argument["type"] = _telling_new_names(name, entry, argument["type"])
        sub.add_argument(flag(name), help=entry.help, **argument)


def swept_options(sub: argparse.ArgumentParser) -> None:
    """Options that steer a plan, several values each where a sweep takes several."""
    entries = _in_sections()
    for name, entry in entries:
        if entry.swept is not None:
            parse = _telling_new_names(name, entry, entry.kind.parse_values)
            sub.add_argument(flag(name), help=entry.swept, metavar=entry.kind.swept_metavar, type=parse)
    steering_options(sub, *(name for name, entry in entries if entry.swept is None))


def _telling_new_names(name: str, entry: Option, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the parser of an option's text that also prints a line on stderr for each former name in the text."""

    def parse_and_tell(text: str) -> Any:
        for word in text.split(","):
            if word in entry.kind.former:
                current = entry.kind.current(word)
                print(f"hwgen: {flag(name)} {word} is now called {flag(name)} {current}", file=sys.stderr)
        return parse(text)

    return parse_and_tell


def _in_sections(names: Sequence[str] = ()) -> list[tuple[str, Option]]:
    """Return the entries of some options, or of all of them, in the order of the help."""
    entries = [(name, entry) for name, entry in table().items() if not names or name in names]
    return sorted(entries, key=lambda entry: entry[1].section)


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of a plan that were given, by their names in Python."""
    return {name: value for name in table() if (value := getattr(arguments, name)) not in (None, False)}


def plan_options(sub: argparse.ArgumentParser, *, given: bool = True, board: bool = True) -> None:
    """MODEL, the board, and what steers a plan; ``given``: also ``--plan``; ``board``: there must be one."""
    model_options(sub)
    until_option(sub)
    board_options(sub, "B", "a board (see 'hwgen boards') or a .toml file", required=board)
    steering_options(sub)
    if given:
        sub.add_argument("--plan", metavar="plan.json", help="follow this plan instead of planning")
    else:
        sub.set_defaults(plan=None)
