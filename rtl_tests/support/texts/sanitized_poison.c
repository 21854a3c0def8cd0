#include <sanitizer/asan_interface.h>
static size_t rest(uint32_t size)
{
    return (64 - size % 64) % 64;
}
static void bench_poison(unsigned char *memory, uint32_t size)
{
    memset(memory, 0x5A, size);
    __asan_poison_memory_region(memory + size, rest(size));
}
static void bench_unpoison(unsigned char *memory, uint32_t size)
{
    __asan_unpoison_memory_region(memory + size, rest(size));
}
