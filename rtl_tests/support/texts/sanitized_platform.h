#include <stddef.h>
#include <stdint.h>
extern unsigned char *bench_memory;
uint32_t bench_read(uint32_t offset);
void bench_write(uint32_t offset, uint32_t value);
void bench_touch(const void *pointer, size_t bytes);
#define HWGEN_READ32(address) bench_read((uint32_t)(address))
#define HWGEN_WRITE32(address, value) bench_write((uint32_t)(address), (value))
#define HWGEN_BUS_ADDRESS(pointer) ((uint32_t)(0x10000000 + ((const unsigned char *)(pointer) - bench_memory)))
#define HWGEN_FLUSH(pointer, bytes) bench_touch((pointer), (bytes))
#define HWGEN_INVALIDATE(pointer, bytes) bench_touch((pointer), (bytes))
