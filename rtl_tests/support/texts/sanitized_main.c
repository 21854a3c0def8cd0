#include <stdio.h>
#include <stdlib.h>
#include "engine_driver.c"

unsigned char *bench_memory;
static uint32_t done, bench_sum;

uint32_t bench_read(uint32_t offset)
{
    switch (offset) {
    case ENGINE_IDENTITY: return ENGINE_IDENTITY_IS;
    case ENGINE_VERSION: return ENGINE_VERSION_MAJOR_IS << 16;
    case ENGINE_BUILD_HASH_LOW: return (uint32_t)ENGINE_BUILD_HASH;
    case ENGINE_BUILD_HASH_HIGH: return (uint32_t)((uint64_t)ENGINE_BUILD_HASH >> 32);
    case ENGINE_DIGEST_LOW: return 0x@low@u;
    case ENGINE_DIGEST_HIGH: return 0x@high@u;
    case ENGINE_STATUS: return done ? ENGINE_STATUS_DONE : 0;
    default: return 0;
    }
}

void bench_write(uint32_t offset, uint32_t value)
{
    if (offset == ENGINE_CONTROL)
        done = value & ENGINE_CONTROL_START;
}

/* The instrumented loop reads every byte that would be flushed or invalidated. */
void bench_touch(const void *pointer, size_t bytes)
{
    const unsigned char *place = pointer;
    size_t at;

    for (at = 0; at < bytes; at++)
        bench_sum += place[at];
}

static unsigned char *allocated(size_t bytes)
{
    unsigned char *const found = malloc(bytes);

    if (found == NULL)
        abort();
    memset(found, 0x5A, bytes);
    return found;
}

static size_t values_in(const engine_device *device, const engine_map *map)
{
    return (size_t)device->frames * map->channels * map->height * map->width;
}

/* A run, with maps of exactly their sizes. */
static int run(engine_device *device)
{
    void *results[ENGINE_MAX_OUTPUTS];
    const void *maps[ENGINE_MAX_INPUTS];
    uint32_t input, output;
    int status;

    for (input = 0; input < device->input_count; input++)
        maps[input] = allocated(values_in(device, &device->inputs[input]));
    for (output = 0; output < device->output_count; output++)
        results[output] = allocated(values_in(device, &device->outputs[output]));
    status = engine_run(device, maps, results);
    if (status == ENGINE_OK && engine_run(device, NULL, results) != ENGINE_NO_BUFFER)
        abort();
    if (engine_run(device, maps, NULL) != ENGINE_NO_BUFFER || engine_start(device, NULL) != ENGINE_NO_BUFFER ||
        engine_finish(device, NULL) != ENGINE_NO_BUFFER)
        abort();
    for (output = 0; output < device->output_count; output++) {
        void *const kept = results[output];

        results[output] = NULL;
        if (engine_run(device, maps, results) != ENGINE_NO_BUFFER || engine_finish(device, results) != ENGINE_NO_BUFFER)
            abort();
        results[output] = kept;
        free(kept);
    }
    for (input = 0; input < device->input_count; input++) {
        const void *const kept = maps[input];

        maps[input] = NULL;
        if (engine_start(device, maps) != ENGINE_NO_BUFFER)
            abort();
        maps[input] = kept;
        free((void *)kept);
    }
    return status;
}

int main(void)
{
    uint32_t sizes[2];

    if (engine_open(NULL, 0, 3) != ENGINE_NO_BUFFER)
        abort();
    while (fread(sizes, sizeof sizes, 1, stdin) == 1) {
        engine_device device;
        unsigned char *const file = allocated(sizes[0]);
        int status;

        bench_memory = aligned_alloc(64, ((size_t)sizes[1] + 63) / 64 * 64);
        if (fread(file, 1, sizes[0], stdin) != sizes[0] || bench_memory == NULL ||
            engine_open(&device, 0, 3) != ENGINE_OK)
            abort();
        bench_poison(bench_memory, sizes[1]);
        if (engine_load(&device, NULL, sizes[0], bench_memory, sizes[1]) != ENGINE_NO_BUFFER ||
            engine_load(&device, file, sizes[0], NULL, sizes[1]) != ENGINE_NO_BUFFER)
            abort();
        status = engine_load(&device, file, sizes[0], bench_memory, sizes[1]);
        if (device.memory != (status == ENGINE_OK ? bench_memory : NULL))
            abort();
        free(file); /* it is not needed any more */
        if (status == ENGINE_OK)
            status = run(&device);
        printf("%d\n", status);
        fflush(stdout);
        bench_unpoison(bench_memory, sizes[1]);
        free(bench_memory);
    }
    return 0;
}
