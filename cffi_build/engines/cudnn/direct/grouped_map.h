/* What the kernels of grouped.cu are told. Plain C, shared by the host code and grouped.cu. */
#ifndef TC_CUDNN_GROUPED_MAP_H
#define TC_CUDNN_GROUPED_MAP_H

#include <stdint.h>

/*
 * A gather with as many channels written as read. Position q of class c along an axis, which lies at
 * classes * q + c in y, is the sum over the places j of a window of
 *
 *     x[step * q + shift + j] w[tap_first[c] + tap_step * j]
 *
 * and places whose tap the filter does not have count nothing. Forward, and backward_data with stride 1: one
 * class, and a window as large as the filter. Backward_data with stride 2: step 1, and classes of even and odd
 * positions, which different taps reach; one window of (taps + 1) / 2 serves both.
 */
typedef struct tc_grouped_map {
    uint32_t batch, channels, group_bits; /* a group has 1 << group_bits channels */
    uint32_t in[2], out[2];               /* sizes of x and y */
    uint32_t positions[2];                /* of class 0, which has most */
    int32_t shift[2], tap_first[2][2], tap_step;
    uint32_t taps;                                      /* of the filter, along either axis */
    int32_t stride_tap[2], stride_read, stride_written; /* the filter's, in elements */
    uint32_t read_mask, written_mask;                   /* of a channel, in its place along the filter's axis */
    uint32_t parts, teams; /* of the filter; teams of warps that share the tiles of a part */
    uint32_t rows, down, across, tiles; /* rows of a tile; tiles down, strips across an image; tiles of a part */
} tc_grouped_map;

#endif
