/* Statistics of the process. A key is counted in one place at a time. */
#include "stats.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "locks.h"

static _Atomic int64_t counters[TC_COUNTERS];
static _Atomic int64_t tuning_nanoseconds, plan_nanoseconds;

/* Keys that a bridge reported, so that each counts once however often it is traced. */
typedef struct reported {
    struct reported *next;
    uint64_t hash;
    char key[];
} reported;
static reported *fallbacks;

void tc_stats_move(tc_counter from, tc_counter to)
{
    atomic_fetch_sub_explicit(&counters[from], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters[to], 1, memory_order_relaxed);
}

void tc_stats_add_seconds(double tuning, double plan)
{
    atomic_fetch_add_explicit(&tuning_nanoseconds, (int64_t)(tuning * 1e9), memory_order_relaxed);
    atomic_fetch_add_explicit(&plan_nanoseconds, (int64_t)(plan * 1e9), memory_order_relaxed);
}

double tc_stats_tuning_seconds(void)
{
    return (double)atomic_load_explicit(&tuning_nanoseconds, memory_order_relaxed) * 1e-9;
}

void tc_get_stats(tc_stats *stats)
{
    *stats = (tc_stats){
        .measured = atomic_load(&counters[TC_COUNT_MEASURED]),
        .hits = atomic_load(&counters[TC_COUNT_HITS]),
        .copied = atomic_load(&counters[TC_COUNT_COPIED]),
        .defaults = atomic_load(&counters[TC_COUNT_DEFAULTS]),
        .fallbacks = atomic_load(&counters[TC_COUNT_FALLBACKS]),
        .tuning_seconds = tc_stats_tuning_seconds(),
        .plan_seconds = (double)atomic_load(&plan_nanoseconds) * 1e-9,
    };
}

void tc_count_fallback(const char *key)
{
    if (!key)
        return;
    size_t length = strlen(key);
    uint64_t hash = tc_hash_bytes(0, key, length);
    tc_acquire(TC_LOCK_STATS);
    reported *known = fallbacks;
    while (known && !(known->hash == hash && strcmp(known->key, key) == 0))
        known = known->next;
    reported *added = known ? NULL : malloc(sizeof *added + length + 1);
    if (added) {
        added->next = fallbacks;
        added->hash = hash;
        memcpy(added->key, key, length + 1);
        fallbacks = added;
        tc_stats_move(TC_COUNT_NONE, TC_COUNT_FALLBACKS);
    }
    tc_release(TC_LOCK_STATS);
}

void tc_stats_clear(void)
{
    tc_acquire(TC_LOCK_STATS);
    while (fallbacks) {
        reported *next = fallbacks->next;
        free(fallbacks);
        fallbacks = next;
    }
    for (int i = 0; i < TC_COUNTERS; i++)
        atomic_store(&counters[i], 0);
    atomic_store(&tuning_nanoseconds, 0);
    atomic_store(&plan_nanoseconds, 0);
    tc_release(TC_LOCK_STATS);
}
