#include "Vdesign.h"
#include "design.h"
#include "verilated.h"

int main() {
    VerilatedContext context;
    context.randSeed(SEED);
    Vdesign top(&context);
    while (!context.gotFinish()) {
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
    }
}
