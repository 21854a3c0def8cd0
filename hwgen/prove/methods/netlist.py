"""Dependencies between bits of a Yosys netlist: within one cycle, or over any number of cycles."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

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
