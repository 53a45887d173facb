/* One piece of memory, kept between calls, for scratchpads and reordered tensors. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <stdint.h>
#include <sys/mman.h>

static const size_t PAGE = 4096;
static const size_t HUGE_PAGE = (size_t)2 << 20;

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static size_t alignment_for(size_t bytes)
{
    return bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
}

/* A mapping of `size` bytes that begins at a multiple of `alignment`; NULL when there is no memory. */
static void *map_aligned(size_t size, size_t alignment)
{
    size_t slack = alignment > PAGE ? alignment : 0;
    char *mapping = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    char *base = mapping + (round_up((uintptr_t)mapping, alignment) - (uintptr_t)mapping);
    if (base > mapping)
        munmap(mapping, (size_t)(base - mapping));
    if (mapping + slack > base)
        munmap(base + size, (size_t)(mapping + slack - base));
    return base;
}

tc_status onednn_arena_reserve(onednn_arena *arena, size_t bytes)
{
    if (bytes <= arena->size)
        return TC_OK;
    onednn_arena_release(arena);
    if (bytes > SIZE_MAX - 2 * HUGE_PAGE)
        return tc_fail(TC_OUT_OF_MEMORY, "a workspace of %zu bytes is too large", bytes);
    size_t alignment = alignment_for(bytes);
    size_t size = round_up(bytes, alignment);
    void *base = map_aligned(size, alignment);
    if (!base)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    if (alignment == HUGE_PAGE)
        (void)madvise(base, size, MADV_HUGEPAGE); /* refused where huge pages are off: small ones do too */
    arena->base = base;
    arena->size = size;
    return TC_OK;
}

void onednn_arena_trim(onednn_arena *arena, size_t bytes)
{
    if (arena->size > round_up(bytes, alignment_for(bytes)))
        onednn_arena_release(arena);
}

void onednn_arena_release(onednn_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->size);
    arena->base = NULL;
    arena->size = 0;
}

#endif
