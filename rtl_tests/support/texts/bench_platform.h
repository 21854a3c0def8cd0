#include <stdint.h>
typedef uint32_t (*bench_read_type)(uint32_t);
typedef void (*bench_write_type)(uint32_t, uint32_t);
typedef void (*bench_cache_type)(uint32_t, uint32_t, uint32_t);
extern bench_read_type bench_read;
extern bench_write_type bench_write;
extern bench_cache_type bench_cache;
extern unsigned char *bench_memory;
#define HWGEN_READ32(address) bench_read((uint32_t)(address))
#define HWGEN_WRITE32(address, value) bench_write((uint32_t)(address), (value))
#define HWGEN_BUS_ADDRESS(pointer) ((uint32_t)(0x10000000 + ((const unsigned char *)(pointer) - bench_memory)))
#define HWGEN_FLUSH(pointer, bytes) bench_cache(0, HWGEN_BUS_ADDRESS(pointer), (bytes))
#define HWGEN_INVALIDATE(pointer, bytes) bench_cache(1, HWGEN_BUS_ADDRESS(pointer), (bytes))
