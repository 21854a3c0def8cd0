#include "platform.h"
bench_read_type bench_read;
bench_write_type bench_write;
bench_cache_type bench_cache;
unsigned char *bench_memory;
void bench_set(bench_read_type read, bench_write_type write, bench_cache_type cache, unsigned char *memory);
void bench_set(bench_read_type read, bench_write_type write, bench_cache_type cache, unsigned char *memory)
{
    bench_read = read;
    bench_write = write;
    bench_cache = cache;
    bench_memory = memory;
}
