// Driver of an engine that Verilator translated, with a model of its memory.
//
// The contents of the memory are a file of bytes. A run lasts from `start` to `done`. The results are lines "key value"
// on standard output.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "Vdesign.h"
#include "design.h"
#include "verilated.h"
#if HWGEN_WAVES == 1
#include "verilated_vcd_c.h"
using Waves = VerilatedVcdC;
#elif HWGEN_WAVES == 2
#include "verilated_fst_c.h"
using Waves = VerilatedFstC;
#endif

// Verilator's spelling of m_axi__name: the second of two underscores is escaped.
#define AXI(name) m_axi___05F##name

namespace {

// Width of the bus, size of a word (the engine's addresses are multiples of it), and border of bursts, in bytes.
constexpr uint64_t BYTES = sizeof(Vdesign::AXI(rdata)), WORD = 8, BORDER = 4096;
constexpr uint32_t OKAY = 0, DECODE_ERROR = 3, INCREMENTING = 1;

[[noreturn]] void fail(const char* what, const char* name) {
    std::fprintf(stderr, "%s %s\n", what, name);
    std::exit(3);
}

std::vector<uint8_t> load(const char* name) {
    std::FILE* file = std::fopen(name, "rb");
    if (!file || std::fseek(file, 0, SEEK_END)) fail("can't read", name);
    std::vector<uint8_t> bytes(std::ftell(file));
    std::rewind(file);
    if (std::fread(bytes.data(), 1, bytes.size(), file) != bytes.size()) fail("can't read", name);
    std::fclose(file);
    return bytes;
}

void save(const char* name, const std::vector<uint8_t>& bytes) {
    std::FILE* file = std::fopen(name, "wb");
    if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fclose(file)) {
        fail("can't write", name);
    }
}

// Address range that the memory answers with an error response in the first run.
struct Fault {
    uint64_t begin, end;
    uint32_t response;
    bool hits(uint64_t address, uint64_t size) const { return begin < address + size && address < end; }
};

// Address range, and the number of bytes read and written in it.
struct Region {
    uint64_t begin, end, read = 0, written = 0;
};

// Memory of the engine: see hwgen/simulate/engine.py, class EngineMemory.
struct Memory {
    std::vector<uint8_t> bytes;
    std::vector<Region> regions;
    Fault fault{0, 0, OKAY};
    uint64_t cycle = 0, read = 0, written = 0;
    const char* error = nullptr;

    Memory(const char* image, uint64_t latency, uint64_t write_latency, uint64_t pace, uint64_t pace_beats,
           uint64_t gap_every, uint64_t gap)
        : bytes(load(image)),
          latency(latency),
          write_latency(write_latency),
          pace(pace),
          pace_beats(pace_beats),
          gap_every(gap_every),
          gap(gap) {}

    void begin(Vdesign& top) {
        const bool gaps = gap_every && cycle % gap_every < gap;
        asking = taking = !gaps;
        if (!may_move(next_write)) taking = false;
        reading = reading || (!gaps && !reads.empty() && reads.front().from <= cycle && may_move(next_read));
        answering = answering || (!gaps && !responses.empty() && responses.front().first <= cycle);
        top.AXI(arready) = top.AXI(awready) = asking;
        top.AXI(wready) = taking;
        top.AXI(rvalid) = reading;
        top.AXI(bvalid) = answering;
        std::memset(&top.AXI(rdata), 0xFF, BYTES);
        top.AXI(rlast) = 0;
        top.AXI(rresp) = top.AXI(bresp) = OKAY;
        if (reading) {
            const Read& beat = reads.front();
            top.AXI(rresp) = response(beat.address, beat.size);
            if (inside(beat.address, beat.size)) {
                auto* lanes = reinterpret_cast<uint8_t*>(&top.AXI(rdata));
                std::memcpy(lanes + beat.address % BYTES, &bytes[beat.address], beat.size);
            }
            top.AXI(rlast) = beat.last;
        }
        if (answering) top.AXI(bresp) = responses.front().second;
    }
    void end(const Vdesign& top) {
        if (reading && top.AXI(rready)) {
            count(reads.front().address, reads.front().size, &Region::read, read);
            reads.pop_front();
            reading = false;
            move(next_read);
        }
        if (answering && top.AXI(bready)) {
            responses.pop_front();
            answering = false;
        }
        if (asking && top.AXI(arvalid)) {
            const uint64_t size = UINT64_C(1) << top.AXI(arsize);
            check(top.AXI(araddr), top.AXI(arlen), size, top.AXI(arburst));
            for (uint64_t beat = 0; beat <= top.AXI(arlen); ++beat) {
                reads.push_back({cycle + latency, top.AXI(araddr) + size * beat, size, beat == top.AXI(arlen)});
            }
        }
        if (asking && top.AXI(awvalid)) {
            const uint64_t size = UINT64_C(1) << top.AXI(awsize);
            check(top.AXI(awaddr), top.AXI(awlen), size, top.AXI(awburst));
            if (size != BYTES) error = "burst";
            bursts.push_back({top.AXI(awaddr), top.AXI(awlen) + UINT64_C(1)});
        }
        if (taking && top.AXI(wvalid)) {
            words.push_back({{}, top.AXI(wstrb), static_cast<bool>(top.AXI(wlast))});
            std::memcpy(words.back().lanes, &top.AXI(wdata), BYTES);
            move(next_write);
            if (!is_of_words(top.AXI(wstrb))) error = "strobe";
        }
        write();
        ++cycle;
    }

   private:
    uint64_t latency, write_latency, pace, pace_beats, gap_every, gap;
    struct Read {
        uint64_t from, address, size;
        bool last;
    };
    struct Burst {
        uint64_t address, beats;
    };
    struct Beat {
        uint8_t lanes[BYTES];
        uint64_t strobe;
        bool last;
    };
    std::deque<Read> reads;
    std::deque<Burst> bursts;
    std::deque<Beat> words;
    std::deque<std::pair<uint64_t, uint32_t>> responses;
    bool asking = false, taking = false, reading = false, answering = false;
    // Earliest times of the next beats, in cycles divided by pace_beats.
    uint64_t next_read = 0, next_write = 0;

    bool may_move(uint64_t next) const { return cycle * pace_beats >= next; }
    // A beat moves in this cycle. If it could have moved a cycle earlier, the count of fractions starts again.
    void move(uint64_t& next) const {
        const uint64_t now = cycle * pace_beats;
        next = (now - next < pace_beats ? next : now) + pace;
    }
    bool inside(uint64_t address, uint64_t size) const { return address + size <= bytes.size(); }
    uint32_t response(uint64_t address, uint64_t size) const {
        return fault.hits(address, size) ? fault.response : inside(address, size) ? OKAY : DECODE_ERROR;
    }
    // Whether a strobe selects whole words, at least one. A bus narrower than a word must be selected completely.
    static bool is_of_words(uint64_t strobe) {
        for (uint64_t lane = 0; lane < BYTES; lane += WORD) {
            const uint64_t all = (UINT64_C(1) << std::min(WORD, BYTES)) - 1, part = strobe >> lane & all;
            if (part != 0 && part != all) return false;
        }
        return strobe != 0;
    }
    void check(uint64_t address, uint64_t length, uint64_t size, uint64_t kind) {
        if ((size != BYTES && size != WORD) || size > BYTES || kind != INCREMENTING || address % size) error = "burst";
        if (address / BORDER != (address + size * length) / BORDER) error = "border";
    }
    void count(uint64_t address, uint64_t size, uint64_t Region::* moved, uint64_t& all) {
        all += size;
        for (Region& region : regions) {
            if (region.begin <= address && address < region.end) region.*moved += size;
        }
    }
    void write() {
        while (!bursts.empty() && words.size() >= bursts.front().beats) {
            const Burst burst = bursts.front();
            uint32_t worst = OKAY;
            for (uint64_t beat = 0; beat < burst.beats; ++beat) {
                const uint64_t address = burst.address + BYTES * beat;
                const Beat& moved = words.front();
                if (moved.last != (beat + 1 == burst.beats)) error = "last";
                const uint32_t answer = response(address, BYTES);
                for (uint64_t lane = 0; lane < BYTES; ++lane) {
                    if (!(moved.strobe >> lane & 1)) continue;
                    if (answer == OKAY) bytes[address + lane] = moved.lanes[lane];
                    count(address + lane, 1, &Region::written, written);
                }
                worst = std::max(worst, answer);
                words.pop_front();
            }
            bursts.pop_front();
            responses.push_back({cycle + write_latency, worst});
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 18 || argc % 2 != 0) {
        fail("usage:", "IMAGE RESULT BASE LATENCY WRITE_LATENCY PACE PACE_BEATS GAP_EVERY GAP RUNS RESET_AT LIMIT DRAIN WAVES "
                       "FAULT_BEGIN FAULT_END FAULT_RESPONSE (BEGIN END) ..");
    }
    const auto number = [&](int index) { return std::strtoull(argv[index], nullptr, 10); };
    const uint64_t runs = number(10), reset_at = number(11), limit = number(12), drain = number(13);
    const auto fresh = [&] {
        Memory memory{argv[1], number(4), number(5), number(6), number(7), number(8), number(9)};
        memory.fault = {number(15), number(16), static_cast<uint32_t>(number(17))};
        for (int place = 18; place < argc; place += 2) memory.regions.push_back({number(place), number(place + 1)});
        return memory;
    };
    VerilatedContext context;
    context.randReset(0);
#if HWGEN_WAVES
    context.traceEverOn(true);
#endif
    Vdesign top{&context, "TOP"};
#if HWGEN_WAVES
    Waves waves;
    top.trace(&waves, 99);
    waves.open(argv[14]);
#endif
    const auto half = [&](int clock) {
        top.clk = clock;
        top.eval();
#if HWGEN_WAVES
        waves.dump(context.time());
#endif
        context.timeInc(1);
    };
    Memory memory = fresh();
    const auto reset = [&] {
        memory = fresh();
        top.rst = 1;
        top.start = 0;
        top.program_base = number(3);
        top.pace = number(6) | number(7) << 8;
        for (int count = 0; count < 2; ++count) {
            memory.begin(top);
            half(0);
            half(1);
        }
        top.rst = 0;
    };
    const auto cycle = [&] {
        memory.begin(top);
        half(0);
        memory.end(top);
        const bool done = top.done;
        half(1);
        return done;
    };
    const auto line = [](const char* key, uint64_t value) {
        std::printf("%s %llu\n", key, static_cast<unsigned long long>(value));
    };
    auto reported = std::chrono::steady_clock::now();
    // Run from start to done, or for `cycles` cycles if not 0. Return false after an error or beyond the limit.
    const auto run = [&](uint64_t cycles) {
        for (uint64_t now = 0;; ++now) {
            if (cycles && now == cycles) return true;
            top.start = now == 0;
            if (cycle() && now) {
                line("cycles", now);
                return true;
            }
            if (memory.error || now > limit) return false;
            if ((now & 1023) == 0 && std::chrono::steady_clock::now() - reported > std::chrono::milliseconds(200)) {
                reported = std::chrono::steady_clock::now();
                line("progress", memory.read + memory.written);
                std::fflush(stdout);
            }
        }
    };

    const auto start = std::chrono::steady_clock::now();
    reset();
    if (reset_at) {
        run(reset_at);
        reset();
    }
    const char* error = nullptr;
    for (uint64_t count = 0; count < runs && !error; ++count) {
        if (!run(0)) error = memory.error ? memory.error : "stuck";
        line("read", memory.read);
        line("written", memory.written);
        for (const Region& region : memory.regions) {
            line("region_read", region.read);
            line("region_written", region.written);
        }
        line("response", top.error);
        memory.fault.end = memory.fault.begin;
    }
    // After the last run the engine must not move data.
    top.start = 0;
    const uint64_t moved = memory.read + memory.written;
    for (uint64_t count = 0; count < drain && !error; ++count) {
        if (!cycle() || memory.read + memory.written != moved) error = "restless";
    }
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
#if HWGEN_WAVES
    waves.close();
#endif
    top.final();
    save(argv[2], memory.bytes);
    line("simulated", memory.cycle);
    std::printf("wall %.6f\n", wall.count());
    if (error) std::printf("error %s\n", error);
    return 0;
}
