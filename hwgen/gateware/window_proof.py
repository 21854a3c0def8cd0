"""Facts and assertions that the proofs of line buffers and of tile buffers (pyramids) share.

A fact gives an inner signal of the component as a function of an observer's counts. Assertions are about the taps of a
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hwgen.gateware.line_buffer import LineBufferConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.obligations.obligation import Obligation, Site, bits_for, choice
from hwgen.obligations.observers import counter, kept, probed, register, stages

#: Dictionary from "" (all obligations) to the reason why buffers with a memory in several pieces are not proved.
IN_PIECES = {"": "its memory is in several pieces of block RAM: its windows are simulated"}


class WindowFacts:
    """Facts on signals inside a line buffer or tile buffer, as functions of the counts of a proof's observer.

    Parameters
    ----------
    site : Site
        Site of the component.
    bits : int
        Width of the observer's signed wires, in bits.

    Attributes
    ----------
    observer : list of str
        Lines of Verilog.
    sees : dict of str to str
        Signals of the component that are read, by the name in the wrapper.
    facts : dict of str to str
        Invariants: a Verilog expression by the fact in words.
    probes : dict of str to list of str
        Lines that read the marked word's address in each memory, by instance.
    drives : dict of str to str
        Addresses of the probes.
    """

    def __init__(self, site: Site, bits: int) -> None:
        self._site, self._bits = site, bits
        self.observer: list[str] = []
        self.sees: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.probes: dict[str, list[str]] = {}
        self.drives: dict[str, str] = {}

    def _wire(self, name: str, expression: str) -> None:
        """Add a signed wire ``name`` with the value of ``expression`` to the observer's Verilog lines."""
        self.observer.append(f"wire signed [{self._bits - 1}:0] {name} = {expression};")

    def _table(self, name: str, selector: str, entries: Sequence[int]) -> None:
        """Add a wire ``name`` to the observer: the entry of a constant table that the signal ``selector`` selects."""
        self._wire(name, choice(selector, [self._number(entry) for entry in entries]))

    def _number(self, value: int) -> str:
        """Return a number as a signed Verilog constant that is as wide as the observer's wires."""
        return f"-{self._bits}'sd{-value}" if value < 0 else f"{self._bits}'sd{value}"

    def _fact(self, signal: str, expression: str) -> None:
        """Add the fact that a buffer's counter ``signal``, if emitted, equals ``expression`` modulo its range."""
        if not self._site.has(signal):
            return
        width = self._site.module.signals[signal].width
        self.sees[f"its_{signal}"] = signal
        self._wire(f"expected_{signal}", expression)
        self.facts[f"{signal} follows from the counts"] = f"its_{signal} == expected_{signal}[{width - 1}:0]"

    def _modulo(self, name: str, expression: str, modulus: int, times: int) -> None:
        """Add a wire ``name`` with ``expression`` modulo ``modulus``, which it exceeds less than ``times`` times."""
        self._wire(f"{name}_sum", expression)
        wraps = [self._number(count * modulus) for count in range(times - 1, 0, -1)]
        over = [f"{name}_sum >= {wrap} ? {name}_sum - {wrap}" for wrap in wraps]
        self._wire(name, " : ".join([*over, f"{name}_sum"]))

    def _probe(self, memory: str, depth: int, width: int, address: str) -> str:
        """Add a probe that reads a memory of ``depth`` words of ``width`` bits at an address; return its word's name.

        A memory in block RAM is an instance, and the probe is in its module.
        """
        size = bits_for(max(1, depth - 1))
        probe = probed(self._site, **{memory: (max(2, depth), width, f"{address}{size}")})
        for inner, lines in probe["probes"].items():
            self.probes.setdefault(inner, []).extend(lines)
        self.sees |= probe["sees"]
        self.drives |= probe["drives"]
        return f"{memory}_word"

    def _state_steps(self, window: LineBufferConfig) -> None:
        """Add facts on the counters that locate a step (a cycle's read) in its window: output, tap, input fold.

        The wires ``down`` and ``beside`` are the rows and columns from the window's first pixel to the step's.
        """
        offsets = patch_offsets(window)
        rows_on, members = window.patches.advance[0], window.group_output_folds
        self._table("group", "output_fold_0", [fold // members for fold in range(window.output_folds)])
        self._table("member", "output_fold_0", [fold % members for fold in range(window.output_folds)])
        self._table("down", "tap_fold_0", [down for down, _ in offsets])
        self._table("beside", "tap_fold_0", [beside for _, beside in offsets])
        group_first = f"group * {self._number(window.group_folds)}"
        for signal, expression in {
            "output_fold_index": "n_output_fold_0",
            "fold": "n_output_fold_0",
            "tap_fold_index": "n_tap_fold_0",
            "patch_row_index": choice("tap_fold_0", [self._number(down // rows_on) for down, _ in offsets]),
            "patch_row_offset": "down",
            "patch_column_offset": "beside",
            "inner_fold_index": "n_inner_0",
            "input_fold_index": f"{group_first} + n_inner_0",
            "group_first_fold": group_first,
            "group_output_fold_index": "member",
            "is_idle": "$signed({1'b0, (tap_fold_0 == 0) & (inner_0 == 0)})",
        }.items():
            self._fact(signal, expression)

    def obligation(
        self,
        obligation_kind: str,
        statement: str,
        *,
        rules: dict[str, str],
        observer: Sequence[str],
        drives: dict[str, str],
        asserts: dict[str, str] | None = None,
        moves: Sequence[str] = (),
        **fields: Any,
    ) -> Obligation:
        """Return an `Obligation` of a buffer: ``occupancy``, which proves the facts, or another, which assumes them.

        The lines of ``observer`` come before the facts' lines, and the lines of ``moves`` after them.
        """
        known = {} if obligation_kind == "occupancy" else {"rests_on": "occupancy"}
        return self._site.obligation(
            obligation_kind,
            statement,
            observer=(*observer, *self.observer, *moves),
            sees=self.sees,
            assumes={**rules, **(self.facts if known else {})},
            asserts=asserts or self.facts,
            keeps=self._site.memories,
            probes=self.probes,
            drives={**drives, **self.drives},
            **known,
            **fields,
        )


Condition = Callable[[int, int, int], str]
"""Type of a function from pipeline stage, window index and tap index to a Verilog condition on the tap."""


Counts = Mapping[str, tuple[int, str]]
"""Type of an observer's nested counters, outermost first: name to (number of values, last value if that varies)."""


def in_range(counts: Counts) -> str:
    """Return the Verilog condition that no counter of an observer exceeds its last value."""
    return " & ".join(f"({name} <= {last or count - 1})" for name, (count, last) in counts.items())


def steps(counts: Counts, latency: int) -> list[str]:
    """Return a list of Verilog lines that count a buffer's reads (steps) from ``start``, and delay the counts by stage.

    Stage N of the pipeline has ``has_step_N`` and the counts ``NAME_N``. The keys of ``counts`` are the names in stage
    0, and include ``tap_fold_0`` and ``inner_0``. The component has ``latency`` stages after stage 0.
    """
    moves = [*(f"{name}_ends" for name in list(counts)[1:]), "has_step_0"]
    walk = [counter(name, count, move, last) for (name, (count, last)), move in zip(counts.items(), moves, strict=True)]
    lines = [declaration for declaration, *_ in walk]
    lines.append("wire has_step_0 = start | (tap_fold_0 != 0) | (inner_0 != 0);")
    for _, *count_lines in reversed(walk):
        lines += count_lines
    lines += stages("has_step", 1, "has_step_0", latency, resets=True)
    for name, (count, _) in counts.items():
        lines += stages(name.removesuffix("_0"), max(1, (count - 1).bit_length()), name, latency)
    return lines


def word_marks(window: LineBufferConfig, latency: int) -> list[str]:
    """Return a list of observer lines (Verilog) that mark any one input word of a buffer, and keep it as ``word``.

    ``is_open_N``: the step in stage N of the pipeline reads the marked word's frame or tile, as ``ahead``, the number
    of earlier ones, is 0.
    """
    return [
        "wire mark = $anyseq;",
        "wire marks = mark & comes & !was_marked;",
        *register("was_marked", "was_marked | marks"),
        *kept("word", window.input.lanes, "came", "marks"),
        "wire is_open_0 = was_marked & (ahead == 0);",
        *stages("is_open", 1, "is_open_0", latency, resets=True),
    ]


def patch_offsets(window: LineBufferConfig) -> list[tuple[int, int]]:
    """Return a list: per tap fold (taps read at once), the (row, column) offset of its first tap in the window."""
    across = 1 if window.patches.chooses else window.kernel[1] // window.patches.size[1]
    down, beside = (0, 0) if window.patches.chooses else window.patches.advance
    return [(fold // across * down, fold % across * beside) for fold in range(window.tap_folds)]


def has_tap(window: LineBufferConfig, stage: int, tap: int) -> str:
    """Return the Verilog condition that the read in pipeline stage ``stage`` includes tap ``tap``."""
    return choice(f"tap_fold_{stage}", [f"1'b{int(tap < len(taps))}" for taps in window.patches.step_taps])


def marked_word(window: LineBufferConfig) -> str:
    """Return a tap's Verilog value if it is the observer's marked word: one bit per channel, repeated."""
    bits = window.input.bits
    return ", ".join(f"{{{bits}{{word[{lane}]}}}}" for lane in reversed(range(window.input.lanes)))


def token_beat(source: BeatFormat) -> str:
    """Return a beat in Verilog whose values each repeat a bit of the wire ``token``; ``last`` is ``token_last``."""
    token = ", ".join(
        f"{{{source.bits}{{token[{lane * source.pixels + pixel}]}}}}"
        for lane in reversed(range(source.lanes))
        for pixel in reversed(range(source.pixels))
    )
    return f"{{token_last, {token}}}"


def token_words(window: LineBufferConfig) -> list[str]:
    """Return a list of Verilog concatenations, per pixel of a beat: the bits of ``token`` for its channels."""
    source = window.input
    return [
        f"{{{', '.join(f'token[{lane * source.pixels + pixel}]' for lane in reversed(range(source.lanes)))}}}"
        for pixel in range(source.pixels)
    ]


def tap_asserts(
    window: LineBufferConfig, latency: int, is_present: Condition, is_marked: Condition, is_padding: Condition
) -> dict[str, str]:
    """Return a dict from text to Verilog assertion on a buffer's output: valid, first and last steps, every tap.

    Parameters
    ----------
    window : LineBufferConfig
        Windows and format of the steps.
    latency : int
        Cycles from a step to its taps on the output.
    is_present, is_marked, is_padding : Condition
        Whether a step has the tap, whether it is the marked word of the frame or tile that is read, and whether it is
        outside of the map.
    """
    bits, lanes, taps = window.input.bits, window.input.lanes, window.taps
    layout = dict(window.step_layout)
    asserts = {"steps come a fixed number of cycles after their start": f"o__valid == has_step_{latency}"}
    for flag, tap_fold, inner in (("first", 0, 0), ("last", window.tap_folds - 1, window.group_folds - 1)):
        asserts[f"{flag} marks the {flag} step of a fold"] = (
            f"!o__valid | (o__payload[{layout[flag].offset}] == "
            f"((tap_fold_{latency} == {tap_fold}) & (inner_{latency} == {inner})))"
        )
    pad = window.pad_value & ((1 << bits) - 1)
    for index in range(window.pixels):
        for tap in range(taps):
            offset = layout["taps"].offset + (index * taps + tap) * lanes * bits
            value = f"o__payload[{offset + lanes * bits - 1}:{offset}]"
            here = f"o__valid & {is_present(latency, index, tap)}"
            asserts[f"tap {tap} of window {index} is the pixel that it covers"] = (
                f"!({here} & is_open_{latency} & {is_marked(latency, index, tap)}) | "
                f"({value} == {{{marked_word(window)}}})"
            )
            if window.inside:
                flag = f"o__payload[{layout['inside'].offset + index * taps + tap}]"
                asserts[f"the flag of tap {tap} of window {index} is high inside of the map"] = (
                    f"!({here}) | ({flag} == !({is_padding(latency, index, tap)}))"
                )
            if window.padded or window.patches.chooses:
                asserts[f"tap {tap} of window {index} has the padding's value outside of the map"] = (
                    f"!({is_padding(latency, index, tap)} & o__valid) | ({value} == {{{lanes}{{{bits}'d{pad}}}}})"
                )
    return asserts
