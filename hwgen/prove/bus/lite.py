"""Observer of writes on an AXI4-Lite register bus, for proofs of register banks and bus shells."""

from __future__ import annotations

__all__ = ["write_lines"]


def write_lines(bus: str) -> list[str]:
    """Return lines of an observer of writes on an AXI4-Lite bus, whose ports begin with ``bus``.

    ``writes`` is high in the cycle in which a write of ``data`` to the word at ``address`` takes effect. ``enabled``
    has the bits of the bytes that it changes.
    """
    return [
        "reg has_address = 0; reg has_data = 0; reg [9:0] address; reg [31:0] data; reg [3:0] strobe;",
        f"wire writes = has_address & has_data & !{bus}__bvalid;",
        "always @(posedge clk) begin",
        f"    has_address <= !rst & !writes & (has_address | {bus}__awvalid & {bus}__awready);",
        f"    has_data <= !rst & !writes & (has_data | {bus}__wvalid & {bus}__wready);",
        f"    if ({bus}__awvalid & {bus}__awready) address <= {bus}__awaddr >> 2;",
        f"    if ({bus}__wvalid & {bus}__wready) begin data <= {bus}__wdata; strobe <= {bus}__wstrb; end",
        "end",
        "wire [31:0] enabled = {{8{strobe[3]}}, {8{strobe[2]}}, {8{strobe[1]}}, {8{strobe[0]}}};",
    ]
