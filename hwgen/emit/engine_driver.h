/* Drives engine_axi, without an operating system. C99.
 *
 * Written by hwgen, with engine_driver.c and engine_registers.h. For a program and one frame:
 *
 *     static engine_device device;
 *     engine_status status = engine_open(&device, 0x43C00000, 1000000);
 *     status = engine_load(&device, program, program_bytes, memory, memory_bytes);
 *     status = engine_run(&device, map, (void *const[]){result});
 *
 * How registers, caches and addresses are reached is said by five macros, HWGEN_READ32 and those that follow it in
 * engine_driver.c. They fit a processor without caches that sees memory as the engine does. Others come from a header of
 * one's own, -DHWGEN_PLATFORM='"my_platform.h"'. Processor and values in memory are little-endian.
 */
#ifndef ENGINE_DRIVER_H
#define ENGINE_DRIVER_H

#include <stdint.h>

#include "engine_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a program that this driver runs. */
#ifndef ENGINE_MOST_OUTPUTS
#define ENGINE_MOST_OUTPUTS 16u
#endif

/* The first ones are what ERROR says: how the engine ended a run. */
typedef enum {
/* @errors@ */
    ENGINE_NOT_THERE = 16, /* IDENTITY is another: no engine of hwgen, or another address */
    ENGINE_OTHER_VERSION,  /* the registers are of another version than this driver */
    ENGINE_OTHER_DESIGN,   /* the build hash is another: the bitstream was not made of this folder */
    ENGINE_NO_PROGRAM,     /* what is to be loaded is no program of hwgen, or of another version of the format */
    ENGINE_WRONG_PROGRAM,  /* a program is cut off or was changed, has maps that make no sense, has maps or jobs outside
                              of its memory, or has more outputs than ENGINE_MOST_OUTPUTS */
    ENGINE_OTHER_ENGINE,   /* a program was compiled for an engine of other sizes */
    ENGINE_TOO_SMALL,      /* a program and its maps take more memory than there is */
    ENGINE_UNALIGNED,      /* memory does not begin at a multiple of 4096, or does not end below 4 GiB */
    ENGINE_NOT_LOADED,     /* there is no program */
    ENGINE_TIMEOUT,        /* a frame did not end; the run was stopped, and the next one can be begun */
    ENGINE_NOT_STOPPED,    /* a run can't be stopped: memory does not answer */
    ENGINE_NO_BUFFER       /* a pointer is NULL */
} engine_status;

/* A map of integers of one byte in memory, in blocks of 8 channels. */
typedef struct {
    uint32_t address; /* from the beginning of the program on */
    uint32_t channels, height, width;
    int is_signed;
    uint32_t frame_bytes; /* from a frame's to the next one's */
} engine_map;

typedef struct {
    uintptr_t registers;   /* address of the engine's registers */
    uint32_t patience;     /* how often STATUS is looked at before a run is given up */
    unsigned char *memory; /* the program that is loaded, or NULL; what follows is of it */
    uint32_t frames;       /* that it computes in a run */
    engine_map input;
    uint32_t output_count;
    engine_map outputs[ENGINE_MOST_OUTPUTS];
} engine_device;

/* Checks that the hardware is the one of this folder, ends what runs there, and disables the interrupt. */
engine_status engine_open(engine_device *device, uintptr_t registers, uint32_t patience);

/* Puts a program into memory, in place of the one before: a file that 'hwgen build' or 'hwgen compile' made, with all its
 * bytes, which are not needed any more then. The memory is the engine's until another program is loaded. It begins at a
 * multiple of 4096, and has as many bytes as the report says ("Memory of the program"). */
engine_status engine_load(engine_device *device, const void *file, uint32_t file_bytes, void *memory, uint32_t memory_bytes);

/* One frame: a map (channels, rows, columns) of int8_t or uint8_t in, and such maps of all outputs out, in the order of the
 * program. Where it computes several frames in a run, there are as many maps, one behind the other. */
engine_status engine_run(const engine_device *device, const void *maps, void *const *results);

/* The same in two steps. Between them the engine computes; a run before that goes on is ended. */
engine_status engine_start(const engine_device *device, const void *maps);
engine_status engine_finish(const engine_device *device, void *const *results);

/* Which events raise the interrupt: ENGINE_INTERRUPT_ENABLE_DONE, ENGINE_INTERRUPT_ENABLE_ERROR, both, or 0 for none. What
 * happened before raises it no more. */
void engine_enable_interrupt(const engine_device *device, uint32_t events);

/* To be called by one's own handler of the interrupt, which is high until then. Returns the enabled events that have
 * happened, or 0 if it was not this hardware's interrupt. */
uint32_t engine_handle_interrupt(const engine_device *device);

/* Ends a run, as soon as memory has answered what the engine asked for. */
engine_status engine_stop(const engine_device *device);

#ifdef __cplusplus
}
#endif

#endif
