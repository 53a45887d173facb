/*
 * The engine's own kernels, beside cuDNN's: families of algorithms that compute some convolutions directly,
 * on the caller's tensors, without conversions. All are deterministic, with sums in float32.
 *
 * An algorithm's name is its family's, with the value of its setting where the family has one:
 *
 *     cuda:depthwise
 *     cuda:grouped:rows=14
 */
#ifndef TC_CUDNN_DIRECT_H
#define TC_CUDNN_DIRECT_H

#include "device.h"

enum { TC_DIRECT_SETTINGS = 8, TC_DIRECT_FUNCTIONS = 4, TC_DIRECT_STATE = 512 };

/* An algorithm made ready for one convolution on one device. */
typedef struct tc_direct_plan {
    const struct tc_direct_family *family;
    const tc_cudnn_library *library;
    CUfunction functions[TC_DIRECT_FUNCTIONS];
    size_t workspace; /* bytes */
    _Alignas(16) unsigned char state[TC_DIRECT_STATE]; /* the family's own */
} tc_direct_plan;

typedef struct tc_direct_family {
    const char *name;    /* "cuda:grouped" */
    const char *setting; /* what its setting is called, "rows"; NULL: it has none */
    int compute;         /* the least compute capability, 80 for 8.0 */
    /*
     * The values of the setting worth trying for a convolution, the likeliest first; how many, and 0 when the
     * family does not compute it. Without a setting, 1 or 0. Depends on its arguments alone.
     */
    int (*settings)(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS]);
    /* Fills functions, workspace and state, for a value that settings gives; inside enter (relaxed) and leave. */
    tc_status (*prepare)(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan);
    tc_status (*run)(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands);
} tc_direct_family;

/* Adds the algorithms that compute the convolution. */
tc_status tc_direct_candidates(const tc_device *device, const tc_conv *conv, tc_candidate_list *list);
/* Whether this is a name of a direct algorithm, of whatever convolution. */
int tc_direct_is_name(const char *name);
/* TC_NOT_FOUND when the algorithm does not compute the convolution here. */
tc_status tc_direct_prepare(tc_device *device, const tc_conv *conv, const char *name, tc_direct_plan *plan);

/* For the families: queues one of a plan's functions on a grid of one dimension. */
tc_status tc_direct_launch(const tc_direct_plan *plan, int function, int64_t blocks, uint32_t threads, CUstream stream,
                           void **arguments);

#endif
