"""Driving and watching a component cycle by cycle in Amaranth's simulator.

Everything is set after one clock edge and sampled at the next, in one test bench, so nothing races. A
stimulus is a list of beats; when a beat is offered or accepted is a `Pattern`, so that hypothesis can draw
and print it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amaranth import Cat, ClockDomain, Const, Module, Value
from amaranth.lib import data
from amaranth.sim import Simulator
from hypothesis import strategies as st

#: Path of the next simulation's waveform file; set by ``--vcd``.
waves: Path | None = None

#: Cycles without a transfer after which a simulation counts as stuck.
PATIENCE = 3000


@dataclass(frozen=True)
class Pattern:
    """Whether something may happen in a cycle.

    ``cycle`` holds a pattern that repeats (never empty); with ``likely`` each cycle is drawn instead, with that
    probability, from ``seed``; with ``burst`` too, it stays as it was for about so many cycles.
    """

    cycle: tuple[bool, ...] = (True,)
    likely: float | None = None
    burst: int = 1
    seed: int = 0

    def __iter__(self):
        if self.likely is None:
            while True:
                yield from self.cycle
        rng = random.Random(self.seed)
        while True:
            value = rng.random() < self.likely
            yield from [value] * rng.randint(1, 2 * self.burst - 1)


ALWAYS = Pattern()


def patterns() -> st.SearchStrategy[Pattern]:
    """Return a strategy of patterns: always, at random, in bursts, or in alternating runs of any length."""
    runs = st.lists(st.integers(1, 9), min_size=2, max_size=4).map(
        lambda lengths: Pattern(tuple(number % 2 == 0 for number, length in enumerate(lengths) for _ in range(length)))
    )
    return st.one_of(
        st.just(ALWAYS),
        runs,
        st.builds(
            Pattern,
            likely=st.sampled_from([0.1, 0.5, 0.9]),
            burst=st.sampled_from([1, 1, 4, 20]),
            seed=st.integers(0, 2**32),
        ),
    )


@st.composite
def stalls(draw) -> tuple[Pattern, Pattern]:
    """Patterns for the source and the sink.

    Among them: the sink accepts just when the source has nothing, so that the output stalls while the input runs
    full and then drains while the input runs dry.
    """
    if draw(st.booleans()):
        return draw(patterns()), draw(patterns())
    full, dry = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    source = Pattern((True,) * full + (False,) * dry)
    sink = Pattern((False,) * full + (True,) * dry)
    return source, sink


def pack(values: Sequence[int], bits: int) -> int:
    """Values as the bits of a beat, the first in the lowest."""
    mask = (1 << bits) - 1
    word = 0
    for number, value in enumerate(values):
        word |= (int(value) & mask) << (number * bits)
    return word


def unpack(word: int, bits: int, signed: bool, count: int) -> list[int]:
    """Return the values in a word, as the inverse of `pack`."""
    half = 1 << (bits - 1) if signed else 0
    mask = (1 << bits) - 1
    return [((word >> (number * bits) & mask) ^ half) - half for number in range(count)]


def channel_lanes(beat) -> list[int]:
    """Return the lane of each channel, counted over all beats of a pixel. Each group begins a new beat."""
    size = beat.channels // beat.groups
    beats = -(-size // beat.lanes)
    return [channel // size * beats * beat.lanes + channel % size for channel in range(beat.channels)]


@dataclass
class Trace:
    """Record of a simulation. Cycles are numbered from 0, the first cycle in which anything is set.

    ``taken``: cycles of the input's transfers. ``sent``: cycle and payload bits of each of the output's transfers.
    ``watched``: samples of every cycle, by name. ``reset``: the first cycle after the reset, and the numbers of input
    and output transfers before the reset. Transfers in cycles of the reset are not counted, and not in the lists.
    """

    taken: list[int] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    watched: dict[str, list[int]] = field(default_factory=dict)
    reset: tuple[int, int, int] | None = None
    cycles: int = 0

    @property
    def words(self) -> list[int]:
        return [word for _, word in self.sent]

    @property
    def times(self) -> list[int]:
        return [cycle for cycle, _ in self.sent]


class StuckError(AssertionError):
    """Nothing moved for too long."""


def _bits(payload: Any) -> Value:
    return payload.as_value() if isinstance(payload, data.View) else payload


class Circuit:
    """A component made ready for the simulator once, for several runs: each begins with what power-on leaves."""

    def __init__(self, component: Any) -> None:
        self.component = component
        self.domain = ClockDomain("sync")
        m = Module()
        m.domains.sync = self.domain
        m.submodules.dut = component
        self._simulator = Simulator(m)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._drive)
        self._bench: Callable[[Any], Coroutine] | None = None

    async def _drive(self, ctx: Any) -> None:
        assert self._bench is not None
        await self._bench(ctx)

    def simulate(self, bench: Callable[[Any], Coroutine]) -> None:
        """Until the test bench returns."""
        if self._bench is not None:
            self._simulator.reset()
        self._bench = bench
        with self._simulator.write_vcd(str(waves)) if waves else nullcontext():
            self._simulator.run()


def run(
    component: Any,
    beats: Sequence[int],
    outputs: int,
    *,
    offer: Pattern = ALWAYS,
    accept: Pattern = ALWAYS,
    drive: Sequence[tuple[Value, Pattern]] = (),
    watch: dict[str, Value] | None = None,
    reset_at: int | None = None,
    after: tuple[Sequence[int], int] = ((), 0),
    drain: int = 40,
    patience: int = PATIENCE,
) -> Trace:
    """Feed ``beats`` (payload bits) to ``component.i``; take ``outputs`` beats, and any more, from ``component.o``.

    Once the beats are taken and the outputs sent, ``drain`` more cycles go by in which anything sent is recorded too
    (and belongs to no input). Between beats the input's payload is noise. A beat, once offered, stays until it is
    taken; the same is asserted of the output.

    Parameters
    ----------
    component : Component or Circuit
        A circuit saves the time that making a component ready takes, which is often longer than its run.
    offer, accept : Pattern
        When the source offers a beat, and when the sink is ready. Of no effect on a side that can't stall.
    drive : sequence of tuple
        Further inputs, and when each is high.
    watch : dict
        Signals to sample, by name.
    reset_at : int, optional
        The cycle in which reset is high.
    after : tuple
        Beats and outputs that take the place of ``beats`` and ``outputs`` after the reset; the patterns of the
        streams start over too.

    Raises
    ------
    StuckError
        If nothing is transferred for ``patience`` cycles.
    AssertionError
        If the output takes a beat back, or changes it.
    """
    watch = watch or {}
    circuit = component if isinstance(component, Circuit) else Circuit(component)
    component, domain = circuit.component, circuit.domain
    trace = Trace(watched={name: [] for name in watch})
    source, sink = component.i, component.o
    in_bits, out_bits = _bits(source.payload), _bits(sink.payload)
    in_stalls = not isinstance(source.ready, Const)
    out_stalls = not isinstance(sink.ready, Const)
    sampled = (source.ready, sink.valid, out_bits, *watch.values())
    noise = random.Random(len(beats))
    width = len(in_bits)
    # Set all at once, as the simulator settles after each setting.
    inputs = Cat(source.valid, in_bits, *((sink.ready,) if out_stalls else ()), *(signal for signal, _ in drive))

    async def bench(ctx):
        pending, number, offering, idle, drained = list(beats), 0, False, 0, 0
        held = None
        offers, accepts = iter(offer), iter(accept)
        driven = [iter(pattern) for _, pattern in drive]
        wanted = outputs
        cycle = 0
        while True:
            if cycle == reset_at:
                ctx.set(domain.rst, 1)
            offering = (next(offers) or offering) and number < len(pending)
            payload = pending[number] if offering else noise.getrandbits(width)
            accepting = next(accepts) or not out_stalls
            others_set = pack([accepting] * out_stalls + [next(pattern) for pattern in driven], 1)
            ctx.set(inputs, offering | payload << 1 | others_set << 1 + width)
            _, _, ready, valid, word, *others = await ctx.tick().sample(*sampled)
            if cycle == reset_at:
                ctx.set(domain.rst, 0)
                trace.reset = (cycle + 1, len(trace.taken), len(trace.sent))
                pending, number, offering, idle, held = list(after[0]), 0, False, 0, None
                offers, accepts = iter(offer), iter(accept)
                wanted = after[1] + len(trace.sent)
                for values in trace.watched.values():
                    values.append(0)
                cycle += 1
                continue
            for name, value in zip(watch, others, strict=True):
                trace.watched[name].append(int(value))
            idle += 1
            if held is not None:
                assert valid, f"cycle {cycle}: a beat was taken back"
                assert word == held, f"cycle {cycle}: a beat changed while it waited"
            held = word if valid and not accepting else None
            if offering and (ready or not in_stalls):
                trace.taken.append(cycle)
                number, offering, idle = number + 1, False, 0
            if valid and accepting:
                trace.sent.append((cycle, int(word)))
                idle = 0
            cycle += 1
            trace.cycles = cycle
            if number == len(pending) and len(trace.sent) >= wanted and (reset_at is None or cycle > reset_at):
                drained += 1
                if drained > drain:
                    return
            if idle > patience:
                taken = f"{number} of {len(pending)} beats taken"
                raise StuckError(f"stuck in cycle {cycle}: {taken}, {len(trace.sent)} of {wanted} sent")

    circuit.simulate(bench)
    return trace


def as_word(values: Sequence[int]) -> int:
    """Return bytes as a word, the first one lowest."""
    return sum((value & 0xFF) << 8 * place for place, value in enumerate(values))


def bus_beat(bank: int, word: int, *words: Sequence[int] | None) -> dict[str, Any]:
    """Return a beat whose first lane goes to a bank's word; a lane of ``None`` is absent."""
    present = sum(1 << lane for lane, values in enumerate(words) if values is not None)
    data = [0xDEAD_BEEF if values is None else as_word(values) for values in words]
    return {"bank": bank, "word": word, "present": present, "data": data}
