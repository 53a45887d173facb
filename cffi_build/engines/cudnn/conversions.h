/*
 * What the conversion kernels are told: where each element of a caller's tensor lies in the tensor that
 * cuDNN is given. Plain C, shared by the host code and conversions.cu.
 *
 * An activation of the problem is channels-last and dense: position p of the problem holds, for each group,
 * the channels of the fold[0] x fold[1] x fold[2] positions fold * p + r of the caller's tensor, r-major,
 * then zeros up to `padded`. Where the zeros around the caller's tensor are written out, positions count
 * from its padded corner, `before` ahead of its own. Without all of these this is a copy.
 *
 * Tap u of the problem's filter is tap r + fold * u + offset of the caller's filter for the part of the
 * input channels that position r was folded into (zero where there is no such tap). `swapped` exchanges the
 * roles of input and output channels in each group and reverses the taps.
 */
#ifndef TC_CUDNN_CONVERSIONS_H
#define TC_CUDNN_CONVERSIONS_H

#include <stdint.h>

typedef struct tc_activation_map {
    int64_t stride_n, stride_c, stride[3]; /* the caller's, in elements */
    uint32_t batch, size[3];               /* the caller's positions */
    uint32_t folded[3], fold[3];           /* the problem's positions */
    uint32_t before[3];                    /* written-out zeros ahead of the caller's positions */
    uint32_t groups, channels, padded;     /* channels of a group: the caller's, the problem's */
} tc_activation_map;

typedef struct tc_filter_map {
    int64_t stride_o, stride_i, stride[3]; /* the caller's, in elements */
    uint32_t outputs, channels, taps[3];   /* the caller's output channels of a group, input channels of a group */
    uint32_t groups;
    uint32_t problem_outputs, problem_channels, problem_taps[3]; /* of all groups; of a group */
    uint32_t padded;                       /* folded and padded input channels of a group, before swapping */
    uint32_t fold[3];
    int32_t offset[3];
    uint32_t swapped, channels_last;       /* channels_last: the problem's filter is (O, taps, I), else (O, I, taps) */
} tc_filter_map;

typedef struct tc_transpose_map {
    uint32_t batch, rows, columns; /* (batch, rows, columns) becomes (batch, columns, rows) */
} tc_transpose_map;

/* Channels that one thread of an activation kernel moves; threads of a block; edge of a transposed tile. */
#define TC_CHUNK 8
#define TC_BLOCK 256
#define TC_TILE 32

#endif
