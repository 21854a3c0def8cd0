"""The engine's compute core: every sum, where it goes, and every cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from testbench import Circuit, bus_beat

from hwgen.gateware.engine.array import Array
from hwgen.gateware.engine.config import CHAIN, LANES, EngineConfig
from hwgen.gateware.engine.core import Core
from hwgen.gateware.engine.job import Compute, Drain, Job
from hwgen.schedule import engine_loops as loops
from hwgen.schedule.engine import CoreSchedule
from hwgen.tools import synthesis

#: Bank, word, bytes. Step, block, bytes.
Write = tuple[int, int, list[int]]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A tile of a layer, and its operands.

    ``boxes``: of each chunk of channels ``(C, rows, columns)``. ``weights``: of each chunk ``(maps, C, Kh, Kw)``, for
    the maps of all folds, or in a channelwise layer ``(C, Kh, Kw)``, 8 channels for each fold but the last.
    """

    rows: int
    columns: int
    stride: int
    dilation: tuple[int, int]
    origin: tuple[int, int]
    pad: int
    boxes: list[np.ndarray]
    weights: list[np.ndarray]
    channelwise: bool = False
    maximum: bool = False
    folds: int = 1
    blocks: int = 1
    drain: Drain = field(default=Drain())

    @property
    def pixels(self) -> int:
        return self.rows * self.columns

    def taps(self, chunk: int) -> np.ndarray:
        """Return the values that the taps of each output pixel read: ``(C, Kh, Kw, rows, columns)``."""
        box = self.boxes[chunk]
        kernel = self.weights[chunk].shape[-2:]
        places = []
        for axis, (out, size) in enumerate(zip((self.rows, self.columns), kernel, strict=True)):
            begins = np.arange(out) * self.stride + self.origin[axis]
            places.append(begins + np.arange(size)[:, None] * self.dilation[axis])
        y, x = places[0][:, None, :, None], places[1][None, :, None, :]
        inside = (y >= 0) & (y < box.shape[1]) & (x >= 0) & (x < box.shape[2])
        read = box[:, np.clip(y, 0, box.shape[1] - 1), np.clip(x, 0, box.shape[2] - 1)]
        return np.where(inside, read, self.pad)

    def sums(self) -> np.ndarray:
        """Return the sums ``(blocks, 8, pixels)``, with NaN in lanes without a channel."""
        total = 0
        for chunk, weights in enumerate(self.weights):
            taps = self.taps(chunk).astype(float)
            if self.maximum:
                total = taps.max(axis=(1, 2))
            elif self.channelwise:
                total = np.einsum("cij,cijyx->cyx", weights, taps)
            else:
                total = total + np.einsum("mcij,cijyx->myx", weights, taps)
        found = np.full((self.blocks * LANES, self.pixels), np.nan)
        count = min(len(found), len(total))
        found[:count] = total[:count].reshape(count, -1)
        return found.reshape(self.blocks, LANES, -1)

    def beats(self, config: EngineConfig) -> list[dict]:
        """Return the beats that the drain sends, in order, with ``None`` for sums without a channel."""
        half = 1 << config.sum_bits - 1
        sums = (self.sums() + half) % (2 * half) - half
        part, found = self.drain, []
        size = 1 if self.channelwise else config.blocks
        folds = [range(first, min(first + size, self.blocks)) for first in range(0, self.blocks, size)]
        one_word = part.add or part.multiply or part.table or part.pool
        words = 1 if one_word else config.requantisers // LANES
        for blocks, pixels in product(folds, beat_pixels(self.pixels, config.pixels, words)):
            for block in blocks:
                ends_fold = (pixels[-1], block) == (self.pixels - 1, blocks[-1])
                pixel, drained = pixels[0], sums[block][:, pixels].T.ravel()
                unknown = [None] * (config.requantisers - len(drained))
                found.append(
                    {
                        "sums": [None if np.isnan(each) else int(each) for each in drained] + unknown,
                        "address": part.o_base + pixel + block * part.o_plane & 0xFFFF,
                        "addend": part.a_base + (block if part.one_pixel else pixel + block * part.pixels) & 0xFFFF,
                        "parameter": part.p_base + block & 0xFF,
                        **{name: getattr(part, name) for name in CONSTANTS},
                        "pixel_end": int(block == blocks[-1]),
                        "fold_end": int(ends_fold),
                        "last": int(ends_fold and block == self.blocks - 1),
                        **({"present": (1 << len(pixels)) - 1} if config.requantisers > LANES else {}),
                    }
                )
                if words > 1:  # no map is added
                    found[-1]["addend"] = None
        return found

    def geometry(self, config: EngineConfig) -> tuple[int, ...]:
        return self.stride, self.columns, self.pitch(config)

    def pitch(self, config: EngineConfig) -> int:
        """No less than the box is wide, and congruent to the output's columns."""
        width = self.boxes[0].shape[2]
        return width + (self.columns - width) % config.pixels

    def plane(self, config: EngineConfig, first: int) -> int:
        return -(-(first + self.boxes[0].shape[1] * self.pitch(config)) // config.pixels)

    def compute(self, config: EngineConfig, chunk: int, place: Place, walk: bool) -> Compute:
        box, (kernel_rows, kernel_columns) = self.boxes[chunk], self.weights[chunk].shape[-2:]
        pixels, pitch, stride = config.pixels, self.pitch(config), self.stride
        rows, columns = divmod(pixels, self.columns)
        start = place.first + self.origin[0] * pitch + self.origin[1]
        by_row, by_column = self.dilation[0] * pitch, self.dilation[1]
        group_words, rest = divmod(stride * (rows * pitch + columns), pixels)
        wrap_words, rest_too = divmod(stride * (pitch - self.columns), pixels)
        assert (rest, rest_too) == (0, 0)
        return Compute(
            groups=-(-self.pixels // pixels),
            first=int(chunk == 0),
            last=int(chunk == len(self.boxes) - 1),
            channelwise=int(self.channelwise),
            maximum=int(self.maximum),
            walk=int(walk),
            kernel_rows=kernel_rows,
            kernel_columns=kernel_columns,
            channels=min(len(box), LANES) if self.channelwise else len(box),
            stride=stride,
            w_base=place.weights,
            columns=self.columns * stride,
            group_columns=columns * stride,
            group_rows=rows * stride,
            group_words=group_words,
            wrap_words=wrap_words,
            in_rows=box.shape[1],
            in_columns=box.shape[2],
            origin_row=self.origin[0],
            origin_column=self.origin[1],
            start_words=place.base + start // pixels,
            start_rest=start % pixels,
            pad=self.pad,
            dilation_rows=self.dilation[0],
            dilation_columns=self.dilation[1],
            column_words=by_column // pixels,
            column_rest=by_column % pixels,
            row_words=by_row // pixels,
            row_rest=by_row % pixels,
            plane=self.plane(config, place.first),
            folds=self.folds,
        )

    def map_writes(self, config: EngineConfig, chunk: int, place: Place, rng: np.random.Generator) -> Iterator[Write]:
        box = self.boxes[chunk]
        lanes = rng.integers(-128, 128, (-(-len(box) // LANES) * LANES, *box.shape[1:]))  # past the last: anything
        lanes[: len(box)] = box
        for block in range(len(lanes) // LANES):
            for y in range(box.shape[1]):
                for x in range(box.shape[2]):
                    word, bank = divmod(place.first + y * self.pitch(config) + x, config.pixels)
                    word += place.base + block * self.plane(config, place.first)
                    yield bank, word, lanes[block * LANES : (block + 1) * LANES, y, x].tolist()

    def weight_writes(
        self, config: EngineConfig, chunk: int, place: Place, rng: np.random.Generator
    ) -> Iterator[Write]:
        step = place.weights
        for fold in range(self.folds):
            for words in self._step_weights(config, chunk, fold, rng):
                odd = words[:, 1::2] - (words[:, ::2] < 0)  # the lower field of a pair borrows from the upper one
                words = np.stack([words[:, ::2], odd], axis=2).reshape(-1, LANES)
                for index, word in enumerate(words.tolist()):
                    yield index, step, word
                step += 1

    def _step_weights(
        self, config: EngineConfig, chunk: int, fold: int, rng: np.random.Generator
    ) -> Iterator[np.ndarray]:
        """Yield the weights ``(4, maps)`` of each step of a fold, by channel position and output map."""
        weights = self.weights[chunk]
        for first in range(0, len(weights) if self.channelwise else weights.shape[1], LANES):
            for tap in np.ndindex(weights.shape[-2:]):
                if self.channelwise:
                    if first != fold * LANES:
                        continue
                    words = rng.integers(-127, 128, (CHAIN, config.maps))
                    words[:, :LANES] = 0
                    for lane, weight in enumerate(weights[first : first + LANES, *tap]):
                        words[lane % CHAIN, lane] = weight
                    yield words
                    continue
                maps = slice(fold * config.maps, (fold + 1) * config.maps)
                for channel in range(first, min(first + LANES, weights.shape[1]), CHAIN):
                    known = weights[maps, channel : channel + CHAIN, *tap].T
                    words = np.zeros((CHAIN, config.maps), int)
                    words[: len(known)] = known
                    yield words


@dataclass(frozen=True, kw_only=True)
class Place:
    """Buffer addresses of a chunk: its box's first word and position, and its first step of weights."""

    base: int
    first: int
    weights: int


@dataclass(frozen=True)
class Task:
    """Job for the core, with the buffer writes before it and the beats that it sends."""

    job: Job
    maps: list[Write]
    weights: list[Write]
    beats: list[dict]


def packable(weights: np.ndarray) -> np.ndarray:
    """Return weights ``(maps, C, Kh, Kw)`` with -127 for each -128 that slices can't multiply exactly.

    These are weights of an odd map beside a negative weight of the map before, and one of four channels of an even map.
    """
    changed = weights.copy()
    for number, even in enumerate(changed[::2]):
        odd = changed[2 * number + 1]
        odd[(odd == -128) & (even < 0)] = -127
        for first in range(0, even.shape[0] - CHAIN + 1, CHAIN):
            even[first][(even[first : first + CHAIN] == -128).all(axis=0)] = -127
    return changed


def beat_pixels(pixels: int, group: int, words: int) -> list[list[int]]:
    """Return the pixels of each beat: ``words`` neighbours of a pixel group, or as many as group or tile have left."""
    groups = [range(first, min(first + group, pixels)) for first in range(0, pixels, group)]
    return [list(of[first : first + words]) for of in groups for first in range(0, len(of), words)]


KINDS = ("convolution", "depthwise", "maximum")
#: Fields of `Drain` that go with each of its beats.
CONSTANTS = ("zero_point", "low", "high", "add", "a_zero_point", "a_low", "a_high", "table", "pool", "columns")
CONSTANTS += ("multiply",)


def make_layer(
    rng: np.random.Generator,
    config: EngineConfig,
    kind: str,
    *,
    out: tuple[int, int],
    size: tuple[int, int],
    kernel: tuple[int, int] = (1, 1),
    stride: int = 1,
    dilation: tuple[int, int] = (1, 1),
    origin: tuple[int, int] = (0, 0),
    channels: tuple[int, ...] = (1,),
    folds: int = 1,
    blocks: int = 1,
) -> Layer:
    """One of ``KINDS``, with random operands; ``size`` is that of the box, ``channels`` those of the chunks."""
    dense = kind == "convolution"
    shapes = [((folds * config.maps, count) if dense else (count,)) + kernel for count in channels]
    weights = [rng.choice([-128, 127], s) if rng.random() < 0.1 else rng.integers(-128, 128, s) for s in shapes]
    if dense:
        weights = [packable(each) for each in weights]
    if kind == "maximum":
        weights = [np.ones_like(each) for each in weights]
    is_plain = rng.random() < 0.5
    return Layer(
        rows=out[0],
        columns=out[1],
        stride=stride,
        dilation=dilation,
        origin=origin,
        pad=int(rng.choice([-128, rng.integers(-128, 128)])),
        boxes=[rng.integers(-128, 128, (count, *size)) for count in channels],
        weights=weights,
        channelwise=kind != "convolution",
        maximum=kind == "maximum",
        folds=folds,
        blocks=blocks,
        drain=Drain(
            blocks=blocks,
            channelwise=int(not dense),
            pixels=out[0] * out[1],
            columns=out[1],
            p_base=int(rng.integers(0, 256)),
            **{
                name: 0 if is_plain else int(rng.integers(0, 2))
                for name in ("add", "multiply", "one_pixel", "table", "pool")
            },
            **{name: int(rng.integers(0, 1 << 16)) for name in ("o_base", "o_plane", "a_base")},
            **{
                prefix + name: int(rng.integers(-128, 128))
                for prefix in ("", "a_")
                for name in ("zero_point", "low", "high")
            },
        ),
    )


def random_layer(rng: np.random.Generator, config: EngineConfig) -> Layer:
    """Such that a chunk takes at most half of each buffer."""
    while True:
        layer = _random_layer(rng, config)
        chunks = range(len(layer.boxes))
        words = max(-(-len(layer.boxes[n]) // LANES) for n in chunks) * layer.plane(config, config.pixels - 1)
        taps = layer.weights[0].shape[-2] * layer.weights[0].shape[-1]
        steps = layer.folds * taps * (1 if layer.channelwise else max(-(-len(box) // CHAIN) for box in layer.boxes))
        groups = -(-layer.pixels // config.pixels) * layer.folds
        if (
            2 * words <= config.map_words
            and 2 * steps <= config.weight_steps
            and (len(layer.boxes) == 1 or groups <= config.slots)
        ):
            return layer


def _random_layer(rng: np.random.Generator, config: EngineConfig) -> Layer:
    kind = str(rng.choice(KINDS, p=[0.6, 0.2, 0.2]))

    def often_one(most: int) -> int:
        return int(rng.choice([1, rng.integers(1, most + 1)]))

    out = int(rng.choice([often_one(3), rng.integers(1, 21)])), int(rng.choice([often_one(3), rng.integers(1, 21)]))
    stride = int(rng.integers(1, 5))
    kernel = often_one(5), often_one(5)
    dilation = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    origin = -int(rng.integers(0, kernel[0])), -int(rng.integers(0, kernel[1]))
    # Rows and columns that are missing are padding too.
    rows, columns = [
        max(1, (count - 1) * stride + (taps - 1) * gap + 1 + begin - int(rng.integers(0, taps)))
        for count, taps, gap, begin in zip(out, kernel, dilation, origin, strict=True)
    ]
    chunks = int(rng.choice([1, 1, 2, 3])) if kind == "convolution" else 1
    folds = often_one(3)
    most = config.blocks if kind == "convolution" else 1
    blocks = int(rng.integers((folds - 1) * most + 1, folds * most + 1))
    if kind == "convolution":
        channels = tuple(often_one(20) for _ in range(chunks))
    else:
        channels = (int(rng.integers((folds - 1) * LANES + 1, folds * LANES + 1)),)
    return make_layer(
        rng,
        config,
        kind,
        out=out,
        size=(rows, columns),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        origin=origin,
        channels=channels,
        folds=folds,
        blocks=blocks,
    )


def tasks(rng: np.random.Generator, config: EngineConfig, layers: list[Layer]) -> list[Task]:
    """Return the layers' jobs, one per chunk, in alternating halves of the buffers, with some empty jobs in between."""
    found: list[Task] = []
    geometry = None
    for layer in layers:
        for chunk in range(len(layer.boxes)):
            while rng.random() < 0.15:
                found.append(Task(Job(drain=Drain(wait_stored=_stored(rng, found))), [], [], []))
            half = len(found) % 2
            place = Place(
                base=half * config.map_words // 2,
                first=int(rng.integers(0, config.pixels)),
                weights=half * config.weight_steps // 2,
            )
            walk = geometry != layer.geometry(config) or rng.random() < 0.1
            geometry = layer.geometry(config)
            last = chunk == len(layer.boxes) - 1
            drain = replace(layer.drain if last else Drain(), wait_stored=_stored(rng, found))
            found.append(
                Task(
                    Job(compute=layer.compute(config, chunk, place, walk), drain=drain),
                    list(layer.map_writes(config, chunk, place, rng)),
                    list(layer.weight_writes(config, chunk, place, rng)),
                    layer.beats(config) if last else [],
                )
            )
    return found


def _stored(rng: np.random.Generator, before: list[Task]) -> int:
    """Mostly those jobs that may well be stored."""
    return max(0, len(before) - int(rng.integers(0, 5)))


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
            tables = schedule.tables
            for name, row in (("compute", loops.COMPUTE_ACCEPTED), ("drain", loops.DRAIN_ACCEPTED)):
                assert tables.times[row, : tables.known[row]].tolist() == self.accepted[name]
            assert schedule.computed.tolist() == self.computed
            assert schedule.drained.tolist() == self.drained
            without = set(tables.yields[: int(tables.state["num_yielded"][0])].tolist())
            sums = tables.sums[: int(tables.state["num_released"][0])]
            spans = [range(sum_["first_beat"], sum_["last_beat"] + 1) for sum_ in sums]
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
