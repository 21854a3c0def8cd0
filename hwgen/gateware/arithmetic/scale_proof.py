"""Proof obligations of scaling and saturation by run-time constants, ``scale`` and ``bound``.

The definition is ``clip(rint(float32(float32(sum + bias) * significand / 2**shift)) + zero_point, low, high)``. Three
obligations prove the scaling: the sum's mantissa, the exact product of mantissa and significand, and the rounding of a
product. Each begins with registers that have any value, so that together they hold for every sum and every scale.
"""

from __future__ import annotations

from amaranth.lib import data

from hwgen.gateware.arithmetic.bound import BoundConfig
from hwgen.gateware.arithmetic.scale import BIAS_BITS, SHIFT_BITS, ScaleConfig
from hwgen.gateware.requantise_proof import float32
from hwgen.gateware.rounding import SIGNIFICAND_BITS
from hwgen.obligations.obligation import Carrier, Obligation, Proofs, Site
from hwgen.obligations.observers import delayed, is_old, pipeline

_TOTAL_BITS = BIAS_BITS + 1
_PRODUCT_BITS = 2 * SIGNIFICAND_BITS
_LOW_BITS = 7
"""Number of low bits of the significand that are multiplied in LUTs, outside of the DSP slice."""
_LARGEST = 255
"""Maximum magnitude of a scaled result that must be exact; larger ones only have to stay larger."""
#: Number of cycles of each stage: from a sum to its mantissa, to the product, and to the rounded result.
_MANTISSA, _PRODUCT, _ROUNDING = 3, 4, 2
_METHODS = ("induction", "exhaustive", "pdr")
#: Verilog registers that together hold a product, highest bits first; they get their parts in different cycles.
_PRODUCT_PARTS = ("product_high", "product_low_last_1", "product_low_2_2", "product_low_1_3")


#: Verilog expressions of the sum of Booth rows after each stage: its register, and lower bits of previous stages.
_ROWS = ("row_sum_1", "{row_sum_2, product_low_1_1}", "{row_sum_3, product_low_2_1, product_low_1_2}")


def _port(site: Site, name: str, bits: int) -> str:
    """Return a port that carries a signed value of at most ``bits`` bits as a signed Verilog expression.

    If the value's upper bits all equal its sign, the emitted port has only the lower ones.
    """
    return f"$signed({site.low_bits(name, bits)})"


def _scale(site: Site) -> tuple[str, str]:
    """Return a pair of Verilog expressions: the scale's significand and right shift, from two ports or one."""
    if site.has("significand", "shift"):
        return "significand", "shift"
    layout = data.StructLayout({"significand": SIGNIFICAND_BITS, "shift": SHIFT_BITS})
    word = Carrier("significand_shift", 0, layout.size)
    return word.bits(layout["significand"]), word.bits(layout["shift"])


def of_scale(config: ScaleConfig, site: Site) -> list[Obligation]:
    """Return a list of each `Obligation` of a `ScaleUnit`: mantissa, product and rounding."""
    return [_mantissa(config, site), *_products(site), _rounding(site)]


def _mantissa(config: ScaleConfig, site: Site) -> Obligation:
    """Return the proof `Obligation` of the biased sum's sign, left shift, and 24-bit mantissa, ties to even."""
    cycles = _MANTISSA
    wide = _TOTAL_BITS + BIAS_BITS  # the largest left shift is 31
    return pipeline(
        site,
        "scale",
        f"The sum and its bias are rounded to {SIGNIFICAND_BITS} significant bits, ties to even, and normalised.",
        cycles + 1,
        {
            "the mantissa equals the rounded sum's": (
                f"(normalised << {BIAS_BITS - SIGNIFICAND_BITS}) == (size << left_shift)"
            ),
            "the mantissa is normalised": (
                f"(size == 0) | (rounded_mantissa == (1 << {SIGNIFICAND_BITS})) | "
                f"(rounded_mantissa[{SIGNIFICAND_BITS}:{SIGNIFICAND_BITS - 1}] == 1)"
            ),
            "the sign equals the sum's": "mantissa_sign_1 == (value < 0)",
        },
        methods=_METHODS,
        observer=(
            *delayed("sum", config.sum_bits, "sum", 1),
            *delayed("bias", BIAS_BITS, "bias", 1),
            *delayed("total", _TOTAL_BITS, "biased_sum", cycles),
            f"wire signed [{_TOTAL_BITS}:0] value = $signed(total_was);",
            *float32("rounded", "value", _TOTAL_BITS + 1),
            f"wire [{wide - 1}:0] size = rounded < 0 ? -rounded : rounded;",
            f"wire [{wide - 1}:0] normalised = rounded_mantissa;",
        ),
        asserts={
            "sum and bias are added": "(age == 0) | ($signed(biased_sum) == $signed(sum_was) + $signed(bias_was))"
        },
        cover=f"{is_old(cycles + 1)} & (size != 0)",
    )


def _whole_product() -> str:
    return f"{{{', '.join(_PRODUCT_PARTS)}}}"


def _factors(site: Site, cycles: int) -> list[str]:
    """Return a list of Verilog lines that record mantissa and significand over the last ``cycles`` cycles."""
    significand, _ = _scale(site)
    top = SIGNIFICAND_BITS - 1
    return [
        # Rounding can carry to 2**24, which counts as 2**23 with another exponent.
        f"wire [{top}:0] kept = {{|rounded_mantissa[{top + 1}:{top}], rounded_mantissa[{top - 1}:0]}};",
        *delayed("kept", SIGNIFICAND_BITS, "kept", cycles),
        *delayed("significand", SIGNIFICAND_BITS, significand, cycles),
    ]


def _delayed_word(name: str, cycles: int) -> str:
    """Return the Verilog expression of a recorded significand or mantissa from ``cycles`` cycles ago."""
    return f"{name}_past[{cycles * SIGNIFICAND_BITS - 1}:{(cycles - 1) * SIGNIFICAND_BITS}]"


def _row(digit: int, digits: str, factor: str) -> str:
    """Return the Verilog expression of a Booth row: ``factor`` times a digit of -2 to 2, minus 1 if negative.

    A digit is ``b0 + b1 - 2 * b2``, from three bits of the significand with a 0 below its lowest bit (Booth; MacSorley
    1961). A negative row is its magnitude with all bits inverted.
    """
    bits = [f"{digits}[{bit}]" if 0 <= bit < _LOW_BITS else "1'b0" for bit in range(2 * digit - 1, 2 * digit + 2)]
    value = f"{{{', '.join(reversed(bits))}}}"
    one = " | ".join(f"({value} == {pattern})" for pattern in (1, 2, 5, 6))
    two = " | ".join(f"({value} == {pattern})" for pattern in (3, 4))
    size = f"(({one}) ? {factor} : ({two}) ? ({factor} << 1) : 0)"
    return f"(({bits[-1]} ? ~{size} : {size}) << {2 * digit})"


def _row_terms(stage: int, digits: str, factor: str) -> str:
    """Return the Verilog expression of a stage's addends: its Booth row, plus 1 if the previous row was negative."""
    first = [_row(0, digits, factor)] if stage == 1 else []
    lacking = f"({digits}[{2 * stage - 1}] ? {1 << 2 * (stage - 1)} : 0)"
    return f"({' + '.join([*first, lacking, _row(stage, digits, factor)])})"


def _partial_product_rows(site: Site) -> Obligation:
    """Return the proof `Obligation` that the Booth rows of the significand's low bits are added, stage by stage."""
    lines = _factors(site, len(_ROWS))
    asserts, width = {}, SIGNIFICAND_BITS + 9
    for stage, rows in enumerate(_ROWS, start=1):
        lines += [
            f"wire signed [{width - 1}:0] rows_{stage} = $signed({rows});",
            f"wire [{width - 1}:0] factor_{stage} = {_delayed_word('kept', stage)};",
            f"wire [{SIGNIFICAND_BITS - 1}:0] digits_{stage} = {_delayed_word('significand', stage)};",
            *delayed(f"rows_{stage}", width, f"rows_{stage}", 1),
            f"wire [{width - 1}:0] added_{stage} = {_row_terms(stage, f'digits_{stage}', f'factor_{stage}')};",
        ]
        before = f"rows_{stage - 1}_was + " if stage > 1 else ""
        asserts[f"stage {stage} adds its rows"] = f"(age < {stage}) | (rows_{stage} == {before}added_{stage})"
    return pipeline(
        site,
        "scale",
        f"The rows of the {_LOW_BITS} lower bits of the significand are added.",
        len(_ROWS),
        {},
        methods=_METHODS,
        observer=lines,
        asserts=asserts,
        cover=f"{is_old(len(_ROWS))} & (rows_{len(_ROWS)} != 0)",
    )


def _products(site: Site) -> list[Obligation]:
    """Return a list of obligations of the exact product of mantissa and significand, from LUTs and a DSP slice."""
    cycles, high_bits = _PRODUCT - 1, _PRODUCT_BITS - _LOW_BITS
    rows = ("row_sum_3", "product_low_2_1", "product_low_1_2")
    sum_bits, word = SIGNIFICAND_BITS + 9, f"[{_PRODUCT_BITS - 1}:0]"
    terms = [_row_terms(stage, "low", "factor") for stage in range(1, len(_ROWS) + 1)]
    return [
        _partial_product_rows(site),
        pipeline(
            site,
            "scale",
            "The product of the significand's upper part is exact, and with the lower part's rows it is the whole.",
            cycles,
            {
                "the slice's product is exact": f"product_1 == high_product[{high_bits - 1}:0]",
                "the rows are the product of the lower part": "all_rows == low_product",
                "both are the whole product": f"(high_product << {_LOW_BITS}) + low_product == whole_product",
            },
            methods=("algebra", "exhaustive"),
            observer=(
                *_factors(site, cycles),
                f"wire {word} factor = kept_was; wire {word} low = significand_was[{_LOW_BITS - 1}:0];",
                f"wire {word} high = significand_was[{SIGNIFICAND_BITS - 1}:{_LOW_BITS}];",
                f"wire {word} whole_product = factor * significand_was;",
                f"wire {word} high_product = factor * high; wire {word} low_product = factor * low;",
                f"wire {word} all_rows = {' + '.join(terms)};",
            ),
            cover="",
        ),
        pipeline(
            site,
            "scale",
            "The products of both parts of the significand are added.",
            1,
            {"parts are added": f"product == {{slice_product_was, {_LOW_BITS}'d0}} + rows_was"},
            methods=_METHODS,
            observer=(
                f"wire [{sum_bits - 1}:0] rows = {{{', '.join(rows)}}};",
                *delayed("rows", sum_bits, "rows", 1),
                *delayed("slice_product", high_bits, "product_1", 1),
                f"wire {word} product = {_whole_product()};",
            ),
            assumes={"no reset": "!rst", "a product is not negative": f"!rows[{sum_bits - 1}]"},
            rests_on="scale",
            cover=f"{is_old(1)} & (product != 0)",
        ),
    ]


def _rounding(site: Site) -> Obligation:
    """Return the proof `Obligation` that a product is rounded to float32 and then to an integer, for each shift."""
    _, shift = _scale(site)
    cycles = _PRODUCT + _ROUNDING
    width, spare = _PRODUCT_BITS + 2, BIAS_BITS - SIGNIFICAND_BITS
    # A product of 46 bits or more is at least 2**8, and saturates, if fewer of its bits are after the binary point.
    first, last = _PRODUCT_BITS - 1 - _LARGEST.bit_length() - 1, _PRODUCT_BITS + 1
    result = f"({_port(site, 'whole', 11)} + $signed({{1'b0, carry}}))"
    asserts = {
        f"a result is rounded with {places} fraction bits": f"!is_due | (places != {places}) | is_right_{places}"
        for places in range(first, last)
    }
    lines = [
        *delayed("product", _PRODUCT_BITS, _whole_product(), _ROUNDING),
        *delayed("left_shift", 5, "left_shift", cycles),
        *delayed("carried", 1, f"rounded_mantissa[{SIGNIFICAND_BITS}]", cycles),
        *delayed("shift", SHIFT_BITS, shift, cycles),
        *delayed("sign", 1, "mantissa_sign_1", cycles),
        f"wire signed [{width - 1}:0] size = product_was;",
        *float32("rounded", "size", width),
        f"wire signed [11:0] result = {result};",
        "wire signed [11:0] own = sign_was ? -result : result;",
        f"wire signed [10:0] places = $signed({{3'd0, shift_was}}) + $signed({{6'd0, left_shift_was}}) - "
        f"$signed({{10'd0, carried_was}}) - {spare};",
        f"wire is_normal = (product_was == 0) | (product_was[{_PRODUCT_BITS - 1}:{_PRODUCT_BITS - 2}] != 0);",
        f"wire is_due = {is_old(cycles)} & is_normal;",
    ]
    for places in range(first, last):
        half = f"{width}'d1 << {places - 1}"
        rest = f"(rounded & (({width}'d1 << {places}) - 1))"
        lines += [
            f"wire signed [{width - 1}:0] floor_{places} = rounded >>> {places};",
            f"wire up_{places} = ({rest} > ({half})) | (({rest} == ({half})) & floor_{places}[0]);",
            f"wire signed [{width - 1}:0] total_{places} = floor_{places} + $signed({{1'b0, up_{places}}});",
            f"wire is_right_{places} = total_{places} > {_LARGEST} ? own > {_LARGEST} : own == total_{places};",
        ]
    return pipeline(
        site,
        "scale",
        "A product is rounded to float32 and to the nearest integer, ties to even, wherever its point is.",
        cycles,
        {},
        methods=_METHODS,
        observer=lines,
        asserts={
            **asserts,
            "a large result saturates": (f"!is_due | (product_was == 0) | (places >= {first}) | (own > {_LARGEST})"),
            "a small result is 0": f"!is_due | ((product_was != 0) & (places < {last})) | (own == 0)",
        },
        cover="is_due & (own == 5)",
    )


def of_bound(config: BoundConfig, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` of a `Bound`: the output is the result plus the zero point, saturated."""
    whole = _port(site, "whole", config.bits)
    width = config.bits + 2
    bounds = config.latency - config.bounds_cycle
    return [
        pipeline(
            site,
            "bound",
            "The output is the result and the zero point, not below the lower bound and not above the upper one.",
            config.latency,
            {"the output is the definition's": "$signed(o) == expected"},
            methods=_METHODS,
            observer=(
                f"wire signed [{width - 1}:0] total = {whole} + $signed({{1'b0, carry}}) + $signed(zero_point);",
                *delayed("total", width, "total", config.latency),
                *delayed("low", 8, "low", bounds),
                *delayed("high", 8, "high", bounds),
                f"wire signed [{width - 1}:0] value = total_was;",
                f"wire signed [{width - 1}:0] least = $signed(low_was);",
                f"wire signed [{width - 1}:0] most = $signed(high_was);",
                f"wire signed [{width - 1}:0] below = value > most ? most : value;",
                f"wire signed [{width - 1}:0] expected = below < least ? least : below;",
            ),
            assumes={"no reset": "!rst", "the lower bound is not above the upper one": "$signed(low) <= $signed(high)"},
            cover=f"{is_old(config.latency)} & (value > most) & (most > least)",
        )
    ]


PROOFS = {
    ScaleConfig: Proofs((of_scale,)),
    BoundConfig: Proofs((of_bound,)),
}
