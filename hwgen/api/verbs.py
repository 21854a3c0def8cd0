"""Functions of the Python interface that start from a model file, a PyTorch module or several models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hwgen.api.arrays import Inputs, model_options
from hwgen.api.model import Model
from hwgen.arguments import checked, shown
from hwgen.boards import Board
from hwgen.boards import load as load_board
from hwgen.errors import InputError
from hwgen.network.options import ModelOptions
from hwgen.options import documented
from hwgen.progress import Listener, followed, tell

if TYPE_CHECKING:
    import onnx

    from hwgen.explore.sweep import SweepTable
    from hwgen.report.check import Check


@checked
@partial(documented, options=ModelOptions)
def load(
    source: str | Path,
    calibration: Inputs | str | Path | None = None,
    bits: int | None = None,
    **options: Any,
) -> Model:
    """Return the `Model` read from an ``.onnx`` file or a built-in network's name, or only its first part.

    Parameters
    ----------
    source : str or Path
        An ``.onnx`` file, or the name of a built-in network (``vgg16:7@64x64``, in 16 bits ``vgg16:7@64x64,int16``).
    calibration, bits, options
        Options of the model, by the names of `hwgen.network.options.ModelOptions`.

    Returns
    -------
    Model
        Network in integers, with its golden model.

    Raises
    ------
    ModelError
        If the file is not a model, has an operator that hwgen can't build, or the hardware can't end at a tensor.
        Several operators that can't be built raise an ``ObstaclesError`` with a line for each.
    InputError
        If an option is unknown, or the calibration data or the pixels do not fit, or nothing is to be quantised.
    """
    from hwgen import network

    given = model_options(calibration, bits, options)
    tell(f"reading {source}")
    return Model(network.load(str(source), given))


@checked
def quantise(
    source: str | Path, calibration: Inputs | str | Path, output: str | Path, bits: int | None = None
) -> Model:
    """Quantise a float ONNX model with typical inputs, write it to a file, and return the result as a `Model`.

    Parameters
    ----------
    source : str or Path
        An ``.onnx`` file.
    calibration : array, several of them, or path
        Typical inputs (`hwgen.network.options.ModelOptions`).
    output : str or Path
        ``.onnx`` file to write. `Model.runtime` reads it for a comparison.
    bits : int, optional
        Bits of activations and weights: 8, the default, or 16.

    Returns
    -------
    Model
        Network in integers, with its golden model.

    Raises
    ------
    ModelError
        If the file is not a model, or the quantised model, which is written by then, can't be built.
    InputError
        If the calibration does not fit, the model is quantised already, or the file can't be written.
    """
    from hwgen import network

    tell(f"quantising {source}")
    return _write_and_read(network.quantised(str(source), model_options(calibration, bits, {})), output)


@checked
def from_torch(
    module: Any, example: Any, calibration: Any, output: str | Path | None = None, bits: int | None = None
) -> Model:
    """Export a PyTorch module to ONNX, quantise it with typical inputs, and return the quantised `Model`.

    Parameters
    ----------
    module : torch.nn.Module
        Network with float32 weights. It is exported in evaluation mode.
    example : tensor, or tuple of tensor
        Inputs of one call, in the model's shapes.
    calibration : tensor or array, or sequence or mapping of these
        Typical inputs, (frames, ...): one array for each input, in order or by name.
    output : str or Path, optional
        ``.onnx`` file for the quantised model, which is written. `Model.runtime` reads it for a comparison.
    bits : int, optional
        Bits of activations and weights: 8, the default, or 16.

    Returns
    -------
    Model
        Network in integers, with its golden model.

    Raises
    ------
    ToolError
        If torch or onnxscript is not installed.
    ModelError
        If PyTorch can't export the module, ONNX Runtime can't quantise it, or the quantised model can't be built.
    InputError
        If the calibration does not fit, or the file can't be written.
    """
    from hwgen.network import quantise, torch_export

    options = model_options(torch_export.arrays(calibration), bits, {})
    name = type(module).__name__
    tell(f"exporting {name}")
    exported = torch_export.exported(module, example, name)
    tell(f"quantising {name}")
    made = quantise.quantise(exported, options.calibration, name, 8 if options.bits is None else options.bits)
    if output is not None:
        return _write_and_read(made, output)
    with TemporaryDirectory() as folder:
        return _write_and_read(made, Path(folder) / f"{name}.onnx")


def _write_and_read(model: onnx.ModelProto, output: str | Path) -> Model:
    """Write a quantised ONNX model to a file, read it again, and return it as a `Model`.

    Returns
    -------
    Model
        Network in integers.

    Raises
    ------
    InputError
        If the file can't be written.
    """
    try:
        Path(output).write_bytes(model.SerializeToString())
    except OSError as error:
        raise InputError(f"output {output} can't be written: {error.strerror or error}") from error
    return load(output)


@checked
@partial(documented, options=ModelOptions)
def check(
    source: str | Path,
    calibration: Inputs | str | Path | None = None,
    bits: int | None = None,
    *,
    board: str | Board | None = None,
    **options: Any,
) -> Check:
    """Return a `Check` of a model: for each operator, whether it is built, folded, run on the host or unsupported.

    Parameters
    ----------
    source, calibration, bits, options
        As for ``load``. With ``until`` the operators after these tensors are left to the host.
    board : str or Board, optional
        Board whose on-chip memory is compared with the bits of all weights.

    Returns
    -------
    Check
        Verdict on each operator.

    Raises
    ------
    ModelError
        If the file is not a valid model, or the hardware can't end at ``until``.
    InputError
        If an option is unknown, or the calibration data or the pixels do not fit, or nothing is to be quantised.
    BoardError
        If the board is unknown.
    """
    from hwgen import network
    from hwgen.report.check import Check

    if board is not None and not isinstance(board, Board):
        board = load_board(str(board))
    return Check(network.survey(str(source), model_options(calibration, bits, options)), board)


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
) -> SweepTable:
    """Return a `SweepTable` with the plans of models for boards, for every combination of option values.

    Parameters
    ----------
    models : Model, or sequence of Model
        Models to plan.
    board : str or Board, or sequence of these
        Boards to plan for.
    front : sequence of str
        Figures of the Pareto front, each better if smaller (`hwgen.explore.sweep.GOALS`).
    cluster : str, optional
        Address of a Dask scheduler whose workers make the plans, or ``local:N`` for N workers on this machine; if not
        given, processes of this machine make them.
    jobs : int, optional
        Number of plans that are made at a time on this machine; one per processor if not given.
    progress : bool or callable
        Whether progress is shown on stderr, or a function that receives it (`hwgen.progress`).
    options
        Options of `Model.plan`: each one value, or a list of values to combine.

    Returns
    -------
    Table
        ``rows`` has one dict per requested plan, with the plan's figures or the reason why there is none.

    Raises
    ------
    BoardError
        If a board is unknown.
    InputError
        If an option is unknown, ``jobs`` is not a positive integer, or there are more than 100,000 plans.
    PlanError
        If no combination of the options makes sense.
    ToolError
        If the cluster can't be reached.
    """
    from hwgen import work
    from hwgen.explore.sweep import Sweep
    from hwgen.report import notebook

    work.check_count(jobs)
    boards = [board] if isinstance(board, str | Board) else _check_sequence(board, str | Board, "board", "boards")
    taken = [models] if isinstance(models, Model) else _check_sequence(models, Model, "models", "Models")
    planned_sweep = Sweep(
        networks=[model.network for model in taken],
        boards=[entry if isinstance(entry, Board) else load_board(entry) for entry in boards],
        options={name: list(value) if isinstance(value, list | range) else [value] for name, value in options.items()},
        front=tuple(front),
    )
    with followed(progress), work.pool(cluster, min(jobs or work.cores(), planned_sweep.count)) as pool:
        return replace(planned_sweep.run(pool), html=notebook.sweep)


def _check_sequence(sequence: Any, type_: Any, name: str, what: str) -> list[Any]:
    """Return the argument ``name`` as a list; InputError unless it is a non-empty sequence of ``type_``.

    Returns
    -------
    list
        Entries of the argument.

    Raises
    ------
    InputError
        If the argument is anything else.
    """
    one = {"board": "a board's name or a Board", "models": "a Model"}[name]
    if not isinstance(sequence, list | tuple) or not sequence or not all(isinstance(item, type_) for item in sequence):
        types = ", ".join(type(x).__name__ for x in sequence) if isinstance(sequence, list | tuple) else shown(sequence)
        raise InputError(f"{name} must be {one}, or a sequence of {what}, not {types[:60] or 'empty'}")
    return list(sequence)
