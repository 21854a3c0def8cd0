"""Registers inside the multipliers of an ECP5, which Yosys leaves in fabric.

A path to a register in fabric crosses the multiplier and the wires behind it. A register inside ends the path at the
multiplier.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

#: Parameters of a MULT18X18D with an output register, and the inputs that control it (FPGA-TN-02205, table 4).
_PARAMETERS = {"REG_OUTPUT_CLK": "CLK0", "REG_OUTPUT_CE": "CE0", "REG_OUTPUT_RST": "RST0"}
_CONTROLS = ("CLK0", "CE0", "RST0")


def with_output_registers(module: dict[str, Any]) -> None:
    """Move registers that store the product of a MULT18X18D into the multiplier, in a module of Yosys' JSON.

    All used bits of the product must be stored, in registers that begin with 0, have the same clock, and have neither
    reset nor enable. Nothing else may read the bits.
    """
    cells = module["cells"]
    readers: defaultdict[Any, list[tuple[str, str]]] = defaultdict(list)
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            if cell.get("port_directions", {}).get(port) != "output":  # Yosys knows no ports of foreign modules
                for bit in bits:
                    readers[bit].append((name, port))
    for port in module["ports"].values():
        for bit in port["bits"]:
            readers[bit].append(("", ""))
    for cell in [cell for cell in cells.values() if cell["type"] == "MULT18X18D"]:
        outputs = [port for port, direction in cell["port_directions"].items() if direction == "output"]
        used = {port: readers[cell["connections"][port][0]] for port in outputs if port in cell["connections"]}
        used = {port: reading for port, reading in used.items() if reading}
        stored = {port: cells.get(reading[0][0], {}) for port, reading in used.items() if len(reading) == 1}
        clocks = {register["connections"]["CLK"][0] for register in stored.values() if _is_plain(register)}
        if len(clocks) != 1 or len(stored) != len(used) or not all(map(_is_plain, stored.values())):
            continue
        if any(reading != "DI" for ((_, reading),) in used.values()):
            continue
        for port, register in stored.items():
            cell["connections"][port] = register["connections"]["Q"]
            del cells[used[port][0][0]]
        cell["parameters"].update(_PARAMETERS)
        cell["connections"].update(zip(_CONTROLS, ([clocks.pop()], ["1"], ["0"]), strict=True))
        cell["port_directions"].update(dict.fromkeys(_CONTROLS, "input"))


def _is_plain(cell: dict[str, Any]) -> bool:
    """Return whether a cell is a register that begins with 0 and always stores its input."""
    if cell.get("type") != "TRELLIS_FF":
        return False
    parameters, connections = cell["parameters"], cell["connections"]
    is_enabled = parameters.get("CEMUX", "1").strip() == "1"
    is_rising = parameters.get("CLKMUX", "CLK") == "CLK"
    has_reset = parameters.get("LSRMUX", "LSR") != "LSR" or connections.get("LSR", ["0"]) != ["0"]
    is_kept = int(cell.get("attributes", {}).get("keep", "0"), 2) != 0
    begins_with_0 = parameters.get("REGSET", "RESET") == "RESET"
    return is_enabled and is_rising and begins_with_0 and not has_reset and not is_kept
