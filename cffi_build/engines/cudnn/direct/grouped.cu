/*
 * Grouped and depthwise convolution, and the gradient of its input, on tensor cores. Compiled to PTX by
 * generate_ptx.py, which leaves grouped_ptx.h; run it after each change here.
 *
 * A warp takes two strips of 8 columns, which may lie in different images, and BLOCKS blocks of 8 channels
 * written; it marches down the rows, which arrive in a ring in shared memory some steps ahead. The rows of the
 * matrix product are the 16 positions of the strips, its columns 8 channels written, and what it sums over are
 * units of 8 channels read at one place of the window, two units a product. Groups of at most 8 channels make
 * the filter's 8 x 8 block of a unit block-diagonal. Each fragment of the input serves all rows of the window
 * at once: the sums of the rows of y that are not complete yet are kept in registers.
 */
#include "elements.h"
#include "grouped_map.h"
#include "warp.h"

/* Shapes of a kernel. WIDE: channels read for each channel written, 8 also for the smaller groups. */
template <int WINDOW_, int STEP_, int CLASSES_, int WIDE_> struct grouped_shape {
    static constexpr int WINDOW = WINDOW_, STEP = STEP_, CLASSES = CLASSES_, WIDE = WIDE_;
    static_assert((WINDOW - 1) % STEP == 0, "the first row of a step completes a row of y");
    /* Classes of rows that a warp takes at once; both, where registers last. A warp takes all of columns. */
    static constexpr int ROW_CLASSES = CLASSES == 2 && WINDOW == 2 && WIDE < 32 ? 2 : 1;
    static constexpr int PARTS = ROW_CLASSES * CLASSES;
    /* A team of warps shares its input, of which pixels are whole sectors of 32 bytes. */
    static constexpr int BLOCKS = WINDOW == 7 || WINDOW == 4 ? 1 : 2;
    static constexpr int CHANNELS = WIDE == 32 ? 32 : 16, TEAM = CHANNELS / (8 * BLOCKS), THREADS = 32 * TEAM;
    static constexpr int TEAMS = TEAM == 1 ? 4 : 1; /* of a thread block; those of several warps meet at its barrier */
    /* Warps of a multiprocessor, at least: so many that the registers just last. */
    static constexpr bool LARGE = WIDE == 32 || WINDOW == 5 || (WINDOW == 7 && STEP == 2) ||
                                  (CLASSES == 2 && (WIDE == 16 || WINDOW == 3));
    static constexpr int WARPS = LARGE ? 12 : WINDOW == 3 && WIDE == 8 ? 20 : 16;
    static constexpr int RESIDENT = 32 * WARPS / (TEAMS * THREADS);
    static constexpr int SPAN = (WINDOW - 1) / STEP + 1, SLOTS = SPAN - 1; /* rows of y that one of x reaches */
    static constexpr int UNITS = WINDOW * WIDE / 8;        /* to sum over for a row of the window */
    static constexpr int SOURCES = WIDE == 8 ? BLOCKS : 1; /* blocks of channels that read channels of their own */
    /* In shared memory, in cells of 8 channels of a pixel; the planes of 8 channels begin in different banks. */
    static constexpr int PIXELS = 7 * STEP + WINDOW, HALF = (PIXELS + 1) / 2, PLANES = CHANNELS / 8;
    static constexpr int PLANE = (2 * PIXELS + 3) / 8 * 8 + 4;
    static constexpr int ROW = PLANES * PLANE, STAGE = STEP * ROW, STAGES = STEP == 1 ? 4 : 3;
    static constexpr int PIECES = 2 * PIXELS * PLANES, TURNS = (PIECES + THREADS - 1) / THREADS;
    static_assert(TEAMS * STAGES * STAGE * 16 <= 48 * 1024, "static shared memory");

    /* Where pixel p of a strip lies: with steps of 2, even ones first, so that those of a fragment are neighbours. */
    static __device__ __forceinline__ constexpr int cell(int p)
    {
        return STEP == 1 ? p : p % 2 * HALF + p / 2;
    }
};

/* What a team computes at a time: `rows` rows of positions of two strips, from `row` on, of some channels. */
struct grouped_tile {
    uint32_t image[2];
    int column[2], row, rows, row_class;
    uint32_t first; /* channel */
};

/* What all tiles of a team have in common, as the part of the filter that it has in registers. */
template <typename S> __device__ __forceinline__ void grouped_take_part(const tc_grouped_map &map, uint32_t part,
                                                                        grouped_tile *tile)
{
    tile->row_class = 0;
    if (S::CLASSES > S::ROW_CLASSES) { /* those of a class side by side, for what they read of x is */
        uint32_t across_channels = map.parts / S::CLASSES, row_class = part / across_channels;
        tile->row_class = (int)row_class;
        part -= row_class * across_channels;
    }
    tile->first = part * S::CHANNELS;
}

__device__ __forceinline__ void grouped_take_tile(const tc_grouped_map &map, uint32_t index, grouped_tile *tile)
{
    uint32_t couple = index / map.down;
    tile->row = (int)((index - couple * map.down) * map.rows);
    tile->rows = (int)min(map.rows, map.positions[0] - (uint32_t)tile->row);
    for (uint32_t s = 0; s < 2; s++) {
        tile->image[s] = (2 * couple + s) / map.across;
        tile->column[s] = (int)(2 * couple + s - tile->image[s] * map.across) * 8;
    }
}

/* The element of the filter between two channels of a group at a place of the window; false: it has none there. */
__device__ __forceinline__ bool grouped_tap(const tc_grouped_map &map, int row_class, int column_class, int ky, int kx,
                                            int *offset)
{
    /* Indices that are not constants would put the map into local memory. */
    int row = (row_class ? map.tap_first[0][1] : map.tap_first[0][0]) + map.tap_step * ky;
    int column = (column_class ? map.tap_first[1][1] : map.tap_first[1][0]) + map.tap_step * kx;
    *offset = row * map.stride_tap[0] + column * map.stride_tap[1];
    return (uint32_t)row < map.taps && (uint32_t)column < map.taps;
}

__device__ __forceinline__ int grouped_between(const tc_grouped_map &map, uint32_t read, uint32_t written)
{
    return (int)(read & map.read_mask) * map.stride_read + (int)(written & map.written_mask) * map.stride_written;
}

/*
 * The filter as fragments. Where the channels read are the same for both blocks, columns of the products are
 * dealt out so that each lane gets four neighbouring channels from two blocks.
 */
template <typename E, typename S>
__device__ __forceinline__ void grouped_load_filter(uint32_t (&filter)[S::PARTS][S::WINDOW][S::BLOCKS][S::UNITS],
                                                    const typename E::type *__restrict__ w, const tc_grouped_map &map,
                                                    const grouped_tile &tile, uint32_t member, uint32_t lane)
{
    uint32_t group = lane / 4, place = lane % 4;
    const int PLANES = S::WIDE / 8;
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++)
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            uint32_t block = member * S::BLOCKS + b;
            uint32_t written = tile.first + (S::WIDE == 8 ? 8 * block + group
                                                          : 16 * member + 4 * (group / 2) + 2 * b + group % 2);
            uint32_t read = tile.first + 8 * (S::WIDE == 8 ? block : (uint32_t)plane) + 2 * place;
            bool there = written < map.channels;
            bool low = there && read >> map.group_bits == written >> map.group_bits;
            bool high = there && (read + 1) >> map.group_bits == written >> map.group_bits;
            const typename E::type *at_low = w + (low ? grouped_between(map, read, written) : 0);
            const typename E::type *at_high = w + (high ? grouped_between(map, read + 1, written) : 0);
#pragma unroll
            for (int part = 0; part < S::PARTS; part++)
#pragma unroll
                for (int ky = 0; ky < S::WINDOW; ky++)
#pragma unroll
                    for (int kx = 0; kx < S::WINDOW; kx++) {
                        int offset;
                        bool tap = grouped_tap(map, tile.row_class + part / S::CLASSES, part % S::CLASSES, ky, kx,
                                               &offset);
                        uint32_t word = 0;
                        if (tap && low)
                            word = at_low[offset];
                        if (tap && high)
                            word |= (uint32_t)at_high[offset] << 16;
                        filter[part][ky][b][kx * PLANES + plane] = word;
                    }
        }
}

/* Brings the rows of x of one step after the other. */
template <typename E, typename S> struct grouped_reader {
    typedef typename E::type T;
    const T *x;
    int64_t offset[S::TURNS], pitch;
    uint32_t cell[S::TURNS], thread;
    bool inside[S::TURNS];
    int row, end, height; /* the next row; the one after the last that is needed */

    __device__ __forceinline__ grouped_reader(const T *x_, const tc_grouped_map &map, const grouped_tile &tile,
                                              uint32_t thread_)
        : x(x_), pitch((int64_t)map.in[1] * map.channels), thread(thread_)
    {
        row = tile.row * S::STEP + map.shift[0];
        end = row + (tile.rows - 1) * S::STEP + S::WINDOW;
        height = (int)map.in[0];
#pragma unroll
        for (int i = 0; i < S::TURNS; i++) {
            int index = (int)thread + i * S::THREADS, plane = index % S::PLANES, pixel = index / S::PLANES;
            int strip = pixel >= S::PIXELS;
            pixel -= strip * S::PIXELS;
            uint32_t image = strip ? tile.image[1] : tile.image[0];
            int column = (strip ? tile.column[1] : tile.column[0]) * S::STEP + map.shift[1] + pixel;
            uint32_t channel = tile.first + 8 * (uint32_t)plane;
            inside[i] = image < map.batch && (uint32_t)column < map.in[1] && channel < map.channels;
            offset[i] = ((int64_t)image * map.in[0] + row) * pitch + (int64_t)column * map.channels + channel;
            cell[i] = (uint32_t)(plane * S::PLANE + strip * S::PIXELS + S::cell(pixel));
        }
    }

    __device__ __forceinline__ void next(uint4 *stage)
    {
#pragma unroll
        for (int r = 0; r < S::STEP; r++) {
            bool there = (uint32_t)row < (uint32_t)height && row < end;
#pragma unroll
            for (int i = 0; i < S::TURNS; i++)
                if ((i + 1) * S::THREADS <= S::PIECES || (int)thread + i * S::THREADS < S::PIECES) {
                    bool in = there && inside[i];
                    copy_later(stage + r * S::ROW + cell[i], x + (in ? offset[i] : 0), in);
                }
            row++;
#pragma unroll
            for (int i = 0; i < S::TURNS; i++)
                offset[i] += pitch;
        }
    }
};

/* A row of x as fragments: a unit is two registers, one of each strip. */
template <typename S>
__device__ __forceinline__ void grouped_load_row(uint32_t (&a)[S::SOURCES][2 * S::UNITS], const uint4 *row,
                                                 uint32_t four, uint32_t two)
{
    const int PLANES = S::WIDE / 8;
#pragma unroll
    for (int source = 0; source < S::SOURCES; source++)
#pragma unroll
        for (int unit = 0; unit < S::UNITS; unit += 2) {
            int cell = source * S::PLANE + unit % PLANES * S::PLANE + S::cell(unit / PLANES);
            if (unit + 1 < S::UNITS)
                load_matrices_4(a[source] + 2 * unit, row + four + cell);
            else
                load_matrices_2(a[source] + 2 * unit, row + two + cell);
        }
}

/* Adds what one row of x gives to one row of y, through one row of the window. */
template <typename E, typename S>
__device__ __forceinline__ void grouped_multiply(float (&sums)[S::BLOCKS][4],
                                                 const uint32_t (&a)[S::SOURCES][2 * S::UNITS],
                                                 const uint32_t (&filter)[S::BLOCKS][S::UNITS])
{
#pragma unroll
    for (int unit = 0; unit < S::UNITS; unit += 2)
#pragma unroll
        for (int b = 0; b < S::BLOCKS; b++) {
            const uint32_t *from = a[S::SOURCES == 1 ? 0 : b];
            if (unit + 1 < S::UNITS)
                multiply_16x8x16<E>(sums[b], from + 2 * unit, filter[b] + unit);
            else
                multiply_16x8x8<E>(sums[b], from + 2 * unit, filter[b][unit]);
        }
}

template <typename S> __device__ __forceinline__ void grouped_clear(float (&sums)[S::BLOCKS][4])
{
#pragma unroll
    for (int b = 0; b < S::BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[b][i] = 0.0f;
}

/* Where a lane's channels of its two positions go, one row of y after the other. */
template <typename E, typename S> struct grouped_writer {
    typedef typename E::type T;
    static constexpr int COUNT = 2 * S::BLOCKS; /* neighbouring channels that a lane writes */
    T *to[2];                                   /* class 0 of the next row */
    bool inside[2][S::CLASSES];
    int64_t pitch;
    uint32_t channels;
    int row, height;
    float poison; /* becomes NaN with the first sum that is not finite */
    bool odd;

    __device__ __forceinline__ static uint32_t channel_of(uint32_t member, uint32_t place)
    {
        return S::BLOCKS == 1 ? 8 * member + 2 * place
               : S::WIDE == 8 ? place % 2 * 8 + place / 2 * 4
                              : 16 * member + 4 * place;
    }

    __device__ __forceinline__ grouped_writer(T *y, const tc_grouped_map &map, const grouped_tile &tile,
                                              uint32_t member, uint32_t lane)
        : pitch((int64_t)map.out[1] * map.channels), channels(map.channels), poison(0.0f), odd(lane % 2)
    {
        uint32_t channel = tile.first + channel_of(member, lane % 4);
        row = S::CLASSES * tile.row + tile.row_class;
        height = (int)map.out[0];
#pragma unroll
        for (int s = 0; s < 2; s++) {
            int column = S::CLASSES * (tile.column[s] + (int)(lane / 4));
#pragma unroll
            for (int c = 0; c < S::CLASSES; c++)
                inside[s][c] = tile.image[s] < map.batch && column + c < (int)map.out[1] && channel < channels;
            to[s] = y + ((int64_t)tile.image[s] * map.out[0] + row) * pitch + (int64_t)column * channels + channel;
        }
    }

    __device__ __forceinline__ void put(int part, const float (&sums)[S::BLOCKS][4])
    {
#pragma unroll
        for (int b = 0; b < S::BLOCKS; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                poison += 0.0f * sums[b][i];
        bool there = S::CLASSES == 1 || row + part / S::CLASSES < height;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            uint32_t words[S::BLOCKS];
#pragma unroll
            for (int b = 0; b < S::BLOCKS; b++)
                words[b] = E::narrow({sums[b][2 * s], sums[b][2 * s + 1]});
            T *at = to[s] + part / S::CLASSES * pitch + part % S::CLASSES * (int)channels;
            if constexpr (S::BLOCKS == 2) {
                if (S::WIDE == 8) { /* a lane has two channels of each block; it is to have four of one */
                    uint32_t other = exchange_with_neighbour(odd ? words[0] : words[1]);
                    words[0] = odd ? other : words[0];
                    words[1] = odd ? words[1] : other;
                }
                if (there && inside[s][part % S::CLASSES])
                    *reinterpret_cast<uint2 *>(at) = uint2{words[0], words[1]};
            } else if (there && inside[s][part % S::CLASSES]) {
                *reinterpret_cast<uint32_t *>(at) = words[0];
            }
        }
    }

    __device__ __forceinline__ void next_row()
    {
        row += S::CLASSES;
        to[0] += S::CLASSES * pitch;
        to[1] += S::CLASSES * pitch;
    }
};

/* One element by the definition. */
template <typename E, typename S>
__device__ float grouped_element(const typename E::type *x, const typename E::type *w, const tc_grouped_map &map,
                                 uint32_t image, int row, int row_class, int column, int column_class, uint32_t channel)
{
    float sum = 0.0f;
    uint32_t first = channel >> map.group_bits << map.group_bits;
    for (int ky = 0; ky < S::WINDOW; ky++)
        for (int kx = 0; kx < S::WINDOW; kx++) {
            int i = row * S::STEP + map.shift[0] + ky, j = column * S::STEP + map.shift[1] + kx, offset;
            if (!grouped_tap(map, row_class, column_class, ky, kx, &offset) || (uint32_t)i >= map.in[0] ||
                (uint32_t)j >= map.in[1])
                continue;
            const typename E::type *from = x + (((int64_t)image * map.in[0] + i) * map.in[1] + j) * map.channels;
            for (uint32_t read = first; read < first + (1u << map.group_bits); read++)
                sum += E::widen(from[read]) * E::widen(w[offset + grouped_between(map, read, channel)]);
        }
    return sum;
}

/*
 * The products multiply also elements that a sum does not have, by zero: an infinity or a NaN among them spreads
 * to sums that it has nothing to do with. Where a lane wrote such, it computes them again by the definition.
 */
template <typename E, typename S>
__device__ __forceinline__ void grouped_mend(const typename E::type *x, const typename E::type *w, typename E::type *y,
                                             const tc_grouped_map &map, const grouped_tile &tile, uint32_t member,
                                             uint32_t lane)
{
    const int COUNT = grouped_writer<E, S>::COUNT;
    uint32_t channel = tile.first + grouped_writer<E, S>::channel_of(member, lane % 4);
#pragma unroll 1
    for (int i = 0; i < 2 * S::PARTS * COUNT * tile.rows; i++) {
        int rest = i, strip = rest % 2, e = rest / 2 % COUNT, part = rest / (2 * COUNT) % S::PARTS;
        int row = tile.row + rest / (2 * COUNT * S::PARTS);
        int row_class = tile.row_class + part / S::CLASSES, column_class = part % S::CLASSES;
        uint32_t image = strip ? tile.image[1] : tile.image[0];
        int column = (strip ? tile.column[1] : tile.column[0]) + (int)(lane / 4);
        int to_row = S::CLASSES * row + row_class, to_column = S::CLASSES * column + column_class;
        if (image >= map.batch || to_row >= (int)map.out[0] || to_column >= (int)map.out[1] || channel >= map.channels)
            continue;
        int64_t pixel = ((int64_t)image * map.out[0] + to_row) * map.out[1] + to_column;
        typename E::type *to = y + pixel * map.channels + channel + e;
        float value = E::widen(*to);
        if (value - value == 0.0f)
            continue;
        value = grouped_element<E, S>(x, w, map, image, row, row_class, column, column_class, channel + (uint32_t)e);
        *to = (typename E::type)E::narrow({value, value});
    }
}

template <typename S> __device__ __forceinline__ void grouped_meet()
{
    if (S::TEAM == 1)
        __syncwarp();
    else
        __syncthreads();
}

/* Marches down a tile. `four`, `two`: the lane's row of matrices that are loaded by fours and by twos. */
template <typename E, typename S>
__device__ __forceinline__ void grouped_march(grouped_reader<E, S> &reader, grouped_writer<E, S> &writer, uint4 *ring,
                                              const uint32_t (&filter)[S::PARTS][S::WINDOW][S::BLOCKS][S::UNITS],
                                              int rows, uint32_t four, uint32_t two)
{
    const int steps = rows + S::SPAN - 1;
#pragma unroll
    for (int s = 0; s < S::STAGES - 1; s++) {
        if (s < steps)
            reader.next(ring + s * S::STAGE);
        end_copies();
    }
    /* Row t - j of y is in slot (t - j) % SLOTS; the one that step t completes makes room for the one it begins. */
    float sums[S::PARTS][S::SLOTS][S::BLOCKS][4];
#pragma unroll
    for (int part = 0; part < S::PARTS; part++)
#pragma unroll
        for (int slot = 0; slot < S::SLOTS; slot++)
            grouped_clear<S>(sums[part][slot]);
    const bool SPARING = S::SPAN > 3; /* leaves out what no row of this tile needs */
    int reading = 0, writing = S::STAGES - 1;
#pragma unroll 1
    for (int base = 0; base < steps; base += S::SLOTS) {
#pragma unroll
        for (int slot = 0; slot < S::SLOTS; slot++) {
            const int t = base + slot;
            if (t >= steps)
                break;
            wait_for_copies<S::STAGES - 2>();
            grouped_meet<S>();
            if (t + S::STAGES - 1 < steps)
                reader.next(ring + writing * S::STAGE);
            end_copies();
            writing = writing + 1 == S::STAGES ? 0 : writing + 1;
            const uint4 *stage = ring + reading * S::STAGE;
            reading = reading + 1 == S::STAGES ? 0 : reading + 1;

            uint32_t a[S::SOURCES][2 * S::UNITS];
            grouped_load_row<S>(a, stage, four, two);
#pragma unroll
            for (int j = 1; j < S::SPAN - 1; j++)
                if (!SPARING || (j <= t && t - j < rows)) {
#pragma unroll
                    for (int part = 0; part < S::PARTS; part++)
                        grouped_multiply<E, S>(sums[part][(slot - j + S::SLOTS) % S::SLOTS], a,
                                               filter[part][S::STEP * j]);
                }
#pragma unroll
            for (int part = 0; part < S::PARTS; part++) {
                float done[S::BLOCKS][4];
#pragma unroll
                for (int b = 0; b < S::BLOCKS; b++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        done[b][i] = sums[part][slot][b][i];
                grouped_clear<S>(sums[part][slot]);
                if (!SPARING || t < rows)
                    grouped_multiply<E, S>(sums[part][slot], a, filter[part][0]);
                if (t >= S::SPAN - 1) {
                    grouped_multiply<E, S>(done, a, filter[part][S::STEP * (S::SPAN - 1)]);
                    writer.put(part, done);
                }
            }
            if (t >= S::SPAN - 1)
                writer.next_row();
#pragma unroll
            for (int r = 1; r < S::STEP; r++) {
                grouped_load_row<S>(a, stage + r * S::ROW, four, two);
#pragma unroll
                for (int j = 0; j < S::SPAN - 1; j++)
                    if (!SPARING || (j <= t && t - j < rows)) {
#pragma unroll
                        for (int part = 0; part < S::PARTS; part++)
                            grouped_multiply<E, S>(sums[part][(slot - j + S::SLOTS) % S::SLOTS], a,
                                                   filter[part][S::STEP * j + r]);
                    }
            }
        }
    }
}

template <typename E, int WINDOW, int STEP, int CLASSES, int WIDE>
__device__ __forceinline__ void grouped(const typename E::type *x, const typename E::type *w, typename E::type *y,
                                        const tc_grouped_map &map)
{
    typedef grouped_shape<WINDOW, STEP, CLASSES, WIDE> S;
    __shared__ uint4 rings[S::TEAMS][S::STAGES * S::STAGE];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, member = S::TEAM == 1 ? 0 : warp;
    const uint32_t index = S::TEAM == 1 ? blockIdx.x * S::TEAMS + warp : blockIdx.x, first = index / map.parts;
    if (first >= map.teams)
        return;
    grouped_tile tile;
    grouped_take_part<S>(map, index - first * map.parts, &tile);
    uint32_t filter[S::PARTS][S::WINDOW][S::BLOCKS][S::UNITS];
    grouped_load_filter<E, S>(filter, w, map, tile, member, lane);
    uint4 *ring = rings[S::TEAM == 1 ? warp : 0];
    const uint32_t matrix = lane / 8, own = S::WIDE == 8 ? member * S::BLOCKS * S::PLANE : 0;
    const uint32_t two = own + matrix % 2 * S::PIXELS + lane % 8;
    const uint32_t four = two + matrix / 2 * (S::WIDE > 8 ? S::PLANE : S::cell(1));

#pragma unroll 1
    for (uint32_t next = first; next < map.tiles; next += map.teams) {
        grouped_take_tile(map, next, &tile);
        grouped_reader<E, S> reader(x, map, tile, S::TEAM == 1 ? lane : threadIdx.x);
        grouped_writer<E, S> writer(y, map, tile, member, lane);
        grouped_march<E, S>(reader, writer, ring, filter, tile.rows, four, two);
        float poison = writer.poison;
        if (S::BLOCKS == 2 && S::WIDE == 8)
            poison += float_of(exchange_with_neighbour(bits_of(poison)));
        if (poison != poison)
            grouped_mend<E, S>(x, w, y, map, tile, member, lane);
        grouped_meet<S>(); /* the ring is read no more */
    }
}

#define KERNEL(NAME, E, WINDOW, STEP, CLASSES, WIDE) \
    extern "C" __global__ void __launch_bounds__(grouped_shape<WINDOW, STEP, CLASSES, WIDE>::TEAMS * \
                                                 grouped_shape<WINDOW, STEP, CLASSES, WIDE>::THREADS, \
                                                 grouped_shape<WINDOW, STEP, CLASSES, WIDE>::RESIDENT) \
        tc_grouped_##NAME##_##WINDOW##_##STEP##_##CLASSES##_##WIDE(const E::type *x, const E::type *w, E::type *y, \
                                                                   tc_grouped_map map) \
    { \
        grouped<E, WINDOW, STEP, CLASSES, WIDE>(x, w, y, map); \
    }
#define KERNELS_OF(WINDOW, STEP, CLASSES, WIDE) \
    KERNEL(f16, half_element, WINDOW, STEP, CLASSES, WIDE) \
    KERNEL(bf16, bfloat16_element, WINDOW, STEP, CLASSES, WIDE)

#ifdef TC_WINDOW /* one kernel: a text of its own */
#define ONE_KERNEL(...) KERNEL(__VA_ARGS__)
ONE_KERNEL(TC_NAME, TC_ELEMENT, TC_WINDOW, TC_STEP, TC_CLASSES, TC_WIDE)
#else
KERNELS_OF(3, 1, 1, 8)
KERNELS_OF(3, 1, 1, 16)
KERNELS_OF(3, 1, 1, 32)
KERNELS_OF(5, 1, 1, 8)
KERNELS_OF(7, 1, 1, 8)
KERNELS_OF(3, 2, 1, 8)
KERNELS_OF(3, 2, 1, 16)
KERNELS_OF(3, 2, 1, 32)
KERNELS_OF(5, 2, 1, 8)
KERNELS_OF(7, 2, 1, 8)
KERNELS_OF(2, 1, 2, 8)
KERNELS_OF(2, 1, 2, 16)
KERNELS_OF(2, 1, 2, 32)
KERNELS_OF(3, 1, 2, 8)
KERNELS_OF(4, 1, 2, 8)
#endif
#undef KERNELS_OF
#undef KERNEL
