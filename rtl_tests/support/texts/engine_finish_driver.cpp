#include <cstdint>
#include <cstdio>
#include <vector>
#include "Vtop.h"

int main() {
    Vtop top;
    std::FILE *source = std::fopen("input.bin", "rb"), *sink = std::fopen("output.bin", "wb");
    std::vector<uint64_t> beats(1 << 16);
    auto cycle = [&] {
        top.clk = 0; top.eval();
        if (top.valid) { uint32_t taken = top.o; std::fwrite(&taken, 4, 1, sink); }
        top.clk = 1; top.eval();
    };
    top.valid_in = 0; top.rst = 1; cycle(); top.rst = 0; cycle();
    while (size_t count = std::fread(beats.data(), 8, beats.size(), source)) {
        top.valid_in = 1;
        for (size_t n = 0; n < count; n += 2) { top.sums = beats[n]; top.how = beats[n + 1]; cycle(); }
        top.valid_in = 0;
        for (int n = 0; n < 40; ++n) cycle();
    }
    std::fclose(sink);
}
