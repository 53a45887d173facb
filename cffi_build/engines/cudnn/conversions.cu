/*
 * Moving tensors between the caller's layout and the one that cuDNN is given. Compiled to PTX by
 * generate_ptx.py, which leaves conversions_ptx.h; run it after each change here.
 */
#include "conversions.h"

/* Index of this thread in the grid, which has one dimension: the others end at 65,535 blocks. */
__device__ __forceinline__ uint32_t thread_index()
{
    return blockIdx.x * TC_BLOCK + threadIdx.x;
}

/* Splits the lowest digit off a mixed-radix number. */
__device__ __forceinline__ uint32_t take(uint32_t &rest, uint32_t extent)
{
    uint32_t next = rest / extent, digit = rest - next * extent;
    rest = next;
    return digit;
}

/* One channel of the problem in turn: its group, the folded position it comes from, the caller's channel. */
struct channel_cursor {
    uint32_t group, place, channel; /* place: within the group, padding included */
    uint32_t r[3];

    __device__ __forceinline__ channel_cursor(const tc_activation_map &map, uint32_t first)
    {
        group = first / map.padded;
        place = first - group * map.padded;
        uint32_t position = place / map.channels;
        channel = place - position * map.channels;
        r[2] = position % map.fold[2];
        position /= map.fold[2];
        r[1] = position % map.fold[1];
        r[0] = position / map.fold[1]; /* fold[0] and more: padding */
    }

    __device__ __forceinline__ void advance(const tc_activation_map &map)
    {
        if (++channel == map.channels) {
            channel = 0;
            if (++r[2] == map.fold[2]) {
                r[2] = 0;
                if (++r[1] == map.fold[1]) {
                    r[1] = 0;
                    r[0]++;
                }
            }
        }
        if (++place == map.padded) {
            place = channel = r[0] = r[1] = r[2] = 0;
            group++;
        }
    }
};

/* One thread a position of the problem and TC_CHUNK of its channels. */
template <typename T>
__device__ void pack_activation(const T *__restrict__ source, T *__restrict__ target, tc_activation_map map,
                                       uint32_t chunks, uint32_t threads)
{
    uint32_t index = thread_index();
    if (index >= threads)
        return;
    uint32_t row = map.groups * map.padded;
    uint32_t pixel = index / chunks, first = (index - pixel * chunks) * TC_CHUNK;
    uint32_t rest = pixel, p[3]; /* of the caller's tensor; in the zeros ahead of it p wraps beyond its size */
    for (int axis = 2; axis >= 0; axis--)
        p[axis] = take(rest, map.folded[axis]) * map.fold[axis] - map.before[axis];
    const T *base = source + (int64_t)rest * map.stride_n;
    channel_cursor at(map, first);
    __align__(16) T values[TC_CHUNK];
#pragma unroll
    for (int i = 0; i < TC_CHUNK; i++) {
        uint32_t x0 = p[0] + at.r[0], x1 = p[1] + at.r[1], x2 = p[2] + at.r[2];
        bool inside = first + i < row && at.r[0] < map.fold[0] && x0 < map.size[0] && x1 < map.size[1] &&
                      x2 < map.size[2];
        int64_t offset = (int32_t)x0 * map.stride[0] + (int32_t)x1 * map.stride[1] + (int32_t)x2 * map.stride[2] +
                         (int64_t)(at.group * map.channels + at.channel) * map.stride_c;
        values[i] = inside ? base[offset] : T(0);
        at.advance(map);
    }
    T *out = target + (int64_t)pixel * row + first;
    const uint32_t in_8_bytes = sizeof(uint2) / sizeof(T);
    if (row % TC_CHUNK == 0) {
#pragma unroll
        for (int i = 0; i < (int)(sizeof values / 16); i++)
            reinterpret_cast<uint4 *>(out)[i] = reinterpret_cast<const uint4 *>(values)[i];
    } else if (row % in_8_bytes == 0) {
#pragma unroll
        for (uint32_t i = 0; i < TC_CHUNK; i += in_8_bytes)
            if (first + i < row)
                *reinterpret_cast<uint2 *>(out + i) = *reinterpret_cast<const uint2 *>(values + i);
    } else {
        for (uint32_t i = 0; i < TC_CHUNK && first + i < row; i++)
            out[i] = values[i];
    }
}

/* One thread a position of the caller's tensor and TC_CHUNK of its channels. */
template <typename T>
__device__ void unpack_activation(const T *__restrict__ source, T *__restrict__ target, tc_activation_map map,
                                         uint32_t chunks, uint32_t threads)
{
    uint32_t index = thread_index();
    if (index >= threads)
        return;
    uint32_t channels = map.groups * map.channels;
    uint32_t pixel = index / chunks, first = (index - pixel * chunks) * TC_CHUNK;
    uint32_t rest = pixel, x[3], p[3], position = 0;
    bool inside = true; /* the problem has no positions that no tap reaches: zero there */
    for (int axis = 2; axis >= 0; axis--) {
        x[axis] = take(rest, map.size[axis]);
        p[axis] = (x[axis] + map.before[axis]) / map.fold[axis];
        inside = inside && p[axis] < map.folded[axis];
    }
    for (int axis = 0; axis < 3; axis++)
        position = position * map.fold[axis] + x[axis] + map.before[axis] - p[axis] * map.fold[axis];
    int64_t row = ((int64_t)rest * map.folded[0] + p[0]) * map.folded[1] + p[1];
    row = (row * map.folded[2] + p[2]) * (map.groups * map.padded);
    T *out = target + (int64_t)rest * map.stride_n + (int64_t)x[0] * map.stride[0] + (int64_t)x[1] * map.stride[1] +
             (int64_t)x[2] * map.stride[2];
    uint32_t group = first / map.channels, channel = first - group * map.channels;
    for (uint32_t i = 0; i < TC_CHUNK && first + i < channels; i++) {
        out[(int64_t)(first + i) * map.stride_c] =
            inside ? source[row + group * map.padded + position * map.channels + channel] : T(0);
        if (++channel == map.channels) {
            channel = 0;
            group++;
        }
    }
}

/* One thread an element of the problem's filter, in its order in memory. */
template <typename T>
__device__ void pack_filter(const T *__restrict__ source, T *__restrict__ target, tc_filter_map map,
                                   uint32_t threads)
{
    uint32_t index = thread_index();
    if (index >= threads)
        return;
    uint32_t rest = index, input = 0, u[3];
    if (map.channels_last)
        input = take(rest, map.problem_channels);
    for (int axis = 2; axis >= 0; axis--)
        u[axis] = take(rest, map.problem_taps[axis]);
    if (!map.channels_last)
        input = take(rest, map.problem_channels);
    uint32_t group = rest / (map.problem_outputs / map.groups);
    uint32_t output = rest - group * (map.problem_outputs / map.groups);
    uint32_t folded = map.swapped ? output : input, o = map.swapped ? input : output;
    uint32_t position = folded / map.channels, channel = folded - position * map.channels;
    uint32_t r[3];
    for (int axis = 2; axis >= 0; axis--)
        r[axis] = take(position, map.fold[axis]);
    bool inside = position == 0;
    int64_t offset = (int64_t)(group * map.outputs + o) * map.stride_o + (int64_t)channel * map.stride_i;
    for (int axis = 0; axis < 3; axis++) {
        uint32_t tap = map.swapped ? map.problem_taps[axis] - 1 - u[axis] : u[axis];
        int32_t t = (int32_t)(r[axis] + map.fold[axis] * tap) + map.offset[axis];
        inside = inside && t >= 0 && t < (int32_t)map.taps[axis];
        offset += t * map.stride[axis];
    }
    target[index] = inside ? source[offset] : T(0);
}

/* One thread an element of the caller's filter; `source` is the problem's. */
template <typename T>
__device__ void unpack_filter(const T *__restrict__ source, T *__restrict__ target, tc_filter_map map,
                                     uint32_t threads)
{
    uint32_t index = thread_index();
    if (index >= threads)
        return;
    uint32_t rest = index;
    uint32_t o = take(rest, map.groups * map.outputs), channel = take(rest, map.channels), t[3];
    for (int axis = 2; axis >= 0; axis--)
        t[axis] = take(rest, map.taps[axis]);
    uint32_t group = o / map.outputs, output = o - group * map.outputs;
    uint32_t position = 0, u[3];
    int64_t offset = (int64_t)o * map.stride_o + (int64_t)channel * map.stride_i;
    for (int axis = 0; axis < 3; axis++) {
        uint32_t moved = (uint32_t)((int32_t)t[axis] - map.offset[axis]);
        uint32_t tap = moved / map.fold[axis];
        position = position * map.fold[axis] + moved - tap * map.fold[axis];
        u[axis] = map.swapped ? map.problem_taps[axis] - 1 - tap : tap;
        offset += (int64_t)t[axis] * map.stride[axis];
    }
    uint32_t folded = position * map.channels + channel;
    uint32_t per_group = map.problem_outputs / map.groups;
    int64_t row = map.swapped ? group * per_group + folded : group * per_group + output;
    uint32_t input = map.swapped ? output : folded;
    if (!map.channels_last)
        row = row * map.problem_channels + input;
    for (int axis = 0; axis < 3; axis++)
        row = row * map.problem_taps[axis] + u[axis];
    if (map.channels_last)
        row = row * map.problem_channels + input;
    target[offset] = source[row];
}

/*
 * A tile of WIDTH * TC_TILE elements square by a block, WIDTH elements an access. A row of the tile is
 * longer by one access, so that a column's elements lie in different banks.
 */
template <typename T, int WIDTH>
__device__ void transpose(const T *__restrict__ source, T *__restrict__ target, tc_transpose_map map,
                                 uint32_t tiles_down, uint32_t tiles_across)
{
    const uint32_t edge = TC_TILE * WIDTH;
    struct __align__(sizeof(T) * WIDTH) access { T values[WIDTH]; };
    __shared__ T tile[TC_TILE * WIDTH][TC_TILE * WIDTH + WIDTH];
    uint32_t block = blockIdx.x;
    uint32_t across = take(block, tiles_across), down = take(block, tiles_down);
    int64_t matrix = (int64_t)block * map.rows * map.columns;
    uint32_t lane = threadIdx.x % TC_TILE, line = threadIdx.x / TC_TILE;

    uint32_t column = across * edge + lane * WIDTH;
    for (uint32_t i = line; i < edge; i += TC_BLOCK / TC_TILE) {
        uint32_t row = down * edge + i;
        if (row < map.rows && column < map.columns)
            *reinterpret_cast<access *>(&tile[i][lane * WIDTH]) =
                *reinterpret_cast<const access *>(source + matrix + (int64_t)row * map.columns + column);
    }
    __syncthreads();
    uint32_t row = down * edge + lane * WIDTH;
    for (uint32_t i = line; i < edge; i += TC_BLOCK / TC_TILE) {
        column = across * edge + i;
        if (column < map.columns && row < map.rows) {
            access moved;
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                moved.values[k] = tile[lane * WIDTH + k][i];
            *reinterpret_cast<access *>(target + matrix + (int64_t)column * map.rows + row) = moved;
        }
    }
}

#define KERNELS(BYTES, T)                                                                                           \
    extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_pack_activation_##BYTES(                              \
        const T *source, T *target, tc_activation_map map, uint32_t chunks, uint32_t threads)                       \
    {                                                                                                               \
        pack_activation<T>(source, target, map, chunks, threads);                                                   \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_unpack_activation_##BYTES(                            \
        const T *source, T *target, tc_activation_map map, uint32_t chunks, uint32_t threads)                       \
    {                                                                                                               \
        unpack_activation<T>(source, target, map, chunks, threads);                                                 \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_pack_filter_##BYTES(const T *source, T *target,       \
                                                                                  tc_filter_map map, uint32_t threads) \
    {                                                                                                               \
        pack_filter<T>(source, target, map, threads);                                                               \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_unpack_filter_##BYTES(                                \
        const T *source, T *target, tc_filter_map map, uint32_t threads)                                            \
    {                                                                                                               \
        unpack_filter<T>(source, target, map, threads);                                                             \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_transpose_##BYTES(                                    \
        const T *source, T *target, tc_transpose_map map, uint32_t tiles_down, uint32_t tiles_across)               \
    {                                                                                                               \
        transpose<T, 1>(source, target, map, tiles_down, tiles_across);                                             \
    }

KERNELS(2, uint16_t)
KERNELS(4, uint32_t)
KERNELS(8, uint64_t)

/* For 2-byte elements where both sides are even. */
extern "C" __global__ void __launch_bounds__(TC_BLOCK) tc_transpose_pairs_2(
    const uint16_t *source, uint16_t *target, tc_transpose_map map, uint32_t tiles_down, uint32_t tiles_across)
{
    transpose<uint16_t, 2>(source, target, map, tiles_down, tiles_across);
}

#ifdef __CUDACC__ /* the rest is C++, which tests compile for the CPU */
/*
 * Keeps the stream busy for a while, so that what is queued behind it can be timed without the gaps of
 * launching. The clock of cycles ends it also where the clock of nanoseconds stands still.
 */
extern "C" __global__ void tc_delay(uint64_t nanoseconds)
{
    uint64_t start, now;
    long long first = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(1000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds && clock64() - first < (long long)nanoseconds * 4);
}
#endif
