/* Facts about a descriptor that several parts of the core need. */
#ifndef TC_CONV_H
#define TC_CONV_H

#include "tunedconv_engine.h"

const char *tc_dtype_name(int32_t dtype);
const char *tc_direction_name(int32_t direction);
const char *tc_device_name(int32_t device_kind);

/* The tensor that the direction writes: where it is, how many elements of which dtype. */
typedef struct tc_output {
    void *pointer;
    int64_t elements;
    int32_t dtype;
} tc_output;
tc_output tc_conv_output(const tc_conv *conv, const tc_operands *operands);

/* Products summed into one element of the output, an upper bound at the borders. */
int64_t tc_conv_reduction(const tc_conv *conv);
/* Whether x, w or y has no element: the output then is empty or all zeros. */
int tc_conv_is_empty(const tc_conv *conv);

#endif
