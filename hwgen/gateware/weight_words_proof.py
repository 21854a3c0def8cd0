"""Proof obligations ``weights``: a convolution's memories store the network's weights, and are read at the right step.

There are two. One is about addresses: the word that a chain position gets was read at the index of the step. The other
is about contents: a word has the weights that the network has for the step at its address, as multipliers decode them.
Together with ``sum``, each product has its own weight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwgen.gateware.multiply import MultiplyConfig
from hwgen.obligations.obligation import Obligation, Site, part
from hwgen.obligations.observers import age, delayed, is_old, stages


def of_memories(config: MultiplyConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that a convolution's weight memories store its weights and are read in time."""
    if config.loaded or not config.kinds.has_chains or not any(config.units.weight_bits):
        return []
    return [*([_addresses(config, site)] if config.rom_depth > 1 else []), _contents(config, site)]


def _read_registers(config: MultiplyConfig, memory: int) -> tuple[str, str]:
    """Return a pair of Verilog names: a weight memory's read address and enable registers, or constants for them.

    A memory that stores all positions has the registers of position 0. A memory without an enable reads in each cycle.
    """
    if config.rom_depth == 1:
        return "1'b0", "1'b1"
    suffix = f"_{memory - 1}_1" if memory else ""
    return f"weight_address{suffix}", f"read_enable{suffix}" if config.weights_in_blocks else "1'b1"


def _num_memories(config: MultiplyConfig) -> int:
    return 1 if config.weights_joined else config.chains.positions


def _cycles_to_word(config: MultiplyConfig, position: int) -> int:
    """Return the cycles from a step at port ``i`` until the multipliers of a chain position get its weight word."""
    return position + 1 - config.pipeline.weight_registers(position)


def _addresses(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each weight memory was read at the index of the step that receives the word."""
    last, width = config.rom_depth - 1, (config.rom_depth - 1).bit_length()
    cycles, ahead = config.chains.positions + 1, config.weights_in_blocks
    lines = [
        f"reg [{width - 1}:0] index_0 = 0; wire valid_0 = i__valid;",
        f"wire [{width - 1}:0] next_index = index_0 == {last} ? 0 : index_0 + 1;",
        "always @(posedge clk) index_0 <= rst ? 0 : i__valid ? next_index : index_0;",
        *stages("index", width, "index_0", cycles, resets=True),
        *stages("valid", 1, "valid_0", cycles, resets=True),
    ]
    asserts = {}
    for position in range(_num_memories(config)):
        # The address whose word the memory shows: the current one, the previous cycle's, or the last cycle's that read.
        shown, enable = _read_registers(config, position)
        if not config.pipeline.reads_at_once:
            lines.append(f"reg [{width - 1}:0] read_{position} = 0;")
            lines.append(f"always @(posedge clk) if ({enable}) read_{position} <= {shown};")
            shown = f"read_{position}"
        wait = 0 if config.weights_joined else _cycles_to_word(config, position)
        asserts[f"the word of position {position} was read at its step"] = f"!valid_{wait} | ({shown} == index_{wait})"
    first = "weight_address == (has_begun ? next_index : 0)" if ahead else "weight_address == index_0"
    invariants = {"the first address follows from the steps": first}
    if ahead:
        invariants["no step came before the first read"] = "has_begun | (index_0 == 0)"
        invariants["the first word is the next step's"] = "!has_begun | (read_0 == index_0)"
    return site.obligation(
        "weights",
        "Each memory of weights is read at the index of the word's step.",
        observer=tuple(lines),
        assumes={"steps begin in the second cycle after a reset": "!i__valid | has_begun"} if ahead else {},
        invariants=invariants,
        asserts=asserts,
        cover=f"valid_{cycles} & (index_{cycles} == {min(last, 2)})",
        free_memories=True,
        structure={"cycles": cycles + 1},
    )


def _contents(config: MultiplyConfig, site: Site) -> Obligation:
    """Return the `Obligation` that each word of a weight memory contains the network's weights for its address."""
    width = max(1, (config.rom_depth - 1).bit_length())
    longest = max(_cycles_to_word(config, position) for position in range(config.chains.positions)) + 1
    asserts, lines = {}, age(longest + 1)
    for memory in range(_num_memories(config)):
        address, enable = _read_registers(config, memory)
        lines += [f"wire [{width - 1}:0] a{memory}_0 = {address}; wire e{memory}_0 = {enable};"]
        lines += [
            *stages(f"a{memory}", width, f"a{memory}_0", longest),
            *stages(f"e{memory}", 1, f"e{memory}_0", longest),
        ]
    for position in range(config.chains.positions):
        memory = 0 if config.weights_joined else position
        wait = (_cycles_to_word(config, position) if config.weights_joined else 0) + (not config.pipeline.reads_at_once)
        index, enabled = f"a{memory}_{wait}", f"e{memory}_{wait}"
        word = f"chains.word_{position}"
        decoded = list(_decoded_weights(config, position, word))
        size = config.weight_bits * len(decoded)
        lines += [
            f"wire [{size - 1}:0] stated_{position} = {_select_word(index, width, size, _expected(config, position))};",
            f"wire [{size - 1}:0] decoded_{position} = {{{', '.join(reversed(decoded))}}};",
        ]
        in_range = "1'b1" if config.rom_depth == 1 << width else f"({index} < {config.rom_depth})"
        asserts[f"a word of position {position} has its weights"] = (
            f"!{enabled} | !{in_range} | (decoded_{position} == stated_{position})"
        )
        if config.rom_depth > 1 and config.weights_in_blocks:
            lines += delayed(f"word_{position}", config.weight_words.rom_widths[position], word, 1)
            fact = f"a word of position {position} stays until the next one is read"
            asserts[fact] = f"!{is_old(longest + 1)} | {enabled} | ({word} == word_{position}_was)"
    return site.obligation(
        "weights",
        "A word that was read at the index of a step has the network's weights for the step.",
        observer=tuple(lines),
        asserts=asserts,
        cover=f"e{_num_memories(config) - 1}_{longest}",
        keeps=site.memories,
        structure={"cycles": longest + 1},
    )


def _select_word(index: str, width: int, size: int, words: list[int]) -> str:
    """Return a Verilog expression of ``size`` bits that selects a constant word by an index of ``width`` bits."""
    if width == 0 or len(words) == 1:
        return f"{size}'h{words[0]:x}"
    half = 1 << width - 1
    if len(words) <= half:
        return _select_word(index, width - 1, size, words)
    upper, lower = (_select_word(index, width - 1, size, side) for side in (words[half:], words[:half]))
    return f"({index}[{width - 1}] ? {upper} : {lower})"


def _word_fields(config: MultiplyConfig, position: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Yield (output lanes, width in bits, product index) for each field of a chain position's weight word."""
    for unit, bits in zip(config.units.lanes, config.units.weight_bits, strict=True):
        for index in config.chains.products_at(position) if bits else ():
            yield unit, bits, index


def _decoded_weights(config: MultiplyConfig, position: int, word: str) -> Iterator[str]:
    """Yield the weights that multipliers decode from the word of a chain position, as Verilog expressions.

    A field of one bit stands for -1 or 1, and for -1 if the network has no weight there. A field of two weights has
    the upper one less 1 if the lower one is negative.
    """
    first, wide = 0, config.weight_bits
    for unit, bits, _ in _word_fields(config, position):
        field = part(word, first, bits)
        if bits < wide:
            yield f"({field} ? {wide}'d1 : {{{wide}{{1'b1}}}})"
        elif len(unit) == 1:
            yield field
        else:
            yield part(word, first, wide)
            yield f"({part(word, first + wide, wide)} + {wide}'d0 + {word}[{first + wide - 1}])"
        first += bits


def _expected(config: MultiplyConfig, position: int) -> list[int]:
    """Return a list by cycle of a window: a chain position's weights packed into an integer, first one lowest."""
    columns = [
        [weight or (-1 if bits < config.weight_bits else 0) for weight in weights_of(config, lane, index)]
        for unit, bits, index in _word_fields(config, position)
        for lane in unit
    ]
    mask, wide = (1 << config.weight_bits) - 1, config.weight_bits
    return [
        sum((column[step] & mask) << number * wide for number, column in enumerate(columns))
        for step in range(config.rom_depth)
    ]


def weights_of(config: MultiplyConfig, lane: int, index: int) -> list[int]:
    """Return the list of weights of product ``index`` of an output lane, one per cycle (step) of a window.

    Steps are ordered by channel group, by output fold, by taps, and then by input channels. A product without an output
    channel, a tap or an input channel has the weight 0.
    """
    window = config.window
    weights = np.array(config.weights.values).reshape(config.outputs, config.group_channels, *window.kernel)
    lanes = 1 if window.channelwise else window.input.lanes
    group_outputs = config.outputs // window.input.groups
    tap, offset = divmod(index, lanes)
    values = []
    for group in range(window.input.groups):
        for first in range(0, group_outputs, config.lanes):
            for taps in window.patches.step_taps:
                for channel in range(offset, offset + config.group_channels, lanes):
                    is_used = first + lane < group_outputs and tap < len(taps) and channel < config.group_channels
                    output = group * group_outputs + first + lane
                    values.append(int(weights[(output, channel, *taps[tap])]) if is_used else 0)
    return values
