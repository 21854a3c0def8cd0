// Drives a design with one stream in and one stream out, as Verilator made it.
//
// Beats are 32-bit words, the lowest first, in files; a beat takes as many words as its payload needs. Two more files
// have the bytes that each beat of a frame moves, 32 bits each. Results are lines "key value" on standard output.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "Vdesign.h"
#include "design.h"  // HWGEN_TAPS(TAP): TAP(number) for each of the HWGEN_LAYERS watched layers
#include "verilated.h"
#if HWGEN_WAVES == 1
#include "verilated_vcd_c.h"
using Waves = VerilatedVcdC;
#elif HWGEN_WAVES == 2
#include "verilated_fst_c.h"
using Waves = VerilatedFstC;
#endif

// Verilator's spelling of port__member: of two underscores the second is escaped.
#define PORT(port, member) port##___05F##member

namespace {

template <typename Port>
constexpr size_t words() {
    return sizeof(Port) < 4 ? 1 : sizeof(Port) / 4;
}

// Ports of up to 64 bits are integers, wider ones arrays of words.
template <typename Port>
void put(Port& port, const uint32_t* beat) {
    if constexpr (sizeof(Port) < 4) {
        port = static_cast<Port>(*beat);
    } else {
        std::memcpy(&port, beat, sizeof(Port));
    }
}

template <typename Port>
void get(const Port& port, uint32_t* beat) {
    if constexpr (sizeof(Port) < 4) {
        *beat = port;
    } else {
        std::memcpy(beat, &port, sizeof(Port));
    }
}

[[noreturn]] void fail(const char* what, const char* name) {
    std::fprintf(stderr, "%s %s\n", what, name);
    std::exit(3);
}

struct Output {
    std::FILE* file;

    explicit Output(const std::string& name) : file(std::fopen(name.c_str(), "wb")) {
        if (!file) fail("can't write", name.c_str());
        std::setvbuf(file, nullptr, _IOFBF, 1 << 20);
    }
    void write(const uint32_t* beat, size_t count) {
        if (std::fwrite(beat, 4, count, file) != count) fail("can't write", "results");
    }
    void close() {
        if (std::fclose(file)) fail("can't write", "results");
    }
};

struct Draw {
    uint32_t state, threshold;

    bool stall() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return state >> 8 < threshold;
    }
};

std::vector<uint32_t> load(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (!file || std::fseek(file, 0, SEEK_END)) fail("can't read", name);
    std::vector<uint32_t> words(std::ftell(file) / 4);
    std::rewind(file);
    if (std::fread(words.data(), 4, words.size(), file) != words.size()) fail("can't read", name);
    std::fclose(file);
    return words;
}

// The memory's side of a run: see hwgen/simulate/memory.py, class Traffic.
struct Traffic {
    const std::vector<uint32_t> (&sizes)[2];
    uint64_t beats, latency, rate, queue;
    bool one_by_one;
    std::vector<uint64_t> asked = std::vector<uint64_t>(latency + 1, 0);
    int side = 1;
    uint64_t left = 0, budget = 0, there[2] = {0, 0}, moved[2] = {0, 0}, bytes[2] = {0, 0};
    std::vector<uint64_t> written_ends;

    void begin(uint64_t cycle, uint64_t sent) {
        uint64_t number = std::min(sent + latency + queue, beats);
        if (one_by_one) number = std::min<uint64_t>(number, (written_ends.size() + 1) * sizes[0].size());
        asked[cycle % (latency + 1)] = number;
        there[0] = asked[(cycle + 1) % (latency + 1)];
        budget = rate;
        move(cycle);
    }
    void post(uint64_t cycle) {
        ++there[1];
        move(cycle);
    }
    bool room() const { return there[1] - moved[1] < queue; }

   private:
    bool waits(int which) const { return there[which] > moved[which]; }
    void move(uint64_t cycle) {
        for (;;) {
            if (!left) {
                if (waits(1 - side)) {
                    side = 1 - side;
                } else if (!waits(side)) {
                    return;
                }
                left = uint64_t{sizes[side][moved[side] % sizes[side].size()]} << 16;
            }
            if (rate && left > budget) {
                left -= budget;
                budget = 0;
                return;
            }
            budget -= left;
            left = 0;
            bytes[side] += sizes[side][moved[side] % sizes[side].size()];
            ++moved[side];
            if (side == 1 && moved[1] % sizes[1].size() == 0) written_ends.push_back(cycle);
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 17) {
        fail("usage:", "INPUT OUTPUT READS WRITES FRAMES SOURCE LIMIT SINK LIMIT IDLE RESET_AT LATENCY RATE QUEUE "
                       "ONE_BY_ONE WAVES");
    }
    const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
    const std::vector<uint32_t> sizes[2] = {load(argv[3]), load(argv[4])};
    const uint64_t frame_beats = sizes[1].size(), frames = number(5), beats_out = frames * frame_beats;
    const uint64_t idle_limit = number(10), reset_at = number(11);
    const std::string results = argv[2];

    VerilatedContext context;
    context.randReset(0);
#if HWGEN_WAVES
    context.traceEverOn(true);
#endif
    Vdesign top{&context, "TOP"};
    constexpr size_t words_in = words<decltype(top.PORT(i, payload))>(), words_out = words<decltype(top.PORT(o, payload))>();

    const std::vector<uint32_t> input = load(argv[1]);
    const uint64_t beats_in = input.size() / words_in;
    std::vector<uint32_t> noise(words_in, ~0u);  // the payload while valid is low
    if (HWGEN_PAYLOAD_BITS % 32) noise.back() = (1u << HWGEN_PAYLOAD_BITS % 32) - 1;

    Output output{results};
#define TAP(index) Output tap_##index{results + ".tap_" #index};
    HWGEN_TAPS(TAP)
#undef TAP

#if HWGEN_WAVES
    Waves waves;
    top.trace(&waves, 99);
    waves.open(argv[16]);
#endif
    const auto dump = [&] {
#if HWGEN_WAVES
        waves.dump(context.time());
#endif
        context.timeInc(1);
    };

    const auto settle = [&] {
        top.clk = 0;
        top.eval();
        dump();
    };
    const auto edge = [&] {
        top.clk = 1;
        top.eval();
        dump();
    };
    const auto reset = [&] {
        top.rst = 1;
        top.PORT(i, valid) = 0;
        top.PORT(o, ready) = 0;
        put(top.PORT(i, payload), noise.data());
        for (int cycle = 0; cycle < 2; ++cycle) {
            settle();
            edge();
        }
        top.rst = 0;
    };

    // One run over the input: for at most `cycles` cycles before a reset, or (0) to the end.
    uint64_t sent = 0, taken = 0, cycle = 0, first_input = 0, last_output = 0, idle = 0, drained = 0, extra = 0;
    std::vector<uint64_t> frame_ends;
    const auto memory = [&] {
        return Traffic{sizes, frames * sizes[0].size(), number(12), number(13), number(14), number(15) != 0};
    };
    std::optional<Traffic> memory_side;
    std::vector<uint64_t> steps(HWGEN_LAYERS), busy;  // of each layer; the same at each frame's end
    const char* error = nullptr;
    uint32_t beat[words_out], held[words_out];
    const auto run = [&](uint64_t cycles) {
        const bool real = cycles == 0;
        Draw source{static_cast<uint32_t>(number(6)), static_cast<uint32_t>(number(7))};
        Draw sink{static_cast<uint32_t>(number(8)), static_cast<uint32_t>(number(9))};
        Traffic& traffic = memory_side.emplace(memory());
        bool offered = false, waiting = false;
        auto reported = std::chrono::steady_clock::now();
        sent = taken = cycle = idle = 0;
        for (;; ++cycle) {
            if (!real && cycle == cycles) return;
            const bool finished = traffic.moved[1] >= beats_out && traffic.moved[1] == taken && sent == beats_in;
            if (finished && ++drained > HWGEN_DRAIN) return;
            traffic.begin(cycle, sent);
            const bool stall = source.stall();
            const bool ready = !sink.stall() && traffic.room();
            if (!offered && sent < traffic.moved[0] && !stall) offered = true;
            top.PORT(i, valid) = offered;
            put(top.PORT(i, payload), offered ? &input[sent * words_in] : noise.data());
            top.PORT(o, ready) = ready;
            settle();
            bool moved = false;
#define TAP(index) steps[index] += real && top.PORT(tap_##index, busy);
            HWGEN_TAPS(TAP)
#undef TAP
            if (offered && top.PORT(i, ready)) {
                if (sent == 0) first_input = cycle;
                ++sent;
                offered = false;
                moved = true;
            }
            const bool valid = top.PORT(o, valid);
            if (valid) get(top.PORT(o, payload), beat);
            if (waiting && (!valid || std::memcmp(beat, held, sizeof(beat))) && real && !error) {
                error = valid ? "payload" : "valid";
                return;
            }
            waiting = valid && !ready;
            if (waiting) std::memcpy(held, beat, sizeof(beat));
            if (valid && ready) {
                moved = true;
                if (real) {
                    if (taken < beats_out) {
                        output.write(beat, words_out);
                        last_output = cycle;
                        if ((taken + 1) % frame_beats == 0) {
                            frame_ends.push_back(cycle);
                            busy.insert(busy.end(), steps.begin(), steps.end());
                        }
                    } else {
                        ++extra;
                    }
                }
                ++taken;
                traffic.post(cycle);
            }
            if (real) {
#define TAP(index)                                                     \
    if (top.PORT(tap_##index, valid)) {                                    \
        uint32_t watched[words<decltype(top.PORT(tap_##index, payload))>()]; \
        get(top.PORT(tap_##index, payload), watched);                      \
        tap_##index.write(watched, sizeof(watched) / 4);               \
    }
                HWGEN_TAPS(TAP)
#undef TAP
                idle = moved ? 0 : idle + 1;
                if (idle > idle_limit && !finished) {
                    error = "stuck";
                    return;
                }
                if ((cycle & 1023) == 0) {
                    const auto now = std::chrono::steady_clock::now();
                    if (now - reported > std::chrono::milliseconds(200)) {
                        reported = now;
                        std::printf("progress %llu\n", static_cast<unsigned long long>(taken));
                        std::fflush(stdout);
                    }
                }
            }
            edge();
        }
    };

    const auto start = std::chrono::steady_clock::now();
    reset();
    if (reset_at) {
        run(reset_at);
        reset();
    }
    run(0);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    output.close();
#define TAP(index) tap_##index.close();
    HWGEN_TAPS(TAP)
#undef TAP
#if HWGEN_WAVES
    waves.close();
#endif
    top.final();
    const auto line = [](const char* key, uint64_t value) {
        std::printf("%s %llu\n", key, static_cast<unsigned long long>(value));
    };
    line("sent", sent);
    line("taken", taken);
    line("extra", extra);
    line("simulated", cycle);
    line("first_input", first_input);
    line("last_output", last_output);
    const Traffic& traffic = *memory_side;
    line("read_bytes", traffic.bytes[0]);
    line("written_bytes", traffic.bytes[1]);
    for (const uint64_t end : frame_ends) line("frame_end", end);
    for (const uint64_t end : traffic.written_ends) line("frame_written", end);
    for (const uint64_t count : busy) line("busy", count);
    for (const uint64_t count : steps) line("steps", count);
    std::printf("wall %.6f\n", wall.count());
    if (error) std::printf("error %s\n", error);
    return 0;
}
