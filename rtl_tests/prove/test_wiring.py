"""Proofs of what connects components and of buses, and faults seeded in the Verilog that they must refute."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import small_circuits
from amaranth.hdl import unsigned
from programs import SMALL
from proofs import (
    ALONE,
    MODULE,
    chain,
    emitted,
    faults_in,
    kinds_in,
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

pytestmark = ALONE


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


#: Design, module, path and kind of the obligation, text of the Verilog, and faulty text.
FAULTS = faults_in("wiring.txt")


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_faults_are_refuted(name):
    made, module, path, kind, old, new = FAULTS[name]
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
BUS_FAULTS = faults_in("bus.txt", vars(small_circuits).__getitem__, kinds_in)


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
