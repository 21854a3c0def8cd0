"""Proof obligations of an accelerator's bus shell: AXI4-Stream's rules, values of words, counters, errors, interrupts.

Arm IHI 0051: a valid word stays unchanged until it is accepted. An observer follows the transfers on the buses, and
counts frames and packets itself. The only shell register that it reads is the number of the frame in a packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.gateware.bus.lite_proof import write_lines
from hwgen.gateware.bus.registers import REGISTER_BYTES, WEIGHTS_ERROR_BIT
from hwgen.gateware.bus.shell import BusStreamConfig, ShellConfig
from hwgen.gateware.guard import PACKET, PACKET_BITS
from hwgen.gateware.guard_proof import packet_ports
from hwgen.obligations.composition import composition, domain_wires, has_port
from hwgen.obligations.obligation import Obligation, Proofs, Site, field_bits
from hwgen.obligations.observers import register
from hwgen.obligations.streams import held, no_path


def shell_parts(config: ShellConfig) -> dict[str, Any]:
    """Return a dict by instance name of a bus shell's component configurations: registers, guards, converters."""
    parts: dict[str, Any] = {"registers": config.bank}
    for end in config.inputs:
        parts |= {f"{end.name}_guard": end.guard, f"{end.name}_repack": end.repack(end.words, end.beats)}
    return parts | {f"{end.name}_repack": end.repack(end.beats, end.words) for end in config.outputs}


def obligations(config: ShellConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of an accelerator's bus shell: AXI4-Stream's rules, its wiring and its registers."""
    sizes = [_packet_size(end, site) for end in config.inputs if end.guard.packets]
    return [
        *(output for end in config.outputs for output in _output_obligations(config, end, site)),
        *_wiring(config, site),
        *sizes,
    ]


def _packet_size(end: BusStreamConfig, site: Site) -> Obligation:
    """Return the `Obligation` that an input's check of frame lengths gets the packet size only between packets."""
    guard = f"{end.name}_guard"
    ports = packet_ports(site.part(guard))
    bits = {name: field_bits("packet", PACKET, name) for name in ("single", "load", "next_single", "before_last")}
    has_beats = end.guard.beats > 1
    return site.obligation(
        "contract",
        f"The guard of {end.name} receives the size of packets before the first word after a reset, between packets.",
        methods=("pdr",),
        observer=(
            *register("has_size", f"!reset & (has_size | {bits['load']})"),
            f"wire is_under_way = {f'({guard}.beat_index != 0) | ' * has_beats}{guard}.in_packet;",
            f"wire [{PACKET.size - 1}:0] packet = {{{', '.join(f'{guard}.{port}' for port in ports)}}};",
            "reg was_loaded = 0; reg was_single; reg will_be_single; reg [15:0] was_before_last;",
            "always @(posedge clk) begin",
            f"    was_loaded <= {bits['load']} & !rst; was_single <= {bits['single']};",
            f"    will_be_single <= {bits['next_single']}; was_before_last <= {bits['before_last']};",
            "end",
            *register("has_begun", "1"),
        ),
        asserts={
            "the size is set before the first word": f"has_size | !{guard}.i__valid",
            "the size is set between packets": (
                f"!{bits['load']} | reset | (!is_under_way & !({guard}.i__valid & {guard}.i__ready))"
            ),
            "the size is the one that was set": (
                f"!has_begun | (was_loaded ? ({bits['single']} == will_be_single) : (({bits['single']} == was_single) "
                f"& ({bits['before_last']} == was_before_last)))"
            ),
        },
        cover=f"{bits['load']} & !was_single & has_begun",
        keeps=(guard,),
    )


def _output_obligations(config: ShellConfig, end: BusStreamConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations of one output AXI4-Stream of a bus shell: stable words, and no path from ready.

    Software's reset withdraws words, as ``aresetn`` does. A word can only leave after a frame has begun to come in.
    Until the frame has left on all outputs, the number of frames per packet does not change. The shell knows both from
    its counters of frames.
    """
    name, repack = end.name, f"{end.name}_repack"
    widths = {f"{name}__tdata": 8 * end.width, f"{name}__tlast": 1}
    if site.has(f"{name}__tkeep"):
        widths[f"{name}__tkeep"] = end.width
    lines, facts = held(name, f"{name}__tvalid", f"{name}__tready", widths, "rst | reset")
    begun = " | ".join(
        f"{stream.name}_in_frame | {stream.name}_frame_entered | ({stream.name}_frames != {name}_frames)"
        for stream in config.inputs
    )
    last = _last_bit(end)
    full, final = (1 << end.width) - 1, end.final_keep
    keep = f"{name}__tkeep" if site.has(f"{name}__tkeep") else f"{end.width}'d{full}"
    ready = f"{name}__tready"
    return [
        site.obligation(
            "bus",
            f"A valid word on {name} is stable until it is accepted, and only a packet's last word is partial.",
            methods=("pdr",),
            observer=tuple(lines),
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
        no_path(site, f"{ready} to what {name} offers", [ready], [f"{name}__tvalid", *widths], (repack,)),
    ]


_BANK = "registers"
_FRAMES = f"{_BANK}.packet_frames[{PACKET_BITS - 1}:0]"
#: Start of a Verilog line that sets an observer's registers.
_EDGE = "always @(posedge clk)"


def _wiring(config: ShellConfig, site: Site) -> list[Obligation]:
    """Return a list of obligations that a bus shell's wires, word values, counters, ``tlast`` and errors are right."""
    wires, rules, lines = domain_wires(site), {}, _observer(config)
    wires |= {port: f"{_BANK}.bus__{port.removeprefix('control__')}" for port in _control(site)}
    wires[f"{_BANK}.clear"] = "reset"
    for end in config.inputs:
        wires |= _input_wires(end)
        rules |= _input_rules(end, site)
    for end in config.outputs:
        wires |= _output_wires(end)
        rules |= _output_rules(end)
    counters = {f"{_BANK}.{name}": value for name, value in _counters(config).items()}
    rules |= {"reset": "want_reset", **{port: value for port, value in counters.items() if has_port(site, port)}}
    if config.weights:
        rules |= {"weights__valid": "want_word", "weights__payload": "want_weights"}
    # The obligation ``registers`` has the bank as emitted, and states what these ports change.
    bank, raisers = site.part(_BANK), ("status", "errors_raise", "interrupt_status_raise")
    raised = [f"{_BANK}.{port.name}" for name in raisers for port in bank.slices(name, 32)]
    marks = [f"{end.name}__{part}" for end in config.outputs for part in ("tlast", "tkeep")]
    return [
        *composition(
            site,
            "Streams between width converters, guards, the accelerator and the buses are wires, and so are resets.",
            wires,
            rules,
            others=[*raised, *marks, "interrupt"],
            observer=lines,
        ),
        *(_tlast(config, end, site) for end in config.outputs),
        _register_values(config, site),
    ]


def _control(site: Site) -> list[str]:
    return [port for port in site.module.ports if port.startswith("control__")]


def _input_wires(end: BusStreamConfig) -> dict[str, str]:
    guard, repack, port = f"{end.name}_guard", f"{end.name}_repack", end.port.name
    wires = {f"{port}__{part}": f"{repack}.o__{part}" for part in ("valid", "ready", "payload")}
    return wires | {f"{guard}.o__valid": f"{repack}.i__valid", f"{guard}.o__ready": f"{repack}.i__ready"}


def _output_wires(end: BusStreamConfig) -> dict[str, str]:
    repack, port = f"{end.name}_repack", end.port.name
    wires = {f"{port}__{part}": f"{repack}.i__{part}" for part in ("valid", "ready")}
    return wires | {f"{end.name}__t{part}": f"{repack}.o__{part}" for part in ("valid", "ready")}


def _input_rules(end: BusStreamConfig, site: Site) -> dict[str, str]:
    """Return a dict of Verilog expressions by signal: what an input's length guard and width converter receive."""
    name, guard, repack = end.name, f"{end.name}_guard", f"{end.name}_repack"
    is_open = f"(is_running & {_BANK}.control[0] & !reset)"
    bytes_kept = ", ".join(f"{{8{{{name}__tkeep[{byte}]}}}}" for byte in reversed(range(end.width)))
    step, bits = 8 * end.value_bytes, end.port.beat.bits
    lanes = [f"{guard}.o__payload[{lane * step + bits - 1}:{lane * step}]" for lane in range(end.words.max_values)]
    rules = {
        f"{guard}.i__valid": f"{name}__tvalid & {is_open}",
        f"{name}__tready": f"{guard}.i__ready & {is_open}",
        f"{guard}.i__payload": f"{{{name}__tlast, {name}__tdata & {{{bytes_kept}}}}}",
        f"{repack}.i__payload": f"{{{', '.join(reversed(lanes))}}}",
    }
    inner = site.inner(guard)
    ports = packet_ports(inner) if inner is not None else ()
    told = (f"{{{_FRAMES} < 2, is_between}}", "{is_single, before_last}")
    if len(ports) == len(told):
        rules |= {f"{guard}.{port}": value for port, value in zip(ports, told, strict=True)}
    elif ports:
        rules[f"{guard}.{ports[0]}"] = f"{{{', '.join(told)}}}"
    return rules


def _output_rules(end: BusStreamConfig) -> dict[str, str]:
    """Return a dict of Verilog expressions by signal: an output's width converter input, and extended ``tdata``."""
    name, repack, beat = end.name, f"{end.name}_repack", end.port.beat
    bits, step = beat.bits, 8 * end.value_bytes
    words = []
    for lane in range(end.words.max_values):
        value = f"{repack}.o__payload[{(lane + 1) * bits - 1}:{lane * bits}]"
        sign = f"{repack}.o__payload[{(lane + 1) * bits - 1}]" if beat.signed else "1'b0"
        words.append(f"{{{step - bits}{{{sign}}}}}, {value}" if step > bits else value)
    unused = 8 * end.width - len(words) * step
    zeros = [f"{unused}'d0"] if unused else []
    return {
        f"{repack}.i__payload": f"{end.port.name}__payload[{end.beats.max_values * bits - 1}:0]",
        f"{name}__tdata": f"{{{', '.join([*zeros, *reversed(words)])}}}",
    }


def _last_bit(end: BusStreamConfig) -> str:
    """Return the Verilog expression of the bit that marks a frame's last word in an output's width converter."""
    return f"{end.name}_repack.o__payload[{end.words.max_values * end.port.beat.bits}]"


def _counter_lines(name: str, counts: str) -> list[str]:
    """Return a list of Verilog lines of a 32-bit counter ``want_NAME`` that a reset by software clears."""
    return register(f"want_{name}", f"reset ? 0 : want_{name} + ({counts})", 32)


def _observer(config: ShellConfig) -> list[str]:
    """Return a list of Verilog lines of the observer that counts frames, packets and cycles on all buses."""
    lines = [
        *register("is_running", "!reset"),
        *register("want_reset", f"{_BANK}.reset[0]"),
        *register("is_single", f"is_between ? ({_FRAMES} < 2) : is_single", init=1),
        *register("before_last", f"is_between ? {_FRAMES} - 16'd2 : before_last", PACKET_BITS),
    ]
    begun, moving = [], []
    for end in config.inputs:
        lines += _input_state(end)
        begun.append(f"{end.name}_within | {end.name}_entered | (want_{end.name}_frames != done_frames)")
        moving += [f"{end.name}_moves", f"{end.name}_guard.in_packet"]
    for end in config.outputs:
        lines += _output_state(end)
    lines += [
        f"wire has_begun_frames = {' | '.join(begun)};",
        *register("is_busy", "!reset & has_begun_frames"),
    ]
    lines.append(f"wire is_between = !(has_begun_frames | {' | '.join(moving)});")
    lines += _frames_done_lines(config.outputs)
    lines += [
        *register("since_frame", "is_done ? 1 : since_frame + 1", 32),
        *register("has_frame_before", "!reset & (is_done | has_frame_before)"),
        *register("want_interval", "reset ? 0 : is_done & has_frame_before ? since_frame : want_interval", 32),
        *register("busy_cycles", "reset ? 0 : busy_cycles + is_busy", 64),
        *register("want_high", f"reset ? 0 : {_BANK}.cycles_low_read ? busy_cycles[63:32] : want_high", 32),
    ]
    if config.weights:
        written, last = f"({_BANK}.weights_written | {_BANK}.weights_last_written)", f"{_BANK}.weights_last_written"
        word = f"{{{last}, {last} ? {_BANK}.weights_last : {_BANK}.weights}}"
        lines += register("want_word", f"!reset & ({written} | want_word & !weights__ready)")
        lines += register("want_weights", f"{written} ? {word} : want_weights", 33)
        lines += register("is_lost", f"{written} & want_word & !weights__ready")
    return lines


def _input_state(end: BusStreamConfig) -> list[str]:
    """Return a list of observer lines (Verilog) of an input: transfers, received frames, packets, wrong counts."""
    name, guard, repack = end.name, f"{end.name}_guard", f"{end.name}_repack"
    last, full = f"{guard}.o__payload[{8 * end.width}]", (1 << end.width) - 1
    leaves = f"{guard}.o__valid & {repack}.i__ready"
    return [
        f"wire {name}_moves = {name}__tvalid & {name}__tready;",
        f"wire {name}_alone = {name}__tlast & is_single;",
        *register(f"{name}_entered", f"!reset & {leaves} & {last} & !is_single"),
        *register(
            f"{name}_within",
            f"!reset & (({name}_moves | {name}_entered) ? {name}_moves & !{name}_alone : {name}_within)",
        ),
        *register(f"{name}_ended", f"!reset & {name}_moves & {name}__tlast"),
        *_counter_lines(f"{name}_frames", f"{name}_moves & {name}_alone | {name}_entered"),
        *_counter_lines(f"{name}_packets", f"{name}_ended"),
        *_counter_lines(f"{name}_stalled", f"{name}__tvalid & !{name}__tready"),
        *_counter_lines(f"{name}_starved", f"is_busy & !{name}__tvalid"),
        f"wire {name}_passes = {guard}.i__valid & {guard}.i__ready & {leaves};",
        f"wire [{end.width - 1}:0] {name}_wanted = {last} ? {end.final_keep} : {full};",
        *register(f"{name}_lacks", f"{name}_passes & (({name}_wanted & ~{name}__tkeep) != 0)"),
        *register(f"{name}_exceeds", f"{name}_passes & {name}__tlast & (({name}__tkeep & ~{name}_wanted) != 0)"),
    ]


def _output_state(end: BusStreamConfig) -> list[str]:
    """Return a list of the observer's Verilog lines for one output: frames and packets sent, and stalled cycles."""
    name = end.name
    return [
        f"wire {name}_moves = {name}__tvalid & {name}__tready;",
        f"wire {name}_leaves = {name}_moves & {_last_bit(end)};",
        *_counter_lines(f"{name}_frames", f"{name}_leaves"),
        *_counter_lines(f"{name}_packets", f"{name}_moves & {name}__tlast"),
        *_counter_lines(f"{name}_stalled", f"{name}__tvalid & !{name}__tready"),
    ]


def _frames_done_lines(outputs: Sequence[BusStreamConfig]) -> list[str]:
    """Return a list of observer lines (Verilog) on frames that left on all outputs: ``done_frames``, ``is_done``."""
    if len(outputs) == 1:
        name = outputs[0].name
        return [
            f"wire [31:0] done_frames = want_{name}_frames;",
            *register("is_done", f"!reset & {name}_leaves"),
        ]
    ahead = " & ".join(f"(want_{end.name}_frames[15:0] != done_frames[15:0])" for end in outputs)
    return [
        *register("is_done", f"!reset & !is_done & {ahead}"),
        *register("done_frames", "reset ? 0 : done_frames + is_done", 32),
    ]


def _counters(config: ShellConfig) -> dict[str, str]:
    """Return a dict of Verilog expressions by register: the values that software must read from each counter."""
    inputs = [f"{end.name}_{of}" for end in config.inputs for of in ("frames", "packets", "stalled", "starved")]
    outputs = [f"{end.name}_{of}" for end in config.outputs for of in ("frames", "packets", "stalled")]
    values = {name: f"want_{name}" for name in (*inputs, *outputs)}
    return values | {
        "frames": "done_frames",
        "interval": "want_interval",
        "cycles_low": "busy_cycles[31:0]",
        "cycles_high": "want_high",
    }


def _tlast(config: ShellConfig, end: BusStreamConfig, site: Site) -> Obligation:
    """Return the `Obligation` that an output's ``tlast`` marks the last word of each packet's last frame only."""
    name, last, guard = end.name, _last_bit(end), f"{config.inputs[0].name}_guard"
    ports = packet_ports(site.part(guard))
    single, load, before_last = (field_bits("packet", PACKET, field) for field in ("single", "load", "before_last"))
    size, bits = f"({_FRAMES} < 2 ? 17'd1 : {{1'b0, {_FRAMES}}})", PACKET_BITS + 1
    lines = [
        f"wire [{PACKET.size - 1}:0] packet = {{{', '.join(f'{guard}.{port}' for port in ports)}}};",
        f"wire leaves = {name}__tvalid & {name}__tready & {last};",
        *register("size", f"{load} ? {size} : size", bits, 1),
        *register("left", f"{load} ? {size} : leaves & (left == 1) ? size : left - leaves", bits, 1),
        *register("is_told", f"!reset & ({load} | is_told)", init=1),
    ]
    index = f"{name}_frame_index"
    return site.obligation(
        "last",
        f"{name}.tlast marks the last word of each packet's last frame, and no other word.",
        observer=tuple(lines),
        assumes={
            "the size is set between packets": f"!{load} | !is_told | (left == size) & !leaves",
            "the size is set between a reset and the first word": f"!{name}__tvalid | is_told",
        },
        invariants={
            "frames that left and frames to come are a packet": (
                f"is_told ? {{1'b0, {index}}} + left == size : {index} == 0"
            ),
            "the last frame of a packet is known": f"!is_told | ({index}_is_last == (left == 1))",
            "a packet has a frame to come": "!is_told | (left != 0) & (left <= size)",
            "a packet has a size": f"(size != 0) & (size < {1 << PACKET_BITS})",
            "a guard has the same size": (
                f"({single} == (size == 1)) & ({single} | ({{1'b0, {before_last}}} == size - 17'd2))"
            ),
        },
        asserts={
            f"{name}.tlast is the end of a packet": (f"!{name}__tvalid | ({name}__tlast == ((left == 1) & {last}))")
        },
        cover=f"{name}__tvalid & {last} & (left == 2) & !{name}__tlast",
    )


def _register_values(config: ShellConfig, site: Site) -> Obligation:
    """Return the `Obligation` that software sees each error, frame end and state of the shell in registers."""
    raised = {}
    for index, end in enumerate(config.inputs):
        for bit, (flag, own) in enumerate((("short", "lacks"), ("long", "exceeds"))):
            raised[2 * index + bit] = f"({end.name}_guard.error__{flag} | {end.name}_{own})"
    if config.weights:
        raised[WEIGHTS_ERROR_BIT] = "(weights_state__error | is_lost)"
    errors, status = f"{_BANK}.errors", f"{_BANK}.interrupt_status"
    states = ["is_busy", f"({errors} != 0)", "interrupt", *(["weights_state__good", "want_word"] * config.weights)]
    bits = {bit: f"error_{bit}" for bit in raised}
    indices = {register.name: register.offset // REGISTER_BYTES for register in config.registers}
    held = [
        (f"{status}[0]", "done", indices["INTERRUPT_STATUS"], 0),
        (f"{status}[1]", "wrong", indices["INTERRUPT_STATUS"], 1),
        *((f"{errors}[{bit}]", name, indices["ERRORS"], bit) for bit, name in bits.items()),
    ]
    lines = [
        *_observer(config),
        *write_lines("control"),
        *(f"wire {name} = {raised[bit]};" for bit, name in bits.items()),
        f"wire is_wrong = {' | '.join(bits.values())};",
        "reg was_reset = 1; reg was_done = 0; reg was_wrong = 0; reg is_enabled = 0; reg has_read = 0;",
        f"reg [{len(states) - 1}:0] state;",
        *(f"reg was_{name} = 0; reg had_{name} = 0;" for name in bits.values()),
        "reg had_done = 0; reg had_wrong = 0;",
        f"{_EDGE} begin",
        "    was_reset <= rst | reset; was_done <= is_done; was_wrong <= is_wrong;",
        *(f"    was_{name} <= {name};" for name in bits.values()),
        *(
            f"    had_{name} <= {flag} & !reset & !(writes & (address == {index}) & data[{bit}] & enabled[{bit}]);"
            for flag, name, index, bit in held
        ),
        f"    is_enabled <= !rst & !reset & (({status} & {_BANK}.interrupt_enable) != 0);",
        "    has_read <= !rst & (control__arvalid & control__arready ? control__araddr[11:2] == 6 : "
        "has_read & !(control__rvalid & control__rready));",
        f"    if (control__arvalid & control__arready) state <= {{{', '.join(reversed(states))}}};",
        "end",
    ]
    read_lines, read_facts = _shared_reads(config, site)
    lines += read_lines
    flags = [
        (f"{status}[0]", "done", "the end of a frame"),
        (f"{status}[1]", "wrong", "an error"),
        *((f"{errors}[{bit}]", name, f"error {bit}") for bit, name in bits.items()),
    ]
    return site.obligation(
        "registers",
        "Software sees each error, each end of a frame and the shell's state, and no other; interrupts follow.",
        methods=("pdr",),
        observer=tuple(lines),
        asserts={
            **{
                f"{event} is shown until it is cleared": (
                    f"was_reset ? !{flag} : (!(was_{name} | had_{name}) | {flag})"
                )
                for flag, name, event in flags
            },
            **{f"nothing else shows {event}": f"!{flag} | was_{name} | had_{name}" for flag, name, event in flags},
            **read_facts,
            "the interrupt is high a cycle after an enabled event": "interrupt == is_enabled",
            "STATUS is the state when it is read": (
                f"!has_read | !control__rvalid | (control__rdata == {{{32 - len(states)}'d0, state}})"
            ),
        },
        cover=f"has_read & control__rvalid & state[0] & was_{next(iter(bits.values()))} & interrupt",
        keeps=(_BANK,),
    )


def _shared_reads(config: ShellConfig, site: Site) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines and assertions for reads of counters that share another register's port of the bank.

    Two registers can have the same value, such as the only output's frames and the frames of all outputs.
    """
    lines, facts = [], {}
    for counted in config.registers:
        name = counted.name.lower()
        if (value := _counters(config).get(name)) is None or has_port(site, f"{_BANK}.{name}"):
            continue
        lines += [
            f"reg [31:0] value_{name}; reg has_read_{name} = 0;",
            f"{_EDGE} if (control__arvalid & control__arready) begin",
            f"    value_{name} <= {value};",
            f"    has_read_{name} <= !rst & (control__araddr[11:2] == {counted.offset // REGISTER_BYTES});",
            f"end else has_read_{name} <= has_read_{name} & !rst & !(control__rvalid & control__rready);",
        ]
        facts[f"a read of {counted.name} returns its counter"] = (
            f"!has_read_{name} | !control__rvalid | (control__rdata == value_{name})"
        )
    return lines, facts


PROOFS = {ShellConfig: Proofs((obligations,), shell_parts)}
