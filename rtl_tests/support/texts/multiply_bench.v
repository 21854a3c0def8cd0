module tb;
  reg clk = 0, rst = 1, valid = 0;
  reg [{inputs}:0] beats [0:{last}];
  reg [{inputs}:0] beat;
  wire done;
  wire [{outputs}:0] result;
  integer number;
  top dut(.clk(clk), .rst(rst), .i__valid(valid), .\i__payload (beat), .o__valid(done), .o__payload(result));
  always #5 clk = ~clk;
  always @(posedge clk) if (!rst && done) $display("%b", result);
  initial begin
    $readmemh("beats.hex", beats);
    repeat (20) @(negedge clk);
    rst = 0; valid = 1;
    for (number = 0; number <= {last}; number = number + 1) begin beat = beats[number]; @(negedge clk); end
    valid = 0;
    repeat (40) @(negedge clk);
    $finish;
  end
endmodule
