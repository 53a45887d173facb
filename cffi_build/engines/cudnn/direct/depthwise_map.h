/* What the depthwise kernels are told. Plain C, shared by the host code and depthwise.cu. */
#ifndef TC_CUDNN_DEPTHWISE_MAP_H
#define TC_CUDNN_DEPTHWISE_MAP_H

#include <stdint.h>

/*
 * y[n, p, c] = sum over taps t of x[n, p + t - pad, c] w[t, c], on channels-last tensors of which each thread
 * takes two channels and a tile of rows and columns. `turned`: taps are counted from the end, as the gradient
 * of the input needs them.
 */
typedef struct tc_depthwise_map {
    uint32_t batch, channels;
    uint32_t in[2], out[2];
    int32_t pad[2];                        /* before */
    int64_t stride_tap[2], stride_channel; /* the filter's, in elements */
    uint32_t turned;
    uint32_t pairs, strips;                /* of a block: pairs of channels, and tiles of positions */
} tc_depthwise_map;

/* Positions that one thread computes; pairs of channels and threads that a block has at most. */
#define TC_DEPTHWISE_ROWS 2
#define TC_DEPTHWISE_COLUMNS 8
#define TC_DEPTHWISE_PAIRS 64
#define TC_DEPTHWISE_THREADS 256

#endif
