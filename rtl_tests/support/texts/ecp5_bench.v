module tb;
    reg clk = 0, reset = 0;
    reg [7:0] a;
    reg [8:0] b;
    wire signed [16:0] moved, kept, early, late;
    reg [17:0] given [0:{last}];
    integer number;
    top dut(.clk(clk), .reset(reset), .a(a), .b(b), .moved(moved), .kept(kept), .early(early), .late(late));
    initial begin
        $readmemh("given.hex", given);
        for (number = 0; number <= {last}; number = number + 1) begin
            {{reset, b, a}} = given[number];
            #1 $display("%d %d %d %d", moved, kept, early, late);
            #1 clk = 1;
            #1 clk = 0;
        end
    end
endmodule
