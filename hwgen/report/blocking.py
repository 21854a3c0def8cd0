"""What `hwgen block` found: as a table, as JSON, and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hwgen.blocking import energy
from hwgen.blocking.cecconi import Tile
from hwgen.blocking.peemen import Schedule
from hwgen.blocking.priced import Found
from hwgen.blocking.problem import OPERANDS, Problem
from hwgen.blocking.yang import Common
from hwgen.report.picture import picture
from hwgen.report.table import columns

__all__ = ["BufferReport", "EnergyReport", "Report", "TileReport", "TiledLayer"]


class Report(Protocol):
    """A result that can be shown."""

    def table(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...

    def plot(self, kind: str) -> bytes: ...


@dataclass(frozen=True)
class BufferReport:
    """Peemen's tiles for several buffer sizes, in words: as the paper models them, and bettered (`peemen.optimise`)."""

    problem: Problem
    memories: Sequence[int]
    schedules: Sequence[Schedule]
    better: Sequence[Schedule]

    def table(self) -> str:
        titles = ("words", "set", *"rqmnkl", "dir", "input", "weights", "output", "access/iter", "better")
        rows = [
            (
                *(f"{memory:,}", f"{found.set_words:,}", *map(str, found.tile.values()), found.direction),
                *(f"{found.input:,}", f"{found.weights:,}", f"{found.output:,}"),
                *(f"{found.per_iteration:.6f}", f"{better.per_iteration:.6f}"),
            )
            for memory, found, better in zip(self.memories, self.schedules, self.better, strict=True)
        ]
        return f"{self.problem.name}: fewest accesses for a buffer\n{_table(titles, rows)}"

    def to_json(self) -> dict[str, Any]:
        def entry(memory: int, found: Schedule) -> dict[str, Any]:
            return {
                "memory": memory,
                "set": found.set_words,
                "accesses_per_iteration": found.per_iteration,
                "tile": dict(found.tile),
                "direction": found.direction,
                "accesses": {operand: getattr(found, operand) for operand in OPERANDS},
            }

        return {
            "layer": self.problem.name,
            "columns": [entry(*pair) for pair in zip(self.memories, self.schedules, strict=True)],
            "better": [entry(*pair) for pair in zip(self.memories, self.better, strict=True)],
        }

    def plot(self, kind: str) -> bytes:
        def draw(figure: Any) -> None:
            axes = figure.subplots()
            for label, schedules in (("as modelled", self.schedules), ("better", self.better)):
                axes.plot(self.memories, [found.per_iteration for found in schedules], ".-", label=label)
            axes.set(xscale="log", yscale="log", xlabel="buffer [words]", ylabel="accesses an iteration")
            axes.set_xscale("log", base=2)
            axes.legend()

        return picture(f"{self.problem.name}: accesses against buffer size", draw, kind, (7, 5))


@dataclass(frozen=True, kw_only=True)
class TiledLayer:
    """A layer's tile; ``said`` and ``truth``: words by Cecconi's printed model; ``times``: seconds (`TileReport`)."""

    problem: Problem
    tile: Tile
    said: float | None = None
    truth: int | None = None
    times: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class TileReport:
    """Cecconi's tiles of several layers, in two buffers of ``limit`` words each.

    The times of a layer are those of a double buffer, and of everything in turn.
    """

    name: str
    limit: int
    layers: Sequence[TiledLayer]

    def table(self) -> str:
        said = any(layer.said is not None for layer in self.layers)
        timed = any(layer.times is not None for layer in self.layers)
        titles = ["layer", "rows", "columns", "inputs", "outputs", "order", "room", "words", "compulsory"]
        titles += ["paper says", "it moves"] * said + ["ms", "in turn"] * timed
        rows = []
        for layer in self.layers:
            tile = layer.tile
            row = [layer.problem.name, *(str(tile.sizes[side]) for side in titles[1:5]), tile.order]
            row += [f"{value:,}" for value in (tile.room, tile.words, layer.problem.compulsory)]
            row += [f"{layer.said or 0:,.0f}", f"{layer.truth or 0:,}"] * said
            row += [f"{1e3 * time:,.3f}" for time in layer.times or (0, 0)] * timed
            rows.append(row)
        total = ["total", *[""] * 6, f"{self.words:,}", f"{sum(layer.problem.compulsory for layer in self.layers):,}"]
        total += [f"{sum(layer.said or 0 for layer in self.layers):,.0f}"] * said
        total += [f"{sum(layer.truth or 0 for layer in self.layers):,}"] * said
        times = [layer.times or (0.0, 0.0) for layer in self.layers]
        total += [f"{1e3 * sum(column):,.3f}" for column in zip(*times, strict=True)] * timed
        return f"{self.name}: tiles in two buffers of {self.limit:,} words\n{_table(titles, [*rows, total])}"

    @property
    def words(self) -> int:
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

    def plot(self, kind: str) -> bytes:
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

        return picture(f"{self.name}: {self.limit:,} words a buffer", draw, kind, (8, 5))


@dataclass(frozen=True, kw_only=True)
class EnergyReport:
    """Blockings for memory hierarchies, by layer.

    Parameters
    ----------
    split : sequence of Found, optional
        With the window's two loops apart, if ``found`` has them as one.
    baseline : sequence of float, optional
        pJ a multiply-add to compare with.
    against : sequence of (bytes, Sequence of Found)
        The same with other limits, for the picture.
    common : Common, optional
        The one hierarchy of all layers.
    cores : sequence, optional
        Of each layer, what several cores take: the operand that they share, their number, pJ by part.
    """

    name: str
    found: Sequence[Found]
    split: Sequence[Found] = ()
    baseline: Sequence[float] = ()
    against: Sequence[tuple[int, Sequence[Found]]] = ()
    common: Common | None = None
    cores: Sequence[Sequence[tuple[str, int, dict[str, float]]]] = ()

    def table(self) -> str:
        titles = ["layer", "pJ/MAC", "proven gap"] + ["split", "gap"] * bool(self.split)
        titles += ["baseline"] * bool(self.baseline) + ["DRAM input", "weights", "output", "blocking"]
        rows = []
        for index, found in enumerate(self.found):
            row = [found.nest.problem.name, f"{found.per_mac:.3f}", f"{found.gap:.2%}" if found.searched else "-"]
            if self.split:
                row += [f"{self.split[index].per_mac:.3f}", f"{self.split[index].gap:.2%}"]
            row += [f"{self.baseline[index]:.1f}"] if self.baseline else []
            row += ["at home" if operand in found.homes else f"{found.top[operand]:,}" for operand in OPERANDS]
            rows.append([*row, str((self.split or self.found)[index].nest)])
        least = "least memory energy" if all(found.searched for found in self.found) else "this blocking"
        lines = [f"{self.name}: {least}", _table(titles, rows)]
        for problem in (found.nest.problem for found in self.found):
            if problem.unpadded not in (None, problem.macs):
                lines.append(
                    f"{problem.name}: channels rounded up to the core's, {problem.macs:,} multiply-adds instead of "
                    f"{problem.unpadded:,}"
                )
        if self.common is not None:
            lines += ["", *self._hierarchy(self.common)]
        if any(self.cores):
            lines += ["", self._cores()]
        if len(self.found) == 1:
            best = (self.split or self.found)[0]
            buffers = [
                (b.operand, str(b.position), f"{b.words:,}", b.memory, f"{b.energy:.3f}", f"{b.accesses:,}")
                for b in best.buffers
            ]
            lines += ["", _table(("buffer", "inside loop", "words", "memory", "pJ", "accesses"), buffers)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        layers = [self._entry(index, found) for index, found in enumerate(self.found)]
        if self.common is None:
            return {"layers": layers}
        memories = {
            operand: [{"memory": memory.name, "bytes": memory.size, "pj": memory.energy} for memory in own]
            for operand, own in self.common.hierarchy.memories.items()
        }
        return {"layers": layers, "hierarchy": memories, "bytes": self.common.size, "gap": self.common.gap}

    def _entry(self, index: int, found: Found) -> dict[str, Any]:
        problem = found.nest.problem
        entry: dict[str, Any] = {
            "name": problem.name,
            "macs": problem.macs if problem.unpadded is None else problem.unpadded,
            "macs_padded": problem.macs,
            "pj_per_mac": found.per_mac,
            "pj_per_mac_bound": found.bound / problem.macs if found.searched else None,
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
        entry["blocking"] = str(found.nest)
        entry["dram_accesses"] = {
            operand: 0 if operand in found.homes else words for operand, words in found.top.items()
        }
        entry["homes"] = {
            operand: {"accesses": found.top[operand], "pj": found.tops[operand]} for operand in found.homes
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
            for buffer in found.buffers
        ]
        if self.cores:
            entry["cores"] = [
                {"shared": shared, "cores": cores, "pj": spent} for shared, cores, spent in self.cores[index]
            ]
        return entry

    def _cores(self) -> str:
        parts = list(next(ways[0][2] for ways in self.cores if ways))
        rows = []
        for found, ways in zip(self.found, self.cores, strict=True):
            problem = found.nest.problem
            for shared, cores, spent in ways:
                cells = [f"{pj / problem.macs:.3f}" for pj in (sum(spent.values()), *spent.values())]
                rows.append((problem.name, shared, str(cores), *cells))
        return _table(("layer", "shared", "cores", "pJ/MAC", *parts), rows)

    @staticmethod
    def _hierarchy(common: Common) -> list[str]:
        rows = [
            (memory.name, f"{memory.size:,}", f"{memory.energy:.3f}")
            for own in common.hierarchy.memories.values()
            for memory in own
        ]
        macs = sum(found.nest.problem.macs for found in common.found)
        return [
            _table(("memory", "bytes", "pJ"), rows),
            f"all layers: {common.energy / macs:.3f} pJ/MAC, proven gap {common.gap:.2%}",
        ]

    def plot(self, kind: str) -> bytes:
        def draw(figure: Any) -> None:
            axes = figure.subplots(1, 2 if self.against else 1, squeeze=False)[0]
            self._homes(axes[0])
            if self.against:
                for index, found in enumerate(self.found):
                    points = [(size / 1024, every[index].per_mac) for size, every in self.against]
                    axes[1].plot(*zip(*points, strict=True), ".-", label=found.nest.problem.name)
                axes[1].set(xlabel="memory [KB]", ylabel="pJ a multiply-add", title="Energy against memory")
                axes[1].set_xscale("log", base=2)
                axes[1].legend()

        return picture(self.name, draw, kind, (13 if self.against else 8, 6))

    def _homes(self, axes: Any) -> None:
        """Where each operand lives, and what its accesses there cost."""
        names = [found.nest.problem.name for found in self.found]
        colours = {"input": "Blues", "weights": "Greens", "output": "Oranges"}
        import matplotlib

        bottom = [0.0] * len(names)
        for operand in OPERANDS:
            chains = [[b for b in found.buffers if b.operand == operand] for found in self.found]
            depth = max(map(len, chains), default=0)
            shades = matplotlib.colormaps[colours[operand]]
            places = [f"level {level}" for level in range(depth)] + ["home"] * any(
                operand in found.homes for found in self.found
            )
            for level, place in enumerate([*places, "DRAM"]):
                values = [_spent(found, operand).get(place, 0.0) / found.nest.problem.macs for found in self.found]
                shade = shades(0.3 + 0.6 * level / max(len(places), 1))
                axes.bar(names, values, bottom=bottom, color=shade, label=f"{operand}, {place}")
                bottom = [below + more for below, more in zip(bottom, values, strict=True)]
        axes.set(ylabel="pJ a multiply-add", title="Where each operand lives")
        axes.tick_params(axis="x", rotation=45)
        axes.legend(fontsize=7)


def _spent(found: Found, operand: str) -> dict[str, float]:
    """pJ of an operand by place: its buffers from ``level 0`` outwards, then ``home`` or ``DRAM``."""
    chain = [buffer for buffer in found.buffers if buffer.operand == operand]
    spent = {f"level {level}": buffer.accesses * buffer.energy for level, buffer in enumerate(chain)}
    return {**spent, "home" if operand in found.homes else "DRAM": found.behind(operand)}


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(columns([titles, *rows]))
