/* Algorithms that somebody asked for by name: for a direction, or for the convolutions that match a pattern. */
#include "overrides.h"

#include <stdlib.h>
#include <string.h>

#include "locks.h"
#include "status.h"

enum { DIRECTIONS = TC_BACKWARD_FILTER + 1 };

/* Names given so far are kept, as calls read them without a lock; there are as many as the user typed. */
typedef struct override_name {
    struct override_name *older;
    char name[TC_NAME_SIZE];
} override_name;

/* A pattern once set stays in the list, without a name when it was ended. */
typedef struct pattern_override {
    struct pattern_override *older;
    tc_conv conv;
    const char *name;
} pattern_override;

static override_name *names;
static pattern_override *patterns;           /* the one set last first */
static _Atomic uint64_t pattern_generation; /* 0 until one is set */
static _Atomic(const char *) of_direction[DIRECTIONS];

/* ---- names: callers hold the lock ------------------------------------------------------------------------ */

static const char *intern(const char *name)
{
    for (override_name *known = names; known; known = known->older)
        if (strcmp(known->name, name) == 0)
            return known->name;
    override_name *added = calloc(1, sizeof *added);
    if (!added)
        return NULL;
    strcpy(added->name, name);
    added->older = names;
    names = added;
    return added->name;
}

static tc_status check_name(const char *algorithm)
{
    if (algorithm && (!*algorithm || strlen(algorithm) >= TC_NAME_SIZE))
        return tc_fail(TC_INVALID_ARGUMENT, "an algorithm's name must have 1 to %d bytes, got %zu", TC_NAME_SIZE - 1,
                       strlen(algorithm));
    return TC_OK;
}

/* ---- of a direction -------------------------------------------------------------------------------------- */

tc_status tc_set_override(int32_t direction, const char *algorithm)
{
    if (direction < -1 || direction >= DIRECTIONS)
        return tc_fail(TC_INVALID_ARGUMENT, "direction must be 0 to %d, or -1 for all, got %d", DIRECTIONS - 1,
                       direction);
    tc_status status = check_name(algorithm);
    if (status != TC_OK)
        return status;
    tc_acquire(TC_LOCK_CONFIG);
    const char *name = algorithm ? intern(algorithm) : NULL;
    if (name || !algorithm)
        for (int32_t i = 0; i < DIRECTIONS; i++)
            if (direction == -1 || direction == i)
                atomic_store_explicit(&of_direction[i], name, memory_order_release);
    tc_release(TC_LOCK_CONFIG);
    return name || !algorithm ? TC_OK : tc_fail(TC_OUT_OF_MEMORY, "no memory for an override's name");
}

/* ---- of a pattern ---------------------------------------------------------------------------------------- */

static int is_size_known(const tc_conv *conv, int axis)
{
    return conv->x_dims[2 + axis] != 0;
}

/* What of a descriptor a pattern speaks about, everything else zero: two patterns are the same byte for byte. */
static tc_conv canonical(const tc_conv *conv)
{
    tc_conv pattern = {.direction = conv->direction,
                       .spatial_rank = conv->spatial_rank,
                       .x_dtype = conv->x_dtype,
                       .groups = conv->groups};
    memcpy(pattern.w_dims, conv->w_dims, sizeof pattern.w_dims);
    memcpy(pattern.stride, conv->stride, sizeof pattern.stride);
    memcpy(pattern.dilation, conv->dilation, sizeof pattern.dilation);
    for (int i = 0; i < conv->spatial_rank; i++) {
        if (!is_size_known(conv, i))
            continue;
        pattern.x_dims[2 + i] = conv->x_dims[2 + i];
        pattern.pad_before[i] = conv->pad_before[i];
        pattern.pad_after[i] = conv->pad_after[i];
    }
    return pattern;
}

static int matches(const pattern_override *wanted, const tc_conv *conv)
{
    if (conv->spatial_rank != wanted->conv.spatial_rank)
        return 0;
    tc_conv asked = *conv;
    for (int i = 0; i < conv->spatial_rank; i++)
        if (!is_size_known(&wanted->conv, i))
            asked.x_dims[2 + i] = 0;
    asked = canonical(&asked);
    return memcmp(&asked, &wanted->conv, sizeof asked) == 0;
}

static pattern_override *find(const tc_conv *conv)
{
    pattern_override *known = patterns;
    while (known && memcmp(&known->conv, conv, sizeof *conv) != 0)
        known = known->older;
    return known;
}

/* The pattern as the newest of the list. */
static pattern_override *bring_to_front(const tc_conv *conv)
{
    pattern_override *known = find(conv);
    if (!known && !(known = calloc(1, sizeof *known)))
        return NULL;
    for (pattern_override **link = &patterns; *link; link = &(*link)->older)
        if (*link == known) {
            *link = known->older;
            break;
        }
    known->conv = *conv;
    known->older = patterns;
    patterns = known;
    return known;
}

tc_status tc_set_pattern_override(const tc_conv *pattern_conv, const char *algorithm)
{
    if (!pattern_conv || pattern_conv->direction < 0 || pattern_conv->direction >= DIRECTIONS ||
        pattern_conv->spatial_rank < 1 || pattern_conv->spatial_rank > TC_MAX_SPATIAL)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a descriptor with a direction of 0 to %d and 1 to %d spatial "
                       "axes, got %s", DIRECTIONS - 1, TC_MAX_SPATIAL, pattern_conv ? "others" : "NULL");
    tc_status status = check_name(algorithm);
    if (status != TC_OK)
        return status;
    tc_conv conv = canonical(pattern_conv);
    tc_acquire(TC_LOCK_CONFIG);
    const char *name = algorithm ? intern(algorithm) : NULL;
    int is_known = algorithm || find(&conv);
    pattern_override *set = (name || !algorithm) && is_known ? bring_to_front(&conv) : NULL;
    if (set) {
        set->name = name;
        atomic_fetch_add_explicit(&pattern_generation, 1, memory_order_release);
    }
    tc_release(TC_LOCK_CONFIG);
    return set || !is_known ? TC_OK : tc_fail(TC_OUT_OF_MEMORY, "no memory for an override");
}

/* ---- what a call asks ------------------------------------------------------------------------------------ */

static void look_up(tc_entry *entry)
{
    tc_acquire(TC_LOCK_CONFIG);
    const pattern_override *asked = patterns;
    while (asked && !(asked->name && matches(asked, &entry->conv)))
        asked = asked->older;
    atomic_store_explicit(&entry->asked, asked ? asked->name : NULL, memory_order_relaxed);
    atomic_store_explicit(&entry->asked_generation,
                          atomic_load_explicit(&pattern_generation, memory_order_relaxed), memory_order_release);
    tc_release(TC_LOCK_CONFIG);
}

const char *tc_override_of(tc_entry *entry)
{
    const char *name = atomic_load_explicit(&of_direction[entry->conv.direction], memory_order_acquire);
    if (name)
        return name;
    uint64_t generation = atomic_load_explicit(&pattern_generation, memory_order_acquire);
    if (generation == 0)
        return NULL;
    if (atomic_load_explicit(&entry->asked_generation, memory_order_acquire) != generation)
        look_up(entry);
    return atomic_load_explicit(&entry->asked, memory_order_relaxed);
}
