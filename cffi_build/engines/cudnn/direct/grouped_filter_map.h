/* What the kernels of grouped_filter.cu are told. Plain C, shared with the host code. */
#ifndef TC_CUDNN_GROUPED_FILTER_MAP_H
#define TC_CUDNN_GROUPED_FILTER_MAP_H

#include <stdint.h>

/*
 * dw[o, t, i] = sum over images and positions p of dy[p, o] x[p stride + t - pad, channel i of o's group], with
 * as many output as input channels. Positions are taken in strips of TC_GROUPED_FILTER_STRIP columns of an
 * image, two strips (a pair) at a time, row by row: `rows` of all pairs, one pair after another, are cut into
 * `slices` of equal length. A block sums one slice for one set of channels; the sums of all slices are then
 * added.
 */
typedef struct tc_grouped_filter_map {
    uint32_t batch, channels;
    uint32_t in[2], out[2];
    int32_t pad[2];         /* before */
    uint32_t kernel, group; /* taps along an axis; channels of a group, a power of two */
    uint32_t across;        /* strips side by side in an image */
    uint32_t rows, slices, sets;
    uint32_t elements;      /* of the filter */
    int64_t stride_tap[2], stride_output, stride_input; /* the filter's, in elements */
} tc_grouped_filter_map;

#define TC_GROUPED_FILTER_STRIP 8
/* A set is of 4 chunks of 8 channels: 64 bytes of a pixel. */
#define TC_GROUPED_FILTER_CHUNKS 4
#define TC_GROUPED_FILTER_THREADS 128
/* Threads that add the slices of one element; elements of a block of them. */
#define TC_GROUPED_FILTER_PARTS 8
#define TC_GROUPED_FILTER_ELEMENTS 32

#endif
