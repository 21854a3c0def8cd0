// Driver of a design that Verilator translated, with one or several input streams and output streams.
//
// Files hold the beats of each stream as 32-bit words, the lowest word first. A beat has as many words as its payload
// needs. Another file for each stream holds the number of bytes that each beat of a frame moves, as 32-bit words. The
// results are lines "key value" on standard output.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "Vdesign.h"
#include "design.h"  // HWGEN_TAPS(TAP): TAP(number) for each of the HWGEN_LAYERS watched layers; HWGEN_SINKS(SINK):
                     // SINK(number, port) for each of the HWGEN_OUTPUTS outputs; HWGEN_SOURCES(SOURCE):
                     // SOURCE(number, port, bits of its payload) for each of the HWGEN_INPUTS inputs
#include "verilated.h"
#if HWGEN_WAVES == 1
#include "verilated_vcd_c.h"
using Waves = VerilatedVcdC;
#elif HWGEN_WAVES == 2
#include "verilated_fst_c.h"
using Waves = VerilatedFstC;
#endif

// Verilator's spelling of port__member: the second of two underscores is escaped.
#define PORT(port, member) port##___05F##member

namespace {

template <typename Port>
constexpr size_t words() {
    return sizeof(Port) < 4 ? 1 : sizeof(Port) / 4;
}

// Write a beat to a port. Ports of up to 64 bits are integers, wider ports are arrays of words.
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

std::vector<uint32_t> load(const std::string& name) {
    std::FILE* file = std::fopen(name.c_str(), "rb");
    if (!file || std::fseek(file, 0, SEEK_END)) fail("can't read", name.c_str());
    std::vector<uint32_t> words(std::ftell(file) / 4);
    std::rewind(file);
    if (std::fread(words.data(), 4, words.size(), file) != words.size()) fail("can't read", name.c_str());
    std::fclose(file);
    return words;
}

// Source of an input stream: its beats, and the number of beats sent.
struct Source {
    std::vector<uint32_t> beats;
    size_t words;  // per beat
    std::vector<uint32_t> noise;  // the payload while valid is low
    Draw draw;
    bool offered = false;
    uint64_t sent = 0;

    Source(const std::string& name, size_t words, int bits)
        : beats(load(name)), words(words), noise(words, ~0u), draw{} {
        if (bits % 32) noise.back() = (1u << bits % 32) - 1;
    }
    uint64_t count() const { return beats.size() / words; }
    const uint32_t* payload() const { return offered ? &beats[sent * words] : noise.data(); }
};

// Sink of an output stream: its expected number of beats, the beats taken, and the beat that must be held.
struct Sink {
    Output file;
    uint64_t beats_out;
    Draw draw;
    std::vector<uint32_t> beat, held;
    bool ready = false, waiting = false;
    uint64_t taken = 0;
};

// Traffic between the off-chip memory and the design: see hwgen/simulate/memory.py, class Traffic.
struct Traffic {
    const std::vector<std::vector<uint32_t>>& reads;
    const std::vector<std::vector<uint32_t>>& writes;
    uint64_t frames, latency, rate, queue;
    bool one_by_one;
    // Number of beats of each input requested by the end of each of the last latency + 1 cycles.
    std::vector<std::vector<uint64_t>> asked =
        std::vector<std::vector<uint64_t>>(reads.size(), std::vector<uint64_t>(latency + 1, 0));
    std::vector<uint64_t> written = std::vector<uint64_t>(writes.size(), 0);
    std::deque<int> waiting = {};  // output of each beat in the write queue
    size_t side = reads.size();    // side of the present beat: an input's index, or the number of inputs for writes
    uint64_t left = 0, budget = 0, bytes[2] = {0, 0};
    std::vector<uint64_t> there = std::vector<uint64_t>(reads.size() + 1, 0), moved = there;
    std::vector<uint64_t> written_ends;

    void begin(uint64_t cycle, const std::vector<Source>& sources) {
        for (size_t input = 0; input < reads.size(); ++input) {
            uint64_t number = std::min(sources[input].sent + latency + queue, frames * reads[input].size());
            if (one_by_one) number = std::min<uint64_t>(number, (written_ends.size() + 1) * reads[input].size());
            asked[input][cycle % (latency + 1)] = number;
            there[input] = asked[input][(cycle + 1) % (latency + 1)];
        }
        budget = rate;
        move(cycle);
    }
    void post(uint64_t cycle, int output) {
        ++there.back();
        waiting.push_back(output);
        move(cycle);
    }
    bool room() const { return there.back() - moved.back() < queue; }

   private:
    bool writes_now() const { return side == reads.size(); }
    uint32_t size() const {
        if (!writes_now()) return reads[side][moved[side] % reads[side].size()];
        const std::vector<uint32_t>& sizes = writes[waiting.front()];
        return sizes[written[waiting.front()] % sizes.size()];
    }
    // Select the next side, in turn, that has a beat to move. Return whether there is one.
    bool turn() {
        for (size_t number = 1; number <= there.size(); ++number) {
            const size_t next = (side + number) % there.size();
            if (there[next] > moved[next]) {
                side = next;
                return true;
            }
        }
        return false;
    }
    bool frame_written() const {
        for (size_t output = 0; output < writes.size(); ++output) {
            if (written[output] < (written_ends.size() + 1) * writes[output].size()) return false;
        }
        return true;
    }
    void move(uint64_t cycle) {
        for (;;) {
            if (!left) {
                if (!turn()) return;
                left = uint64_t{size()} << 16;
            }
            if (rate && left > budget) {
                left -= budget;
                budget = 0;
                return;
            }
            budget -= left;
            left = 0;
            bytes[writes_now()] += size();
            ++moved[side];
            if (writes_now()) {
                ++written[waiting.front()];
                waiting.pop_front();
                if (frame_written()) written_ends.push_back(cycle);
            }
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 15 + 2 * (HWGEN_INPUTS + HWGEN_OUTPUTS)) {
        fail("usage:", "INPUT OUTPUT READS WRITES FRAMES IDLE RESET_AT LATENCY RATE QUEUE ONE_BY_ONE WAVES "
                       "FIRST_FRAME END_FRAME "
                       "(SOURCE LIMIT) .. (SINK LIMIT) ..");
    }
    const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
    const auto all = [&](const char* name, int count) {
        std::vector<std::vector<uint32_t>> files;
        for (int place = 0; place < count; ++place) {
            files.push_back(load(std::string(name) + "_" + std::to_string(place) + ".bin"));
        }
        return files;
    };
    const std::vector<std::vector<uint32_t>> reads = all(argv[3], HWGEN_INPUTS), writes = all(argv[4], HWGEN_OUTPUTS);
    const uint64_t frames = number(5), idle_limit = number(6), reset_at = number(7);
    const std::string results = argv[2];

    VerilatedContext context;
    context.randReset(0);
#if HWGEN_WAVES
    context.traceEverOn(true);
#endif
    Vdesign top{&context, "TOP"};

    std::vector<Source> sources;
#define SOURCE(index, port, bits) \
    sources.emplace_back(std::string(argv[1]) + "_" #index ".bin", words<decltype(top.PORT(port, payload))>(), bits);
    HWGEN_SOURCES(SOURCE)
#undef SOURCE
    uint64_t beats_in = 0;
    for (const Source& source : sources) beats_in += source.count();

    std::vector<Sink> sinks;
#define SINK(index, port)                                                                                        \
    sinks.push_back(Sink{Output{results + "_" #index ".bin"}, frames * writes[index].size(), Draw{},             \
                         std::vector<uint32_t>(words<decltype(top.PORT(port, payload))>()),                      \
                         std::vector<uint32_t>(words<decltype(top.PORT(port, payload))>())});
    HWGEN_SINKS(SINK)
#undef SINK
#define TAP(index) Output tap_##index{results + "_tap_" #index ".bin"};
    HWGEN_TAPS(TAP)
#undef TAP

#if HWGEN_WAVES
    Waves waves;
    top.trace(&waves, 99);
    std::ifstream scopes("scopes");
    for (std::string scope; std::getline(scopes, scope);) waves.dumpvars(1000, scope);  // and all below
    waves.open(argv[12]);
#endif
    const uint64_t first_recorded = number(13), end_recorded = number(14);
    bool recorded = first_recorded == 0;
    const auto dump = [&] {
#if HWGEN_WAVES
        if (recorded) waves.dump(context.time());
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
#define SOURCE(index, port, bits) \
    top.PORT(port, valid) = 0;    \
    put(top.PORT(port, payload), sources[index].noise.data());
        HWGEN_SOURCES(SOURCE)
#undef SOURCE
#define SINK(index, port) top.PORT(port, ready) = 0;
        HWGEN_SINKS(SINK)
#undef SINK
        for (int cycle = 0; cycle < 2; ++cycle) {
            settle();
            edge();
        }
        top.rst = 0;
    };

    // One run over the inputs: for at most `cycles` cycles before a reset, or to the end if `cycles` is 0.
    uint64_t cycle = 0, first_input = 0, last_output = 0, idle = 0, drained = 0, extra = 0, changed = 0;
    const auto sent = [&] {
        uint64_t sum = 0;
        for (const Source& source : sources) sum += source.sent;
        return sum;
    };
    const auto taken = [&] {
        uint64_t sum = 0;
        for (const Sink& sink : sinks) sum += sink.taken;
        return sum;
    };
    // Whether every output has sent `count` frames.
    const auto all_taken = [&](uint64_t count) {
        for (const Sink& sink : sinks) {
            if (sink.taken < sink.beats_out / frames * count) return false;
        }
        return true;
    };
    // Whether every input has received `count` frames.
    const auto all_sent = [&](uint64_t count) {
        for (size_t place = 0; place < sources.size(); ++place) {
            if (sources[place].sent < reads[place].size() * count) return false;
        }
        return true;
    };
    std::vector<uint64_t> frame_ends;
    const auto memory = [&] {
        return Traffic{reads, writes, frames, number(8), number(9), number(10), number(11) != 0};
    };
    std::optional<Traffic> memory_side;
    std::vector<uint64_t> steps(HWGEN_LAYERS), busy;  // steps of each layer so far; their counts at each frame's end
    const char* error = nullptr;
    const auto run = [&](uint64_t cycles) {
        const bool real = cycles == 0;
        int at = 15;
        const auto draw = [&] {
            const Draw drawn{static_cast<uint32_t>(number(at)), static_cast<uint32_t>(number(at + 1))};
            at += 2;
            return drawn;
        };
        for (Source& source : sources) {
            source.draw = draw();
            source.offered = false;
            source.sent = 0;
        }
        for (Sink& sink : sinks) {
            sink.draw = draw();
            sink.waiting = false;
            sink.taken = 0;
        }
        Traffic& traffic = memory_side.emplace(memory());
        auto reported = std::chrono::steady_clock::now();
        cycle = idle = 0;
        for (;; ++cycle) {
            if (!real && cycle == cycles) return;
            const bool finished = all_taken(frames) && traffic.moved.back() == taken() && sent() == beats_in;
            if (finished && ++drained > HWGEN_DRAIN) return;
            const bool over = real && end_recorded < frames && all_taken(end_recorded);
            recorded = !over && (first_recorded == 0 || (real && all_sent(first_recorded)));
            traffic.begin(cycle, sources);
            for (Sink& sink : sinks) sink.ready = !sink.draw.stall() && traffic.room();
            for (size_t place = 0; place < sources.size(); ++place) {
                const bool stall = sources[place].draw.stall();
                if (sources[place].sent < traffic.moved[place] && !stall) sources[place].offered = true;
            }
#define SOURCE(index, port, bits)                 \
    top.PORT(port, valid) = sources[index].offered; \
    put(top.PORT(port, payload), sources[index].payload());
            HWGEN_SOURCES(SOURCE)
#undef SOURCE
#define SINK(index, port) top.PORT(port, ready) = sinks[index].ready;
            HWGEN_SINKS(SINK)
#undef SINK
            settle();
            bool moved = false;
#define TAP(index) steps[index] += real && top.PORT(tap_##index, busy);
            HWGEN_TAPS(TAP)
#undef TAP
            const auto send = [&](Source& source, bool ready) {
                if (!source.offered || !ready) return;
                if (sent() == 0) first_input = cycle;
                ++source.sent;
                source.offered = false;
                moved = true;
            };
#define SOURCE(index, port, bits) send(sources[index], top.PORT(port, ready));
            HWGEN_SOURCES(SOURCE)
#undef SOURCE
            // Take the beat of an output in this cycle. Return whether the output obeys the rules of a stream.
            const auto take = [&](int place, bool valid) {
                Sink& sink = sinks[place];
                if (sink.waiting && (!valid || sink.beat != sink.held) && real) {
                    error = valid ? "payload" : "valid";
                    changed = place;
                    return false;
                }
                sink.waiting = valid && !sink.ready;
                if (sink.waiting) sink.held = sink.beat;
                if (valid && sink.ready) {
                    moved = true;
                    if (real && sink.taken < sink.beats_out) {
                        sink.file.write(sink.beat.data(), sink.beat.size());
                        last_output = cycle;
                    } else if (real) {
                        ++extra;
                    }
                    ++sink.taken;
                    traffic.post(cycle, place);
                }
                return true;
            };
#define SINK(index, port)                                                              \
    if (top.PORT(port, valid)) get(top.PORT(port, payload), sinks[index].beat.data()); \
    if (!take(index, top.PORT(port, valid))) return;
            HWGEN_SINKS(SINK)
#undef SINK
            if (real && frame_ends.size() < frames && all_taken(frame_ends.size() + 1)) {
                frame_ends.push_back(cycle);
                busy.insert(busy.end(), steps.begin(), steps.end());
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
                        std::printf("progress %llu\n", static_cast<unsigned long long>(taken()));
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
    for (Sink& sink : sinks) sink.file.close();
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
    line("sent", sent());
    line("taken", taken());
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
    line("place", changed);
    if (error) std::printf("error %s\n", error);
    return 0;
}
