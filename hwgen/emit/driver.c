/* Driver of accelerator_axi, written by hwgen: see accelerator_driver.h. */
#include "accelerator_driver.h"

#include <stddef.h>
#include <string.h>

/* @platform@ */

/* Offsets of a DMA's registers in simple mode, and their bits: PG021, Direct Register Mode Register Address Map. The
 * registers of the receiving channel (S2MM) follow the registers of the sending one (MM2S) at an offset. The endings of the
 * names avoid conflicts with a design that is called dma, control or status. */
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

enum { MAX_FRAMES = 0xFFFF, MAX_BYTES = (1 << 26) - 1 }; /* of a packet: PACKET_FRAMES, and length registers of 26 bits */

/* Memory layout of a stream's frame. */
typedef struct {
    uint32_t bytes, frame_bytes, value_bytes;     /* width of the stream, size of a frame, size of a value */
    uint32_t channels, height, width, pixels;     /* shape of the map, and number of pixels per beat */
    uint32_t fold_count, row_count, column_count; /* lengths of the following tables */
    const uint32_t (*folds)[2];                   /* first and last channel + 1 of each beat of a pixel */
    const uint32_t (*rows)[2];                    /* first and last row + 1 of each row of rectangles */
    const uint32_t (*columns)[3]; /* first and last column + 1 of each column of rectangles, and first column of a beat */
} stream_layout;

/* @layouts@ */

/* Return the distance of a packet's frames in memory, in bytes: each begins with a new word of the stream. */
static uint32_t stride_of(const stream_layout *layout)
{
    return (layout->frame_bytes + layout->bytes - 1) / layout->bytes * layout->bytes;
}

/* Return the size of a packet of some frames in memory, in bytes. */
static uint64_t packet_bytes(const stream_layout *layout, uint32_t frames)
{
    return (uint64_t)(frames - 1) * stride_of(layout) + layout->frame_bytes;
}

static uint32_t read_register(const accelerator_device *device, uintptr_t offset)
{
    return HWGEN_READ32(device->registers + offset);
}

static void write_register(const accelerator_device *device, uintptr_t offset, uint32_t value)
{
    HWGEN_WRITE32(device->registers + offset, value);
}

/* Return the base address of the DMA channel that serves a stream. */
static uintptr_t channel_of(const accelerator_device *device, unsigned stream)
{
    if (stream < ACCELERATOR_INPUTS)
        return device->dmas[stream];
    return device->dmas[stream - ACCELERATOR_INPUTS] + DMA_RECEIVE_AT;
}

/* Reset a DMA through one of its channels. The reset applies to both channels. */
static accelerator_status reset_dma(const accelerator_device *device, uintptr_t channel)
{
    uint32_t polls;

    HWGEN_WRITE32(channel + DMA_CONTROL_AT, CONTROL_RESET_BIT);
    for (polls = 0; polls < device->patience; polls++)
        if (!(HWGEN_READ32(channel + DMA_CONTROL_AT) & CONTROL_RESET_BIT))
            return ACCELERATOR_OK;
    return ACCELERATOR_DMA_ERROR;
}

/* Reset the DMAs of all streams. */
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
    /* The DMAs are reset first, so that no DMA sends the rest of a frame after the accelerator's reset. */
    const accelerator_status status = reset_dmas(device);

    write_register(device, ACCELERATOR_RESET, ACCELERATOR_RESET_RESET);
    (void)read_register(device, ACCELERATOR_STATUS); /* the answer comes after the reset */
    /* The DMAs are reset again, because a DMA reads a few words from the accelerator ahead of a transfer. */
    return status == ACCELERATOR_OK ? reset_dmas(device) : status;
}

/* Return whether a frame is in the accelerator or in a DMA. */
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
    accelerator_status status;
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
    device->frames = 1;
    status = accelerator_reset(device);
    write_register(device, ACCELERATOR_PACKET_FRAMES, 1); /* another program may have left more */
    return status;
}

accelerator_status accelerator_set_frames(accelerator_device *device, uint32_t frames)
{
    accelerator_status status = ACCELERATOR_OK;
    unsigned stream;

    if (device == NULL)
        return ACCELERATOR_NO_BUFFER;
    if (frames == 0 || frames > MAX_FRAMES)
        return ACCELERATOR_WRONG_COUNT;
    for (stream = 0; stream < ACCELERATOR_STREAMS; stream++)
        if (packet_bytes(&layouts[stream], frames) > MAX_BYTES)
            return ACCELERATOR_WRONG_COUNT;
    if (is_busy(device))
        status = accelerator_reset(device);
    if (status == ACCELERATOR_OK) {
        write_register(device, ACCELERATOR_PACKET_FRAMES, frames);
        device->frames = frames;
    }
    return status;
}

/* Start the transfer of a packet of some bytes by a channel. */
static void start(uintptr_t channel, const void *buffer, uint32_t bytes)
{
    HWGEN_WRITE32(channel + DMA_STATUS_AT, STATUS_COMPLETE_BIT); /* clears the bit of the packet before */
    HWGEN_WRITE32(channel + DMA_CONTROL_AT, CONTROL_RUN_BIT);
    HWGEN_WRITE32(channel + DMA_ADDRESS_AT, HWGEN_BUS_ADDRESS(buffer));
    HWGEN_WRITE32(channel + DMA_LENGTH_AT, bytes);
}

/* Wait until a channel has moved its packet. */
static accelerator_status finish(const accelerator_device *device, unsigned stream)
{
    const uintptr_t channel = channel_of(device, stream);
    uint32_t polls;

    for (polls = 0; polls < device->patience; polls++) {
        const uint32_t status = HWGEN_READ32(channel + DMA_STATUS_AT);

        if (status & STATUS_ERROR_BITS)
            return ACCELERATOR_DMA_ERROR;
        if (status & STATUS_COMPLETE_BIT) {
            const uint32_t length = HWGEN_READ32(channel + DMA_LENGTH_AT); /* number of moved bytes */

            return length == packet_bytes(&layouts[stream], device->frames) ? ACCELERATOR_OK : ACCELERATOR_WRONG_LENGTH;
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
#ifdef ACCELERATOR_WEIGHTS
    if (!(read_register(device, ACCELERATOR_STATUS) & ACCELERATOR_STATUS_WEIGHTS_GOOD))
        return ACCELERATOR_NO_WEIGHTS; /* frames would wait for weights */
#endif
    write_register(device, ACCELERATOR_ERRORS, 0xFFFFFFFFu);
    /* Output channels start first, so that they can receive at once. The caches are flushed, because no cached data of an
     * output buffer may be written to memory while the DMA writes the buffer. */
    for (stream = ACCELERATOR_STREAMS; stream-- > 0;) {
        const uint32_t bytes = (uint32_t)packet_bytes(&layouts[stream], device->frames);

        HWGEN_FLUSH(buffers[stream], bytes);
        start(channel_of(device, stream), buffers[stream], bytes);
    }
    return ACCELERATOR_OK;
}

/* Return whether there is a buffer for each output. */
static int has_buffers(void *const *outputs)
{
    unsigned output;

    for (output = 0; outputs != NULL && output < ACCELERATOR_STREAMS - ACCELERATOR_INPUTS; output++)
        if (outputs[output] == NULL)
            return 0;
    return outputs != NULL;
}

accelerator_status accelerator_finish(const accelerator_device *device, void *const *outputs)
{
    accelerator_status status = has_buffers(outputs) ? ACCELERATOR_OK : ACCELERATOR_NO_BUFFER;
    unsigned stream;

    for (stream = 0; stream < ACCELERATOR_STREAMS && status == ACCELERATOR_OK; stream++)
        status = finish(device, stream);
    if (status != ACCELERATOR_OK)
        return accelerator_reset(device) == ACCELERATOR_OK ? status : ACCELERATOR_DMA_ERROR;
    for (stream = ACCELERATOR_INPUTS; stream < ACCELERATOR_STREAMS; stream++)
        HWGEN_INVALIDATE(
            outputs[stream - ACCELERATOR_INPUTS], (uint32_t)packet_bytes(&layouts[stream], device->frames));
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
    uint32_t events = read_register(device, ACCELERATOR_INTERRUPT_STATUS);

    events &= read_register(device, ACCELERATOR_INTERRUPT_ENABLE);
    write_register(device, ACCELERATOR_INTERRUPT_STATUS, events);
    (void)read_register(device, ACCELERATOR_INTERRUPT_STATUS); /* the answer comes after the write: the line is low */
    return events;
}

#ifdef ACCELERATOR_WEIGHTS
/* Return 32 bits of a file, the lowest byte first. */
static uint32_t word_of(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Wait until a bit of STATUS has a value, or the hardware refuses the weights. */
static accelerator_status await(const accelerator_device *device, uint32_t mask, uint32_t value)
{
    uint32_t polls;

    for (polls = 0; polls < device->patience; polls++) {
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
    const uint32_t head_bytes = 16; /* letters, and the size and checksum of the JSON object that follows */
    accelerator_status status;
    uint32_t offset;

    if (content == NULL)
        return ACCELERATOR_NO_BUFFER;
    if (bytes < head_bytes || memcmp(content, "hwgenwts", 8) != 0 || word_of(content + 8) > bytes - head_bytes)
        return ACCELERATOR_WRONG_WEIGHTS;
    offset = head_bytes + word_of(content + 8);
    if ((bytes - offset) % 4 != 0 || bytes - offset < 12)
        return ACCELERATOR_WRONG_WEIGHTS;
    write_register(device, ACCELERATOR_ERRORS, ACCELERATOR_ERRORS_WEIGHTS);
    write_register(device, ACCELERATOR_WEIGHTS, word_of(content + offset));
    status = await(device, ACCELERATOR_STATUS_WEIGHTS_WAIT, 0); /* the weights wait for frames in the accelerator */
    if (status != ACCELERATOR_OK) {
        accelerator_reset(device); /* otherwise the waiting word would stop all frames */
        return status;
    }
    for (offset += 4; offset < bytes - 4; offset += 4)
        write_register(device, ACCELERATOR_WEIGHTS, word_of(content + offset));
    write_register(device, ACCELERATOR_WEIGHTS_LAST, word_of(content + offset));
    return await(device, ACCELERATOR_STATUS_WEIGHTS_GOOD, ACCELERATOR_STATUS_WEIGHTS_GOOD);
}
#endif

/* Copy the values of one beat from a map into a frame, or from a frame into a map. Values of a frame that belong to no pixel
 * become zeros. Returns the size of the beat in bytes. */
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

/* Return whether a map has the order of memory: one channel, and beats that end with its rows. */
static int is_raster(const stream_layout *layout)
{
    return layout->channels == 1 && layout->fold_count == 1 && layout->row_count == 1 && layout->column_count == 1 &&
           layout->rows[0][0] == 0 && layout->rows[0][1] == layout->height && layout->columns[0][0] == 0 &&
           layout->columns[0][1] == layout->width && layout->columns[0][2] == 0 && layout->width % layout->pixels == 0;
}

/* Copy a map into a frame, or a frame into a map, in the order of memory: rectangle by rectangle, row by row, beat by beat. */
static void move_map(const stream_layout *layout, unsigned char *map, unsigned char *frame, int into_frame)
{
    uint32_t rows, columns, row, begin, fold;

    if (is_raster(layout)) {
        memcpy(into_frame ? frame : map, into_frame ? map : frame, layout->frame_bytes);
        return;
    }
    for (rows = 0; rows < layout->row_count; rows++)
        for (columns = 0; columns < layout->column_count; columns++)
            for (row = layout->rows[rows][0]; row < layout->rows[rows][1]; row++)
                for (begin = layout->columns[columns][2]; begin < layout->columns[columns][1]; begin += layout->pixels)
                    for (fold = 0; fold < layout->fold_count; fold++)
                        frame += move_beat(
                            layout, layout->folds[fold], row, begin, layout->columns[columns], map, frame, into_frame);
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
