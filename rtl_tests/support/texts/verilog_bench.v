module tb;
    reg clk = 0, rst = 0;
    {declarations}
    {name} dut (.clk(clk), .rst(rst), {connections});
    reg [{bits}:0] stimuli [0:{last}];
    integer cycle;
    initial begin
        $readmemh("stimuli.hex", stimuli);
        for (cycle = 0; cycle <= {last}; cycle = cycle + 1) begin
            {{{inputs}}} = stimuli[cycle];
            #1 $display("{format}", {outputs});
            clk = 1;
            #1 clk = 0;
        end
    end
endmodule
