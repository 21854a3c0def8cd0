"""Reports of ``hwgen block`` on a layer's best blocking and tiling, as a table, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hwgen.blocking import energy
from hwgen.blocking.cecconi import BufferedTile
from hwgen.blocking.peemen import TileSchedule
from hwgen.blocking.priced import PricedBlocking
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.yang import Common
from hwgen.report.picture import picture
from hwgen.report.table import columns


class Report(Protocol):
    """Protocol of a report of ``hwgen block``, which is shown as a text table, as JSON or as a picture (SVG or PNG)."""

    def table(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...

    def plot(self, file_format: str) -> bytes: ...


@dataclass(frozen=True)
class BufferReport:
    """Report of a layer's tile sizes of fewest accesses per buffer size, by Peemen's model and by a better variant.

    The variant, ``better``, reads no zeros before the first sums, and lets the working set fill the whole buffer.
    """

    problem: Problem
    memories: Sequence[int]
    schedules: Sequence[TileSchedule]
    better: Sequence[TileSchedule]

    def table(self) -> str:
        titles = ("words", "set", *"rqmnkl", "dir", "input", "weights", "output", "access/iter", "better")
        rows = [
            (
                *(f"{memory:,}", f"{schedule.set_words:,}", *map(str, schedule.tile.values()), schedule.direction),
                *(f"{schedule.input:,}", f"{schedule.weights:,}", f"{schedule.output:,}"),
                *(f"{schedule.per_iteration:.6f}", f"{better.per_iteration:.6f}"),
            )
            for memory, schedule, better in zip(self.memories, self.schedules, self.better, strict=True)
        ]
        return f"{self.problem.name}: fewest accesses for a buffer\n{_table(titles, rows)}"

    def to_json(self) -> dict[str, Any]:
        def entry(memory: int, schedule: TileSchedule) -> dict[str, Any]:
            return {
                "memory": memory,
                "set": schedule.set_words,
                "accesses_per_iteration": schedule.per_iteration,
                "tile": dict(schedule.tile),
                "direction": schedule.direction,
                "accesses": {operand: getattr(schedule, operand) for operand in OPERANDS},
            }

        return {
            "layer": self.problem.name,
            "columns": [entry(*pair) for pair in zip(self.memories, self.schedules, strict=True)],
            "better": [entry(*pair) for pair in zip(self.memories, self.better, strict=True)],
        }

    def plot(self, file_format: str) -> bytes:
        def draw(figure: Any) -> None:
            axes = figure.subplots()
            for label, schedules in (("as modelled", self.schedules), ("better", self.better)):
                axes.plot(self.memories, [schedule.per_iteration for schedule in schedules], ".-", label=label)
            axes.set(xscale="log", yscale="log", xlabel="buffer [words]", ylabel="accesses an iteration")
            axes.set_xscale("log", base=2)
            axes.legend()

        return picture(f"{self.problem.name}: accesses against buffer size", draw, file_format, (7, 5))


@dataclass(frozen=True, kw_only=True)
class TiledLayer:
    """Tile sizes of a layer that move the fewest words in Cecconi's two-buffer model, with these words and the time.

    Attributes
    ----------
    problem : Problem
        Loops of the layer.
    tile : BufferedTile
        Best tile of the corrected model.
    said : float or None
        Words that Cecconi's equations state for the paper's tile.
    truth : int or None
        Words that the paper's tile moves, counted exactly.
    times : tuple of float or None
        Seconds per frame with a double buffer, and with everything in sequence.
    """

    problem: Problem
    tile: BufferedTile
    said: float | None = None
    truth: int | None = None
    times: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class TileReport:
    """Report of several layers' tile sizes of fewest words by Cecconi's model, with two buffers of ``limit`` words."""

    name: str
    limit: int
    layers: Sequence[TiledLayer]

    def table(self) -> str:
        said = any(layer.said is not None for layer in self.layers)
        timed = any(layer.times is not None for layer in self.layers)
        titles = ["layer", "rows", "columns", "inputs", "outputs", "order", "room", "words", "compulsory"]
        titles += ["paper says", "it moves"] * said + ["ms", "in turn"] * timed

        def sums(layers: Sequence[TiledLayer]) -> list[str]:
            cells = [f"{sum(layer.tile.words for layer in layers):,}"]
            cells += [f"{sum(layer.problem.compulsory for layer in layers):,}"]
            cells += [f"{sum(layer.said or 0 for layer in layers):,.0f}"] * said
            cells += [f"{sum(layer.truth or 0 for layer in layers):,}"] * said
            times = [layer.times or (0.0, 0.0) for layer in layers]
            return cells + [f"{1e3 * sum(column):,.3f}" for column in zip(*times, strict=True)] * timed

        rows = []
        for layer in self.layers:
            tile = layer.tile
            sizes = [str(tile.sizes[side]) for side in titles[1:5]]
            rows.append([layer.problem.name, *sizes, tile.order, f"{tile.room:,}", *sums([layer])])
        total = ["total", *[""] * 6, *sums(self.layers)]
        return f"{self.name}: tiles in two buffers of {self.limit:,} words\n{_table(titles, [*rows, total])}"

    @property
    def words(self) -> int:
        """Total number of words that the tiles of all layers move per frame."""
        return sum(layer.tile.words for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        layers = []
        for layer in self.layers:
            entry: dict[str, Any] = {
                "name": layer.problem.name,
                "words": layer.tile.words,
                "tile": dict(layer.tile.sizes),
                "order": layer.tile.order,
                "room": layer.tile.room,
                "calls": layer.tile.calls,
                "jumps": layer.tile.jumps,
                "compulsory": layer.problem.compulsory,
            }
            if layer.said is not None:
                entry |= {"printed_words": layer.said, "printed_tile_words": layer.truth}
            if layer.times is not None:
                entry |= {"double_buffered_s": layer.times[0], "in_turn_s": layer.times[1]}
            layers.append(entry)
        return {"limit_words": self.limit, "layers": layers, "total_words": self.words}

    def plot(self, file_format: str) -> bytes:
        def draw(figure: Any) -> None:
            axes = figure.subplots()
            names = [layer.problem.name for layer in self.layers]
            bottom = [0.0] * len(names)
            for operand in (*OPERANDS, "biases"):
                words = [layer.tile.operands[operand] / 1e6 for layer in self.layers]
                axes.bar(names, words, bottom=bottom, label=operand)
                bottom = [below + more for below, more in zip(bottom, words, strict=True)]
            axes.plot(
                names,
                [layer.problem.compulsory / 1e6 for layer in self.layers],
                "k_",
                markersize=14,
                label="compulsory",
            )
            axes.set(ylabel="million words moved")
            axes.tick_params(axis="x", rotation=45)
            axes.legend()

        return picture(f"{self.name}: {self.limit:,} words a buffer", draw, file_format, (8, 5))


@dataclass(frozen=True, kw_only=True)
class EnergyReport:
    """Report of layers' blockings (tiled loop orders) of least energy, in pJ, for a memory hierarchy.

    Parameters
    ----------
    name : str
        Title of the report.
    blockings : sequence of PricedBlocking
        Best blocking of each layer.
    split : sequence of PricedBlocking, optional
        Best blockings with the window's two loops separate, if ``blockings`` has one loop for both.
    baseline : sequence of float, optional
        Energy per multiply-add to compare with, in pJ.
    against : sequence of (bytes, Sequence of PricedBlocking)
        Blockings with other memory limits, for the picture.
    common : Common, optional
        One memory hierarchy for all layers.
    cores : sequence, optional
        Energy of each layer on several cores: the operand that they share, their number, and pJ by component.
    """

    name: str
    blockings: Sequence[PricedBlocking]
    split: Sequence[PricedBlocking] = ()
    baseline: Sequence[float] = ()
    against: Sequence[tuple[int, Sequence[PricedBlocking]]] = ()
    common: Common | None = None
    cores: Sequence[Sequence[tuple[str, int, dict[str, float]]]] = ()

    def table(self) -> str:
        titles = ["layer", "pJ/MAC", "proven gap"] + ["split", "gap"] * bool(self.split)
        titles += ["baseline"] * bool(self.baseline) + ["DRAM input", "weights", "output", "blocking"]
        rows = []
        for index, blocking in enumerate(self.blockings):
            row = [
                blocking.nest.problem.name,
                f"{blocking.per_mac:.3f}",
                f"{blocking.gap:.2%}" if blocking.searched else "-",
            ]
            if self.split:
                row += [f"{self.split[index].per_mac:.3f}", f"{self.split[index].gap:.2%}"]
            row += [f"{self.baseline[index]:.1f}"] if self.baseline else []
            row += ["at home" if operand in blocking.homes else f"{blocking.top[operand]:,}" for operand in OPERANDS]
            rows.append([*row, str((self.split or self.blockings)[index].nest)])
        goal = "least memory energy" if all(blocking.searched for blocking in self.blockings) else "this blocking"
        lines = [f"{self.name}: {goal}", _table(titles, rows)]
        for problem in (blocking.nest.problem for blocking in self.blockings):
            if problem.unpadded not in (None, problem.macs):
                lines.append(
                    f"{problem.name}: channels rounded up to the core's, {problem.macs:,} multiply-adds instead of "
                    f"{problem.unpadded:,}"
                )
        if self.common is not None:
            lines += ["", *self._hierarchy(self.common)]
        if any(self.cores):
            lines += ["", self._cores()]
        if len(self.blockings) == 1:
            best = (self.split or self.blockings)[0]
            buffers = [
                (b.operand, str(b.position), f"{b.words:,}", b.memory, f"{b.energy:.3f}", f"{b.accesses:,}")
                for b in best.buffers
            ]
            lines += ["", _table(("buffer", "inside loop", "words", "memory", "pJ", "accesses"), buffers)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        layers = [self._entry(index, blocking) for index, blocking in enumerate(self.blockings)]
        if self.common is None:
            return {"layers": layers}
        memories = {
            operand: [{"memory": memory.name, "bytes": memory.size, "pj": memory.energy} for memory in own]
            for operand, own in self.common.hierarchy.memories.items()
        }
        return {"layers": layers, "hierarchy": memories, "bytes": self.common.size, "gap": self.common.gap}

    def _entry(self, index: int, blocking: PricedBlocking) -> dict[str, Any]:
        problem = blocking.nest.problem
        entry: dict[str, Any] = {
            "name": problem.name,
            "macs": problem.macs if problem.unpadded is None else problem.unpadded,
            "macs_padded": problem.macs,
            "pj_per_mac": blocking.per_mac,
            "pj_per_mac_bound": blocking.bound / problem.macs if blocking.searched else None,
        }
        if self.split:
            split = self.split[index]
            entry |= {
                "pj_per_mac_split": split.per_mac,
                "pj_per_mac_split_bound": split.bound / split.nest.problem.macs,
                "blocking_split": str(split.nest),
            }
        if self.baseline:
            entry["pj_per_mac_baseline"] = self.baseline[index]
        entry["blocking"] = str(blocking.nest)
        entry["dram_accesses"] = {
            operand: 0 if operand in blocking.homes else words for operand, words in blocking.top.items()
        }
        entry["homes"] = {
            operand: {"accesses": blocking.top[operand], "pj": blocking.tops[operand]} for operand in blocking.homes
        }
        entry["buffers"] = [
            {
                "operand": buffer.operand,
                "position": buffer.position,
                "bytes": buffer.words * energy.WORD_BYTES,
                "memory": buffer.memory,
                "pj": buffer.energy,
                "accesses": buffer.accesses,
            }
            for buffer in blocking.buffers
        ]
        if self.cores:
            entry["cores"] = [
                {"shared": shared, "cores": cores, "pj": spent} for shared, cores, spent in self.cores[index]
            ]
        return entry

    def _cores(self) -> str:
        components = list(next(splits[0][2] for splits in self.cores if splits))
        rows = []
        for blocking, splits in zip(self.blockings, self.cores, strict=True):
            problem = blocking.nest.problem
            for shared, cores, spent in splits:
                cells = [f"{pj / problem.macs:.3f}" for pj in (sum(spent.values()), *spent.values())]
                rows.append((problem.name, shared, str(cores), *cells))
        return _table(("layer", "shared", "cores", "pJ/MAC", *components), rows)

    @staticmethod
    def _hierarchy(common: Common) -> list[str]:
        rows = [
            (memory.name, f"{memory.size:,}", f"{memory.energy:.3f}")
            for own in common.hierarchy.memories.values()
            for memory in own
        ]
        macs = sum(blocking.nest.problem.macs for blocking in common.blockings)
        return [
            _table(("memory", "bytes", "pJ"), rows),
            f"all layers: {common.energy / macs:.3f} pJ/MAC, proven gap {common.gap:.2%}",
        ]

    def plot(self, file_format: str) -> bytes:
        def draw(figure: Any) -> None:
            axes = figure.subplots(1, 2 if self.against else 1, squeeze=False)[0]
            self._draw_energies(axes[0])
            if self.against:
                for index, blocking in enumerate(self.blockings):
                    points = [(size / 1024, every[index].per_mac) for size, every in self.against]
                    axes[1].plot(*zip(*points, strict=True), ".-", label=blocking.nest.problem.name)
                axes[1].set(xlabel="memory [KB]", ylabel="pJ a multiply-add", title="Energy against memory")
                axes[1].set_xscale("log", base=2)
                axes[1].legend()

        return picture(self.name, draw, file_format, (13 if self.against else 8, 6))

    def _draw_energies(self, axes: Any) -> None:
        """Draw a bar of the energy per MAC for each layer, divided by operand and by accessed memory."""
        names = [blocking.nest.problem.name for blocking in self.blockings]
        colours = {"input": "Blues", "weights": "Greens", "output": "Oranges"}
        import matplotlib

        bottom = [0.0] * len(names)
        for operand in OPERANDS:
            chains = [[b for b in blocking.buffers if b.operand == operand] for blocking in self.blockings]
            depth = max(map(len, chains), default=0)
            shades = matplotlib.colormaps[colours[operand]]
            memories = [f"level {level}" for level in range(depth)] + ["home"] * any(
                operand in blocking.homes for blocking in self.blockings
            )
            for level, memory in enumerate([*memories, "DRAM"]):
                values = [
                    _energy_by_memory(blocking, operand).get(memory, 0.0) / blocking.nest.problem.macs
                    for blocking in self.blockings
                ]
                shade = shades(0.3 + 0.6 * level / max(len(memories), 1))
                axes.bar(names, values, bottom=bottom, color=shade, label=f"{operand}, {memory}")
                bottom = [below + more for below, more in zip(bottom, values, strict=True)]
        axes.set(ylabel="pJ a multiply-add", title="Where each operand lives")
        axes.tick_params(axis="x", rotation=45)
        axes.legend(fontsize=7)


def _energy_by_memory(blocking: PricedBlocking, operand: str) -> dict[str, float]:
    """Return, as a dict, the energy of an operand's accesses in a blocking, in pJ, by the name of the accessed memory.

    The memories are ``level 0`` and up for the operand's buffers, from the inside out, and then ``home`` or ``DRAM``.
    """
    chain = [buffer for buffer in blocking.buffers if buffer.operand == operand]
    spent = {f"level {level}": buffer.accesses * buffer.energy for level, buffer in enumerate(chain)}
    return {**spent, "home" if operand in blocking.homes else "DRAM": blocking.outermost_energy(operand)}


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(columns([titles, *rows]))
