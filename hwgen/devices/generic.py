"""Device family for unknown makers: Verilog without vendor cells, and no files for vendor tools.

Budgets of such a device come from a board's TOML file. Plans count LUTs of 6 inputs and slices with a multiplier of 25
x 18 bits.
"""

from __future__ import annotations

import re

from hwgen.devices.device import Device
from hwgen.devices.xilinx7 import DSP48E1, LOGIC, MEMORIES

GENERIC = Device(
    name="generic",
    title="unknown",
    part_pattern=re.compile(r"(?!)"),  # no part
    part_beginning=re.compile(r"(?!)"),
    part_example="",
    part_form="",
    device_prefix="",
    capacities={},
    multiplier_slice=DSP48E1,
    memories=MEMORIES,
    logic=LOGIC,
    adders=None,
    yosys=None,
    vivado=None,
    note="hwgen does not know the family of the board's part: Verilog without a vendor's cells, no files for its tools",
)
