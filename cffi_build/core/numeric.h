/* Conversions between the dtypes and double, exact, or rounded to nearest even. */
#ifndef TC_NUMERIC_H
#define TC_NUMERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tunedconv_engine.h"

static inline double tc_bf16_to_double(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static inline double tc_f16_to_double(uint16_t bits)
{
    uint64_t exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
    double value;
    if (exponent == 0) {
        value = (double)fraction * 0x1p-24;
    } else {
        uint64_t wide = (exponent == 0x1F ? 0x7FF : exponent - 15 + 1023) << 52 | fraction << 42;
        memcpy(&value, &wide, sizeof value);
    }
    return bits & 0x8000 ? -value : value;
}

/*
 * Rounds to a half format of so many stored fraction bits, least exponent (of normal numbers) and largest
 * finite value: scales the last place to 1 and lets rint, which rounds to even, do the rest.
 */
static inline uint16_t tc_double_to_half(double value, int fraction_bits, int least_exponent, double largest)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(0x7FFF >> fraction_bits << fraction_bits);
    double magnitude = fabs(value);
    if (isnan(value))
        return sign | infinity | (uint16_t)(1 << (fraction_bits - 1));
    int exponent = magnitude > 0 && isfinite(magnitude) ? ilogb(magnitude) : least_exponent;
    if (exponent < least_exponent)
        exponent = least_exponent;
    double places = isfinite(magnitude) ? rint(ldexp(magnitude, fraction_bits - exponent)) : INFINITY;
    if (ldexp(places, exponent - fraction_bits) > largest)
        return sign | infinity;
    /* Subnormals have exponent field 0; a carry out of the fraction raises the field by itself. */
    uint32_t field = places >= ldexp(1.0, fraction_bits) ? (uint32_t)(exponent - least_exponent) : 0;
    return (uint16_t)(sign | ((field << fraction_bits) + (uint32_t)places));
}

static inline uint16_t tc_double_to_f16(double value)
{
    return tc_double_to_half(value, 10, -14, 65504.0);
}

static inline uint16_t tc_double_to_bf16(double value)
{
    return tc_double_to_half(value, 7, -126, 0x1.FEp127);
}

static inline double tc_load_value(const void *data, int64_t index, int32_t dtype)
{
    switch (dtype) {
    case TC_F16: return tc_f16_to_double(((const uint16_t *)data)[index]);
    case TC_BF16: return tc_bf16_to_double(((const uint16_t *)data)[index]);
    case TC_F32: return (double)((const float *)data)[index];
    default: return ((const double *)data)[index];
    }
}

static inline void tc_store_value(void *data, int64_t index, int32_t dtype, double value)
{
    switch (dtype) {
    case TC_F16: ((uint16_t *)data)[index] = tc_double_to_f16(value); break;
    case TC_BF16: ((uint16_t *)data)[index] = tc_double_to_bf16(value); break;
    case TC_F32: ((float *)data)[index] = (float)value; break;
    default: ((double *)data)[index] = value; break;
    }
}

#endif
