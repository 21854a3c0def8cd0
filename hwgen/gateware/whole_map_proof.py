"""Proof that the component that reads a map for a global pool passes each beat on once, and marks its place."""

from __future__ import annotations

from hwgen.gateware.whole_map import WholeMapConfig
from hwgen.obligations.obligation import Obligation, Proofs, Site, part
from hwgen.obligations.observers import counter


def obligations(config: WholeMapConfig, site: Site) -> list[Obligation]:
    """Return a list with the obligation that a global pool's reader passes each beat on once, with the right marks."""
    source, layout = config.input, dict(config.step_layout)
    observer = [
        "wire taken = i__valid & i__ready;",
        *counter("fold_count", source.folds, "taken"),
        *counter("column_count", source.row_steps, "fold_count_ends"),
        *counter("row_count", source.height, "column_count_ends"),
        "wire is_first = (row_count == 0) & (column_count == 0);",
        f"wire column_ends = column_count == {source.row_steps - 1};",
        f"wire is_last = column_ends & (row_count == {source.height - 1});",
        "reg was_taken = 0;",
        "always @(posedge clk) was_taken <= taken & !rst;",
        f"reg [{site.module.ports['o__payload'].width - 1}:0] was;",
        f"always @(posedge clk) was <= {_expected_step(config)};",
    ]
    bits = layout["last"].offset + 1
    return [
        site.obligation(
            "tokens",
            "Each beat of a map is passed on once, in the next cycle, with its channels' index; first and last pixels "
            "are marked, and pixels past the end of a row are 0.",
            methods=("pdr",),
            observer=tuple(observer),
            asserts={
                "a beat is passed on when it was taken": "o__valid == was_taken",
                "the step has the beat's values and marks": f"!o__valid | ({part('o__payload', 0, bits)} == was)",
                "only a beat of the last pixels needs room": "i__ready == (room | !is_last)",
                "a sum is started with each beat of the last pixels": "start == (taken & is_last)",
            },
            cover="o__valid & taken & is_last",
            run={"i__valid": "1'b1", "room": "1'b1"},
        )
    ]


def _expected_step(config: WholeMapConfig) -> str:
    """Return the output that a global pool's reader must make of the beat on port ``i``, as a Verilog concatenation."""
    source = config.input
    values = []
    for lane in range(source.lanes):
        for pixel in range(source.pixels):
            value = part("i__payload", (lane * source.pixels + pixel) * source.bits, source.bits)
            is_outside = config.partial_pixels and pixel >= config.partial_pixels
            values.append(f"(column_ends ? {source.bits}'d0 : {value})" if is_outside else value)
    fold = [part("fold_count", 0, max(source.folds - 1, 1).bit_length())] if source.folds > 1 else []
    return f"{{{', '.join(['is_last', 'is_first', *fold, *reversed(values)])}}}"


PROOFS = {WholeMapConfig: Proofs((obligations,))}
