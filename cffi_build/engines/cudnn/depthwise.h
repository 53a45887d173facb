/*
 * An algorithm of the engine's own, beside cuDNN's: depthwise convolution and its input's gradient on
 * channels-last tensors, without conversions or workspace. Deterministic; sums in float32.
 */
#ifndef TC_CUDNN_DEPTHWISE_H
#define TC_CUDNN_DEPTHWISE_H

#include "depthwise_map.h"
#include "library.h"
#include "tunedconv_engine.h"

extern const char tc_depthwise_name[];

enum { TC_DEPTHWISE_DTYPES = 3, TC_DEPTHWISE_KERNELS = 3 };

typedef struct tc_depthwise_kernels {
    const tc_cudnn_library *library;
    CUmodule module;
    CUfunction functions[TC_DEPTHWISE_DTYPES][TC_DEPTHWISE_KERNELS];
} tc_depthwise_kernels;

/* Loads them into the current context. */
tc_status tc_depthwise_open(const tc_cudnn_library *library, tc_depthwise_kernels **kernels);
void tc_depthwise_close(tc_depthwise_kernels *kernels); /* NULL is allowed */

/* Whether the kernels compute this convolution. */
int tc_depthwise_fits(const tc_conv *conv);
tc_status tc_depthwise_run(const tc_depthwise_kernels *kernels, const tc_conv *conv, CUstream stream,
                           const tc_operands *operands);

#endif
