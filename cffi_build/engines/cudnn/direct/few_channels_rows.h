/* Rows of an input of few channels in shared memory, with the zeros of the padding written out. */
#ifndef TC_CUDNN_FEW_CHANNELS_ROWS_H
#define TC_CUDNN_FEW_CHANNELS_ROWS_H

#include "few_channels_map.h"

/*
 * Where the rows of a tile lie. Their starts are at any multiple of 2 bytes in global memory; in shared memory
 * an element has the same place among 8 neighbours, or the one before where that makes the start even, so that
 * two neighbours from an even element on are one word.
 */
struct few_channels_rows {
    int64_t first; /* element of the tensor that the first row starts with; it may lie before the tensor */
    int32_t row, column; /* the same as a row, and as an element of it */
    uint32_t image;
};

__device__ __forceinline__ few_channels_rows rows_of(const tc_few_channels_map &map, uint32_t image, uint32_t down,
                                                     uint32_t across)
{
    few_channels_rows rows;
    rows.image = image;
    rows.row = (int32_t)(down * map.tile[0] * map.stride[0]) - map.pad[0];
    rows.column = ((int32_t)(across * map.tile[1] * map.stride[1]) - map.pad[1]) * (int32_t)map.channels;
    rows.first = ((int64_t)image * map.in[0] + rows.row) * (int64_t)(map.in[1] * map.channels) + rows.column;
    return rows;
}

/* The word of shared memory at which a row starts. */
__device__ __forceinline__ uint32_t start_of(const few_channels_rows &rows, const tc_few_channels_map &map, uint32_t r)
{
    uint32_t element = (uint32_t)rows.first + r * (map.in[1] * map.channels);
    return r * map.pitch * 4 + (element & 6) / 2;
}

/* Eight elements of a row from `place` on, zeros outside it. */
__device__ __forceinline__ uint4 load_eight(const uint16_t *__restrict__ row, int32_t place, int32_t width)
{
    uint32_t words[4];
    if (place >= 0 && place + 8 <= width) {
        const uint16_t *from = row + place;
        uint32_t odd = (uint32_t)((uintptr_t)from / 2) & 1;
        uint4 v = *reinterpret_cast<const uint4 *>(from - odd);
        if (!odd)
            return v;
        uint32_t last = from[7];
        return {v.x >> 16 | v.y << 16, v.y >> 16 | v.z << 16, v.z >> 16 | v.w << 16, v.w >> 16 | last << 16};
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = (uint32_t)(place + 2 * i) < (uint32_t)width ? row[place + 2 * i] : 0;
        uint32_t high = (uint32_t)(place + 2 * i + 1) < (uint32_t)width ? row[place + 2 * i + 1] : 0;
        words[i] = low | high << 16;
    }
    return {words[0], words[1], words[2], words[3]};
}

/* By all threads of a block of `warps` warps. */
__device__ __forceinline__ void load_rows(const uint16_t *__restrict__ x, uint4 *shared, const few_channels_rows &rows,
                                          const tc_few_channels_map &map, uint32_t count, uint32_t warps)
{
    uint32_t width = map.in[1] * map.channels;
    for (uint32_t r = threadIdx.x / 32; r < count; r += warps) {
        int32_t y = rows.row + (int32_t)r;
        bool inside = (uint32_t)y < map.in[0];
        int64_t first = rows.first + (int64_t)r * width;
        const uint16_t *row = x + (first - rows.column);
        int32_t place = rows.column - (int32_t)(first & 6);
#pragma unroll 4
        for (uint32_t i = threadIdx.x % 32; i < map.pitch; i += 32)
            shared[r * map.pitch + i] =
                inside ? load_eight(row, place + (int32_t)(8 * i), (int32_t)width) : uint4{0, 0, 0, 0};
    }
}

#endif
