// Hardware around an emitted bus wrapper, for bench/host.py: a processor's accesses, AXI DMAs in simple mode, memory.
//
// The processor is a program in this process. `host_begin` says how its time and the simulation's belong together.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>
#include <vector>

#include "Vdesign.h"
#include "design.h"
#include "verilated.h"

namespace {

// Registers of a DMA's channel (PG021, direct register mode), and their bits.
enum : uint32_t { CONTROL = 0x00, STATUS = 0x04, ADDRESS = 0x18, HIGH_ADDRESS = 0x1C, LENGTH = 0x28, RECEIVE = 0x30 };
enum : uint32_t { RUN = 1, RESET = 4, HALTED = 1, IDLE = 2, COMPLETE = 1 << 12 };
// Cycles that a wait for a channel takes at most.
constexpr uint64_t PATIENCE = 1ull << 32;

struct Channel {
    bool running = false, busy = false, used = false, complete = false, is_loaded = false;
    uint64_t address = 0, ready = 0;
    uint32_t length = 0, moved = 0, begun = 0, ended = 0;  // bytes, and packets

    uint8_t* pointer() const { return reinterpret_cast<uint8_t*>(address) + moved; }
    void end() { busy = false, complete = true, ++ended; }
};

VerilatedContext context;
Vdesign* design;
Channel sends[HWGEN_INPUT_COUNT], receives[HWGEN_OUTPUT_COUNT];
uint64_t cycles, model_ns, software_ns, last_exit;
double cycles_per_ns, bytes_per_cycle, credit, owed;
uint32_t latency;
// How the times of software and hardware belong together.
enum Mode : int {
    WAIT,    // A read of a busy channel's status waits until the channel has moved its packet, if what the packet
             // consists of has been sent. Values that are read are kept.
    REPLAY,  // Reads return the kept values, in order, and nothing is simulated: the software runs alone.
    COUPLE   // The processor time between two accesses passes in the simulation, too, times `scale`.
} mode;
double scale;
std::vector<uint32_t> kept;
size_t replayed;

uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000000u + time.tv_nsec;
}

// Whether memory moves so many bytes in this cycle.
bool spend(uint32_t bytes) {
    if (credit < bytes) return false;
    credit -= bytes;
    return true;
}

template <typename Data, typename Keep>
void offer(Channel& channel, Data& data, Keep& keep, CData& last, CData& valid) {
    const uint32_t size = std::min<uint32_t>(sizeof(Data), channel.length - channel.moved);
    if (channel.busy && !channel.is_loaded && cycles >= channel.ready) channel.is_loaded = spend(size);
    valid = channel.busy && channel.is_loaded;
    if (!valid) return;
    std::memset(&data, 0, sizeof data);
    std::memcpy(&data, channel.pointer(), size);
    keep = static_cast<Keep>((1u << size) - 1);
    last = channel.moved + size == channel.length;
}

template <typename Data>
void sent(Channel& channel, bool handshake) {
    if (!handshake) return;
    channel.is_loaded = false;
    channel.moved += std::min<uint32_t>(sizeof(Data), channel.length - channel.moved);
    if (channel.moved == channel.length) channel.end();
}

template <typename Data, typename Keep>
void received(Channel& channel, bool handshake, const Data& data, Keep keep, bool last) {
    if (!handshake) return;
    const uint32_t size = __builtin_popcount(keep);
    channel.is_loaded = false;
    std::memcpy(channel.pointer(), &data, size);
    channel.moved += size;
    if (last) channel.end();
}

void step() {
    credit = std::min(credit + bytes_per_cycle, 64 + bytes_per_cycle);
#define OFFER(number, name)                                                                                       \
    offer(sends[number], design->name##_tdata, design->name##_tkeep, design->name##_tlast, design->name##_tvalid);
#define TAKE(number, name)                                                                                        \
    {                                                                                                             \
        Channel& channel = receives[number];                                                                      \
        if (channel.busy && !channel.is_loaded && cycles >= channel.ready)                                        \
            channel.is_loaded = spend(sizeof design->name##_tdata);                                               \
        design->name##_tready = channel.busy && channel.is_loaded;                                                \
    }
    HWGEN_INPUTS(OFFER)
    HWGEN_OUTPUTS(TAKE)
    design->aclk = 0;
    design->eval();
    bool takes[HWGEN_INPUT_COUNT];
#define TAKES(number, name) takes[number] = design->name##_tvalid && design->name##_tready;
#define RECEIVED(number, name)                                                                                    \
    received(receives[number], design->name##_tvalid && design->name##_tready, design->name##_tdata,              \
             design->name##_tkeep, design->name##_tlast);
    HWGEN_INPUTS(TAKES)
    HWGEN_OUTPUTS(RECEIVED)
    design->aclk = 1;
    design->eval();
#define SENT(number, name) sent<decltype(design->name##_tdata)>(sends[number], takes[number]);
    HWGEN_INPUTS(SENT)
    ++cycles;
}

uint32_t read_register(uint32_t offset) {
    design->s_axi_control_araddr = offset;
    design->s_axi_control_arvalid = 1;
    design->s_axi_control_rready = 1;
    bool is_asked = false, is_told = false;
    uint32_t value = 0;
    while (!is_told) {
        design->aclk = 0;
        design->eval();
        const bool asked = design->s_axi_control_arvalid && design->s_axi_control_arready;
        is_told = design->s_axi_control_rvalid;
        value = design->s_axi_control_rdata;
        step();
        if (asked) is_asked = true;
        if (is_asked) design->s_axi_control_arvalid = 0;
    }
    design->s_axi_control_rready = 0;
    return value;
}

void write_register(uint32_t offset, uint32_t value) {
    design->s_axi_control_awaddr = offset;
    design->s_axi_control_wdata = value;
    design->s_axi_control_wstrb = 15;
    design->s_axi_control_awvalid = design->s_axi_control_wvalid = design->s_axi_control_bready = 1;
    bool is_told = false;
    while (!is_told) {
        design->aclk = 0;
        design->eval();
        const bool address = design->s_axi_control_awvalid && design->s_axi_control_awready;
        const bool data = design->s_axi_control_wvalid && design->s_axi_control_wready;
        is_told = design->s_axi_control_bvalid;
        step();
        if (address) design->s_axi_control_awvalid = 0;
        if (data) design->s_axi_control_wvalid = 0;
    }
    design->s_axi_control_bready = 0;
}

Channel* channel_of(int dma, uint32_t offset) {
    if (offset >= RECEIVE) return dma < HWGEN_OUTPUT_COUNT ? &receives[dma] : nullptr;
    return dma < HWGEN_INPUT_COUNT ? &sends[dma] : nullptr;
}

// Whether a busy channel ends its packet without another access of the program.
bool is_fed(const Channel& channel) {
    if (std::find_if(std::begin(sends), std::end(sends), [&](Channel& send) { return &send == &channel; }) !=
        std::end(sends))
        return true;
    return std::all_of(std::begin(sends), std::end(sends), [&](Channel& send) { return send.begun > channel.ended; });
}

uint32_t read_channel(Channel& channel, uint32_t offset) {
    if (offset == STATUS) {
        const bool waits = mode == WAIT && is_fed(channel);
        for (uint64_t end = cycles + PATIENCE; waits && channel.busy && cycles < end;) step();
        return (channel.running ? 0 : HALTED) | (channel.running && channel.used && !channel.busy ? IDLE : 0) |
               (channel.complete ? COMPLETE : 0);
    }
    return offset == CONTROL ? channel.running : offset == LENGTH ? channel.moved : static_cast<uint32_t>(channel.address);
}

void write_channel(Channel& channel, uint32_t offset, uint32_t value) {
    if (offset == CONTROL && value & RESET) channel = Channel();
    else if (offset == CONTROL) channel.running = value & RUN;
    else if (offset == STATUS) channel.complete &= !(value & COMPLETE);
    else if (offset == ADDRESS) channel.address = (channel.address >> 32 << 32) | value;
    else if (offset == HIGH_ADDRESS) channel.address = (channel.address & 0xFFFFFFFFu) | static_cast<uint64_t>(value) << 32;
    else if (offset == LENGTH && channel.running) {
        channel.length = value, channel.moved = 0, channel.is_loaded = false;
        channel.busy = channel.used = true, ++channel.begun;
        channel.ready = cycles + latency;
    }
}

// Let the software's time since the last access pass.
void enter() {
    const uint64_t begun = now(), passed = begun - last_exit;
    software_ns += passed;
    if (mode == COUPLE) owed += passed * scale * cycles_per_ns;
    for (; owed >= 1; owed -= 1) step();
    last_exit = begun;
}

void leave() {
    const uint64_t end = now();
    model_ns += end - last_exit;
    last_exit = end;
}

}  // namespace

extern "C" {

void host_open(double clock_mhz, double memory_gb_s, uint32_t memory_latency) {
    design = new Vdesign(&context);
    cycles_per_ns = clock_mhz / 1000;
    bytes_per_cycle = 1000 * memory_gb_s / clock_mhz;
    latency = memory_latency;
    for (design->aresetn = 0; cycles < 4;) step();
    design->aresetn = 1;
    step();
}

// Begin to measure.
void host_begin(int how, double time_scale) {
    mode = static_cast<Mode>(how), scale = time_scale;
    if (mode == WAIT) kept.clear();
    cycles = software_ns = model_ns = replayed = 0;
    owed = 0;
    last_exit = now();
}

// Cycles, and nanoseconds of software and of the model, since the last `host_begin`.
void host_figures(double* figures) {
    enter();
    figures[0] = cycles, figures[1] = software_ns, figures[2] = model_ns;
    leave();
}

// Registers of the wrapper are those of DMA -1.
uint32_t host_read(int dma, uint32_t offset) {
    enter();
    uint32_t value = 0;
    if (mode == REPLAY) {
        value = replayed < kept.size() ? kept[replayed++] : 0;
    } else {
        Channel* channel = dma < 0 ? nullptr : channel_of(dma, offset);
        value = dma < 0 ? read_register(offset) : channel ? read_channel(*channel, offset % RECEIVE) : 0;
    }
    if (mode == WAIT) kept.push_back(value);
    leave();
    return value;
}

void host_write(int dma, uint32_t offset, uint32_t value) {
    enter();
    Channel* channel = dma < 0 ? nullptr : channel_of(dma, offset);
    if (mode == REPLAY) {
    } else if (dma < 0) {
        write_register(offset, value);
    } else if (channel) {
        write_channel(*channel, offset % RECEIVE, value);
    }
    leave();
}
}
