"""The engine's compute core: every sum, where it goes, and every cycle."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.sim import Simulator
from engine_layers import Task, random_layer, tasks

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.core import Core
from hwgen.schedule.engine_core import CoreSchedule

FINISH = 7


class Bench:
    """Random jobs through a core: what it gives, and when everything happened.

    A job's operands are written as soon as the last but one is computed, whose place they take.
    """

    def __init__(self, config: EngineConfig, todo: list[Task], rng: np.random.Generator, *, hurry: float):
        self.config, self.todo, self.rng, self.hurry = config, todo, rng, hurry
        self.core = Core(config)
        count = len(todo)
        self.beats: list[tuple[int, dict]] = []
        self.offered = {"compute": [], "drain": []}
        self.accepted = {"compute": [], "drain": []}
        self.loaded: list[int] = []
        self.stored: list[int] = []
        self.computed: list[int] = []
        self.drained: list[int] = []
        self.count = count

    def run(self) -> None:
        simulator = Simulator(self.core)
        simulator.add_clock(1e-6)
        simulator.add_testbench(self._bench)
        simulator.run()

    def _late(self) -> int:
        """Cycles of delay: mostly none, if there is hurry."""
        return 0 if self.rng.random() < self.hurry else int(self.rng.integers(1, 40))

    async def _bench(self, ctx):
        core, todo = self.core, self.todo
        wait = {"compute": self._late(), "drain": self._late()}
        maps, weights = [], []
        loading, load_at, store_at = 0, self._late(), None
        finishes: list[int] = []
        cycle = idle = 0
        while len(self.drained) < self.count or len(self.computed) < self.count:
            for name in ("compute", "drain"):
                port = getattr(core, name)
                number = len(self.accepted[name])
                if number == len(self.offered[name]) and number < self.count and wait[name] <= cycle:
                    self.offered[name].append(cycle)
                    ctx.set(port.payload.as_value(), getattr(todo[number].job, name).pack())
                ctx.set(port.valid, number < len(self.offered[name]))
            if (
                loading < self.count
                and not (maps or weights)
                and loading <= len(self.computed) + 1
                and load_at <= cycle
            ):
                maps, weights = list(todo[loading].maps), list(todo[loading].weights)
                loading += 1
            elif loading > len(self.loaded) and not (maps or weights):
                self.loaded.append(cycle)
                load_at = cycle + self._late()
            for port, left, names in (
                (core.map_write, maps, ("bank", "word")),
                (core.weight_write, weights, ("step", "block")),
            ):
                ctx.set(port.valid, bool(left))
                if left:
                    first, second, data = left.pop(0)
                    ctx.set(port.payload[names[0]], first)
                    ctx.set(port.payload[names[1]], second)
                    ctx.set(port.payload.data, data)
            if store_at is None and len(self.stored) < len(self.drained):
                store_at = cycle + self._late()
            if store_at is not None and store_at <= cycle:
                self.stored.append(cycle)
                store_at = None
            ctx.set(core.loaded, len(self.loaded))
            ctx.set(core.stored, len(self.stored))
            ctx.set(core.finished, cycle in finishes)
            ready = {name: getattr(core, name) for name in ("compute", "drain")}
            _, _, *seen = await ctx.tick().sample(
                core.computed,
                core.drained,
                core.beats.valid,
                core.beats.payload,
                *(port.ready for port in ready.values()),
                *(port.valid for port in ready.values()),
            )
            computed, drained, valid, payload, *streams = seen
            self._count(self.computed, computed, cycle)
            self._count(self.drained, drained, cycle)
            if valid:
                beat = {name: payload[name] for name in payload.shape().members}
                beat["sums"] = list(beat["sums"])
                self.beats.append((cycle, beat))
                if beat["last"]:
                    finishes.append(cycle + FINISH)
            for number, name in enumerate(ready):
                if streams[number] and streams[2 + number]:
                    self.accepted[name].append(cycle)
                    wait[name] = cycle + 1 + self._late()
            idle = 0 if valid or computed or drained else idle + 1
            cycle += 1
            assert cycle < 100_000

    def _count(self, seen: list[int], count: int, cycle: int) -> None:
        assert count in (len(seen), len(seen) + 1)
        if count > len(seen):
            seen.append(cycle)

    def check(self) -> None:
        wanted = [beat for task in self.todo for beat in task.beats]
        for number, (beat, expected) in enumerate(zip((beat for _, beat in self.beats), wanted, strict=True)):
            known = [
                value if other is not None else None
                for value, other in zip(beat["sums"], expected["sums"], strict=True)
            ]
            assert beat | {"sums": known} == expected, number

    def schedule(self) -> CoreSchedule:
        found = CoreSchedule(self.config, FINISH)
        for name, offer in (("compute", found.offer_compute), ("drain", found.offer_drain)):
            for task, cycle in zip(self.todo, self.offered[name], strict=True):
                offer(getattr(task.job, name), cycle)
        for cycle in self.loaded:
            found.load(cycle)
        for cycle in self.stored:
            found.store(cycle)
        found.advance(float("inf"))
        return found

    def check_cycles(self) -> None:
        schedule = self.schedule()
        assert schedule.accepted == (self.accepted["compute"], self.accepted["drain"])
        assert schedule.computed == self.computed
        assert schedule.drained == self.drained
        without = set(schedule.yielded)
        times = [c for span in schedule.drained_groups for c in range(span.first, span.last + 1) if c not in without]
        assert times == [cycle for cycle, _ in self.beats]


@pytest.mark.parametrize(("pixels", "seed"), [(5, 0), (7, 2)])
def test_random_jobs(pixels, seed):
    config = EngineConfig(maps=16, pixels=pixels, map_words=256, weight_steps=512, slots=4, sum_bits=20)
    rng = np.random.default_rng(seed)
    todo = tasks(rng, config, [random_layer(rng, config) for _ in range(8)])
    bench = Bench(config, todo, rng, hurry=0.8)
    bench.run()
    bench.check()
    bench.check_cycles()
