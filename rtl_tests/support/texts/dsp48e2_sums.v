`timescale 1ns / 1ps
module bench;
    reg clk = 0;
    reg [26:0] a = 0; reg [17:0] b = 0; reg [47:0] c = 0, pcin = 0; reg [1:0] w = 0;
    wire [47:0] p;
    DSP48E2 #(.ADREG(0), .DREG(0), .INMODEREG(0), .CARRYINREG(0), .CARRYINSELREG(0), .AREG(0), .ACASCREG(0), .BREG(0),
        .BCASCREG(0), .CREG(0), .MREG(0), .OPMODEREG(0), .ALUMODEREG(0), .PREG(1), .RND(48'd123456789)) slice (
        .CLK(clk), .A({3'd0, a}), .B(b), .C(c), .PCIN(pcin), .CARRYIN(1'b0), .CARRYINSEL(3'd0), .INMODE(5'd0),
        .OPMODE({w, 3'b001, 4'b0101}), .ALUMODE(4'd0), .CEP(1'b1), .RSTP(1'b0), .RSTM(1'b0), .RSTC(1'b0), .P(p));
    initial begin
        repeat (500) begin
            a = $random; b = $random; c = {$random, $random}; pcin = {$random, $random}; w = $random;
            $write("%0d %0d %0d %0d %0d %0d ", $signed(a), $signed(b), $signed(c), $signed(pcin), w, $signed(p));
            #5 clk = 1; #5 clk = 0;
            $display("%0d", $signed(p));
        end
    end
endmodule
