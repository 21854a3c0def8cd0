"""AXI4 master interface of the engine (Arm IHI 0022, AMBA AXI protocol specification, issue H, chapters A2 and A3)."""

from __future__ import annotations

from amaranth import Module
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from hwgen.errors import ConfigError

#: Maximum number of beats in an incrementing AXI4 burst (section A3.4.1).
MAX_BEATS = 256
#: Distance in bytes between the address boundaries that no AXI burst can cross: 4 KiB (section A3.4.1).
BORDER_BYTES = 4096


class Burst(enum.Enum, shape=2):
    """Values of the AXI burst type (AxBURST), which says how the address changes from beat to beat (table A3-3)."""

    FIXED = 0
    INCREMENTING = 1
    WRAPPING = 2


class Response(enum.Enum, shape=2):
    """Values of the AXI response (RRESP, BRESP) to a transfer (table A3-4); `SLAVE_ERROR` and above are errors."""

    OKAY = 0
    EXCLUSIVE_OKAY = 1
    SLAVE_ERROR = 2
    DECODE_ERROR = 3


class Master(wiring.Signature):
    """Signature of an AXI4 master port without transaction identifiers, so responses arrive in order.

    Signals have the names of the specification, in lower case.

    Parameters
    ----------
    data_bytes : int
        Width of the data bus in bytes, a power of two from 1 to 128.
    address_bits : int
        Width of a byte address, in bits.

    Raises
    ------
    ConfigError
        If AXI has no such data width.
    """

    def __init__(self, *, data_bytes: int = 8, address_bits: int = 32):
        if data_bytes not in [1 << power for power in range(8)]:
            raise ConfigError(f"data_bytes must be a power of two from 1 to 128, not {data_bytes!r}")
        self.data_bytes = data_bytes
        self.address_bits = address_bits
        members: dict[str, wiring.Member] = {}
        for channel in ("aw", "ar"):
            members |= {
                f"{channel}addr": Out(address_bits),
                f"{channel}len": Out(8),
                f"{channel}size": Out(3),
                f"{channel}burst": Out(Burst),
                f"{channel}cache": Out(4),
                f"{channel}prot": Out(3),
                f"{channel}valid": Out(1),
                f"{channel}ready": In(1),
            }
        members |= {
            "wdata": Out(8 * data_bytes),
            "wstrb": Out(data_bytes),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bresp": In(Response),
            "bvalid": In(1),
            "bready": Out(1),
            "rdata": In(8 * data_bytes),
            "rresp": In(Response),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
        super().__init__(members)


def size_of(data_bytes: int) -> int:
    """Return the value of AxSIZE (base-2 logarithm) for beats of ``data_bytes`` bytes (table A3-2)."""
    return data_bytes.bit_length() - 1


def drive_constants(m: Module, bus: wiring.PureInterface) -> None:
    """Drive the constant signals of an AXI master: incrementing bursts, normal memory, and no protection.

    Normal memory is bufferable and modifiable.
    """
    for channel in ("aw", "ar"):
        m.d.comb += [
            getattr(bus, f"{channel}burst").eq(Burst.INCREMENTING),
            getattr(bus, f"{channel}cache").eq(0b0011),
            getattr(bus, f"{channel}prot").eq(0),
        ]
