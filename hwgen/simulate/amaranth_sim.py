"""Runs in Amaranth's own simulator: slow, but nothing has to be translated or compiled."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from amaranth import ClockDomain, Module, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator

from hwgen.emit import stimuli
from hwgen.emit.testbench import DRAIN
from hwgen.simulate.job import Job
from hwgen.simulate.memory import Traffic
from hwgen.simulate.result import Raw

__all__ = ["run"]


def _plain(value) -> Value:
    return value.as_value() if hasattr(value, "as_value") else Value.cast(value)


def run(job: Job, component: wiring.Component) -> Raw:
    """Simulate the component; see ``Job`` for what happens in a cycle."""
    beats = stimuli.integers(job.payloads)
    frame_beats, beats_out = len(job.writes), job.beats_out
    m = Module()
    domain: Any = ClockDomain("sync")
    dut: Any = component
    m.domains.sync = domain
    m.submodules.dut = dut
    i_payload, o_payload = _plain(dut.i.payload), _plain(dut.o.payload)
    noise = (1 << len(i_payload)) - 1
    watched = [getattr(dut, f"tap_{number}") for number in range(len(job.taps))]
    signals = [dut.i.ready, dut.o.valid, o_payload]
    for tap in watched:
        signals += [tap.valid, _plain(tap.payload), tap.busy]
    outputs: list[int] = []
    taps: list[list[int]] = [[] for _ in watched]
    raw: Raw | None = None

    async def reset(ctx) -> None:
        ctx.set(domain.rst, 1)
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.o.ready, 0)
        ctx.set(i_payload, noise)
        await ctx.tick()
        await ctx.tick()
        ctx.set(domain.rst, 0)

    async def attempt(ctx, cycles: int | None) -> Raw | None:
        sent = taken = extra = idle = drained = cycle = first_input = last_output = 0
        ends: list[int] = []
        busy: list[int] = []
        steps = [0] * len(watched)
        traffic = Traffic(job.options.memory, job.reads, job.writes, job.frames, one_by_one=job.options.one_by_one)
        error = held = None
        offered = False
        source, sink = stimuli.draws(job.options.draws.source), stimuli.draws(job.options.draws.sink)
        while cycles is None or cycle < cycles:
            finished = traffic.written >= beats_out and traffic.written == taken and sent == len(beats)
            drained += finished
            if drained > DRAIN:
                break
            traffic.begin(cycle, sent)
            stall, ready = next(source), not next(sink) and traffic.room
            offered = offered or (sent < traffic.arrived and not stall)
            ctx.set(dut.i.valid, offered)
            ctx.set(i_payload, beats[sent] if offered else noise)
            ctx.set(dut.o.ready, ready)
            _, in_reset, i_ready, valid, payload, *tapped = await ctx.tick().sample(*signals)
            assert not in_reset
            moved = False
            steps = [count + step for count, step in zip(steps, tapped[2::3], strict=True)]
            if offered and i_ready:
                if sent == 0:
                    first_input = cycle
                sent += 1
                offered, moved = False, True
            if held is not None and cycles is None and not (valid and payload == held):
                error = "payload" if valid else "valid"
                break
            held = payload if valid and not ready else None
            if valid and ready:
                moved = True
                if taken < beats_out:
                    outputs.append(payload)
                    last_output = cycle
                    if (taken + 1) % frame_beats == 0:
                        ends.append(cycle)
                        busy += steps
                else:
                    extra += 1
                taken += 1
                traffic.post(cycle)
            if cycles is None:
                for values, tap_valid, tap_payload in zip(taps, tapped[::3], tapped[1::3], strict=True):
                    if tap_valid:
                        values.append(tap_payload)
                if cycle & 15 == 0:
                    job.tick(taken)
            idle = 0 if moved else idle + 1
            if idle > job.idle and not finished and cycles is None:
                error = "stuck"
                break
            cycle += 1
        if cycles is not None:
            outputs.clear()
            return None
        return Raw(
            payloads=stimuli.words(outputs, job.config.output),
            sent=sent,
            taken=taken,
            extra=extra,
            simulated=cycle,
            first_input=first_input,
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
        )

    async def testbench(ctx) -> None:
        nonlocal raw
        await reset(ctx)
        if job.options.reset_at:
            await attempt(ctx, job.options.reset_at)
            await reset(ctx)
        raw = await attempt(ctx, None)

    simulator = Simulator(m)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    start = time.perf_counter()
    with simulator.write_vcd(str(job.options.wave_file)) if job.options.wave_file else nullcontext():
        simulator.run()
    assert raw is not None
    return raw
