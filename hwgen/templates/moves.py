"""Memories that are moved where block RAM runs out: line buffers, FIFOs, weights, and tables of requantisers.

Each memory of a group may stay in block RAM or lie in LUTs; the weights of a layer may be joined in one memory, too.
What is moved is a knapsack problem: that which takes the fewest LUTs of all choices that free the block RAM that is
lacking. It is solved exactly, by dynamic programming over halves of block RAMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hwgen.boards import Board
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.lookup import DEEPEST_LUT_RAM, DEEPEST_LUT_ROM, MEMORIES
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.templates.base import Group
from hwgen.templates.layers import LayerPlan


@dataclass(frozen=True)
class Move:
    """A memory that may lie elsewhere.

    Parameters
    ----------
    layer : int
        Number of its layer in the group.
    field : str
        Of the layer's plan: ``line_in``, ``fifos_in``, ``weights_in`` or ``tables_in`` for LUTs, ``weights_joined``.
    number : int
        Of the FIFO among the layer's.
    halves : int
        Block RAM that becomes free, in halves of 18 kbit.
    luts : int
        LUTs that it takes more.
    is_ram : bool
        Whether these are LUT RAM, which not all LUTs can be.
    """

    layer: int
    field: str
    number: int
    halves: int
    luts: int
    is_ram: bool

    @property
    def memory(self) -> tuple[int, str, int]:
        """Which memory it moves; of several moves of one, one can be made."""
        return self.layer, self.field.partition("_")[0], self.number

    def apply(self, plan: LayerPlan) -> LayerPlan:
        """The layer's plan with this memory moved."""
        if self.field == "weights_joined":
            return replace(plan, weights_joined=True)
        if self.field != "fifos_in":
            return replace(plan, **{self.field: "lut"})
        places = list(plan.fifos_in or (None,) * len(plan.fifo_depths))
        places[self.number] = "lut"
        return replace(plan, fifos_in=tuple(places))


def moves_of(group: Group) -> list[Move]:
    """What may be moved in a group: all memories in block RAM that are shallow enough for LUTs, and weights that take
    less side by side."""
    return [move for number, layer in enumerate(group.config.layers) for move in _of_layer(number, layer)]


def _of_layer(number: int, layer: LayerConfig) -> Iterator[Move]:
    window, compute, finish = layer.window, layer.compute, layer.finish
    if layer.has_line_buffer and window.in_block_ram and window.bank_depth <= DEEPEST_LUT_RAM:
        yield _move(number, "line_in", 0, window.resources, replace(window, memory_in="lut").resources, is_ram=True)
    for reader, fifo in enumerate(layer.fifos):
        if fifo.in_block_ram and fifo.depth <= DEEPEST_LUT_RAM:
            moved = replace(fifo, memory_in="lut").resources
            yield _move(number, "fifos_in", reader, fifo.resources, moved, is_ram=True)
    if isinstance(compute, MultiplyConfig) and compute.weight_memory == "block" and not compute.weights_joined:
        joined = replace(compute, weights_joined=True).resources
        yield _move(number, "weights_joined", 0, compute.resources, joined, is_ram=False)
        if compute.rom_depth <= (DEEPEST_LUT_RAM if compute.loaded else DEEPEST_LUT_ROM):
            memory_luts = MEMORIES.deep_memory_luts if compute.loaded else MEMORIES.lut_rom_luts
            luts = memory_luts(sum(compute.rom_widths), compute.rom_depth)
            freed = round(2 * compute.resources.bram36)
            yield Move(layer=number, field="weights_in", number=0, halves=freed, luts=luts, is_ram=compute.loaded)
    if isinstance(compute, ChannelTableConfig) and compute.in_block_ram and compute.depth <= DEEPEST_LUT_ROM:
        moved = replace(compute, tables_in="lut").resources
        yield _move(number, "tables_in", 0, compute.resources, moved, is_ram=False)
    deepest = DEEPEST_LUT_RAM if layer.stores else DEEPEST_LUT_ROM
    if isinstance(finish, ChannelsConfig) and finish.tables_in_block_ram and len(finish.beats) <= deepest:
        moved = replace(finish, tables_in="lut").resources
        yield _move(number, "tables_in", 0, finish.resources, moved, is_ram=False)


def _move(layer: int, field: str, number: int, now: Resources, moved: Resources, *, is_ram: bool) -> Move:
    return Move(layer, field, number, round(2 * (now.bram36 - moved.bram36)), moved.lut - now.lut, is_ram)


def cheapest(moves: Sequence[Move], halves: int) -> tuple[Move, ...] | None:
    """Of all choices that free so many halves of block RAMs, the one that takes the fewest LUTs, then the fewest moves;
    ``None`` if all together don't free as many. Of the moves of one memory one is made at most."""
    memories: dict[tuple[int, str, int], list[Move]] = {}
    for move in moves:
        if move.halves > 0:
            memories.setdefault(move.memory, []).append(move)
    found: list[tuple[int, int, tuple[Move, ...]] | None] = [(0, 0, ()), *[None] * halves]
    for options in memories.values():
        for freed in range(halves, -1, -1):
            if (before := found[freed]) is None:
                continue
            for move in options:
                after = (before[0] + move.luts, before[1] + 1, (*before[2], move))
                there = found[total := min(freed + move.halves, halves)]
                if there is None or after[:2] < there[:2]:
                    found[total] = after
    best = found[halves]
    return None if best is None else best[2]


def moved(group: Group, board: Board) -> Group:
    """The group with memories moved where it has more block RAM than the board; as it is, if that can't be mended.

    FIFOs and line buffers keep their sizes.
    """
    lacking = round(2 * (group.resources.bram36 - board.bram36))
    if lacking <= 0:
        return group
    chosen = cheapest(moves_of(group), lacking)
    lut_ram = board.family.memories.lut_ram_share * board.lut
    if chosen is None or sum(move.luts for move in chosen if move.is_ram) > lut_ram:
        return group
    layers = list(group.layers)
    for move in chosen:
        layers[move.layer] = move.apply(layers[move.layer])
    return replace(group, layers=tuple(layers))


def latencies(group: Group) -> list[int]:
    """What FIFOs depend on: cycles from the start of an output fold to its first beat."""
    return [layer.pipeline_latency for layer in group.config.layers]
