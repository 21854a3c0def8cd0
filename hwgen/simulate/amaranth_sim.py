"""Simulation in Amaranth's own simulator, which is slow, but needs neither Verilog nor a compiler."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from operator import ge
from typing import Any

from amaranth import ClockDomain, Module, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator as AmaranthSimulator

from hwgen.emit import stimuli
from hwgen.emit.testbench import DRAIN
from hwgen.emit.verilog import accelerator
from hwgen.simulate.job import Job
from hwgen.simulate.memory import Traffic
from hwgen.simulate.result import Raw
from hwgen.simulate.simulator import Simulator

__all__ = ["SIMULATOR", "Amaranth"]


def _plain(value) -> Value:
    return value.as_value() if hasattr(value, "as_value") else Value.cast(value)


class Amaranth(Simulator):
    """Simulator that runs the Amaranth component itself, not its Verilog, in Amaranth's own simulator."""

    def run(self, job: Job, files: Mapping[str, bytes], top: str) -> Raw:
        return _run(job, accelerator(job.config, component=job.options.component, taps=job.options.taps))


SIMULATOR = Amaranth()


def _run(job: Job, component: wiring.Component) -> Raw:
    """Simulate a component in Amaranth's simulator, with the events of one cycle as in `Job`; return the raw result."""
    beats = [stimuli.integers(payloads) for payloads in job.payloads]
    frame_beats = [port.beats for port in job.outputs]
    beats_out = [job.frames * beats for beats in frame_beats]
    m = Module()
    domain: Any = ClockDomain("sync")
    dut: Any = component
    m.domains.sync = domain
    m.submodules.dut = dut
    sources = [getattr(dut, port.name) for port in job.inputs]
    sinks = [getattr(dut, port.name) for port in job.outputs]
    payloads = [_plain(source.payload) for source in sources]
    noise = [(1 << len(payload)) - 1 for payload in payloads]
    watched = [getattr(dut, f"tap_{tap_index}") for tap_index in range(len(job.taps))]
    signals = [source.ready for source in sources]
    for sink in sinks:
        signals += [sink.valid, _plain(sink.payload)]
    for tap in watched:
        signals += [tap.valid, _plain(tap.payload), tap.busy]
    outputs: list[list[int]] = [[] for _ in sinks]
    taps: list[list[int]] = [[] for _ in watched]
    raw: Raw | None = None

    async def reset(ctx) -> None:
        ctx.set(domain.rst, 1)
        for source, payload, quiet in zip(sources, payloads, noise, strict=True):
            ctx.set(source.valid, 0)
            ctx.set(payload, quiet)
        for sink in sinks:
            ctx.set(sink.ready, 0)
        await ctx.tick()
        await ctx.tick()
        ctx.set(domain.rst, 0)

    async def attempt(ctx, cycles: int | None) -> Raw | None:
        extra = idle = drained = cycle = last_output = output_index = 0
        first_input: int | None = None
        sent, offered = [0] * len(sources), [False] * len(sources)
        taken = [0] * len(sinks)
        ends: list[int] = []
        busy: list[int] = []
        steps = [0] * len(watched)
        traffic = Traffic(job.options.memory, job.reads, job.writes, job.frames, one_by_one=job.options.one_by_one)
        error = None
        held: list[int | None] = [None] * len(sinks)
        withheld = [stimuli.draws(pair) for pair in job.stalls.sources]
        stalls = [stimuli.draws(pair) for pair in job.stalls.sinks]
        while cycles is None or cycle < cycles:
            all_taken = all(count >= expected for count, expected in zip(taken, beats_out, strict=True))
            finished = all_taken and traffic.written == sum(taken) and sum(sent) == job.beats_in
            drained += finished
            if drained > DRAIN:
                break
            traffic.begin(cycle, sent)
            held_back, ready = list(map(next, withheld)), [not next(draw) and traffic.room for draw in stalls]
            for index, source in enumerate(sources):
                offered[index] |= sent[index] < traffic.arrived[index] and not held_back[index]
                ctx.set(source.valid, offered[index])
                ctx.set(payloads[index], beats[index][sent[index]] if offered[index] else noise[index])
            for sink, accepted in zip(sinks, ready, strict=True):
                ctx.set(sink.ready, accepted)
            _, in_reset, *sampled = await ctx.tick().sample(*signals)
            accepting, sampled = sampled[: len(sources)], sampled[len(sources) :]
            offered_beats, tapped = sampled[: 2 * len(sinks)], sampled[2 * len(sinks) :]
            assert not in_reset
            moved = False
            steps = [count + step for count, step in zip(steps, tapped[2::3], strict=True)]
            for index, accepted in enumerate(accepting):
                if offered[index] and accepted:
                    first_input = cycle if first_input is None else first_input
                    sent[index] += 1
                    offered[index], moved = False, True
            for output_index, (valid, payload) in enumerate(zip(offered_beats[::2], offered_beats[1::2], strict=True)):
                if held[output_index] is not None and cycles is None and not (valid and payload == held[output_index]):
                    error = "payload" if valid else "valid"
                    break
                held[output_index] = payload if valid and not ready[output_index] else None
                if valid and ready[output_index]:
                    moved = True
                    if taken[output_index] < beats_out[output_index]:
                        outputs[output_index].append(payload)
                        last_output = cycle
                    else:
                        extra += 1
                    taken[output_index] += 1
                    traffic.post(cycle, output_index)
            if error is not None:
                break
            frame = len(ends) + 1
            if frame <= job.frames and all(map(ge, taken, (frame * count for count in frame_beats))):
                ends.append(cycle)
                busy += steps
            if cycles is None:
                for values, tap_valid, tap_payload in zip(taps, tapped[::3], tapped[1::3], strict=True):
                    if tap_valid:
                        values.append(tap_payload)
                if cycle & 15 == 0:
                    job.tick(sum(taken))
            idle = 0 if moved else idle + 1
            if idle > job.idle and not finished and cycles is None:
                error = "stuck"
                break
            cycle += 1
        if cycles is not None:
            for values in outputs:
                values.clear()
            return None
        return Raw(
            payloads=[stimuli.words(values, port.beat) for values, port in zip(outputs, job.outputs, strict=True)],
            sent=sum(sent),
            taken=sum(taken),
            extra=extra,
            simulated=cycle,
            first_input=first_input or 0,
            last_output=last_output,
            frame_ends=ends,
            written_ends=traffic.written_ends,
            read_bytes=traffic.bytes[0],
            written_bytes=traffic.bytes[1],
            busy=busy,
            steps=steps,
            taps=[stimuli.words(values, beat) for values, (beat, _) in zip(taps, job.taps, strict=True)],
            wall_s=time.perf_counter() - start,
            error=error,
            output_index=output_index,
        )

    async def testbench(ctx) -> None:
        nonlocal raw
        await reset(ctx)
        if job.options.reset_at:
            await attempt(ctx, job.options.reset_at)
            await reset(ctx)
        raw = await attempt(ctx, None)

    simulator = AmaranthSimulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    start = time.perf_counter()
    with simulator.write_vcd(str(job.options.wave_file)) if job.options.wave_file else nullcontext():
        simulator.run()
    assert raw is not None
    return raw
