/* Whether a choice that was made before is still what should run. */
#include <string.h>

#include "config.h"
#include "question.h"
#include "settle.h"
#include "store.h"

int tc_may_measure(tc_entry *entry, const tc_engine *engine, const tc_context *ctx)
{
    int32_t mode = tc_config_mode();
    if ((mode != TC_MODE_SEARCH && mode != TC_MODE_REFRESH) || ctx->forbid_measuring ||
        tc_stats_tuning_seconds() >= tc_config_process_budget() || !engine->ops->can_measure(engine->state, ctx))
        return 0;
    uint64_t runs_left = atomic_load_explicit(&entry->runs_left, memory_order_relaxed);
    if (runs_left > 0)
        atomic_store_explicit(&entry->runs_left, runs_left - 1, memory_order_relaxed);
    return runs_left == 0;
}

int tc_choice_is_stale(const tc_choice *choice)
{
    return tc_config_mode() == TC_MODE_REFRESH && choice->refreshes != tc_config_refreshes();
}

int tc_record_is_guess(const tc_record *record)
{
    return record->provenance == TC_COPIED || record->provenance == TC_PREDICTED;
}

int tc_choice_follows_guess(const tc_choice *choice, const tc_record *record)
{
    return tc_record_is_guess(record) && strcmp(record->algorithm, choice->algorithm) == 0;
}

/* Whether a copied choice is what the store has for it, also where other entries have come since. */
static int is_still_stored(tc_entry *entry, const tc_choice *choice)
{
    uint64_t generation = tc_store_generation();
    if (atomic_load_explicit(&entry->store_generation, memory_order_relaxed) == generation)
        return 1;
    char environment[TC_ENVIRONMENT_SIZE];
    tc_record record;
    int measured_here;
    const tc_engine *engine = choice->engine;
    if (engine->ops->environment(engine->state, entry->device_ordinal, environment, sizeof environment) != TC_OK ||
        !tc_store_find(entry->key, environment, &record, &measured_here) || !tc_choice_follows_guess(choice, &record))
        return 0;
    atomic_store_explicit(&entry->store_generation, generation, memory_order_relaxed);
    return 1;
}

int tc_choice_stands(tc_entry *entry, const tc_choice *choice, const tc_context *ctx)
{
    switch (choice->state) {
    case TC_CHOICE_MEASURED:
        return (!tc_choice_is_stale(choice) && !atomic_load_explicit(&entry->unverified, memory_order_relaxed)) ||
               !tc_may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_STORED:
        return (!tc_choice_is_stale(choice) && !choice->unfinished) || !tc_may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_COPIED:
        if (tc_choice_is_stale(choice) || tc_config_batch_policy() == TC_POLICY_EXACT)
            atomic_store_explicit(&entry->runs_left, 0, memory_order_relaxed);
        return is_still_stored(entry, choice) && !tc_may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_DEFAULT:
        return tc_config_mode() != TC_MODE_REPLAY &&
               atomic_load_explicit(&entry->store_generation, memory_order_relaxed) == tc_store_generation() &&
               !tc_may_measure(entry, choice->engine, ctx);
    default:
        return !choice->engine->ops->last_resort || choice->engines_generation == tc_engines_generation();
    }
}
