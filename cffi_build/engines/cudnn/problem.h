/*
 * The convolution that cuDNN is given in place of the caller's: the same sums, perhaps with other shapes, and
 * the conversions of the caller's tensors into and out of it.
 */
#ifndef TC_CUDNN_PROBLEM_H
#define TC_CUDNN_PROBLEM_H

#include "algorithm.h"
#include "kernels.h"

typedef struct tc_problem {
    tc_conv conv;           /* what cuDNN computes */
    int swapped;            /* the caller's x is the problem's y, and the other way round */
    tc_conversion x, w, y;  /* of the caller's tensors; for the one that is computed, from the problem's to it */
} tc_problem;

/* TC_UNSUPPORTED when the rewriting is not possible for this convolution, or changes nothing. */
tc_status tc_problem_make(const tc_conv *conv, const tc_rewrite *rewrite, tc_problem *problem);

/* Strides in elements of a dense tensor (dims N, C, spatial...) or filter (O, I, spatial...) in a layout. */
void tc_activation_strides(const int64_t *dims, int32_t rank, int32_t layout, int64_t *strides);
void tc_filter_strides(const int64_t *dims, int32_t rank, int32_t filter_layout, int64_t *strides);

#endif
