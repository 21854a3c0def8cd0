"""Proof method ``structure``: dependencies between bits of a module's netlist, whatever its logic computes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hwgen.obligations.obligation import Obligation
from hwgen.prove import tools
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import Wrapped

_PART = re.compile(r"(.*)\[(\d+):(\d+)\]")
"""Pattern of a slice of a port, ``PORT[HIGH:LOW]``."""
_BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$pos", "$mux", "$bwmux"}
"""Set of names of Yosys cell types whose output bit n depends on bit n of each wide input and on all bits of selection
inputs."""
_REGISTERS = {"$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"}
"""Set of names of Yosys cell types whose output changes only at a clock edge. Latches and registers with asynchronous
inputs count as logic."""
_WRITES = ("$memwr", "$meminit")
"""Tuple of prefixes of the names of Yosys cell types that write memories."""
_SELECTS = {"S", "EN", "CLK", "SRST", "ADDR"}
"""Set of names of cell inputs that decide on all bits of a bitwise cell, a register or a memory's written word."""


class BitDependencies:
    """Dependencies between the bits of one module, from Yosys' JSON netlist.

    Parameters
    ----------
    document : dict
        The module's entry in the file that ``write_json`` wrote, without processes.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._ports: dict[str, list[Any]] = {name: port["bits"] for name, port in document["ports"].items()}
        self._outputs = [name for name, port in document["ports"].items() if port["direction"] == "output"]
        self._nets: dict[str, list[Any]] = {name: net["bits"] for name, net in document.get("netnames", {}).items()}
        self._cells: Mapping[str, Any] = document["cells"]
        self._now: dict[Any, set[Any]] = defaultdict(set)
        self._ever: dict[Any, set[Any]] = defaultdict(set)
        for cell in self._cells.values():
            self._add(cell)

    @classmethod
    def read(cls, path: Path, module: str) -> BitDependencies:
        """Return the `BitDependencies` of ``module`` in a netlist file that Yosys' ``write_json`` wrote."""
        return cls(json.loads(path.read_text(encoding="utf-8"))["modules"][module])

    def bits(self, port: str) -> list[Any]:
        """Return the netlist bits of a port (of the module, or ``INSTANCE.PORT``) as a list, lowest first.

        ``PORT[HIGH:LOW]`` selects a slice of them.
        """
        if part := _PART.fullmatch(port):
            return self.bits(part[1])[int(part[3]) : int(part[2]) + 1]
        instance, _, name = port.rpartition(".")
        return self._cells[instance]["connections"][name] if instance else self._ports[name]

    @property
    def outputs(self) -> list[str]:
        """List of names of the module's output ports."""
        return self._outputs

    @property
    def drivers(self) -> set[str]:
        """Set of names of ports that drive nets: the module's inputs, and instances' outputs (``INSTANCE.PORT``)."""
        return (set(self._ports) - set(self._outputs)) | self._instance_ports("output")

    @property
    def sinks(self) -> set[str]:
        """Set of names of ports that nets drive: the module's outputs, and instances' inputs (``INSTANCE.PORT``)."""
        return set(self._outputs) | self._instance_ports("input")

    def _instance_ports(self, direction: str) -> set[str]:
        return {
            f"{name}.{port}"
            for name, cell in self._cells.items()
            if not cell["type"].startswith("$")
            for port, port_direction in cell["port_directions"].items()
            if port_direction == direction
        }

    def after_reset(self, register: str, reset: str) -> str:
        """Return a register's value after a cycle of ``reset``, as binary digits, or ``x`` if it isn't reset.

        A bit is reset if a multiplexer that ``reset`` selects sets it to a constant.
        """
        (selection,), next_values = self.bits(reset), {}
        for cell in self._cells.values():
            nets = cell["connections"]
            if cell["type"] == "$mux" and nets["S"] == [selection]:
                next_values |= dict(zip(nets["Y"], nets["B"], strict=True))
        followers = {}
        for cell in self._cells.values():
            if cell["type"] == "$dff":
                followers |= dict(zip(cell["connections"]["Q"], cell["connections"]["D"], strict=True))
        values = [next_values.get(followers.get(bit), "x") for bit in self._nets[register]]
        return "".join(value if value in ("0", "1") else "x" for value in reversed(values))

    def support(self, bits: Iterable[Any], *, registers: bool) -> set[Any]:
        """Return a set: ``bits``, and all bits that they depend on in the same cycle or, with ``registers``, in any."""
        edges = self._ever if registers else self._now
        seen, ahead = set(bits), list(bits)
        while ahead:
            for bit in edges.get(ahead.pop(), ()):
                if bit not in seen:
                    seen.add(bit)
                    ahead.append(bit)
        return seen

    def _add(self, cell: Mapping[str, Any]) -> None:
        kind, connections, ways = cell["type"], cell["connections"], cell["port_directions"]
        is_write = kind.startswith(_WRITES)
        is_register = kind in _REGISTERS or is_write
        inputs = {name: bits for name, bits in connections.items() if ways[name] == "input"}
        outputs = [bits for name, bits in connections.items() if ways[name] == "output"]
        if is_write:  # a memory is a node for each bit of its words
            outputs = [self._memory(cell, len(inputs["DATA"]))]
        elif kind.startswith("$memrd"):
            self._connect({"DATA": self._memory(cell, len(outputs[0]))}, outputs[0], self._ever, bitwise=True)
        bitwise = kind in _BITWISE or is_register or kind == "$pmux"
        for bits in outputs:
            self._connect(inputs, bits, self._ever, bitwise=bitwise)
            if not is_register:
                self._connect(inputs, bits, self._now, bitwise=bitwise)

    @staticmethod
    def _memory(cell: Mapping[str, Any], width: int) -> list[Any]:
        return [(cell["parameters"]["MEMID"], bit) for bit in range(width)]

    @staticmethod
    def _connect(inputs: Mapping[str, list[Any]], output: list[Any], edges: dict[Any, set[Any]], bitwise: bool) -> None:
        """Add edges from each bit of a cell's output to the input bits that it depends on."""
        for name, bits in inputs.items():
            if bitwise and name not in _SELECTS and len(bits) % len(output) == 0:
                for index, bit in enumerate(bits):
                    edges[output[index % len(output)]].add(bit)
            else:
                for bit in output:
                    edges[bit].update(bits)


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


def _unequal_ports(netlist: BitDependencies, pairs: Mapping[str, str]) -> list[str]:
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
    return _unequal_ports(netlist, wires) + [f"{port} has no rule" for port in sorted(missing)]


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
CHECKS = {"bits": _bits, "composition": _composition, "no_path": _no_path, "reset": _reset, "wires": _unequal_ports}


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
