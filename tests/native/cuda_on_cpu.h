/*
 * CUDA C++ for the CPU: what kernels use of the language, of elements.h and of warp.h, so that a .cu file
 * included after this compiles as C++. The threads of a block that synchronises are fibers, each on a stack of
 * its own, that run in turn up to the next barrier; a barrier that not all of those concerned reach is found
 * and ends the program. Shared memory is not cleared between blocks, as on a GPU.
 */
#ifndef CUDA_ON_CPU_H
#define CUDA_ON_CPU_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <immintrin.h>
#include <ucontext.h>

struct uint3_ {
    unsigned x, y, z;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static thread_local uint3_ blockIdx, threadIdx;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static thread_local

/* ---- the threads of a block ------------------------------------------------------------------------------ */

namespace cuda_on_cpu {

enum { LANES = 32, STACK = 65536 };

struct barrier {
    unsigned arrived, passed;
};

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
};

struct fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
    std::vector<copy> copies;                /* of the group that is not ended */
    std::deque<std::vector<copy>> unfinished; /* groups, the oldest first */
};

/* What the lanes of a warp lay out for each other. */
struct warp {
    barrier together;
    const void *rows[LANES];
    uint32_t words[LANES][6];
};

static thread_local ucontext_t scheduler;
static thread_local std::vector<fiber> fibers;
static thread_local std::vector<warp> warps;
static thread_local barrier all;
static thread_local size_t current;
static thread_local unsigned living;
static thread_local bool progress;
static thread_local void (*body)(void **);
static thread_local void **body_arguments;

static inline void yield()
{
    swapcontext(&fibers[current].context, &scheduler);
}

static inline void wait(barrier &b, unsigned parties)
{
    unsigned before = b.passed;
    if (++b.arrived == parties) {
        b.arrived = 0;
        b.passed++;
        progress = true;
    }
    while (b.passed == before)
        yield();
}

static inline void fiber_main()
{
    body(body_arguments);
    fibers[current].done = true;
    progress = true;
    living--;
    if (living && all.arrived == living) { /* those that have left no longer count */
        all.arrived = 0;
        all.passed++;
    }
    swapcontext(&fibers[current].context, &scheduler);
}

static inline void run_block(unsigned threads, void (*run)(void **), void **arguments)
{
    body = run;
    body_arguments = arguments;
    living = threads;
    all = {0, 0};
    warps.assign((threads + LANES - 1) / LANES, {});
    fibers.resize(threads);
    for (fiber &f : fibers) {
        f.stack.resize(STACK);
        f.done = false;
        f.copies.clear();
        f.unfinished.clear();
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        makecontext(&f.context, fiber_main, 0);
    }
    while (living) {
        progress = false;
        for (current = 0; current < threads; current++) {
            if (fibers[current].done)
                continue;
            threadIdx.x = unsigned(current);
            swapcontext(&scheduler, &fibers[current].context);
        }
        if (!progress) {
            std::fprintf(stderr, "threads of a block wait at a barrier that the others never reach\n");
            std::abort();
        }
    }
}

static inline warp &mine()
{
    return warps[threadIdx.x / LANES];
}

static inline unsigned lane()
{
    return threadIdx.x % LANES;
}

/* All 32 lanes, or the barrier is never passed: what a warp does together needs each of them. */
static inline void wait_for_warp()
{
    unsigned thread = threadIdx.x;
    wait(mine().together, LANES);
    threadIdx.x = thread;
}

} // namespace cuda_on_cpu

static inline void __syncthreads()
{
    unsigned thread = threadIdx.x;
    cuda_on_cpu::wait(cuda_on_cpu::all, cuda_on_cpu::living);
    threadIdx.x = thread;
}

static inline void __syncwarp(unsigned = 0xFFFFFFFFu)
{
    cuda_on_cpu::wait_for_warp();
}

static inline unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

template <typename T> static inline T __ldg(const T *address)
{
    return *address;
}

/* ---- elements.h ------------------------------------------------------------------------------------------ */

__attribute__((target("f16c"))) static float half_to_float(uint16_t bits)
{
    return _cvtsh_ss(bits);
}
__attribute__((target("f16c"))) static uint16_t float_to_half(float value)
{
    return uint16_t(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}
static uint32_t bits_of(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
static float float_of(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

/* ---- warp.h ---------------------------------------------------------------------------------------------- */

namespace cuda_on_cpu {

/* Element k of a register pair list: registers hold two neighbours along k, the lower one low. */
template <typename E> static float element(uint32_t word, unsigned k)
{
    return E::widen(uint16_t(word >> 16 * (k % 2)));
}

/* D += A B with k = 8 * halves; A's registers are words 0 to 3, B's 4 and 5. */
template <typename E> static void multiply(float d[4], unsigned halves)
{
    warp &w = mine();
    wait_for_warp();
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane() / 4 + 8 * (i / 2), column = 2 * (lane() % 4) + i % 2;
        for (unsigned k = 0; k < 8 * halves; k++) {
            unsigned place = k % 8 / 2, upper = k / 8;
            uint32_t a = w.words[4 * (row % 8) + place][2 * upper + row / 8];
            uint32_t b = w.words[4 * column + place][4 + upper];
            d[i] += element<E>(a, k) * element<E>(b, k);
        }
    }
    wait_for_warp();
}

static inline void load_matrices(uint32_t *r, unsigned count, const void *row, bool turned)
{
    warp &w = mine();
    w.rows[lane()] = row;
    if (uintptr_t(row) % 16) {
        std::fprintf(stderr, "a row of a matrix lies at %p, which is not a multiple of 16\n", row);
        std::abort();
    }
    wait_for_warp();
    unsigned group = lane() / 4, place = lane() % 4;
    for (unsigned i = 0; i < count; i++) {
        uint16_t low, high;
        const char *first = (const char *)w.rows[8 * i + (turned ? 2 * place : group)];
        const char *second = turned ? (const char *)w.rows[8 * i + 2 * place + 1] : first;
        std::memcpy(&low, first + 2 * (turned ? group : 2 * place), 2);
        std::memcpy(&high, second + 2 * (turned ? group : 2 * place + 1), 2);
        r[i] = uint32_t(low) | uint32_t(high) << 16;
    }
    wait_for_warp();
}

} // namespace cuda_on_cpu

template <typename E> static void multiply_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    uint32_t *words = cuda_on_cpu::mine().words[cuda_on_cpu::lane()];
    std::memcpy(words, a, 16);
    std::memcpy(words + 4, b, 8);
    cuda_on_cpu::multiply<E>(d, 2);
}

template <typename E> static void multiply_16x8x8(float d[4], const uint32_t a[2], uint32_t b)
{
    uint32_t *words = cuda_on_cpu::mine().words[cuda_on_cpu::lane()];
    std::memcpy(words, a, 8);
    words[4] = b;
    cuda_on_cpu::multiply<E>(d, 1);
}

static inline void load_matrices_4(uint32_t r[4], const void *row) { cuda_on_cpu::load_matrices(r, 4, row, false); }
static inline void load_matrices_2(uint32_t r[2], const void *row) { cuda_on_cpu::load_matrices(r, 2, row, false); }
static inline void load_matrices_4_turned(uint32_t r[4], const void *row)
{
    cuda_on_cpu::load_matrices(r, 4, row, true);
}
static inline void load_matrices_2_turned(uint32_t r[2], const void *row)
{
    cuda_on_cpu::load_matrices(r, 2, row, true);
}

static inline uint32_t exchange_with_neighbour(uint32_t value)
{
    cuda_on_cpu::warp &w = cuda_on_cpu::mine();
    w.words[cuda_on_cpu::lane()][0] = value;
    cuda_on_cpu::wait_for_warp();
    value = w.words[cuda_on_cpu::lane() ^ 1][0];
    cuda_on_cpu::wait_for_warp();
    return value;
}

/* A copy happens when its thread waits for it, not before: a kernel that reads too early finds what was there. */
static inline void copy_later(void *shared, const void *global, bool inside)
{
    if (uintptr_t(shared) % 16 || (inside && uintptr_t(global) % 16)) {
        std::fprintf(stderr, "a copy of 16 bytes from %p to %p, which are not multiples of 16\n", global, shared);
        std::abort();
    }
    cuda_on_cpu::fibers[cuda_on_cpu::current].copies.push_back({shared, inside ? global : nullptr});
}

static inline void end_copies()
{
    cuda_on_cpu::fiber &mine = cuda_on_cpu::fibers[cuda_on_cpu::current];
    mine.unfinished.push_back(std::move(mine.copies));
    mine.copies.clear();
}

template <int PENDING> static inline void wait_for_copies()
{
    auto &groups = cuda_on_cpu::fibers[cuda_on_cpu::current].unfinished;
    for (; groups.size() > PENDING; groups.pop_front())
        for (const cuda_on_cpu::copy &c : groups.front())
            if (c.from)
                std::memcpy(c.to, c.from, 16);
            else
                std::memset(c.to, 0, 16);
}

#endif
