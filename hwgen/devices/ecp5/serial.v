// Top module: @top@ with a serial port. Written by hwgen. Do not edit: every build writes it.
// A PLL makes the accelerator's clock from the board's oscillator. @top@_link connects the serial port to the accelerator.
module @top@_serial (
    input  wire clk,
    input  wire rx,
    output wire tx
);

    wire sync, locked;
    reg [1:0] reset = 2'b11;

    (* ICP_CURRENT = "12", LPF_RESISTOR = "8" *)
    EHXPLLL #(
        .PLLRST_ENA("DISABLED"), .INTFB_WAKE("DISABLED"), .STDBY_ENABLE("DISABLED"), .DPHASE_SOURCE("DISABLED"),
        .OUTDIVIDER_MUXA("DIVA"), .OUTDIVIDER_MUXB("DIVB"), .OUTDIVIDER_MUXC("DIVC"), .OUTDIVIDER_MUXD("DIVD"),
        .CLKI_DIV(@input_divider@), .CLKFB_DIV(@feedback_divider@), .FEEDBK_PATH("CLKOP"),
        .CLKOP_ENABLE("ENABLED"), .CLKOP_DIV(@output_divider@), .CLKOP_CPHASE(0), .CLKOP_FPHASE(0)
    ) pll (
        .RST(1'b0), .STDBY(1'b0), .CLKI(clk), .CLKOP(sync), .CLKFB(sync), .LOCK(locked),
        .PHASESEL0(1'b0), .PHASESEL1(1'b0), .PHASEDIR(1'b1), .PHASESTEP(1'b1), .PHASELOADREG(1'b1),
        .PLLWAKESYNC(1'b0), .ENCLKOP(1'b0)
    );

    always @(posedge sync) reset <= {reset[0], ~locked};

    @top@_link link (.clk(sync), .rst(reset[1]), .rx(rx), .tx(tx));

endmodule
