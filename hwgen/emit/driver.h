/* Drives accelerator_axi through AXI DMAs in simple mode (Xilinx PG021), without an operating system. C99.
 *
 * Written by hwgen, with accelerator_driver.c and accelerator_registers.h. For one frame:
 *
 *     static accelerator_device device;
 *     const uintptr_t dmas[ACCELERATOR_DMAS] = {0x40400000};
 *     accelerator_status status = accelerator_open(&device, 0x43C00000, dmas, 1000000);
 *     accelerator_pack(0, map, input);
 *     status = accelerator_run(&device, (const void *const[]){input}, (void *const[]){output});
 *     accelerator_unpack(ACCELERATOR_INPUTS, output, result);
 *
 * How registers, caches and addresses are reached is said by five macros, HWGEN_READ32 and those that follow it in
 * accelerator_driver.c. They fit a processor without caches that sees memory as the DMA does. Others come from a header of
 * one's own, -DHWGEN_PLATFORM='"my_platform.h"'. Processor and values in memory are little-endian.
 */
#ifndef ACCELERATOR_DRIVER_H
#define ACCELERATOR_DRIVER_H

#include <stdint.h>

#include "accelerator_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* @sizes@ */

typedef enum {
    ACCELERATOR_OK = 0,
    ACCELERATOR_NOT_THERE,     /* IDENTITY is another: no accelerator of hwgen, or another address */
    ACCELERATOR_OTHER_VERSION, /* the registers are of another version than this driver */
    ACCELERATOR_OTHER_DESIGN,  /* the build hash is another: the bitstream was not made of this folder */
    ACCELERATOR_UNALIGNED,     /* a buffer does not begin at a multiple of its stream's bytes */
    ACCELERATOR_TIMEOUT,       /* a frame did not end; all was reset, and the next one can be run */
    ACCELERATOR_DMA_ERROR,     /* a DMA was refused by memory, or does not answer; all was reset */
    ACCELERATOR_WRONG_LENGTH,  /* a frame of another length came out; all was reset */
    ACCELERATOR_WRONG_FRAME,   /* ERRORS says that a frame that went in was too short or too long */
    ACCELERATOR_WRONG_WEIGHTS, /* a file of weights is none, is cut off, or was refused by the hardware */
    ACCELERATOR_NO_BUFFER      /* a pointer is NULL */
} accelerator_status;

typedef struct {
    uintptr_t registers;             /* address of the accelerator's registers */
    uintptr_t dmas[ACCELERATOR_DMAS]; /* of those of the DMAs: number n has input n and output n, as far as there are any */
    uint32_t patience;               /* how often a DMA is looked at before a frame is given up */
} accelerator_device;

/* Checks that the hardware is the one of this folder, disables its interrupt, enables its inputs, and resets it and its DMAs. */
accelerator_status accelerator_open(
    accelerator_device *device, uintptr_t registers, const uintptr_t *dmas, uint32_t patience);

/* Drops all frames on their way, in the accelerator and in its DMAs. ACCELERATOR_DMA_ERROR if a DMA does not end its reset. */
accelerator_status accelerator_reset(const accelerator_device *device);

/* One frame: all inputs in, all outputs out. Buffers hold frames as they lie in memory, ACCELERATOR_.._FRAME_BYTES each, and
 * begin at multiples of 64, so that no line of a cache is shared. */
accelerator_status accelerator_run(const accelerator_device *device, const void *const *inputs, void *const *outputs);

/* The same in two steps. Between them the frame is computed, and its buffers are the DMAs'. What is on its way before, of a
 * frame that nobody finished, is dropped. */
accelerator_status accelerator_start(const accelerator_device *device, const void *const *inputs, void *const *outputs);
accelerator_status accelerator_finish(const accelerator_device *device, void *const *outputs);

/* Which events raise the interrupt: ACCELERATOR_INTERRUPT_ENABLE_FRAME, ACCELERATOR_INTERRUPT_ENABLE_ERROR, both, or 0 for
 * none. What happened before raises it no more. After FRAME the DMAs have at most a few words to write. */
void accelerator_enable_interrupt(const accelerator_device *device, uint32_t events);

/* To be called by one's own handler of the interrupt, which is high until then. Returns the enabled events that have
 * happened, or 0 if it was not this hardware's interrupt. */
uint32_t accelerator_handle_interrupt(const accelerator_device *device);

#ifdef ACCELERATOR_WEIGHTS
/* Loads weights: a file that 'hwgen weights' made for this design, with all its bytes. Frames behind it are computed with
 * them. No frame may be on its way whose outputs nobody takes. If the hardware refuses it, frames may wait until another one
 * is loaded. */
accelerator_status accelerator_load_weights(const accelerator_device *device, const void *file, uint32_t bytes);
#endif

/* A map (channels, rows, columns) of integers as a frame in memory. Streams are numbered: inputs first, then outputs. Where
 * there is no stream of a number, or a pointer is NULL, nothing is done. */
void accelerator_pack(unsigned stream, const void *map, void *frame);

/* The inverse. */
void accelerator_unpack(unsigned stream, const void *frame, void *map);

#ifdef __cplusplus
}
#endif

#endif
