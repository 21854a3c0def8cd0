/* Driver in C99 of engine_axi, without an operating system.
 *
 * Written by hwgen, with engine_driver.c and engine_registers.h. To load a program and compute one frame:
 *
 *     static engine_device device;
 *     engine_status status = engine_open(&device, 0x43C00000, 1000000);
 *     status = engine_load(&device, program, program_bytes, memory, memory_bytes);
 *     status = engine_run(&device, (const void *const[]){map}, (void *const[]){result});
 *
 * This is the address in project.tcl for a Zynq-7000. For a Zynq UltraScale+ or a Kria module it is 0xA0000000.
 *
 * Five macros at the top of engine_driver.c, from HWGEN_READ32 to HWGEN_BUS_ADDRESS, access registers, caches and
 * addresses. The default macros fit a processor without caches that uses the same addresses as the engine. Your own header
 * can define other macros: -DHWGEN_PLATFORM='"my_platform.h"'. The processor and the values in memory are little-endian.
 */
#ifndef ENGINE_DRIVER_H
#define ENGINE_DRIVER_H

#include <stdint.h>

#include "engine_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest numbers of inputs and of outputs of a program that this driver can run. */
#ifndef ENGINE_MAX_INPUTS
#define ENGINE_MAX_INPUTS 16u
#endif
#ifndef ENGINE_MAX_OUTPUTS
#define ENGINE_MAX_OUTPUTS 16u
#endif

/* Result of a function. Values below 16 are the codes that register ERROR has when the engine ended a run early. */
typedef enum {
/* @errors@ */
    ENGINE_NOT_THERE = 16, /* register IDENTITY has a wrong value: no engine of hwgen, or a wrong address */
    ENGINE_OTHER_VERSION,  /* the register map has another version than this driver */
    ENGINE_OTHER_DESIGN,   /* the build hash differs: the bitstream was not made from this folder */
    ENGINE_NO_PROGRAM,     /* a file is not a program of hwgen, or has another version of the format */
    ENGINE_WRONG_PROGRAM,  /* a program is cut off or was changed, has maps of impossible sizes, has maps or jobs outside
                              of its memory, or has more inputs than ENGINE_MAX_INPUTS, or outputs than
                              ENGINE_MAX_OUTPUTS */
    ENGINE_OTHER_ENGINE,   /* a program was compiled for an engine of other sizes */
    ENGINE_TOO_SMALL,      /* a program and its maps need more memory than the caller provides */
    ENGINE_UNALIGNED,      /* the memory does not begin at a multiple of 4096, or does not end below 4 GiB */
    ENGINE_NOT_LOADED,     /* no program is loaded */
    ENGINE_TIMEOUT,        /* a frame did not end; the run was stopped, and the next run can begin */
    ENGINE_NOT_STOPPED,    /* a run can't be stopped, because memory does not answer */
    ENGINE_NO_BUFFER       /* a pointer is NULL */
} engine_status;

/* A map of integers in memory, in blocks of 8 channels. */
typedef struct {
    uint32_t address;                 /* byte offset from the beginning of the program */
    uint32_t channels, height, width; /* shape of the map */
    int is_signed;                    /* whether values are signed */
    uint32_t value_bytes;             /* bytes per value in memory, 1 to 4, each in a row of its own */
    uint32_t frame_bytes;             /* byte distance from a frame to the next one */
    /* An input can be unfolded: a pixel in memory then has the channels of several rows and columns, and neighbouring
     * pixels are row_step rows or column_step columns apart. The first pixel begins top rows above the map and left columns
     * to its left, where all bytes are outside. Any other map has one row and column per pixel. */
    uint32_t rows, columns, row_step, column_step, top, left;
    uint32_t stored_height, stored_width, outside;
} engine_map;

/* An engine with its loaded program. */
typedef struct {
    uintptr_t registers;   /* base address of the engine's registers */
    uint32_t patience;     /* number of polls of STATUS after which a run fails */
    unsigned char *memory; /* memory of the loaded program, or NULL; the following members describe the program */
    uint32_t frames;       /* number of frames per run */
    uint32_t input_count;
    engine_map inputs[ENGINE_MAX_INPUTS];
    uint32_t output_count;
    engine_map outputs[ENGINE_MAX_OUTPUTS];
} engine_device;

/* Check that the hardware is the design of this folder, stop its run, and disable the interrupt. */
engine_status engine_open(engine_device *device, uintptr_t registers, uint32_t patience);

/* Load the program in a file that 'hwgen build' or 'hwgen compile' made. The file is not needed after the call. The engine
 * owns the memory until another program is loaded. The memory must begin at a multiple of 4096. report.md gives its size in
 * bytes ("Memory of the program"). */
engine_status engine_load(engine_device *device, const void *file, uint32_t file_bytes, void *memory, uint32_t memory_bytes);

/* Compute one frame: read a map (channels, rows, columns) for each input, and write such a map for each output, in the order
 * of the program. Values are int8_t or uint8_t, int16_t or uint16_t if value_bytes is 2, and int32_t or uint32_t if it is
 * more. If a run computes several frames, each buffer has the maps of all frames, one after the other. */
engine_status engine_run(const engine_device *device, const void *const *maps, void *const *results);

/* Start a run, and finish it. Between both calls the engine computes. engine_start ends a run that was not finished. */
engine_status engine_start(const engine_device *device, const void *const *maps);
engine_status engine_finish(const engine_device *device, void *const *results);

/* The parts of engine_start and engine_finish: write the maps of the inputs into the memory of the program; start a run; wait
 * for its end; read the maps of the outputs. With the program in two memories, each with an engine_device of its own, the
 * processor writes the next frame's maps and reads the last frame's maps while the engine computes a frame:
 *
 *     engine_put(&devices[0], maps[0]);
 *     for (n = 0; n < count; n++) {
 *         engine_begin(&devices[n % 2]);
 *         if (n > 0)
 *             engine_take(&devices[(n + 1) % 2], results[n - 1]);
 *         if (n + 1 < count)
 *             engine_put(&devices[(n + 1) % 2], maps[n + 1]);
 *         status = engine_wait(&devices[n % 2]);
 *     }
 *     engine_take(&devices[(count - 1) % 2], results[count - 1]);
 *
 * engine_open is called for one of the devices, which is copied before engine_load. engine_begin ends a run that was not
 * finished. */
engine_status engine_put(const engine_device *device, const void *const *maps);
engine_status engine_begin(const engine_device *device);
engine_status engine_wait(const engine_device *device);
engine_status engine_take(const engine_device *device, void *const *results);

/* Choose the events that raise the interrupt: ENGINE_INTERRUPT_ENABLE_DONE, ENGINE_INTERRUPT_ENABLE_ERROR, both, or 0 for
 * none. Earlier events are cleared. */
void engine_enable_interrupt(const engine_device *device, uint32_t events);

/* Clear the interrupt, from your own interrupt handler. Returns the enabled events that have happened, or 0 if another
 * device raised the interrupt. */
uint32_t engine_handle_interrupt(const engine_device *device);

/* End a run as soon as memory has answered all outstanding transactions of the engine. */
engine_status engine_stop(const engine_device *device);

#ifdef __cplusplus
}
#endif

#endif
