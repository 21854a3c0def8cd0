"""Proofs of pools and elementwise arithmetic: small shapes are proved, and faults in their text are refuted."""

from __future__ import annotations

import shutil

import pytest
from proofs import marked, results, results_with_fault, unguarded
from small_arithmetic import (
    ARITHMETIC,
    AVERAGE,
    CHANNEL_TABLE,
    GLOBAL_SUM,
    MAX_POOL,
    MAXIMUM,
    PRODUCT,
    RECODE,
    TABLE_SUM,
    VARIANTS,
)

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

_SIGNED_MAX_POOL = VARIANTS["max pool of one tap a step"]
#: Faults: the component, the kinds that refute it, and the text that is replaced.
FAULTS = {
    "the smaller tap is chosen": (MAX_POOL, {"pool"}, "(i__payload[3:0] > i__payload", "(i__payload[3:0] < i__payload"),
    "the maximum is not begun anew": (MAX_POOL, {"pool"}, "!is_first_step_2 & ", ""),
    "the maximum forgets earlier steps": (
        MAX_POOL,
        {"pool"},
        "(!is_first_step_2 & (lane_0_maximum",
        "(is_first_step_2 & (lane_0_maximum",
    ),
    "signed taps are compared as unsigned": (
        _SIGNED_MAX_POOL,
        {"pool"},
        "$signed(lane_0_maximum) > $signed(i__payload[3:0])",
        "lane_0_maximum > i__payload[3:0]",
    ),
    "the sum is not begun anew": (AVERAGE, {"pool"}, "is_first_step_2 ? 9'd0 : lane_0", "1'b0 ? 9'd0 : lane_0"),
    "the first step comes a cycle early": (
        AVERAGE,
        {"pool"},
        "is_first_step_2 ? 9'd0 : lane_0",
        "is_first_step_1 ? 9'd0 : lane_0",
    ),
    "a carry is lost": (
        AVERAGE,
        {"pool"},
        "lane_0_level_0_0 <= {1'b0, {1'b0, ",
        "lane_0_level_0_0 <= 5'd15 & {1'b0, {1'b0, ",
    ),
    "a tap is added twice": (
        AVERAGE,
        {"pool"},
        "lane_0_level_0_1 <= i__payload[19:16]",
        "lane_0_level_0_1 <= i__payload[11:8]",
    ),
    "sums are not begun anew": (GLOBAL_SUM, {"pool"}, "step_first_1 ? 9'd0 : sums_data[8:0]", "sums_data[8:0]"),
    "a sum is stored in another fold": (
        GLOBAL_SUM,
        {"pool"},
        "sums[step_fold_1] <= write__data",
        "sums[i__payload[17:16]] <= write__data",
    ),
    "a beat that does not come is added": (GLOBAL_SUM, {"pool"}, "if (valid_1) sums", "sums"),
    "one pixel is left out": (GLOBAL_SUM, {"pool"}, "+ {2'd0, i__payload[7:4]}", ""),
    "one bit of a share": (
        TABLE_SUM,
        {"elementwise"},
        "lane_0_pixel_0_share_0[7] = 7'h45",
        "lane_0_pixel_0_share_0[7] = 7'h4d",
    ),
    "a tie is rounded up": (
        TABLE_SUM,
        {"elementwise"},
        "lane_0_pixel_0_rounding[2] = 3'h5",
        "lane_0_pixel_0_rounding[2] = 3'h4",
    ),
    "the threshold is not reached by itself": (
        TABLE_SUM,
        {"elementwise"},
        "sum_delayed[2:0] >= lane_1_pixel_1",
        "sum_delayed[2:0] > lane_1_pixel_1",
    ),
    "the lower bound is one too low": (TABLE_SUM, {"elementwise"}, "< -6'sd7) ? 4'd8", "< -6'sd8) ? 4'd8"),
    "the sum of another pixel": (
        TABLE_SUM,
        {"elementwise"},
        "sum_delayed <= lane_0_pixel_1_sum",
        "sum_delayed <= lane_0_pixel_0_sum",
    ),
    "a zero point is one too large": (
        PRODUCT,
        {"elementwise"},
        "{1'b0, i__payload[7:4]} - 5'd3",
        "{1'b0, i__payload[7:4]} - 5'd4",
    ),
    "an operand is unsigned": (
        PRODUCT,
        {"elementwise"},
        "$signed(i__payload[19:16]) - -5'sd2",
        "{1'b0, i__payload[19:16]} - -5'sd2",
    ),
    "operands are compared as unsigned": (
        MAXIMUM,
        {"elementwise"},
        "($signed(lane_0_pixel_0_extreme_0_0) > $signed(lane_0_pixel_0_extreme_0_1))",
        "(lane_0_pixel_0_extreme_0_0 > lane_0_pixel_0_extreme_0_1)",
    ),
    "the smaller operand is chosen": (
        MAXIMUM,
        {"elementwise"},
        "$signed(lane_0_pixel_0_input_0_table_data) > $signed(",
        "$signed(lane_0_pixel_0_input_0_table_data) < $signed(",
    ),
    "one bit of a converted operand": (
        MAXIMUM,
        {"elementwise"},
        "lane_1_pixel_0_input_2_table[5] = 4'h7",
        "lane_1_pixel_0_input_2_table[5] = 4'h6",
    ),
    "one bit of a table": (
        RECODE,
        {"elementwise"},
        "lane_0_pixel_0_input_2_table[6] = 4'h0",
        "lane_0_pixel_0_input_2_table[6] = 4'h8",
    ),
    "the table of another input": (
        RECODE,
        {"elementwise"},
        "lane_0_pixel_0_output <= lane_0_pixel_0_input_2",
        "lane_0_pixel_0_output <= lane_0_pixel_0_input_0",
    ),
    "the input comes a cycle early": (RECODE, {"elementwise"}, "case (input_index_1)", "case (i__payload[17:16])"),
    "one bit of a channel's table": (
        CHANNEL_TABLE,
        {"elementwise"},
        "lane_0_pixel_0_table[31] = 4'h7",
        "lane_0_pixel_0_table[31] = 4'h3",
    ),
    "the table of another channel": (
        CHANNEL_TABLE,
        {"elementwise"},
        "lane_0_pixel_0_table[{fold_index, ",
        "lane_0_pixel_0_table[{!fold_index, ",
    ),
    "a lane without a channel is not 0": (
        CHANNEL_TABLE,
        {"elementwise"},
        "lane_1_pixel_0_table[20] = 4'h0",
        "lane_1_pixel_0_table[20] = 4'h1",
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "config",
    [
        *(pytest.param(config, id=type(config).__name__) for config in ARITHMETIC),
        *(pytest.param(config, id=name.replace(" ", "-"), marks=pytest.mark.long) for name, config in VARIANTS.items()),
    ],
)
def test_arithmetic_is_proved(config):
    assert set(results(config).values()) == {"proved"}


def test_every_component_has_two_faults():
    assert {type(config) for config, *_ in FAULTS.values()} == {type(config) for config in ARITHMETIC}
    assert unguarded(FAULTS) == set()


@pytest.mark.parametrize("name", marked(FAULTS, "the maximum is not begun anew", "a tie is rounded up"))
def test_faults_are_refuted(name):
    config, kinds, old, new = FAULTS[name]
    assert "refuted" in results_with_fault(config, kinds, old, new).values()
