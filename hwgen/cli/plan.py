"""Commands ``hwgen plan`` and ``hwgen build``, and functions of all commands that load a model and plan it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen import processes
from hwgen.cli.options import STEPS, check_jobs, given_options, model_given, plan_options, report_option, work_options
from hwgen.cli.outputs import Outputs, add_page
from hwgen.errors import InputError
from hwgen.options import CONSTANT, PYRAMID, choosing, flag, requested_template, steering

if TYPE_CHECKING:
    from hwgen.api import Design, Model
    from hwgen.boards import Board
    from hwgen.plan.planner import BestPlan


def load(arguments: argparse.Namespace) -> Model:
    """Return the command line's model (a `Model`), after printing its warnings and what is left out of it.

    With ``--plan`` and no ``--until``, the model ends at the same tensors as the plan.
    """
    from hwgen import api

    until = _until_of(getattr(arguments, "plan", None))
    model = api.load(arguments.model, **{"until": until, **model_given(arguments)})
    tell_of(model)
    return model


def tell_of(model: Model) -> None:
    """Print which parts of a model are left out (stdout), and its warnings (stderr)."""
    for reason in model.network.left_out:
        print(f"left out: {reason}")
    for reason in model.network.warnings:
        print(f"hwgen: warning: {reason}", file=sys.stderr)


def _until_of(plan: str | None) -> list[str] | None:
    """Return a list of the names of the tensors where a ``plan.json`` ends its model; ``None`` without a readable plan.

    An unreadable plan is refused later, when the plan itself is loaded.
    """
    from hwgen.plan import document

    if plan is None:
        return None
    try:
        return document.until(Path(plan).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def board_of(arguments: argparse.Namespace) -> Board:
    """Return the `Board` that ``--board`` or ``--part`` names."""
    from hwgen.boards import load as load_board

    return load_board(arguments.board)


def planned(arguments: argparse.Namespace) -> Design:
    """Return the `Design` of the command line's model: planned by the options, or as ``--plan`` says."""
    board = board_of(arguments)  # before the model, because a board is loaded faster
    return steered(load(arguments), board, arguments)


def steered(model: Model, board: Board, arguments: argparse.Namespace) -> Design:
    """Return a loaded model's `Design` for a board: planned by the command line's options, or as ``--plan`` says.

    Notes on options without effect are printed.

    Raises
    ------
    InputError
        If ``--plan`` is given together with options that steer a plan.
    """
    from hwgen.plan.planner import watched

    options = request_options(arguments)
    if arguments.plan is not None and options:
        flags = " and ".join(flag(name) for name in options)
        raise InputError(f"--plan gives a finished plan, which {flags} can't change: leave one of them out")
    with watched() as best:
        try:
            design = model.plan(board, plan=arguments.plan, **side_by_side(arguments), **options)
        except (KeyboardInterrupt, processes.Stopped):
            print(best_so_far(model, best))
            raise
    for note in (check_steering(arguments, design), without_steps(arguments, design)):
        if note:
            print(note)
    return design


def best_so_far(model: Model, best: BestPlan) -> str:
    """Return the text shown if a user interrupts planning: the best plan so far as a table, if any."""
    from hwgen.api.model import design_of

    if best.plan is None:
        return "interrupted before any plan was found; nothing was written"
    lines = design_of(model, best.plan).table()
    return f"interrupted: this is the best plan found so far; nothing was written\n{lines}"


def without_steps(arguments: argparse.Namespace, design: Design) -> str | None:
    """Return a note (text) if ``--jobs`` or ``--cluster`` had no effect on a search; otherwise ``None``."""
    if arguments.verb not in ("plan", "build", "compile"):
        return None
    option = next((name for name in ("jobs", "cluster") if getattr(arguments, name) is not None), None)
    if option is None:
        return None
    if arguments.plan is not None:
        return f"--{option} has no effect: --plan gives a finished plan, so nothing is searched"
    if any(not group.template.holds_weights for group in design.plan.groups):
        return None
    return f"--{option} has no effect: only plans for an engine (--template engine) are searched in parallel"


def side_by_side(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return ``cluster`` and ``jobs`` as a dict of keyword arguments, which choose a search's parallel workers.

    Both are ``None`` without these options; then one process per core works.
    """
    cluster = getattr(arguments, "cluster", None)
    return {"cluster": cluster, "jobs": None if cluster else getattr(arguments, "jobs", None)}


def request_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a dict of keyword arguments of `hwgen.plan.Request`: the options that the command line sets."""
    from hwgen.templates import TEMPLATES

    options = given_options(arguments)
    template = TEMPLATES.get(requested_template(options) or "")
    if arguments.verb == "simulate" and (arguments.plan is not None or template is None or template.holds_weights):
        options.pop("bandwidth", None)  # limits the simulation; only plans that compute from off-chip memory need it
    return options


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen plan`` to a parser."""
    plan_options(parser, with_plan=False)
    work_options(parser, STEPS)
    parser.add_argument("-o", "--output", metavar="plan.json", help="also write the plan to this file")
    report_option(parser)


def plan(arguments: argparse.Namespace) -> int:
    """Run ``hwgen plan`` and return the exit status: 1 if the plan can't be built yet, else 0.

    The plan is printed as a table, and written where the options name files.
    """
    check_jobs(arguments)
    outputs = Outputs(arguments)
    board = board_of(arguments)
    from hwgen import network
    from hwgen.plan import Request
    from hwgen.plan.alternatives import what_can_be_built
    from hwgen.templates import TEMPLATES
    from hwgen.templates.base import layer_weight_bits, weight_shortage

    template = TEMPLATES.get(requested_template(request_options(arguments)) or "")
    is_loaded = arguments.weights not in (None, CONSTANT)

    def refused(weights: list[tuple[str, int]]) -> bool:
        if template is not None and not template.holds_weights:
            return False
        if refusal := weight_shortage(weights, board, is_loaded):
            print(f"{arguments.model} does not fit with all weights on chip: {refusal}", flush=True)
        return refusal is not None

    # Before a built-in network is quantised and any network is planned, because both can take long.
    is_refused = arguments.until is None and refused(network.weight_bits(arguments.model))
    model = load(arguments)
    weights = layer_weight_bits(model.network.layers)
    # The planner soon refuses a single layer that does not fit.
    if not is_refused and not any(weight_shortage([layer], board, is_loaded) for layer in weights):
        refused(weights)
    design = steered(model, board, arguments)
    outputs.add(arguments.output, design.to_json().encode())
    if arguments.report is not None:
        add_page(outputs, arguments.report, design.document())
    outputs.write()
    print(design.table(), flush=True)
    if design.plan.obstacle is None:
        return 0
    instead = what_can_be_built(design.plan, Request(**request_options(arguments)))
    print(f"hwgen: this plan can't be built; {instead}", file=sys.stderr)
    return 1


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen build`` to a parser."""
    plan_options(parser)
    work_options(parser, STEPS)
    parser.add_argument("-o", "--output", metavar="DIR", help="folder to write (default: build/NAME-BOARD)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite files in the folder that hwgen did not write, or that were changed since",
    )


def build(arguments: argparse.Namespace) -> int:
    """Run ``hwgen build``, which prints the plan and writes the result folder, and return the exit status."""
    from hwgen import emit
    from hwgen.emit import manifest

    check_jobs(arguments)
    emit.check_folder("build" if arguments.output is None else arguments.output)
    design = planned(arguments)
    print(design.table())
    folder = design.build(arguments.output, say=print, force=arguments.force)
    written = {name.split("/")[0] for name in (*manifest.read(folder), manifest.NAME)}
    print(f"wrote {folder}: " + ", ".join(sorted(written)))
    return 0


def check_steering(arguments: argparse.Namespace, design: Design) -> str | None:
    """Return a note (text) on the first pyramid option without effect on a design's plan; ``None`` if all have some.

    Raises
    ------
    InputError
        If such an option asks for pyramids, and the plan has none.
    """
    given = {name: value for name in steering(PYRAMID) if (value := getattr(arguments, name)) is not None}
    steered = [group for group in design.plan.groups if {*given} <= {*steering(group.template.name)}]
    if not steered and (names := choosing(given)):
        raise InputError(
            f"{' and '.join(map(flag, names))} would have no effect, because no group of this plan uses pyramids: "
            "leave it out"
        )
    for name in given if steered else ():
        if all(group.template.is_moot(group.network, name) for group in steered):
            value = getattr(arguments, name)
            return f"--{name} {value} has no effect: the tiles of this plan share no values"
    return None
