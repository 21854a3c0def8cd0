"""Proofs of what connects components: wires and logic of top modules, and connections that are wrong in one place."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from amaranth.hdl import unsigned
from programs import SMALL
from proofs import MODULE, chain, emitted, of_component, proved, with_fault, wrapped_chain

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
