"""Proofs of what is between an accelerator and its buses, and faults seeded in the Verilog that they must refute."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from proofs import MODULE, emitted, proved, results, results_with_fault, unguarded
from small_circuits import BANK, FULL_LINK, LINK, LOADER, REPACK, SHELL, repack

from hwgen.prove import catalogue

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")


EMPTY_LOADER = replace(LOADER, initialised=False)

#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
FAULTS = {
    "repack withdraws a piece": (REPACK, {"stream"}, "output_transfer ? (units_held", "!output_is_last ? (units_held"),
    "repack changes a piece": (
        REPACK,
        {"stream"},
        "slot_0 <= (units_kept > 4'd0) ? (output_transfer ?",
        "slot_0 <= (units_kept > 4'd0) ? (input_transfer ?",
    ),
    "repack waits for ready": (REPACK, {"path"}, "assign o__valid = ", "assign o__valid = o__ready & "),
    "repack marks by ready": (REPACK, {"path"}, "assign o__payload = {", "assign o__payload = {o__ready & "),
    "repack takes too early": (REPACK, {"occupancy"}, "units_held <= 4'd9", "units_held <= 4'd10"),
    "repack counts too few": (REPACK, {"occupancy"}, "2'd2 : 2'd1", "2'd1 : 2'd1"),
    "repack mixes values": (REPACK, {"tokens"}, "slot_1 <= (units_kept > 4'd1)", "slot_1 <= (units_kept > 4'd2)"),
    "repack keeps values": (REPACK, {"tokens"}, "(output_units > 3'd2) ? slot_2 :\n        2'd0", "slot_2"),
    "repack ends a frame early": (REPACK, {"tokens"}, "= {output_is_last,", "= {1'b1,"),
    "repack stops": (REPACK, {"progress"}, "assign o__valid = ", "assign o__valid = (units_held != 4'd6) & "),
    "repack waits for a piece": (REPACK, {"progress"}, "assign i__ready = ", "assign i__ready = o__valid & "),
    "bank withdraws a response": (BANK, {"bus"}, "end else if (bus__bready) begin", "end else begin"),
    "bank changes an answer": (
        BANK,
        {"bus"},
        "if (read_enable) begin\n            bus__rdata",
        "if (1'b1) begin\n            bus__rdata",
    ),
    "bank answers twice": (
        BANK,
        {"bus"},
        "has_write_data <= 1'b0;\n        end\n        if (rst)",
        "end\n        if (rst)",
    ),
    "bank waits for ready": (
        BANK,
        {"bus"},
        "has_write_data & !bus__bvalid;",
        "has_write_data & !bus__bvalid & bus__bready;",
    ),
    "bank answers by ready": (BANK, {"path"}, "endmodule", "    assign bus__rdata = {32{bus__rready}};\nendmodule"),
    "bank takes by ready": (BANK, {"path"}, "endmodule", "    assign bus__bvalid = bus__bready;\nendmodule"),
    "bank ignores strobes": (BANK, {"registers"}, "{7{write_strobe[1]}}", "{7{write_strobe[0]}}"),
    "bank mixes registers": (BANK, {"registers"}, "(write_word_index == 10'd4)", "(write_word_index == 10'd6)"),
    "bank pulses twice": (BANK, {"registers"}, "written_bits & write_enable &", "written_bits &"),
    "bank swaps counters": (
        BANK,
        {"registers"},
        "10'd129: one_of_21 = v19",
        "10'd129: one_of_21 = v20",
    ),
    "bank answers beyond its registers": (BANK, {"registers"}, "default: one_of_21 = 32'd0", "default: one_of_21 = v0"),
    "bank loses an error": (
        BANK,
        {"registers"},
        "(errors_s_axis_long & !(written_bits_2 & register_hit_2))",
        "(errors_s_axis_long & 1'b0)",
    ),
    "bank never clears an error": (
        BANK,
        {"registers"},
        "(errors_s_axis_long & !(written_bits_2 & register_hit_2))",
        "errors_s_axis_long",
    ),
    "bank tells of other reads": (
        BANK,
        {"registers"},
        "assign cycles_low_read = (bus__araddr[11:2] == 10'd12)",
        "assign cycles_low_read = (bus__araddr[11:2] == 10'd13)",
    ),
    "loader skips the digest": (LOADER, {"tokens"}, "fits_design <= is_same_digest", "fits_design <= fits_design"),
    "loader ignores the CRC": (LOADER, {"tokens"}, "& crc__match_detected", "& 1'b1"),
    "loader takes short loads": (LOADER, {"tokens"}, "fits_design & word_index_is_5 & ", "fits_design & "),
    "loader takes long loads": (LOADER, {"tokens"}, " & !has_surplus", ""),
    "loader passes the CRC on": (LOADER, {"tokens"}, "if (word_index != 3'd5)", "if (word_index != 3'd6)"),
    "loader keeps good": (LOADER, {"tokens"}, "state__good <= 1'b0;", "state__good <= state__good;"),
    "link writes half a word": (LINK, {"tokens"}, "part_index == last_part_index", "part_index == 1'b0"),
    "link leaves out a word": (LINK, {"tokens"}, "word_address == last_word_address", "word_address == 2'd1"),
    "link keeps the end": (LINK, {"tokens"}, "!i__payload[0] & !i__payload[1]", "!i__payload[0]"),
    "link of full words stays at an address": (
        FULL_LINK,
        {"tokens"},
        "word_address <= store_filled ? 2'd0 : (word_address + 2'd1)",
        "word_address <= 2'd0",
    ),
    "link of full words writes another memory": (
        FULL_LINK,
        {"tokens"},
        "word_complete & store_index",
        "word_complete & !store_index",
    ),
    "shell keeps partial words": (SHELL, {"bus"}, "m_axis__tlast ? 4'd7 : 4'd15", "4'd15"),
    "shell changes a waiting mark": (SHELL, {"bus"}, "if (frame_leaves) begin", "if (m_axis__tvalid) begin"),
    "shell waits for ready": (SHELL, {"path"}, "assign m_axis__tlast = ", "assign m_axis__tlast = m_axis__tready & "),
    "shell keeps by ready": (SHELL, {"path"}, "m_axis__tlast ? 4'd7", "m_axis__tready ? 4'd7"),
    "shell takes a word right after a reset": (
        SHELL,
        {"contract"},
        "is_out_of_reset <= !reset",
        "is_out_of_reset <= 1'b1",
    ),
    "shell tells a size within a packet": (SHELL, {"contract"}, "!(|{s_axis_guard__in_packet,", "!(|{1'b0,"),
    "loader resets no checksum": (LOADER, {"wires"}, ".rst(rst)", ".rst(1'b0)"),
    "loader resets a checksum by words": (LOADER, {"wires"}, ".rst(rst)", ".rst(i__valid)"),
    "shell mixes streams": (SHELL, {"wires"}, ".o__ready(i__ready)", ".o__ready(o__valid)"),
    "shell passes the accelerator by": (SHELL, {"wires"}, ".i__valid(o__valid)", ".i__valid(i__valid)"),
    "shell resets no width converter": (SHELL, {"wires"}, ".reset(reset)\n", ".reset(1'b0)\n"),
    "shell never ends a packet": (SHELL, {"last"}, "& m_axis_frame_index_is_last;", "& 1'b0;"),
    "shell ends each frame": (SHELL, {"last"}, "& m_axis_frame_index_is_last;", "& 1'b1;"),
    "shell ends packets a frame late": (
        SHELL,
        {"last"},
        "m_axis_frame_index == s_axis_guard__packet__before_last_single[15:0]",
        "m_axis_frame_index == s_axis_guard__packet__before_last_single[15:0] + 16'd1",
    ),
    "shell counts on after a reset": (
        SHELL,
        {"last"},
        "            m_axis_frame_index <= 16'd0;\n        end\n        if (frame",
        "        end\n        if (frame",
    ),
    "shell swaps values of a word": (
        SHELL,
        {"logic"},
        "m_axis_repack__o__payload[4:0]",
        "m_axis_repack__o__payload[9:5]",
    ),
    "shell changes a value that comes": (
        SHELL,
        {"logic"},
        "= s_axis_guard__o__payload[31:0]",
        "= {s_axis_guard__o__payload[31:1], 1'b0}",
    ),
    "shell takes words while stopped": (
        SHELL,
        {"logic"},
        "= s_axis_guard__i__ready & both_2",
        "= s_axis_guard__i__ready",
    ),
    "shell keeps undefined bytes": (SHELL, {"logic"}, "{7{s_axis__tkeep[0]}}", "{7{s_axis__tkeep[1]}}"),
    "shell counts words as frames": (SHELL, {"logic"}, "{31'd0, frame_leaves}", "{31'd0, m_axis__tvalid}"),
    "shell misses an error": (
        SHELL,
        {"registers"},
        "s_axis_guard__error__short | s_axis_too_few_bytes",
        "s_axis_too_few_bytes",
    ),
    "shell interrupts disabled": (
        SHELL,
        {"registers"},
        "registers__interrupt_status & registers__interrupt_enable",
        "registers__interrupt_status",
    ),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    assert set(results_with_fault(*FAULTS[name]).values()) == {"refuted"}


def test_each_kind_of_each_component_has_two_faults():
    assert unguarded(FAULTS) == set()


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        REPACK,
        repack(((3,), 2, 2), ((2,), 3, 1)),
        repack(((1,), 8, 1), ((4,), 2, 4), bits=8),
        repack(((16,), 588, 16), ((3,), 3136, 3), bits=8),
        repack(((1,), 1, 1), ((1,), 1, 1)),
        repack(((2,), 8, 2), ((2,), 8, 2)),
        SHELL,
        BANK,
        LOADER,
        EMPTY_LOADER,
        LINK,
        FULL_LINK,
    ],
    ids=lambda config: type(config).__name__,
)
def test_components_are_proved(config):
    assert set(results(config).values()) == {"proved"}


def test_guards_of_a_shell_are_proved():
    """A shell clears the errors of its guards in each cycle, so that their modules lack the port."""
    verilog = emitted(SHELL)
    guards = [obligation for obligation in catalogue.obligations(SHELL, MODULE, verilog) if "guard" in obligation.path]
    assert {"stream", "tokens", "progress"} <= {obligation.kind for obligation in guards}
    assert {proof.verdict.result for proof in proved(guards, verilog).values()} == {"proved"}
