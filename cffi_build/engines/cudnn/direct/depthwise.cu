/*
 * Depthwise convolution with stride 1, sums in float32. Compiled to PTX by generate_ptx.py, which leaves
 * depthwise_ptx.h; run it after each change here.
 */
#include "depthwise_map.h"
#include "elements.h"

/* The block's part of the filter, as float32, tap by tap. */
template <typename E, int K>
__device__ __forceinline__ void load_filter(const typename E::type *__restrict__ w, float *filter,
                                            const tc_depthwise_map &map, uint32_t first)
{
    uint32_t width = 2 * map.pairs;
    for (uint32_t i = threadIdx.x; i < K * K * width; i += map.pairs * map.strips) {
        uint32_t tap = i / width, channel = first + i - tap * width;
        uint32_t row = tap / K, column = tap - row * K;
        if (map.turned) {
            row = K - 1 - row;
            column = K - 1 - column;
        }
        filter[i] = channel < map.channels ? E::widen(w[row * map.stride_tap[0] + column * map.stride_tap[1] +
                                                        channel * map.stride_channel])
                                           : 0.0f;
    }
}

template <typename E, int K>
__device__ void depthwise(const typename E::type *__restrict__ x, const typename E::type *__restrict__ w,
                          typename E::type *__restrict__ y, tc_depthwise_map map)
{
    typedef typename E::two two;
    const int ROWS = TC_DEPTHWISE_ROWS, COLUMNS = TC_DEPTHWISE_COLUMNS;
    __shared__ float filter[K * K * 2 * TC_DEPTHWISE_PAIRS];
    uint32_t tiles = (map.channels / 2 + map.pairs - 1) / map.pairs;
    uint32_t first = 2 * map.pairs * (blockIdx.x % tiles);
    load_filter<E, K>(w, filter, map, first);
    __syncthreads();

    uint32_t lane = threadIdx.x % map.pairs, channel = first + 2 * lane;
    uint32_t across = (map.out[1] + COLUMNS - 1) / COLUMNS, down = (map.out[0] + ROWS - 1) / ROWS;
    uint32_t strip = blockIdx.x / tiles * map.strips + threadIdx.x / map.pairs;
    uint32_t image = strip / (across * down);
    if (channel >= map.channels || image >= map.batch)
        return;
    int column = (int)(strip % across) * COLUMNS, row = (int)(strip / across % down) * ROWS;
    const typename E::type *from = x + (int64_t)image * map.in[0] * map.in[1] * map.channels + channel;
    int left = column - map.pad[1], top = row - map.pad[0];

    pair sums[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            sums[i][j] = {0.0f, 0.0f};
#pragma unroll 1
    for (int r = 0; r < ROWS + K - 1; r++) {
        if ((uint32_t)(top + r) >= map.in[0])
            continue;
        const typename E::type *line = from + (int64_t)(top + r) * map.in[1] * map.channels;
        pair values[COLUMNS + K - 1];
#pragma unroll
        for (int j = 0; j < COLUMNS + K - 1; j++) {
            bool inside = (uint32_t)(left + j) < map.in[1];
            values[j] = {0.0f, 0.0f};
            if (inside)
                values[j] = E::widen_two(*reinterpret_cast<const two *>(line + (int64_t)(left + j) * map.channels));
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int tap = r - i;
            if (tap < 0 || tap >= K)
                continue;
            const float *taps = filter + tap * K * 2 * map.pairs + 2 * lane;
#pragma unroll
            for (int k = 0; k < K; k++) {
                float a = taps[k * 2 * map.pairs], b = taps[k * 2 * map.pairs + 1];
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) {
                    sums[i][j].a += values[j + k].a * a;
                    sums[i][j].b += values[j + k].b * b;
                }
            }
        }
    }
    typename E::type *to = y + (int64_t)image * map.out[0] * map.out[1] * map.channels + channel;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            if ((uint32_t)(row + i) < map.out[0] && (uint32_t)(column + j) < map.out[1])
                *reinterpret_cast<two *>(to + ((int64_t)(row + i) * map.out[1] + column + j) * map.channels) =
                    E::narrow(sums[i][j]);
}

#define KERNEL(NAME, E, K)                                                                                         \
    extern "C" __global__ void __launch_bounds__(TC_DEPTHWISE_THREADS) tc_depthwise_##NAME##_##K(                   \
        const E::type *x, const E::type *w, E::type *y, tc_depthwise_map map)                                       \
    {                                                                                                              \
        depthwise<E, K>(x, w, y, map);                                                                             \
    }
#define KERNELS_OF(NAME, E) KERNEL(NAME, E, 3) KERNEL(NAME, E, 5) KERNEL(NAME, E, 7)

KERNELS_OF(f16, half_element)
KERNELS_OF(bf16, bfloat16_element)
KERNELS_OF(f32, float_element)
#undef KERNELS_OF
#undef KERNEL
