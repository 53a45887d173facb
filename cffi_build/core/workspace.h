/* Workspace of one call, from the framework's allocator or, on the CPU without one, from a pool kept here. */
#ifndef TC_WORKSPACE_H
#define TC_WORKSPACE_H

#include "tunedconv_engine.h"

typedef struct tc_workspace {
    void *pointer; /* NULL when bytes is 0 */
    size_t bytes;
} tc_workspace;

/* TC_OUT_OF_MEMORY when there is none of that size, or it is over the limit of the configuration. */
tc_status tc_workspace_take(const tc_context *ctx, size_t bytes, tc_workspace *workspace);
void tc_workspace_give(const tc_context *ctx, tc_workspace *workspace);
/* The same for workspace of a size that will hardly be wanted again. */
void tc_workspace_drop(const tc_context *ctx, tc_workspace *workspace);
/* Frees what the pool keeps. */
void tc_workspace_clear(void);

#endif
