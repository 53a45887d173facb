/* Running a prepared plan, and finding another when it fails. */
#include "run.h"

#include <stdio.h>
#include <string.h>

#include "conv.h"
#include "status.h"
#include "store.h"
#include "workspace.h"

tc_status tc_run_choice(const tc_choice *choice, const tc_context *ctx, const tc_operands *operands)
{
    const tc_engine *engine = choice->engine;
    if (choice->workspace == 0)
        return engine->ops->run(engine->state, choice->plan, ctx, NULL, operands);
    tc_workspace workspace;
    tc_status status = tc_workspace_take(ctx, choice->workspace, &workspace);
    if (status != TC_OK)
        return status;
    status = engine->ops->run(engine->state, choice->plan, ctx, workspace.pointer, operands);
    tc_workspace_give(ctx, &workspace);
    return status;
}

tc_status tc_run_empty(const tc_conv *conv, const tc_context *ctx, const tc_operands *operands)
{
    tc_output output = tc_conv_output(conv, operands);
    size_t bytes = (size_t)output.elements * tc_dtype_size(output.dtype);
    if (bytes == 0)
        return TC_OK;
    if (!output.pointer)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a place for an output of %zu bytes, got NULL", bytes);
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(ctx->device_kind, engines);
    for (size_t i = 0; i < count; i++)
        if (engines[i]->ops->zero)
            return engines[i]->ops->zero(engines[i]->state, ctx, output.pointer, bytes);
    if (ctx->device_kind != TC_CPU)
        return tc_fail(TC_UNAVAILABLE, "no engine for device '%s' is open; call tc_engine_open first",
                       tc_device_name(ctx->device_kind));
    memset(output.pointer, 0, bytes);
    return TC_OK;
}

/* ---- what else there is: the calling thread has the entry ------------------------------------------- */

/* What is looked for in place of an algorithm that failed. */
typedef struct replacement {
    tc_entry *entry;
    const tc_choice *failed; /* NULL when nothing could be prepared */
    int for_memory;          /* only what needs less workspace will do */
    const tc_context *ctx;
    const tc_operands *operands;
    tc_choice *found;
} replacement;

/* Prepares and runs one algorithm; what fails other than for memory is not tried again. */
static tc_status try_algorithm(replacement *wanted, const tc_engine *engine, const char *algorithm)
{
    tc_choice *choice = NULL;
    tc_status status = tc_entry_prepare(wanted->entry, engine, algorithm, &choice);
    if (status == TC_OK && wanted->for_memory && choice->workspace > 0 &&
        choice->workspace >= wanted->failed->workspace)
        status = tc_fail(TC_OUT_OF_MEMORY, "algorithm '%s' needs %zu bytes of workspace too", algorithm,
                         choice->workspace);
    else if (status == TC_OK)
        status = tc_run_choice(choice, wanted->ctx, wanted->operands);
    if (status == TC_OK) {
        wanted->found = choice;
        return TC_OK;
    }
    if (choice)
        tc_entry_discard(wanted->entry, choice);
    if (status != TC_OUT_OF_MEMORY && status != TC_DEVICE_FAILURE)
        tc_entry_add_failure(wanted->entry, engine, algorithm);
    return status;
}

static int is_worth_trying(const replacement *wanted, const tc_engine *engine, const char *algorithm)
{
    const tc_choice *failed = wanted->failed;
    if (failed && failed->engine == engine && strcmp(failed->algorithm, algorithm) == 0)
        return 0;
    return !tc_entry_has_failed(wanted->entry, engine, algorithm);
}

/* The runner-up if there is one, then the engine's order, which begins with its default. */
static tc_status try_engine(replacement *wanted, const tc_engine *engine)
{
    const tc_entry *entry = wanted->entry;
    tc_candidate_list list = {0};
    tc_status status = tc_engine_candidates(engine, entry->device_ordinal, &entry->conv, &list);
    if (status != TC_OK)
        return status;
    status = TC_UNSUPPORTED;
    const char *runner_up = wanted->failed && wanted->failed->engine == engine ? wanted->failed->runner_up : "";
    const tc_candidate *second = tc_candidate_named(&list, runner_up);
    if (second && !(second->flags & TC_CANDIDATE_LAST_RESORT) && is_worth_trying(wanted, engine, runner_up))
        status = try_algorithm(wanted, engine, runner_up);
    for (size_t i = 0; i < list.count && status != TC_OK && status != TC_DEVICE_FAILURE; i++)
        if (strcmp(list.items[i].name, runner_up) != 0 && is_worth_trying(wanted, engine, list.items[i].name))
            status = try_algorithm(wanted, engine, list.items[i].name);
    tc_candidates_free(&list);
    return status;
}

static void warn_of_replacement(const replacement *wanted, const char *reason)
{
    const tc_choice *failed = wanted->failed;
    if (!failed)
        tc_warn("no algorithm could be chosen for %s (%s); '%s' of engine '%s' runs instead", wanted->entry->key,
                reason, wanted->found->algorithm, wanted->found->engine->ops->name);
    else if (wanted->for_memory)
        tc_warn("algorithm '%s' needs %zu bytes of workspace, which cannot be had, for %s; '%s' with %zu bytes runs "
                "instead. Free memory or raise the workspace limit.", failed->algorithm, failed->workspace,
                wanted->entry->key, wanted->found->algorithm, wanted->found->workspace);
    else
        tc_warn("algorithm '%s' failed for %s (%s); '%s' of engine '%s' runs instead", failed->algorithm,
                wanted->entry->key, reason, wanted->found->algorithm, wanted->found->engine->ops->name);
}

static tc_status replace(replacement *wanted, tc_status status)
{
    char reason[TC_MESSAGE_SIZE / 3];
    snprintf(reason, sizeof reason, "%s", tc_last_error());
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(wanted->entry->device_kind, engines);
    for (size_t i = 0; i < count && !wanted->found; i++) {
        tc_status tried = try_engine(wanted, engines[i]);
        if (tried == TC_DEVICE_FAILURE)
            return tried;
    }
    if (!wanted->found)
        return tc_fail(status, "no algorithm could run %s; the first said: %s", wanted->entry->key, reason);
    warn_of_replacement(wanted, reason);
    wanted->found->state = TC_CHOICE_FALLBACK;
    if (wanted->found->engine->ops->last_resort)
        tc_entry_count(wanted->entry, TC_COUNT_FALLBACKS);
    else if (wanted->entry->counted == TC_COUNT_NONE)
        tc_entry_count(wanted->entry, TC_COUNT_DEFAULTS);
    return TC_OK;
}

tc_status tc_run_any(tc_entry *entry, tc_status status, const tc_context *ctx, const tc_operands *operands)
{
    if (status == TC_DEVICE_FAILURE)
        return status;
    replacement wanted = {.entry = entry, .ctx = ctx, .operands = operands};
    status = replace(&wanted, status);
    if (status == TC_OK)
        atomic_store_explicit(&entry->choice, wanted.found, memory_order_release);
    return status;
}

/* ---- recovering ------------------------------------------------------------------------------------- */

/* The choice stays for calls that have memory again; until then the spare one runs. */
static tc_status run_spare(tc_entry *entry, tc_choice *choice, tc_status status, const tc_context *ctx,
                           const tc_operands *operands)
{
    tc_choice *spare = atomic_load_explicit(&entry->spare, memory_order_acquire);
    if (spare && spare != choice && tc_run_choice(spare, ctx, operands) == TC_OK)
        return TC_OK;
    replacement wanted = {.entry = entry, .failed = choice, .for_memory = 1, .ctx = ctx, .operands = operands};
    status = replace(&wanted, status);
    if (status == TC_OK)
        atomic_store_explicit(&entry->spare, wanted.found, memory_order_release);
    return status;
}

static tc_status run_replacement(tc_entry *entry, tc_choice *choice, tc_status status, const tc_context *ctx,
                                 const tc_operands *operands)
{
    char environment[TC_ENVIRONMENT_SIZE];
    const tc_engine *engine = choice->engine;
    tc_entry_add_failure(entry, engine, choice->algorithm);
    replacement wanted = {.entry = entry, .failed = choice, .ctx = ctx, .operands = operands};
    status = replace(&wanted, status);
    if (status != TC_OK)
        return status;
    if (engine->ops->environment(engine->state, entry->device_ordinal, environment, sizeof environment) == TC_OK)
        tc_store_reject(entry->key, environment, choice->algorithm);
    atomic_store_explicit(&entry->choice, wanted.found, memory_order_release);
    return TC_OK;
}

tc_status tc_recover(tc_entry *entry, tc_choice *choice, tc_status status, const tc_context *ctx,
                     const tc_operands *operands)
{
    if (status == TC_DEVICE_FAILURE || status == TC_INVALID_ARGUMENT) /* no algorithm's fault */
        return status;
    if (status == TC_OUT_OF_MEMORY) {
        tc_choice *spare = atomic_load_explicit(&entry->spare, memory_order_acquire);
        if (spare && tc_run_choice(spare, ctx, operands) == TC_OK)
            return TC_OK;
    }
    tc_entry_acquire(entry);
    tc_choice *current = atomic_load_explicit(&entry->choice, memory_order_acquire);
    if (current != choice) { /* another thread found a replacement meanwhile */
        tc_entry_release(entry);
        return tc_convolve(&entry->conv, ctx, operands);
    }
    status = status == TC_OUT_OF_MEMORY ? run_spare(entry, choice, status, ctx, operands)
                                        : run_replacement(entry, choice, status, ctx, operands);
    tc_entry_release(entry);
    return status;
}
