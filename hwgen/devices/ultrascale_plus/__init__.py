"""Device family UltraScale+: Artix, Kintex and Virtex, Zynq UltraScale+ MPSoC and RFSoC, and Kria modules.

Sources: AMD DS890 and DS891 (capacities), DS987 and DS985 (Kria K26 and K24), UG573 (block RAM, UltraRAM), UG574
(LUTs), UG579 (DSP slices).

LUTs, block RAM and registers have the shapes of the 7 series, so that circuits and their costs are the same. LUT RAM
differs: eight LUTs hold 14 bits of 32 words, where the 7 series takes four LUTs for 6 bits. Yosys 0.66 has no delays of
these devices.
"""

from __future__ import annotations

import re
from dataclasses import replace

from hwgen.devices.device import Capacity, Device
from hwgen.devices.flow import Processor, VivadoFlow, YosysFlow, script, vivado_part
from hwgen.devices.memory import URAM288, LutRow
from hwgen.devices.ultrascale_plus.dsp48e2 import DSP48E2_CHAINS
from hwgen.devices.xilinx7 import DSP48E1, LOGIC, MEMORIES
from hwgen.devices.xilinx7.carry_chains import CARRY8, CarryChains

#: Description of the UltraScale+ DSP slice (UG579, figure 2-1), a wider one of the 7 series.
DSP48E2 = replace(DSP48E1, cell="DSP48E2", wide_bits=27, chains=DSP48E2_CHAINS)

#: LUTs, flip-flops, DSP slices, block RAMs and UltraRAMs of the Zynq devices, with the endings of their names. The
#: endings differ in the processing system only.
_ZYNQ = {
    "XCZU1": (("CG", "EG"), Capacity(37_440, 74_880, 216, 108)),
    "XCZU2": (("CG", "EG"), Capacity(47_232, 94_464, 240, 150)),
    "XCZU3": (("CG", "EG"), Capacity(70_560, 141_120, 360, 216)),
    "XCZU4": (("CG", "EG", "EV"), Capacity(87_840, 175_680, 728, 128, 48)),
    "XCZU5": (("CG", "EG", "EV"), Capacity(117_120, 234_240, 1_248, 144, 64)),
    "XCZU6": (("CG", "EG"), Capacity(214_604, 429_208, 1_973, 714)),
    "XCZU7": (("CG", "EG", "EV"), Capacity(230_400, 460_800, 1_728, 312, 96)),
    "XCZU9": (("CG", "EG"), Capacity(274_080, 548_160, 2_520, 912)),
    "XCZU11": (("EG",), Capacity(298_560, 597_120, 2_928, 600, 80)),
    "XCZU15": (("EG",), Capacity(341_280, 682_560, 3_528, 744, 112)),
    "XCZU17": (("EG",), Capacity(423_403, 846_806, 1_590, 796, 102)),
    "XCZU19": (("EG",), Capacity(522_720, 1_045_440, 1_968, 984, 128)),
    "XCZU28": (("DR",), Capacity(425_280, 850_560, 4_272, 1_080, 80)),
    "XCZU48": (("DR",), Capacity(425_280, 850_560, 4_272, 1_080, 80)),
}

#: LUTs, flip-flops, DSP slices, block RAMs and UltraRAMs of each device, by its name. LUTs and flip-flops of the Artix
#: devices are from AMD's selection guide XMP103, which rounds to thousands.
CAPACITIES = {
    "XCAU7P": Capacity(37_000, 75_000, 216, 108),
    "XCAU10P": Capacity(44_000, 88_000, 400, 100),
    "XCAU15P": Capacity(78_000, 156_000, 576, 144),
    "XCAU20P": Capacity(109_000, 218_000, 900, 200),
    "XCAU25P": Capacity(141_000, 282_000, 1_200, 300),
    "XCKU3P": Capacity(162_720, 325_440, 1_368, 360, 48),
    "XCKU5P": Capacity(216_960, 433_920, 1_824, 480, 64),
    "XCKU9P": Capacity(274_080, 548_160, 2_520, 912),
    "XCKU11P": Capacity(298_560, 597_120, 2_928, 600, 80),
    "XCKU13P": Capacity(341_280, 682_560, 3_528, 744, 112),
    "XCKU15P": Capacity(522_720, 1_045_440, 1_968, 984, 128),
    "XCVU3P": Capacity(394_080, 788_160, 2_280, 720, 320),
    "XCVU5P": Capacity(600_577, 1_201_154, 3_474, 1_024, 470),
    "XCVU7P": Capacity(788_160, 1_576_320, 4_560, 1_440, 640),
    "XCVU9P": Capacity(1_182_240, 2_364_480, 6_840, 2_160, 960),
    "XCVU11P": Capacity(1_296_000, 2_592_000, 9_216, 2_016, 960),
    "XCVU13P": Capacity(1_728_000, 3_456_000, 12_288, 2_688, 1_280),
    "XCK24": Capacity(70_560, 141_120, 360, 216),
    "XCK26": Capacity(117_120, 234_240, 1_248, 144, 64),
    **{f"{name}{ending}": capacity for name, (endings, capacity) in _ZYNQ.items() for ending in endings},
}

#: Pattern of part numbers as Vivado writes them, such as xczu3eg-sbva484-1-e and xck26-sfvc784-2LV-c: grade, device
#: without XC, package, speed, temperature, and es1 of an engineering sample.
PART = re.compile(r"x[caq]([akv]u\d+p|zu\d+[a-z]{2}|k2\d)-[a-z]{4}\d+-[1-3][a-z]{0,2}-[a-z](?:-es\d)?")

#: Options of all steps of Yosys' ``synth_xilinx``.
_OPTIONS = "-flatten -noiopad -noclkbuf -top top"

#: Parameters of Yosys' ``mul2dsp.v``: as in its mapping for the 7 series, with a wide operand of 27 bits.
_PRODUCTS = " ".join(
    f"-D DSP_{name}={value}"
    for name, value in {
        "A_MAXWIDTH": DSP48E2.wide_bits,
        "B_MAXWIDTH": DSP48E2.narrow_bits,
        "A_MAXWIDTH_PARTIAL": 18,
        "SIGNEDONLY": 1,
        "A_MINWIDTH": 2,
        "B_MINWIDTH": 2,
        "Y_MINWIDTH": 9,
        "NAME": "$__MUL27X18",
    }.items()
)

#: Yosys packs the registers of DSP slices for the 7 series only. DSP48E2 has the registers and cascades of DSP48E1, so
#: products are mapped to slices of 27 x 18 bits, which are called DSP48E1 while their registers are packed. The steps
#: between are the same as in ``synth_xilinx`` for the 7 series. Everything else is mapped as for UltraScale+. Yosys
#: maps adders to CARRY4, half a CARRY8. If packing uses the adder before the multiplier, it sets ``USE_DPORT``, which
#: DSP48E2 does not have.
YOSYS = YosysFlow(
    command=(
        f"synth_xilinx -family xc7 {_OPTIONS} -run :map_dsp; chtype -set $__instantiated t:DSP48E2; memory_dff; "
        f"techmap -map +/mul2dsp.v -map +/xilinx/xcu_dsp_map.v {_PRODUCTS}; "
        "select a:mul2dsp; setattr -unset mul2dsp; opt_expr -fine; wreduce; select -clear; "
        "chtype -set DSP48E1 t:DSP48E2; xilinx_dsp -family xc7; "
        "setparam -unset USE_DPORT t:DSP48E1; chtype -set DSP48E2 t:DSP48E1 t:$__instantiated; "
        "chtype -set $mul t:$__soft_mul; "
        f"synth_xilinx -family xcup -uram {_OPTIONS} -run coarse:"
    ),
    timing_libraries=(),
    timing_models="",
    lut_cells={
        **{f"LUT{inputs}": 1 for inputs in range(1, 7)},
        **{"INV": 1, "LUT6_2": 1, "SRL16E": 1, "SRLC32E": 1, "RAM32M16": 8, "RAM64M8": 8},
    },
    flip_flops=frozenset({"FDRE", "FDSE", "FDCE", "FDPE"}),
    block_rams={"RAMB36E2": 1, "RAMB18E2": 0.5},
    free_cells=frozenset({"CARRY4", "CARRY8", "MUXF7", "MUXF8", "MUXF9", "BUFG", "GND", "VCC"}),
    clock_pins=re.compile(r"C|W?CLK\w*"),
    ultra_rams=frozenset({"URAM288"}),
)


def zynq_script() -> str:
    """Return the part of Vivado's ``project.tcl`` that sets up the Zynq UltraScale+ processing system."""
    return script("ultrascale_plus/zynq.tcl") + script("processor.tcl")


#: Vivado's names for UltraScale+. A Zynq UltraScale+ or a Kria module receives 16 interrupts from the logic (PG201):
#: eight on the port pl_ps_irq0, which is used, and eight on pl_ps_irq1.
VIVADO = VivadoFlow(
    ip_families=("artixuplus", "kintexuplus", "virtexuplus", "zynquplus", "zynquplusRFSOC"),
    hosts=(Processor(device_prefixes=("XCZU", "XCK2"), project_script=zynq_script, interrupts=8),),
)

ULTRASCALE_PLUS = Device(
    name="ultrascale+",
    title="UltraScale+",
    part_pattern=PART,
    part_beginning=re.compile(r"x[caq](?:[akv]u\d+p|zu|k2)"),
    part_example="xczu3eg-sbva484-1-e",
    spelled=vivado_part,
    part_form="device, package, speed grade of 1 to 3, temperature grade",
    device_prefix="XC",
    capacities=CAPACITIES,
    multiplier_slice=DSP48E2,
    memories=replace(MEMORIES, lut_rows=(LutRow(32, 14, 8), LutRow(64, 7, 8)), ultra=URAM288),
    logic=LOGIC,
    adders=CarryChains(CARRY8),
    yosys=YOSYS,
    vivado=VIVADO,
)
