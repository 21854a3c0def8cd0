"""Proof obligations of reuse buffers: every tile leaves whole, with the right beats of the map, kept or new.

The observer walks over the beats of all tiles, row by row. A new beat of a tile is one that arrives, and a beat that
windows need leaves. The walk therefore says which beat of the map each transfer must be. The observer marks one beat of
one frame when it arrives: any row, any column, any channels. Each later beat that leaves and that is the same one, in
this tile or in a neighbour, must have the marked values. `BandFacts` has the invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from hwgen.gateware.pyramid.reuse import IN_FLIGHT, PyramidReuseBufferConfig
from hwgen.gateware.pyramid.spans import Cut
from hwgen.gateware.window_proof import WindowFacts, token_beat
from hwgen.obligations.obligation import Obligation, Proofs, Site, bits_for
from hwgen.obligations.observers import kept, register
from hwgen.obligations.streams import bits_of_values, of_streams


def obligations(config: PyramidReuseBufferConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of a reuse buffer, except the stream rules of its output."""
    return [*_obligations(config, site), bits_of_values(site, config.input.bits, *[config.input.data_bits] * 2)]


def _obligations(config: PyramidReuseBufferConfig, site: Site) -> list[Obligation]:
    bands = BandFacts(config, site)
    marked, is_kept = _first_read(config)
    source = config.input
    rules = {
        "the marked beat is one of the map": (
            f"(n_mark_row < {_beats(walk_of(config.row_cuts))}) & "
            f"(n_mark_column < {_beats(walk_of(config.column_cuts))}) & (n_mark_fold < {source.folds})"
        )
    }
    shared: dict[str, Any] = {
        "rules": rules,
        "observer": tuple(_declaration_lines(config, bands)),
        "moves": tuple(_move_lines(config, bands)),
        "drives": {"i__payload": token_beat(config.input)},
        "cover": f"o__valid & is_open_3 & is_mark_3{' & !is_new_3' * is_kept}",
        "run": {"mark": "1'b1", "i__valid": "1'b1", "o__ready": "1'b1"}
        | {f"mark_{name}": str(value) for name, value in zip(("row", "column", "fold"), marked, strict=True)},
    }
    asserts = {
        "a beat is accepted for each new beat of a tile": "(i__valid & i__ready) == (steps & is_new_2)",
        "a beat is valid for each beat of a tile that windows need": "o__valid == (is_full & is_used_3)",
        "a beat that leaves has come in": "!(o__valid & is_mark_3) | has_come_3",
        "a beat that leaves is the beat of the map in its place": (
            f"!(o__valid & is_open_3 & is_mark_3) | (o__payload[{source.data_bits - 1}:0] == {bands.word})"
        ),
        "last marks the last beat of a frame": f"!o__valid | (o__payload[{source.data_bits}] == is_last_3)",
    }
    return [
        bands.obligation(
            "occupancy",
            "A kept beat is read where it is stored, and no beat is overwritten that a later tile needs.",
            **shared,
        ),
        bands.obligation(
            "tokens",
            "Each tile leaves whole: every beat that windows need once, in order, new or kept, with all its values.",
            invariants=bands.values,
            asserts=asserts,
            **shared,
        ),
        bands.obligation(
            "schedule",
            f"A beat of a tile passes in each cycle with the register free, kept ones without waiting, starting "
            f"{config.start} cycles after a reset; a new beat is valid {config.latency} cycle after its transfer.",
            asserts={
                "beats are accepted in time": "i__ready == (has_2 & is_new_2 & (!is_full | leaves))",
                "beats are valid in time": "o__valid == (is_full & is_used_3)",
            },
            **shared,
        ),
    ]


def _walks(config: PyramidReuseBufferConfig) -> dict[str, Walk]:
    """Return a dictionary from axis, ``row`` or ``column``, to its tables of tiles' beats (`Walk`)."""
    return {"row": walk_of(config.row_cuts), "column": walk_of(config.column_cuts)}


def _beats(walk: Walk) -> int:
    """Return the number of beats that the map has along one axis."""
    return walk.bases[-1] + walk.sizes[-1]


def _declaration_lines(config: PyramidReuseBufferConfig, bands: BandFacts) -> Iterator[str]:
    """Yield observer lines (Verilog) that declare the marked beat: its row, column and fold numbers, its values."""
    source, walks = config.input, _walks(config)
    bits = source.lanes * source.pixels
    yield f"wire [{bits - 1}:0] token = $anyseq;"
    yield "wire token_last = $anyseq;"
    yield "wire mark = $anyseq;"
    largest = {"row": _beats(walks["row"]) - 1, "column": _beats(walks["column"]) - 1, "fold": source.folds - 1}
    for name, value in largest.items():
        yield f"wire {bits_for(value)} mark_{name} = $anyconst;"


def _move_lines(config: PyramidReuseBufferConfig, bands: BandFacts) -> Iterator[str]:
    """Yield observer lines (Verilog) that step through all tiles' beats, as the streams permit, and mark one."""
    source, walks = config.input, _walks(config)
    largest = {
        "row_span": len(walks["row"].sizes) - 1,
        "column_span": len(walks["column"].sizes) - 1,
        "row": max(walks["row"].sizes) - 1,
        "column": max(walks["column"].sizes) - 1,
        "fold": source.folds - 1,
    }
    for stage in bands.stages:
        inner = f"fold_ends_{stage}"
        yield f"wire [31:0] next_fold_{stage} = {inner} ? 0 : fold_{stage} + 1;"
        for name, ends in (
            ("column", "column_ends"),
            ("row", "row_ends"),
            ("column_span", "column_span_ends"),
            ("row_span", "row_span_ends"),
        ):
            yield f"wire [31:0] next_{name}_{stage} = {ends}_{stage} ? 0 : {name}_{stage} + {inner};"
            inner = f"{ends}_{stage}"
    yield "wire leaves = is_full & (o__ready | !is_used_3);"
    yield "wire steps = has_2 & (!is_full | leaves) & (!is_new_2 | i__valid);"
    yield "wire advances = steps | !has_2;"
    yield "wire comes = i__valid & i__ready & is_mark_2 & is_new_2;"
    yield "wire marks = mark & comes & !was_marked;"
    yield from register("is_full", "steps | (is_full & !leaves)")
    yield from register("was_marked", "was_marked | marks")
    yield from kept("word", source.lanes * source.pixels, "token", "marks")
    for flag, sets in (("has_come", "comes"), ("is_open", "marks")):
        yield f"wire {flag}_then = {flag}_2 | {sets};"
        yield from register(f"{flag}_2", f"steps ? {flag}_then & !row_span_ends_2 : {flag}_2")
        yield from register(f"{flag}_3", f"steps ? {flag}_then : {flag}_3")
    for stage in bands.stages[4:]:
        yield from register(f"is_open_{stage}", f"advances ? is_open_{stage - 1} : is_open_{stage}")
    yield "wire has_0 = 1'b1;"
    for name in POSITION:
        width = max(1, largest[name].bit_length())
        yield from register(f"{name}_0", f"advances ? next_{name}_0 : {name}_0", width)
        for stage in bands.stages[1:]:
            moved = f"advances ? {name}_{stage - 1} : {name}_{stage}"
            yield from register(f"{name}_{stage}", moved, width, reset="1'b0")
    for stage in bands.stages[1:]:
        yield from register(f"has_{stage}", f"advances ? has_{stage - 1} : has_{stage}")


def _first_read(config: PyramidReuseBufferConfig) -> tuple[tuple[int, int, int], bool]:
    """Return a pair: (row, column, fold) of the first kept beat to leave the buffer, and if there is a kept beat.

    If none is kept, the numbers belong to the first beat that leaves.
    """
    rows, columns = walk_of(config.row_cuts), walk_of(config.column_cuts)
    first_used: tuple[int, int, int] | None = None
    for row_tile, column_tile in product(range(len(rows.sizes)), range(len(columns.sizes))):
        for row, column in product(
            range(rows.unused[row_tile], rows.sizes[row_tile]),
            range(columns.unused[column_tile], columns.sizes[column_tile]),
        ):
            numbers = (rows.bases[row_tile] + row, columns.bases[column_tile] + column, 0)
            if row < rows.kept[row_tile] or column < columns.kept[column_tile]:
                return numbers, True
            first_used = first_used or numbers
    assert first_used is not None  # windows need a beat of the map
    return first_used, False


#: Names of the observer's counters of a beat's position (tile on each axis, beat in the tile), outermost first.
POSITION = ("row_span", "column_span", "row", "column", "fold")
#: Numbers of the reuse buffer's pipeline stages after the address: memory read, entry, and output register.
_READ, _ENTRY, _REGISTER = 1, 2, 3


@dataclass(frozen=True)
class Walk:
    """Tables with an entry per input tile along one axis: number of its first beat, and how many beats of each kind.

    Parameters
    ----------
    bases : tuple of int
        Number of the tile's first beat, in order of arrival.
    sizes : tuple of int
        Number of the tile's beats.
    kept : tuple of int
        Number of the tile's first beats that the previous tile also has.
    passes : tuple of int
        Number of the tile's first beats that the next tile does not have.
    unused : tuple of int
        Number of the tile's first beats that no window needs.
    """

    bases: tuple[int, ...]
    sizes: tuple[int, ...]
    kept: tuple[int, ...]
    passes: tuple[int, ...]
    unused: tuple[int, ...]

    @property
    def last_used(self) -> int:
        """Index along this axis of the last tile with a beat that windows need."""
        return max(tile for tile, size in enumerate(self.sizes) if size > self.unused[tile])


def walk_of(cuts: tuple[Cut, ...]) -> Walk:
    """Return a `Walk`: tables of successive tiles' beats along one axis, computed from the tiles' spans in beats."""
    bases, passes = [0], []
    for cut, after in pairwise(cuts):
        passes.append((after.first - cut.first) // cut.pixels if after.kept else cut.size)
        bases.append(bases[-1] + passes[-1])
    return Walk(
        bases=tuple(bases),
        sizes=tuple(cut.size for cut in cuts),
        kept=tuple(cut.kept for cut in cuts),
        passes=(*passes, cuts[-1].size),
        unused=tuple(cut.unused for cut in cuts),
    )


class BandFacts(WindowFacts):
    """Invariants of a reuse buffer: its counters, and where its memories (bands) store the proof's marked beat.

    The observer walks over the beats of all tiles, and keeps the position of the beat in each stage: ``row_span_N``,
    ``column_span_N``, ``row_N``, ``column_N`` and ``fold_N`` in stage N. Stage 0 is the address, stage 1 the read of
    the memories, stage 2 the entry, and stage 3 the output register. Stages 4 and 5 have the beats that were in the
    register earlier.

    Along one axis, beats have numbers in order of arrival. A tile's beats have consecutive numbers, because the beats
    that it keeps are the last ones of the previous tile. Therefore a beat of the map has a number of its
    row and one of its column, in every tile. The marked beat has the numbers ``mark_row`` and ``mark_column``, and the
    fold ``mark_fold``. Names with ``its_`` are the reuse buffer's.

    Attributes
    ----------
    values : dict of str to str
        Invariants of the beats' values, which ``tokens`` proves: a Verilog expression by the fact in words.
    """

    def __init__(self, config: PyramidReuseBufferConfig, site: Site) -> None:
        self._rows, self._columns = walk_of(config.row_cuts), walk_of(config.column_cuts)
        folds = config.input.folds
        largest = max(
            *(2 * (walk.bases[-1] + walk.sizes[-1]) * folds for walk in (self._rows, self._columns)),
            2 * max(self._columns.sizes) * folds,
            2 * max(self._rows.sizes) * max(config.bottom_pitch, config.right_pitch, 1),
        )
        super().__init__(site, largest.bit_length() + 2)
        self._config = config
        self.values: dict[str, str] = {}
        self._is_near = config.distance <= IN_FLIGHT and bool(config.right_depth or config.bottom_depth)
        #: Pipeline stages whose beats' positions the observer keeps: four, or more if a read can follow a write
        #: closely.
        self.stages = range(_ENTRY + IN_FLIGHT + 1 if self._is_near else _REGISTER + 1)
        for name in ("row", "column", "fold"):
            self._wire(f"n_mark_{name}", f"$signed({{1'b0, mark_{name}}})")
        for stage in self.stages:
            self._add_position(stage)
        self._state_order()
        self._state_counters()
        self._state_flags()
        self._state_arrival()
        for name, depth, elaborate in (
            ("right", config.right_depth, self._add_right_addresses),
            ("bottom", config.bottom_depth, self._add_bottom_addresses),
        ):
            if depth:
                elaborate()
                self._state_band(name, depth)
        self._state_registers()

    @property
    def word(self) -> str:
        """Verilog expression of the proof's marked beat, any one; each of its values repeats one bit."""
        source = self._config.input
        values = range(source.lanes * source.pixels)
        return f"{{{', '.join(f'{{{source.bits}{{word[{value}]}}}}' for value in reversed(values))}}}"

    def _add_flag(self, name: str, expression: str) -> None:
        """Add the one-bit wire ``name`` with a Verilog expression to the observer."""
        self.observer.append(f"wire {name} = {expression};")

    def _add_position(self, stage: int) -> None:
        """Add wires on the beat in a pipeline stage: indices, and if it is kept, new, used, marked or last."""
        for name in POSITION:
            self._wire(f"n_{name}_{stage}", f"$signed({{1'b0, {name}_{stage}}})")
        for axis, walk in (("row", self._rows), ("column", self._columns)):
            for table in ("bases", "sizes", "kept", "passes", "unused"):
                self._table(f"{axis}_{table}_{stage}", f"{axis}_span_{stage}", getattr(walk, table))
            index = f"n_{axis}_{stage}"
            self._wire(f"{axis}_number_{stage}", f"{axis}_bases_{stage} + {index}")
            self._add_flag(f"is_kept_{axis}_{stage}", f"{index} < {axis}_kept_{stage}")
            self._add_flag(f"passes_{axis}_{stage}", f"{index} < {axis}_passes_{stage}")
            self._add_flag(f"is_unused_{axis}_{stage}", f"{index} < {axis}_unused_{stage}")
        self._add_flag(f"is_new_{stage}", f"!is_kept_row_{stage} & !is_kept_column_{stage}")
        self._add_flag(f"is_used_{stage}", f"!is_unused_row_{stage} & !is_unused_column_{stage}")
        self._add_flag(
            f"is_mark_{stage}",
            f"(row_number_{stage} == n_mark_row) & (column_number_{stage} == n_mark_column) & "
            f"(fold_{stage} == mark_fold)",
        )
        folds, walks = self._config.input.folds, {"row": self._rows, "column": self._columns}
        last_used = " & ".join(f"({axis}_span_{stage} == {walk.last_used})" for axis, walk in walks.items())
        self._add_flag(f"fold_ends_{stage}", f"fold_{stage} == {folds - 1}")
        self._add_flag(f"column_ends_{stage}", f"fold_ends_{stage} & (n_column_{stage} + 1 == column_sizes_{stage})")
        self._add_flag(f"row_ends_{stage}", f"column_ends_{stage} & (n_row_{stage} + 1 == row_sizes_{stage})")
        self._add_flag(f"is_last_{stage}", f"row_ends_{stage} & {last_used}")
        inner = "row_ends"
        for axis in ("column", "row"):
            last = len(walks[axis].sizes) - 1
            self._add_flag(f"{axis}_span_ends_{stage}", f"{inner}_{stage} & ({axis}_span_{stage} == {last})")
            inner = f"{axis}_span_ends"

    def _state_order(self) -> None:
        """Add invariants of the order of beats: each pipeline stage has the beat that follows the next stage's beat."""
        for stage in self.stages:
            spans = (
                f"({axis}_span_{stage} < {len(walk.sizes)})"
                for axis, walk in (("row", self._rows), ("column", self._columns))
            )
            beats = (f"(n_{axis}_{stage} < {axis}_sizes_{stage})" for axis in ("row", "column"))
            fold = f"(fold_{stage} < {self._config.input.folds})"
            self._state_at(stage, f"the beat in stage {stage} is in a tile", " & ".join([*spans, *beats, fold]))
            if stage:
                before = stage - 1
                same = " & ".join(f"({name}_{before} == next_{name}_{stage})" for name in POSITION)
                self._state_at(stage, f"stage {before} has the beat after that in stage {stage}", same)
                self.facts[f"stage {before} has a beat if stage {stage} has one"] = f"!has_{stage} | has_{before}"
                first = " & ".join(f"({name}_{before} == 0)" for name in POSITION)
                self._state_at(
                    before, f"stage {before} has the first beat if stage {stage} has none", f"has_{stage} | ({first})"
                )
        self.facts["the register has had a beat if it has one"] = f"!is_full | has_{_REGISTER}"

    def _state_at(self, stage: int, fact: str, expression: str) -> None:
        """Add the invariant ``expression`` on the beat in a pipeline stage, which holds if the stage has a beat."""
        self.facts[fact] = expression if stage == 0 else f"!has_{stage} | ({expression})"

    def _is_at(self, stage: int, signal: str, expression: str) -> None:
        """Add the invariant that one of the buffer's flags equals a condition on the beat in a pipeline stage."""
        if self._site.has(signal):
            self.sees[f"its_{signal}"] = signal
            self._state_at(stage, f"{signal} follows from the position", f"its_{signal} == ({expression})")

    def _state_counters(self) -> None:
        """Add invariants of the counters of the addressed beat, and of the addresses in both memories."""
        config = self._config
        for signal, name in {
            "row_span_index": "row_span",
            "column_span_index": "column_span",
            "row_index": "row",
            "column_index": "column",
            "fold_index": "fold",
        }.items():
            self._fact(signal, f"n_{name}_0")
        folds, right, bottom = (
            self._number(value) for value in (config.input.folds, config.right_pitch, config.bottom_pitch)
        )
        if config.right_depth:
            self._fact("right_read_offset", f"n_column_0 * {folds} + n_fold_0")
            self._fact(
                "right_write_offset",
                f"passes_column_0 ? {self._number(0)} : (n_column_0 - column_passes_0) * {folds} + n_fold_0",
            )
            new_row = f"is_kept_row_0 ? {self._number(0)} : n_row_0 - row_kept_0"
            self._fact("right_row_address", f"({new_row}) * {right}")
        if config.bottom_depth:
            bases = self._columns.bases
            self._table("next_base", "column_span_0", [*bases[1:], bases[0]])
            self._fact("bottom_tile_offset", f"column_bases_0 * {folds}")
            self._fact("next_bottom_tile_offset", f"next_base * {folds}")
            self._fact("bottom_column_offset", f"column_number_0 * {folds} + n_fold_0")
            self._fact("bottom_read_row_address", f"(is_kept_row_0 ? n_row_0 : row_kept_0) * {bottom}")
            self._fact(
                "bottom_write_row_address",
                f"(passes_row_0 ? {self._number(0)} : n_row_0 - row_passes_0) * {bottom}",
            )

    def _state_flags(self) -> None:
        """Add invariants of the pipeline's flags: whether a stage has a beat, and whether it is new, kept or used."""
        for stage in (_READ, _ENTRY):
            self.facts[f"stage {stage} has a beat where the walk has one"] = f"its_has_beat_{stage} == has_{stage}"
            self.sees[f"its_has_beat_{stage}"] = f"has_beat_{stage}"
            self._is_at(stage, f"is_input_{stage}", f"is_new_{stage}")
            self._is_at(stage, f"is_kept_row_{stage}", f"is_kept_row_{stage}")
        for stage in (_READ, _ENTRY, _REGISTER):
            self._is_at(stage, f"is_output_{stage}", f"is_used_{stage}")
        self.facts["the register is full where the walk has a beat there"] = "its_is_register_full == is_full"
        self.sees["its_is_register_full"] = "is_register_full"

    def _state_arrival(self) -> None:
        """Add invariants of the marked beat's arrival, as a function of the position in the entry stage."""
        stage = _ENTRY
        self._add_flag(
            "is_beyond",
            f"(row_number_{stage} > n_mark_row) | ((row_number_{stage} == n_mark_row) & "
            f"((column_number_{stage} > n_mark_column) | ((column_number_{stage} == n_mark_column) & "
            f"(fold_{stage} > mark_fold))))",
        )
        for axis in ("row", "column"):
            mark, base = f"n_mark_{axis}", f"{axis}_bases_{stage}"
            self._add_flag(f"is_mark_{axis}_kept", f"{mark} < {base} + {axis}_kept_{stage}")
            self._add_flag(f"is_mark_{axis}_below_end", f"{mark} < {base} + {axis}_sizes_{stage}")
            self._add_flag(f"is_mark_{axis}_in_tile", f"({mark} >= {base}) & is_mark_{axis}_below_end")
            self._add_flag(f"is_mark_{axis}_passed", f"{mark} < {base} + {axis}_passes_{stage}")
        in_row = "is_mark_column_kept | (is_mark_column_below_end & is_beyond)"
        came = f"is_mark_row_kept | (is_mark_row_below_end & ({in_row}))"
        self._state_at(stage, "the marked beat came where its position is passed", f"has_come_{stage} == ({came})")
        self.facts["no beat came before the walk begins"] = f"has_{stage} | !has_come_{stage}"
        self._state_at(_REGISTER, "the register's beat came", f"!is_mark_{_REGISTER} | has_come_{_REGISTER}")
        self._state_at(
            _REGISTER,
            "the entry's frame is marked if the register's is, and goes on",
            f"is_open_{stage} == (is_open_{_REGISTER} & !row_span_ends_{_REGISTER})",
        )
        for after in self.stages[_REGISTER + 1 :]:
            before = after - 1
            begun = f"(is_mark_{before} & is_new_{before})"
            self._state_at(
                after,
                f"the frame in stage {after} is marked if that in stage {before} is",
                f"!is_open_{before} | {begun} | (is_open_{after} & !row_span_ends_{after})",
            )
        self.facts["only marked words that came are marked"] = (
            f"!is_open_{stage} | (was_marked & has_{stage} & has_come_{stage})"
        )
        self.facts["the register's marked word came"] = f"!is_open_{_REGISTER} | (has_{_REGISTER} & was_marked)"

    def _add_right_addresses(self) -> None:
        """Add wires with the right band's read and write addresses, and the marked beat's address in it."""
        folds, pitch = self._number(self._config.input.folds), self._number(self._config.right_pitch)
        for stage in self.stages:
            row = f"(n_row_{stage} - row_kept_{stage}) * {pitch}"
            self._wire(f"right_read_{stage}", f"{row} + n_column_{stage} * {folds} + n_fold_{stage}")
            self._wire(
                f"right_write_{stage}",
                f"{row} + (n_column_{stage} - column_passes_{stage}) * {folds} + n_fold_{stage}",
            )
            self._add_flag(f"right_reads_{stage}", f"!is_kept_row_{stage} & is_kept_column_{stage}")
            self._add_flag(f"right_stores_{stage}", f"!is_kept_row_{stage} & !passes_column_{stage}")
        at = _ENTRY
        self._add_flag("right_is_before", f"!is_beyond & (n_mark_column >= column_bases_{at}) & is_mark_column_kept")
        self._add_flag("right_is_behind", "is_beyond & is_mark_column_in_tile & !is_mark_column_passed")
        self._add_flag(
            "right_is_kept",
            "is_mark_row_in_tile & !is_mark_row_kept & (right_is_before | right_is_behind)",
        )
        self._wire(
            "right_slot",
            f"(n_mark_row - row_bases_{at} - row_kept_{at}) * {pitch} + n_mark_fold + (n_mark_column - "
            f"column_bases_{at} - (is_beyond ? column_passes_{at} : {self._number(0)})) * {folds}",
        )

    def _add_bottom_addresses(self) -> None:
        """Add wires with the bottom band's read and write addresses, and the marked beat's address in it."""
        folds, pitch = self._number(self._config.input.folds), self._number(self._config.bottom_pitch)
        for stage in self.stages:
            column = f"column_number_{stage} * {folds} + n_fold_{stage}"
            self._wire(f"bottom_read_{stage}", f"n_row_{stage} * {pitch} + {column}")
            self._wire(f"bottom_write_{stage}", f"(n_row_{stage} - row_passes_{stage}) * {pitch} + {column}")
            self._add_flag(f"bottom_reads_{stage}", f"is_kept_row_{stage}")
            self._add_flag(f"bottom_stores_{stage}", f"!passes_row_{stage} & passes_column_{stage}")
        at = _ENTRY
        self._add_flag(
            "is_last_tile_passed",
            f"(n_mark_column < column_bases_{at}) | (is_mark_column_passed & is_beyond)",
        )
        self._add_flag("bottom_is_before", "!is_last_tile_passed & is_mark_row_in_tile & is_mark_row_kept")
        self._add_flag("bottom_is_behind", "is_last_tile_passed & is_mark_row_in_tile & !is_mark_row_passed")
        self._add_flag("bottom_is_kept", "bottom_is_before | bottom_is_behind")
        self._wire(
            "bottom_slot",
            f"(n_mark_row - row_bases_{at} - (is_last_tile_passed ? row_passes_{at} : {self._number(0)})) * {pitch} + "
            f"n_mark_column * {folds} + n_mark_fold",
        )

    def _state_band(self, name: str, depth: int) -> None:
        """Add invariants of a band (memory of kept beats): where it stores the marked beat, and who reads it."""
        width = max(1, (depth - 1).bit_length())

        def address(which: str, stage: int) -> str:
            return f"{name}_{which}_{stage}[{width - 1}:0]"

        for stage in (_READ, _ENTRY, _REGISTER):
            enable, at = f"{name}_write_enable_{stage}", f"{name}_write_address_{stage}"
            self._fact(enable, f"$signed({{1'b0, has_{stage} & {name}_stores_{stage}}})")
            if self._site.has(at):
                self.sees[f"its_{at}"] = at
                same = f"!{name}_stores_{stage} | (its_{at} == {address('write', stage)})"
                self._state_at(stage, f"{at} follows from the position", same)
        hits = self._state_forwarding(name, address)
        written = self._seen_name(f"{name}_write_enable_{_REGISTER}", f"(has_{_REGISTER} & {name}_stores_{_REGISTER})")
        at = self._seen_name(f"{name}_write_address_{_REGISTER}", address("write", _REGISTER))
        self.facts[f"no beat in the {name} band is overwritten that is still needed"] = (
            f"!({name}_is_kept & has_{_ENTRY} & {written} & ({at} == {name}_slot[{width - 1}:0])) | is_mark_{_REGISTER}"
        )
        stored = f"(has_{_ENTRY} & {name}_is_kept & ({name}_slot == {name}_read_0))"
        self.facts[f"a kept beat is read from the {name} band where it is stored"] = (
            f"!(is_mark_0 & {name}_reads_0) | {' | '.join([*hits(0), stored])}"
        )
        self._state_words(name, width, hits)

    def _seen_name(self, signal: str, otherwise: str) -> str:
        """Return the proof's name for the buffer's ``signal``, or ``otherwise`` if the Verilog lacks the signal."""
        if not self._site.has(signal):
            return otherwise
        self.sees[f"its_{signal}"] = signal
        return f"its_{signal}"

    def _state_forwarding(self, name: str, address: Callable[[str, int], str]) -> Callable[[int], list[str]]:
        """Add invariants of the flags that forward beats in flight; return a function from stage to conditions."""

        def hits(stage: int) -> list[str]:
            """Return a list of conditions that a beat 1, 2 .. stages further on writes the word ``stage`` reads."""
            writers = range(stage + 1, min(stage + IN_FLIGHT, self.stages[-1]) + 1) if self._is_near else ()
            return [
                f"(has_{writer} & {name}_stores_{writer} & ({address('write', writer)} == {address('read', stage)}))"
                for writer in writers
            ]

        for distance in range(1, IN_FLIGHT + 1) if self._is_near else ():
            for stage in (_READ, _ENTRY):
                signal = f"{name}_is_from_beat_{distance}_{stage}"
                if self._site.has(signal):
                    self.sees[f"its_{signal}"] = signal
                    same = f"!{name}_reads_{stage} | (its_{signal} == {hits(stage)[distance - 1]})"
                    self._state_at(stage, f"{signal} follows from the positions", same)
        if self._is_near:
            nearest = [
                f"({' & '.join([*(f'!{hit}' for hit in hits(_ENTRY)[:index]), hits(_ENTRY)[index]])} & "
                f"!is_mark_{_ENTRY + 1 + index})"
                for index in range(IN_FLIGHT)
            ]
            self._state_at(
                _ENTRY,
                f"a beat in flight that is read in the place of a word of the {name} band is this word",
                f"!(is_mark_{_ENTRY} & {name}_reads_{_ENTRY}) | !({' | '.join(nearest)})",
            )
        return hits

    def _state_words(self, name: str, width: int, hits: Callable[[int], list[str]]) -> None:
        """Add invariants of the values of a band's words, in the memory and in its read registers."""
        bits, memory = self._config.input.data_bits, self._site.instance(name)
        depth = self._config.right_depth if name == "right" else self._config.bottom_depth
        stored = self._probe(memory, depth, bits, f"{name}_slot")
        pending = (
            f"(is_full & {name}_stores_{_REGISTER} & ({name}_write_{_REGISTER}[{width - 1}:0] == "
            f"{name}_slot[{width - 1}:0]))"
        )
        self.values[f"the {name} band has the marked beat while it is kept"] = (
            f"!(is_open_{_ENTRY} & {name}_is_kept) | (({pending} ? its_register_beat : {stored}) == {self.word})"
        )
        data = f"{name}_data" if self._site.has(f"{name}_data") else f"{memory}__r0_data"  # a memory in a module
        for stage, signal in ((_READ, data), (_ENTRY, f"{name}_word")):
            self.sees[f"its_{name}_in_stage_{stage}"] = signal
            is_open = f"is_open_{_ENTRY}" + "".join(f" & !row_span_ends_{at}" for at in range(_ENTRY, stage, -1))
            near = " | ".join([f"!(has_{stage} & {is_open} & is_mark_{stage} & {name}_reads_{stage})", *hits(stage)])
            self.values[f"{signal} is the marked beat where it is read"] = (
                f"{near} | (its_{name}_in_stage_{stage} == {self.word})"
            )

    def _state_registers(self) -> None:
        """Add invariants of ``last`` in each stage, and of the values in the output register and after it."""
        for stage in (_READ, _ENTRY, _REGISTER):
            if self._site.has(f"is_last_beat_{stage}"):
                self.sees[f"its_is_last_beat_{stage}"] = f"is_last_beat_{stage}"
                self.values[f"the last beat of a frame is marked in stage {stage}"] = (
                    f"!has_{stage} | (its_is_last_beat_{stage} == is_last_{stage})"
                )
        for stage in self.stages[_REGISTER:]:
            earlier = stage - _REGISTER
            signal = f"earlier_beat_{earlier}" if earlier else "register_beat"
            if self._site.has(signal):
                self.sees[f"its_{signal}"] = signal
                self.values[f"{signal} is the marked beat in its place"] = (
                    f"!(has_{stage} & is_open_{stage} & is_mark_{stage}) | (its_{signal} == {self.word})"
                )


PROOFS = {PyramidReuseBufferConfig: Proofs((of_streams, obligations))}
