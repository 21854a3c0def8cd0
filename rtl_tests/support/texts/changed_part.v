module part (
    input  wire clk,
    input  wire [3:0] a,
    output reg  [3:0] b = 4'd0
);

    wire big = !a[1] & (a > 4'd15);
    other inner (
        .clk(clk),
        .i(a),
        .o(b[2:1])
    );

`ifdef SYNTHESIS
    assign seen = a & b;
`endif
    always @(posedge clk) begin
        b <= big ? a : b;
    end
endmodule