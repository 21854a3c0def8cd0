/* Written by hwgen: see accelerator_driver.h. */
#include "accelerator_driver.h"

#include <stddef.h>
#include <string.h>

/* @platform@ */

/* Registers of a DMA in simple mode, and their bits: PG021, Direct Register Mode Register Address Map. The channel into the
 * accelerator (MM2S) comes first, the other one (S2MM) at an offset. The names end so that a design called dma, control or
 * status has none of them among its own. */
enum {
    DMA_CONTROL_AT = 0x00,
    DMA_STATUS_AT = 0x04,
    DMA_ADDRESS_AT = 0x18,
    DMA_LENGTH_AT = 0x28,
    DMA_RECEIVE_AT = 0x30,
    CONTROL_RUN_BIT = 1 << 0,
    CONTROL_RESET_BIT = 1 << 2,
    STATUS_STILL_BITS = 3 << 0, /* halted, or idle */
    STATUS_ERROR_BITS = 7 << 4,
    STATUS_COMPLETE_BIT = 1 << 12
};

typedef struct {
    uint32_t bytes, frame_bytes, value_bytes;
    uint32_t channels, height, width, pixels;
    uint32_t fold_count, row_count, column_count;
    const uint32_t (*folds)[2];   /* channels of each beat of a pixel: the first, and the end */
    const uint32_t (*rows)[2];    /* of each rectangle in which a map travels */
    const uint32_t (*columns)[3]; /* the same, and the column at which its first beat begins */
} stream_layout;

/* @layouts@ */

static uint32_t read_register(const accelerator_device *device, uintptr_t offset)
{
    return HWGEN_READ32(device->registers + offset);
}

static void write_register(const accelerator_device *device, uintptr_t offset, uint32_t value)
{
    HWGEN_WRITE32(device->registers + offset, value);
}

/* The registers of a stream's channel. */
static uintptr_t channel_of(const accelerator_device *device, unsigned stream)
{
    if (stream < ACCELERATOR_INPUTS)
        return device->dmas[stream];
    return device->dmas[stream - ACCELERATOR_INPUTS] + DMA_RECEIVE_AT;
}

static accelerator_status reset_dma(const accelerator_device *device, uintptr_t channel)
{
    uint32_t looks;

    HWGEN_WRITE32(channel + DMA_CONTROL_AT, CONTROL_RESET_BIT);
    for (looks = 0; looks < device->patience; looks++)
        if (!(HWGEN_READ32(channel + DMA_CONTROL_AT) & CONTROL_RESET_BIT))
            return ACCELERATOR_OK;
    return ACCELERATOR_DMA_ERROR;
}

/* A reset by one channel of a DMA is one of both. */
static accelerator_status reset_dmas(const accelerator_device *device)
{
    accelerator_status status = ACCELERATOR_OK;
    unsigned stream;

    for (stream = 0; stream < ACCELERATOR_STREAMS && status == ACCELERATOR_OK; stream++)
        status = reset_dma(device, channel_of(device, stream));
    return status;
}

accelerator_status accelerator_reset(const accelerator_device *device)
{
    /* The DMAs first, so that none goes on with a frame into the accelerator behind its reset. */
    const accelerator_status status = reset_dmas(device);

    write_register(device, ACCELERATOR_RESET, ACCELERATOR_RESET_RESET);
    (void)read_register(device, ACCELERATOR_STATUS); /* answered when the reset was written */
    /* And again: they take a few words from the accelerator before anybody asks for them. */
    return status == ACCELERATOR_OK ? reset_dmas(device) : status;
}

/* Whether something is on its way that nobody waits for. */
static int is_busy(const accelerator_device *device)
{
    unsigned stream;

    for (stream = 0; stream < ACCELERATOR_STREAMS; stream++) {
        const uintptr_t channel = channel_of(device, stream);

        if (HWGEN_READ32(channel + DMA_CONTROL_AT) & CONTROL_RESET_BIT ||
            !(HWGEN_READ32(channel + DMA_STATUS_AT) & STATUS_STILL_BITS))
            return 1;
    }
    return (read_register(device, ACCELERATOR_STATUS) & ACCELERATOR_STATUS_BUSY) != 0;
}

accelerator_status accelerator_open(
    accelerator_device *device, uintptr_t registers, const uintptr_t *dmas, uint32_t patience)
{
    uint64_t hash;

    if (device == NULL || dmas == NULL)
        return ACCELERATOR_NO_BUFFER;
    device->registers = registers;
    memcpy(device->dmas, dmas, sizeof device->dmas);
    device->patience = patience;
    if (read_register(device, ACCELERATOR_IDENTITY) != ACCELERATOR_IDENTITY_IS)
        return ACCELERATOR_NOT_THERE;
    if (read_register(device, ACCELERATOR_VERSION) >> 16 != ACCELERATOR_VERSION_MAJOR_IS)
        return ACCELERATOR_OTHER_VERSION;
    hash = (uint64_t)read_register(device, ACCELERATOR_BUILD_HASH_HIGH) << 32;
    hash |= read_register(device, ACCELERATOR_BUILD_HASH_LOW);
    if (hash != ACCELERATOR_BUILD_HASH)
        return ACCELERATOR_OTHER_DESIGN;
    write_register(device, ACCELERATOR_INTERRUPT_ENABLE, 0);
    write_register(device, ACCELERATOR_CONTROL, ACCELERATOR_CONTROL_ENABLE);
    return accelerator_reset(device);
}

/* Lets a channel move a frame. */
static void start(uintptr_t channel, const stream_layout *layout, const void *buffer)
{
    HWGEN_WRITE32(channel + DMA_STATUS_AT, STATUS_COMPLETE_BIT); /* of the frame before */
    HWGEN_WRITE32(channel + DMA_CONTROL_AT, CONTROL_RUN_BIT);
    HWGEN_WRITE32(channel + DMA_ADDRESS_AT, HWGEN_BUS_ADDRESS(buffer));
    HWGEN_WRITE32(channel + DMA_LENGTH_AT, layout->frame_bytes);
}

/* Waits until a channel has moved its frame. */
static accelerator_status finish(const accelerator_device *device, unsigned stream)
{
    const uintptr_t channel = channel_of(device, stream);
    uint32_t looks;

    for (looks = 0; looks < device->patience; looks++) {
        const uint32_t status = HWGEN_READ32(channel + DMA_STATUS_AT);

        if (status & STATUS_ERROR_BITS)
            return ACCELERATOR_DMA_ERROR;
        if (status & STATUS_COMPLETE_BIT) {
            const uint32_t length = HWGEN_READ32(channel + DMA_LENGTH_AT); /* what was moved */

            return length == layouts[stream].frame_bytes ? ACCELERATOR_OK : ACCELERATOR_WRONG_LENGTH;
        }
    }
    return ACCELERATOR_TIMEOUT;
}

accelerator_status accelerator_start(const accelerator_device *device, const void *const *inputs, void *const *outputs)
{
    const void *buffers[ACCELERATOR_STREAMS];
    accelerator_status status;
    unsigned stream;

    if (inputs == NULL || outputs == NULL)
        return ACCELERATOR_NO_BUFFER;
    for (stream = 0; stream < ACCELERATOR_STREAMS; stream++) {
        buffers[stream] = stream < ACCELERATOR_INPUTS ? inputs[stream] : outputs[stream - ACCELERATOR_INPUTS];
        if (buffers[stream] == NULL)
            return ACCELERATOR_NO_BUFFER;
        if (HWGEN_BUS_ADDRESS(buffers[stream]) % layouts[stream].bytes)
            return ACCELERATOR_UNALIGNED;
    }
    if (is_busy(device)) {
        status = accelerator_reset(device);
        if (status != ACCELERATOR_OK)
            return status;
    }
    write_register(device, ACCELERATOR_ERRORS, 0xFFFFFFFFu);
    /* Outputs first: whatever comes is awaited. Nothing of them may be written from a cache while the DMA writes them. */
    for (stream = ACCELERATOR_STREAMS; stream-- > 0;) {
        HWGEN_FLUSH(buffers[stream], layouts[stream].frame_bytes);
        start(channel_of(device, stream), &layouts[stream], buffers[stream]);
    }
    return ACCELERATOR_OK;
}

/* Whether there is a buffer for each output. */
static int are_there(void *const *outputs)
{
    unsigned output;

    for (output = 0; outputs != NULL && output < ACCELERATOR_STREAMS - ACCELERATOR_INPUTS; output++)
        if (outputs[output] == NULL)
            return 0;
    return outputs != NULL;
}

accelerator_status accelerator_finish(const accelerator_device *device, void *const *outputs)
{
    accelerator_status status = are_there(outputs) ? ACCELERATOR_OK : ACCELERATOR_NO_BUFFER;
    unsigned stream;

    for (stream = 0; stream < ACCELERATOR_STREAMS && status == ACCELERATOR_OK; stream++)
        status = finish(device, stream);
    if (status != ACCELERATOR_OK)
        return accelerator_reset(device) == ACCELERATOR_OK ? status : ACCELERATOR_DMA_ERROR;
    for (stream = ACCELERATOR_INPUTS; stream < ACCELERATOR_STREAMS; stream++)
        HWGEN_INVALIDATE(outputs[stream - ACCELERATOR_INPUTS], layouts[stream].frame_bytes);
    return read_register(device, ACCELERATOR_ERRORS) ? ACCELERATOR_WRONG_FRAME : ACCELERATOR_OK;
}

accelerator_status accelerator_run(const accelerator_device *device, const void *const *inputs, void *const *outputs)
{
    const accelerator_status status = accelerator_start(device, inputs, outputs);

    return status == ACCELERATOR_OK ? accelerator_finish(device, outputs) : status;
}

void accelerator_enable_interrupt(const accelerator_device *device, uint32_t events)
{
    write_register(device, ACCELERATOR_INTERRUPT_STATUS, 0xFFFFFFFFu);
    write_register(device, ACCELERATOR_INTERRUPT_ENABLE, events);
}

uint32_t accelerator_handle_interrupt(const accelerator_device *device)
{
    uint32_t happened = read_register(device, ACCELERATOR_INTERRUPT_STATUS);

    happened &= read_register(device, ACCELERATOR_INTERRUPT_ENABLE);
    write_register(device, ACCELERATOR_INTERRUPT_STATUS, happened);
    (void)read_register(device, ACCELERATOR_INTERRUPT_STATUS); /* the write has come when this is answered: the line is low */
    return happened;
}

#ifdef ACCELERATOR_WEIGHTS
/* 32 bits of a file, the lowest byte first. */
static uint32_t word_of(const unsigned char *place)
{
    return place[0] | (uint32_t)place[1] << 8 | (uint32_t)place[2] << 16 | (uint32_t)place[3] << 24;
}

/* Waits until a bit of STATUS has a value, or a load is found to be wrong. */
static accelerator_status await(const accelerator_device *device, uint32_t mask, uint32_t value)
{
    uint32_t looks;

    for (looks = 0; looks < device->patience; looks++) {
        const uint32_t status = read_register(device, ACCELERATOR_STATUS);

        if (read_register(device, ACCELERATOR_ERRORS) & ACCELERATOR_ERRORS_WEIGHTS)
            return ACCELERATOR_WRONG_WEIGHTS;
        if ((status & mask) == value)
            return ACCELERATOR_OK;
    }
    return ACCELERATOR_TIMEOUT;
}

accelerator_status accelerator_load_weights(const accelerator_device *device, const void *file, uint32_t bytes)
{
    const unsigned char *const content = file;
    const uint32_t fixed = 16; /* a mark, and the size of what the file says of itself, with a checksum */
    accelerator_status status;
    uint32_t place;

    if (content == NULL)
        return ACCELERATOR_NO_BUFFER;
    if (bytes < fixed || memcmp(content, "hwgenwts", 8) != 0 || word_of(content + 8) > bytes - fixed)
        return ACCELERATOR_WRONG_WEIGHTS;
    place = fixed + word_of(content + 8);
    if ((bytes - place) % 4 != 0 || bytes - place < 12)
        return ACCELERATOR_WRONG_WEIGHTS;
    write_register(device, ACCELERATOR_ERRORS, ACCELERATOR_ERRORS_WEIGHTS);
    write_register(device, ACCELERATOR_WEIGHTS, word_of(content + place));
    status = await(device, ACCELERATOR_STATUS_WEIGHTS_WAIT, 0); /* for frames that are on their way */
    if (status != ACCELERATOR_OK) {
        accelerator_reset(device); /* or the word that waits would hold all frames back */
        return status;
    }
    for (place += 4; place < bytes - 4; place += 4)
        write_register(device, ACCELERATOR_WEIGHTS, word_of(content + place));
    write_register(device, ACCELERATOR_WEIGHTS_LAST, word_of(content + place));
    return await(device, ACCELERATOR_STATUS_WEIGHTS_GOOD, ACCELERATOR_STATUS_WEIGHTS_GOOD);
}
#endif

/* Copies the values of one beat, from a map or into it; where no pixel is, zeros go into the frame. Returns the bytes. */
static size_t move_beat(
    const stream_layout *layout, const uint32_t *channels, uint32_t row, uint32_t begin, const uint32_t *columns,
    unsigned char *map, unsigned char *frame, int into_frame)
{
    const size_t size = layout->value_bytes;
    unsigned char *const first = frame;
    uint32_t channel, column;

    for (channel = channels[0]; channel < channels[1]; channel++)
        for (column = begin; column < begin + layout->pixels; column++, frame += size) {
            const int inside = column >= columns[0] && column < columns[1];
            unsigned char *value = NULL;

            if (inside)
                value = map + (((size_t)channel * layout->height + row) * layout->width + column) * size;
            if (into_frame && inside)
                memcpy(frame, value, size);
            else if (into_frame)
                memset(frame, 0, size);
            else if (inside)
                memcpy(value, frame, size);
        }
    return (size_t)(frame - first);
}

/* Goes through a frame in the order of memory: rectangle by rectangle, row by row, beat by beat. */
static void move_map(const stream_layout *layout, unsigned char *map, unsigned char *frame, int into_frame)
{
    uint32_t high, wide, row, begin, fold;

    for (high = 0; high < layout->row_count; high++)
        for (wide = 0; wide < layout->column_count; wide++)
            for (row = layout->rows[high][0]; row < layout->rows[high][1]; row++)
                for (begin = layout->columns[wide][2]; begin < layout->columns[wide][1]; begin += layout->pixels)
                    for (fold = 0; fold < layout->fold_count; fold++)
                        frame += move_beat(
                            layout, layout->folds[fold], row, begin, layout->columns[wide], map, frame, into_frame);
}

void accelerator_pack(unsigned stream, const void *map, void *frame)
{
    if (stream < ACCELERATOR_STREAMS && map != NULL && frame != NULL)
        move_map(&layouts[stream], (unsigned char *)(uintptr_t)map, (unsigned char *)frame, 1);
}

void accelerator_unpack(unsigned stream, const void *frame, void *map)
{
    if (stream < ACCELERATOR_STREAMS && map != NULL && frame != NULL)
        move_map(&layouts[stream], (unsigned char *)map, (unsigned char *)(uintptr_t)frame, 0);
}
