"""Device family Xilinx 7 series: Spartan-7, Artix-7, Kintex-7, Virtex-7 and Zynq-7000.

Sources: Xilinx DS180 and DS190 (capacities), UG473 (block RAM), UG474 (LUTs), UG479 (DSP slices). Costs of Yosys'
netlists were measured with version 0.66 (`bench/resources.py`).
"""

from __future__ import annotations

import re

from hwgen.devices.device import Capacity, Device, Logic, MultiplierSlice
from hwgen.devices.flow import PciExpress, Processor, VivadoFlow, YosysFlow, script, vivado_part
from hwgen.devices.memory import LutRow, Memories
from hwgen.devices.xilinx7.carry_chains import CARRY4, CarryChains

#: Description of the 7 series' DSP slice (UG479, figure 2-1).
DSP48E1 = MultiplierSlice(
    cell="DSP48E1",
    wide_bits=25,
    narrow_bits=18,
    sum_bits=48,
    cascade_shift=17,
    operand_registers=2,
    product_registers=1,
    sum_registers=1,
    lut_price=40,
)

#: Block RAM and LUT RAM of the 7 series. Block RAM in simple dual port mode (UG473, tables 1-7 and 1-8) is a RAMB36E1,
#: or a RAMB18E1 of half its size. LUT RAM (UG474, table 2-3) is a RAM32M or a RAM64M in four LUTs. At least three
#: tenths of the LUTs can be RAM; the planner's share of a quarter keeps some for shift registers.
#: Vivado places a ROM by ``rom_style`` (UG901). Yosys reads ``ram_style`` first and refuses a ROM that is
#: "distributed", so a ROM in LUTs has the value "registers", which both accept.
MEMORIES = Memories(
    block_bits=36_864,
    block_shapes={
        1.0: ((72, 512), (36, 1024), (18, 2048), (9, 4096), (4, 8192), (2, 16384), (1, 32768)),
        0.5: ((36, 512), (18, 1024), (9, 2048), (4, 4096), (2, 8192), (1, 16384)),
    },
    lut_rows=(LutRow(words=32, bits=6, luts=4), LutRow(words=64, bits=3, luts=4)),
    row_choice_luts={1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 7: 3, 8: 3},
    lut_bits=64,
    lut_depth=64,
    deepest_lut_ram=512,
    deepest_lut_rom=1024,
    lut_ram_share=1 / 4,
    ram_attributes={
        "lut": {"ram_style": "distributed"},
        "block": {"ram_style": "block"},
        "ultra": {"ram_style": "ultra"},
    },
    rom_attributes={
        "lut": {"rom_style": "distributed", "ram_style": "registers"},
        "block": {"rom_style": "block", "ram_style": "block"},
    },
)

#: LUT costs of logic in the 7 series: a LUT of 6 inputs selects one of 4 bits, or delays a bit by 32 cycles (UG474).
LOGIC = Logic(
    lut_inputs=6,
    mux_ways=4,
    table_inputs=6,
    shift_register_cycles=32,
    shortest_shift_register=3,
    few_words=4,
    few_words_luts=0.57,
    rotation_luts={
        **{1: (0, 0.7), 2: (1, 1), 3: (1, 1), 4: (1, 2), 5: (2, 2.8), 6: (2, 3), 7: (3.2, 4), 8: (2, 2)},
        9: (5, 4),
        10: (4, 4),
        **dict.fromkeys(range(11, 17), (3, 3)),
    },
    more_rotation_luts=0.3,
)

#: LUTs, flip-flops, DSP slices and block RAMs of each 7-series device, by its name. DS180 counts slices of 4 LUTs and 8
#: flip-flops each.
CAPACITIES = {
    "XC7S6": Capacity(3_750, 7_500, 10, 5),
    "XC7S15": Capacity(8_000, 16_000, 20, 10),
    "XC7S25": Capacity(14_600, 29_200, 80, 45),
    "XC7S50": Capacity(32_600, 65_200, 120, 75),
    "XC7S75": Capacity(48_000, 96_000, 140, 90),
    "XC7S100": Capacity(64_000, 128_000, 160, 120),
    "XC7A12T": Capacity(8_000, 16_000, 40, 20),
    "XC7A15T": Capacity(10_400, 20_800, 45, 25),
    "XC7A25T": Capacity(14_600, 29_200, 80, 45),
    "XC7A35T": Capacity(20_800, 41_600, 90, 50),
    "XC7A50T": Capacity(32_600, 65_200, 120, 75),
    "XC7A75T": Capacity(47_200, 94_400, 180, 105),
    "XC7A100T": Capacity(63_400, 126_800, 240, 135),
    "XC7A200T": Capacity(134_600, 269_200, 740, 365),
    "XC7K70T": Capacity(41_000, 82_000, 240, 135),
    "XC7K160T": Capacity(101_400, 202_800, 600, 325),
    "XC7K325T": Capacity(203_800, 407_600, 840, 445),
    "XC7K355T": Capacity(222_600, 445_200, 1_440, 715),
    "XC7K410T": Capacity(254_200, 508_400, 1_540, 795),
    "XC7K420T": Capacity(260_600, 521_200, 1_680, 835),
    "XC7K480T": Capacity(298_600, 597_200, 1_920, 955),
    "XC7V585T": Capacity(364_200, 728_400, 1_260, 795),
    "XC7V2000T": Capacity(1_221_600, 2_443_200, 2_160, 1_292),
    "XC7VX330T": Capacity(204_000, 408_000, 1_120, 750),
    "XC7VX415T": Capacity(257_600, 515_200, 2_160, 880),
    "XC7VX485T": Capacity(303_600, 607_200, 2_800, 1_030),
    "XC7VX550T": Capacity(346_400, 692_800, 2_880, 1_180),
    "XC7VX690T": Capacity(433_200, 866_400, 3_600, 1_470),
    "XC7VX980T": Capacity(612_000, 1_224_000, 3_600, 1_500),
    "XC7VX1140T": Capacity(712_000, 1_424_000, 3_360, 1_880),
    "XC7VH580T": Capacity(362_800, 725_600, 1_680, 940),
    "XC7VH870T": Capacity(547_600, 1_095_200, 2_520, 1_410),
    "XC7Z007S": Capacity(14_400, 28_800, 66, 50),
    "XC7Z010": Capacity(17_600, 35_200, 80, 60),
    "XC7Z012S": Capacity(34_400, 68_800, 120, 72),
    "XC7Z014S": Capacity(40_600, 81_200, 170, 107),
    "XC7Z015": Capacity(46_200, 92_400, 160, 95),
    "XC7Z020": Capacity(53_200, 106_400, 220, 140),
    "XC7Z030": Capacity(78_600, 157_200, 400, 265),
    "XC7Z035": Capacity(171_900, 343_800, 900, 500),
    "XC7Z045": Capacity(218_600, 437_200, 900, 545),
    "XC7Z100": Capacity(277_400, 554_800, 2_020, 755),
}

#: Pattern of part numbers as Vivado writes them, such as xc7z020clg400-1 and xc7a35ticsg324-1L: grade, device without
#: XC, industrial or not, package, speed.
PART = re.compile(r"x[caq](7[a-z]{1,2}\d+[st]?)i?[a-z]{2,4}\d+-[1-3][a-z]{0,2}")

#: Timing model of a LUT6_2, as Yosys has no delays for it. Both outputs have the delays of a LUT6. I4 is the late input
#: of O6: no O5 of `CarryChains` depends on it.
LUT6_2_MODEL = """\
module LUT6_2 (output O6, output O5, input I0, I1, I2, I3, I4, I5);
  parameter [63:0] INIT = 0;
  specify
    (I0 => O6) = 642; (I1 => O6) = 631; (I2 => O6) = 472; (I3 => O6) = 407; (I4 => O6) = 238; (I5 => O6) = 127;
    (I0 => O5) = 642; (I1 => O5) = 631; (I2 => O5) = 472; (I3 => O5) = 407;
  endspecify
endmodule
"""

YOSYS = YosysFlow(
    command="synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top top",
    timing_libraries=("+/xilinx/cells_sim.v", "+/xilinx/cells_xtra.v"),
    timing_models=LUT6_2_MODEL,
    lut_cells={
        **{f"LUT{inputs}": 1 for inputs in range(1, 7)},
        **{"INV": 1, "LUT6_2": 1, "SRL16E": 1, "SRLC32E": 1, "RAM32X1D": 2, "RAM64X1D": 2, "RAM32M": 4, "RAM64M": 4},
    },
    flip_flops=frozenset({"FDRE", "FDSE", "FDCE", "FDPE"}),
    block_rams={"RAMB36E1": 1, "RAMB18E1": 0.5},
    free_cells=frozenset({"CARRY4", "MUXF7", "MUXF8", "BUFG", "GND", "VCC"}),
    clock_pins=re.compile(r"C|W?CLK\w*"),
)


def zynq_script() -> str:
    """Return the part of Vivado's ``project.tcl`` that sets up the Zynq-7000 processing system."""
    return script("xilinx7/zynq.tcl") + script("processor.tcl")


def pcie_script() -> str:
    """Return the part of Vivado's ``project.tcl`` that sets up PCI Express with XDMA, and DDR3 memory."""
    return script("xilinx7/xdma.tcl")


#: Vivado's names for the 7 series. A Zynq-7000 receives 16 interrupts from the logic (UG585, IRQ_F2P). Virtex-7 devices
#: have PCI Express blocks of generation 2 (5 GT/s) or 3 (DS180); PG195 has XDMA's widths and channels for both.
VIVADO = VivadoFlow(
    ip_families=("artix7", "kintex7", "spartan7", "virtex7", "zynq"),
    hosts=(
        Processor(device_prefixes=("XC7Z",), project_script=zynq_script, interrupts=16),
        PciExpress(
            device_prefixes=("XC7V585T", "XC7V2000T", "XC7VX485T"),
            project_script=pcie_script,
            link_speed="5.0_GT/s",
            data_bits=128,
            channels=2,
        ),
        PciExpress(
            device_prefixes=("XC7VX",), project_script=pcie_script, link_speed="8.0_GT/s", data_bits=256, channels=4
        ),
    ),
)

XILINX7 = Device(
    name="xilinx7",
    title="7 series",
    part_pattern=PART,
    part_beginning=re.compile(r"x[caq]7"),
    part_example="xc7z010clg400-1",
    spelled=vivado_part,
    part_form="device with package, speed grade of 1 to 3",
    device_prefix="XC",
    capacities=CAPACITIES,
    multiplier_slice=DSP48E1,
    memories=MEMORIES,
    logic=LOGIC,
    adders=CarryChains(CARRY4),
    yosys=YOSYS,
    vivado=VIVADO,
)
