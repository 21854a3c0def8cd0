"""The Python interface: the verbs of the command line on NumPy arrays.

    model = hwgen.load("digits.onnx")
    design = model.plan(board="zedboard")
    design.build("build/digits-zedboard")
    result = design.simulate(images)        # (n, C, H, W), float32 or the model's integer type
    assert result.mismatches == 0
    classes = result.outputs.argmax(axis=1)  # what the model itself gives, in its type and shape

Whatever can't work raises a subclass of ``HwgenError`` whose text is one line.
"""

from __future__ import annotations

import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from hwgen.arguments import checked, shown
from hwgen.boards import Board
from hwgen.boards import load as load_board
from hwgen.errors import InputError, PlanError
from hwgen.options import documented
from hwgen.progress import Listener, followed, tell

if TYPE_CHECKING:
    from hwgen.emit.engine import Circuit
    from hwgen.emit.weights import Loadable
    from hwgen.explore.sweep import Table
    from hwgen.gateware.accelerator import AcceleratorConfig
    from hwgen.gateware.engine.config import EngineConfig
    from hwgen.network.graph import Network
    from hwgen.network.maps import FeatureMap
    from hwgen.network.onnx.layers import RuntimeLayers
    from hwgen.plan import Plan
    from hwgen.program.compile import Schedule
    from hwgen.program.file import Program
    from hwgen.report.check import Check
    from hwgen.schedule.engine import MemoryTiming
    from hwgen.simulate import Options, Run, Simulator
    from hwgen.simulate.check import Mismatch
    from hwgen.simulate.compare import Comparison, Seen
    from hwgen.templates.tile import TileGroup

__all__ = ["Design", "Model", "Result", "check", "load", "read_array", "sweep"]

Values = np.ndarray | dict[str, np.ndarray]
"""What a model with one output gives; or, where there are several, what each of them gives, by the model's names."""
Inputs = np.ndarray | Sequence[np.ndarray] | Mapping[str, np.ndarray]
"""What a model with one input takes; or, where there are several, what each takes, in order or by the model's names."""

_MOST_VALUES = 1 << 32
"""Of random frames."""


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


def read_inputs(paths: Sequence[str | Path], what: str = "input") -> Inputs:
    """The frames in some files: a ``.npy`` array for each input, or all of them in a ``.npz`` archive, by name.

    ``what`` they are called in messages.

    Raises
    ------
    InputError
        If a file can't be read, or is no such array or archive.
    """
    if len(paths) == 1:
        return (read_archive if str(paths[0]).endswith(".npz") else read_array)(paths[0], what)
    return [read_array(path, what) for path in paths]


def read_archive(path: str | Path, what: str = "input") -> dict[str, np.ndarray]:
    """The arrays in a ``.npz`` file, by name; ``what`` it is called in messages.

    Raises
    ------
    InputError
        If the file can't be read, or holds something else than plain ``.npy`` arrays.
    """
    found = {}
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise InputError(f"{what} {path} can't be read: it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    name = info.filename.removesuffix(".npy")
                    found[name] = _read(cast(BinaryIO, member), f"{what} {path} ({name})", info.file_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        raise InputError(f"{what} {path} is not a .npz archive; write it with numpy.savez") from error
    if not found:
        raise InputError(f"{what} {path} is empty; write it with numpy.savez")
    return found


def read_array(path: str | Path, what: str = "input") -> np.ndarray:
    """The array in a ``.npy`` file, mapped from it: nothing is read before it is used, and nothing can be changed.

    ``what`` it is called in messages.

    Raises
    ------
    InputError
        If the file can't be read, or is not a plain ``.npy`` array.
    """
    try:
        # Nobody writes into a pipe or a device here, and some never end.
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise InputError(f"{what} {path} can't be read: it is not a regular file")
        with open(path, "rb") as file:
            return _mapped(file, f"{what} {path}", os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise InputError(f"{what} {path} can't be read: {error.strerror or error}") from error


def _mapped(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """The array in an open ``.npy`` file of so many bytes as `_read` gives it, but mapped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's of headers as Python 2 wrote them
            shape, in_columns, dtype = _check_header(file, called, size)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    offset = file.tell()
    if not math.prod(shape):  # nothing can be mapped of it
        return np.empty(shape, dtype.newbyteorder("="))
    array = np.memmap(file, dtype, "r", offset, shape, "F" if in_columns else "C").view(np.ndarray)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _read(file: BinaryIO, called: str, size: int) -> np.ndarray:
    """The array in an open ``.npy`` file of so many bytes, by what it is ``called`` in messages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's of headers as Python 2 wrote them
            _check_header(file, called, size)
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, OverflowError, TypeError) as error:
        raise InputError(f"{called} is not a .npy array; write it with numpy.save") from error
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_header(file: BinaryIO, called: str, size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Refuse a ``.npy`` file of ``size`` bytes that says more, or something else, than it holds.

    NumPy allocates what a header promises before it reads. Leaves ``file`` behind the header.

    Returns
    -------
    tuple
        Shape, whether columns come first (Fortran's order), and type of the array.
    """
    magic = file.read(4)
    if magic in (b"PK\x03\x04", b"PK\x05\x06"):
        raise InputError(f"{called} is a .npz archive; a .npy array is needed (numpy.save), or a name in .npz")
    file.seek(0)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    try:
        # A third version only differs in its encoding, for the names of fields.
        shape, in_columns, dtype = readers.get(version, readers[(2, 0)])(file)
    except Exception as error:  # NumPy evaluates the header, and raises whatever that raises
        raise InputError(f"{called} has a header that can't be read; write it with numpy.save") from error
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "biuf":
        raise InputError(f"{called} must hold plain numbers, not {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise InputError(f"{called} has a header with an impossible shape: {str(shape)[:60]}")
    needed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > there:
        raise InputError(
            f"{called} is cut short, or its header is wrong: shape {str(shape)[:60]} of {dtype} takes "
            f"{_bytes(needed)}, and there are {there:,}"
        )
    return shape, in_columns, dtype


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 10**18 else "more bytes than any file has"


@dataclass(frozen=True, repr=False)
class Model:
    """A network, resolved to integers."""

    network: Network

    def __repr__(self) -> str:
        taken, given = (" and ".join(map(str, maps)) for maps in (self.network.input_maps, self.network.output_maps))
        return f"<Model {self.name}: {taken} to {given}, {_count(len(self.network.layers), 'layer')}>"

    @property
    def name(self) -> str:
        return self.network.name

    @property
    def input(self) -> FeatureMap:
        """Shape, integer type, zero point and scale of the hardware's input.

        Raises
        ------
        InputError
            If there are several inputs, see ``inputs``.
        """
        if len(self.network.inputs) > 1:
            raise InputError(f"{self.name} has {len(self.network.inputs)} inputs: ask for inputs")
        return self.network.input

    @property
    def inputs(self) -> dict[str, FeatureMap]:
        """The same of all inputs, by the model's names of them, in its order."""
        return dict(zip(self.network.input_names, self.network.input_maps, strict=True))

    @property
    def output(self) -> FeatureMap:
        """Shape, integer type, zero point and scale of the hardware's output, the last integer tensor.

        Raises
        ------
        InputError
            If there are several outputs, see ``outputs``.
        """
        if len(self.network.output_names) > 1:
            raise InputError(f"{self.name} has {len(self.network.output_names)} outputs: ask for outputs")
        return self.network.output

    @property
    def outputs(self) -> dict[str, FeatureMap]:
        """The same of all outputs, by the model's names of them, in its order."""
        return dict(zip(self.network.output_names, self.network.output_maps, strict=True))

    @property
    def host(self) -> dict[str, Any]:
        """``input``, ``output`` (``inputs``, ``outputs``, where there are several) and ``host``, as in ``plan.json``.

        Both ends of the hardware by name, shape, type, scale and zero point, and the operators on the host around them.
        """
        from hwgen.network import host

        return host.describe(self.network)

    @checked
    def prepare(self, x: Inputs) -> Values:
        """Frames ``(n, C, H, W)`` of the model's integer type: float32 is quantised, integers pass.

        Frames have the shape that the model gives them: ``(n, C, H, W)``, ``(n, H, W, C)``, ``(n, features)`` ... Of a
        model with several inputs they are a sequence of arrays in the inputs' order, or a dict by their names. What is
        given back lies as the hardware takes it, of several inputs a dict; ``golden`` and ``simulate`` take frames as
        this function does.

        Raises
        ------
        InputError
            If shape or type do not fit, or a value is not a number.
        """
        from hwgen.network import quantise

        made = quantise.prepare_inputs(self.network, x)
        return made[0] if len(made) == 1 else dict(zip(self.network.input_names, made, strict=True))

    @checked
    def random_frames(self, count: int, seed: int = 0) -> Values:
        """``count`` random frames of the model's integer type, over its whole range: the same for the same ``seed``.

        Returns
        -------
        ndarray, or dict of str to ndarray
            In the model's shape, such as ``(count, C, H, W)`` or ``(count, features)``; of several inputs by name.

        Raises
        ------
        InputError
            If ``count`` is no positive integer, or there would be more than 2**32 values.
        """
        from hwgen.network import host

        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InputError(f"count of random frames must be a positive integer, not {shown(count)}")
        values = sum(math.prod(end.shape) for end in host.inputs(self.network))
        if count * values > _MOST_VALUES:
            raise InputError(
                f"{count:,} random frames of {values:,} values are too many: "
                f"at most {_MOST_VALUES // values:,} of this model"
            )
        generator, taken, found = np.random.default_rng(seed), host.taken(self.network), {}
        for end in host.inputs(self.network):
            shape = (count, *end.shape)
            if end.name in taken:
                kind = taken[end.name][1].type
                found[end.name] = generator.integers(kind.minimum, kind.maximum, shape, kind.dtype, endpoint=True)
            else:  # only the host takes it
                found[end.name] = generator.normal(size=shape).astype(np.float32)
        return found if len(found) > 1 else next(iter(found.values()))

    @checked
    def golden(self, x: Inputs, *, integers: bool = False) -> Values:
        """Outputs of the golden model.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``prepare``.
        integers : bool
            Give the last integer tensor, at which the hardware ends, instead of the model's own output.

        Returns
        -------
        ndarray, or dict of str to ndarray
            ``(n, ...)``, in the type and shape that the model gives its output: float32 where it ends in
            DequantizeLinear or Softmax, which ONNX Runtime computes here. With ``integers`` those of the last integer
            tensor. Of a model with several outputs a dict of them all, by the model's names.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run what stands behind the last integer tensor.
        """
        from hwgen.network import golden

        prepared = self._prepared(x)
        maps = golden.outputs(self.network, prepared)
        return self._integers(maps) if integers else self._outputs(maps, x, prepared)

    @checked
    def golden_parts(self, x: Inputs, *, integers: bool = False) -> Iterator[Values]:
        """Outputs of the golden model, some frames at a time: for more frames than memory holds.

        Parameters and errors are those of `golden`; all frames are checked before the first part is computed.
        """
        from hwgen.network import golden, mapped, quantise

        given = quantise.by_input(self.network, x)
        quantise.check_inputs(self.network, given)
        host = self.network.host
        for begin, part in mapped.parts(given, (host and host.batch) or 1):
            prepared = self._prepared(part)
            maps = golden.outputs(self.network, prepared, begin, len(given[0]))
            yield self._integers(maps) if integers else self._outputs(maps, part, prepared)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the model's own outputs; of those of the hardware ``outputs`` has the names."""
        from hwgen.network import host

        return host.names(self.network)

    def _prepared(self, x: Inputs) -> tuple[np.ndarray, ...]:
        """What the hardware takes, input by input."""
        from hwgen.network import quantise

        return quantise.prepare_inputs(self.network, x)

    def _outputs(self, maps: Sequence[np.ndarray], x: Inputs, prepared: Sequence[np.ndarray]) -> Values:
        """The model's own outputs, from the maps that the hardware gives; of several outputs by their names."""
        from hwgen.network import host, quantise

        made = host.given(self.network, maps, quantise.by_input(self.network, x), prepared)
        return made[0] if len(made) == 1 else dict(zip(self.output_names, made, strict=True))

    def _integers(self, maps: Sequence[np.ndarray]) -> Values:
        """The same of the last integer tensors."""
        from hwgen.network import host

        made = [host.integers(self.network, values, place) for place, values in enumerate(maps)]
        return made[0] if len(made) == 1 else dict(zip(self.network.output_names, made, strict=True))

    @checked
    def runtime(
        self, source: str | Path, calibration: Inputs | str | Path | None = None, bits: int | None = None
    ) -> RuntimeLayers:
        """ONNX Runtime on the file that this model was read from, layer by layer: for `Design.compare`.

        Parameters and errors are those of `load`.
        """
        from hwgen import network

        if isinstance(calibration, str | Path):
            calibration = read_inputs([calibration], "calibration")
        return network.runtime_layers(str(source), self.network, calibration=calibration, bits=bits)

    @checked
    @documented
    def plan(
        self,
        board: str | Board,
        *,
        plan: str | Path | None = None,
        progress: bool | Listener = False,
        jobs: int | None = None,
        cluster: str | None = None,
        **options: Any,
    ) -> Design:
        """Plan the accelerator for a board, or take a plan that was written before.

        Parameters
        ----------
        board : str or Board
            Name (``zedboard``), path of a board's ``.toml`` file, or the board itself.
        plan : str or Path, optional
            A ``plan.json`` (its path) to follow instead of planning.
        progress : bool or callable
            Show on stderr how far it is, or tell a function (`hwgen.progress`).
        jobs : int, optional
            Steps of a long search side by side, which that of an engine has; as many as there are processors if not
            given.
        cluster : str, optional
            Where they run (`hwgen.work.pool`): on this machine if not given. It is asked only if there are such steps.
        options
            What is asked of the plan, by the names of `hwgen.options.Options` (the parameters of `hwgen.plan.Request`).

        Raises
        ------
        BoardError
            If the board is unknown.
        InputError
            If an option is unknown, or stands beside a given plan; if ``jobs`` is no positive integer, ``cluster`` no
            address, or both are given.
        PlanError
            If an option makes no sense, nothing fits, or the given plan does not fit the network or exceeds the board.
        """
        from hwgen import plan as planner
        from hwgen import work
        from hwgen.plan import kept

        if not isinstance(board, Board):
            board = load_board(str(board))
        with followed(progress), work.beside(cluster, jobs):
            if plan is None:
                return Design(self, kept.make(self.network, board, **options))
        planner.Request.check_names(options)
        if given := [name for name, value in options.items() if value is not None and value is not False]:
            raise InputError(f"a given plan is not planned again: give {' and '.join(given)} or plan, not both")
        return Design(self, planner.read(_plan_text(plan), self.network, board))

    @checked
    def retrained(self, design: str | Path, *, board: str | Board | None = None) -> Retrained:
        """This model in a design that was built of another one of its shape, with weights that are loaded.

        Parameters
        ----------
        design : str or Path
            The folder that ``Design.build`` wrote of a plan with ``weights="runtime"``.
        board : str or Board, optional
            As for ``plan``; the one that the design's plan names if not given.

        Returns
        -------
        Retrained
            Its ``weights`` are the file to load, and ``simulate`` loads them into the design's own Verilog.

        Raises
        ------
        InputError
            If there is no such design in the folder, or its hardware is another than the model's; names the layer and
            what differs.
        PlanError
            If the design's plan is of other layers.
        BoardError
            If the board is unknown.
        """
        from hwgen import plan as planner
        from hwgen.emit import weights
        from hwgen.network.loaded import for_hardware
        from hwgen.plan import document

        known = weights.read_design(design)
        text = _plan_text(Path(design) / "plan.json")
        if not isinstance(board, Board):
            board = board or document.board_name(text)
            if board is None:
                raise InputError(
                    f"{Path(design) / 'plan.json'} is not the one that hwgen wrote: build the design again"
                )
            board = load_board(str(board))
        network = for_hardware(self.network, known.weight_bits)
        found = Retrained(self, planner.read(text, network, board), folder=known)
        known.refuse(found.config, self.name)
        return found

    @checked
    def compile(
        self,
        engine: str | Path,
        *,
        plan: str | Path | None = None,
        batch: int | None = None,
        jobs: int | None = None,
        cluster: str | None = None,
    ) -> Design:
        """Make a program for an engine that exists.

        Parameters
        ----------
        engine : str or Path
            The folder that ``Design.build`` wrote of a plan on an engine.
        plan : str or Path, optional
            A ``plan.json`` (its path) for such an engine, to follow instead of planning.
        batch : int, optional
            Frames that a run of the program computes; one if not given, or those of ``plan``.
        jobs, cluster
            As of ``plan``.

        Returns
        -------
        Design
            On that engine; ``program`` is the program, and ``simulate`` runs it on the engine's own Verilog.

        Raises
        ------
        InputError
            If there is no engine in the folder, or it was changed.
        PlanError
            If the engine can't compute a layer or has no room for it; if the plan is of another engine, or ``batch``
            stands beside it or is out of range.
        """
        from hwgen import work
        from hwgen.emit import engine as folder
        from hwgen.plan.engine import on_engine

        circuit = folder.read(engine)
        text = None if plan is None else _plan_text(plan)
        with work.beside(cluster, jobs):
            plan_of = on_engine(self.network, circuit.board, circuit.engine, circuit.memory, text, batch)
        return Design(self, plan_of, circuit)

    @checked
    def run(
        self,
        engine: str | Path,
        program: str | Path,
        x: Inputs,
        *,
        waves: str | Path | None = None,
        progress: bool | Listener = False,
        jobs: int | None = None,
        memory_latency: int | None = None,
        bandwidth: float | None = None,
        cluster: str | None = None,
    ) -> Result:
        """Run a program of this model, from its file, on an engine that exists, as ``Design.simulate`` does.

        Raises
        ------
        InputError
            If the file is no program, cut off, changed, of another engine, or of a model with other maps.
        """
        from hwgen.emit import engine as folder
        from hwgen.program.file import Program
        from hwgen.simulate.frames import check_program

        circuit = folder.read(engine)
        found = Program.read(Path(program), circuit.engine)
        check_program(found, self.network)
        timing = _timing(circuit.memory, circuit.engine, circuit.board, memory_latency, bandwidth)
        return self._run(_Running(circuit, found, timing, waves, progress, jobs, cluster=cluster), x)

    def _run(self, running: _Running, x: Inputs) -> Result:
        """Frames through an engine, compared with the golden model and the schedule."""
        from hwgen.network import golden
        from hwgen.simulate import check, frames
        from hwgen.simulate.engine import Memory

        prepared = self._prepared(x)
        expected = golden.outputs(self.network, prepared)
        expected_outputs = self._outputs(expected, x, prepared)
        wave_file = None if running.waves is None else Path(running.waves).absolute()
        with followed(running.progress):
            runs = frames.run_frames(
                running.circuit.verilog,
                running.program,
                prepared[0],
                Memory(timing=running.timing),
                jobs=running.jobs,
                wave_file=wave_file,
                cluster=running.cluster,
            )
        one, batch = frames.predict(running.program, running.timing), running.program.batch
        first = check.compare_outputs(self.network, runs.maps, expected)
        if first is not None and running.schedule is not None:
            memory = Memory(timing=running.timing)
            first = frames.locate(running.circuit.verilog, running.schedule, self.network, prepared[0], memory, first)
        return Result(
            outputs=self._outputs(runs.maps, x, prepared) if first else expected_outputs,
            expected=expected_outputs,
            integers=self._integers(runs.maps),
            mismatches=first.count if first else 0,
            first_mismatch=str(first) if first else None,
            difference=_difference(first),
            latency=runs.cycles[0],
            interval=-(-runs.cycles[-1] // batch) if len(prepared[0]) > 2 else None,
            predicted_latency=one.cycles,
            predicted_interval=-(-one.cycles // batch),
            padding=len(runs.cycles) * batch - len(prepared[0]),
            batch=batch,
            predicted_bytes=(one.read * len(runs.cycles), one.written * len(runs.cycles)),
            stalled=False,
            read_bytes=runs.read,
            written_bytes=runs.written,
            wall_s=runs.wall_s,
            cycles=sum(runs.cycles),
            cycles_per_s=sum(runs.cycles) / max(runs.wall_s, 1e-6),
            simulator="verilator",
        )


@dataclass(frozen=True)
class _Running:
    """A program on a circuit, and how it is run."""

    circuit: Circuit
    program: Program
    timing: MemoryTiming
    waves: str | Path | None
    progress: bool | Listener
    jobs: int | None
    schedule: Schedule | None = None
    """What the program was made of, where that is known."""
    cluster: str | None = None


@dataclass(frozen=True, repr=False)
class Design:
    """A planned accelerator: ready to be simulated and written as Verilog."""

    model: Model
    plan: Plan
    circuit: Circuit | None = None
    """Of a plan on an engine: the circuit, if it is there already."""

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f", interval {self.interval:,} cycles"
        return (
            f"<Design {self.network.name} on {self.board.name}: {_count(len(self.plan.layers), 'layer')} in "
            f"{_count(len(self.plan.groups), 'group')}, {self.resources['dsp']:,} DSP slices, "
            f"latency {self.latency:,} cycles{interval}>"
        )

    def _repr_html_(self) -> str:
        """The plan in a notebook."""
        from hwgen.report import notebook

        return notebook.plan(self.plan)

    @property
    def network(self) -> Network:
        return self.model.network

    @property
    def board(self) -> Board:
        return self.plan.board

    @property
    def latency(self) -> int:
        """Predicted cycles from the first input transfer of a frame to its last output transfer, of whatever output."""
        return self.plan.latency

    @property
    def interval(self) -> int | None:
        """Predicted cycles between frames that follow each other without a gap."""
        return self.plan.interval

    @property
    def resources(self) -> dict[str, Any]:
        """Estimated resources: ``dsp``, ``bram36``, ``lut``, ``ff`` as far as the plan states them."""
        return self.plan.resources.as_dict()

    @cached_property
    def config(self) -> AcceleratorConfig:
        """Configuration of the gateware of a plan with one group, as the plan composes it."""
        return self.plan.configure()

    def table(self) -> str:
        """The plan as text, one line a layer."""
        from hwgen.report import plan as report

        return report.table(self.plan)

    def to_json(self) -> str:
        """The plan as the text of a ``plan.json``."""
        from hwgen.plan import document

        return document.write(self.plan)

    @checked
    def golden(self, x: Inputs, *, integers: bool = False) -> Values:
        """Outputs of the golden model; see ``Model.golden``."""
        return self.model.golden(x, integers=integers)

    @checked
    def build(
        self,
        directory: str | Path | None = None,
        x: Inputs | None = None,
        *,
        say: Callable[[str], None] = lambda line: None,
        progress: bool | Listener = False,
        force: bool = False,
    ) -> Path:
        """Write Verilog, memory files, the plan, a self-checking test bench and a report; all or nothing.

        Parameters
        ----------
        directory : str or Path, optional
            Where to; ``build/NAME-BOARD`` under the current folder if not given.
        x : ndarray, or sequence or dict of ndarray, optional
            Frames for the test bench, as for ``Model.prepare``; three seeded random frames if not given.
        say : callable, optional
            Told what an earlier build wrote there and was left, because it was changed since.
        progress : bool or callable
            Show on stderr how far it is, or tell a function (`hwgen.progress`).
        force : bool
            Overwrite files in the folder that hwgen did not write, or that were changed since.

        Returns
        -------
        Path
            The folder written.

        Raises
        ------
        InputError
            If the folder can't be written, or has files that would be lost without ``force``.
        """
        with followed(progress):
            return self._written(directory, x, say, force)

    def _written(self, directory: str | Path | None, x: Inputs | None, say: Callable[[str], None], force: bool) -> Path:
        from hwgen import emit
        from hwgen.gateware.names import file_name
        from hwgen.network import golden
        from hwgen.report.page import html as page

        default = Path("build") / file_name(f"{self.network.name}-{self.board.name}")
        folder = default if directory is None else directory
        emit.check_folder(folder)
        if self._on_engine is not None:
            if x is not None:
                raise InputError(f"{self.network.name} is computed by an engine, which has no test bench for frames")
            how = {"others": {page.NAME: self.page()}, "say": say, "force": force}
            return emit.engine.build(self._circuit(), self.program, self.to_json(), folder, self.report(), **how)
        frames = self.model._prepared(self.model.random_frames(3) if x is None else x)
        configs = self.plan.configs()
        how = {"board": self.board, "others": {page.NAME: self.page()}, "say": say, "force": force}
        if len(configs) > 1:
            maps = self._maps(frames[0])
            return emit.build_groups(self.to_json(), configs, maps, folder, self.report(), **how)
        expected = golden.outputs(self.network, frames)
        return emit.build(self.to_json(), configs[0], frames, expected, folder, self.report(), **how)

    def _maps(self, frames: np.ndarray) -> list[np.ndarray]:
        """What goes into the first group, and what leaves each, by the golden model."""
        from hwgen.network import golden

        maps = [frames]
        for group in self.plan.groups:
            maps.append(golden.run(group.network, maps[-1]))
        return maps

    @property
    def _on_engine(self) -> TileGroup | None:
        from hwgen.plan.engine import group_of

        return group_of(self.plan)

    def _circuit(self) -> Circuit:
        """The engine of a plan on one."""
        from hwgen.emit.engine import Circuit

        group = self._on_engine
        assert group is not None
        return self.circuit or Circuit.of(group.template.engine, group.template.memory, self.board)

    @property
    def program(self) -> Program:
        """What an engine is told, of a plan on one.

        Raises
        ------
        InputError
            Of another plan.
        ModelError
            If weights are not known.
        """
        if self._on_engine is None:
            raise InputError(
                f"plan of {self.network.name} for {self.board.name} is not on an engine: it has no program"
            )
        return self._on_engine.schedule.program

    def report(self) -> str:
        """The plan for people, in Markdown."""
        from hwgen.report import plan as report

        return report.markdown(self.plan, self.model.host)

    def page(self) -> bytes:
        """The plan as ``report.html``: one file for a browser, which asks no server for anything."""
        from hwgen.report.page import html

        return html.render(self.document())

    def document(self) -> dict[str, Any]:
        """The sections of ``page`` as plain values."""
        from hwgen.report.page import design, html, times

        text = self.to_json()
        return {
            "title": f"{self.network.name} on {self.board.name}",
            "of": html.digest(text, self.network),
            "plan": html.digest(text),
            "design": design.document(self.plan, self.model.host),
            "times": times.document(self.plan),
        }

    @checked
    def simulate(
        self,
        x: Inputs,
        *,
        simulator: Simulator = "verilator",
        waves: str | Path | None = None,
        wave_frames: tuple[int, int] | None = None,
        wave_layers: Sequence[str] | None = None,
        progress: bool | Listener = False,
        stalls: tuple[float, ...] | None = None,
        seed: int = 0,
        jobs: int | None = None,
        memory_latency: int | None = None,
        bandwidth: float | None = None,
        cluster: str | None = None,
    ) -> Result:
        """Run the generated hardware on real data and compare every value with the golden model.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``Model.prepare``, float32 or the model's own integer type.
        simulator : str
            ``verilator``, ``icarus`` or ``amaranth``.
        waves : path, optional
            Write the waveforms there (``.vcd`` or ``.fst``, as the simulator knows them).
        wave_frames : tuple of int, optional
            Of these frames only, from one to before the other (Verilator).
        wave_layers : sequence of str, optional
            Of these layers only (Verilator).
        progress : bool or callable
            Show on stderr how far it is, or tell a function (`hwgen.progress`).
        stalls : tuple of float, optional
            Probabilities that the source and the sink stall in a cycle; neither stalls if not given. The first is that
            of the source of each input. Where there are several outputs, the second is that of all their sinks, or each
            has one of its own, in their order.
        seed : int
            Seed of the stalls.
        jobs : int, optional
            Simulations side by side (Verilator), each from reset with its share of the frames, 16 at least; one if not
            given, and on a cluster two for each that it runs at a time.
        memory_latency : int, optional
            Cycles from a read of off-chip memory to its first byte; none, or those of an engine's plan, if not given.
        bandwidth : float, optional
            Of off-chip memory, reads and writes together, in GB/s at the board's clock; without a limit, or that of a
            plan on an engine, if not given.
        cluster : str, optional
            Run simulations side by side on the workers of a Dask scheduler at this address, or with ``local:N`` of N
            here; several frames must make several simulations.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run what stands behind the last integer tensor.
        ToolError
            If the simulator is missing or fails.
        """
        from hwgen import simulate
        from hwgen.network import golden
        from hwgen.simulate import check

        if (group := self._on_engine) is not None:
            _check_engine_options(self.network, simulator, stalls)
            if not (wave_frames is wave_layers is None):
                raise InputError("waves of an engine are of one frame and the whole engine: nothing of them is chosen")
            timing = _timing(group.template.memory, group.template.engine, self.board, memory_latency, bandwidth)
            running = _Running(self._circuit(), self.program, timing, waves, progress, jobs, group.schedule, cluster)
            return self.model._run(running, x)
        rate = None if bandwidth is None else bandwidth * 1000 / self.board.clock_mhz
        options = simulate.Options(
            simulator=simulator,
            waves=waves,
            wave_frames=wave_frames,
            wave_layers=None if wave_layers is None else tuple(wave_layers),
            progress=progress,
            stalls=stalls,
            seed=seed,
            jobs=jobs,
            cluster=cluster,
            memory=simulate.Memory(latency=memory_latency or 0, bytes_per_cycle=rate),
        )
        frames = self.model._prepared(x)
        expected = golden.outputs(self.network, frames)
        expected_outputs = self.model._outputs(expected, x, frames)  # before the simulation, which may take a while
        configs = self.plan.configs()
        run = self._run(frames, options)
        prediction = self.plan.placement.predict(len(run.frame_ends))
        first = check.locate(configs, self.network, frames, run.maps, expected, simulator=simulator)
        same = all(map(np.array_equal, run.maps, expected))
        return Result(
            outputs=expected_outputs if same else self.model._outputs(run.maps, x, frames),
            expected=expected_outputs,
            integers=self.model._integers(run.maps),
            mismatches=first.count if first else 0,
            first_mismatch=str(first) if first else None,
            difference=_difference(first),
            latency=run.latency,
            interval=run.interval,
            predicted_latency=prediction.latency,
            predicted_interval=self.interval if prediction.interval is None else prediction.interval,
            stalled=stalls is not None or options.memory.limits,
            read_bytes=run.read_bytes,
            written_bytes=run.written_bytes,
            wall_s=run.wall_s,
            cycles=run.cycles,
            cycles_per_s=run.cycles_per_s,
            simulator=run.simulator,
        )

    @checked
    def compare(
        self,
        x: Inputs,
        runtime: RuntimeLayers,
        *,
        labels: np.ndarray | None = None,
        progress: bool | Listener = False,
    ) -> Comparison:
        """Run ONNX Runtime, the golden model and the hardware on the same frames, and compare layer by layer.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``Model.prepare``.
        runtime : RuntimeLayers
            `Model.runtime` of the model's file.
        labels : ndarray, optional
            ``(n,)`` integers: the class of each frame. Then it is counted how many are right.
        progress : bool or callable
            Show on stderr how far it is, or tell a function (`hwgen.progress`).

        Raises
        ------
        InputError
            If the frames do not fit the model, or labels are no class for each frame.
        ModelError
            If ONNX Runtime can't run the model.
        ToolError
            If Verilator is missing or fails.
        """
        from hwgen.network import golden, host, quantise
        from hwgen.report import notebook
        from hwgen.report.page.checks import predicted_classes
        from hwgen.simulate import compare

        frames = self.model._prepared(x)
        with followed(progress):
            maps, seen, cycles = self._watched(x, frames)
            tell(f"{self.network.name}: comparing layer by layer")
            names = [end.name for end in host.inputs(self.network)]
            given = [
                host.as_model(self.network, name, values) if name in runtime.floats else values
                for name, values in zip(names, quantise.by_input(self.network, x), strict=True)
            ]
            rows, theirs = compare.layer_by_layer(self.network, frames, seen, runtime, given)
        three = {
            "runtime": theirs,
            "golden": _arrays(self.model._outputs(golden.outputs(self.network, frames), x, frames)),
            "hardware": _arrays(self.model._outputs(maps, x, frames)),
        }
        right = None
        if labels is not None:
            right = {}
            for which, (values, *_) in three.items():
                right[which] = int((predicted_classes(values, labels) == labels).sum())
        return compare.Comparison(
            model=self.network.name,
            board=self.board.name,
            frames=len(frames[0]),
            rows=tuple(rows),
            outputs=tuple(
                compare.Output(
                    name=name,
                    values=should.size,
                    runtime=compare.distance(theirs.reshape(should.shape), should),
                    hardware=compare.distance(ours, should),
                )
                for name, theirs, should, ours in zip(self.model.output_names, *three.values(), strict=True)
            ),
            right=right,
            cycles=cycles,
            html=notebook.comparison,
        )

    def _watched(
        self, x: Inputs, frames: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], Seen, dict[str, int | None]]:
        """What the hardware gives, what leaves each of its layers, and its cycles beside the prediction."""
        from hwgen import simulate
        from hwgen.simulate import check
        from hwgen.simulate import frames as on_engine
        from hwgen.simulate.compare import Seen
        from hwgen.simulate.engine import Memory

        if (group := self._on_engine) is not None:
            circuit, memory = self._circuit(), Memory(timing=group.template.memory)
            runs = on_engine.run_frames(circuit.verilog, self.program, frames[0], memory)
            found = on_engine.all_maps(circuit.verilog, group.schedule, frames[0], memory)
            one = on_engine.predict(self.program, group.template.memory)
            batch = self.program.batch
            interval, predicted = (-(-each // batch) for each in (runs.cycles[-1], one.cycles))
            cycles = _cycles(runs.cycles[0], interval if len(frames[0]) > 2 else None, one.cycles, predicted)
            return runs.maps, Seen(pixels=found), cycles
        configs = self.plan.configs()
        run = self._run(frames, simulate.Options(taps=True))
        own = check.in_network(configs, self.network)
        layers = [layer.name for layer in self.network.layers]
        seen = Seen(
            pixels={name: run.taps[number] for name, (number, _) in zip(layers, own, strict=True)},
            orders={name: order for name, (_, order) in zip(layers, own, strict=True)},
        )
        prediction = self.plan.placement.predict(len(run.frame_ends))
        interval = self.interval if prediction.interval is None else prediction.interval
        return run.maps, seen, _cycles(run.latency, run.interval, prediction.latency, interval)

    def _run(self, frames: Sequence[np.ndarray], options: Options) -> Run:
        """Frames through the hardware."""
        from hwgen import simulate

        return simulate.run_groups(self.plan.configs(), frames, options)


@dataclass(frozen=True, repr=False)
class Retrained(Design):
    """A model in a design that was built of another one of its shape: only its weights are other than the design's."""

    folder: Loadable = field(kw_only=True)
    """The design."""

    @cached_property
    def weights(self) -> bytes:
        """The file that loads the model's weights."""
        from hwgen.emit import weights
        from hwgen.network import host

        return weights.write(self.config, host.describe(self.network), self.model.name)

    def _run(self, frames: Sequence[np.ndarray], options: Options) -> Run:
        """Frames through the design's own Verilog, once it has loaded the file."""
        from hwgen import simulate
        from hwgen.emit import weights
        from hwgen.emit.loading import Loading, LoadingConfig

        _, load = weights.read(self.weights, self.folder.top)
        inner = replace(self.config, input_names=self.folder.inputs, output_names=self.folder.outputs)
        config: Any = LoadingConfig(inner, load, self.folder.top)
        return simulate.run_groups([config], frames, replace(options, component=Loading, beside=self.folder.verilog()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a simulation gave, beside what was expected.

    Parameters
    ----------
    outputs, expected : ndarray, or dict of str to ndarray
        ``(n, ...)`` of the hardware and of the golden model, as the model itself gives its output: with what stands
        behind the last integer tensor done by ONNX Runtime. Of a model with several outputs each of them, by name.
    integers : ndarray, or dict of str to ndarray
        ``(n, ...)``, the last integer tensor of the hardware, in the type and shape that it has in the model; of
        several outputs that of each, by the output's name.
    mismatches : int
        Values of the last integer tensors that differ.
    first_mismatch : str or None
        Layer (or of several outputs the output), frame, channel, row and column of the first one.
    latency, interval : int or None
        Measured, in cycles (design terms: of the first frame; between the last two of at least three frames). A frame
        ends with its last output transfer, over all outputs.
    predicted_latency, predicted_interval : int or None
        What the plan says of so many frames back to back.
    stalled : bool
        Whether source or sink were made to stall, or the memory had limits: cycles then mean nothing against the
        prediction.
    read_bytes, written_bytes : int
        Moved from and to off-chip memory, for all frames.
    wall_s, cycles_per_s : float
        Time the simulation took, and its speed.
    cycles : int
        Cycles simulated.
    simulator : str
        Which simulator ran.
    predicted_bytes : tuple of int or None
        Of an engine: what the schedule says is read and written.
    batch, padding : int
        Of an engine: frames that a run computes, of which the latency is the run's and the interval a frame's share,
        rounded up; and how many frames the last run lacked.
    difference : dict or None
        The first mismatch as ``report.html`` draws it: its channel's map, of the hardware and as expected.
    """

    outputs: Values
    expected: Values
    integers: Values
    mismatches: int
    first_mismatch: str | None
    latency: int
    interval: int | None
    predicted_latency: int
    predicted_interval: int | None
    stalled: bool
    read_bytes: int
    written_bytes: int
    wall_s: float
    cycles: int
    cycles_per_s: float
    simulator: str
    predicted_bytes: tuple[int, int] | None = None
    batch: int = 1
    padding: int = 0
    difference: dict[str, Any] | None = None

    def _repr_html_(self) -> str:
        """The result in a notebook."""
        from hwgen.report import notebook

        head = ("", "measured", "without stalls" if self.stalled else "predicted")
        rows = [("latency", self.latency, self.predicted_latency), ("interval", self.interval, self.predicted_interval)]
        body = [(name, *("" if value is None else f"{value:,}" for value in values)) for name, *values in rows]
        said = [self.summary().partition(";")[0], *([self.first_mismatch] if self.first_mismatch else [])]
        said.append(f"{self.frames:,} frames, {self.cycles:,} cycles in {self.wall_s:.1f} s ({self.simulator})")
        return notebook.lines(said) + notebook.table(head, body)

    def __repr__(self) -> str:
        return f"<Result of {self.simulator}, {_count(self.frames, 'frame')}: {self.summary()}>"

    @property
    def frames(self) -> int:
        return len(_arrays(self.integers)[0])

    @property
    def values(self) -> int:
        """Values that were compared: of the last integer tensors."""
        return sum(array.size for array in _arrays(self.integers))

    @property
    def as_predicted(self) -> bool:
        """Whether latency and interval, as far as measured, equal the prediction (true under stalls), and bytes."""
        if self.predicted_bytes not in (None, (self.read_bytes, self.written_bytes)):
            return False
        if self.stalled:
            return True
        return self.latency == self.predicted_latency and self.interval in (None, self.predicted_interval)

    @property
    def ok(self) -> bool:
        """No mismatch, and cycles as predicted."""
        return self.mismatches == 0 and self.as_predicted

    def to_json(self) -> dict[str, Any]:
        """The contents of ``hwgen simulate --json``."""
        return {
            "frames": self.frames,
            "mismatches": self.mismatches,
            "cycles": {
                "latency": self.latency,
                "interval": self.interval,
                "predicted_latency": self.predicted_latency,
                "predicted_interval": self.predicted_interval,
            },
            "memory": {"read_bytes": self.read_bytes, "written_bytes": self.written_bytes},
            "wall_s": round(self.wall_s, 3),
            "cycles_per_s": round(self.cycles_per_s),
            "simulator": self.simulator,
            **({"batch": self.batch, "padding": self.padding} if self.batch > 1 else {}),
        }

    def document(self, labels: np.ndarray | None = None) -> dict[str, Any]:
        """The sections of the simulation in ``report.html``, as plain values; beside those of ``Design.document``.

        Parameters
        ----------
        labels : ndarray, optional
            ``(n,)`` integers: the class of each frame. Then there is a section about accuracy.

        Raises
        ------
        InputError
            If they are no class for each frame, or the model has several outputs.
        """
        verdict, _, cycles = self.summary().partition("; ")
        cycles_text = cycles[0].upper() + cycles[1:]
        if not self.as_predicted:
            cycles_text += ": not as predicted"
        found: dict[str, Any] = {
            "verification": {
                "ok": self.ok,
                "verdict": verdict[0].upper() + verdict[1:],
                "cycles_text": cycles_text,
                "frames": self.frames,
                "compared": self.values,
                "mismatches": self.mismatches,
                **{name: getattr(self, name) for name in ("latency", "interval", "stalled", "cycles", "simulator")},
                **{name: getattr(self, name) for name in ("predicted_latency", "predicted_interval")},
                "read_bytes": self.read_bytes,
                "written_bytes": self.written_bytes,
                "predicted_bytes": self.predicted_bytes,
                "difference": self.difference,
            }
        }
        if labels is not None:
            found["accuracy"] = self.accuracy(labels)
        return found

    def accuracy(self, labels: np.ndarray) -> dict[str, Any]:
        """How many ``frames`` are ``right`` by the hardware, by the ``golden`` model, and the ``confusion`` matrix.

        Parameters
        ----------
        labels : ndarray
            ``(n,)`` integers: the class of each frame.

        Raises
        ------
        InputError
            If they are no class for each frame, or the model has several outputs.
        """
        from hwgen.report.page import checks

        checks.predicted_classes(self.outputs, labels)
        assert isinstance(self.outputs, np.ndarray)
        assert isinstance(self.expected, np.ndarray)
        return checks.accuracy(self.outputs, self.expected, labels)

    def summary(self) -> str:
        """One line: what was compared, and the cycles against the prediction."""
        word = "without stalls" if self.stalled else "predicted"
        cycles = f"latency {self.latency:,} cycles; {word} {self.predicted_latency:,}"
        if self.interval is not None:
            cycles += f"; interval {self.interval:,}; {word} {self.predicted_interval:,}"
        if self.batch > 1:
            cycles += f"; {_count((self.frames + self.padding) // self.batch, 'run')} of {self.batch} frames"
        if self.padding:
            cycles += f", the last one filled up with {_count(self.padding, 'empty frame')}"
        if self.mismatches:
            return f"{self.mismatches:,} of {self.values:,} output values differ from the golden model; {cycles}"
        return f"every one of {self.values:,} output values equals the golden model; {cycles}"


def _plan_text(plan: str | Path) -> str:
    """The contents of a ``plan.json``."""
    try:
        return Path(plan).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # among the latter names with a zero in them, and other encodings
        reason = getattr(error, "strerror", None) or "not a text file"
        raise PlanError(f"plan {plan} can't be read: {reason}") from error


def _check_engine_options(network: Network, simulator: str, stalls: object) -> None:
    if simulator != "verilator":
        raise InputError(f"{network.name} is computed by an engine, which runs in verilator only, not in {simulator}")
    if stalls is not None:
        raise InputError(f"{network.name} is computed by an engine, which has no streams that stall")


def _timing(
    planned: MemoryTiming, engine: EngineConfig, board: Board, latency: int | None, bandwidth: float | None
) -> MemoryTiming:
    """The memory in front of an engine, as it was planned but for what is asked for."""
    from hwgen.templates.tile import pace_of

    latency = planned.latency if latency is None else latency
    pace = planned.pace if bandwidth is None else pace_of(replace(board, memory_gb_s=bandwidth), engine).pace
    return replace(planned, latency=latency, pace=pace)


def _cycles(
    latency: int, interval: int | None, predicted_latency: int, predicted_interval: int | None
) -> dict[str, int | None]:
    """As ``hwgen simulate --json`` has them."""
    return {
        "latency": latency,
        "interval": interval,
        "predicted_latency": predicted_latency,
        "predicted_interval": predicted_interval,
    }


def _difference(first: Mismatch | None) -> dict[str, Any] | None:
    """The first mismatch as a page draws it."""
    from hwgen.report.page import checks

    if first is None or first.seen is None or first.wanted is None:
        return None
    return checks.difference(str(first), first.row, first.column, first.seen, first.wanted)


def _arrays(values: Values) -> list[np.ndarray]:
    return list(values.values()) if isinstance(values, dict) else [values]


def _count(number: int, what: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
