/* What the kernels of few input channels are told. Plain C, shared by the host code and the .cu files. */
#ifndef TC_CUDNN_FEW_CHANNELS_MAP_H
#define TC_CUDNN_FEW_CHANNELS_MAP_H

#include <stdint.h>

/*
 * A row of the input is a line of width x channels elements, of which an output needs `elements` neighbours of
 * each of its rows, from (column x stride - pad) x channels on. The output is cut into tiles; blocks take them
 * in turn, `groups` blocks each, which have `parts` of the output channels apiece.
 */
typedef struct tc_few_channels_map {
    int64_t filter[4];                /* its strides in elements: outputs, channels, rows, columns */
    uint32_t batch, channels, outputs;
    uint32_t in[2], out[2];
    int32_t pad[2];                   /* before */
    uint32_t stride[2];
    uint32_t elements;                /* filter columns x channels */
    uint32_t tile[2], tiles[2], total; /* outputs of a tile, columns a multiple of 16; tiles of an image; of all */
    uint32_t pitch;                   /* of a row of the input in shared memory, in units of 16 bytes */
    uint32_t groups, parts, members;  /* warps of a block: parts x members */
    uint32_t workers;                 /* blocks of a group */
    /* The filter's gradient only: a warp's part is `part_rows` of `filter_rows`; steps of 16 columns staged at a
     * time; floats that the blocks of a worker leave. */
    uint32_t filter_rows, part_rows, steps, sums;
} tc_few_channels_map;

/* Threads that a block has at most; bytes of its input rows; output channels that a warp takes. */
#define TC_FEW_CHANNELS_THREADS 128
#define TC_FEW_CHANNELS_SHARED 32768
#define TC_FEW_CHANNELS_OUTPUTS 32

/* The same bytes for the filter's gradient, which also holds this many steps of the output's, twice. */
#define TC_FEW_CHANNELS_FILTER_SHARED 28672
#define TC_FEW_CHANNELS_STEPS 4
/* Floats side by side, and shares of the blocks, that a block adds up. */
#define TC_FEW_CHANNELS_SUM_WIDTH 32
#define TC_FEW_CHANNELS_SUM_SHARES 8

/* Sizes that there are kernels for: rows of the filter, and eights of elements that one of its rows has. */
#define TC_FEW_CHANNELS_SIZES(OF) \
    OF(3, 1) OF(3, 2) OF(4, 2) OF(5, 2) OF(7, 1) OF(7, 2) OF(7, 3) OF(7, 4)

/* Blocks that a multiprocessor holds of a kernel, by the registers that its filters take. */
#define TC_FEW_CHANNELS_RESIDENT(ROWS, UNITS) \
    ((ROWS) * (UNITS) > 16 ? 3 : (ROWS) * (UNITS) > 12 ? 4 : (ROWS) * (UNITS) > 6 ? 5 : 6)

/* Of the gradient: eights of elements of a row; rows and sixteens of outputs that a warp takes. */
#define TC_FEW_CHANNELS_FILTER_SIZES(WITH) WITH(1, 4, 2) WITH(2, 3, 2) WITH(2, 3, 4) WITH(3, 2, 4) WITH(4, 2, 4)
#define TC_FEW_CHANNELS_FILTER_RESIDENT(UNITS, ROWS, TILES) \
    ((UNITS) * (ROWS) * (TILES) > 24 ? 2 : (UNITS) * (ROWS) * (TILES) > 12 ? 3 : 4)

#endif
