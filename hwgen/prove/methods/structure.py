"""Proof method ``structure``: properties of a module's netlist, such as wires, whatever its logic computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.methods.netlist import BitDependencies
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

_ENGINE = "Yosys"
SCRIPT = "read_verilog -formal modules.v; {cut} hierarchy -top m0; proc; flatten; opt_clean; write_json netlist.json"


def check(obligation: Obligation, wrapped: Wrapped, folder: Path, deadline: Deadline) -> Verdict:
    """Return the `Verdict` on statements about a module's structure, such as wires, by Yosys' netlist.

    A cut instance counts as logic whose outputs all depend on every input in the same cycle.
    """
    (folder / "modules.v").write_text(wrapped.modules, encoding="utf-8")
    cut = "".join(f"setattr -mod -set blackbox 1 {name}; " for name in wrapped.cut)
    tools.yosys(SCRIPT.format(cut=cut), folder, deadline.left)
    if not any(obligation.structure.values()):
        return Verdict("undecided", _ENGINE, "the obligation states nothing")
    try:
        netlist = BitDependencies.read(folder / "netlist.json", "m0")
        wrong = [text for name, value in obligation.structure.items() for text in CHECKS[name](netlist, value)]
    except KeyError as error:
        return Verdict("undecided", _ENGINE, f"the module has no port or instance {error}")
    return Verdict("refuted" if wrong else "proved", _ENGINE, detail="; ".join(wrong), is_covered=True)


def _no_path(netlist: BitDependencies, ends: Mapping[str, Any]) -> list[str]:
    """Return a list of error texts: the ports in ``to`` that a combinational path reaches from a port in ``from``."""
    sources = {bit for port in ends["from"] for bit in netlist.bits(port)}
    return [
        f"{sink} depends on {' or '.join(ends['from'])} in the same cycle"
        for sink in ends["to"]
        if sources & netlist.support(netlist.bits(sink), registers=False)
    ]


def _wires(netlist: BitDependencies, pairs: Mapping[str, str]) -> list[str]:
    """Return a list of error texts: the ports that are not the same net as the port they must equal."""
    return [f"{one} is not {other}" for one, other in pairs.items() if netlist.bits(one) != netlist.bits(other)]


def _composition(netlist: BitDependencies, rules: Mapping[str, Any]) -> list[str]:
    """Return a list of error texts: ports with a wrong source, and ports with no stated source.

    Each input of each instance, and each output of the module, must be one wire with an input of the module or with an
    output of an instance, or must be in the list ``logic``. For the ports in that list, another obligation states the
    value.
    """
    wires = rules["wires"]
    pairs = [(one, other.partition("[")[0]) for one, other in wires.items()]
    ruled = netlist.drivers | set(rules["logic"])
    while new := {port for pair in pairs if ruled & set(pair) for port in pair} - ruled:
        ruled |= new
    missing = netlist.sinks - ruled
    return _wires(netlist, wires) + [f"{port} has no rule" for port in sorted(missing)]


def _reset(netlist: BitDependencies, values: Mapping[str, str]) -> list[str]:
    """Return a list of error texts: registers whose value after a cycle of reset is not the one in ``values``."""
    after = {name: netlist.after_reset(name, "rst") for name in values}
    return [f"{name} is {after[name]} after a reset" for name, value in values.items() if after[name] != value]


def _bits(netlist: BitDependencies, values: Mapping[str, Any]) -> list[str]:
    """Return a list of error texts: outputs that depend on input bits that they must not depend on.

    Bit n of a value in ``to`` may depend on bits n of the values in ``from``; no other output on any of them.
    """
    (source, received), (target, sent), width = values["from"], values["to"], values["width"]
    inputs = netlist.bits(source)[:received]
    outputs = netlist.bits(target)[:sent]
    wrong = []
    for bit in range(width):
        support = netlist.support(outputs[bit::width], registers=True)
        if support & {received_bit for index, received_bit in enumerate(inputs) if index % width != bit}:
            wrong.append(f"bits {bit} of {target} depend on other bits of {source}")
    others = [
        sent_bit
        for port in netlist.outputs
        for index, sent_bit in enumerate(netlist.bits(port))
        if port != target or index >= sent
    ]
    if netlist.support(others, registers=True) & set(inputs):
        wrong.append(f"other outputs depend on values of {source}")
    return wrong


#: Dictionary from kind of structure to the function that checks it on a netlist, and returns a list of error texts.
CHECKS = {"bits": _bits, "composition": _composition, "no_path": _no_path, "reset": _reset, "wires": _wires}


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _is_part(value: Any) -> bool:
    """Return whether a JSON value is a list of a port's name and a number of bits."""
    return isinstance(value, list | tuple) and [type(item) for item in value] == [str, int] and value[1] >= 0


def _are_ends(value: Any) -> bool:
    return isinstance(value, dict) and all(_are_names(value.get(end)) for end in ("from", "to"))


def _are_pairs(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())


def _are_rules(value: Any) -> bool:
    return isinstance(value, dict) and _are_pairs(value.get("wires")) and _are_names(value.get("logic"))


def _are_values(value: Any) -> bool:
    if not (isinstance(value, dict) and all(_is_part(value.get(end)) for end in ("from", "to"))):
        return False
    return type(value.get("width")) is int and value["width"] >= 1


#: Dictionary from kind of structure to the predicate that checks the form of its JSON value.
FORMS: dict[str, Callable[[Any], bool]] = {
    "bits": _are_values,
    "composition": _are_rules,
    "no_path": _are_ends,
    "reset": _are_pairs,
    "wires": _are_pairs,
}
