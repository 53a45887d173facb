/*
 * tc_convolve: finds the entry of a descriptor, settles what runs for it if that is still open, and runs
 * it. A call whose choice is settled takes no lock.
 */
#include <string.h>

#include "conv.h"
#include "config.h"
#include "run.h"
#include "status.h"
#include "store.h"
#include "tuner.h"

/* ---- whether a choice still stands ------------------------------------------------------------------- */

static int may_measure(tc_entry *entry, const tc_engine *engine, const tc_context *ctx)
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

static int stands(tc_entry *entry, const tc_choice *choice, const tc_context *ctx)
{
    switch (choice->state) {
    case TC_CHOICE_MEASURED:
        return 1;
    case TC_CHOICE_STORED:
        return (tc_config_mode() != TC_MODE_REFRESH && !choice->unfinished) ||
               !may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_DEFAULT:
        return tc_config_mode() != TC_MODE_REPLAY &&
               atomic_load_explicit(&entry->store_generation, memory_order_relaxed) == tc_store_generation() &&
               !may_measure(entry, choice->engine, ctx);
    default:
        return !choice->engine->ops->last_resort || choice->engines_generation == tc_engines_generation();
    }
}

/* ---- settling: the calling thread has the entry ------------------------------------------------------- */

/* What settling one entry works on. */
typedef struct question {
    tc_entry *entry;
    const tc_context *ctx;
    const tc_operands *operands;
    const tc_engine *engine;
    tc_candidate_list candidates;
    char environment[TC_ENVIRONMENT_SIZE];
    tc_record record; /* what is stored */
    int is_stored;
} question;

static void publish(tc_entry *entry, tc_choice *choice, tc_choice_state state)
{
    choice->state = state;
    atomic_store_explicit(&entry->choice, choice, memory_order_release);
}

static void reject_stored(question *q, const char *reason)
{
    tc_warn("the stored algorithm '%s' is left out for %s: %s", q->record.algorithm, q->entry->key, reason);
    tc_store_reject(q->entry->key, q->environment, q->record.algorithm);
    q->is_stored = 0;
}

/* An algorithm out of a file has to be one that would be measured here. */
static int is_eligible(question *q)
{
    const tc_candidate *candidate = tc_candidate_named(&q->candidates, q->record.algorithm);
    if (!candidate)
        reject_stored(q, "it is not one of the algorithms for this convolution here");
    else if ((candidate->flags & TC_CANDIDATE_LAST_RESORT) && candidate != q->candidates.items)
        reject_stored(q, "it is a last resort, and there are others");
    else if (tc_entry_has_failed(q->entry, q->engine, q->record.algorithm))
        reject_stored(q, "it failed before");
    return q->is_stored;
}

/* *choice stays NULL when the record turns out to be of no use. */
static tc_status use_stored(question *q, tc_choice **choice)
{
    tc_config config;
    tc_get_config(&config);
    tc_status status = tc_entry_prepare(q->entry, q->engine, q->record.algorithm, choice);
    if (status == TC_DEVICE_FAILURE)
        return status;
    if (status != TC_OK) {
        reject_stored(q, tc_last_error());
        return TC_OK;
    }
    strcpy((*choice)->runner_up, q->record.runner_up);
    (*choice)->unfinished = config.resume && q->record.candidates_tried < q->record.candidates_total;
    tc_entry_count(q->entry, TC_COUNT_HITS);
    publish(q->entry, *choice, TC_CHOICE_STORED);
    return TC_OK;
}

/* The first choice of the engine. With *choice NULL afterwards the convolution has been run by something else. */
static tc_status use_default(question *q, tc_choice **choice)
{
    tc_status status = TC_UNSUPPORTED;
    const char *name = q->candidates.items[0].name;
    if (!tc_entry_has_failed(q->entry, q->engine, name))
        status = tc_entry_prepare(q->entry, q->engine, name, choice);
    if (status != TC_OK)
        return tc_run_any(q->entry, status, q->ctx, q->operands);
    tc_entry_count(q->entry, q->engine->ops->last_resort ? TC_COUNT_FALLBACKS : TC_COUNT_DEFAULTS);
    publish(q->entry, *choice, q->engine->ops->last_resort ? TC_CHOICE_FALLBACK : TC_CHOICE_DEFAULT);
    return TC_OK;
}

static tc_status settle_question(question *q, tc_choice **choice)
{
    tc_status status = TC_OK;
    if (q->is_stored && is_eligible(q)) {
        status = use_stored(q, choice);
        if (status != TC_OK || *choice)
            return status;
    }
    if (tc_config_mode() == TC_MODE_REPLAY && !q->engine->ops->last_resort)
        return tc_fail(TC_NOT_FOUND, "nothing is stored for %s on '%s', and mode replay measures nothing: load a file "
                       "that has it, or set mode to search", q->entry->key, q->environment);
    tc_choice *ready = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    if (ready && ready->state == TC_CHOICE_DEFAULT) {
        *choice = ready;
        return TC_OK;
    }
    return use_default(q, choice);
}

/* Gives the choice to run, or NULL when the convolution has been run already. */
static tc_status settle(tc_entry *entry, const tc_context *ctx, const tc_operands *operands, tc_choice **choice)
{
    tc_entry_acquire(entry);
    *choice = atomic_load_explicit(&entry->choice, memory_order_acquire);
    if (*choice && stands(entry, *choice, ctx)) { /* another thread settled it meanwhile */
        tc_entry_release(entry);
        return TC_OK;
    }
    *choice = NULL;
    question q = {.entry = entry, .ctx = ctx, .operands = operands};
    atomic_store_explicit(&entry->store_generation, tc_store_generation(), memory_order_relaxed);
    tc_status status = tc_find_engine(&entry->conv, entry->device_kind, entry->device_ordinal, &q.engine,
                                      &q.candidates);
    if (status == TC_OK)
        status = q.engine->ops->environment(q.engine->state, entry->device_ordinal, q.environment,
                                            sizeof q.environment);
    if (status == TC_OK) {
        q.is_stored = tc_store_find(entry->key, q.environment, &q.record);
        status = settle_question(&q, choice);
    }
    tc_candidates_free(&q.candidates);
    tc_entry_release(entry);
    return status;
}

/* ---- override ------------------------------------------------------------------------------------------ */

static tc_status cannot_override(tc_status status, const tc_entry *entry, const char *algorithm, const char *reason)
{
    char names[TC_MESSAGE_SIZE / 2] = "none";
    tc_candidate_list list = {0};
    const tc_engine *engine;
    if (tc_find_engine(&entry->conv, entry->device_kind, entry->device_ordinal, &engine, &list) == TC_OK)
        tc_candidates_join(&list, names, sizeof names);
    tc_candidates_free(&list);
    return tc_fail(status, "the override '%s' cannot run %s (%s); what can: %s", algorithm, entry->key, reason, names);
}

static tc_status prepare_override(tc_entry *entry, const char *algorithm, tc_choice **choice)
{
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(entry->device_kind, engines);
    tc_status status = tc_fail(TC_NOT_FOUND, "no engine has an algorithm of that name for it");
    for (size_t i = 0; i < count && !*choice; i++) {
        tc_candidate_list list = {0};
        if (tc_engine_candidates(engines[i], entry->device_ordinal, &entry->conv, &list) == TC_OK &&
            tc_candidate_named(&list, algorithm))
            status = tc_entry_prepare(entry, engines[i], algorithm, choice);
        tc_candidates_free(&list);
    }
    return *choice ? TC_OK : status;
}

static tc_status run_override(tc_entry *entry, const char *algorithm, const tc_context *ctx,
                              const tc_operands *operands)
{
    tc_status status = TC_OK;
    tc_choice *choice = atomic_load_explicit(&entry->override, memory_order_acquire);
    if (!choice || strcmp(choice->algorithm, algorithm) != 0) {
        choice = NULL;
        tc_entry_acquire(entry);
        status = prepare_override(entry, algorithm, &choice);
        if (status == TC_OK) {
            choice->state = TC_CHOICE_OVERRIDE;
            atomic_store_explicit(&entry->override, choice, memory_order_release);
        }
        tc_entry_release(entry);
    }
    if (status == TC_OK)
        status = tc_run_choice(choice, ctx, operands);
    if (status == TC_OK || status == TC_DEVICE_FAILURE)
        return status;
    return cannot_override(status, entry, algorithm, tc_last_error());
}

/* ---- the call ------------------------------------------------------------------------------------------- */

/* A descriptor seen for the first time. *entry stays NULL for an empty one, which has been run. */
static tc_status admit(const tc_conv *conv, const tc_context *ctx, const tc_operands *operands, tc_entry **entry)
{
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    if (ctx->device_kind < TC_CPU || ctx->device_kind > TC_CUDA || ctx->device_ordinal < 0)
        return tc_fail(TC_INVALID_ARGUMENT, "expected device kind %d or %d and an ordinal of at least 0, got %d and %d",
                       TC_CPU, TC_CUDA, ctx->device_kind, ctx->device_ordinal);
    if (tc_conv_is_empty(conv))
        return tc_run_empty(conv, ctx, operands);
    return tc_registry_add(conv, ctx->device_kind, ctx->device_ordinal, entry);
}

tc_status tc_convolve(const tc_conv *conv, const tc_context *ctx, const tc_operands *operands)
{
    if (!conv || !ctx || !operands)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a descriptor, a context and operands, got NULL");
    tc_entry *entry = tc_registry_find(conv, ctx->device_kind, ctx->device_ordinal);
    if (!entry) {
        tc_status status = admit(conv, ctx, operands, &entry);
        if (status != TC_OK || !entry)
            return status;
    }
    if (!operands->x || !operands->w || !operands->y)
        return tc_fail(TC_INVALID_ARGUMENT, "expected places for x, w and y, got NULL");
    const char *override = tc_override_of(conv->direction);
    if (override)
        return run_override(entry, override, ctx, operands);
    tc_choice *choice = atomic_load_explicit(&entry->choice, memory_order_acquire);
    if (!choice || !stands(entry, choice, ctx)) {
        tc_status status = settle(entry, ctx, operands, &choice);
        if (status != TC_OK || !choice)
            return status;
    }
    tc_status status = tc_run_choice(choice, ctx, operands);
    return status == TC_OK ? TC_OK : tc_recover(entry, choice, status, ctx, operands);
}
