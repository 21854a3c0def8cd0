module LUT6_2 #(parameter [63:0] INIT = 64'd0) (output wire O6, output wire O5,
    input wire I0, input wire I1, input wire I2, input wire I3, input wire I4, input wire I5);
    assign O6 = INIT[{I5, I4, I3, I2, I1, I0}];
    assign O5 = INIT[{1'b0, I4, I3, I2, I1, I0}];
endmodule
module LUT6 #(parameter [63:0] INIT = 64'd0) (output wire O,
    input wire I0, input wire I1, input wire I2, input wire I3, input wire I4, input wire I5);
    assign O = INIT[{I5, I4, I3, I2, I1, I0}];
endmodule
module CARRY4 (output wire [3:0] CO, output wire [3:0] O, input wire CI, input wire CYINIT,
    input wire [3:0] DI, input wire [3:0] S);
    wire first = CI | CYINIT;
    assign CO[0] = S[0] ? first : DI[0];
    assign CO[3:1] = {S[3] ? CO[2] : DI[3], S[2] ? CO[1] : DI[2], S[1] ? CO[0] : DI[1]};
    assign O = S ^ {CO[2:0], first};
endmodule
