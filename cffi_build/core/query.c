/* Questions about one descriptor that pass the registry by: is it supported, and one algorithm by name. */
#include <string.h>

#include "conv.h"
#include "registry.h"
#include "status.h"
#include "workspace.h"

/* ---- supported ------------------------------------------------------------------------------------------ */

/* Whether one of the engines asked has more than a last resort; where only those are open, they count. */
static tc_status find_support(const tc_conv *conv, int32_t device_kind, int32_t ordinal)
{
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(device_kind, engines);
    if (count == 0)
        return tc_fail(TC_UNAVAILABLE, "no engine for device '%s' is open; call tc_engine_open first",
                       tc_device_name(device_kind));
    int only_last_resort = engines[0]->ops->last_resort;
    tc_status status = TC_UNSUPPORTED;
    for (size_t i = 0; i < count && status != TC_OK && engines[i]->ops->last_resort == only_last_resort; i++) {
        uint32_t flags;
        status = tc_engine_find_candidate(engines[i], ordinal, conv, NULL, &flags);
        if (status == TC_OK)
            break;
        tc_candidate_list list = {0};
        status = tc_engine_candidates(engines[i], ordinal, conv, &list);
        if (status == TC_OK && !only_last_resort && (list.items[0].flags & TC_CANDIDATE_LAST_RESORT))
            status = tc_fail(TC_UNSUPPORTED, "engine '%s' has nothing but a last resort for this convolution",
                             engines[i]->ops->name);
        tc_candidates_free(&list);
    }
    return status;
}

tc_status tc_supported(const tc_conv *conv, int32_t device_kind, int32_t ordinal)
{
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    if (tc_conv_is_empty(conv)) /* the core writes the zeros itself */
        return tc_environment(device_kind, ordinal, (char[TC_ENVIRONMENT_SIZE]){0}, TC_ENVIRONMENT_SIZE);
    tc_conv space;
    tc_entry *entry;
    conv = tc_conv_known_as(conv, device_kind, &space);
    status = tc_registry_add(conv, device_kind, ordinal, &entry);
    if (status != TC_OK)
        return status;
    /* The answer holds until an engine is opened or closed: generation + 1 above, status in the low byte. */
    uint64_t current = tc_engines_generation() + 1;
    uint64_t known = atomic_load_explicit(&entry->support, memory_order_relaxed);
    if (known >> 8 == current) {
        status = (tc_status)(known & 0xFF);
        return status == TC_OK ? TC_OK : tc_fail(status, "no engine has a suitable algorithm for %s", entry->key);
    }
    status = find_support(conv, device_kind, ordinal);
    if (status == TC_OK || status == TC_UNSUPPORTED)
        atomic_store_explicit(&entry->support, current << 8 | (uint64_t)status, memory_order_relaxed);
    return status;
}

/* ---- one algorithm by name ------------------------------------------------------------------------------ */

static tc_status run_plan(const tc_engine *engine, void *plan, const tc_context *ctx, const tc_operands *operands,
                          int32_t repeats, double *seconds)
{
    tc_workspace workspace;
    tc_status status = tc_workspace_take(ctx, engine->ops->workspace(engine->state, plan), &workspace);
    if (status == TC_OK)
        status = engine->ops->run(engine->state, plan, ctx, workspace.pointer, operands);
    double total = 0;
    if (status == TC_OK && repeats > 0)
        status = engine->ops->time(engine->state, plan, ctx, workspace.pointer, operands, repeats, &total);
    tc_workspace_give(ctx, &workspace);
    if (status == TC_OK && seconds)
        *seconds = repeats > 0 ? total / repeats : 0;
    return status;
}

tc_status tc_run_algorithm(const tc_conv *conv, const tc_context *ctx, const tc_operands *operands,
                           const char *algorithm, int32_t repeats, double *seconds)
{
    if (!ctx || !operands || !algorithm || repeats < 0)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a context, operands, an algorithm's name and repeats of at least "
                       "0, got %s", repeats < 0 ? "negative repeats" : "NULL");
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    if (tc_conv_is_empty(conv) || !operands->x || !operands->w || !operands->y)
        return tc_fail(TC_INVALID_ARGUMENT, "expected x, w and y with at least one element each");
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(ctx->device_kind, engines);
    if (count == 0)
        return tc_fail(TC_UNAVAILABLE, "no engine for device '%s' is open; call tc_engine_open first",
                       tc_device_name(ctx->device_kind));
    for (size_t i = 0; i < count; i++) {
        void *plan = NULL;
        status = engines[i]->ops->prepare(engines[i]->state, ctx->device_ordinal, conv, algorithm, &plan);
        if (status != TC_OK && status != TC_UNSUPPORTED && status != TC_NOT_FOUND)
            return status;
        if (status != TC_OK)
            continue;
        status = run_plan(engines[i], plan, ctx, operands, repeats, seconds);
        engines[i]->ops->release(engines[i]->state, plan);
        return status;
    }
    return tc_fail(TC_NOT_FOUND, "no open engine has an algorithm '%.256s' for this convolution; tc_candidates lists "
                   "what there is", algorithm);
}
