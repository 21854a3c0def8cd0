"""Designs on a programmable engine (MAC array): the engine's circuit, and a program that lets it compute a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Inputs
from hwgen.api.design import Design
from hwgen.api.golden import GoldenModel
from hwgen.api.result import Result, cycles_entry, difference
from hwgen.errors import InputError
from hwgen.progress import Listener, followed

if TYPE_CHECKING:
    from hwgen.emit.engine import EngineVerilog
    from hwgen.program.compile import ProgramSchedule
    from hwgen.program.file import Program
    from hwgen.schedule.engine import MemoryTiming
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
