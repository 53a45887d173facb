/* Workspace of one call, from the framework's allocator or, on the CPU without one, from a pool kept here. */
#include "workspace.h"

#include <stdlib.h>

#include "config.h"
#include "locks.h"

/*
 * Fresh memory of this size costs page faults at each call, so buffers wait here for the next one: as many
 * as calls ran at once, POOLED at most, and together no larger than one call's workspace may be.
 */
enum { POOLED = 8, PAGE = 4096 };
static tc_workspace pool[POOLED];
static size_t pooled, pooled_bytes;

/* Takes the smallest buffer that is large enough; else the largest, to be replaced by a larger one. */
static tc_workspace take_pooled(size_t bytes)
{
    tc_workspace taken = {0};
    tc_acquire(TC_LOCK_WORKSPACE);
    size_t best = 0;
    for (size_t i = 1; i < pooled; i++) {
        int fits = pool[i].bytes >= bytes, best_fits = pool[best].bytes >= bytes;
        if (fits != best_fits ? fits : fits == (pool[i].bytes < pool[best].bytes))
            best = i;
    }
    if (pooled > 0) {
        taken = pool[best];
        pool[best] = pool[--pooled];
        pooled_bytes -= taken.bytes;
    }
    tc_release(TC_LOCK_WORKSPACE);
    return taken;
}

static tc_status take_host(size_t bytes, tc_workspace *workspace)
{
    *workspace = take_pooled(bytes);
    if (workspace->bytes >= bytes)
        return TC_OK;
    free(workspace->pointer);
    size_t rounded = (bytes + PAGE - 1) / PAGE * PAGE;
    *workspace = (tc_workspace){aligned_alloc(PAGE, rounded), rounded};
    if (workspace->pointer)
        return TC_OK;
    workspace->bytes = 0;
    return tc_fail(TC_OUT_OF_MEMORY, "no memory for %zu bytes of workspace", bytes);
}

tc_status tc_workspace_take(const tc_context *ctx, size_t bytes, tc_workspace *workspace)
{
    *workspace = (tc_workspace){0};
    if (bytes == 0)
        return TC_OK;
    int64_t limit = tc_config_workspace_limit();
    if (bytes > (size_t)limit)
        return tc_fail(TC_OUT_OF_MEMORY, "%zu bytes of workspace are over the limit of %lld", bytes, (long long)limit);
    if (!ctx->allocate) {
        if (ctx->device_kind == TC_CPU)
            return take_host(bytes, workspace);
        return tc_fail(TC_OUT_OF_MEMORY, "%zu bytes of workspace are needed, and the call brings no allocator", bytes);
    }
    workspace->pointer = ctx->allocate(ctx->user, bytes);
    workspace->bytes = bytes;
    if (workspace->pointer)
        return TC_OK;
    return tc_fail(TC_OUT_OF_MEMORY, "the framework has no %zu bytes for workspace", bytes);
}

static int keep_in_pool(tc_workspace given)
{
    tc_acquire(TC_LOCK_WORKSPACE);
    int kept = pooled < POOLED && pooled_bytes + given.bytes <= (size_t)tc_config_workspace_limit();
    if (kept) {
        pool[pooled++] = given;
        pooled_bytes += given.bytes;
    }
    tc_release(TC_LOCK_WORKSPACE);
    return kept;
}

static void give(const tc_context *ctx, tc_workspace *workspace, int may_keep)
{
    tc_workspace given = *workspace;
    *workspace = (tc_workspace){0};
    if (!given.pointer)
        return;
    if (!ctx->allocate) {
        if (!may_keep || !keep_in_pool(given))
            free(given.pointer);
    } else if (ctx->deallocate) {
        ctx->deallocate(ctx->user, given.pointer);
    }
}

void tc_workspace_give(const tc_context *ctx, tc_workspace *workspace)
{
    give(ctx, workspace, 1);
}

void tc_workspace_drop(const tc_context *ctx, tc_workspace *workspace)
{
    give(ctx, workspace, 0);
}

void tc_workspace_clear(void)
{
    tc_acquire(TC_LOCK_WORKSPACE);
    while (pooled > 0)
        free(pool[--pooled].pointer);
    pooled_bytes = 0;
    tc_release(TC_LOCK_WORKSPACE);
}
