/*
 * tc_convolve: finds the entry of a descriptor, settles what runs for it if that is still open, and runs
 * it. A call whose choice is settled takes no lock, but for copied ones after a change of the store.
 */
#include "conv.h"
#include "overrides.h"
#include "run.h"
#include "settle.h"

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
    tc_conv space;
    conv = tc_conv_known_as(conv, ctx->device_kind, &space);
    tc_entry *entry = tc_registry_find(conv, ctx->device_kind, ctx->device_ordinal);
    if (!entry) {
        tc_status status = admit(conv, ctx, operands, &entry);
        if (status != TC_OK || !entry)
            return status;
    }
    if (!operands->x || !operands->w || !operands->y)
        return tc_fail(TC_INVALID_ARGUMENT, "expected places for x, w and y, got NULL");
    const char *override = tc_override_of(entry);
    if (override)
        return tc_run_override(entry, override, ctx, operands);
    tc_choice *choice = atomic_load_explicit(&entry->choice, memory_order_acquire);
    if (!choice || !tc_choice_stands(entry, choice, ctx)) {
        tc_status status = tc_settle(entry, ctx, operands, &choice);
        if (status != TC_OK || !choice)
            return status;
    }
    tc_status status = tc_run_choice(choice, ctx, operands);
    return status == TC_OK ? TC_OK : tc_recover(entry, choice, status, ctx, operands);
}
