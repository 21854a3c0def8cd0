/* Driver in C99 of accelerator_axi with AXI DMAs in simple mode (Xilinx PG021), without an operating system.
 *
 * Written by hwgen, with accelerator_driver.c and accelerator_registers.h. To compute one frame (several in one transfer:
 * see accelerator_set_frames):
 *
 *     static accelerator_device device;
 *     const uintptr_t dmas[ACCELERATOR_DMAS] = {0x40400000};
 *     accelerator_status status = accelerator_open(&device, 0x43C00000, dmas, 1000000);@load@
 *     accelerator_pack(0, map, input);
 *     status = accelerator_run(&device, (const void *const[]){input}, (void *const[]){output});
 *     accelerator_unpack(ACCELERATOR_INPUTS, output, result);
 *
 * These are the addresses in project.tcl for a Zynq-7000. For a Zynq UltraScale+ or a Kria module, the DMA is at 0xA0010000 and
 * the accelerator at 0xA0000000.
 *
 * Five macros at the top of accelerator_driver.c, from HWGEN_READ32 to HWGEN_BUS_ADDRESS, access registers, caches and
 * addresses. The default macros fit a processor without caches that uses the same addresses as the DMA. Your own header can
 * define other macros: -DHWGEN_PLATFORM='"my_platform.h"'. The processor and the values in memory are little-endian.
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
    ACCELERATOR_NOT_THERE,     /* register IDENTITY has a wrong value: no accelerator of hwgen, or a wrong address */
    ACCELERATOR_OTHER_VERSION, /* the register map has another version than this driver */
    ACCELERATOR_OTHER_DESIGN,  /* the build hash differs: the bitstream was not made from this folder */
    ACCELERATOR_UNALIGNED,     /* a buffer is not aligned to the width of its stream in bytes */
    ACCELERATOR_TIMEOUT,       /* a frame did not end; the hardware was reset and can run the next frame */
    ACCELERATOR_DMA_ERROR,     /* memory refused a DMA, or a DMA does not answer; the hardware was reset */
    ACCELERATOR_WRONG_LENGTH,  /* an output frame has a wrong length; the hardware was reset */
    ACCELERATOR_WRONG_FRAME,   /* register ERRORS reports an input frame of a wrong length */
    ACCELERATOR_WRONG_WEIGHTS, /* a file is not a weights file, is cut off, or was rejected by the hardware */
    ACCELERATOR_NO_BUFFER,     /* a pointer is NULL */
    ACCELERATOR_WRONG_COUNT,   /* a packet of so many frames is impossible: 0, more than 65,535, or 64 MiB and more */
    ACCELERATOR_NO_WEIGHTS     /* the hardware has no complete weights: accelerator_load_weights must load them first */
} accelerator_status;

/* An accelerator with its DMAs. */
typedef struct {
    uintptr_t registers;              /* base address of the accelerator's registers */
    uintptr_t dmas[ACCELERATOR_DMAS]; /* base address of each DMA's registers: DMA n serves input n and output n */
    uint32_t patience;                /* number of polls of a DMA after which a packet fails */
    uint32_t frames;                  /* number of frames of a packet: accelerator_set_frames sets it */
} accelerator_device;

/* Check that the hardware is the design of this folder, disable its interrupt, enable its inputs, and reset it with its DMAs. */
accelerator_status accelerator_open(
    accelerator_device *device, uintptr_t registers, const uintptr_t *dmas, uint32_t patience);

/* Drop all frames in the accelerator and in its DMAs. Returns ACCELERATOR_DMA_ERROR if a DMA does not end its reset. */
accelerator_status accelerator_reset(const accelerator_device *device);

/* Set the number of frames of a packet, which all later calls of accelerator_run or accelerator_start compute together, by
 * one transfer of each DMA. It is 1 after accelerator_open. Frames that were started and not finished are dropped. */
accelerator_status accelerator_set_frames(accelerator_device *device, uint32_t frames);

/* Compute one packet of all inputs and outputs. A buffer holds the frames of a packet in the order of memory, each
 * ACCELERATOR_.._FRAME_BYTES long, at a distance of ACCELERATOR_.._STRIDE_BYTES. The buffer begins at a multiple of
 * 64 bytes, and shares no cache line with other data. */
accelerator_status accelerator_run(const accelerator_device *device, const void *const *inputs, void *const *outputs);

/* Start one packet, and finish it. Between both calls the hardware computes its frames, and the DMAs own its buffers: the
 * processor can pack the next packet into other buffers. accelerator_start drops frames that were started before and not
 * finished. */
accelerator_status accelerator_start(const accelerator_device *device, const void *const *inputs, void *const *outputs);
accelerator_status accelerator_finish(const accelerator_device *device, void *const *outputs);

/* Choose the events that raise the interrupt: ACCELERATOR_INTERRUPT_ENABLE_FRAME, ACCELERATOR_INTERRUPT_ENABLE_ERROR, both,
 * or 0 for none. Earlier events are cleared. After a FRAME event the DMAs still write at most a few words. */
void accelerator_enable_interrupt(const accelerator_device *device, uint32_t events);

/* Clear the interrupt, from your own interrupt handler. Returns the enabled events that have happened, or 0 if another
 * device raised the interrupt. */
uint32_t accelerator_handle_interrupt(const accelerator_device *device);

#ifdef ACCELERATOR_WEIGHTS
/* Load the weights in a file that 'hwgen weights' made for this design, for all later frames. All frames that were started
 * must have been finished before. Hardware with weights in UltraRAM begins without weights. There, and after the hardware
 * refused weights or a load was cut off, a start of frames returns ACCELERATOR_NO_WEIGHTS until weights are loaded. */
accelerator_status accelerator_load_weights(const accelerator_device *device, const void *file, uint32_t bytes);
#endif

/* Copy a map (channels, rows, columns) of integers into a frame in the order of memory. Streams are numbered: inputs first,
 * then outputs. A wrong number or a NULL pointer has no effect. */
void accelerator_pack(unsigned stream, const void *map, void *frame);

/* Copy a frame in the order of memory into a map (channels, rows, columns) of integers. */
void accelerator_unpack(unsigned stream, const void *frame, void *map);

#ifdef __cplusplus
}
#endif

#endif
