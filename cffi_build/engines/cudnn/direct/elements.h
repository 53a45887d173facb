/* Elements of tensors as the direct kernels take them: one or two at a time, widened to float32 and narrowed. */
#ifndef TC_CUDNN_ELEMENTS_H
#define TC_CUDNN_ELEMENTS_H

#include <stdint.h>

struct pair {
    float a, b;
};

#ifdef __CUDACC__
__device__ __forceinline__ float half_to_float(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ uint16_t float_to_half(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define TC_NARROWS_TWO 1
__device__ __forceinline__ uint32_t two_halves(pair v)
{
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(v.b), "f"(v.a));
    return bits;
}

__device__ __forceinline__ uint32_t two_bfloat16(pair v)
{
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(v.b), "f"(v.a));
    return bits;
}
#endif

__device__ __forceinline__ uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float float_of(uint32_t bits) { return __uint_as_float(bits); }
#endif /* else whoever includes this has them */

/* Elements as they lie in memory, two at a time. */
struct half_element {
    typedef uint16_t type;
    typedef uint32_t two;
    static __device__ __forceinline__ float widen(uint16_t bits) { return half_to_float(bits); }
    static __device__ __forceinline__ pair widen_two(uint32_t bits)
    {
        return {half_to_float((uint16_t)bits), half_to_float((uint16_t)(bits >> 16))};
    }
    static __device__ __forceinline__ uint32_t narrow(pair v)
    {
#ifdef TC_NARROWS_TWO
        return two_halves(v);
#else
        return (uint32_t)float_to_half(v.a) | (uint32_t)float_to_half(v.b) << 16;
#endif
    }
};

struct bfloat16_element {
    typedef uint16_t type;
    typedef uint32_t two;
    static __device__ __forceinline__ float widen(uint16_t bits) { return float_of((uint32_t)bits << 16); }
    static __device__ __forceinline__ pair widen_two(uint32_t bits)
    {
        return {float_of(bits << 16), float_of(bits & 0xFFFF0000u)};
    }
    /* To nearest, ties to even; a NaN stays one. */
    static __device__ __forceinline__ uint32_t round(float value)
    {
        uint32_t bits = bits_of(value);
        return value != value ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    }
    static __device__ __forceinline__ uint32_t narrow(pair v)
    {
#ifdef TC_NARROWS_TWO
        return two_bfloat16(v);
#else
        return round(v.a) | round(v.b) << 16;
#endif
    }
};

struct float_element {
    typedef float type;
    struct __align__(8) two {
        float a, b;
    };
    static __device__ __forceinline__ float widen(float value) { return value; }
    static __device__ __forceinline__ pair widen_two(two v) { return {v.a, v.b}; }
    static __device__ __forceinline__ two narrow(pair v) { return {v.a, v.b}; }
};

#endif
