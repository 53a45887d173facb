/* Which algorithms there are for a convolution, in the order in which they are worth measuring. */
#ifndef TC_CUDNN_CANDIDATES_H
#define TC_CUDNN_CANDIDATES_H

#include "device.h"
#include "graph.h"
#include "problem.h"

/* The rewritings worth trying, the plain one first; returns how many. */
enum { TC_MAX_REWRITES = 12 };
int tc_rewrites_for(const tc_conv *conv, tc_rewrite rewrites[TC_MAX_REWRITES]);

/* Whether an engine with these notes may serve the convolution: arithmetic as asked for, and determinism. */
int tc_notes_allowed(const tc_conv *conv, tc_notes notes);
/* Whether an engine can be trusted with a convolution as cuDNN is asked it, after rewriting. */
int tc_engine_is_right(const tc_conv *conv, int64_t engine);

/* Builds no plan: cheap, a few milliseconds. The handle is lent by the caller. */
tc_status tc_cudnn_candidates(const tc_device *device, cudnnHandle_t handle, const tc_conv *conv,
                              tc_candidate_list *list);

#endif
