/* Written by hwgen: see engine_driver.h. */
#include "engine_driver.h"

#include <stddef.h>
#include <string.h>

/* @platform@ */

/* Where things are in a program (docs/reference/engine.md), how it begins, and how maps lie in memory. */
enum {
    MARK_BYTES = 8,
    FORMAT_AT = 8,
    CHECKSUM_AT = 12,
    DIGEST_AT = 16, /* from here on all is in the checksum */
    TOLD_BYTES_AT = 32,
    IMAGE_BYTES_AT = 40,
    HEADER_BYTES = 48,
    FORMAT_IS = 2,
    FORMAT_OF_SEVERAL_IS = 3, /* of programs that compute several frames in a run */
    DIGEST_DIGITS = 16,
    PAGE = 4096,
    LANES = 8,
    MOST = 1 << 28 /* channels, rows or columns of a map, and frames of a run */
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
    uint32_t looks;

    write_register(device, ENGINE_CONTROL, ENGINE_CONTROL_STOP);
    for (looks = 0; looks < device->patience; looks++)
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

/* What a program tells of itself is JSON: a value, or what is left of the items in a list or an object. */
typedef struct {
    const char *begin, *end;
} text;

/* Takes the first item of those that are left; whether there was one. */
static int take(text *left, text *item)
{
    const char *at = left->begin;
    int depth = 0, quoted = 0;

    while (at < left->end && (*at == ' ' || *at == ','))
        at++;
    item->begin = at;
    for (; at < left->end && (depth > 0 || quoted || *at != ','); at++) {
        if (quoted && *at == '\\' && at + 1 < left->end)
            at++; /* of what follows no quote counts */
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    }
    left->begin = at;
    while (at > item->begin && at[-1] == ' ')
        at--;
    item->end = at;
    return item->begin < item->end;
}

/* The items of a list or an object; none of anything else. */
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

/* The value of a key in an object; an empty one if there is none. */
static text value_of(text object, const char *key)
{
    const size_t length = strlen(key);
    text left = items(object), item;

    while (take(&left, &item))
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

/* Whether a value is a word of JSON. */
static int is_word(text value, const char *word)
{
    const size_t length = strlen(word);

    return (size_t)(value.end - value.begin) == length && memcmp(value.begin, word, length) == 0;
}

/* Whether a key has a number of some range, which is given back. */
static int number_of(text object, const char *key, uint32_t least, uint32_t most, uint32_t *number)
{
    const text value = value_of(object, key);
    const char *at;
    uint64_t found = 0;

    for (at = value.begin; at < value.end && *at >= '0' && *at <= '9' && found <= most; at++)
        found = 10 * found + (uint64_t)(*at - '0');
    *number = (uint32_t)found;
    return value.begin < value.end && at == value.end && least <= found && found <= most;
}

/* The same where a key may be missing, or null: then the number is a default. */
static int number_or(text object, const char *key, uint32_t least, uint32_t most, uint32_t missing, uint32_t *number)
{
    const text value = value_of(object, key);

    *number = missing;
    return value.begin == value.end || is_word(value, "null") || number_of(object, key, least, most, number);
}

static uint32_t map_bytes(const engine_map *map)
{
    return (map->channels + LANES - 1) / LANES * LANES * map->height * map->width;
}

/* Whether the sizes of a map make one of at most so many bytes. */
static int fits(const engine_map *map, uint32_t size)
{
    uint32_t left = size / LANES / ((map->channels + LANES - 1) / LANES);

    left /= map->height;
    return left / map->width > 0;
}

/* Whether a program tells of a map that makes sense, and whose frames lie in the program's memory of so many bytes. */
static int read_map(text region, uint32_t frames, uint32_t size, engine_map *found)
{
    const text map = value_of(region, "map"), type = value_of(map, "type"), is_signed = value_of(type, "signed");
    uint32_t bits;

    if (!number_of(map, "channels", 1, MOST, &found->channels) || !number_of(map, "height", 1, MOST, &found->height) ||
        !number_of(map, "width", 1, MOST, &found->width) || !number_of(type, "bits", 1, 8, &bits) ||
        !number_of(region, "address", 0, UINT32_MAX, &found->address))
        return 0;
    if ((!is_word(is_signed, "true") && !is_word(is_signed, "false")) || !fits(found, size))
        return 0;
    found->is_signed = is_word(is_signed, "true");
    /* It is not told where there is one frame, or each begins at the end of another one. */
    if (!number_or(region, "frame_bytes", map_bytes(found), UINT32_MAX, map_bytes(found), &found->frame_bytes))
        return 0;
    return found->address % LANES == 0 && found->frame_bytes % LANES == 0 &&
           found->address + (uint64_t)(frames - 1) * found->frame_bytes + map_bytes(found) <= size;
}

/* The bytes of a number of a file, the lowest one first. */
static uint64_t bytes_of(const unsigned char *place, unsigned count)
{
    uint64_t number = 0;

    while (count-- > 0)
        number = number << 8 | place[count];
    return number;
}

/* CRC-32, as zlib computes it: four bits at a time. */
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

/* Whether a program is for engines with the digest of this one, which stands there in hexadecimal. */
static int is_of_this_engine(const engine_device *device, const unsigned char *digits)
{
    uint64_t digest = (uint64_t)read_register(device, ENGINE_DIGEST_HIGH) << 32;
    int place;

    digest |= read_register(device, ENGINE_DIGEST_LOW);
    for (place = 0; place < DIGEST_DIGITS; place++, digest <<= 4)
        if (digits[place] != (unsigned char)"0123456789abcdef"[digest >> 60])
            return 0;
    return 1;
}

/* A field of a job: offset of its lowest bit in the job, and width in bits. A field of 0 bits counts as 1. */
typedef struct {
    uint32_t bit, width;
} job_field;

/* Bytes of memory that a job accesses: blocks of rows of words. A job writes them, or reads them. */
typedef struct {
    uint32_t word_bytes;
    int writes;
    job_field address, words, rows, row_stride, blocks, block_stride;
} job_access;

/* @accesses@ */

/* The value of a field. No field crosses a word of 8 bytes. */
static uint64_t field_of(const unsigned char *job, job_field field)
{
    const uint64_t word = bytes_of(job + field.bit / 64 * 8, 8);

    return field.width == 0 ? 1 : word >> field.bit % 64 & ((UINT64_C(1) << field.width) - 1);
}

/* Whether a job accesses bytes of the program's memory only, and writes only bytes behind its image. The engine counts
 * rows down to 1, so 0 rows are as many as the field can count, and one more. */
static int access_lies_in(const unsigned char *job, const job_access *access, uint32_t image_bytes, uint32_t size)
{
    const uint64_t address = field_of(job, access->address), words = field_of(job, access->words);
    const uint64_t blocks = field_of(job, access->blocks);
    uint64_t rows = field_of(job, access->rows), bytes;

    if (words == 0 || blocks == 0)
        return 1;
    if (rows == 0)
        rows = UINT64_C(1) << access->rows.width;
    bytes = words * access->word_bytes + (rows - 1) * field_of(job, access->row_stride) +
            (blocks - 1) * field_of(job, access->block_stride);
    return address >= (access->writes ? image_bytes : 0) && address <= size && bytes <= size - address;
}

/* Whether all jobs of an image are whole, end with the last one, and access the program's memory only. */
static int jobs_lie_in(const unsigned char *image, uint32_t image_bytes, uint32_t size)
{
    uint32_t left = image_bytes;
    unsigned which;

    for (; left >= JOB_BYTES; left -= JOB_BYTES, image += JOB_BYTES) {
        for (which = 0; which < sizeof accesses / sizeof *accesses; which++)
            if (!access_lies_in(image, &accesses[which], image_bytes, size))
                return 0;
        if (field_of(image, last_job))
            return 1;
    }
    return 0;
}

/* Whether a file is a program that is whole, for this engine. */
static engine_status check(const engine_device *device, const unsigned char *file, uint32_t file_bytes)
{
    if (file_bytes < HEADER_BYTES || memcmp(file, "hwgenPRG", MARK_BYTES) != 0)
        return ENGINE_NO_PROGRAM;
    if (bytes_of(file + FORMAT_AT, 4) != FORMAT_IS && bytes_of(file + FORMAT_AT, 4) != FORMAT_OF_SEVERAL_IS)
        return ENGINE_NO_PROGRAM;
    if (bytes_of(file + TOLD_BYTES_AT, 8) > file_bytes - HEADER_BYTES ||
        bytes_of(file + IMAGE_BYTES_AT, 8) != file_bytes - HEADER_BYTES - bytes_of(file + TOLD_BYTES_AT, 8) ||
        bytes_of(file + CHECKSUM_AT, 4) != checksum_of(file + DIGEST_AT, file_bytes - DIGEST_AT))
        return ENGINE_WRONG_PROGRAM;
    return is_of_this_engine(device, file + DIGEST_AT) ? ENGINE_OK : ENGINE_OTHER_ENGINE;
}

/* What a program tells of its maps in a memory of so many bytes; whether it makes sense, and there is room for as many
 * outputs as it has. */
static int describe(engine_device *device, text told, uint32_t size)
{
    text left = items(value_of(told, "outputs")), output;

    if (!number_or(told, "batch", 1, MOST, 1, &device->frames) || /* it is told where there are several */
        !read_map(value_of(told, "input"), device->frames, size, &device->input))
        return 0;
    for (device->output_count = 0; take(&left, &output); device->output_count++)
        if (device->output_count == ENGINE_MOST_OUTPUTS ||
            !read_map(output, device->frames, size, &device->outputs[device->output_count]))
            return 0;
    return device->output_count > 0;
}

engine_status engine_load(engine_device *device, const void *file, uint32_t file_bytes, void *memory, uint32_t memory_bytes)
{
    const unsigned char *const content = file;
    uint32_t address, size, told_bytes, image_bytes;
    engine_status status;
    engine_device next;
    text told;

    if (device == NULL || file == NULL || memory == NULL)
        return ENGINE_NO_BUFFER;
    status = check(device, content, file_bytes);
    if (status != ENGINE_OK)
        return status;
    address = HWGEN_BUS_ADDRESS(memory);
    told_bytes = (uint32_t)bytes_of(content + TOLD_BYTES_AT, 8);
    image_bytes = file_bytes - HEADER_BYTES - told_bytes;
    told.begin = (const char *)content + HEADER_BYTES;
    told.end = told.begin + told_bytes;
    if (!number_of(told, "size", image_bytes, UINT32_MAX, &size))
        return ENGINE_WRONG_PROGRAM;
    next = *device;
    if (!describe(&next, told, size) || !jobs_lie_in((const unsigned char *)told.end, image_bytes, size))
        return ENGINE_WRONG_PROGRAM;
    if (size > memory_bytes)
        return ENGINE_TOO_SMALL;
    if (address % PAGE || (uint64_t)address + size > UINT64_C(1) << 32)
        return ENGINE_UNALIGNED;
    status = engine_stop(device);
    if (status != ENGINE_OK)
        return status;
    memmove(memory, told.end, image_bytes); /* the file may lie in the same memory */
    HWGEN_FLUSH(memory, size); /* the maps as well: nothing of them may be written from a cache during a run */
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

/* What is done to a value on its way to memory or back: values there are signed. */
static unsigned char flip_of(const engine_map *map)
{
    return map->is_signed ? 0x00 : 0x80;
}

/* Brings a map (channels, rows, columns) into the order of memory: blocks of 8 channels, of each the pixels row by row. */
static void pack(const engine_map *map, const unsigned char *values, unsigned char *place)
{
    const size_t pixels = pixels_of(map);
    const unsigned char flip = flip_of(map);
    uint32_t first, lane;
    size_t pixel;

    for (first = 0; first < map->channels; first += LANES)
        for (pixel = 0; pixel < pixels; pixel++)
            for (lane = first; lane < first + LANES; lane++)
                *place++ = lane < map->channels ? values[lane * pixels + pixel] ^ flip : 0;
}

/* The inverse. */
static void unpack(const engine_map *map, const unsigned char *place, unsigned char *values)
{
    const size_t pixels = pixels_of(map);
    const unsigned char flip = flip_of(map);
    uint32_t first, lane;
    size_t pixel;

    for (first = 0; first < map->channels; first += LANES)
        for (pixel = 0; pixel < pixels; pixel++, place += LANES)
            for (lane = first; lane < first + LANES && lane < map->channels; lane++)
                values[lane * pixels + pixel] = place[lane - first] ^ flip;
}

engine_status engine_start(const engine_device *device, const void *maps)
{
    const engine_map *const map = &device->input;
    const unsigned char *values = maps;
    unsigned char *place;
    engine_status status;
    uint32_t frame;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (maps == NULL)
        return ENGINE_NO_BUFFER;
    status = engine_stop(device);
    if (status != ENGINE_OK)
        return status;
    /* Lines of a cache at both ends may hold bytes of other maps, too: each run writes these before it reads them. */
    place = device->memory + map->address;
    for (frame = 0; frame < device->frames; frame++, place += map->frame_bytes, values += values_of(map)) {
        pack(map, values, place);
        HWGEN_FLUSH(place, map_bytes(map));
    }
    write_register(device, ENGINE_INTERRUPT_STATUS, 0xFFFFFFFFu); /* a run that was stopped has ended, too */
    write_register(device, ENGINE_CONTROL, ENGINE_CONTROL_START);
    return ENGINE_OK;
}

/* Whether there is a buffer for each output. */
static int are_there(const engine_device *device, void *const *results)
{
    uint32_t output;

    for (output = 0; results != NULL && output < device->output_count; output++)
        if (results[output] == NULL)
            return 0;
    return results != NULL;
}

engine_status engine_finish(const engine_device *device, void *const *results)
{
    uint32_t looks, output, frame;
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!are_there(device, results))
        return ENGINE_NO_BUFFER;
    for (looks = 0; !(read_register(device, ENGINE_STATUS) & ENGINE_STATUS_DONE); looks++)
        if (looks == device->patience) {
            status = engine_stop(device);
            return status == ENGINE_OK ? ENGINE_TIMEOUT : status;
        }
    status = (engine_status)(read_register(device, ENGINE_ERROR) & ENGINE_ERROR_CODE);
    for (output = 0; output < device->output_count && status == ENGINE_OK; output++) {
        const engine_map *const map = &device->outputs[output];
        unsigned char *place = device->memory + map->address, *values = results[output];

        for (frame = 0; frame < device->frames; frame++, place += map->frame_bytes, values += values_of(map)) {
            HWGEN_INVALIDATE(place, map_bytes(map));
            unpack(map, place, values);
        }
    }
    return status;
}

engine_status engine_run(const engine_device *device, const void *maps, void *const *results)
{
    engine_status status;

    if (device->memory == NULL)
        return ENGINE_NOT_LOADED;
    if (!are_there(device, results))
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
    uint32_t happened = read_register(device, ENGINE_INTERRUPT_STATUS);

    happened &= read_register(device, ENGINE_INTERRUPT_ENABLE);
    write_register(device, ENGINE_INTERRUPT_STATUS, happened);
    (void)read_register(device, ENGINE_INTERRUPT_STATUS); /* the write has come when this is answered: the line is low */
    return happened;
}
