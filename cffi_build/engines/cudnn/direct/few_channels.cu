/*
 * Forward convolution of 1 to 4 input channels on tensor cores. Compiled to PTX by generate_ptx.py, a text for
 * each size, which leaves few_channels_ptx.h; run it after each change here.
 *
 * In a row of shared memory the elements that an output column needs are neighbours, `step` from those of the
 * next column: the matrix of 16 columns by 16 elements is read from there as it is. Its last elements may be
 * beyond the filter's row, and are made zero: they need not be finite, and belong to other outputs.
 */
#include "few_channels_map.h"
#include "few_channels_rows.h"
#include "warp.h"

/* Two neighbours along a row of the filter, of one output; zeros beyond it. */
__device__ __forceinline__ uint32_t load_two(const uint16_t *__restrict__ w, const tc_few_channels_map &map,
                                             uint32_t output, uint32_t row, uint32_t element)
{
    uint32_t two = 0;
    if (output >= map.outputs)
        return two;
    for (uint32_t i = 0; i < 2 && element + i < map.elements; i++) {
        uint32_t column = (element + i) / map.channels, channel = element + i - column * map.channels;
        two |= (uint32_t)w[output * map.filter[0] + channel * map.filter[1] + row * map.filter[2] +
                           column * map.filter[3]] << 16 * i;
    }
    return two;
}

/*
 * Each warp's filters, by way of shared memory: of each row and 8 elements the fragments for 32 outputs, of
 * which a lane then has 8 neighbours in its sums.
 */
template <int ROWS, int UNITS>
__device__ __forceinline__ void load_filters(const uint16_t *__restrict__ w, uint32_t *shared,
                                             uint32_t filters[ROWS][UNITS][4], const tc_few_channels_map &map)
{
    const uint32_t OUTPUTS = TC_FEW_CHANNELS_OUTPUTS;
    uint32_t group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    uint32_t threads = 32 * map.parts * map.members, first = blockIdx.x % map.groups * map.parts;
    for (uint32_t part = 0; part < map.parts; part++) {
        __syncthreads();
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < ROWS * UNITS * 4 * OUTPUTS; i += threads) {
            uint32_t pair = i / OUTPUTS, row = pair / (4 * UNITS);
            shared[i] = load_two(w, map, (first + part) * OUTPUTS + i % OUTPUTS, row, 2 * (pair - row * 4 * UNITS));
        }
        __syncthreads();
        if (threadIdx.x / 32 % map.parts != part)
            continue;
        const uint32_t *from = shared + place * OUTPUTS + group / 2 * 8 + group % 2;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int u = 0; u < UNITS; u++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    filters[r][u][n] = from[(r * UNITS + u) * 4 * OUTPUTS + 2 * n];
    }
}

/* 16 columns by 32 outputs of one row. `words`: the place of the warp's columns in a row; `step` in words. */
template <typename E, int ROWS, int UNITS>
__device__ __forceinline__ void multiply_rows(float sums[4][4], const uint32_t *shared, const few_channels_rows &rows,
                                              const tc_few_channels_map &map, uint32_t first_row, uint32_t words,
                                              uint32_t step, const uint32_t filters[ROWS][UNITS][4], uint32_t mask)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const uint32_t *from = shared + start_of(rows, map, first_row + r) + words;
        uint32_t a[2 * UNITS];
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            a[2 * u] = from[4 * u];
            a[2 * u + 1] = from[4 * u + 8 * step];
        }
        a[2 * UNITS - 2] &= mask;
        a[2 * UNITS - 1] &= mask;
#pragma unroll
        for (int u = 0; u + 1 < UNITS; u += 2)
#pragma unroll
            for (int n = 0; n < 4; n++) {
                uint32_t b[2] = {filters[r][u][n], filters[r][u + 1][n]};
                multiply_16x8x16<E>(sums[n], a + 2 * u, b);
            }
        if (UNITS % 2) {
#pragma unroll
            for (int n = 0; n < 4; n++)
                multiply_16x8x8<E>(sums[n], a + 2 * UNITS - 2, filters[r][UNITS - 1][n]);
        }
    }
}

template <typename E, int ROWS, int UNITS>
__device__ __forceinline__ void few_channels(const uint16_t *__restrict__ x, const uint16_t *__restrict__ w,
                                             uint16_t *__restrict__ y, const tc_few_channels_map &map)
{
    __shared__ uint4 shared[TC_FEW_CHANNELS_SHARED / 16];
    uint32_t warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    uint32_t part = blockIdx.x % map.groups * map.parts + warp % map.parts, member = warp / map.parts;
    uint32_t channel = part * TC_FEW_CHANNELS_OUTPUTS + 8 * place; /* of the lane's 8 */
    uint32_t filters[ROWS][UNITS][4];
    load_filters<ROWS, UNITS>(w, reinterpret_cast<uint32_t *>(shared), filters, map);
    uint32_t last = 8 * (UNITS - 1) + 2 * place;
    uint32_t mask = (last < map.elements ? 0xFFFFu : 0) | (last + 1 < map.elements ? 0xFFFF0000u : 0);
    uint32_t step = map.stride[1] * map.channels / 2, steps = map.tile[1] / 16;

    for (uint32_t tile = blockIdx.x / map.groups; tile < map.total; tile += map.workers) {
        uint32_t across = tile % map.tiles[1], line = tile / map.tiles[1];
        uint32_t down = line % map.tiles[0], image = line / map.tiles[0];
        few_channels_rows rows = rows_of(map, image, down, across);
        __syncthreads();
        load_rows(x, shared, rows, map, (map.tile[0] - 1) * map.stride[0] + ROWS, map.parts * map.members);
        __syncthreads();
        uint32_t row = 0, sixteen = member;
        while (true) {
            while (sixteen >= steps) {
                sixteen -= steps;
                row++;
            }
            uint32_t to_row = down * map.tile[0] + row;
            if (row >= map.tile[0] || to_row >= map.out[0])
                break;
            uint32_t column = 16 * sixteen + group;
            float sums[4][4] = {};
            multiply_rows<E, ROWS, UNITS>(sums, reinterpret_cast<const uint32_t *>(shared), rows, map,
                                          row * map.stride[0], column * step + place, step, filters, mask);
            column += across * map.tile[1];
            uint16_t *to = y + (((int64_t)image * map.out[0] + to_row) * map.out[1] + column) * map.outputs + channel;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint4 eight = {E::narrow({sums[0][2 * half], sums[0][2 * half + 1]}),
                               E::narrow({sums[1][2 * half], sums[1][2 * half + 1]}),
                               E::narrow({sums[2][2 * half], sums[2][2 * half + 1]}),
                               E::narrow({sums[3][2 * half], sums[3][2 * half + 1]})};
                if (column + 8 * half < map.out[1] && channel < map.outputs)
                    *reinterpret_cast<uint4 *>(to + (int64_t)(8 * half) * map.outputs) = eight;
            }
            sixteen += map.members;
        }
    }
}

#define FEW_CHANNELS_KERNEL(NAME, ELEMENT, ROWS, UNITS)                                                            \
    extern "C" __global__ void __launch_bounds__(TC_FEW_CHANNELS_THREADS, TC_FEW_CHANNELS_RESIDENT(ROWS, UNITS))     \
        tc_few_channels_##NAME##_##ROWS##_##UNITS(const uint16_t *x, const uint16_t *w, uint16_t *y,                \
                                                  tc_few_channels_map map)                                          \
    {                                                                                                              \
        few_channels<ELEMENT, ROWS, UNITS>(x, w, y, map);                                                          \
    }
#define FEW_CHANNELS_OF_SIZE(ROWS, UNITS)                                                                          \
    FEW_CHANNELS_KERNEL(f16, half_element, ROWS, UNITS)                                                            \
    FEW_CHANNELS_KERNEL(bf16, bfloat16_element, ROWS, UNITS)

#ifdef TC_VARIANT_ROWS /* one of them, as it is compiled for a GPU */
#define FEW_CHANNELS_ONE(NAME, ELEMENT, ROWS, UNITS) FEW_CHANNELS_KERNEL(NAME, ELEMENT, ROWS, UNITS)
FEW_CHANNELS_ONE(TC_VARIANT_NAME, TC_VARIANT_ELEMENT, TC_VARIANT_ROWS, TC_VARIANT_UNITS)
#else
TC_FEW_CHANNELS_SIZES(FEW_CHANNELS_OF_SIZE)
#endif
