"""Proof obligations of a register bank: AXI4-Lite's rules, and the effects of software's reads and writes.

Arm IHI 0022, chapter B1: a valid transfer stays unchanged until it is accepted, and each access is answered once.
"""

from __future__ import annotations

from hwgen.gateware.bus.lite import BITS, BankConfig
from hwgen.gateware.bus.registers import REGISTER_BYTES, Register
from hwgen.obligations import observers
from hwgen.obligations.obligation import Obligation, Proofs, Site
from hwgen.obligations.streams import held, no_path

_MAX_OPEN = 7
"""Maximum number of bus accesses in progress that the proof's observer can count."""


def obligations(config: BankConfig, site: Site) -> list[Obligation]:
    """Return a list of proof obligations of a register bank: AXI4-Lite's rules, and the effects of reads and writes."""
    written, write_rules = held("bvalid", "bus__bvalid", "bus__bready", {})
    read, read_rules = held("rvalid", "bus__rvalid", "bus__rready", {"bus__rdata": BITS})
    answered = "(bus__bvalid & bus__bready)"
    rules = site.obligation(
        "bus",
        "Each AXI4-Lite access is answered once, and its answer stays valid until it is accepted.",
        methods=("pdr",),
        observer=(
            *written,
            *read,
            *observers.balance("addresses", _MAX_OPEN, "(bus__awvalid & bus__awready)", answered),
            *observers.balance("words", _MAX_OPEN, "(bus__wvalid & bus__wready)", answered),
            *observers.balance("reads", _MAX_OPEN, "(bus__arvalid & bus__arready)", "(bus__rvalid & bus__rready)"),
            "wire is_due = (addresses != 0) & (words != 0) & !bus__bvalid;",
            *observers.register("was_due", "is_due"),
        ),
        asserts={
            **write_rules,
            **read_rules,
            "a write is answered once, after its address and its data": (
                "(!bus__bvalid | ((addresses != 0) & (words != 0))) & (addresses <= 2) & (words <= 2)"
            ),
            "a write is answered a cycle after its address and its data at the latest": "!(is_due & was_due)",
            "a read is answered once, in the next cycle": "reads == bus__rvalid",
        },
        cover="bvalid_waits & bus__bvalid & rvalid_waits & bus__rvalid",
    )
    answers = ["bus__bvalid", "bus__rvalid", "bus__rdata"]
    path = no_path(site, "bready and rready to answers", ["bus__bready", "bus__rready"], answers)
    return [rules, path, *_access_effects(config, site)]


def _access_effects(config: BankConfig, site: Site) -> list[Obligation]:
    """Return a list with one obligation, the effects of software's reads and writes; empty without writable registers.

    Registers without a port, whose value is not a constant, are read in the obligation of the shell.
    """
    stored = [register for register in config.registers if register.access == "rw"]
    if not stored:
        return []
    lines, facts = [], {}
    for register in config.registers:
        more_lines, more_facts = _write_lines(register, site)
        lines += more_lines
        facts |= more_facts
    read_lines, read_facts = _read_lines(config, site)
    return [
        site.obligation(
            "registers",
            "A write changes the enabled bytes of the register at its address, once, and no other; a read returns it.",
            methods=("pdr",),
            observer=(*write_lines("bus"), *lines, *read_lines),
            asserts=facts | read_facts,
            cover=f"has_read & bus__rvalid & ({stored[0].name.lower()} != {stored[0].reset})",
        )
    ]


def _write_lines(register: Register, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines, and a dict of assertions, on a write to a register of its `Access` kind."""
    name, mask, hit = register.name.lower(), _mask(register), _is_written(register)
    if register.access == "rw":
        site.first(name)
        value = f"{hit} ? ((data & enabled | want_{name} & ~enabled) & 32'd{mask}) : want_{name}"
        facts = {f"{register.name} has the bytes that were written last": f"{name} == want_{name}"}
        return observers.register(f"want_{name}", value, BITS, register.reset), facts
    if register.access in ("w", "w1s") and not site.has(name):  # no part of the design reads it
        return [], {}
    if register.access == "w1s":
        pulse = f"{hit} ? data & enabled & 32'd{mask} : 32'd0"
        return [], {f"{register.name} pulses with the bits that are written": f"{name} == ({pulse})"}
    if register.access == "w":
        facts = {f"{register.name} is the data of its write": f"!{hit} | ({name} == (data & enabled))"}
        if site.has(f"{name}_written"):
            facts[f"{register.name} pulses with its write"] = f"{name}_written == {hit}"
        return [], facts
    return _cleared_lines(register, site) if register.access == "w1c" else ([], {})


def _cleared_lines(register: Register, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines, and a dict of assertions, for a register whose bits software clears by ones."""
    name, mask, hit = register.name.lower(), _mask(register), _is_written(register)
    reset = "(rst | clear)" if site.has("clear") else "rst"
    remaining = f"{name} & ~({hit} ? data & enabled : 32'd0)"
    raised = f"{site.word(f'{name}_raise', BITS)} & 32'd{mask}"
    lines = [
        *observers.register(f"kept_{name}", remaining, BITS, reset=reset),
        *observers.register(f"raised_{name}", raised, BITS, reset=reset),
    ]
    facts = {f"{register.name} keeps its bits until they are cleared": f"(kept_{name} & ~{name}) == 0"}
    facts[f"{register.name} has the raised bits, and those that are not cleared"] = (
        f"{name} == (kept_{name} | raised_{name})"
    )
    return lines, facts


def _read_lines(config: BankConfig, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines, and a dict of assertions that a read returns the addressed register's value.

    An address without a register reads as 0.
    """
    address, shown, facts = "bus__araddr[11:2]", "32'd0", {}
    for register in config.registers:
        name, index = register.name.lower(), register.offset // REGISTER_BYTES
        if register.access in ("w", "w1s"):
            continue
        value = f"want_{name}" if register.access == "rw" else site.word(name, 32)
        if register.access == "r" and not site.slices(name, 32):
            value = f"32'd{register.reset}"
        shown = f"({address} == {index}) ? {value} : {shown}"
        if site.has(f"{name}_read"):
            facts[f"{register.name} pulses with its read"] = (
                f"{name}_read == (bus__arvalid & bus__arready & ({address} == {index}))"
            )
    lines = [
        "reg [31:0] read_value; reg has_read = 0;",
        "always @(posedge clk) if (bus__arvalid & bus__arready) begin",
        f"    read_value <= {shown}; has_read <= !rst;",
        "end else has_read <= has_read & !rst & !(bus__rvalid & bus__rready);",
    ]
    facts["a read returns the register at its address"] = "!has_read | !bus__rvalid | (bus__rdata == read_value)"
    return lines, facts


def _mask(register: Register) -> int:
    return sum(part.mask for part in register.fields)


def _is_written(register: Register) -> str:
    """Return a Verilog expression that is true while a write to ``register`` takes effect."""
    return f"(writes & (address == {register.offset // REGISTER_BYTES}))"


def write_lines(bus: str) -> list[str]:
    """Return a list of Verilog lines that track the writes on an AXI4-Lite bus whose port names start with ``bus``.

    ``writes`` is high while a write of ``data`` to the word at ``address`` takes effect. ``enabled`` has the bits of
    the bytes that it changes.
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


PROOFS = {BankConfig: Proofs((obligations,))}
