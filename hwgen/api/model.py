"""Models and designs on an engine: plan, compile a program for an existing engine, retrain an existing design."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Inputs
from hwgen.api.design import AcceleratorDesign, Design
from hwgen.api.golden import GoldenModel
from hwgen.api.result import Result, cycles_entry, difference
from hwgen.arguments import checked
from hwgen.boards import Board
from hwgen.boards import load as load_board
from hwgen.errors import InputError, PlanError
from hwgen.options import ENGINE, called, check_names, documented
from hwgen.progress import Listener, followed

if TYPE_CHECKING:
    from hwgen.api.result import Result
    from hwgen.emit.engine import EngineVerilog
    from hwgen.emit.weights import Loadable
    from hwgen.network.graph import Network
    from hwgen.plan import Plan
    from hwgen.program.compile import ProgramSchedule
    from hwgen.program.file import Program
    from hwgen.schedule.engine import MemoryTiming
    from hwgen.simulate import Options, Run
    from hwgen.simulate.compare import Seen
    from hwgen.simulate.engine import EngineMemory
    from hwgen.templates.engine import EngineGroup


@dataclass(frozen=True)
class EngineSimulation:
    """Simulation of an engine that runs a program: circuit, program, memory timing, and options."""

    circuit: EngineVerilog
    """`EngineVerilog` of the simulated engine: its Verilog, configuration and board."""
    program: Program
    """`Program` that the simulated engine runs."""
    timing: MemoryTiming
    """`MemoryTiming` of the simulated off-chip memory: latencies in cycles, and cycles per beat."""
    schedule: ProgramSchedule | None = None
    """`ProgramSchedule` that the program was made from, used to find a wrong layer; ``None`` if unknown."""
    waves: str | Path | None = None
    """Path of the waveform file that the simulation writes; ``None`` for none."""
    progress: bool | Listener = False
    """Whether the simulation's progress is shown on stderr, or a function (`Listener`) that receives its steps."""
    jobs: int | None = None
    """Number of parallel simulations; ``None`` for one, or on a cluster for two per parallel task."""
    cluster: str | None = None
    """Address of the cluster that runs the simulations; ``None`` for this machine."""

    @property
    def memory(self) -> EngineMemory:
        """`EngineMemory` with this simulation's timing: the simulated off-chip memory, without refresh gaps."""
        from hwgen.simulate.engine import EngineMemory

        return EngineMemory(timing=self.timing)

    def compared(self, model: GoldenModel, x: Inputs) -> Result:
        """Simulate frames on the engine; return a `Result`: outputs and cycles, expected and measured.

        Parameters
        ----------
        model : GoldenModel
            Model that the program computes.
        x : ndarray, or sequence or dict of ndarray
            Frames, as for ``Model.prepare``.

        Returns
        -------
        Result
            Outputs, mismatches, and measured and predicted cycles.

        Raises
        ------
        CheckError
            If the engine ends with an error, breaks a rule of AXI, or does not come to an end.
        InputError
            If the frames do not fit the model, or several runs are to write waves.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        ToolError
            If Verilator is missing or fails.
        """
        from hwgen.network import golden
        from hwgen.simulate import check, frames

        prepared = model._prepared(x)
        count = len(prepared[0])
        expected = golden.outputs(model.network, prepared)
        expected_outputs = model._outputs(expected, x, prepared)
        wave_file = None if self.waves is None else Path(self.waves).absolute()
        with followed(self.progress):
            runs = frames.run_frames(
                self.circuit.verilog,
                self.program,
                prepared,
                self.memory,
                jobs=self.jobs,
                wave_file=wave_file,
                cluster=self.cluster,
            )
        one, batch = frames.predict(self.program, self.timing), self.program.batch
        first = check.compare_outputs(model.network, runs.maps, expected)
        if first is not None and self.schedule is not None:
            first = frames.locate(self.circuit.verilog, self.schedule, model.network, prepared, self.memory, first)
        return Result(
            outputs=model._outputs(runs.maps, x, prepared) if first else expected_outputs,
            expected=expected_outputs,
            integers=model._integers(runs.maps),
            mismatches=first.count if first else 0,
            first_mismatch=str(first) if first else None,
            difference=difference(first),
            latency=runs.cycles[0],
            interval=-(-runs.cycles[-1] // batch) if count > 2 else None,
            predicted_latency=one.cycles,
            predicted_interval=-(-one.cycles // batch),
            padding=len(runs.cycles) * batch - count,
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


@dataclass(frozen=True, repr=False)
class ProgramDesign(Design):
    """Design of a model on a programmable engine: the engine's circuit, and the model's program for it."""

    circuit: EngineVerilog | None = None
    """`EngineVerilog` of the existing engine that runs the design; ``None`` for an engine made for this design."""

    @property
    def _group(self) -> EngineGroup:
        """Fusion group (`EngineGroup`) of all layers of the plan, its only one, which the engine computes."""
        from hwgen.templates.engine import engine_group

        return engine_group(self.plan.groups[0])

    @cached_property
    def _circuit(self) -> EngineVerilog:
        """`EngineVerilog` of the engine: the existing one, or one made from the plan."""
        from hwgen.emit.engine import EngineVerilog

        template = self._group.template
        return self.circuit or EngineVerilog.of(template.engine, template.memory, self.board)

    @property
    def program(self) -> Program:
        """Program (job list and weights) that lets the engine compute the model.

        Raises
        ------
        ModelError
            If weights of the model are not known.
        """
        return self._group.schedule.program

    def _emit(self, folder: str | Path, x: Inputs | None, files: Callable[[], dict[str, Any]]) -> Path:
        from hwgen import emit

        if x is not None:
            raise InputError(f"{self.network.name} runs on an engine, which has no test bench: leave the frames out")
        return emit.engine.build(self._circuit, self.program, self.to_json(), folder, self.report(), **files())

    def _simulated(
        self,
        x: Inputs,
        *,
        simulator: str,
        stalls: object,
        wave_frames: object,
        wave_layers: object,
        seed: int,
        memory_latency: int | None,
        bandwidth: float | None,
        **running: Any,
    ) -> Result:
        if simulator != "verilator":
            raise InputError(
                f"{self.network.name} runs on an engine, which needs the simulator verilator, not {simulator}"
            )
        if stalls is not None:
            raise InputError(f"{self.network.name} runs on an engine, which has no streams to stall: leave stalls out")
        if not (wave_frames is wave_layers is None):
            raise InputError("waveforms of an engine cover one frame and the whole engine: give no frames or layers")
        group = self._group
        timing = group.template.timing(self.board, memory_latency, bandwidth)
        return EngineSimulation(self._circuit, self.program, timing, group.schedule, **running).compared(self.model, x)

    def _simulate_layers(
        self, x: Inputs, frames: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], Seen, dict[str, int | None]]:
        from hwgen.simulate import frames as on_engine
        from hwgen.simulate.compare import Seen

        group, circuit = self._group, self._circuit
        memory = EngineSimulation(circuit, self.program, group.template.memory).memory
        runs = on_engine.run_frames(circuit.verilog, self.program, frames, memory)
        maps = on_engine.all_maps(circuit.verilog, group.schedule, frames, memory)
        one = on_engine.predict(self.program, group.template.memory)
        batch = self.program.batch
        interval, predicted = (-(-cycles // batch) for cycles in (runs.cycles[-1], one.cycles))
        cycles = cycles_entry(runs.cycles[0], interval if len(frames[0]) > 2 else None, one.cycles, predicted)
        return runs.maps, Seen(pixels=maps), cycles


@dataclass(frozen=True, repr=False)
class Retrained(AcceleratorDesign):
    """Design of a retrained model that runs on the hardware built for another model with the same layers."""

    folder: Loadable = field(kw_only=True)
    """`Loadable` design in a folder, whose hardware the model uses: digest, layers' fields, weight widths."""

    @cached_property
    def weights(self) -> bytes:
        """Weights file of this model for the existing design, as bytes."""
        from hwgen.emit import weights
        from hwgen.network import host

        return weights.write(self.config, host.describe(self.network), self.model.name)

    def _simulate_frames(self, frames: Sequence[np.ndarray], options: Options) -> Run:
        """Return a `Run`: the existing design simulated on frames with the retrained model's weights.

        Returns
        -------
        Run
            Outputs, cycles and traffic of the simulated hardware.
        """
        from hwgen import simulate
        from hwgen.emit import weights
        from hwgen.simulate.loading import Loading, LoadingConfig

        _, load = weights.read(self.weights, self.folder.top)
        inner = replace(self.config, input_names=self.folder.inputs, output_names=self.folder.outputs)
        config: Any = LoadingConfig(inner, load, self.folder.top)
        return simulate.run_groups([config], frames, replace(options, component=Loading, beside=self.folder.verilog()))


DESIGNS: dict[str, type[Design]] = {ENGINE: ProgramDesign}
"""Dictionary by template of a plan's only fusion group: its class of design; else `AcceleratorDesign`."""


def design_of(model: GoldenModel, plan: Plan) -> Design:
    """Return the `Design` of a model with a given plan, an instance of the class for the plan's template.

    Returns
    -------
    Design
        An `AcceleratorDesign`, or for a plan on an engine a `ProgramDesign`.
    """
    template = plan.groups[0].template.name if len(plan.groups) == 1 else ""
    return DESIGNS.get(template, AcceleratorDesign)(model, plan)


@dataclass(frozen=True, repr=False)
class Model(GoldenModel):
    """Model read as a network of integer layers, with methods that plan or compile designs for it.

    ``plan`` plans new hardware. ``retrained`` loads the model's weights into the hardware of an existing design.
    ``compile`` makes a program for an existing engine, and ``run`` runs a program.
    """

    def _repr_html_(self) -> str:
        """Return the model's layers as HTML, for a notebook.

        Returns
        -------
        str
            HTML table.
        """
        from hwgen.report import notebook

        return notebook.model(self.network)

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
        """Return the `Design` of this model for a board, planned by the options or as an older plan says.

        Parameters
        ----------
        board : str or Board
            Name (``zedboard``), path of a board's ``.toml`` file, or the board itself.
        plan : str or Path, optional
            Path of a ``plan.json`` to follow instead of planning.
        progress : bool or callable
            Whether progress is shown on stderr, or a function that receives it (`hwgen.progress`).
        jobs : int, optional
            Number of steps of a long search that run side by side; one per processor if not given. Only the search for
            an engine has such steps.
        cluster : str, optional
            Cluster that runs these steps (`hwgen.work.pool`); this machine if not given. It is used only if there are
            such steps.
        options
            Options of the plan, by the names of `hwgen.options.Options` (the parameters of `hwgen.plan.Request`).

        Returns
        -------
        Design
            Model with its plan.

        Raises
        ------
        BoardError
            If the board is unknown.
        InputError
            If an option is unknown, or is given together with ``plan``. If ``jobs`` is not a positive integer,
            ``cluster`` is not an address, or both are given.
        PlanError
            If an option makes no sense, or no plan fits the board. If ``plan`` can't be read, does not fit the network
            or exceeds the board.
        """
        from hwgen import work
        from hwgen.plan import kept

        if not isinstance(board, Board):
            board = load_board(str(board))
        with followed(progress), work.beside(cluster, jobs):
            if plan is None:
                return design_of(self, kept.make(self.network, board, **options))
        check_names(options)
        if given := [name for name, value in options.items() if value is not None and value is not False]:
            names = " and ".join(map(called, given))
            raise InputError(
                f"{called('plan')} gives a finished plan, which {names} can't change: leave one of them out"
            )
        return design_of(self, _read_plan(plan, self.network, board))

    @checked
    def retrained(self, design: str | Path, *, board: str | Board | None = None) -> Retrained:
        """Return the `Retrained` design: this model on an existing design that loads weights at run time.

        Parameters
        ----------
        design : str or Path
            Folder that ``Design.build`` wrote for a plan with ``weights="runtime"``.
        board : str or Board, optional
            As for ``plan``; the board that the existing design's plan names if not given.

        Returns
        -------
        Retrained
            Design whose ``weights`` are the contents of the file to load. ``simulate`` loads them into the existing
            design's own Verilog.

        Raises
        ------
        InputError
            If there is no such design in the folder, or its hardware differs from the model's. The message names the
            layer and the field that differ.
        PlanError
            If the existing design's plan has other layers.
        BoardError
            If the board is unknown.
        """
        from hwgen import plan as planner
        from hwgen.emit import weights
        from hwgen.network.loaded import for_hardware
        from hwgen.plan import document

        existing = weights.read_design(design)
        text = _plan_text(Path(design) / "plan.json")
        if not isinstance(board, Board):
            board = board or document.board_name(text)
            if board is None:
                raise InputError(f"{Path(design) / 'plan.json'} is not as hwgen wrote it: build the design again")
            board = load_board(str(board))
        network = for_hardware(self.network, existing.weight_bits)
        retrained = Retrained(self, planner.read(text, network, board), folder=existing)
        existing.refuse(retrained.config, self.name)
        return retrained

    @checked
    def compile(
        self,
        engine: str | Path,
        *,
        plan: str | Path | None = None,
        batch: int | None = None,
        fuse: str | None = None,
        jobs: int | None = None,
        cluster: str | None = None,
    ) -> Design:
        """Return the `Design` with this model's program for an existing engine.

        Parameters
        ----------
        engine : str or Path
            Folder that ``Design.build`` wrote for a plan on an engine.
        plan : str or Path, optional
            Path of a ``plan.json`` for this engine, to follow instead of planning.
        batch : int, optional
            Number of frames that one run of the program computes; 1 if not given, or the batch of ``plan``.
        fuse : str, optional
            Whether maps are kept in the engine's map memory, ``auto`` (the default) or ``off``. Not with ``plan``.
        jobs, cluster
            As for ``plan``.

        Returns
        -------
        Design
            Design on the existing engine. ``program`` is the program, and ``simulate`` runs the program on the engine's
            own Verilog.

        Raises
        ------
        InputError
            If there is no engine in the folder, or its files were changed.
        PlanError
            If the engine can't compute a layer or has no room for it. If the plan can't be read or is for another
            engine. If ``batch`` is out of range or given together with ``plan``.
        """
        from hwgen import work
        from hwgen.emit import engine as folder
        from hwgen.plan.engine import on_engine

        circuit = folder.read(engine)
        text = None if plan is None else _plan_text(plan)
        with work.beside(cluster, jobs):
            engine_plan = on_engine(self.network, circuit.board, circuit.engine, circuit.memory, text, batch, fuse)
        return ProgramDesign(self, engine_plan, circuit)

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
        """Simulate a program file of this model on an existing engine; return a `Result` (golden model compared).

        Parameters
        ----------
        engine : str or Path
            Folder that ``Design.build`` wrote for a plan on an engine.
        program : str or Path
            File of the program.
        x, waves, progress, jobs, memory_latency, bandwidth, cluster
            As for ``Design.simulate``.

        Returns
        -------
        Result
            Outputs, mismatches, and measured and predicted cycles.

        Raises
        ------
        CheckError
            If the engine ends with an error, breaks a rule of AXI, or does not come to an end.
        InputError
            If there is no engine in the folder. If the file is not a program, is cut off, was changed, is for another
            engine, or is of a model with other maps. If the frames do not fit the model.
        ToolError
            If Verilator is missing or fails.
        """
        from hwgen.emit import engine as folder
        from hwgen.program.file import Program
        from hwgen.simulate.frames import check_program
        from hwgen.templates.engine import EngineTemplate

        circuit = folder.read(engine)
        loaded = Program.read(Path(program), circuit.engine)
        check_program(loaded, self.network)
        template = EngineTemplate(engine=circuit.engine, memory=circuit.memory)
        timing = template.timing(circuit.board, memory_latency, bandwidth)
        run = EngineSimulation(circuit, loaded, timing, waves=waves, progress=progress, jobs=jobs, cluster=cluster)
        return run.compared(self, x)


def _read_plan(path: str | Path, network: Network, board: Board) -> Plan:
    """Return the `Plan` in a ``plan.json``, for a network and board; a plan for another board gets a note.

    Returns
    -------
    Plan
        Plan in the file.

    Raises
    ------
    PlanError
        If the file can't be read, or is not a plan that can work. The message names the file.
    """
    from hwgen import plan as planner
    from hwgen.plan import document

    text = _plan_text(path)
    made_for = document.board_name(text)
    notes = () if made_for in (None, board.name) else (f"{path} was made for {made_for}, and is used for {board.name}",)
    try:
        return planner.read(text, network, board, notes)
    except PlanError as error:
        error.args = (f"{path}: {error}", *error.args[1:])
        raise


def _plan_text(plan: str | Path) -> str:
    """Return the text of a ``plan.json`` file, or raise PlanError if it can't be read.

    Returns
    -------
    str
        Text of the file.

    Raises
    ------
    PlanError
        If the file can't be read.
    """
    try:
        return Path(plan).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null character in the path, or text that is not UTF-8
        reason = getattr(error, "strerror", None) or "not a text file"
        raise PlanError(f"plan {plan} can't be read: {reason}") from error
