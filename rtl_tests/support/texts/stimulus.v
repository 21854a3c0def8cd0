module stimulus #(parameter WIDTH = 1) (input wire clk, output reg [WIDTH-1:0] value);
    reg [1:0] style = 2'd0;
    reg [WIDTH+31:0] noise, more;
    integer place;
    initial value = {WIDTH{1'b0}};
    always @(posedge clk) begin
        if (($urandom & 63) == 0) style <= 2'($urandom);
        for (place = 0; place < WIDTH; place = place + 32) begin
            noise[place +: 32] = $urandom;
            more[place +: 32] = $urandom;
        end
        if (WIDTH == 1)  // high in 1, 4, 7 or 8 of 8 cycles
            value[0] <= ($urandom & 7) < (style == 0 ? 1 : style == 1 ? 4 : style == 2 ? 7 : 8);
        else case (style)
            0, 1: value <= noise[WIDTH-1:0];
            2: value <= noise[WIDTH-1:0] & more[WIDTH-1:0];
            default: if (($urandom & 7) == 0) value <= noise[WIDTH-1:0] | more[WIDTH-1:0];
        endcase
    end
endmodule
