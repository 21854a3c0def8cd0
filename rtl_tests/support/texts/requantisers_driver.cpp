#include <cstdint>
#include <cstdio>
#include <vector>
#include "Vtop.h"

int main() {
    Vtop top;
    std::FILE *source = std::fopen("input.bin", "rb"), *sink = std::fopen("output.bin", "wb");
    std::vector<uint64_t> beats(1 << 16);
    std::vector<uint32_t> taken;
    auto cycle = [&] {
        top.clk = 0; top.eval();
        if (top.o___05Fvalid) taken.push_back(top.o___05Fpayload);
        top.clk = 1; top.eval();
    };
    top.i___05Fvalid = 0; top.rst = 1; cycle(); top.rst = 0; cycle();
    while (size_t count = std::fread(beats.data(), 8, beats.size(), source)) {
        top.i___05Fvalid = 1;
        for (size_t n = 0; n < count; ++n) { top.i___05Fpayload = beats[n]; cycle(); }
        top.i___05Fvalid = 0;
        for (int n = 0; n < 40; ++n) cycle();
        std::fwrite(taken.data(), 4, taken.size(), sink);
        taken.clear();
    }
    std::fclose(sink);
}
