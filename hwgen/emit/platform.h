#ifdef HWGEN_PLATFORM
#include HWGEN_PLATFORM
#endif

/* Read and write a 32-bit register at an address. */
#ifndef HWGEN_READ32
#define HWGEN_READ32(address) (*(volatile uint32_t *)(address))
#endif
#ifndef HWGEN_WRITE32
#define HWGEN_WRITE32(address, value) (*(volatile uint32_t *)(address) = (value))
#endif
/* Write the cached data of some bytes to memory, or discard it. On a Zynq-7000 or Zynq UltraScale+:
 * Xil_DCacheFlushRange, Xil_DCacheInvalidateRange. */
#ifndef HWGEN_FLUSH
#define HWGEN_FLUSH(pointer, bytes) ((void)(pointer), (void)(bytes))
#endif
#ifndef HWGEN_INVALIDATE
#define HWGEN_INVALIDATE(pointer, bytes) ((void)(pointer), (void)(bytes))
#endif
/* Return the 32-bit address of a pointer's memory as the hardware sees it. A 64-bit processor must have
 * that memory below 4 GiB. */
#ifndef HWGEN_BUS_ADDRESS
#define HWGEN_BUS_ADDRESS(pointer) ((uint32_t)(uintptr_t)(pointer))
#endif
