/*
 * What a warp does together, and copies that do not wait: instructions of tensor cores and shared memory for
 * which CUDA C++ has no plain functions. Compute capability 8.0 and newer. Every lane of the warp takes part.
 *
 * Fragments are laid out as in the PTX manual, "Matrix fragments for mma.m16n8k16" and its neighbours. With
 * group = lane / 4 and place = lane % 4, and registers that hold two neighbours along k, the lower one low:
 *   A, 16 x 16:  a[0] (row group, k = 2 place ..+1)       a[1] (row group + 8, the same k)
 *                a[2] (row group, k = 2 place + 8 ..+1)   a[3] (row group + 8, the same k)
 *   B, 16 x 8:   b[0] (k = 2 place ..+1, column group)    b[1] (k = 2 place + 8 ..+1, column group)
 *   D, 16 x 8:   d[0], d[1] (row group, columns 2 place ..+1)   d[2], d[3] (row group + 8, the same columns)
 */
#ifndef TC_CUDNN_WARP_H
#define TC_CUDNN_WARP_H

#include "elements.h"

#ifdef __CUDACC__ /* else whoever includes this has them */

#define TC_MULTIPLY_16X8X16(TYPE) \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
        "{%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define TC_MULTIPLY_16X8X8(TYPE) \
    asm("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, " \
        "{%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(b))

/* D += A B, of half_element or bfloat16_element, in float32. */
template <typename E>
__device__ __forceinline__ void multiply_16x8x16(float d[4], const uint32_t a[4], const uint32_t b[2]);
template <>
__device__ __forceinline__ void multiply_16x8x16<half_element>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    TC_MULTIPLY_16X8X16("f16");
}
template <>
__device__ __forceinline__ void multiply_16x8x16<bfloat16_element>(float d[4], const uint32_t a[4],
                                                                   const uint32_t b[2])
{
    TC_MULTIPLY_16X8X16("bf16");
}

/* The same with k = 8: the registers of k >= 8 fall away. */
template <typename E> __device__ __forceinline__ void multiply_16x8x8(float d[4], const uint32_t a[2], uint32_t b);
template <>
__device__ __forceinline__ void multiply_16x8x8<half_element>(float d[4], const uint32_t a[2], uint32_t b)
{
    TC_MULTIPLY_16X8X8("f16");
}
template <>
__device__ __forceinline__ void multiply_16x8x8<bfloat16_element>(float d[4], const uint32_t a[2], uint32_t b)
{
    TC_MULTIPLY_16X8X8("bf16");
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/*
 * Matrices of 8 rows of 16 bytes from shared memory. Lane 8 i + j gives the address of row j of matrix i, a
 * multiple of 16; of two matrices, the upper lanes give any such address. r[i] becomes (row group, elements
 * 2 place ..+1) of matrix i; turned: (rows 2 place ..+1, element group).
 */
__device__ __forceinline__ void load_matrices_4(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void load_matrices_2(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void load_matrices_4_turned(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)) : "memory");
}

__device__ __forceinline__ void load_matrices_2_turned(uint32_t r[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)) : "memory");
}

/* The value of the lane beside this one: lanes 0 and 1, 2 and 3, ... exchange theirs. */
__device__ __forceinline__ uint32_t exchange_with_neighbour(uint32_t value)
{
    return __shfl_xor_sync(0xFFFFFFFFu, value, 1);
}

/*
 * Copies 16 bytes from global to shared memory, both at multiples of 16; zeros when not `inside`: the global
 * address is then not read.
 */
__device__ __forceinline__ void copy_later(void *shared, const void *global, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0)
                 : "memory");
}

/* Ends a group of this thread's copies. */
__device__ __forceinline__ void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's groups, all but the newest PENDING. For others' copies, __syncthreads after it. */
template <int PENDING> __device__ __forceinline__ void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
#endif
