    wire [47:0] p_{index}, cascade_{index}, other_p_{index}, other_cascade_{index};
    {model} #({parameters}) model_{index} ({pins}, .P(p_{index}), .PCOUT(cascade_{index}));
    {other} #({parameters}) other_{index} ({other_pins}, .P(other_p_{index}), .PCOUT(other_cascade_{index}));
    integer wrong_{index} = 0, moves_{index} = 0;
    reg [47:0] before_{index} = 0;
    always @(posedge clk) begin
        if (cycle >= {first}) begin
            if (p_{index} !== other_p_{index} || cascade_{index} !== other_cascade_{index})
                wrong_{index} = wrong_{index} + 1;
            if (^p_{index} === 1'bx) wrong_{index} = wrong_{index} + 1;
            if (p_{index} !== before_{index}) moves_{index} = moves_{index} + 1;
        end
        before_{index} = p_{index};
        if (cycle == {last}) $display("outcome %0d %0d", wrong_{index}, moves_{index});
    end
