"""``hwgen plan`` and ``hwgen build``, and how every verb with a plan loads a model and plans it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hwgen.cli.options import plan_options
from hwgen.cli.outputs import Outputs
from hwgen.errors import InputError

if TYPE_CHECKING:
    from hwgen.api import Design, Model
    from hwgen.boards import Board


def load(arguments: argparse.Namespace) -> Model:
    """The model; says what is left out of it, and what to beware of."""
    from hwgen import api

    model = api.load(arguments.model, calibration=arguments.calibration, bits=arguments.bits)
    for reason in model.network.left_out:
        print(f"left out: {reason}")
    for reason in model.network.warnings:
        print(f"hwgen: warning: {reason}", file=sys.stderr)
    return model


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
    if note := check_steering(arguments, design):
        print(note)
    return design


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen plan``."""
    plan_options(parser, given=False)
    parser.add_argument("-o", "--output", metavar="plan.json", help="also write the plan there")


def plan(arguments: argparse.Namespace) -> int:
    """Plan, print, write; returns the exit status."""
    outputs = Outputs(arguments)
    board = board_of(arguments)
    from hwgen import network
    from hwgen.plan.choice import weights_of
    from hwgen.plan.planner import sure_refusal, what_can_be_built

    def refused(weights: list[tuple[str, int]]) -> bool:
        if refusal := sure_refusal(weights, board):
            print(f"not all of {arguments.model} can be built: {refusal}", flush=True)
        return bool(refusal)

    # Before a built-in network is quantised, and before any is planned: both may take a while.
    said = refused(network.weight_bits(arguments.model))
    model = load(arguments)
    weights = weights_of(model.network.layers)
    if not said and not any(sure_refusal([layer], board) for layer in weights):  # a single layer is soon refused
        refused(weights)
    design = steered(model, board, arguments)
    outputs.add(arguments.output, design.to_json().encode())
    outputs.write()
    print(design.table(), flush=True)
    if design.plan.obstacle is None:
        return 0
    steering = {name: getattr(arguments, name) for name in ("macs_per_dsp", "template", "tile", "overlap")}
    print(f"hwgen: this plan can't be built; {what_can_be_built(design.plan, **steering)}", file=sys.stderr)
    return 1


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen build``."""
    plan_options(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="where to (default: build/NAME-BOARD)")


def build(arguments: argparse.Namespace) -> int:
    """Plan, print, and write everything into a folder; returns the exit status."""
    from hwgen import emit

    emit.check_folder(arguments.output or "build")
    design = planned(arguments)
    print(design.table())
    folder = design.build(arguments.output, say=print)
    print(f"wrote {folder}: " + ", ".join(sorted(file.name for file in folder.iterdir())))
    return 0


def check_steering(arguments: argparse.Namespace, design: Design) -> str | None:
    """What is to be said of options for pyramids that make no difference to a plan; ``None`` if there is nothing.

    Raises
    ------
    InputError
        If the plan has no pyramids at all.
    """
    given = [f"--{name}" for name in ("tile", "overlap") if getattr(arguments, name) is not None]
    tiled = [group for group in design.plan.groups if group.tiling is not None]
    if not given:
        return None
    if not tiled:
        raise InputError(
            f"{' and '.join(given)} would have no effect: no group of this plan is computed tile by tile; leave it out"
        )
    if arguments.overlap is None or not all(_shares_nothing(group) for group in tiled):
        return None
    return f"--overlap {arguments.overlap} makes no difference: the pyramids of this plan share nothing"


def _shares_nothing(group) -> bool:
    """Whether a group's tiles are the same whatever becomes of what pyramids share."""
    from hwgen.network.shapes import of_layer
    from hwgen.plan.tiles import KINDS, axes

    layers = [of_layer(layer) for layer in group.network.layers]
    return all(axes(layers, group.tiling.tile, kind) == group.tiles for kind in KINDS)
