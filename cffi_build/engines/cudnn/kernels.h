/* The engine's own CUDA kernels on one device: conversions between layouts, and a delay to time with. */
#ifndef TC_CUDNN_KERNELS_H
#define TC_CUDNN_KERNELS_H

#include "conversions.h"
#include "library.h"

/* Of what is not negative: how many blocks of b hold a. */
static inline int64_t tc_divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

typedef enum tc_kernel {
    TC_KERNEL_PACK_ACTIVATION,
    TC_KERNEL_UNPACK_ACTIVATION,
    TC_KERNEL_PACK_FILTER,
    TC_KERNEL_UNPACK_FILTER,
    TC_KERNEL_TRANSPOSE,
    TC_KERNEL_KINDS
} tc_kernel;

enum { TC_ELEMENT_SIZES = 3 }; /* 2, 4 and 8 bytes */

struct tc_kernels {
    const tc_cudnn_library *library;
    CUmodule module;
    CUfunction functions[TC_KERNEL_KINDS][TC_ELEMENT_SIZES];
    CUfunction transpose_pairs, delay;
};
typedef struct tc_kernels tc_kernels;

/* Loads them into the current context. */
tc_status tc_kernels_open(const tc_cudnn_library *library, tc_kernels **kernels);
void tc_kernels_close(tc_kernels *kernels); /* NULL is allowed */

/* One conversion of a tensor of elements of `bytes` bytes, ready to be queued. */
typedef struct tc_conversion {
    int active; /* 0: the caller's memory is used as it is */
    tc_kernel kernel;
    uint32_t bytes;
    union {
        tc_activation_map activation;
        tc_filter_map filter;
        tc_transpose_map transpose;
    } map;
} tc_conversion;

/* TC_UNSUPPORTED when the tensor is too large for the kernels' 32-bit indices. */
tc_status tc_conversion_check(const tc_conversion *conversion);
tc_status tc_conversion_run(const tc_kernels *kernels, const tc_conversion *conversion, CUstream stream,
                            const void *source, void *target);
tc_status tc_delay_run(const tc_kernels *kernels, CUstream stream, uint64_t nanoseconds);

#endif
