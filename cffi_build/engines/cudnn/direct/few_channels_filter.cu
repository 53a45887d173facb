/*
 * Gradient of the filter of a convolution of 1 to 4 input channels, on tensor cores. Compiled to PTX by
 * generate_ptx.py, a text for each size, which leaves few_channels_filter_ptx.h; run it after each change here.
 *
 * A product of matrices for each row of the filter: outputs by columns of the output's gradient, columns by
 * elements of a row of the input, where the elements of a column lie `step` from those of the one before.
 * Each block leaves sums of its own, which the last kernel adds in a fixed order.
 */
#include "few_channels_map.h"
#include "few_channels_rows.h"
#include "warp.h"

/* Starts copying up to `steps` x 16 columns of a row of the output's gradient, zeros beyond it. */
template <int TILES>
__device__ __forceinline__ void copy_gradient(uint4 *to, const uint16_t *__restrict__ dy, const tc_few_channels_map &map,
                                              uint32_t image, uint32_t row, uint32_t column, uint32_t steps,
                                              uint32_t first)
{
    const uint32_t EIGHTS = 2 * TILES;
    const uint16_t *from = dy + (((int64_t)image * map.out[0] + row) * map.out[1] + column) * map.outputs + first;
    for (uint32_t i = threadIdx.x; i < steps * 16 * EIGHTS; i += 32 * map.parts * map.members) {
        uint32_t position = i / EIGHTS, eight = i % EIGHTS;
        bool inside = column + position < map.out[1] && first + 8 * eight < map.outputs;
        copy_later(to + position * (EIGHTS + 1) + eight,
                   inside ? from + (int64_t)position * map.outputs + 8 * eight : dy, inside);
    }
    end_copies();
}

/* Two elements of neighbouring columns. */
__device__ __forceinline__ uint32_t two_columns(const uint16_t *from, uint32_t step)
{
    return (uint32_t)from[0] | (uint32_t)from[step] << 16;
}

/* Of two columns from `column` on, those inside the output: the others' inputs need not be finite. */
__device__ __forceinline__ uint32_t mask_of(uint32_t column, const tc_few_channels_map &map)
{
    return (column < map.out[1] ? 0xFFFFu : 0) | (column + 1 < map.out[1] ? 0xFFFF0000u : 0);
}

/* 16 columns. `line` is the input's row of the warp's first filter row, `elements` their place in a row. */
template <typename E, int UNITS, int ROWS, int TILES>
__device__ __forceinline__ void add_products(float sums[TILES][ROWS][UNITS][4], const uint4 *gradient,
                                             const uint4 *shared, const few_channels_rows &rows,
                                             const tc_few_channels_map &map, uint32_t line, uint32_t rows_here,
                                             uint32_t elements, uint32_t column)
{
    uint32_t lane = threadIdx.x % 32, group = lane / 4, place = lane % 4, step = map.stride[1] * map.channels;
    uint32_t masks[2] = {mask_of(column + 2 * place, map), mask_of(column + 2 * place + 8, map)};
    uint32_t a[TILES][4];
#pragma unroll
    for (int t = 0; t < TILES; t++)
        load_matrices_4_turned(a[t], gradient + (lane % 8 + lane / 16 * 8) * (2 * TILES + 1) + 2 * t + lane / 8 % 2);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= (int)rows_here)
            break;
        const uint16_t *from = reinterpret_cast<const uint16_t *>(shared) + 2 * start_of(rows, map, line + r) +
                               elements + 2 * place * step + group;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            uint32_t b[2] = {two_columns(from + 8 * u, step) & masks[0],
                             two_columns(from + 8 * u + 8 * step, step) & masks[1]};
#pragma unroll
            for (int t = 0; t < TILES; t++)
                multiply_16x8x16<E>(sums[t][r][u], a[t], b);
        }
    }
}

template <typename E, int UNITS, int ROWS, int TILES>
__device__ __forceinline__ void few_channels_filter(const uint16_t *__restrict__ x, const uint16_t *__restrict__ dy,
                                                    float *__restrict__ partial, const tc_few_channels_map &map)
{
    const uint32_t STAGE = TC_FEW_CHANNELS_STEPS * 16 * (2 * TILES + 1), SUMS = TILES * ROWS * UNITS * 4;
    __shared__ uint4 shared[TC_FEW_CHANNELS_FILTER_SHARED / 16 + 2 * STAGE];
    uint4 *stages = shared + TC_FEW_CHANNELS_FILTER_SHARED / 16;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % map.parts, member = warp / map.parts;
    uint32_t group = blockIdx.x % map.groups, worker = blockIdx.x / map.groups, first = group * 16 * TILES;
    uint32_t filter_row = part * map.part_rows, step = map.stride[1] * map.channels, steps = map.tile[1] / 16;
    uint32_t rows_here = filter_row >= map.filter_rows                  ? 0
                         : map.filter_rows - filter_row < map.part_rows ? map.filter_rows - filter_row
                                                                        : map.part_rows;
    float sums[TILES][ROWS][UNITS][4] = {};

    for (uint32_t tile = worker; tile < map.total; tile += map.workers) {
        uint32_t across = tile % map.tiles[1], line = tile / map.tiles[1];
        uint32_t down = line % map.tiles[0], image = line / map.tiles[0];
        uint32_t row = down * map.tile[0], end = row + map.tile[0], left = across * map.tile[1];
        uint32_t top = row, place = 0, stage = 0;
        few_channels_rows rows = rows_of(map, image, down, across);
        if (end > map.out[0])
            end = map.out[0];
        copy_gradient<TILES>(stages, dy, map, image, row, left, map.steps < steps ? map.steps : steps, first);
        load_rows(x, shared, rows, map, (map.tile[0] - 1) * map.stride[0] + map.filter_rows, map.parts * map.members);
        while (row < end) {
            uint32_t count = steps - place < map.steps ? steps - place : map.steps;
            uint32_t next_row = row, next_place = place + count;
            if (next_place == steps) {
                next_place = 0;
                next_row++;
            }
            if (next_row < end)
                copy_gradient<TILES>(stages + (stage ^ 1) * STAGE, dy, map, image, next_row, left + 16 * next_place,
                                     steps - next_place < map.steps ? steps - next_place : map.steps, first);
            else
                end_copies();
            wait_for_copies<1>();
            __syncthreads();
#pragma unroll 1
            for (uint32_t s = member; s < count; s += map.members)
                add_products<E, UNITS, ROWS, TILES>(sums, stages + stage * STAGE + s * 16 * (2 * TILES + 1), shared,
                                                    rows, map, (row - top) * map.stride[0] + filter_row, rows_here,
                                                    (place + s) * 16 * step, left + (place + s) * 16);
            __syncthreads();
            row = next_row;
            place = next_place;
            stage ^= 1;
        }
    }

    /* The members of a part add theirs up, one after another. */
    float *flat = &sums[0][0][0][0], *between = reinterpret_cast<float *>(shared) + part * SUMS * 32 + lane;
    float *to = partial + (((int64_t)worker * map.groups + group) * map.parts + part) * (SUMS * 32) + lane;
#pragma unroll 1
    for (uint32_t turn = 0; turn < map.members; turn++) {
        if (turn == member) {
            float *out = turn + 1 < map.members ? between : to;
#pragma unroll
            for (uint32_t i = 0; i < SUMS; i++)
                out[32 * i] = turn ? flat[i] + between[32 * i] : flat[i];
        }
        __syncthreads();
    }
}

/* Adds what the blocks left, and writes the filter. */
template <typename E, int UNITS, int ROWS, int TILES>
__device__ __forceinline__ void sum_few_channels(const float *__restrict__ partial, uint16_t *__restrict__ dw,
                                                 const tc_few_channels_map &map)
{
    const uint32_t WIDTH = TC_FEW_CHANNELS_SUM_WIDTH, SHARES = TC_FEW_CHANNELS_SUM_SHARES;
    const uint32_t SUMS = TILES * ROWS * UNITS * 4;
    __shared__ float totals[SHARES][WIDTH];
    uint32_t lane = threadIdx.x % WIDTH, share = threadIdx.x / WIDTH;
    uint32_t place = blockIdx.x * WIDTH + lane;
    float total = 0.0f;
#pragma unroll 8
    for (uint32_t worker = share; worker < map.workers; worker += SHARES)
        total += partial[(int64_t)worker * map.sums + place];
    totals[share][lane] = total;
    __syncthreads();
    if (share != 0)
        return;
    for (uint32_t i = 1; i < SHARES; i++)
        total += totals[i][lane];
    uint32_t sum = place / 32 % SUMS, part = place / (32 * SUMS) % map.parts, group = place / (32 * SUMS) / map.parts;
    uint32_t u = sum / 4 % UNITS, r = sum / (4 * UNITS) % ROWS, t = sum / (4 * UNITS * ROWS);
    uint32_t output = (group * TILES + t) * 16 + lane / 4 + sum / 2 % 2 * 8, row = part * map.part_rows + r;
    uint32_t element = 8 * u + 2 * (lane % 4) + sum % 2, column = element / map.channels;
    if (output < map.outputs && r < map.part_rows && row < map.filter_rows && element < map.elements)
        dw[output * map.filter[0] + (element - column * map.channels) * map.filter[1] + row * map.filter[2] +
           column * map.filter[3]] = (uint16_t)E::narrow({total, 0.0f});
}

#define FEW_FILTER_KERNEL(NAME, ELEMENT, UNITS, ROWS, TILES)                                                       \
    extern "C" __global__ void __launch_bounds__(TC_FEW_CHANNELS_THREADS,                                           \
                                                 TC_FEW_CHANNELS_FILTER_RESIDENT(UNITS, ROWS, TILES))              \
        tc_few_channels_filter_##NAME##_##UNITS##_##ROWS##_##TILES(const uint16_t *x, const uint16_t *dy,           \
                                                                  float *partial, tc_few_channels_map map)         \
    {                                                                                                              \
        few_channels_filter<ELEMENT, UNITS, ROWS, TILES>(x, dy, partial, map);                                     \
    }                                                                                                              \
    extern "C" __global__ void tc_few_channels_filter_sum_##NAME##_##UNITS##_##ROWS##_##TILES(                      \
        const float *partial, uint16_t *dw, tc_few_channels_map map)                                               \
    {                                                                                                              \
        sum_few_channels<ELEMENT, UNITS, ROWS, TILES>(partial, dw, map);                                           \
    }
#define FEW_FILTER_OF_SIZE(UNITS, ROWS, TILES)                                                                     \
    FEW_FILTER_KERNEL(f16, half_element, UNITS, ROWS, TILES)                                                       \
    FEW_FILTER_KERNEL(bf16, bfloat16_element, UNITS, ROWS, TILES)

#ifdef TC_VARIANT_UNITS /* one of them, as it is compiled for a GPU */
#define FEW_FILTER_ONE(NAME, ELEMENT, UNITS, ROWS, TILES) FEW_FILTER_KERNEL(NAME, ELEMENT, UNITS, ROWS, TILES)
FEW_FILTER_ONE(TC_VARIANT_NAME, TC_VARIANT_ELEMENT, TC_VARIANT_UNITS, TC_VARIANT_ROWS, TC_VARIANT_TILES)
#else
TC_FEW_CHANNELS_FILTER_SIZES(FEW_FILTER_OF_SIZE)
#endif
