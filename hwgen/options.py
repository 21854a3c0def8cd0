"""Options that contradict each other, or that a plan gives nothing to do."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from hwgen.errors import InputError

if TYPE_CHECKING:
    from hwgen.api import Design

__all__ = ["check_jobs", "check_outputs", "check_steering"]

OUTPUTS = ("output", "json", "plot", "waves")
INPUTS = ("model", "layer", "input", "calibration", "plan", "board")


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse outputs that can't be written, two of one file, and those that would overwrite what is read.

    A file is the same by whatever path, symbolic link or hard link.

    Raises
    ------
    InputError
    """
    outputs = list(_paths(arguments, OUTPUTS))
    for name, path in outputs:
        _check_writable(path)
        for given, source in _paths(arguments, INPUTS):
            if os.path.isfile(source) and _same(path, source):
                what = "the model" if given in ("--model", "--layer") else f"what {given} reads"
                raise InputError(f"{name} {path} would overwrite {what}: give another file")
    for (one, path), (other, second) in combinations(outputs, 2):
        if _same(path, second):
            raise InputError(f"{one} {path} and {other} {second} are one file: give two")


def _paths(arguments: argparse.Namespace, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        value = getattr(arguments, name, None)
        for path in value if isinstance(value, list) else [value]:
            if path is not None:
                yield f"--{name}", path


def _check_writable(path: str) -> None:
    folder = Path(path).parent
    if Path(path).is_dir():
        raise InputError(f"output {path} can't be written: it is a folder")
    special = os.path.abspath(path).startswith(("/dev/", "/proc/"))  # /dev/stdout may lead to a plain file
    if os.path.exists(path) and (special or not os.path.isfile(path)):
        raise InputError(f"output {path} can't be written: it is no plain file")
    if not folder.is_dir():
        raise InputError(f"output {path} can't be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"output {path} can't be written: no permission to write in {folder}")


def _same(one: str, other: str) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def check_steering(arguments: argparse.Namespace, design: Design) -> str | None:
    """What is to be said of options for pyramids that make no difference to a plan; ``None`` if there is nothing.

    Raises
    ------
    InputError
        If the plan has no pyramids at all.
    """
    given = [name for name in ("tile", "overlap") if getattr(arguments, name) is not None]
    steered = [group for group in design.plan.groups if set(given) <= {*group.template.options}]
    if not given:
        return None
    if not steered:
        raise InputError(
            f"{' and '.join(f'--{name}' for name in given)} would have no effect: no group of this plan is computed "
            "tile by tile; leave it out"
        )
    for name in given:
        if all(group.template.is_moot(group.network, name) for group in steered):
            value = getattr(arguments, name)
            return f"--{name} {value} makes no difference: the pyramids of this plan share nothing"
    return None


def check_jobs(arguments: argparse.Namespace, frames: int) -> str | None:
    """What is to be said of ``--jobs`` where so many frames are too few for so many; ``None`` if they aren't.

    Raises
    ------
    InputError
        If several simulations can't run side by side at all.
    """
    from hwgen.simulate import LEAST_SHARE

    if arguments.jobs is None or arguments.jobs == 1:
        return None
    if arguments.simulator != "verilator":
        raise InputError(f"--jobs goes with --simulator verilator only, not with {arguments.simulator}")
    if arguments.waves is not None:
        raise InputError("--jobs makes several simulations, and --waves are of one: leave one of them out")
    most = max(1, frames // LEAST_SHARE)
    if most >= arguments.jobs:
        return None
    return f"--jobs {arguments.jobs}: {frames:,} frames make {most}, since each has {LEAST_SHARE} frames or more"
