"""The engine's compute core: every sum, where it goes, and every cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from beats import bus_beat
from engine_layers import Layer, make_layer, random_layer, tasks
from testbench import Circuit

from hwgen.gateware.engine.array import Array
from hwgen.gateware.engine.config import LANES, EngineConfig
from hwgen.gateware.engine.core import Core
from hwgen.schedule.engine_core import CoreSchedule
from hwgen.tools import synthesis

#: Cycles from a job's last beat to its last word in the output buffer.
FINISH = 7
#: More than any run takes.
LIMIT = 50_000


@cache
def circuit_of(config: EngineConfig) -> Circuit:
    return Circuit(Core(config))


class Bench:
    """Random jobs through a core: what it gives, and when everything happens.

    A job's operands are written as soon as the last but one is computed, whose places they take. With ``hurry`` 1
    parts, operands and stores come as early as they can; with less that rarely.
    """

    def __init__(self, config: EngineConfig, rng: np.random.Generator, layers: list[Layer], *, hurry: float = 1):
        self.config, self.rng, self.hurry = config, rng, hurry
        self.todo = tasks(rng, config, layers)
        self._forget()

    def _forget(self) -> None:
        self.beats: list[tuple[int, dict]] = []
        self.offered: dict[str, list[int]] = {"compute": [], "drain": []}
        self.accepted: dict[str, list[int]] = {"compute": [], "drain": []}
        #: First cycle in which each job counts.
        self.loaded: list[int] = []
        self.stored: list[int] = []
        self.computed: list[int] = []
        self.drained: list[int] = []
        #: Number of cycles in which the core says that it computes or drains.
        self.active_cycles = 0

    def run(self, reset_at: int | None = None) -> None:
        """With ``reset_at`` all begins anew there."""
        circuit = circuit_of(self.config)
        core, domain = circuit.component, circuit.domain

        async def bench(ctx):
            if reset_at is not None:
                await self._drive(ctx, core, reset_at)
                ctx.set(domain.rst, 1)
                await ctx.tick()
                ctx.set(domain.rst, 0)
                self._forget()
            await self._drive(ctx, core)

        circuit.simulate(bench)

    def _late(self) -> int:
        """Cycles of delay."""
        return 0 if self.rng.random() < self.hurry else int(self.rng.integers(1, 40))

    async def _drive(self, ctx, core, cycles: int = LIMIT) -> None:
        loads, stores = self._loads(), self._stores()
        offers = {name: self._offers(name) for name in self.offered}
        finishes: set[int] = set()
        ports = {name: getattr(core, name) for name in self.offered}
        for cycle in range(cycles):
            if len(self.drained) == len(self.computed) == len(self.todo):
                return
            for name, port in ports.items():
                part = next(offers[name])
                ctx.set(port.valid, part is not None)
                if part is not None:
                    ctx.set(port.payload.as_value(), part.pack())
            for port, write in zip((core.map_write, core.weight_write), next(loads), strict=True):
                ctx.set(port.valid, write is not None)
                if write is not None:
                    ctx.set(port.payload, bus_beat(*write))
            next(stores)
            ctx.set(core.loaded, len(self.loaded))
            ctx.set(core.stored, len(self.stored))
            ctx.set(core.finished, cycle in finishes)
            taken = [port.valid & port.ready for port in ports.values()]
            sampled = (core.computed, core.drained, *taken, core.active, core.beats.valid, core.beats.payload)
            _, _, computed, drained, *took, active, valid, payload = await ctx.tick().sample(*sampled)
            for seen, count in ((self.computed, computed), (self.drained, drained)):
                assert count in (len(seen), len(seen) + 1)
                seen += [cycle] * (count - len(seen))
            for name, transfer in zip(ports, took, strict=True):
                self.accepted[name] += [cycle] * transfer
            assert not (active and cycle == 0)
            self.active_cycles += active
            if valid:
                beat = {name: payload[name] for name in payload.shape().members}
                self.beats.append((cycle, beat | {"sums": list(beat["sums"])}))
                if beat["last"]:
                    finishes.add(cycle + FINISH)
        assert cycles < LIMIT

    def _offers(self, name: str) -> Iterator:
        """The part that is offered in a cycle."""
        cycle = 0
        for number, task in enumerate(self.todo):
            for _ in range(self._late()):
                yield None
                cycle += 1
            self.offered[name].append(cycle)
            while len(self.accepted[name]) == number:
                yield getattr(task.job, name)
                cycle += 1
        while True:
            yield None

    def _loads(self) -> Iterator[tuple]:
        """What is written in a cycle."""
        cycle = 0
        for number, task in enumerate(self.todo):
            late = self._late()
            while late or number > len(self.computed) + 1:
                yield None, None
                late, cycle = max(0, late - 1), cycle + 1
            for write in range(max(len(task.maps), len(task.weights))):
                yield tuple(writes[write] if write < len(writes) else None for writes in (task.maps, task.weights))
                cycle += 1
            self.loaded.append(cycle)
        while True:
            yield None, None

    def _stores(self) -> Iterator[None]:
        cycle = 0
        for number in range(len(self.todo)):
            late = self._late()
            while late or number >= len(self.drained):
                yield
                late, cycle = max(0, late - 1), cycle + 1
            self.stored.append(cycle)
        while True:
            yield

    def check(self) -> None:
        wanted = [beat for task in self.todo for beat in task.beats]
        assert self.active_cycles >= len(wanted)
        for number, ((_, beat), expected) in enumerate(zip(self.beats, wanted, strict=True)):
            known = [None if b is None else a for a, b in zip(beat["sums"], expected["sums"], strict=True)]
            known_fields = {"sums": known, **({"addend": None} if expected["addend"] is None else {})}
            assert beat | known_fields == expected, f"beat {number}"

    def told(self) -> list[tuple[int, str]]:
        """What the core was told, and when."""
        told = {**self.offered, "load": self.loaded, "store": self.stored}
        events = [(cycle, what) for what, cycles in told.items() for cycle in cycles]
        return sorted(events, key=lambda event: event[0])

    def schedule(self, *, at_once: bool) -> CoreSchedule:
        found = CoreSchedule(self.config, FINISH, [task.job for task in self.todo])
        for cycle, what in self.told():
            if not at_once:
                found.advance(cycle)
                assert found.next_event >= cycle
            if what in self.offered:
                {"compute": found.offer_compute, "drain": found.offer_drain}[what](cycle)
            else:
                {"load": found.load, "store": found.store}[what](cycle)
        found.advance(float("inf"))
        return found

    def check_cycles(self) -> None:
        for at_once in (True, False):
            schedule = self.schedule(at_once=at_once)
            assert [each.tolist() for each in schedule.accepted] == [self.accepted["compute"], self.accepted["drain"]]
            assert schedule.computed.tolist() == self.computed
            assert schedule.drained.tolist() == self.drained
            without = set(schedule.yielded.tolist())
            spans = [range(first, last + 1) for first, last in schedule.drained_groups.tolist()]
            beats = [cycle for span in spans for cycle in span if cycle not in without]
            assert beats == [cycle for cycle, _ in self.beats]


def small(**sizes) -> EngineConfig:
    return EngineConfig(**{"maps": 8, "pixels": 5, "map_words": 256, "weight_steps": 512, "slots": 4, **sizes})


def check(bench: Bench, reset_at: int | None = None) -> None:
    bench.run(reset_at)
    bench.check()
    bench.check_cycles()


def test_layers():
    """What every network has; chunks of one step and two groups, of one group, of more groups than one has slots."""
    config, rng = small(), np.random.default_rng(5)
    padded = {"kernel": (3, 3), "origin": (-1, -1)}
    shapes = [
        ("convolution", {"out": (5, 4), "size": (5, 4), "channels": (3,), "folds": 2, "blocks": 2, **padded}),
        ("maximum", {"out": (2, 3), "size": (4, 6), "channels": (8,), "stride": 2, **padded}),
        ("convolution", {"out": (2, 4), "size": (2, 4), "channels": (20, 1, 5, 4)}),
        ("convolution", {"out": (1, 3), "size": (1, 3), "channels": (17, 2, 1), "folds": 2, "blocks": 2}),
        (
            "depthwise",
            {"out": (3, 5), "size": (5, 9), "channels": (21,), "stride": 2, "folds": 3, "blocks": 3, **padded},
        ),
        ("convolution", {"out": (1, 1), "size": (1, 1), "channels": (9, 20, 3, 1)}),
        ("convolution", {"out": (2, 5), "size": (2, 5), "channels": (1, 1, 1), "folds": 2, "blocks": 2}),
    ]
    check(Bench(config, rng, [make_layer(rng, config, kind, **shape) for kind, shape in shapes]))


@pytest.mark.parametrize(
    ("config", "seed", "hurry"),
    [
        (small(slots=8, sum_bits=20), 1, 0.8),
        pytest.param(small(pixels=7, lut_pixels=3, slots=8), 16, 1, marks=pytest.mark.long),
        pytest.param(small(lut_pixels=5, maps=16, slots=8), 17, 0.9, marks=pytest.mark.long),
        pytest.param(small(pixels=13, lut_pixels=4, requantisers=16), 27, 1, marks=pytest.mark.long),
        pytest.param(small(requantisers=16), 12, 0.9, marks=pytest.mark.long),
        pytest.param(small(pixels=7, requantisers=32, slots=8, maps=16), 36, 0.9, marks=pytest.mark.long),
        pytest.param(small(pixels=13, requantisers=32, slots=8), 12, 1, marks=pytest.mark.long),
        pytest.param(small(pixels=7, requantisers=16, slots=8), 15, 1, marks=pytest.mark.long),
        pytest.param(small(pixels=7, slots=2, sum_bits=16), 2, 0.5, marks=pytest.mark.long),
        pytest.param(small(pixels=17, maps=16, map_words=512), 3, 0.9, marks=pytest.mark.long),
        pytest.param(small(maps=24, slots=8), 11, 0.9, marks=pytest.mark.long),
        *(pytest.param(small(slots=8, pixels=7), seed, 1, marks=pytest.mark.long) for seed in range(4, 10)),
    ],
)
def test_random_layers(config, seed, hurry):
    rng = np.random.default_rng(seed)
    bench = Bench(config, rng, [random_layer(rng, config) for _ in range(3 if seed == 1 else 12)], hurry=hurry)
    check(bench)
    if config.requantisers > LANES:
        words = [beat["present"].bit_count() for _, beat in bench.beats]
        assert min(words.count(config.requantisers // LANES), words.count(1)) > 100


@pytest.mark.parametrize(
    "config", [small(requantisers=16), pytest.param(small(pixels=7, requantisers=32), marks=pytest.mark.long)]
)
def test_neighbouring_pixels(config):
    """Several pixels leave at once: whole groups, what is left of a group or a tile, and lanes apart by strides."""
    rng = np.random.default_rng(config.pixels)
    shapes = [
        ("convolution", {"out": (1, 3), "size": (1, 3), "channels": (4, 3)}),
        ("convolution", {"out": (3, 4), "size": (6, 8), "channels": (8,), "folds": 2, "blocks": 2, "stride": 2}),
        ("maximum", {"out": (2, 5), "size": (6, 15), "channels": (8,), "stride": 3}),
        ("depthwise", {"out": (1, 8), "size": (1, 32), "channels": (9,), "folds": 2, "blocks": 2, "stride": 4}),
        ("convolution", {"out": (1, 1), "size": (1, 1), "channels": (40,)}),
    ]
    layers = [make_layer(rng, config, kind, **shape) for kind, shape in shapes]
    plain = [replace(each, drain=replace(each.drain, add=0, multiply=0, table=0, pool=0)) for each in layers]
    bench = Bench(config, rng, [*plain, layers[0]])
    check(bench)
    assert max(beat["present"].bit_count() for _, beat in bench.beats) == config.requantisers // LANES


@pytest.mark.parametrize("reset_at", [61, pytest.param(150, marks=pytest.mark.long)])
def test_reset(reset_at):
    config, rng = small(), np.random.default_rng(reset_at)
    check(Bench(config, rng, [random_layer(rng, config) for _ in range(2)]), reset_at)


@pytest.mark.long
def test_slices():
    """Chains of four slices with two products each, with registers for product and sum: none of theirs in fabric."""
    config = small()
    (cells,) = synthesis.cells([Array(config)])
    found = synthesis.count(cells)
    assert found.dsp == config.multipliers // 2
    # Sums and what their slots held; activations, weights and what is on its way out are fewer.
    sums = config.maps * config.pixels
    assert found.ff < 3 * sums * config.sum_bits
    assert found.lut < 2.5 * sums * config.sum_bits
