/* What the families of few input channels share: which convolutions they take, and their tiles. */
#ifndef TC_CUDNN_FEW_CHANNELS_H
#define TC_CUDNN_FEW_CHANNELS_H

#include "few_channels_map.h"
#include "tunedconv_engine.h"

static inline uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* Whether layouts, dtypes and sizes are those of the kernels, whatever the direction. */
int tc_few_channels_fit(const tc_conv *conv);
/* The convolution alone: not yet cut into tiles. */
tc_few_channels_map tc_few_channels_map_of(const tc_conv *conv);
/*
 * Cuts into tiles of `rows` rows: as few beside each other as `shared` bytes of rows of the input have room for.
 * Zero when not even the narrowest fits, or when they are more than can be counted.
 */
int tc_few_channels_cut(tc_few_channels_map *map, uint32_t shared, uint32_t rows);

#endif
