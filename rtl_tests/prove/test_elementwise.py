"""Proofs of pools and elementwise arithmetic: small shapes are proved, and faults in their text are refuted."""

from __future__ import annotations

import shutil

import pytest
from proofs import MODULE, emitted, marked, proved, results, results_with_fault, unguarded, with_fault
from small_circuits import (
    ARITHMETIC,
    AVERAGE,
    BIASES,
    CHANNEL_TABLE,
    FLOAT_AVERAGE,
    FLOAT_SUM,
    GLOBAL_SUM,
    LAST_STAGES,
    MAX_POOL,
    MAXIMUM,
    PRODUCT,
    READER,
    RECODE,
    TABLE_SUM,
    THRESHOLDS,
    VARIANTS,
)

from hwgen.gateware import threshold_proof
from hwgen.gateware.threshold import ThresholdConfig
from hwgen.obligations.modules import modules_of
from hwgen.obligations.site import Site

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
    "a tie of a float average goes up": (
        FLOAT_AVERAGE,
        {"pool"},
        "lane_0_tap_2_lowest_bit_0_1 <= odd_8 ? lane_0_tap_2_exact_sum[4] : choice_2",
        "lane_0_tap_2_lowest_bit_0_1 <= 1'b1",
    ),
    "a dropped bit stays": (FLOAT_AVERAGE, {"pool"}, "& (~lane_0_tap_1_dropped_bits_1)", ""),
    "one bit of an addend": (
        FLOAT_AVERAGE,
        {"pool"},
        "lane_0_tap_3_terms[9] = 29'h05",
        "lane_0_tap_3_terms[9] = 29'h04",
    ),
    "a value comes a cycle early": (
        FLOAT_AVERAGE,
        {"pool"},
        "lane_0_tap_2_terms[lane_0_tap_2_value_3]",
        "lane_0_tap_2_terms[lane_0_tap_2_value_2]",
    ),
    "the first pixels are not marked": (
        READER,
        {"tokens"},
        "(row_index == 2'd0) & (column_index == 2'd0)",
        "row_index == 2'd0",
    ),
    "a pixel past the end is passed on": (
        READER,
        {"tokens"},
        "column_index_is_2 ? 4'd0 : i__payload[7:4]",
        "i__payload[7:4]",
    ),
    "a sum without room": (READER, {"tokens"}, "i__ready = room | !is_frame_end", "i__ready = 1'b1"),
    "a frame ends a row early": (READER, {"tokens"}, "(row_index == 2'd2)", "(row_index == 2'd1)"),
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
    "a tie of a float sum goes up": (
        FLOAT_SUM,
        {"elementwise"},
        "lane_0_input_1_lowest_bit_0_1 <= odd_5 ? lane_0_input_1_exact_sum[4] : choice;",
        "lane_0_input_1_lowest_bit_0_1 <= 1'b1;",
    ),
    "bits to drop come a cycle early": (
        FLOAT_SUM,
        {"elementwise"},
        "(~lane_0_input_2_dropped_bits_settled_1)",
        "(~lane_0_input_2_dropped_bits_1)",
    ),
    "an addend is left out": (
        FLOAT_SUM,
        {"elementwise"},
        "$signed(lane_0_input_1_sum) + $signed(lane_0_input_2_terms_data)",
        "$signed(lane_0_input_1_sum)",
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
    "beats of a pixel are not counted": (CHANNEL_TABLE, {"index"}, "(fold_index + 1'b1)", "fold_index"),
    "beats that do not come are counted": (CHANNEL_TABLE, {"index"}, "if (i__valid) begin", "if (1'b1) begin"),
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


#: Faults of last stages: the configuration, and the text that is replaced.
LAST_STAGE_FAULTS = {
    "a threshold is not reached by itself": (
        THRESHOLDS,
        "$signed(sum_lane_0_level_3_1) >= ",
        "$signed(sum_lane_0_level_3_1) > ",
    ),
    "one bit of a threshold": (
        THRESHOLDS,
        "thresholds_lane_1_level_2[2] = 10'h00a",
        "thresholds_lane_1_level_2[2] = 10'h00b",
    ),
    "the first threshold is compared as unsigned": (
        THRESHOLDS,
        "$signed(sum_lane_0_level_0_1) >= -10'sd27",
        "sum_lane_0_level_0_1 >= 10'd997",
    ),
    "an idle lane is not 0": (
        LAST_STAGES["thresholds by channel"],
        "output_lane_1 <= !beat_index ?",
        "output_lane_1 <= 1'b1 ?",
    ),
    "the row of another channel": (
        LAST_STAGES["thresholds by channel"],
        "level_1[{row_index_delayed_1_1,",
        "level_1[{row_index_delayed_0_1,",
    ),
    "beats are counted as they come": (THRESHOLDS, "if (valid_8) begin", "if (i__valid) begin"),
    "a bias is one too large": (BIASES, "13'sd200", "13'sd199"),
    "the bias of another channel": (BIASES, "bias[1] = 7'h07", "bias[1] = 7'h64"),
    "a lane without a channel is not 0": (BIASES, "present[1] = 1'h0", "present[1] = 1'h1"),
}


def last_stage_results(config, verilog):
    """Prove the obligations of a last stage of ``verilog``; return the results by kind."""
    modules = modules_of(verilog)
    of_stage = threshold_proof.of_threshold if isinstance(config, ThresholdConfig) else threshold_proof.of_bias
    found = of_stage(config, Site("", modules[MODULE], modules), config.beats)
    return {name: proof.verdict.result for name, proof in proved(found, verilog).items()}


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


@pytest.mark.parametrize("name", marked(FAULTS, "the maximum is not begun anew"))
def test_faults_are_refuted(name):
    config, kinds, old, new = FAULTS[name]
    assert "refuted" in results_with_fault(config, kinds, old, new).values()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("thresholds", "biases") else pytest.mark.long) for name in LAST_STAGES],
)
def test_last_stages_are_proved(name):
    results = last_stage_results(LAST_STAGES[name], emitted(LAST_STAGES[name]))
    assert set(results.values()) == {"proved"}
    assert results.keys() & {"threshold", "bias"}


@pytest.mark.parametrize("name", marked(LAST_STAGE_FAULTS, "one bit of a threshold"))
def test_faults_of_last_stages_are_refuted(name):
    config, old, new = LAST_STAGE_FAULTS[name]
    assert "refuted" in last_stage_results(config, with_fault(emitted(config), MODULE, old, new)).values()
