"""Obligations ``bus``: ports on AXI4-Lite and AXI4-Stream keep the rules of Arm's specifications.

Arm IHI 0022 (AXI4-Lite, chapter B1) and IHI 0051 (AXI4-Stream): what is offered stays, unchanged, until it is taken,
and each access is answered once. See also `hwgen.prove.engine.port` for the AXI4 master of an engine.
"""

from __future__ import annotations

from typing import Any

from hwgen.gateware.bus.lite import BITS, BankConfig
from hwgen.gateware.bus.registers import REGISTER_BYTES, Register
from hwgen.gateware.bus.shell import EndConfig, ShellConfig
from hwgen.gateware.guard import PACKET
from hwgen.gateware.guard_proof import packet_ports
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.site import Site
from hwgen.prove.bus import shell_logic
from hwgen.prove.bus.lite import write_lines

__all__ = ["held", "of_bank", "of_shell", "shell_parts"]


def held(
    channel: str, valid: str, ready: str, values: dict[str, int], reset: str = "rst"
) -> tuple[list[str], dict[str, str]]:
    """Return an observer's lines, and the rules that an offer on a bus channel stays until it is taken.

    Parameters
    ----------
    channel : str
        Name of the channel, with which the observer's registers begin.
    valid, ready : str
        Verilog expressions of the handshake.
    values : dict of str to int
        Widths of the signals that must not change meanwhile, by name.
    reset : str
        Verilog expression of a reset, which withdraws an offer.
    """
    lines = [
        f"reg {channel}_waits = 0;",
        f"always @(posedge clk) {channel}_waits <= {valid} & !{ready} & !({reset});",
    ]
    facts = {f"{channel} stays valid until it is taken": f"!{channel}_waits | {valid}"}
    for name, width in values.items():
        lines += [f"reg [{width - 1}:0] {name}_was;", f"always @(posedge clk) {name}_was <= {name};"]
        facts[f"{name} holds until it is taken"] = f"!{channel}_waits | ({name} == {name}_was)"
    return lines, facts


def _outstanding(name: str, begins: str, ends: str) -> list[str]:
    """Return lines of an observer that count what has begun and not ended."""
    return [
        f"reg [2:0] {name} = 0;",
        f"always @(posedge clk) {name} <= rst ? 0 : {name} + ({begins}) - ({ends});",
    ]


def of_bank(config: BankConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a register bank: the rules of AXI4-Lite, and the effects of software's writes."""
    written, write_rules = held("bvalid", "bus__bvalid", "bus__bready", {})
    read, read_rules = held("rvalid", "bus__rvalid", "bus__rready", {"bus__rdata": BITS})
    answered = "bus__bvalid & bus__bready"
    rules = site.obligation(
        "bus",
        "Each AXI4-Lite access is answered once, and its answer stays until it is taken.",
        methods=("pdr",),
        observer=(
            *written,
            *read,
            *_outstanding("addresses", "bus__awvalid & bus__awready", answered),
            *_outstanding("words", "bus__wvalid & bus__wready", answered),
            *_outstanding("reads", "bus__arvalid & bus__arready", "bus__rvalid & bus__rready"),
            "wire is_due = (addresses != 0) & (words != 0) & !bus__bvalid;",
            "reg was_due = 0;",
            "always @(posedge clk) was_due <= is_due & !rst;",
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
    path = site.obligation(
        "path",
        "No combinational path leads from bready and rready to answers.",
        methods=("structure",),
        structure={
            "no_path": {"from": ["bus__bready", "bus__rready"], "to": ["bus__bvalid", "bus__rvalid", "bus__rdata"]}
        },
    )
    return [rules, path, *_registers(config, site)]


def _registers(config: BankConfig, site: Site) -> list[Obligation]:
    """Return the obligation of the effects of software's reads and writes.

    Registers without a port, whose value is not a constant, are read in the obligation of the shell.
    """
    stored = [register for register in config.registers if register.access == "rw"]
    if not stored:
        return []
    lines, facts = [], {}
    for register in config.registers:
        more_lines, more_facts = _written(register, site)
        lines += more_lines
        facts |= more_facts
    read_lines, read_facts = _read(config, site)
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


def _written(register: Register, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return lines of an observer, and facts, of what a write to a register does, by its kind of access."""
    name, mask, hit = register.name.lower(), _mask(register), _hit(register)
    if register.access == "rw":
        site.first(name)
        value = f"{hit} ? ((data & enabled | want_{name} & ~enabled) & 32'd{mask}) : want_{name}"
        lines = [
            f"reg [31:0] want_{name} = {register.reset};",
            f"always @(posedge clk) want_{name} <= rst ? {register.reset} : {value};",
        ]
        return lines, {f"{register.name} has the bytes that were written last": f"{name} == want_{name}"}
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
    return _cleared(register, site) if register.access == "w1c" else ([], {})


def _cleared(register: Register, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return lines and facts of a register whose bits stay until software clears them by writing ones."""
    name, mask, hit = register.name.lower(), _mask(register), _hit(register)
    reset = "(rst | clear)" if site.has("clear") else "rst"
    lines = [
        f"reg [31:0] kept_{name} = 0;",
        f"always @(posedge clk) kept_{name} <= {reset} ? 0 : {name} & ~({hit} ? data & enabled : 32'd0);",
    ]
    facts = {f"{register.name} keeps its bits until they are cleared": f"(kept_{name} & ~{name}) == 0"}
    raised = f"{site.word(f'{name}_raise', 32)} & 32'd{mask}"
    lines.append(f"reg [31:0] raised_{name} = 0;")
    lines.append(f"always @(posedge clk) raised_{name} <= {reset} ? 0 : {raised};")
    facts[f"{register.name} has the raised bits, and those that are not cleared"] = (
        f"{name} == (kept_{name} | raised_{name})"
    )
    return lines, facts


def _read(config: BankConfig, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return lines of an observer of reads, and the facts that each returns the register at its address.

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


def _hit(register: Register) -> str:
    """Return the Verilog expression that a write to ``register`` takes effect in this cycle."""
    return f"(writes & (address == {register.offset // REGISTER_BYTES}))"


def shell_parts(config: ShellConfig) -> dict[str, Any]:
    """Return the configurations of a bus shell's register bank, guards and width converters, by instance."""
    parts: dict[str, Any] = {"registers": config.bank}
    for end in config.inputs:
        parts |= {f"{end.name}_guard": end.guard, f"{end.name}_repack": end.repack(end.words, end.beats)}
    return parts | {f"{end.name}_repack": end.repack(end.beats, end.words) for end in config.outputs}


def of_shell(config: ShellConfig, site: Site) -> list[Obligation]:
    """Return the obligations of a bus shell: AXI4-Stream's rules at each output, and the wires of all streams."""
    sizes = [_size(end, site) for end in config.inputs if end.guard.packets]
    return [
        *(output for end in config.outputs for output in _of_output(config, end, site)),
        *shell_logic.obligations(config, site),
        *sizes,
    ]


def _size(end: EndConfig, site: Site) -> Obligation:
    """Return the obligation that a guard is told the size of packets as its proof assumes: in time, between packets."""
    guard, fields = f"{end.name}_guard", dict(PACKET)
    ports = packet_ports(site.part(guard))
    bits = {name: f"packet[{field.offset + field.width - 1}:{field.offset}]" for name, field in fields.items()}
    has_beats = end.guard.beats > 1
    return site.obligation(
        "contract",
        f"The guard of {end.name} is told the size of packets before the first word after a reset, between packets.",
        methods=("pdr",),
        observer=(
            "reg has_size = 0;",
            f"always @(posedge clk) has_size <= !rst & !reset & (has_size | {bits['load']});",
            f"wire is_under_way = {'(beat_index != 0) | ' * has_beats}in_packet;",
            f"wire [{PACKET.size - 1}:0] packet = {{{', '.join(f'size_{index}' for index in range(len(ports)))}}};",
            "reg was_loaded = 0; reg was_single; reg will_be_single; reg [15:0] was_before_last;",
            "always @(posedge clk) begin",
            f"    was_loaded <= {bits['load']} & !rst; was_single <= {bits['single']};",
            f"    will_be_single <= {bits['next_single']}; was_before_last <= {bits['before_last']};",
            "end",
            "reg has_begun = 0; always @(posedge clk) has_begun <= !rst;",
        ),
        sees={
            **{f"size_{index}": f"{guard}.{port}" for index, port in enumerate(ports)},
            "in_packet": f"{guard}.in_packet",
            "guard_valid": f"{guard}.i__valid",
            "guard_ready": f"{guard}.i__ready",
            **({"beat_index": f"{guard}.beat_index"} if has_beats else {}),
        },
        asserts={
            "a size is told before the first word": "has_size | !guard_valid",
            "a size is told between packets": (
                f"!{bits['load']} | reset | (!is_under_way & !(guard_valid & guard_ready))"
            ),
            "the size is the one that was told": (
                f"!has_begun | (was_loaded ? ({bits['single']} == will_be_single) : (({bits['single']} == was_single) "
                f"& ({bits['before_last']} == was_before_last)))"
            ),
        },
        cover=f"{bits['load']} & !was_single & has_begun",
        keeps=(guard,),
    )


def _of_output(config: ShellConfig, end: EndConfig, site: Site) -> list[Obligation]:
    """Return the obligations of one output stream of a bus shell, whose words come from a width converter.

    Software's reset withdraws words, as ``aresetn`` does. A word can only leave after a frame has begun to come in.
    Until the frame has left on all outputs, the number of frames per packet does not change. The shell knows both from
    its counters of frames.
    """
    name, repack = end.name, f"{end.name}_repack"
    widths = {f"{name}__tdata": 8 * end.width, f"{name}__tlast": 1}
    if site.has(f"{name}__tkeep"):
        widths[f"{name}__tkeep"] = end.width
    lines, facts = held(name, f"{name}__tvalid", f"{name}__tready", widths, "rst | reset")
    flights = {
        f"{stream.name}_{state}": f"{stream.name}_{state}"
        for stream in config.inputs
        for state in ("in_frame", "frame_entered", "frames")
    }
    counted = f"{name}_frames"
    begun = " | ".join(
        f"{stream.name}_in_frame | {stream.name}_frame_entered | ({stream.name}_frames != {counted})"
        for stream in config.inputs
    )
    last = f"from_{repack}[{8 * end.width // (8 * end.value_bytes) * end.port.beat.bits}]"
    full, final = (1 << end.width) - 1, end.final_keep
    keep = f"{name}__tkeep" if site.has(f"{name}__tkeep") else f"{end.width}'d{full}"
    offers = {"tvalid": f"{name}__tvalid", "tready": f"{name}__tready"}
    return [
        site.obligation(
            "bus",
            f"A word that {name} offers stays as it is until it is taken, and only a packet's last word is partial.",
            methods=("pdr",),
            observer=tuple(lines),
            sees={**flights, counted: counted, f"from_{repack}": f"{repack}.o__payload"},
            assumes={f"{name} offers words of frames that have begun to come in": f"!{name}__tvalid | {begun}"},
            asserts={
                **facts,
                f"{name}.tkeep has all bytes but those past the end of a packet": (
                    f"!{name}__tvalid | ({keep} == ({name}__tlast ? {final} : {full}))"
                ),
                f"{name}.tlast marks last words of frames only": f"!{name}__tvalid | !{name}__tlast | {last}",
            },
            cover=f"{name}_waits & {name}__tvalid",
            keeps=(repack,),
        ),
        site.obligation(
            "path",
            f"No combinational path leads from {offers['tready']} to what {name} offers.",
            methods=("structure",),
            structure={"no_path": {"from": [offers["tready"]], "to": [offers["tvalid"], *widths]}},
            keeps=(repack,),
        ),
    ]
