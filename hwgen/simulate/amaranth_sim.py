"""Simulation in Amaranth's own simulator, which is slow, but needs neither Verilog nor a compiler."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from operator import ge
from typing import Any

from amaranth import ClockDomain, Module, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator as AmaranthSimulator

from hwgen.simulate import stimuli
from hwgen.simulate.job import SimulationJob
from hwgen.simulate.memory import TrafficModel
from hwgen.simulate.result import Raw
from hwgen.simulate.simulator import Simulator
from hwgen.simulate.testbench import DRAIN
from hwgen.verilog.emitted import accelerator


def _as_value(value) -> Value:
    """Return an Amaranth value-castable, such as a struct view, as a plain ``Value``."""
    return value.as_value() if hasattr(value, "as_value") else Value.cast(value)


class Amaranth(Simulator):
    """Simulator that runs the Amaranth component itself, without Verilog, in Amaranth's own simulator."""

    def run(self, job: SimulationJob, files: Mapping[str, bytes], top: str) -> Raw:
        return _simulate(job, accelerator(job.config, component=job.options.component, taps=job.options.taps))


SIMULATOR = Amaranth()


def _simulate(job: SimulationJob, component: wiring.Component) -> Raw:
    """Return a `Raw`: the result of Amaranth's simulator for a component, cycle by cycle as in `SimulationJob`."""
    bench = _Bench(job, component)
    results: list[Raw] = []

    async def testbench(ctx) -> None:
        await bench.reset(ctx)
        if job.options.reset_at:
            await _Run(bench).run(ctx, job.options.reset_at)
            await bench.reset(ctx)
        last = _Run(bench, is_checked=True)
        await last.run(ctx, None)
        results.append(last.result(time.perf_counter() - start))

    simulator = AmaranthSimulator(bench.module)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    start = time.perf_counter()
    with simulator.write_vcd(str(job.options.wave_file)) if job.options.wave_file else nullcontext():
        simulator.run()
    (raw,) = results
    return raw


class _Bench:
    """Test bench of a component in Amaranth's simulator: module, clock domain, streams and sampled signals.

    Parameters
    ----------
    job : SimulationJob
    component : Component
        Component with the job's streams as ports.
    """

    def __init__(self, job: SimulationJob, component: wiring.Component) -> None:
        self.job = job
        self.beats = [stimuli.integers(payloads) for payloads in job.payloads]
        dut: Any = component
        self.domain: Any = ClockDomain("sync")
        self.module = Module()
        self.module.domains.sync = self.domain
        self.module.submodules.dut = dut
        self.sources = [getattr(dut, port.name) for port in job.inputs]
        self.sinks = [getattr(dut, port.name) for port in job.outputs]
        self.payloads = [_as_value(source.payload) for source in self.sources]
        self.noise = [(1 << len(payload)) - 1 for payload in self.payloads]
        taps = [getattr(dut, f"tap_{index}") for index in range(len(job.taps))]
        self.sampled = [source.ready for source in self.sources]
        for sink in self.sinks:
            self.sampled += [sink.valid, _as_value(sink.payload)]
        for tap in taps:
            self.sampled += [tap.valid, _as_value(tap.payload), tap.busy]

    async def reset(self, ctx: Any) -> None:
        """Reset the component for two cycles, with all ``valid`` inputs and ``ready`` inputs low."""
        ctx.set(self.domain.rst, 1)
        for source, payload, noise in zip(self.sources, self.payloads, self.noise, strict=True):
            ctx.set(source.valid, 0)
            ctx.set(payload, noise)
        for sink in self.sinks:
            ctx.set(sink.ready, 0)
        await ctx.tick()
        await ctx.tick()
        ctx.set(self.domain.rst, 0)


class _Run:
    """Simulation of a component after one reset, with the beats that its streams have transferred so far.

    Parameters
    ----------
    bench : _Bench
    is_checked : bool
        Whether streams are checked and taps recorded. A run that a reset will end is not.
    """

    def __init__(self, bench: _Bench, *, is_checked: bool = False) -> None:
        job = self.job = bench.job
        self.bench, self.is_checked = bench, is_checked
        self.cycle = self.idle = self.drained = self.extra = self.last_output = self.output_index = 0
        self.first_input: int | None = None
        self.sent, self.offered = [0] * len(bench.sources), [False] * len(bench.sources)
        self.taken: list[int] = [0] * len(bench.sinks)
        self.held: list[int | None] = [None] * len(bench.sinks)
        self.outputs: list[list[int]] = [[] for _ in bench.sinks]
        self.taps: list[list[int]] = [[] for _ in job.taps]
        self.steps = [0] * len(job.taps)
        self.busy: list[int] = []
        self.frame_ends: list[int] = []
        self.error: str | None = None
        self.traffic = TrafficModel(
            job.options.memory, job.reads, job.writes, job.frames, one_by_one=job.options.one_by_one
        )
        self.source_stalls = [stimuli.draws(pair) for pair in job.stalls.sources]
        self.sink_stalls = [stimuli.draws(pair) for pair in job.stalls.sinks]

    async def run(self, ctx: Any, cycles: int | None) -> None:
        """Simulate ``cycles`` cycles, or until all frames have left, an error occurs or transfers stop."""
        while cycles is None or self.cycle < cycles:
            is_finished = self._is_finished()
            self.drained += is_finished
            if self.drained > DRAIN or not await self._step(ctx):
                break
            if self.idle > self.job.idle and not is_finished and self.is_checked:
                self.error = "stuck"
                break
            self.cycle += 1

    def _is_finished(self) -> bool:
        """Return whether all input beats are sent, and all output beats are accepted and written to memory."""
        job = self.job
        all_taken = all(taken >= job.frames * port.beats for taken, port in zip(self.taken, job.outputs, strict=True))
        return all_taken and self.traffic.written == sum(self.taken) and sum(self.sent) == job.beats_in

    async def _step(self, ctx: Any) -> bool:
        """Simulate one cycle; return whether all output streams kept the handshake rules."""
        ready = self._drive(ctx)
        _, in_reset, *sampled = await ctx.tick().sample(*self.bench.sampled)
        assert not in_reset
        num_sources, num_sinks = len(self.bench.sources), len(self.bench.sinks)
        accepting, leaving = sampled[:num_sources], sampled[num_sources : num_sources + 2 * num_sinks]
        tapped = sampled[num_sources + 2 * num_sinks :]
        self.steps = [count + step for count, step in zip(self.steps, tapped[2::3], strict=True)]
        before = sum(self.sent) + sum(self.taken)
        self._send_beats(accepting)
        if not self._take_beats(leaving, ready):
            return False
        self._end_frame()
        if self.is_checked:
            self._record(tapped)
        self.idle = 0 if sum(self.sent) + sum(self.taken) > before else self.idle + 1
        return True

    def _drive(self, ctx: Any) -> list[bool]:
        """Drive valid and payload of all inputs and ready of all outputs for a cycle; return a list of ready bits."""
        bench = self.bench
        self.traffic.begin_cycle(self.cycle, self.sent)
        stalling = list(map(next, self.source_stalls))
        ready = [not next(draw) and self.traffic.has_room for draw in self.sink_stalls]
        for index, source in enumerate(bench.sources):
            self.offered[index] |= self.sent[index] < self.traffic.arrived[index] and not stalling[index]
            ctx.set(source.valid, self.offered[index])
            payload = bench.beats[index][self.sent[index]] if self.offered[index] else bench.noise[index]
            ctx.set(bench.payloads[index], payload)
        for sink, accepts in zip(bench.sinks, ready, strict=True):
            ctx.set(sink.ready, accepts)
        return ready

    def _send_beats(self, accepting: Sequence[int]) -> None:
        """Count the beats that the component accepts in this cycle, given the ``ready`` of its inputs."""
        for index, accepts in enumerate(accepting):
            if self.offered[index] and accepts:
                self.first_input = self.cycle if self.first_input is None else self.first_input
                self.sent[index] += 1
                self.offered[index] = False

    def _take_beats(self, leaving: Sequence[int], ready: Sequence[bool]) -> bool:
        """Accept the beats that leave in this cycle; return whether outputs still hold the beats not yet accepted.

        Parameters
        ----------
        leaving : sequence of int
            ``valid`` and payload of each output.
        ready : sequence of bool
            ``ready`` of each sink.
        """
        for index, (valid, payload) in enumerate(zip(leaving[::2], leaving[1::2], strict=True)):
            self.output_index = index
            held = self.held[index]
            if self.is_checked and held is not None and not (valid and payload == held):
                self.error = "payload" if valid else "valid"
                return False
            self.held[index] = payload if valid and not ready[index] else None
            if valid and ready[index]:
                self._take_beat(index, payload)
        return True

    def _take_beat(self, index: int, payload: int) -> None:
        """Accept a beat of output ``index`` and put it into the write queue; count it as extra if none is expected."""
        if self.taken[index] < self.job.frames * self.job.outputs[index].beats:
            self.outputs[index].append(payload)
            self.last_output = self.cycle
        else:
            self.extra += 1
        self.taken[index] += 1
        self.traffic.post(self.cycle, index)

    def _end_frame(self) -> None:
        """Record the cycle, and the steps of each layer's arithmetic, if a frame's last output beat has left."""
        frame = len(self.frame_ends) + 1
        beats = [frame * port.beats for port in self.job.outputs]
        if frame <= self.job.frames and all(map(ge, self.taken, beats)):
            self.frame_ends.append(self.cycle)
            self.busy += self.steps

    def _record(self, tapped: Sequence[int]) -> None:
        """Record the beats of the layers' streams in this cycle, and report progress.

        Parameters
        ----------
        tapped : sequence of int
            ``valid``, payload and ``busy`` of each layer's stream.
        """
        for values, valid, payload in zip(self.taps, tapped[::3], tapped[1::3], strict=True):
            if valid:
                values.append(payload)
        if self.cycle & 15 == 0:
            self.job.tick(sum(self.taken))

    def result(self, wall_s: float) -> Raw:
        """Return a `Raw`: the unchecked result of the simulation, which took ``wall_s`` seconds."""
        job = self.job
        return Raw(
            payloads=[stimuli.words(values, port.beat) for values, port in zip(self.outputs, job.outputs, strict=True)],
            sent=sum(self.sent),
            taken=sum(self.taken),
            extra=self.extra,
            simulated=self.cycle,
            first_input=self.first_input or 0,
            last_output=self.last_output,
            frame_ends=self.frame_ends,
            written_ends=self.traffic.written_ends,
            read_bytes=self.traffic.bytes[0],
            written_bytes=self.traffic.bytes[1],
            busy=self.busy,
            steps=self.steps,
            taps=[stimuli.words(values, beat) for values, (beat, _) in zip(self.taps, job.taps, strict=True)],
            wall_s=wall_s,
            error=self.error,
            output_index=self.output_index,
        )
