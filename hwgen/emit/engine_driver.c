/* Driver of engine_axi, written by hwgen: see engine_driver.h. */
#include "engine_driver.h"

#include <stddef.h>
#include <string.h>

/* @platform@ */

/* Offsets of the fields in a program's header (docs/reference/engine.md), values of the fields, and limits. */
enum {
    MARK_BYTES = 8,
    FORMAT_AT = 8,
    CHECKSUM_AT = 12,
    DIGEST_AT = 16, /* the checksum covers all bytes from here to the end */
    JSON_BYTES_AT = 32,
    IMAGE_BYTES_AT = 40,
    HEADER_BYTES = 48,
    FORMAT_FROM = 2, /* programs of formats 2 and 3 have one input, "input" */
    FORMAT_TO = 5,
    DIGEST_DIGITS = 16,
    PAGE = 4096,
    LANES = 8,
    MAX_SIDE = 65535,   /* largest number of rows or columns of an unfolded map */
    MAX_COUNT = 1 << 28 /* largest number of channels, rows or columns of a map, and of frames per run */
};

static uint32_t read_register(const engine_device *device, uintptr_t offset)
{
    return HWGEN_READ32(device->registers + offset);
}

static void write_register(const engine_device *device, uintptr_t offset, uint32_t value)
{
    HWGEN_WRITE32(device->registers + offset, value);
}

engine_status engine_stop(const engine_device *device)
{
    uint32_t polls;

    write_register(device, ENGINE_CONTROL, ENGINE_CONTROL_STOP);
    for (polls = 0; polls < device->patience; polls++)
        if (!(read_register(device, ENGINE_STATUS) & ENGINE_STATUS_BUSY))
            return ENGINE_OK;
    return ENGINE_NOT_STOPPED;
}

engine_status engine_open(engine_device *device, uintptr_t registers, uint32_t patience)
{
    uint64_t hash;

    if (device == NULL)
        return ENGINE_NO_BUFFER;
    device->registers = registers;
    device->patience = patience;
    device->memory = NULL;
    if (read_register(device, ENGINE_IDENTITY) != ENGINE_IDENTITY_IS)
        return ENGINE_NOT_THERE;
    if (read_register(device, ENGINE_VERSION) >> 16 != ENGINE_VERSION_MAJOR_IS)
        return ENGINE_OTHER_VERSION;
    hash = (uint64_t)read_register(device, ENGINE_BUILD_HASH_HIGH) << 32;
    hash |= read_register(device, ENGINE_BUILD_HASH_LOW);
    if (hash != ENGINE_BUILD_HASH)
        return ENGINE_OTHER_DESIGN;
    write_register(device, ENGINE_INTERRUPT_ENABLE, 0);
    return engine_stop(device);
}

/* A piece of a program's JSON: a value, or the remaining items of a list or an object. */
typedef struct {
    const char *begin, *end;
} text;

/* Remove the first of the remaining items. Returns whether there was one. */
static int take(text *remaining, text *item)
{
    const char *next = remaining->begin;
    int depth = 0, quoted = 0;

    while (next < remaining->end && (*next == ' ' || *next == ','))
        next++;
    item->begin = next;
    for (; next < remaining->end && (depth > 0 || quoted || *next != ','); next++) {
        if (quoted && *next == '\\' && next + 1 < remaining->end)
            next++; /* an escaped quote does not end the string */
        else if (*next == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*next == '{' || *next == '[') - (*next == '}' || *next == ']');
    }
    remaining->begin = next;
    while (next > item->begin && next[-1] == ' ')
        next--;
    item->end = next;
    return item->begin < item->end;
}

/* Return the items of a list or an object. Any other value has no items. */
static text items(text value)
{
    if (value.end - value.begin >= 2 && (*value.begin == '{' || *value.begin == '[')) {
        value.begin++;
        value.end--;
    } else {
        value.begin = value.end;
    }
    return value;
}

/* Return the value of a key in an object, or an empty text if the key is missing. */
static text value_of(text object, const char *key)
{
    const size_t length = strlen(key);
    text remaining = items(object), item;

    while (take(&remaining, &item))
        if ((size_t)(item.end - item.begin) > length + 3 && item.begin[0] == '"' && item.begin[length + 1] == '"' &&
            item.begin[length + 2] == ':' && memcmp(item.begin + 1, key, length) == 0) {
            item.begin += length + 3; /* two quotes and a colon */
            while (item.begin < item.end && *item.begin == ' ')
                item.begin++;
            return item;
        }
    item.begin = item.end;
    return item;
}

/* Return whether a value is the given word of JSON. */
static int is_word(text value, const char *word)
{
    const size_t length = strlen(word);

    return (size_t)(value.end - value.begin) == length && memcmp(value.begin, word, length) == 0;
}

/* Read the integer of a key in an object. Returns whether the value is an integer from low to high. */
static int read_integer(text object, const char *key, uint32_t low, uint32_t high, uint32_t *integer)
{
    const text value = value_of(object, key);
    const char *digit;
    uint64_t sum = 0;

    for (digit = value.begin; digit < value.end && *digit >= '0' && *digit <= '9' && sum <= high; digit++)
        sum = 10 * sum + (uint64_t)(*digit - '0');
    *integer = (uint32_t)sum;
    return value.begin < value.end && digit == value.end && low <= sum && sum <= high;
}

/* Read the integer of a key in an object. If the key is missing or null, the integer is the fallback. */
static int read_optional(
    text object, const char *key, uint32_t low, uint32_t high, uint32_t fallback, uint32_t *integer)
{
    const text value = value_of(object, key);

    *integer = fallback;
    return value.begin == value.end || is_word(value, "null") || read_integer(object, key, low, high, integer);
}

/* Return the number of channels that a pixel of a map has in memory. */
static uint32_t stored_channels(const engine_map *map)
{
    return map->rows * map->columns * map->channels;
}

static uint32_t map_bytes(const engine_map *map)
{
    return (stored_channels(map) + LANES - 1) / LANES * LANES * map->value_bytes * map->stored_height * map->stored_width;
}

/* Return whether a map has at most the given number of bytes in memory. */
static int fits(const engine_map *map, uint32_t size)
{
    const uint64_t channels = (uint64_t)map->rows * map->columns * map->channels;

    return channels <= size &&
           size / LANES / map->value_bytes / ((channels + LANES - 1) / LANES) / map->stored_height / map->stored_width > 0;
}

/* Read how an input map is unfolded in memory. A map without a description is stored as it is. Returns whether the
 * description is valid. */
static int read_unfold(text region, engine_map *result)
{
    const text unfold = value_of(region, "unfold");

    result->rows = result->columns = result->row_step = result->column_step = 1;
    result->top = result->left = result->outside = 0;
    result->stored_height = result->height;
    result->stored_width = result->width;
    return unfold.begin == unfold.end ||
           (read_integer(unfold, "rows", 1, MAX_SIDE, &result->rows) &&
            read_integer(unfold, "columns", 1, MAX_SIDE, &result->columns) &&
            read_integer(unfold, "row_step", 1, MAX_SIDE, &result->row_step) &&
            read_integer(unfold, "column_step", 1, MAX_SIDE, &result->column_step) &&
            read_integer(unfold, "top", 0, MAX_SIDE, &result->top) &&
            read_integer(unfold, "left", 0, MAX_SIDE, &result->left) &&
            read_integer(unfold, "height", 1, MAX_SIDE, &result->stored_height) &&
            read_integer(unfold, "width", 1, MAX_SIDE, &result->stored_width) &&
            read_integer(unfold, "outside", 0, 255, &result->outside));
}

/* Read the description of a map. Returns whether the description is valid, and all frames are in a memory of the given size
 * in bytes. */
static int read_map(text region, uint32_t frames, uint32_t size, engine_map *result)
{
    const text map = value_of(region, "map"), type = value_of(map, "type"), is_signed = value_of(type, "signed");
    uint32_t bits;

    if (!read_integer(map, "channels", 1, MAX_COUNT, &result->channels) ||
        !read_integer(map, "height", 1, MAX_COUNT, &result->height) ||
        !read_integer(map, "width", 1, MAX_COUNT, &result->width) || !read_integer(type, "bits", 1, 32, &bits) ||
        !read_integer(region, "address", 0, UINT32_MAX, &result->address))
        return 0;
    result->value_bytes = (bits + 7) / 8;
    if ((!is_word(is_signed, "true") && !is_word(is_signed, "false")) || !read_unfold(region, result) || !fits(result, size))
        return 0;
    result->is_signed = is_word(is_signed, "true");
    /* A program with one frame, or with frames that follow each other without a gap, does not state frame_bytes. */
    if (!read_optional(region, "frame_bytes", map_bytes(result), UINT32_MAX, map_bytes(result), &result->frame_bytes))
        return 0;
    return result->address % LANES == 0 && result->frame_bytes % LANES == 0 &&
           result->address + (uint64_t)(frames - 1) * result->frame_bytes + map_bytes(result) <= size;
}

/* Return the integer in some bytes of a file, the lowest byte first. */
static uint64_t bytes_of(const unsigned char *bytes, unsigned count)
{
    uint64_t integer = 0;

    while (count-- > 0)
        integer = integer << 8 | bytes[count];
    return integer;
}

/* Return the CRC-32 of zlib, computed four bits at a time. */
static uint32_t checksum_of(const unsigned char *bytes, uint32_t count)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu};
    uint32_t sum = 0xFFFFFFFFu;

    while (count-- > 0) {
        sum ^= *bytes++;
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}

/* Return whether a program's digest, in hexadecimal digits, is the digest of this engine. */
static int is_of_this_engine(const engine_device *device, const unsigned char *digits)
{
    uint64_t digest = (uint64_t)read_register(device, ENGINE_DIGEST_HIGH) << 32;
    int index;

    digest |= read_register(device, ENGINE_DIGEST_LOW);
    for (index = 0; index < DIGEST_DIGITS; index++, digest <<= 4)
        if (digits[index] != (unsigned char)"0123456789abcdef"[digest >> 60])
            return 0;
    return 1;
}

/* A field of a job: offset of its lowest bit in the job, and width in bits. A field of 0 bits has the value 1. */
typedef struct {
    uint32_t bit, width;
} job_field;

/* A memory access of a job, which reads or writes blocks of rows of words. */
typedef struct {
    uint32_t word_bytes;
    int writes;
    job_field address, words, rows, row_stride, blocks, block_stride;
    job_field repeats, teams, team_stride, top, advance, height;
    job_field kept; /* the access is to the engine's map memory, not to memory */
} job_access;

/* @accesses@ */

/* Return the value of a field. No field crosses the border of an 8-byte word. */
static uint64_t field_of(const unsigned char *job, job_field field)
{
    const uint64_t word = bytes_of(job + field.bit / 64 * 8, 8);

    return field.width == 0 ? 1 : word >> field.bit % 64 & ((UINT64_C(1) << field.width) - 1);
}

/* Return the value of a field, or 1 for 0. */
static uint64_t count_of(const unsigned char *job, job_field field)
{
    const uint64_t value = field_of(job, field);

    return value == 0 ? 1 : value;
}

/* Set the rows that a team of cores accesses inside the map: *first to *end - 1. */
static void rows_of(const unsigned char *job, const job_access *access, uint64_t team, int64_t *first, int64_t *end)
{
    const int64_t height = access->height.width == 0 ? 0 : (int64_t)field_of(job, access->height);
    int64_t top;

    if (height == 0)
        return;
    top = (int64_t)field_of(job, access->top);
    if (top >= INT64_C(1) << 15) /* signed, of 16 bits */
        top -= INT64_C(1) << 16;
    top += (int64_t)(team * field_of(job, access->advance));
    *first = top < 0 ? -top : 0;
    *end = height - top < *end ? height - top : *end;
}

/* Return whether a job accesses only the program's memory, and writes only bytes after the program's image. The engine
 * counts rows down to 1, so a row count of 0 means one row more than the field's largest value. */
static int access_lies_in(const unsigned char *job, const job_access *access, uint32_t image_bytes, uint32_t size)
{
    const uint64_t words = field_of(job, access->words), blocks = field_of(job, access->blocks);
    const uint64_t row_bytes = words * count_of(job, access->repeats) * access->word_bytes;
    uint64_t rows = field_of(job, access->rows), team, begin, bytes;

    if (words == 0 || blocks == 0 || (access->kept.width != 0 && field_of(job, access->kept)))
        return 1;
    if (rows == 0)
        rows = UINT64_C(1) << access->rows.width;
    for (team = 0; team < count_of(job, access->teams); team++) {
        int64_t first = 0, end = (int64_t)rows;

        rows_of(job, access, team, &first, &end);
        if (end <= first)
            continue;
        begin = field_of(job, access->address) + team * field_of(job, access->team_stride) +
                (uint64_t)first * field_of(job, access->row_stride);
        begin &= UINT32_MAX;
        bytes = row_bytes + (uint64_t)(end - first - 1) * field_of(job, access->row_stride) +
                (blocks - 1) * field_of(job, access->block_stride);
        if (begin < (access->writes ? image_bytes : 0) || begin > size || bytes > size - begin)
            return 0;
    }
    return 1;
}

/* Return whether all jobs of an image access only the program's memory, up to a job that is marked as the last one. */
static int jobs_lie_in(const unsigned char *image, uint32_t image_bytes, uint32_t size)
{
    uint32_t remaining = image_bytes;
    unsigned index;

    for (; remaining >= JOB_BYTES; remaining -= JOB_BYTES, image += JOB_BYTES) {
        for (index = 0; index < sizeof accesses / sizeof *accesses; index++)
            if (!access_lies_in(image, &accesses[index], image_bytes, size))
                return 0;
        if (field_of(image, last_job))
            return 1;
    }
    return 0;
}

/* Check that a file is a complete program for this engine. */
static engine_status check(const engine_device *device, const unsigned char *file, uint32_t file_bytes)
{
    if (file_bytes < HEADER_BYTES || memcmp(file, "hwgenPRG", MARK_BYTES) != 0)
        return ENGINE_NO_PROGRAM;
    if (bytes_of(file + FORMAT_AT, 4) < FORMAT_FROM || bytes_of(file + FORMAT_AT, 4) > FORMAT_TO)
        return ENGINE_NO_PROGRAM;
    if (bytes_of(file + JSON_BYTES_AT, 8) > file_bytes - HEADER_BYTES ||
        bytes_of(file + IMAGE_BYTES_AT, 8) != file_bytes - HEADER_BYTES - bytes_of(file + JSON_BYTES_AT, 8) ||
        bytes_of(file + CHECKSUM_AT, 4) != checksum_of(file + DIGEST_AT, file_bytes - DIGEST_AT))
        return ENGINE_WRONG_PROGRAM;
    return is_of_this_engine(device, file + DIGEST_AT) ? ENGINE_OK : ENGINE_OTHER_ENGINE;
}

/* Read a list of maps of a program with a memory of the given size in bytes. Returns whether the maps are valid, and there
 * are from 1 to most of them. */
static int read_maps(text list, uint32_t frames, uint32_t size, uint32_t most, engine_map *maps, uint32_t *count)
{
    text remaining = items(list), map;

    for (*count = 0; take(&remaining, &map); ++*count)
        if (*count == most || !read_map(map, frames, size, &maps[*count]))
            return 0;
    return *count > 0;
}

/* Read the number of frames and the maps of a program with a memory of the given size in bytes. Returns whether they are
 * valid, and there are at most ENGINE_MAX_INPUTS inputs and ENGINE_MAX_OUTPUTS outputs. */
static int describe(engine_device *device, text json, uint32_t size)
{
    const text input = value_of(json, "input");

    if (!read_optional(json, "batch", 1, MAX_COUNT, 1, &device->frames))
        return 0;
    device->input_count = 1;
    if (input.begin < input.end ? !read_map(input, device->frames, size, device->inputs)
                                : !read_maps(value_of(json, "inputs"), device->frames, size, ENGINE_MAX_INPUTS,
                                             device->inputs, &device->input_count))
        return 0;
    return read_maps(value_of(json, "outputs"), device->frames, size, ENGINE_MAX_OUTPUTS, device->outputs,
                     &device->output_count);
}

engine_status engine_load(engine_device *device, const void *file, uint32_t file_bytes, void *memory, uint32_t memory_bytes)
{
    const unsigned char *const content = file;
    uint32_t address, size, json_bytes, image_bytes;
    engine_status status;
    engine_device next;
    text json;

    if (device == NULL || file == NULL || memory == NULL)
        return ENGINE_NO_BUFFER;
    status = check(device, content, file_bytes);
    if (status != ENGINE_OK)
        return status;
    address = HWGEN_BUS_ADDRESS(memory);
    json_bytes = (uint32_t)bytes_of(content + JSON_BYTES_AT, 8);
    image_bytes = file_bytes - HEADER_BYTES - json_bytes;
    json.begin = (const char *)content + HEADER_BYTES;
    json.end = json.begin + json_bytes;
    if (!read_integer(json, "size", image_bytes, UINT32_MAX, &size))
        return ENGINE_WRONG_PROGRAM;
    next = *device;
    if (!describe(&next, json, size) || !jobs_lie_in((const unsigned char *)json.end, image_bytes, size))
        return ENGINE_WRONG_PROGRAM;
    if (size > memory_bytes)
        return ENGINE_TOO_SMALL;
    if (address % PAGE || (uint64_t)address + size > UINT64_C(1) << 32)
        return ENGINE_UNALIGNED;
    status = engine_stop(device);
    if (status != ENGINE_OK)
        return status;
    memmove(memory, json.end, image_bytes); /* the file can be in the same memory */
    HWGEN_FLUSH(memory, size); /* includes the maps, because no cached data of a map may be written during a run */
    next.memory = memory;
    *device = next;
    write_register(device, ENGINE_PROGRAM_BASE, address);
    return ENGINE_OK;
}

static size_t pixels_of(const engine_map *map)
{
    return (size_t)map->height * map->width;
}

static size_t values_of(const engine_map *map)
{
    return map->channels * pixels_of(map);
}

/* Return the number of bytes of a value in the program's own maps: 1, 2 or 4. */
static size_t value_size(const engine_map *map)
{
    return map->value_bytes > 2 ? 4 : map->value_bytes;
}

/* Return the mask that converts a byte of a value for memory or back by exclusive or. The bytes of a value are in successive
 * rows of memory, the highest one first. */
static unsigned char flip_of(const engine_map *map, uint32_t byte)
{
    return byte == 0 && map->is_signed ? 0x00 : 0x80;
}

/* Return the lowest bits of a value. */
static uint32_t value_at(const engine_map *map, const unsigned char *values, size_t index)
{
    uint16_t half;
    uint32_t whole;

    if (map->value_bytes == 1)
        return values[index];
    if (map->value_bytes == 2) {
        memcpy(&half, values + 2 * index, sizeof half);
        return half;
    }
    memcpy(&whole, values + 4 * index, sizeof whole);
    return whole;
}

/* Write the lowest bits of a value. */
static void set_value(const engine_map *map, unsigned char *values, size_t index, uint32_t value)
{
    const uint16_t half = (uint16_t)value;

    if (map->value_bytes == 1)
        values[index] = (unsigned char)value;
    else if (map->value_bytes == 2)
        memcpy(values + 2 * index, &half, sizeof half);
    else
        memcpy(values + 4 * index, &value, sizeof value);
}

/* Copy a map (channels, rows, columns) into the order of memory: blocks of 8 channels, each with its pixels row by row.
 * A channel in memory is a channel of the map in one of the columns and rows that a pixel in memory has. */
static void pack(const engine_map *map, const unsigned char *values, unsigned char *bytes)
{
    const uint32_t channels = stored_channels(map);
    uint32_t channel, lane, lanes, y, x, byte, shift, row, column, rows[LANES], columns[LANES];
    const unsigned char *planes[LANES];

    for (channel = 0; channel < channels; channel += LANES) {
        lanes = channels - channel < LANES ? channels - channel : LANES;
        for (lane = 0; lane < lanes; lane++) { /* a row above the map, or a column to its left, is a large number */
            rows[lane] = (channel + lane) / map->channels % map->rows - map->top;
            columns[lane] = (channel + lane) / map->channels / map->rows - map->left;
            planes[lane] = values + (channel + lane) % map->channels * pixels_of(map) * value_size(map);
        }
        for (y = 0; y < map->stored_height * map->value_bytes; y++) {
            byte = y % map->value_bytes;
            shift = 8 * (map->value_bytes - 1 - byte);
            for (x = 0; x < map->stored_width; x++, bytes += LANES)
                for (lane = 0; lane < LANES; lane++) {
                    row = lane < lanes ? y / map->value_bytes * map->row_step + rows[lane] : 0;
                    column = lane < lanes ? x * map->column_step + columns[lane] : 0;
                    if (lane >= lanes)
                        bytes[lane] = 0;
                    else if (row < map->height && column < map->width)
                        bytes[lane] = (unsigned char)(value_at(map, planes[lane], (size_t)row * map->width + column) >> shift) ^
                                      flip_of(map, byte);
                    else
                        bytes[lane] = (unsigned char)map->outside;
                }
        }
    }
}

/* Copy a map in the order of memory into a map (channels, rows, columns). */
static void unpack(const engine_map *map, const unsigned char *bytes, unsigned char *values)
{
    const size_t row_bytes = (size_t)map->width * LANES;
    uint32_t first, lane, byte, value;
    size_t y, x;

    for (first = 0; first < map->channels; first += LANES)
        for (y = 0; y < map->height; y++, bytes += map->value_bytes * row_bytes)
            for (x = 0; x < map->width; x++)
                for (lane = first; lane < first + LANES && lane < map->channels; lane++) {
                    const unsigned char *highest = bytes + x * LANES + lane - first;

                    value = map->is_signed && (*highest & 0x80) ? UINT32_MAX : 0;
                    for (byte = 0; byte < map->value_bytes; byte++)
                        value = value << 8 | (unsigned char)(highest[byte * row_bytes] ^ flip_of(map, byte));
                    set_value(map, values, lane * pixels_of(map) + y * map->width + x, value);
                }
}

/* Return whether none of the pointers is NULL. */
static int has_buffers(const void *const *buffers, uint32_t count)
{
    uint32_t index;

    for (index = 0; buffers != NULL && index < count; index++)
        if (buffers[index] == NULL)
            return 0;
    return buffers != NULL;
}

/* Return whether there is a buffer for each output. */
static int has_results(const engine_device *device, void *const *results)
{
    return has_buffers((const void *const *)results, device->output_count);
}

/* Write all frames of an input map into the memory. */
static void give(const engine_device *device, const engine_map *map, const unsigned char *values)
{
    unsigned char *bytes = device->memory + map->address;
    uint32_t frame;

    /* The first and the last cache line can hold bytes of other maps. Each run writes those maps before it reads them. */
    for (frame = 0; frame < device->frames; frame++, bytes += map->frame_bytes, values += values_of(map) * value_size(map)) {
        pack(map, values, bytes);
        HWGEN_FLUSH(bytes, map_bytes(map));
    }
}

engine_status engine_put(const engine_device *device, const void *const *maps)
{
    uint32_t input;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!has_buffers(maps, device->input_count))
        return ENGINE_NO_BUFFER;
    for (input = 0; input < device->input_count; input++)
        give(device, &device->inputs[input], maps[input]);
    return ENGINE_OK;
}

/* Start a run of a stopped engine. */
static void begin(const engine_device *device)
{
    write_register(device, ENGINE_PROGRAM_BASE, HWGEN_BUS_ADDRESS(device->memory));
    write_register(device, ENGINE_INTERRUPT_STATUS, 0xFFFFFFFFu); /* clears the event of a run that was stopped */
    write_register(device, ENGINE_CONTROL, ENGINE_CONTROL_START);
}

engine_status engine_begin(const engine_device *device)
{
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    status = engine_stop(device);
    if (status == ENGINE_OK)
        begin(device);
    return status;
}

engine_status engine_start(const engine_device *device, const void *const *maps)
{
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!has_buffers(maps, device->input_count))
        return ENGINE_NO_BUFFER;
    status = engine_stop(device); /* a run that was not finished reads the maps */
    if (status == ENGINE_OK)
        status = engine_put(device, maps);
    if (status == ENGINE_OK)
        begin(device);
    return status;
}

engine_status engine_wait(const engine_device *device)
{
    engine_status status;
    uint32_t polls;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    for (polls = 0; !(read_register(device, ENGINE_STATUS) & ENGINE_STATUS_DONE); polls++)
        if (polls == device->patience) {
            status = engine_stop(device);
            return status == ENGINE_OK ? ENGINE_TIMEOUT : status;
        }
    return (engine_status)(read_register(device, ENGINE_ERROR) & ENGINE_ERROR_CODE);
}

engine_status engine_take(const engine_device *device, void *const *results)
{
    uint32_t output, frame;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!has_results(device, results))
        return ENGINE_NO_BUFFER;
    for (output = 0; output < device->output_count; output++) {
        const engine_map *const map = &device->outputs[output];
        unsigned char *bytes = device->memory + map->address, *values = results[output];

        for (frame = 0; frame < device->frames; frame++, bytes += map->frame_bytes, values += values_of(map) * value_size(map)) {
            HWGEN_INVALIDATE(bytes, map_bytes(map));
            unpack(map, bytes, values);
        }
    }
    return ENGINE_OK;
}

engine_status engine_finish(const engine_device *device, void *const *results)
{
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!has_results(device, results))
        return ENGINE_NO_BUFFER;
    status = engine_wait(device);
    return status == ENGINE_OK ? engine_take(device, results) : status;
}

engine_status engine_run(const engine_device *device, const void *const *maps, void *const *results)
{
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!has_results(device, results))
        return ENGINE_NO_BUFFER;
    status = engine_start(device, maps);
    return status == ENGINE_OK ? engine_finish(device, results) : status;
}

void engine_enable_interrupt(const engine_device *device, uint32_t events)
{
    write_register(device, ENGINE_INTERRUPT_STATUS, 0xFFFFFFFFu);
    write_register(device, ENGINE_INTERRUPT_ENABLE, events);
}

uint32_t engine_handle_interrupt(const engine_device *device)
{
    uint32_t events = read_register(device, ENGINE_INTERRUPT_STATUS);

    events &= read_register(device, ENGINE_INTERRUPT_ENABLE);
    write_register(device, ENGINE_INTERRUPT_STATUS, events);
    (void)read_register(device, ENGINE_INTERRUPT_STATUS); /* the answer comes after the write: the line is low */
    return events;
}
