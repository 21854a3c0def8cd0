"""Verbs that begin with a model's file or with several models: load, check, sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.api.arrays import Inputs, read_inputs
from hwgen.api.model import Model
from hwgen.arguments import checked, shown
from hwgen.boards import Board
from hwgen.boards import load as load_board
from hwgen.errors import InputError
from hwgen.progress import Listener, followed, tell

if TYPE_CHECKING:
    from hwgen.explore.sweep import Table
    from hwgen.report.check import Check

__all__ = ["check", "load", "sweep"]


@checked
def load(
    source: str | Path,
    calibration: Inputs | str | Path | None = None,
    bits: int | None = None,
    *,
    until: str | Sequence[str] | None = None,
) -> Model:
    """Read a model, or the first part of one.

    Parameters
    ----------
    source : str or Path
        An ``.onnx`` file, or the name of a built-in network (``vgg16:7@64x64``, in 16 bits ``vgg16:7@64x64,int16``).
    calibration : ndarray or path of a ``.npy`` file, optional
        Typical inputs in the model's shape, float32: a float model is then quantised by ONNX Runtime. Of a model with
        several inputs a sequence of arrays, a dict of them by name, or an ``.npz`` file.
    bits : int, optional
        With ``calibration``: of activations and weights, 8 (as without it) or 16.
    until : str or sequence of str, optional
        Build the part up to these tensors (by their names in the model), or, with ``auto``, all that comes before what
        can't be built. ONNX Runtime runs the rest on the host, so that outputs are still those of the whole model.

    Raises
    ------
    ModelError
        If the file is not a model, holds something that hwgen does not build, or the hardware can't end at a tensor.
        Several things that can't be built are an ``ObstaclesError`` with a line for each.
    InputError
        If the calibration data does not fit, or nothing is to be quantised.
    """
    from hwgen import network

    if isinstance(calibration, str | Path):
        calibration = read_inputs([calibration], "calibration")
    tell(f"reading {source}")
    return Model(network.load(str(source), calibration=calibration, bits=bits, until=until))


@checked
def check(
    source: str | Path,
    calibration: Inputs | str | Path | None = None,
    bits: int | None = None,
    *,
    board: str | Board | None = None,
) -> Check:
    """Say of each operator of a model whether it is built, folded, left to the host, or not supported.

    Parameters
    ----------
    source, calibration, bits
        As for ``load``.
    board : str or Board, optional
        Also hold the bits of all weights against this board's memory.

    Raises
    ------
    ModelError
        If the file is not a valid model.
    InputError
        If the calibration data does not fit, or nothing is to be quantised.
    BoardError
        If the board is unknown.
    """
    from hwgen import network
    from hwgen.report.check import Check

    if board is not None and not isinstance(board, Board):
        board = load_board(str(board))
    if isinstance(calibration, str | Path):
        calibration = read_inputs([calibration], "calibration")
    return Check(network.survey(str(source), calibration=calibration, bits=bits), board)


@checked
def sweep(
    models: Model | Sequence[Model],
    board: str | Board | Sequence[str | Board],
    *,
    front: Sequence[str] = ("interval_ms", "dsp"),
    cluster: str | None = None,
    jobs: int | None = None,
    progress: bool | Listener = False,
    **options: Any,
) -> Table:
    """Plan models for boards, with every combination of the values of some options.

    Parameters
    ----------
    models : Model, or sequence of Model
    board : str or Board, or sequence of these
    front : sequence of str
        The figures that are weighed against each other, less being better (`hwgen.explore.sweep.GOALS`).
    cluster : str, optional
        Make the plans on the cluster of a Dask scheduler at this address, or with ``local:N`` on one of N workers here;
        otherwise in processes of this machine.
    jobs : int, optional
        Plans made at a time on this machine; as many as there are processors if not given.
    progress : bool or callable
        Show on stderr how far it is, or tell a function (`hwgen.progress`).
    options
        As of `Model.plan`; each one value, or a list of values to take in turn.

    Returns
    -------
    Table
        ``rows`` are dicts, one a plan that was asked for, with why there is none where there is none.

    Raises
    ------
    BoardError
        If a board is unknown.
    InputError
        If an option is unknown, ``jobs`` is no positive integer, or there are more than 100,000 plans.
    PlanError
        If no combination of the options makes sense.
    ToolError
        If there is no such cluster.
    """
    from hwgen import work
    from hwgen.explore.sweep import Sweep
    from hwgen.report import notebook

    work.check_count(jobs)
    boards = [board] if isinstance(board, str | Board) else _several(board, str | Board, "board", "boards")
    taken = [models] if isinstance(models, Model) else _several(models, Model, "models", "Models")
    asked = Sweep(
        networks=[model.network for model in taken],
        boards=[each if isinstance(each, Board) else load_board(each) for each in boards],
        options={name: list(value) if isinstance(value, list | range) else [value] for name, value in options.items()},
        front=tuple(front),
    )
    with followed(progress), work.pool(cluster, min(jobs or work.cores(), asked.count)) as pool:
        return replace(asked.run(pool), html=notebook.sweep)


def _several(given: Any, kind: Any, name: str, what: str) -> list[Any]:
    """Return the members of a sequence, which must not be empty, and all of one kind."""
    one = {"board": "a board's name or a Board", "models": "a Model"}[name]
    if not isinstance(given, list | tuple) or not given or not all(isinstance(each, kind) for each in given):
        kinds = ", ".join(type(each).__name__ for each in given) if isinstance(given, list | tuple) else shown(given)
        raise InputError(f"{name} must be {one}, or a sequence of {what}, not {kinds[:60] or 'empty'}")
    return list(given)
