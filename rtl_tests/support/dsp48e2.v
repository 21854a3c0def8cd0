// Model of the UltraScale+ multiply-add slice, written from UG579 (v1.9), for tests only.
//
// It has what circuits here use, and more: the multiplier without pre-adder, the registers of A, B, C, M, P, OPMODE and
// ALUMODE with their enables and resets, and the adder Z + W + X + Y + CARRYIN with its subtractions. Any other
// parameter gives an instance of a module that does not exist, any other value of OPMODE or ALUMODE gives X.
module DSP48E2 (
    output [29:0] ACOUT,
    output [17:0] BCOUT,
    output        CARRYCASCOUT,
    output [3:0]  CARRYOUT,
    output        MULTSIGNOUT,
    output        OVERFLOW,
    output [47:0] P,
    output        PATTERNBDETECT,
    output        PATTERNDETECT,
    output [47:0] PCOUT,
    output        UNDERFLOW,
    output [7:0]  XOROUT,
    input  [29:0] A,
    input  [29:0] ACIN,
    input  [3:0]  ALUMODE,
    input  [17:0] B,
    input  [17:0] BCIN,
    input  [47:0] C,
    input         CARRYCASCIN,
    input         CARRYIN,
    input  [2:0]  CARRYINSEL,
    input         CEA1, CEA2, CEAD, CEALUMODE, CEB1, CEB2, CEC, CECARRYIN, CECTRL, CED, CEINMODE, CEM, CEP,
    input         CLK,
    input  [26:0] D,
    input  [4:0]  INMODE,
    input         MULTSIGNIN,
    input  [8:0]  OPMODE,
    input  [47:0] PCIN,
    input         RSTA, RSTALLCARRYIN, RSTALUMODE, RSTB, RSTC, RSTCTRL, RSTD, RSTINMODE, RSTM, RSTP
);
    parameter integer ACASCREG = 1;
    parameter integer ADREG = 1;
    parameter integer ALUMODEREG = 1;
    parameter AMULTSEL = "A";
    parameter integer AREG = 1;
    parameter A_INPUT = "DIRECT";
    parameter integer BCASCREG = 1;
    parameter BMULTSEL = "B";
    parameter integer BREG = 1;
    parameter B_INPUT = "DIRECT";
    parameter integer CARRYINREG = 1;
    parameter integer CARRYINSELREG = 1;
    parameter integer CREG = 1;
    parameter integer DREG = 1;
    parameter integer INMODEREG = 1;
    parameter integer MREG = 1;
    parameter integer OPMODEREG = 1;
    parameter integer PREG = 1;
    parameter [47:0] RND = 48'd0;
    parameter USE_MULT = "MULTIPLY";
    parameter USE_SIMD = "ONE48";

    generate
        if (USE_MULT != "MULTIPLY" || USE_SIMD != "ONE48" || AMULTSEL != "A" || BMULTSEL != "B"
            || A_INPUT != "DIRECT" || B_INPUT != "DIRECT" || INMODEREG != 0 || CARRYINREG != 0
            || CARRYINSELREG != 0)
            setting_without_a_model error ();
        // UG579, table 3-3: the cascade outputs have as many registers as the operands, or one of two.
        if (AREG < 2 ? ACASCREG != AREG : ACASCREG < 1) number_of_cascade_registers error_a ();
        if (BREG < 2 ? BCASCREG != BREG : BCASCREG < 1) number_of_cascade_registers error_b ();
    endgenerate

    // Operands of the multiplier (figure 2-1): INMODE of 0 selects A2 and B2. A single register is A2 and B2.
    reg [29:0] a_1 = 0, a_2 = 0;
    reg [17:0] b_1 = 0, b_2 = 0;
    always @(posedge CLK) begin
        if (RSTA) a_1 <= 0; else if (CEA1) a_1 <= A;
        if (RSTA) a_2 <= 0; else if (CEA2) a_2 <= AREG == 2 ? a_1 : A;
        if (RSTB) b_1 <= 0; else if (CEB1) b_1 <= B;
        if (RSTB) b_2 <= 0; else if (CEB2) b_2 <= BREG == 2 ? b_1 : B;
    end
    wire [29:0] a = AREG == 0 ? A : a_2;
    wire [17:0] b = BREG == 0 ? B : b_2;
    wire signed [26:0] a_operand = a[26:0];
    wire signed [17:0] b_operand = b;

    wire signed [44:0] product = a_operand * b_operand;
    reg signed [44:0] m_register = 0;
    always @(posedge CLK) if (RSTM) m_register <= 0; else if (CEM) m_register <= product;
    wire signed [44:0] m = MREG == 0 ? product : m_register;

    reg [47:0] c_register = 0;
    always @(posedge CLK) if (RSTC) c_register <= 0; else if (CEC) c_register <= C;
    wire [47:0] c = CREG == 0 ? C : c_register;

    reg [8:0] opmode_register = 0;
    reg [3:0] alumode_register = 0;
    always @(posedge CLK) begin
        if (RSTCTRL) opmode_register <= 0; else if (CECTRL) opmode_register <= OPMODE;
        if (RSTALUMODE) alumode_register <= 0; else if (CEALUMODE) alumode_register <= ALUMODE;
    end
    wire [8:0] opmode = OPMODEREG == 0 ? OPMODE : opmode_register;
    wire [3:0] alumode = ALUMODEREG == 0 ? ALUMODE : alumode_register;

    // Multiplexers in front of the adder (tables 2-3 to 2-6). The product is the sum of X and Y, here all of X.
    reg [47:0] p_register = 0;
    reg [47:0] w, x, y, z;
    always @* begin
        case (opmode[8:7])
            2'b00: w = 48'd0;
            2'b01: w = p_register;
            2'b10: w = RND;
            2'b11: w = c;
        endcase
        case (opmode[1:0])
            2'b00: x = 48'd0;
            2'b01: x = opmode[3:2] == 2'b01 ? {{3{m[44]}}, m} : 48'dx;
            2'b10: x = p_register;
            2'b11: x = 48'dx;
        endcase
        case (opmode[3:2])
            2'b00: y = 48'd0;
            2'b01: y = opmode[1:0] == 2'b01 ? 48'd0 : 48'dx;
            2'b10: y = {48{1'b1}};
            2'b11: y = c;
        endcase
        case (opmode[6:4])
            3'b000: z = 48'd0;
            3'b001: z = PCIN;
            3'b010: z = p_register;
            3'b011: z = c;
            3'b101: z = {{17{PCIN[47]}}, PCIN[47:17]};
            3'b110: z = {{17{p_register[47]}}, p_register[47:17]};
            default: z = 48'dx;
        endcase
    end

    // Adder (table 2-8): Z + (W + X + Y + CIN), -Z + (W + X + Y + CIN) - 1, the inverse of the first, Z - (W + X + Y + CIN).
    wire [47:0] others = w + x + y + (CARRYINSEL == 3'b000 && CARRYIN);
    reg [47:0] total;
    always @*
        case (alumode)
            4'b0000: total = z + others;
            4'b0001: total = ~z + others;
            4'b0010: total = ~(z + others);
            4'b0011: total = z - others;
            default: total = 48'dx;
        endcase
    always @(posedge CLK) if (RSTP) p_register <= 0; else if (CEP) p_register <= total;
    assign P = PREG == 0 ? total : p_register;
    assign PCOUT = P;
endmodule
