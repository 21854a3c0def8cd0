"""Designs: a model with a plan of its hardware, which can be simulated and written as Verilog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.arrays import Inputs, Values, listed
from hwgen.api.golden import GoldenModel
from hwgen.api.result import Result, cycles_entry, difference
from hwgen.arguments import checked
from hwgen.boards import Board
from hwgen.errors import InputError
from hwgen.printable import counted
from hwgen.progress import Listener, followed, tell

if TYPE_CHECKING:
    from hwgen.gateware.accelerator import AcceleratorConfig
    from hwgen.network.graph import Network
    from hwgen.network.onnx.layers import RuntimeLayers
    from hwgen.plan import Plan
    from hwgen.program.file import Program
    from hwgen.simulate import Options, Run
    from hwgen.simulate.compare import Comparison, Seen


@dataclass(frozen=True, repr=False)
class Design(ABC):
    """Base class of designs: a model with a plan of its hardware, ready for simulation and for Verilog.

    The hardware is an accelerator of the model's layers, or an engine that runs a program.
    """

    model: GoldenModel
    """`GoldenModel` of what the design's hardware computes."""
    plan: Plan
    """Plan of the design's hardware: layers, unroll factors, buffers, predicted cycles and resources."""

    def __repr__(self) -> str:
        interval = "" if self.interval is None else f", interval {self.interval:,} cycles"
        return (
            f"<Design {self.network.name} on {self.board.name}: {counted(len(self.plan.layers), 'layer')} in "
            f"{counted(len(self.plan.groups), 'group')}, {self.resources['dsp']:,} DSP slices, "
            f"latency {self.latency:,} cycles{interval}>"
        )

    def _repr_html_(self) -> str:
        """Return the design's plan as HTML, for a notebook.

        Returns
        -------
        str
            HTML table.
        """
        from hwgen.report import notebook

        return notebook.plan(self.plan)

    @property
    def network(self) -> Network:
        """Network of integer layers that the design's hardware computes."""
        return self.model.network

    @property
    def board(self) -> Board:
        """`Board` that the plan is for, at the clock of the plan."""
        return self.plan.board

    @property
    def latency(self) -> int:
        """Predicted latency in cycles: from a frame's first input transfer to its last transfer on any output."""
        return self.plan.latency

    @property
    def interval(self) -> int | None:
        """Predicted cycles between the ends of back-to-back frames (initiation interval); ``None`` if not computed."""
        return self.plan.interval

    @property
    def resources(self) -> dict[str, Any]:
        """Dictionary of estimated resources, as far as the plan states them: ``dsp``, ``bram36``, ``lut``, ``ff``."""
        return self.plan.resources.as_dict()

    @cached_property
    def config(self) -> AcceleratorConfig:
        """`AcceleratorConfig` of the accelerator's Amaranth component, for a plan with one fusion group.

        Raises
        ------
        PlanError
            If the plan has several groups, or can't be built yet.
        """
        return self.plan.configure()

    @property
    def program(self) -> Program:
        """Program (job list and weights) that lets an engine compute the model; only designs on an engine have one.

        Raises
        ------
        InputError
            If the plan is not on an engine.
        ModelError
            If weights of the model are not known.
        """
        raise InputError(f"plan of {self.network.name} for {self.board.name} is not on an engine: it has no program")

    def table(self) -> str:
        """Return the design's plan as a text table with one line per layer.

        Returns
        -------
        str
            Several lines of text.
        """
        from hwgen.report import plan as report

        return report.table(self.plan)

    def to_json(self) -> str:
        """Return the plan as the text of a ``plan.json``, which ``Model.plan`` can follow later.

        Returns
        -------
        str
            JSON text.
        """
        from hwgen.plan import document

        return document.write(self.plan)

    @checked
    def golden(self, x: Inputs, *, integers: bool = False) -> Values:
        """Return the model's outputs for frames (array, or arrays by name), computed by the golden model.

        Parameters
        ----------
        x, integers
            As for ``Model.golden``.

        Returns
        -------
        ndarray, or dict of str to ndarray
            Outputs ``(n, ...)``, as ``Model.golden`` returns them.

        Raises
        ------
        InputError
            If the frames do not fit the model.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        """
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
        """Write Verilog, memory files, plan, test bench and report to a folder (all or none); return its path.

        An engine has its program in place of the test bench.

        Parameters
        ----------
        directory : str or Path, optional
            Folder to write; ``build/NAME-BOARD`` under the current folder if not given.
        x : ndarray, or sequence or dict of ndarray, optional
            Frames for the test bench, as for ``Model.prepare``; three seeded random frames if not given.
        say : callable, optional
            Receiver of a line of text for each file of an earlier build that is kept, because it was changed since.
        progress : bool or callable
            Whether progress is shown on stderr, or a function that receives it (`hwgen.progress`).
        force : bool
            Whether files that hwgen did not write, or that were changed since, are overwritten.

        Returns
        -------
        Path
            Folder that was written.

        Raises
        ------
        InputError
            If the folder can't be written, or has files that would be lost without ``force``; if ``x`` does not fit
            the model, or is given for an engine.
        PlanError
            If the plan can't be built yet.
        """
        with followed(progress):
            return self._save_to(directory, x, say, force)

    def _save_to(self, directory: str | Path | None, x: Inputs | None, say: Callable[[str], None], force: bool) -> Path:
        from hwgen import emit
        from hwgen.gateware.names import file_name
        from hwgen.report.page import html

        default = Path("build") / file_name(f"{self.network.name}-{self.board.name}")
        folder = default if directory is None else directory
        emit.check_folder(folder)
        return self._emit(folder, x, lambda: {"others": {html.NAME: self.page()}, "say": say, "force": force})

    @abstractmethod
    def _emit(self, folder: str | Path, x: Inputs | None, files: Callable[[], dict[str, Any]]) -> Path:
        """Write all files of the design into ``folder``; ``files`` returns keyword arguments for the file writers."""

    def report(self) -> str:
        """Return the report of the design's plan as Markdown text.

        Returns
        -------
        str
            Markdown text.
        """
        from hwgen.report import plan as report

        return report.markdown(self.plan, self.model.host)

    def page(self) -> bytes:
        """Return the bytes of the design's HTML report, ``report.html``: one file that a browser shows by itself.

        Returns
        -------
        bytes
            Contents of the file.
        """
        from hwgen.report.page import html

        return html.render(self.document())

    def document(self) -> dict[str, Any]:
        """Return a dictionary of the contents of the design's ``report.html`` as JSON-like values, by section name.

        Returns
        -------
        dict
            ``title``; ``of`` and ``plan``, digests of the whole design and of its plan; ``design`` and ``times``.
        """
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
        simulator: str = "verilator",
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
        """Simulate the hardware on frames, compare each output value with the golden model, and return a `Result`.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``Model.prepare``, float32 or the model's own integer type.
        simulator : str
            ``verilator``, ``icarus`` or ``amaranth``.
        waves : path, optional
            Waveform file to write (``.vcd`` or ``.fst``, as far as the simulator supports them).
        wave_frames : tuple of int, optional
            First recorded frame, and the frame after the last one (Verilator); all frames if not given.
        wave_layers : sequence of str, optional
            Names of the recorded layers (Verilator); all layers if not given.
        progress : bool or callable
            Whether progress is shown on stderr, or a function that receives it (`hwgen.progress`).
        stalls : tuple of float, optional
            Probabilities that the source and the sink stall in a cycle; neither stalls if not given. The first holds
            for the source of each input. If there are several outputs, the second holds for all their sinks, or each
            sink has its own, in order.
        seed : int
            Seed of the stalls.
        jobs : int, optional
            Number of simulations side by side (Verilator), each from reset with its share of the frames, 16 at least.
            One if not given; on a cluster, two for each simulation that the cluster runs at a time.
        memory_latency : int, optional
            Cycles from a read of off-chip memory to its first byte; 0 if not given, or the latency of an engine's plan.
        bandwidth : float, optional
            Bandwidth of off-chip memory, reads and writes together, in GB/s at the board's clock. Unlimited if not
            given, or the bandwidth of an engine's plan.
        cluster : str, optional
            Address of a Dask scheduler whose workers run the simulations side by side, or ``local:N`` for N workers on
            this machine. The frames must be enough for several simulations.

        Returns
        -------
        Result
            Outputs, mismatches, and measured and predicted cycles.

        Raises
        ------
        CheckError
            If the hardware stops before all frames are computed, or breaks a rule of its interfaces.
        InputError
            If the frames do not fit the model, or the simulator or an engine can't take an option.
        ModelError
            If ONNX Runtime can't run the operators after the last integer tensor.
        PlanError
            If the plan can't be built yet.
        ToolError
            If the simulator is missing or fails.
        """
        return self._simulated(
            x,
            simulator=simulator,
            waves=waves,
            wave_frames=wave_frames,
            wave_layers=wave_layers,
            progress=progress,
            stalls=stalls,
            seed=seed,
            jobs=jobs,
            memory_latency=memory_latency,
            bandwidth=bandwidth,
            cluster=cluster,
        )

    @abstractmethod
    def _simulated(self, x: Inputs, **options: Any) -> Result:
        """Return the `Result` of simulating the hardware on frames; the parameters are as in `simulate`."""

    @checked
    def compare(
        self,
        x: Inputs,
        runtime: RuntimeLayers,
        *,
        labels: np.ndarray | None = None,
        progress: bool | Listener = False,
    ) -> Comparison:
        """Return a layer-by-layer `Comparison` of ONNX Runtime, golden model and hardware on the same frames.

        Parameters
        ----------
        x : ndarray, or sequence or dict of ndarray
            Frames as for ``Model.prepare``.
        runtime : RuntimeLayers
            Result of `Model.runtime` for the model's file.
        labels : ndarray, optional
            ``(n,)`` integers: the class of each frame. The comparison then counts the frames that are classified right.
        progress : bool or callable
            Whether progress is shown on stderr, or a function that receives it (`hwgen.progress`).

        Returns
        -------
        Comparison
            Differing values per layer and per output, and measured and predicted cycles.

        Raises
        ------
        InputError
            If the frames do not fit the model, or the labels are not one class per frame.
        ModelError
            If ONNX Runtime can't run the model.
        ToolError
            If Verilator is missing or fails.
        """
        from hwgen.network import golden, quantise
        from hwgen.report import notebook
        from hwgen.report.page.checks import predicted_classes
        from hwgen.simulate import compare

        frames = self.model._prepared(x)
        with followed(progress):
            maps, seen, cycles = self._simulate_layers(x, frames)
            tell(f"{self.network.name}: comparing layer by layer")
            given = quantise.as_model(self.network, x, frames, runtime.floats)
            rows, theirs = compare.layer_by_layer(self.network, frames, seen, runtime, given)
        three = {
            "runtime": theirs,
            "golden": listed(self.model._outputs(golden.outputs(self.network, frames), x, frames)),
            "hardware": listed(self.model._outputs(maps, x, frames)),
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
                    values=compare.size(should),
                    runtime=compare.distance(theirs.reshape(should.shape), should),
                    hardware=compare.distance(ours, should),
                    is_rounded=bool(runtime.roundings) and compare.is_near(theirs.reshape(should.shape), should),
                )
                for name, theirs, should, ours in zip(self.model.output_names, *three.values(), strict=True)
            ),
            right=right,
            cycles=cycles,
            html=notebook.comparison,
        )

    @abstractmethod
    def _simulate_layers(
        self, x: Inputs, frames: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], Seen, dict[str, int | None]]:
        """Simulate frames; return a triple: output maps, `Seen` (each layer's output), cycles measured and predicted.

        Returns
        -------
        maps : sequence of ndarray
            Outputs of the hardware.
        seen : Seen
            Outputs of each layer.
        cycles : dict of str to (int or None)
            Measured and predicted cycles (`cycles_entry`).
        """


class AcceleratorDesign(Design):
    """Design of an accelerator with separate hardware for each of the model's layers, linked by streams."""

    def _emit(self, folder: str | Path, x: Inputs | None, files: Callable[[], dict[str, Any]]) -> Path:
        from hwgen import emit
        from hwgen.network import golden

        frames = self.model._prepared(self.model.random_frames(3) if x is None else x)
        configs = self.plan.configs()
        how = {"board": self.board, **files()}
        if len(configs) > 1:
            maps = self._maps(frames[0])
            return emit.build_groups(self.to_json(), configs, maps, folder, self.report(), **how)
        expected = golden.outputs(self.network, frames)
        if configs[0].first_load is not None:
            how["software"] = self._first_weights(configs[0])
        return emit.build(self.to_json(), configs[0], frames, expected, folder, self.report(), **how)

    def _first_weights(self, config: AcceleratorConfig) -> dict[str, bytes]:
        """Return, as a dict, the model's weights file (bytes by file name) for hardware that loads weights at run time.

        Returns
        -------
        dict of str to bytes
            Content of the file, by its name.
        """
        from hwgen.emit import weights
        from hwgen.gateware.names import identifier
        from hwgen.network import host

        content = weights.write(config, host.describe(self.network), self.model.name)
        return {f"{identifier(config.name)}{weights.SUFFIX}": content}

    def _maps(self, frames: np.ndarray) -> list[np.ndarray]:
        """Return golden maps ``(n, C, H, W)`` as a list: the input, then the output of each fusion group of the plan.

        Returns
        -------
        list of numpy.ndarray
            Integer maps ``(n, C, H, W)``, one entry more than the plan has groups.
        """
        from hwgen.network import golden

        maps = [frames]
        for group in self.plan.groups:
            maps.append(golden.run(group.network, maps[-1]))
        return maps

    def _simulated(
        self,
        x: Inputs,
        *,
        stalls: tuple[float, ...] | None = None,
        wave_layers: Sequence[str] | None = None,
        memory_latency: int | None = None,
        bandwidth: float | None = None,
        **others: Any,
    ) -> Result:
        from hwgen import simulate
        from hwgen.network import golden
        from hwgen.simulate import check

        rate = None if bandwidth is None else bandwidth * 1000 / self.board.clock_mhz
        options = simulate.Options(
            stalls=stalls,
            wave_layers=None if wave_layers is None else tuple(wave_layers),
            memory=simulate.Memory(latency=memory_latency or 0, bytes_per_cycle=rate),
            **others,
        )
        frames = self.model._prepared(x)
        expected = golden.outputs(self.network, frames)
        expected_outputs = self.model._outputs(expected, x, frames)  # before the simulation, which may take a while
        configs = self.plan.configs()
        run = self._simulate_frames(frames, options)
        prediction = self.plan.placement.predict(len(run.frame_ends))
        first = check.locate(configs, self.network, frames, run.maps, expected, simulator=options.simulator)
        same = all(map(np.array_equal, run.maps, expected))
        return Result(
            outputs=expected_outputs if same else self.model._outputs(run.maps, x, frames),
            expected=expected_outputs,
            integers=self.model._integers(run.maps),
            mismatches=first.count if first else 0,
            first_mismatch=str(first) if first else None,
            difference=difference(first),
            latency=run.latency,
            interval=run.interval,
            predicted_latency=prediction.latency,
            predicted_interval=self.interval if prediction.interval is None else prediction.interval,
            stalled=stalls is not None or options.memory.may_stall,
            read_bytes=run.read_bytes,
            written_bytes=run.written_bytes,
            wall_s=run.wall_s,
            cycles=run.cycles,
            cycles_per_s=run.cycles_per_s,
            simulator=run.simulator,
        )

    def _simulate_layers(
        self, x: Inputs, frames: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], Seen, dict[str, int | None]]:
        from hwgen import simulate
        from hwgen.simulate import check
        from hwgen.simulate.compare import Seen

        configs = self.plan.configs()
        run = self._simulate_frames(frames, simulate.Options(taps=True))
        own = check.in_network(configs, self.network)
        layers = [layer.name for layer in self.network.layers]
        seen = Seen(
            pixels={name: run.taps[number] for name, (number, _) in zip(layers, own, strict=True)},
            orders={name: order for name, (_, order) in zip(layers, own, strict=True)},
        )
        prediction = self.plan.placement.predict(len(run.frame_ends))
        interval = self.interval if prediction.interval is None else prediction.interval
        return run.maps, seen, cycles_entry(run.latency, run.interval, prediction.latency, interval)

    def _simulate_frames(self, frames: Sequence[np.ndarray], options: Options) -> Run:
        """Return a `Run`: the accelerator, or its groups in turn, simulated on input maps ``(n, C, H, W)``.

        Returns
        -------
        Run
            Outputs, cycles and traffic of the simulated hardware.
        """
        from hwgen import simulate

        return simulate.run_groups(self.plan.configs(), frames, options)
