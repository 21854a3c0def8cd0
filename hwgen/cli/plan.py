"""``hwgen plan`` and ``hwgen build``, and how every verb with a plan loads a model and plans it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.cli.options import STEPS, check_jobs, given_options, plan_options, report_option, work_options
from hwgen.cli.outputs import Outputs, add_page
from hwgen.errors import InputError
from hwgen.options import PYRAMID, asked_template, flag, steering

if TYPE_CHECKING:
    from hwgen.api import Design, Model
    from hwgen.boards import Board


def load(arguments: argparse.Namespace) -> Model:
    """The model; says what is left out of it, and what to beware of."""
    from hwgen import api

    until = getattr(arguments, "until", None) or _until_of(getattr(arguments, "plan", None))
    model = api.load(arguments.model, calibration=arguments.calibration, bits=arguments.bits, until=until)
    tell_of(model)
    return model


def tell_of(model: Model) -> None:
    """Print what is left out of a model, and what to beware of."""
    for reason in model.network.left_out:
        print(f"left out: {reason}")
    for reason in model.network.warnings:
        print(f"hwgen: warning: {reason}", file=sys.stderr)


def _until_of(plan: str | None) -> list[str] | None:
    """The tensors up to which a given plan builds its model; what is wrong with the plan is said when it is read."""
    from hwgen.plan import document

    if plan is None:
        return None
    try:
        return document.until(Path(plan).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def board_of(arguments: argparse.Namespace) -> Board:
    """The board that ``--board`` names."""
    from hwgen.boards import load as load_board

    return load_board(arguments.board)


def planned(arguments: argparse.Namespace) -> Design:
    """The model's plan as the options steer it, or the one that is given."""
    board = board_of(arguments)  # before the model: it is the cheaper of the two
    return steered(load(arguments), board, arguments)


def steered(model: Model, board: Board, arguments: argparse.Namespace) -> Design:
    """The same of a model that is loaded already."""
    options = asked(arguments)
    if arguments.plan is not None and options:
        given = " and ".join(flag(name) for name in options)
        raise InputError(f"a given plan is not planned again: give {given} or --plan, not both")
    design = model.plan(board, plan=arguments.plan, **side_by_side(arguments), **options)
    for note in (check_steering(arguments, design), without_steps(arguments, design)):
        if note:
            print(note)
    return design


def without_steps(arguments: argparse.Namespace, design: Design) -> str | None:
    """What is to be said of ``--jobs`` and ``--cluster`` where there was nothing to do side by side."""
    if arguments.verb not in ("plan", "build", "compile"):
        return None
    given = next((name for name in ("jobs", "cluster") if getattr(arguments, name) is not None), None)
    if given is None:
        return None
    if arguments.plan is not None:
        return f"--{given} makes no difference: a plan that is given is not searched"
    if any(not group.template.holds_weights for group in design.plan.groups):
        return None
    return f"--{given} makes no difference: only plans on an engine (--template engine) are searched side by side"


def side_by_side(arguments: argparse.Namespace) -> dict[str, Any]:
    """Where a long search of a plan goes; of a verb that says nothing of it, as many processes as there are cores."""
    cluster = getattr(arguments, "cluster", None)
    return {"cluster": cluster, "jobs": None if cluster else getattr(arguments, "jobs", None)}


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options that were given ask of a plan: parameters of a `hwgen.plan.Request`."""
    from hwgen.templates import TEMPLATES

    found = given_options(arguments)
    template = TEMPLATES.get(asked_template(found) or "")
    if arguments.verb == "simulate" and (arguments.plan is not None or template is None or template.holds_weights):
        found.pop("bandwidth", None)  # of the simulation; only what computes from off-chip memory is planned for it
    return found


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen plan``."""
    plan_options(parser, given=False)
    work_options(parser, STEPS)
    parser.add_argument("-o", "--output", metavar="plan.json", help="also write the plan there")
    report_option(parser)


def plan(arguments: argparse.Namespace) -> int:
    """Plan, print, write; returns the exit status."""
    check_jobs(arguments)
    outputs = Outputs(arguments)
    board = board_of(arguments)
    from hwgen import network
    from hwgen.plan import Request
    from hwgen.plan.instead import what_can_be_built
    from hwgen.templates import TEMPLATES
    from hwgen.templates.budget import weight_shortage, weights_of

    template = TEMPLATES.get(asked_template(asked(arguments)) or "")

    def refused(weights: list[tuple[str, int]]) -> bool:
        if template is not None and not template.holds_weights:
            return False
        if refusal := weight_shortage(weights, board):
            print(f"{arguments.model} doesn't fit with all weights on the chip: {refusal}", flush=True)
        return refusal is not None

    # Before a built-in network is quantised, and before any is planned: both may take a while.
    said = arguments.until is None and refused(network.weight_bits(arguments.model))
    model = load(arguments)
    weights = weights_of(model.network.layers)
    if not said and not any(weight_shortage([layer], board) for layer in weights):  # a single layer is soon refused
        refused(weights)
    design = steered(model, board, arguments)
    outputs.add(arguments.output, design.to_json().encode())
    if arguments.report is not None:
        add_page(outputs, arguments.report, design.document())
    outputs.write()
    print(design.table(), flush=True)
    if design.plan.obstacle is None:
        return 0
    instead = what_can_be_built(design.plan, Request(**asked(arguments)))
    print(f"hwgen: this plan can't be built; {instead}", file=sys.stderr)
    return 1


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen build``."""
    plan_options(parser)
    work_options(parser, STEPS)
    parser.add_argument("-o", "--output", metavar="DIR", help="where to (default: build/NAME-BOARD)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite files there that hwgen did not write, or that were changed since",
    )


def build(arguments: argparse.Namespace) -> int:
    """Plan, print, and write everything into a folder; returns the exit status."""
    from hwgen import emit

    check_jobs(arguments)
    emit.check_folder("build" if arguments.output is None else arguments.output)
    design = planned(arguments)
    print(design.table())
    folder = design.build(arguments.output, say=print, force=arguments.force)
    print(f"wrote {folder}: " + ", ".join(sorted(file.name for file in folder.iterdir())))
    return 0


def check_steering(arguments: argparse.Namespace, design: Design) -> str | None:
    """What is to be said of options for pyramids that make no difference to a plan; ``None`` if there is nothing.

    Raises
    ------
    InputError
        If the plan has no pyramids at all.
    """
    given = [name for name in steering(PYRAMID) if getattr(arguments, name) is not None]
    steered = [group for group in design.plan.groups if set(given) <= {*steering(group.template.name)}]
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
