"""Moves of memories out of block RAM if it runs out, and of width converters from after a FIFO to before it.

Each memory of a group, a line buffer, FIFO, weights or tables of requantisers, can stay in block RAM or move to LUTs;
the weights of a layer can also be joined in one memory. The choice is a knapsack problem: free the missing block RAM
with the fewest LUTs. Dynamic programming over halves of block RAMs solves it exactly.

On a device with UltraRAM, memories that are deep and wide move there first, because nothing else uses it: line buffers,
FIFOs, and weights that are loaded at run time. As few UltraRAMs as possible free the missing block RAM, or as much of
it as they can. LUTs then serve for the rest.

A layer sends as few channels per cycle as it finishes. A FIFO stores these narrow beats, and a width converter after
the FIFO collects them into the reader's beats. The reader thus gets a whole beat only every few cycles, however deep
the FIFO is. That is enough for a reader that takes its input evenly. A reader that takes its input in bursts, such as a
concatenation of inputs in turn, waits. A converter before the FIFO fills whole beats while the reader takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from hwgen.boards import Board
from hwgen.devices.memory import UltraRam
from hwgen.gateware.accelerator import AcceleratorConfig, Link
from hwgen.gateware.channel_table import ChannelTableConfig
from hwgen.gateware.channels import ChannelsConfig
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import ComponentConfig, LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.templates.base import Group
from hwgen.templates.layers import LayerPlan


@dataclass(frozen=True)
class Move:
    """Move of one of a layer's memories out of block RAM to LUTs or UltraRAM, or merger of its weight memories.

    Parameters
    ----------
    layer : int
        Index of the layer in the group.
    field : str
        Field of the layer's plan: ``line_in``, ``fifos_in``, ``weights_in`` or ``tables_in`` for a move to LUTs,
        ``weights_joined`` for a merger. A move to UltraRAM has ``line_in``, ``fifos_in`` or ``weights_in``, or
        ``weights_joined`` for a merger there.
    fifo : int
        Index of the FIFO among the layer's FIFOs; 0 for other memories.
    halves : int
        Block RAM that becomes free, in halves of 18 kbit.
    luts : int
        Number of additional LUTs.
    is_ram : bool
        Whether these are LUT RAM; only a share of the LUTs can serve.
    ultra_rams : int
        Number of UltraRAMs that store the memory after the move; 0 for a move to LUTs.
    """

    layer: int
    field: str
    fifo: int
    halves: int
    luts: int
    is_ram: bool
    ultra_rams: int = 0

    @property
    def memory(self) -> tuple[int, str, int]:
        """Triple that names the memory that moves: index of the layer, kind of memory, index of the FIFO.

        At most one of the moves with the same key can be made.
        """
        return self.layer, self.field.partition("_")[0], self.fifo

    def apply(self, plan: LayerPlan) -> LayerPlan:
        """Return a `LayerPlan`: the layer's plan after a memory's move to LUTs or UltraRAM, or weights' merger."""
        where = "ultra" if self.ultra_rams else "lut"
        if self.field == "weights_joined":
            return replace(plan, weights_joined=True, weights_in="ultra" if self.ultra_rams else plan.weights_in)
        if self.field != "fifos_in":
            return replace(plan, **{self.field: where})
        memories = list(plan.fifos_in or (None,) * len(plan.fifo_depths))
        memories[self.fifo] = where
        return replace(plan, fifos_in=tuple(memories))


def moves_of(group: Group) -> list[Move]:
    """Return a list of each possible `Move` of a fusion group's memory to LUTs, and mergers of weight memories."""
    return [move for index, layer in enumerate(group.config.layers) for move in _of_layer(index, layer)]


def ultra_moves_of(group: Group, board: Board) -> list[Move]:
    """Return a list of each possible `Move` to UltraRAM, for memories of a group deep and wide enough to fill it."""
    if (ultra_ram := board.ultra_ram) is None:
        return []
    layers = enumerate(group.config.layers)
    return [move for index, layer in layers for move in _of_layer_to_ultra(index, layer, ultra_ram)]


def _of_layer_to_ultra(index: int, layer: LayerConfig, ultra_ram: UltraRam) -> Iterator[Move]:
    """Yield each `Move` to UltraRAM of a layer's memory (line buffer, FIFO, weights) that fills enough of it."""
    window, suits = layer.window, ultra_ram.suits
    if layer.has_line_buffer and window.banks.memory == "block" and suits(window.word_bits, window.banks.depth):
        moved = replace(window, memory_in="ultra").resources
        yield _make_move(index, "line_in", 0, window.resources, moved, is_ram=False)
    for reader, fifo in enumerate(layer.fifos):
        if fifo.memory == "block" and suits(fifo.width, fifo.depth):
            moved = replace(fifo, memory_in="ultra").resources
            yield _make_move(index, "fifos_in", reader, fifo.resources, moved, is_ram=False)
    if isinstance(layer.compute, MultiplyConfig):
        yield from _weights_to_ultra(index, layer.compute, ultra_ram)


def _weights_to_ultra(index: int, compute: MultiplyConfig, ultra_ram: UltraRam) -> Iterator[Move]:
    """Yield each `Move` of a layer's weights to UltraRAM: one memory per position of a chain, and one for all.

    Only weights that are loaded move, because UltraRAM begins with zeros. One LUT for each bit must be enough to select
    among UltraRAMs that are stacked for depth, because a register in a DSP slice follows.
    """
    depth = compute.rom_depth
    if (
        not compute.loaded
        or compute.weight_memory != "block"
        or ultra_ram.stacked(depth) > compute.device.logic.mux_ways
    ):
        return
    separate = replace(compute, weights_in="ultra")
    joined = replace(separate, weights_joined=True)
    for field, moved in (("weights_in", separate), ("weights_joined", joined)):
        if all(ultra_ram.suits(width, depth) for width in moved.weight_words.widths):
            yield _make_move(index, field, 0, compute.resources, moved.resources, is_ram=False)


def _of_layer(index: int, layer: LayerConfig) -> Iterator[Move]:
    window, compute, finish, memories = layer.window, layer.compute, layer.finish, layer.memories

    def move(field: str, now: ComponentConfig, moved: ComponentConfig, fifo: int = 0, *, is_ram: bool = False) -> Move:
        return _make_move(index, field, fifo, now.resources, moved.resources, is_ram=is_ram)

    if layer.has_line_buffer and window.banks.memory == "block" and window.banks.depth <= memories.deepest_lut_ram:
        yield move("line_in", window, replace(window, memory_in="lut"), is_ram=True)
    for reader, fifo in enumerate(layer.fifos):
        if fifo.memory == "block" and fifo.depth <= memories.deepest_lut_ram:
            yield move("fifos_in", fifo, replace(fifo, memory_in="lut"), reader, is_ram=True)
    if isinstance(compute, MultiplyConfig) and compute.weight_memory == "block" and not compute.weights_joined:
        yield move("weights_joined", compute, replace(compute, weights_joined=True))
        if compute.rom_depth <= (memories.deepest_lut_ram if compute.loaded else memories.deepest_lut_rom):
            memory_luts = memories.deep_memory_luts if compute.loaded else memories.lut_rom_luts
            luts = memory_luts(sum(compute.weight_words.rom_widths), compute.rom_depth)
            freed = round(2 * compute.resources.bram36)
            yield Move(layer=index, field="weights_in", fifo=0, halves=freed, luts=luts, is_ram=compute.loaded)
    if isinstance(compute, ChannelTableConfig) and compute.in_block_ram and compute.depth <= memories.deepest_lut_rom:
        yield move("tables_in", compute, replace(compute, tables_in="lut"))
    deepest = memories.deepest_lut_ram if layer.stores else memories.deepest_lut_rom
    if isinstance(finish, ChannelsConfig) and finish.tables_in_block_ram and len(finish.beats) <= deepest:
        yield move("tables_in", finish, replace(finish, tables_in="lut"))


def _make_move(layer: int, field: str, fifo: int, now: Resources, moved: Resources, *, is_ram: bool) -> Move:
    halves = round(2 * (now.bram36 - moved.bram36))
    return Move(layer, field, fifo, halves, moved.lut - now.lut, is_ram, moved.uram - now.uram)


def cheapest_moves(moves: Sequence[Move], halves: int) -> tuple[Move, ...] | None:
    """Return a tuple: the moves that free ``halves`` 18-kbit block RAMs with the fewest LUTs; ``None`` if none do.

    ``None`` if all moves together free less. At most one move is made per memory.
    """
    best_choices: list[tuple[int, int, tuple[Move, ...]] | None] = [(0, 0, ()), *[None] * halves]
    for options in _by_memory(moves):
        for freed in range(halves, -1, -1):
            if (choice := best_choices[freed]) is None:
                continue
            for move in options:
                longer = (choice[0] + move.luts, choice[1] + 1, (*choice[2], move))
                known = best_choices[total := min(freed + move.halves, halves)]
                if known is None or longer[:2] < known[:2]:
                    best_choices[total] = longer
    cheapest_choice = best_choices[halves]
    return None if cheapest_choice is None else cheapest_choice[2]


def _by_memory(moves: Sequence[Move]) -> list[list[Move]]:
    """Return a list of lists: for each memory, every `Move` that frees block RAM."""
    memories: dict[tuple[int, str, int], list[Move]] = {}
    for move in moves:
        if move.halves > 0:
            memories.setdefault(move.memory, []).append(move)
    return [*memories.values()]


def fewest_ultra_moves(moves: Sequence[Move], halves: int, ultra_rams: int) -> tuple[Move, ...]:
    """Return a tuple of each `Move` to UltraRAM that frees ``halves`` 18-kbit halves with the fewest UltraRAMs.

    If no moves within ``ultra_rams`` UltraRAMs free so much, return those that free the most. At most one move is made
    per memory.
    """
    best_choices: list[tuple[int, tuple[Move, ...]]] = [(0, ())] * (ultra_rams + 1)
    for options in _by_memory(moves):
        for available in range(ultra_rams, -1, -1):
            for move in options:
                if move.ultra_rams > available:
                    continue
                freed, chosen = best_choices[available - move.ultra_rams]
                if freed + move.halves > best_choices[available][0]:
                    best_choices[available] = freed + move.halves, (*chosen, move)
    return next((chosen for freed, chosen in best_choices if freed >= halves), best_choices[-1][1])


def with_memories_moved(group: Group, board: Board) -> Group:
    """Return the fusion `Group` with memories moved out of block RAM until the board has enough block RAM.

    The group is returned unchanged if the board has enough block RAM, or if no moves suffice. FIFOs and line buffers
    keep their sizes.
    """
    lacking = round(2 * (group.resources.bram36 - board.bram36))
    if lacking <= 0:
        return group
    to_ultra = fewest_ultra_moves(ultra_moves_of(group, board), lacking, max(board.uram - group.resources.uram, 0))
    lacking -= sum(move.halves for move in to_ultra)
    memories = {move.memory for move in to_ultra}
    others = [move for move in moves_of(group) if move.memory not in memories]
    chosen = cheapest_moves(others, lacking) if lacking > 0 else ()
    lut_ram = board.family.memories.lut_ram_share * board.lut
    if chosen is None or sum(move.luts for move in chosen if move.is_ram) > lut_ram:
        return group
    layers = list(group.layers)
    for move in (*to_ultra, *chosen):
        layers[move.layer] = move.apply(layers[move.layer])
    return replace(group, layers=tuple(layers))


def pipeline_latencies(group: Group) -> list[int]:
    """Return a list: each layer's cycles from the start of a pass over ``Tm`` channels to its first FIFO beat."""
    return [layer.pipeline_latency for layer in group.config.layers]


def moved_converters(config: AcceleratorConfig, layers: Sequence[LayerPlan]) -> Iterator[tuple[LayerPlan, ...]]:
    """Yield tuples of `LayerPlan` with width converters placed before FIFOs: for readers in bursts, then for all.

    Only converters to wider beats move. Nothing is yielded if there are none, and nothing is yielded twice.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the plans, with all converters after the FIFOs.
    layers : sequence of LayerPlan
    """
    seen = [_move_converters(config, layers, lambda link: False)]
    for chosen in (lambda link: not _has_line_buffer(config, link), lambda link: True):
        moved = _move_converters(config, layers, chosen)
        if moved not in seen:
            seen.append(moved)
            yield moved


def _has_line_buffer(config: AcceleratorConfig, link: Link) -> bool:
    """Return whether the reader of a link evens out bursts: it has a line buffer, or is a fusion group output."""
    return link.sink == len(config.layers) or config.layers[link.sink].has_line_buffer


def _move_converters(
    config: AcceleratorConfig, layers: Sequence[LayerPlan], chosen: Callable[[Link], bool]
) -> tuple[LayerPlan, ...]:
    """Return a tuple of layers' plans with width converters of the chosen links between layers before FIFOs."""
    first = config.split_by_layer(
        [chosen(link) and config.layers[link.source].regroups[link.output].widens for link in config.links]
    )
    return tuple(
        replace(layer, converts_first=flags if any(flags) else ()) for layer, flags in zip(layers, first, strict=True)
    )
