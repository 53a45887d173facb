/* Running a prepared plan, and finding another when it fails. */
#ifndef TC_RUN_H
#define TC_RUN_H

#include "registry.h"

/* Runs a plan with workspace from the context. */
tc_status tc_run_choice(const tc_choice *choice, const tc_context *ctx, const tc_operands *operands);

/*
 * Runs the entry's convolution with whatever else can, after `choice` gave `status`, and lets later calls
 * do the same. Without memory for its workspace the choice stays, for when there is; after any other
 * failure it is not tried again in this process. TC_DEVICE_FAILURE is returned as it came.
 */
tc_status tc_recover(tc_entry *entry, tc_choice *choice, tc_status status, const tc_context *ctx,
                     const tc_operands *operands);
/* The same for the thread that has the entry, when no choice could be made at all. */
tc_status tc_run_any(tc_entry *entry, tc_status status, const tc_context *ctx, const tc_operands *operands);

/* Runs what tc_override_of gives; an error lists what could run instead. */
tc_status tc_run_override(tc_entry *entry, const char *algorithm, const tc_context *ctx,
                          const tc_operands *operands);

/* Fills the output with zeros: what a sum over nothing is. */
tc_status tc_run_empty(const tc_conv *conv, const tc_context *ctx, const tc_operands *operands);

#endif
