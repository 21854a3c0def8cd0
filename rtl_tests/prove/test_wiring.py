"""Proofs of what connects components and of buses, and faults seeded in the Verilog that they must refute."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from amaranth.hdl import unsigned
from programs import SMALL
from proofs import (
    MODULE,
    chain,
    emitted,
    of_component,
    proved,
    results,
    results_with_fault,
    unguarded,
    with_fault,
    wrapped_chain,
)
from small_circuits import BANK, FULL_LINK, LINK, LOADER, REPACK, SHELL, repack

from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.gateware.bus.wrapper_proof import WrapperUnit
from hwgen.gateware.unload import UnloadConfig
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import catalogue
from hwgen.verilog import convert
from hwgen.verilog.emitted import engine_files

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")


@cache
def wrapped_engine() -> tuple[WrapperUnit, str]:
    """Return the bus wrapper of a small engine, and the Verilog of both."""
    unit = WrapperUnit(EngineShellConfig(engine=SMALL))
    around = convert(unit.shell.wrapper("engine"), "engine_axi")["engine_axi.v"].decode()
    return unit, f"{engine_files(SMALL)['engine.v'].decode()}\n{around}"


def design(name: str) -> tuple[Any, str, str]:
    """Return the configuration, the top module and the Verilog of a small design."""
    designs = {
        "chain": (lambda: chain(), "dut"),
        "retrained": (lambda: chain(runtime=True), "dut"),
        "wrapper": (lambda: wrapped_chain(), "dut_axi"),
        "wrapper of retrained": (lambda: wrapped_chain(runtime=True), "dut_axi"),
        "wrapper of engine": (wrapped_engine, "engine_axi"),
    }
    make, top = designs[name]
    config, verilog = make()
    return config, top, verilog


def connections(name: str) -> tuple[list[Obligation], str]:
    """Return the obligations ``wires`` and ``logic`` of a design, and its Verilog."""
    config, top, verilog = design(name)
    found = [each for each in catalogue.obligations(config, top, verilog) if each.kind in ("wires", "logic")]
    return found, verilog


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["chain", "retrained", "wrapper", "wrapper of retrained", "wrapper of engine"])
def test_connections_are_proved(name):
    obligations, verilog = connections(name)
    assert {each.verdict for each in proved(obligations, verilog).values() if each.verdict.result != "proved"} == set()


RAISED = ("errors_raise_0", "errors_raise_1", "interrupt_status_raise_0", "interrupt_status_raise_1")
STATES = ("status_0", "status_1", "status_2")
"""Bits of registers that are ports of the register bank, because the other bits are constants."""


@pytest.mark.parametrize(
    ("runtime", "port"),
    [
        pytest.param(runtime, port, marks=() if (runtime, port) == (False, "status_1") else pytest.mark.long)
        for runtime, more in ((False, ()), (True, ("errors_raise_31", "status_3", "status_4")))
        for port in (*RAISED, *STATES, *more)
    ],
)
def test_each_bit_that_a_register_bank_reads_is_stated(runtime, port):
    unit, verilog = wrapped_chain(runtime=runtime)
    module = modules_of(verilog)["dut_axi_shell"]
    signal = module.connections["registers"][port]
    faulty = with_fault(verilog, "dut_axi_shell", f".{port}({signal})", f".{port}(~{signal})")
    stated = [each for each in catalogue.obligations(unit, "dut_axi", faulty) if each.kind == "registers"]
    found = [each for each in stated if each.module == "dut_axi_shell"]
    assert {proof.verdict.result for proof in proved(found, faulty).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "module"),
    [
        ("32'h4857474e", "32'h4857474f", "dut_axi_shell_registers"),
        ("10'd10, 10'd128: one_of_16 = v5;", "10'd10: one_of_16 = v5; 10'd128: one_of_16 = v6;", "dut_axi_shell"),
        ("(errors_s_axis_long & !(written_bits_2 & register_hit_2))", "errors_s_axis_long", "dut_axi_shell"),
        ("(errors_s_axis_long & !(written_bits_2 & register_hit_2))", "1'b0", "dut_axi_shell"),
    ],
    ids=["identity", "counter with the port of another", "error that stays", "error that is lost"],
)
def test_what_software_reads_of_a_shell(old, new, module):
    """The bank of a shell has constants, and no ports of their own for two registers with the same value."""
    unit, verilog = wrapped_chain()
    faulty = with_fault(verilog, "dut_axi_shell_registers", old, new)
    found = [
        each
        for each in catalogue.obligations(unit, "dut_axi", faulty)
        if (each.kind, each.module) == ("registers", module)
    ]
    assert {proof.verdict.result for proof in proved(found, faulty).values()} == {"refuted"}


def test_an_unnamed_port_of_another_instance_is_refuted():
    unit, verilog = wrapped_chain()
    (wires,) = (
        each
        for each in catalogue.obligations(unit, "dut_axi", verilog)
        if (each.kind, each.module) == ("wires", "dut_axi_shell")
    )
    text = with_fault(verilog, "dut_axi_shell_s_axis_guard", "input  wire aclk,", "input wire aclk, input wire port_9,")
    faulty = with_fault(text, "dut_axi_shell", "s_axis_guard (\n", "s_axis_guard (\n        .port_9(interrupt),\n")
    results = [proof.verdict for text in (verilog, faulty) for proof in proved([wires], text).values()]
    assert [verdict.result for verdict in results] == ["proved", "refuted"]
    assert results[1].detail == "s_axis_guard.port_9 has no rule"


#: Module of a layer's arithmetic or last stage, and a line of its reset.
RESETS = {
    "dut_conv_compute": "            weight_address <= 4'd0;\n",
    "dut_conv_compute_chains": "            fold_end <= 1'b0;\n",
    "dut_conv_finish": "            beat_index <= 3'd0;\n",
    "dut_pool_compute": "            o__valid <= 1'b0;\n",
}


@pytest.mark.long
@pytest.mark.parametrize("module", RESETS)
@pytest.mark.parametrize("new", ["", "{name} <= ~{value};\n"], ids=["no reset", "another value"])
def test_resets_of_arithmetic(module, new):
    config, verilog = chain()
    found = [
        each for each in catalogue.obligations(config, "dut", verilog) if (each.kind, each.module) == ("reset", module)
    ]
    assert {proof.verdict.result for proof in proved(found, verilog).values()} == {"proved"}
    name, value = RESETS[module].strip(" ;\n").split(" <= ")
    faulty = with_fault(verilog, module, RESETS[module], new.format(name=name, value=value))
    assert {proof.verdict.result for proof in proved(found, faulty).values()} == {"refuted"}


_RESET_OF_CONV = "dut_conv conv (\n        .clk(clk),\n        .rst("
_RESET_OF_COMPUTE = "dut_conv_compute compute (\n        .clk(clk),\n        .rst("
_GUARD = ".error__short(frame_error__short),\n        .error__long(frame_error__long)"
_READY = ".i__ready(accelerator__i__ready),\n        .m_axis"
#: Design, module, kind and path of the obligation that a fault refutes, text of the Verilog, and faulty text.
FAULTS = {
    "a layer is not reset": ("chain", "dut", "wires", "", f"{_RESET_OF_CONV}rst)", f"{_RESET_OF_CONV}1'b0)"),
    "arithmetic is not reset": (
        "chain",
        "dut_conv",
        "wires",
        "conv",
        f"{_RESET_OF_COMPUTE}rst)",
        f"{_RESET_OF_COMPUTE}1'b0)",
    ),
    "flags of frames are swapped": (
        "chain",
        "dut",
        "wires",
        "",
        _GUARD,
        _GUARD.replace("(frame_error__short)", "(x)")
        .replace("__long)", "__short)")
        .replace("(x)", "(frame_error__long)"),
    ),
    "flags of frames are always cleared": ("chain", "dut", "wires", "", "(frame_error__clear)", "(1'b1)"),
    "a frame waits for the one before": (
        "chain",
        "dut",
        "wires",
        "",
        ".i__valid(i__valid),\n        .i__ready(i__ready)",
        ".i__valid(i__valid & !conv__o__valid),\n        .i__ready(i__ready)",
    ),
    "a beat loses a bit": (
        "chain",
        "dut",
        "wires",
        "",
        ".i__payload(i__payload)",
        ".i__payload({i__payload[8:1], 1'b0})",
    ),
    "frames pass during a load": (
        "retrained",
        "dut",
        "logic",
        "",
        "guard_i__i__ready & load__open_0",
        "guard_i__i__ready",
    ),
    "the loader misses a frame": (
        "retrained",
        "dut",
        "logic",
        "",
        "offered_0 & guard_i__i__ready",
        "guard_i__i__ready",
    ),
    "a load is taken by nobody": ("retrained", "dut", "wires", "", ".i__valid(weights__valid)", ".i__valid(1'b0)"),
    "a load returns at once": (
        "retrained",
        "dut",
        "wires",
        "",
        ".back__valid(conv__load_o__valid)",
        ".back__valid(load__o__valid)",
    ),
    "software resets the wrapper alone": (
        "wrapper",
        "dut_axi",
        "logic",
        "",
        "accelerator__rst = shell__rst | shell__reset",
        "accelerator__rst = shell__rst",
    ),
    "aresetn is ignored": ("wrapper", "dut_axi", "logic", "", "wire shell__rst = !aresetn", "wire shell__rst = 1'b0"),
    "a bus is always ready": (
        "wrapper",
        "dut_axi",
        "wires",
        "",
        _READY,
        _READY.replace("accelerator__i__ready", "1'b1"),
    ),
    "a word passes the shell by": (
        "wrapper",
        "dut_axi",
        "wires",
        "",
        ".m_axis__tvalid(m_axis_tvalid)",
        ".m_axis__tvalid()",
    ),
    "answers are errors": (
        "wrapper",
        "dut_axi",
        "logic",
        "",
        "s_axi_control_bresp = 2'd0",
        "s_axi_control_bresp = 2'd2",
    ),
    "words of loads are dropped": (
        "wrapper of retrained",
        "dut_axi",
        "wires",
        "",
        ".weights__valid(shell__weights__valid),\n        .weights_state__clear",
        ".weights__valid(1'b0),\n        .weights_state__clear",
    ),
    "errors of loads stay": (
        "wrapper of retrained",
        "dut_axi",
        "logic",
        "",
        ".weights_state__clear(1'b1)",
        ".weights_state__clear(1'b0)",
    ),
    "a run starts by itself": (
        "wrapper of engine",
        "engine_axi",
        "wires",
        "",
        "d0),\n        .start(shell__start)",
        "d0),\n        .start(1'b1)",
    ),
    "pages of reads and writes are swapped": (
        "wrapper of engine",
        "engine_axi",
        "logic",
        "",
        "m_axi_mem_awaddr = {shell__awaddr_page",
        "m_axi_mem_awaddr = {shell__araddr_page",
    ),
    "a program begins elsewhere": (
        "wrapper of engine",
        "engine_axi",
        "logic",
        "",
        ".program_base(32'd0)",
        ".program_base(32'd1)",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    made, module, kind, path, old, new = FAULTS[name]
    obligations, sound = connections(made)
    found = [each for each in obligations if (each.kind, each.path) == (kind, path)]
    assert {each.verdict.result for each in proved(found, with_fault(sound, module, old, new)).values()} == {"refuted"}


@pytest.mark.long
def test_a_gated_clock_is_undecided():
    obligations, sound = connections("chain")
    found = [each for each in obligations if (each.kind, each.path) == ("wires", "conv")]
    (proof,) = proved(
        found, with_fault(sound, "dut_conv", "fifo (\n        .clk(clk)", "fifo (\n        .clk(i__valid)")
    ).values()
    assert (proof.verdict.result, proof.verdict.detail) == (
        "undecided",
        "a register is on another clock: dut_conv has 'i__valid'",
    )


@pytest.mark.parametrize("payload", ["{i__payload[7:0], i__payload[15:8]}", "i__payload ^ 16'd1", "i__payload"])
def test_a_serialiser_without_registers_is_wires(payload):
    config = UnloadConfig(channels=2, lanes_in=2, lanes_out=2, shape=unsigned(8))
    verilog = emitted(config)
    (stated,) = [each for each in of_component(config, verilog) if each.kind == "tokens"]
    faulty = with_fault(verilog, MODULE, "o__payload = i__payload;", f"o__payload = {payload};")
    (proof,) = proved([stated], faulty).values()
    assert proof.verdict.result == ("proved" if payload == "i__payload" else "refuted")


@pytest.mark.parametrize("port", ["conv.rst", "frame_error__short", "guard_i.o__ready"])
def test_a_port_without_a_rule_is_refuted(port):
    (obligation,), verilog = (connections("chain")[0][:1], connections("chain")[1])
    rules = obligation.structure["composition"]
    fewer = {one: other for one, other in rules["wires"].items() if port not in (one, other)}
    assert len(fewer) == len(rules["wires"]) - 1
    (proof,) = proved([replace(obligation, structure={"composition": rules | {"wires": fewer}})], verilog).values()
    assert (proof.verdict.result, proof.verdict.detail) == ("refuted", f"{port} has no rule")


def test_instances_on_another_clock_are_refuted():
    """No other method knows several clocks, so that other obligations of the module are undecided."""
    found, verilog = connections("chain")
    changed = with_fault(verilog, "dut", ".clk(clk)", ".clk(rst)")
    top = [each for each in found if not each.path and each.methods == ("structure",)]
    other = replace(top[0], kind="path", structure={"no_path": {"from": ["rst"], "to": []}})
    results = {name: proof.verdict for name, proof in proved([*top, other], changed).items()}
    assert results["wires"].result == "refuted"
    assert ".clk is not clk" in results["wires"].detail
    assert (results["path"].result, results["path"].detail) == (
        "undecided",
        "a register is on another clock: dut has 'rst'",
    )


EMPTY_LOADER = replace(LOADER, initialised=False)

#: Configuration, obligations that a fault refutes, text of the Verilog, and faulty text.
BUS_FAULTS = {
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


@pytest.mark.long
@pytest.mark.parametrize("name", BUS_FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_of_buses_are_refuted(name):
    assert set(results_with_fault(*BUS_FAULTS[name]).values()) == {"refuted"}


def test_each_kind_of_each_component_has_two_faults():
    assert unguarded(BUS_FAULTS) == set()


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
