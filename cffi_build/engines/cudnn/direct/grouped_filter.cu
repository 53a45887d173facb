/*
 * The filter's gradient of grouped and depthwise convolutions, on tensor cores, sums in float32. Compiled to PTX
 * by generate_ptx.py, which leaves grouped_filter_ptx.h; run it after each change here.
 *
 * A product D = A B sums over 16 positions, 8 of each strip of a pair: A are pixels of x, B pixels of dy, both as
 * they lie in shared memory, turned. B's 8 columns are output channels. A's 16 rows are
 *   narrow (groups of at most 8 channels): 8 input channels, those of the same chunk, at two taps: neighbours in
 *     a row, and of the last column of taps neighbours in a column. D's entries of other groups are not used.
 *   wide (groups of 16 or 32): 16 input channels at one tap.
 * Entries of D depend on their own row of A and column of B only: what is not used may be anything.
 *
 * A row of x meets all the rows of dy that it is summed with: their fragments stay in registers. A step brings
 * ROWS more rows of dy and STRIDE * ROWS of x, DEPTH steps ahead. In shared memory, the pixels of a row are apart
 * by chunks, so that any 8 neighbours are in different banks; with stride 2 the odd ones follow the even ones.
 */
#include "grouped_filter_map.h"
#include "warp.h"

namespace grouped_filter {

typedef tc_grouped_filter_map map_type;

/* OUTPUTS: 0 narrow; wide: chunks of output channels that a warp sums, 1 for groups of 16, 2 for 32. */
template <int KERNEL, int STRIDE, int OUTPUTS> struct tiling {
    static constexpr bool WIDE = OUTPUTS > 0;
    static constexpr int STRIP = TC_GROUPED_FILTER_STRIP, CHUNKS = TC_GROUPED_FILTER_CHUNKS;
    static constexpr int ROWS = KERNEL == 3 && STRIDE == 1 ? 2 : 1;
    static constexpr int STAGES = KERNEL == 3 ? 5 : STRIDE == 1 ? 8 : 6;
    /* Blocks of a multiprocessor, which bounds the registers. */
    static constexpr int BLOCKS = KERNEL == 7 || OUTPUTS == 2 ? 3 : KERNEL == 5 ? 4 : WIDE ? 5 : 6;
    /* Pixels of x in a strip; a chunk's in a row of x and of dy, and all of a row, in units of 16 bytes. */
    static constexpr int SPAN = STRIP * STRIDE + KERNEL - 1;
    static constexpr int X_CHUNK = 2 * SPAN + 2, Y_CHUNK = 2 * STRIP + 2;
    static constexpr int X_ROW = CHUNKS * X_CHUNK, Y_ROW = CHUNKS * Y_CHUNK;
    static constexpr int X_ROWS = STRIDE * ROWS, STEP = X_ROWS * X_ROW + ROWS * Y_ROW;
    /* Narrow products with stride 1 also take the row of x before, of the step before. */
    static constexpr int DEPTH = STAGES - (STRIDE == 1 && !WIDE ? 2 : 1);
    static constexpr int COPIES_ROW = TC_GROUPED_FILTER_THREADS / CHUNKS; /* pixels copied at a time */
    static constexpr int X_PIXELS = X_ROWS * 2 * SPAN, Y_PIXELS = ROWS * 2 * STRIP;
    static constexpr int X_COPIES = (X_PIXELS + COPIES_ROW - 1) / COPIES_ROW;
    static constexpr int Y_COPIES = (Y_PIXELS + COPIES_ROW - 1) / COPIES_ROW;
    /* Rows of dy that a row of x meets; A's positions in a row; chunks of B. */
    static constexpr int MEETS = (KERNEL + STRIDE - 1) / STRIDE;
    static constexpr int TILES = WIDE ? KERNEL : KERNEL / 2;
    static constexpr int CHUNKS_B = WIDE ? OUTPUTS : 1;
    static constexpr int LAST_TILES = WIDE ? 0 : (KERNEL + 1) / 2;
    static constexpr int PRODUCTS = TILES * KERNEL * CHUNKS_B + LAST_TILES;
};

/* Goes through the pairs of a slice: rows [begin, end) of dy of each. */
struct cursor {
    uint32_t next, last;
    uint32_t pair;
    int begin, end, row, steps; /* row: of dy, the next step's first; steps that are left */

    template <typename T> __device__ __forceinline__ bool advance(const map_type &map)
    {
        if (next == last)
            return false;
        pair = next / map.out[0];
        begin = (int)(next - pair * map.out[0]);
        uint32_t left = last - next, height = map.out[0] - (uint32_t)begin;
        end = begin + (int)(left < height ? left : height);
        next += (uint32_t)(end - begin);
        row = begin;
        return true;
    }
};

/* Steps that a piece takes: until the last row of dy has met the last row of x, or x has ended. */
template <typename T, int STRIDE> __device__ __forceinline__ int steps_of(const cursor &c, const map_type &map)
{
    int rows = c.end - c.begin + T::MEETS - 1;
    /* Rows of dy up to the one that meets the row after the last of x. */
    int reach = ((int)map.in[0] + map.pad[0]) / STRIDE + 1 - c.begin;
    rows = reach < rows ? reach : rows;
    return rows < 1 ? 1 : (rows + T::ROWS - 1) / T::ROWS;
}

__device__ __forceinline__ void strip_of(uint32_t strip, const map_type &map, uint32_t *image, int *column)
{
    *image = strip / map.across;
    *column = *image < map.batch ? (int)(strip - *image * map.across) * TC_GROUPED_FILTER_STRIP : -1;
}

/* What a thread copies in each step. */
template <typename T, typename E, int STRIDE> struct loader {
    const uint4 *x, *y;                                /* at the thread's channels */
    uint32_t x_from[T::X_COPIES], y_from[T::Y_COPIES]; /* of the next step, in units of 16 bytes */
    uint32_t inside;                                   /* bits of the copies whose column is: x's, then y's */
    int x_to[T::X_COPIES], y_to[T::Y_COPIES];          /* units of 16 bytes; negative: no copy */
    bool channels_inside;
    cursor at;

    __device__ __forceinline__ void start()
    {
        int chunk = (int)threadIdx.x % T::CHUNKS, first = (int)threadIdx.x / T::CHUNKS;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++) {
            int pixel = first + i * T::COPIES_ROW, row = pixel / (2 * T::SPAN), place = pixel % (2 * T::SPAN);
            int strip = place / T::SPAN, column = place % T::SPAN;
            int in_strip = STRIDE == 1 ? column : column % 2 * (T::SPAN / 2) + column / 2;
            x_to[i] = pixel < T::X_PIXELS ? row * T::X_ROW + chunk * T::X_CHUNK + strip * T::SPAN + in_strip : -1;
        }
#pragma unroll
        for (int i = 0; i < T::Y_COPIES; i++) {
            int pixel = first + i * T::COPIES_ROW, row = pixel / (2 * T::STRIP), place = pixel % (2 * T::STRIP);
            y_to[i] = pixel < T::Y_PIXELS ? T::X_ROWS * T::X_ROW + row * T::Y_ROW + chunk * T::Y_CHUNK + place : -1;
        }
    }

    __device__ __forceinline__ bool next_piece(const map_type &map)
    {
        if (!at.advance<T>(map))
            return false;
        at.steps = steps_of<T, STRIDE>(at, map);
        uint32_t image[2];
        int column[2];
        strip_of(2 * at.pair, map, &image[0], &column[0]);
        strip_of(2 * at.pair + 1, map, &image[1], &column[1]);
        int first = (int)threadIdx.x / T::CHUNKS;
        inside = 0;
#pragma unroll
        for (int i = 0; i < T::X_COPIES; i++) {
            int place = (first + i * T::COPIES_ROW) % (2 * T::SPAN), strip = place / T::SPAN;
            int from = (strip ? column[1] : column[0]) * STRIDE - map.pad[1] + place % T::SPAN;
            if (channels_inside && (strip ? column[1] : column[0]) >= 0 && (uint32_t)from < map.in[1])
                inside |= 1u << i;
            uint32_t row = (strip ? image[1] : image[0]) * map.in[0] + (uint32_t)(at.row * STRIDE - map.pad[0] +
                           (first + i * T::COPIES_ROW) / (2 * T::SPAN));
            x_from[i] = ((uint32_t)row * map.in[1] + (uint32_t)from) * (map.channels / 8);
        }
#pragma unroll
        for (int i = 0; i < T::Y_COPIES; i++) {
            int place = (first + i * T::COPIES_ROW) % (2 * T::STRIP), strip = place / T::STRIP;
            int from = (strip ? column[1] : column[0]) + place % T::STRIP;
            if (channels_inside && (strip ? column[1] : column[0]) >= 0 && (uint32_t)from < map.out[1])
                inside |= 1u << (T::X_COPIES + i);
            uint32_t row = (strip ? image[1] : image[0]) * map.out[0] + (uint32_t)(at.row +
                           (first + i * T::COPIES_ROW) / (2 * T::STRIP));
            y_from[i] = ((uint32_t)row * map.out[1] + (uint32_t)from) * (map.channels / 8);
        }
        return true;
    }

    /* Starts the copies of the next step, if there is one. */
    __device__ __forceinline__ void step(uint4 *stage, const map_type &map)
    {
        if (at.steps > 0 || next_piece(map)) {
            int first = (int)threadIdx.x / T::CHUNKS;
            int top = at.row * STRIDE - map.pad[0];
#pragma unroll
            for (int i = 0; i < T::X_COPIES; i++) {
                int row = top + (first + i * T::COPIES_ROW) / (2 * T::SPAN);
                bool real = inside >> i & 1 && (uint32_t)row < map.in[0];
                if (x_to[i] >= 0)
                    copy_later(stage + x_to[i], x + (real ? x_from[i] : 0), real);
                x_from[i] += T::X_ROWS * map.in[1] * (map.channels / 8);
            }
#pragma unroll
            for (int i = 0; i < T::Y_COPIES; i++) {
                int row = at.row + (first + i * T::COPIES_ROW) / (2 * T::STRIP);
                bool real = inside >> (T::X_COPIES + i) & 1 && row < at.end;
                if (y_to[i] >= 0)
                    copy_later(stage + y_to[i], y + (real ? y_from[i] : 0), real);
                y_from[i] += T::ROWS * map.out[1] * (map.channels / 8);
            }
            at.row += T::ROWS;
            at.steps--;
        }
        end_copies();
    }
};

/* What a lane sums. */
template <typename T, typename E, int KERNEL, int STRIDE> struct summer {
    float d[T::PRODUCTS][4];
    uint32_t b[T::MEETS][2 * T::CHUNKS_B]; /* newest row of dy first */
    int x_place, last_place, y_place;      /* the lane's row of A and of B in shared memory */
    uint32_t inside[2];                    /* of each strip: masks of the positions that dy has */
    cursor at;

    __device__ __forceinline__ void start(int x_chunk, int y_chunk)
    {
        int lane = (int)threadIdx.x % 32, matrix = lane / 8, pixel = lane % 8;
        int strip = matrix / 2 * T::SPAN, half = matrix % 2;
        int neighbour = T::WIDE ? T::X_CHUNK : STRIDE == 1 ? 1 : T::SPAN / 2;
        x_place = x_chunk * T::X_CHUNK + strip + pixel + half * neighbour;
        last_place = x_chunk * T::X_CHUNK + strip + pixel + (STRIDE == 1 ? 0 : half * T::X_ROW);
        y_place = (y_chunk + (T::CHUNKS_B == 2 ? matrix / 2 : 0)) * T::Y_CHUNK + matrix % 2 * T::STRIP + pixel;
#pragma unroll
        for (int i = 0; i < T::PRODUCTS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                d[i][j] = 0.0f;
#pragma unroll
        for (int j = 0; j < T::MEETS; j++)
#pragma unroll
            for (int i = 0; i < 2 * T::CHUNKS_B; i++)
                b[j][i] = 0;
    }

    __device__ __forceinline__ bool next_piece(const map_type &map)
    {
        if (!at.advance<T>(map))
            return false;
        at.steps = steps_of<T, STRIDE>(at, map);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t image;
            int column;
            strip_of(2 * at.pair + i, map, &image, &column);
            int left = column < 0 ? 0 : (int)map.out[1] - column - (int)threadIdx.x % 4 * 2;
            inside[i] = left >= 2 ? 0xFFFFFFFFu : left == 1 ? 0xFFFFu : 0u;
        }
        return true;
    }

    /* A fragment of A, zero where dy has no position: 0 times infinity would be NaN. */
    __device__ __forceinline__ void load(uint32_t a[4], const uint4 *row) const
    {
        load_matrices_4_turned(a, row);
        a[0] &= inside[0];
        a[1] &= inside[0];
        a[2] &= inside[1];
        a[3] &= inside[1];
    }

    /* Whether the row of dy that is `age` older than the newest is of this piece. */
    __device__ __forceinline__ bool meets(int row, int age) const
    {
        return row - age >= at.begin && row - age < at.end;
    }

    /* Row `row` of dy and what it brings of x are at `current`, the row of x before them at `before`. ALL: all rows
     * of dy in registers are of this piece. */
    template <bool ALL> __device__ __forceinline__ void multiply(int row, const uint4 *before, const uint4 *current)
    {
#pragma unroll
        for (int part = 0; part < STRIDE; part++)
#pragma unroll
            for (int t = 0; t < T::TILES; t++) {
                int tap = T::WIDE ? t : 2 * t;
                int offset = STRIDE == 1 ? tap : tap % 2 * (T::SPAN / 2) + tap / 2;
                uint32_t a[4];
                load(a, current + part * T::X_ROW + x_place + offset);
#pragma unroll
                for (int age = 0; age < T::MEETS; age++) {
                    int down = STRIDE * age + part;
                    if (down < KERNEL && (ALL || meets(row, age)))
#pragma unroll
                        for (int n = 0; n < T::CHUNKS_B; n++)
                            multiply_16x8x16<E>(d[(t * KERNEL + down) * T::CHUNKS_B + n], a, &b[age][2 * n]);
                }
            }
        if (T::WIDE)
            return;
        uint32_t a[4];
        bool lower = threadIdx.x % 16 < 8;
        load(a, (STRIDE == 1 && lower ? before : current) + last_place + (KERNEL - 1) / STRIDE);
#pragma unroll
        for (int i = 0; i < T::LAST_TILES; i++) {
            int age = STRIDE == 1 ? 2 * i : i;
            if (ALL || meets(row, age))
                multiply_16x8x16<E>(d[T::TILES * KERNEL + i], a, b[age]);
        }
    }

    /* One step, of the rows at `stage`; `before` is the stage of the step before. */
    __device__ __forceinline__ void step(const uint4 *before, const uint4 *stage, const map_type &map)
    {
#pragma unroll
        for (int i = 0; i < T::ROWS; i++) {
            int row = at.row + i, top = row * STRIDE - map.pad[0];
#pragma unroll
            for (int j = T::MEETS - 1; j > 0; j--)
#pragma unroll
                for (int n = 0; n < 2 * T::CHUNKS_B; n++)
                    b[j][n] = b[j - 1][n];
            const uint4 *y = stage + T::X_ROWS * T::X_ROW + i * T::Y_ROW + y_place;
            if (T::CHUNKS_B == 2)
                load_matrices_4_turned(b[0], y);
            else
                load_matrices_2_turned(b[0], y);
            if (top < 1 - STRIDE || top > (int)map.in[0])
                continue; /* no row of x */
            const uint4 *current = stage + i * STRIDE * T::X_ROW;
            const uint4 *previous = i ? current - T::X_ROW : before + (T::X_ROWS - 1) * T::X_ROW;
            if (meets(row, 0) && meets(row, T::MEETS - 1))
                multiply<true>(row, previous, current);
            else
                multiply<false>(row, previous, current);
        }
        at.row += T::ROWS;
        at.steps--;
    }
};

/* Writes a lane's sums: of products' entries, those whose channels are of one group. */
template <typename T, typename S, int KERNEL, int STRIDE>
__device__ __forceinline__ void store(const S &sums, float *partial, const map_type &map, uint32_t inputs,
                                      uint32_t outputs)
{
    uint32_t group = threadIdx.x % 32 / 4, place = threadIdx.x % 4, stride_tap = map.channels * map.group;
#pragma unroll
    for (int n = 0; n < T::CHUNKS_B; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int half = j / 2;
            uint32_t input = inputs + group + (T::WIDE ? 8 * half : 0), output = outputs + 8 * n + 2 * place + j % 2;
            if (input / map.group != output / map.group)
                continue;
            float *to = partial + output * map.group + input % map.group;
#pragma unroll
            for (int i = 0; i < T::TILES * KERNEL; i++) {
                int down = i % KERNEL, right = T::WIDE ? i / KERNEL : i / KERNEL * 2 + half;
                to[(down * KERNEL + right) * stride_tap] = sums.d[i * T::CHUNKS_B + n][j];
            }
#pragma unroll
            for (int i = 0; i < T::LAST_TILES; i++) {
                int down = 2 * i + half - (STRIDE == 1 ? 1 : 0);
                if (down >= 0 && down < KERNEL)
                    to[(down * KERNEL + KERNEL - 1) * stride_tap] = sums.d[T::TILES * KERNEL + i][j];
            }
        }
}

template <typename E, int KERNEL, int STRIDE, int OUTPUTS>
__device__ __forceinline__ void sum_slice(const typename E::type *__restrict__ x,
                                          const typename E::type *__restrict__ y, float *__restrict__ partial,
                                          const map_type &map)
{
    typedef tiling<KERNEL, STRIDE, OUTPUTS> T;
    typedef summer<T, E, KERNEL, STRIDE> S;
    __shared__ uint4 stages[T::STAGES * T::STEP];
    uint32_t slice = blockIdx.x / map.sets, first = blockIdx.x % map.sets * T::CHUNKS * 8;
    uint32_t begin = (uint32_t)((uint64_t)map.rows * slice / map.slices);
    uint32_t end = (uint32_t)((uint64_t)map.rows * (slice + 1) / map.slices);

    loader<T, E, STRIDE> copies;
    uint32_t channel = first + threadIdx.x % T::CHUNKS * 8;
    copies.channels_inside = channel < map.channels;
    copies.x = reinterpret_cast<const uint4 *>(x + (copies.channels_inside ? channel : 0));
    copies.y = reinterpret_cast<const uint4 *>(y + (copies.channels_inside ? channel : 0));
    copies.at.next = begin;
    copies.at.last = end;
    copies.at.steps = 0;
    copies.start();

    /* Wide: two warps for the halves of 32 input channels, and two for those of the output channels; of groups of
     * 16, the halves of the group of a warp's input channels. */
    int warp = (int)threadIdx.x / 32, x_chunk = T::WIDE ? warp / 2 * 2 : warp;
    int y_chunk = OUTPUTS == 2 ? warp % 2 * 2 : warp;
    bool active = first + x_chunk * 8 < map.channels;
    S sums;
    sums.start(x_chunk, y_chunk);
    sums.at.next = begin;
    sums.at.last = end;
    sums.at.steps = 0;

    int to = 0, from = 0, before = T::STAGES - 1;
#pragma unroll 1
    for (int i = 0; i < T::DEPTH; i++) {
        copies.step(stages + to * T::STEP, map);
        to = to + 1 == T::STAGES ? 0 : to + 1;
    }
#pragma unroll 1
    while (sums.at.steps > 0 || sums.next_piece(map)) {
        wait_for_copies<T::DEPTH - 1>();
        __syncthreads();
        copies.step(stages + to * T::STEP, map);
        to = to + 1 == T::STAGES ? 0 : to + 1;
        if (active) {
            sums.step(stages + before * T::STEP, stages + from * T::STEP, map);
        } else {
            sums.at.steps--;
        }
        before = from;
        from = from + 1 == T::STAGES ? 0 : from + 1;
    }
    wait_for_copies<0>();
    if (active)
        store<T, S, KERNEL, STRIDE>(sums, partial + (int64_t)slice * map.elements, map, first + x_chunk * 8,
                                    first + y_chunk * 8);
}

/* Adds the slices, in an order that does not depend on what runs when. */
template <typename E>
__device__ __forceinline__ void add_slices(const float *__restrict__ partial, typename E::type *__restrict__ w,
                                           const map_type &map)
{
    const uint32_t PARTS = TC_GROUPED_FILTER_PARTS, ELEMENTS = TC_GROUPED_FILTER_ELEMENTS;
    __shared__ float sums[TC_GROUPED_FILTER_PARTS][TC_GROUPED_FILTER_ELEMENTS];
    uint32_t place = threadIdx.x % ELEMENTS, part = threadIdx.x / ELEMENTS;
    uint32_t element = blockIdx.x * ELEMENTS + place;
    float sum = 0.0f;
    if (element < map.elements) {
#pragma unroll 8
        for (uint32_t slice = part; slice < map.slices; slice += PARTS)
            sum += partial[(int64_t)slice * map.elements + element];
    }
    sums[part][place] = sum;
    __syncthreads();
    if (part || element >= map.elements)
        return;
#pragma unroll
    for (uint32_t i = 1; i < PARTS; i++)
        sum += sums[i][place];
    uint32_t input = element % map.group, rest = element / map.group;
    uint32_t output = rest % map.channels, tap = rest / map.channels;
    w[tap / map.kernel * map.stride_tap[0] + tap % map.kernel * map.stride_tap[1] + output * map.stride_output +
      input * map.stride_input] = (typename E::type)E::narrow({sum, 0.0f});
}

} // namespace grouped_filter

#define KERNEL(NAME, E, K, S, OUTPUTS)                                                                                \
    extern "C" __global__ void __launch_bounds__(TC_GROUPED_FILTER_THREADS,                                          \
                                                 grouped_filter::tiling<K, S, OUTPUTS>::BLOCKS)                       \
        tc_grouped_filter_##NAME(const E::type *x, const E::type *y, float *partial, tc_grouped_filter_map map)       \
    {                                                                                                                \
        grouped_filter::sum_slice<E, K, S, OUTPUTS>(x, y, partial, map);                                             \
    }
#define ADD(NAME, E)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(TC_GROUPED_FILTER_PARTS *TC_GROUPED_FILTER_ELEMENTS)                \
        tc_grouped_filter_add_##NAME(const float *partial, E::type *w, tc_grouped_filter_map map)                    \
    {                                                                                                                \
        grouped_filter::add_slices<E>(partial, w, map);                                                              \
    }

#ifdef TC_GROUPED_FILTER_NAME /* one kernel, and what adds its slices */
#define EXPANDED(MACRO, ...) MACRO(__VA_ARGS__)
EXPANDED(KERNEL, TC_GROUPED_FILTER_NAME, TC_GROUPED_FILTER_ELEMENT, TC_GROUPED_FILTER_SIZE, TC_GROUPED_FILTER_STRIDE,
         TC_GROUPED_FILTER_OUTPUTS)
EXPANDED(ADD, TC_GROUPED_FILTER_DTYPE, TC_GROUPED_FILTER_ELEMENT)
#else
#define KERNELS_OF_SIZE(NAME, E, K) KERNEL(NAME##_##K##_1, E, K, 1, 0) KERNEL(NAME##_##K##_2, E, K, 2, 0)
#define KERNELS_OF(NAME, E)                                                                                          \
    ADD(NAME, E)                                                                                                     \
    KERNELS_OF_SIZE(NAME, E, 3) KERNELS_OF_SIZE(NAME, E, 5) KERNELS_OF_SIZE(NAME, E, 7)                              \
    KERNEL(NAME##_3_1_16, E, 3, 1, 1) KERNEL(NAME##_3_2_16, E, 3, 2, 1)                                              \
    KERNEL(NAME##_3_1_32, E, 3, 1, 2) KERNEL(NAME##_3_2_32, E, 3, 2, 2)
KERNELS_OF(f16, half_element)
KERNELS_OF(bf16, bfloat16_element)
#undef KERNELS_OF_SIZE
#undef KERNELS_OF
#endif
#undef KERNEL
#undef ADD
