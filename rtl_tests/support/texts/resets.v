module m (
    input  wire clk,
    input  wire rst,
    output reg  [3:0] o = 4'd9,  // 4 bits
    output reg  last = 1'b1
);

    reg  [1:0] data = 2'd2;
    reg  level = 1'b0;
    reg  [1:0] table [0:2];
    integer row;
    initial for (row = 0; row < 3; row = row + 1) table[row] = 2'd0;

    always @(posedge clk) begin
        data <= data + 2'd1;
        if (rst) begin
            o <= 4'd9;
            level <= 1'b0;
        end
    end
endmodule