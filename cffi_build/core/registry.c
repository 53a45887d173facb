/* The table of the process: a descriptor on a device -> the plan that runs it. */
#include "registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "locks.h"
#include "status.h"
#include "store.h"
#include "trials.h"
#include "workspace.h"

/* A place is free while it has no entry; the hash is set before the entry. */
typedef struct place {
    uint64_t hash;
    _Atomic(tc_entry *) entry;
} place;

/*
 * Open addressing, at most half full. Readers take no lock: places fill and never change, and a table that
 * was outgrown stays allocated, for readers that still look into it.
 */
typedef struct table {
    size_t mask;
    struct table *outgrown;
    place places[];
} table;

static _Atomic(table *) current;
static tc_entry *entries;
static size_t entry_count;

static uint64_t hash_of(const tc_conv *conv, int32_t device_kind, int32_t device_ordinal)
{
    uint64_t device = (uint64_t)(uint32_t)device_kind << 32 | (uint32_t)device_ordinal;
    return tc_hash_bytes(device, conv, sizeof *conv);
}

static tc_entry *find(uint64_t hash, const tc_conv *conv, int32_t device_kind, int32_t device_ordinal)
{
    const table *in = atomic_load_explicit(&current, memory_order_acquire);
    if (!in)
        return NULL;
    for (size_t i = (size_t)hash & in->mask;; i = (i + 1) & in->mask) {
        tc_entry *entry = atomic_load_explicit(&in->places[i].entry, memory_order_acquire);
        if (!entry || (in->places[i].hash == hash && entry->device_kind == device_kind &&
                       entry->device_ordinal == device_ordinal && memcmp(&entry->conv, conv, sizeof *conv) == 0))
            return entry;
    }
}

tc_entry *tc_registry_find(const tc_conv *conv, int32_t device_kind, int32_t device_ordinal)
{
    return find(hash_of(conv, device_kind, device_ordinal), conv, device_kind, device_ordinal);
}

/* ---- adding: callers hold the lock ------------------------------------------------------------------ */

static void put(table *in, tc_entry *entry)
{
    size_t i = (size_t)entry->hash & in->mask;
    while (atomic_load_explicit(&in->places[i].entry, memory_order_relaxed))
        i = (i + 1) & in->mask;
    in->places[i].hash = entry->hash;
    atomic_store_explicit(&in->places[i].entry, entry, memory_order_release);
}

static table *with_room(void)
{
    table *in = atomic_load_explicit(&current, memory_order_relaxed);
    if (in && 2 * (entry_count + 1) <= in->mask + 1)
        return in;
    size_t size = in ? 2 * (in->mask + 1) : 256;
    table *larger = calloc(1, sizeof *larger + size * sizeof *larger->places);
    if (!larger)
        return NULL;
    larger->mask = size - 1;
    larger->outgrown = in;
    for (tc_entry *each = entries; each; each = each->next)
        put(larger, each);
    atomic_store_explicit(&current, larger, memory_order_release);
    return larger;
}

static tc_status add(uint64_t hash, const tc_conv *conv, int32_t device_kind, int32_t device_ordinal, tc_entry **entry)
{
    table *in = with_room();
    tc_entry *added = in ? calloc(1, sizeof *added) : NULL;
    if (!added)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for an entry of the registry");
    added->conv = *conv;
    added->device_kind = device_kind;
    added->device_ordinal = device_ordinal;
    added->hash = hash;
    tc_status status = tc_key_format(conv, added->key, sizeof added->key);
    if (status != TC_OK) {
        free(added);
        return status;
    }
    pthread_mutex_init(&added->lock, NULL);
    pthread_cond_init(&added->idle, NULL);
    added->next = entries;
    entries = added;
    entry_count++;
    put(in, added);
    *entry = added;
    return TC_OK;
}

tc_status tc_registry_add(const tc_conv *conv, int32_t device_kind, int32_t device_ordinal, tc_entry **entry)
{
    uint64_t hash = hash_of(conv, device_kind, device_ordinal);
    tc_status status = TC_OK;
    tc_acquire(TC_LOCK_REGISTRY);
    *entry = find(hash, conv, device_kind, device_ordinal);
    if (!*entry)
        status = add(hash, conv, device_kind, device_ordinal, entry);
    tc_release(TC_LOCK_REGISTRY);
    return status;
}

/* ---- one entry --------------------------------------------------------------------------------------- */

void tc_entry_acquire(tc_entry *entry)
{
    pthread_mutex_lock(&entry->lock);
    while (entry->busy)
        pthread_cond_wait(&entry->idle, &entry->lock);
    entry->busy = 1;
    pthread_mutex_unlock(&entry->lock);
}

void tc_entry_release(tc_entry *entry)
{
    pthread_mutex_lock(&entry->lock);
    entry->busy = 0;
    pthread_cond_broadcast(&entry->idle);
    pthread_mutex_unlock(&entry->lock);
}

static tc_choice *add_choice(tc_entry *entry, const tc_engine *engine, const char *algorithm, void *plan)
{
    tc_choice *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->engine = engine;
    made->plan = plan;
    made->workspace = engine->ops->workspace(engine->state, plan);
    made->engines_generation = tc_engines_generation();
    snprintf(made->algorithm, sizeof made->algorithm, "%s", algorithm);
    made->made_before = entry->made;
    entry->made = made;
    return made;
}

static void release_choice(tc_choice *choice)
{
    if (!choice->shared)
        choice->engine->ops->release(choice->engine->state, choice->plan);
    free(choice);
}

tc_status tc_entry_adopt(tc_entry *entry, const tc_engine *engine, const char *algorithm, void *plan,
                         tc_choice **choice)
{
    *choice = add_choice(entry, engine, algorithm, plan);
    if (*choice)
        return TC_OK;
    engine->ops->release(engine->state, plan);
    return tc_fail(TC_OUT_OF_MEMORY, "no memory for a plan");
}

tc_status tc_entry_share(tc_entry *entry, const tc_choice *with, tc_choice **choice)
{
    *choice = add_choice(entry, with->engine, with->algorithm, with->plan);
    if (!*choice)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    (*choice)->shared = 1;
    return TC_OK;
}

void tc_entry_discard(tc_entry *entry, tc_choice *choice)
{
    entry->made = choice->made_before;
    release_choice(choice);
}

tc_status tc_entry_prepare(tc_entry *entry, const tc_engine *engine, const char *algorithm, tc_choice **choice)
{
    void *plan = NULL;
    tc_status status = engine->ops->prepare(engine->state, entry->device_ordinal, &entry->conv, algorithm, &plan);
    return status == TC_OK ? tc_entry_adopt(entry, engine, algorithm, plan, choice) : status;
}

void tc_entry_count(tc_entry *entry, tc_counter counter)
{
    if (entry->counted != counter)
        tc_stats_move(entry->counted, counter);
    entry->counted = counter;
}

void tc_entry_add_failure(tc_entry *entry, const tc_engine *engine, const char *algorithm)
{
    tc_failure *failure = tc_entry_has_failed(entry, engine, algorithm) ? NULL : calloc(1, sizeof *failure);
    if (!failure)
        return;
    failure->engine = engine;
    snprintf(failure->algorithm, sizeof failure->algorithm, "%s", algorithm);
    failure->next = entry->failures;
    entry->failures = failure;
}

int tc_entry_has_failed(const tc_entry *entry, const tc_engine *engine, const char *algorithm)
{
    for (const tc_failure *failure = entry->failures; failure; failure = failure->next)
        if (failure->engine == engine && strcmp(failure->algorithm, algorithm) == 0)
            return 1;
    return 0;
}

/* ---- forgetting: no convolution is running ------------------------------------------------------------ */

/* Takes the choices made with one engine, or with all (NULL), out of an entry; puts them before `taken`. */
static tc_choice *take_choices(tc_entry *entry, const tc_engine *engine, tc_choice *taken)
{
    _Atomic(tc_choice *) *published[] = {&entry->choice, &entry->spare, &entry->override};
    for (size_t i = 0; i < 3; i++) {
        tc_choice *choice = atomic_load(published[i]);
        if (choice && (!engine || choice->engine == engine))
            atomic_store(published[i], NULL);
    }
    for (tc_choice **at = &entry->made; *at;) {
        tc_choice *choice = *at;
        if (engine && choice->engine != engine) {
            at = &choice->made_before;
            continue;
        }
        *at = choice->made_before;
        choice->made_before = taken;
        taken = choice;
    }
    return taken;
}

static void forget_failures(tc_entry *entry, const tc_engine *engine)
{
    for (tc_failure **at = &entry->failures; *at;) {
        tc_failure *failure = *at;
        if (engine && failure->engine != engine) {
            at = &failure->next;
            continue;
        }
        *at = failure->next;
        free(failure);
    }
}

/* Without the lock: an engine's library may have locks of its own. */
static void release_choices(tc_choice *taken)
{
    while (taken) {
        tc_choice *next = taken->made_before;
        release_choice(taken);
        taken = next;
    }
}

void tc_registry_forget_engine(const tc_engine *engine)
{
    tc_choice *taken = NULL;
    tc_acquire(TC_LOCK_REGISTRY);
    for (tc_entry *each = entries; each; each = each->next) {
        taken = take_choices(each, engine, taken);
        forget_failures(each, engine);
    }
    tc_release(TC_LOCK_REGISTRY);
    release_choices(taken);
}

void tc_registry_after_fork(void)
{
    for (tc_entry *each = entries; each; each = each->next) {
        pthread_mutex_init(&each->lock, NULL);
        pthread_cond_init(&each->idle, NULL);
        each->busy = 0;
    }
}

static void free_entries(tc_entry *first)
{
    for (tc_entry *each = first, *next; each; each = next) {
        next = each->next;
        release_choices(take_choices(each, NULL, NULL));
        forget_failures(each, NULL);
        pthread_mutex_destroy(&each->lock);
        pthread_cond_destroy(&each->idle);
        free(each);
    }
}

static void free_tables(table *newest)
{
    for (table *each = newest, *outgrown; each; each = outgrown) {
        outgrown = each->outgrown;
        free(each);
    }
}

void tc_registry_clear(void)
{
    tc_acquire(TC_LOCK_REGISTRY);
    table *tables = atomic_exchange(&current, NULL);
    tc_entry *first = entries;
    entries = NULL;
    entry_count = 0;
    tc_release(TC_LOCK_REGISTRY);
    free_entries(first);
    free_tables(tables);
    tc_store_clear();
    tc_trials_clear();
    tc_stats_clear();
    tc_warnings_clear();
    tc_workspace_clear();
}
