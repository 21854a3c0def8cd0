module bench;
    reg clk = 0;
    integer cycle = 0;
{declarations}
    behaviour_{name} behaviour (.clk(clk), {inputs}, .sum(sum));
    cells_{name} cells (.clk(clk), {inputs}, .sum(cells_sum));
    initial begin
{values}
        repeat ({cycles}) begin
            #1 $display("{formats} %0d %0d", {printed}, sum, cells_sum);
            #5 clk = 1; #5 clk = 0;
{values}
        end
    end
endmodule
