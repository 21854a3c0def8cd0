`timescale 1ns / 1ps
module bench;
    reg clk = 0;
    integer cycle = 0;
    reg [29:0] a; reg [17:0] b; reg [47:0] c, pcin; reg carry; reg [8:0] opmode; reg [3:0] alumode;
    reg [{enables}:0] enable; reg [{enables}:0] reset;
    always @(posedge clk) cycle <= cycle + 1;
    always @(negedge clk) begin
        a = $random; b = $random; c = {{$random, $random}}; pcin = {{$random, $random}}; carry = $random;
        if (cycle % 3 == 0) begin b = {{18{{b[0]}}}} ^ b[3:1]; a = {{30{{a[0]}}}} ^ a[3:1]; end  // extreme operands
        {narrowed}
        case ($unsigned($random) % {opmodes}) {choices} endcase
        alumode = $unsigned($random) % 4;
        enable = $random | $random; reset = cycle < 3 ? -1 : $random & $random & $random & $random;
    end
{pairs}
    initial begin repeat ({cycles}) begin #5 clk = 1; #5 clk = 0; end $finish; end
endmodule
