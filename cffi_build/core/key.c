/*
 * The canonical text of a descriptor, one line:
 * forward|x=float32:nhwc:8x64x56x56|w=float32:hwio:64x64x3x3|y=float32:nhwc:8x64x56x56|pad=1,1:1,1|stride=1,1|
 * dilation=1,1|groups=1|mode=cross_correlation|compute=float32|tf32=0|deterministic=0|epilogue=none
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv.h"

static const char *const data_layouts[2][TC_MAX_SPATIAL] = {{"nwc", "nhwc", "ndhwc"}, {"ncw", "nchw", "ncdhw"}};
static const char *const filter_layouts[3][TC_MAX_SPATIAL] = {
    {"wio", "hwio", "dhwio"}, {"oiw", "oihw", "oidhw"}, {"owi", "ohwi", "odhwi"}};

/* ---- writing ------------------------------------------------------------------------------------- */

/* Text that grows inside a fixed buffer; length counts on when it no longer fits. */
typedef struct writer {
    char *text;
    size_t size, length;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *out, const char *format, ...)
{
    size_t used = out->length < out->size ? out->length : out->size;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out->text + used, out->size - used, format, arguments);
    va_end(arguments);
    out->length += length > 0 ? (size_t)length : 0;
}

static void put_numbers(writer *out, const int64_t *numbers, int32_t count, char separator)
{
    for (int32_t i = 0; i < count; i++) {
        if (i)
            put(out, "%c", separator);
        put(out, "%lld", (long long)numbers[i]);
    }
}

static void put_tensor(writer *out, const char *name, int32_t dtype, const char *layout, const int64_t *dims,
                       int32_t rank)
{
    put(out, "|%s=%s:%s:", name, tc_dtype_name(dtype), layout);
    put_numbers(out, dims, rank + 2, 'x');
}

tc_status tc_key_format(const tc_conv *conv, char *text, size_t size)
{
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    if (!text || size == 0)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a buffer of up to %d bytes for a key, got none", TC_KEY_SIZE);
    int32_t rank = conv->spatial_rank;
    writer out = {text, size, 0};
    put(&out, "%s", tc_direction_name(conv->direction));
    put_tensor(&out, "x", conv->x_dtype, data_layouts[conv->x_layout][rank - 1], conv->x_dims, rank);
    put_tensor(&out, "w", conv->w_dtype, filter_layouts[conv->w_layout][rank - 1], conv->w_dims, rank);
    put_tensor(&out, "y", conv->y_dtype, data_layouts[conv->y_layout][rank - 1], conv->y_dims, rank);
    put(&out, "|pad=");
    put_numbers(&out, conv->pad_before, rank, ',');
    put(&out, ":");
    put_numbers(&out, conv->pad_after, rank, ',');
    put(&out, "|stride=");
    put_numbers(&out, conv->stride, rank, ',');
    put(&out, "|dilation=");
    put_numbers(&out, conv->dilation, rank, ',');
    put(&out, "|groups=%lld|mode=cross_correlation|compute=%s|tf32=%d|deterministic=%d|epilogue=none",
        (long long)conv->groups, tc_dtype_name(conv->compute_dtype), conv->allow_tf32, conv->deterministic);
    if (out.length >= size)
        return tc_fail(TC_INVALID_ARGUMENT, "this key needs a buffer of %zu bytes, got %zu", out.length + 1, size);
    return TC_OK;
}

/* ---- reading --------------------------------------------------------------------------------------- */
/* Each reader moves *at past what it took and returns whether it was there. */

static int read_literal(const char **at, const char *literal)
{
    size_t length = strlen(literal);
    if (strncmp(*at, literal, length) != 0)
        return 0;
    *at += length;
    return 1;
}

/* Which of the names comes next, up to a separator. */
static int read_name(const char **at, const char *(*name_of)(int32_t), int32_t count, int32_t *value)
{
    size_t length = strcspn(*at, ":|");
    for (int32_t i = 0; i < count; i++) {
        const char *name = name_of(i);
        if (strlen(name) == length && memcmp(name, *at, length) == 0) {
            *value = i;
            *at += length;
            return 1;
        }
    }
    return 0;
}

static int read_number(const char **at, int64_t *value)
{
    int64_t number = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, **at - '0', &number))
            return 0;
    *value = number;
    return *at != start;
}

static int read_flag(const char **at, int32_t *value)
{
    int64_t number;
    if (!read_number(at, &number) || number > 1)
        return 0;
    *value = (int32_t)number;
    return 1;
}

static int read_numbers(const char **at, int64_t *numbers, int32_t count, char separator)
{
    for (int32_t i = 0; i < count; i++) {
        if (i && **at != separator)
            return 0;
        *at += i != 0;
        if (!read_number(at, &numbers[i]))
            return 0;
    }
    return 1;
}

/* A layout's name also tells the rank: *rank is set by the first tensor and must agree with the others. */
static int read_layout(const char **at, const char *const (*layouts)[TC_MAX_SPATIAL], int32_t count, int32_t *rank,
                       int32_t *layout)
{
    size_t length = strcspn(*at, ":|");
    for (int32_t i = 0; i < count; i++) {
        for (int32_t r = 0; r < TC_MAX_SPATIAL; r++) {
            const char *name = layouts[i][r];
            if (strlen(name) != length || memcmp(name, *at, length) != 0 || (*rank && *rank != r + 1))
                continue;
            *rank = r + 1;
            *layout = i;
            *at += length;
            return 1;
        }
    }
    return 0;
}

static int read_data_tensor(const char **at, int32_t *rank, int32_t *dtype, int32_t *layout, int64_t *dims)
{
    return read_name(at, tc_dtype_name, TC_F64 + 1, dtype) && read_literal(at, ":") &&
           read_layout(at, data_layouts, 2, rank, layout) && read_literal(at, ":") &&
           read_numbers(at, dims, *rank + 2, 'x');
}

static int read_filter_tensor(const char **at, int32_t *rank, int32_t *dtype, int32_t *layout, int64_t *dims)
{
    return read_name(at, tc_dtype_name, TC_F64 + 1, dtype) && read_literal(at, ":") &&
           read_layout(at, filter_layouts, 3, rank, layout) && read_literal(at, ":") &&
           read_numbers(at, dims, *rank + 2, 'x');
}

static int read_conv(const char **at, tc_conv *conv)
{
    int32_t *rank = &conv->spatial_rank;
    return read_name(at, tc_direction_name, TC_BACKWARD_FILTER + 1, &conv->direction) && read_literal(at, "|x=") &&
           read_data_tensor(at, rank, &conv->x_dtype, &conv->x_layout, conv->x_dims) && read_literal(at, "|w=") &&
           read_filter_tensor(at, rank, &conv->w_dtype, &conv->w_layout, conv->w_dims) && read_literal(at, "|y=") &&
           read_data_tensor(at, rank, &conv->y_dtype, &conv->y_layout, conv->y_dims) && read_literal(at, "|pad=") &&
           read_numbers(at, conv->pad_before, *rank, ',') && read_literal(at, ":") &&
           read_numbers(at, conv->pad_after, *rank, ',') && read_literal(at, "|stride=") &&
           read_numbers(at, conv->stride, *rank, ',') && read_literal(at, "|dilation=") &&
           read_numbers(at, conv->dilation, *rank, ',') && read_literal(at, "|groups=") &&
           read_number(at, &conv->groups) && read_literal(at, "|mode=cross_correlation|compute=") &&
           read_name(at, tc_dtype_name, TC_F64 + 1, &conv->compute_dtype) && read_literal(at, "|tf32=") &&
           read_flag(at, &conv->allow_tf32) && read_literal(at, "|deterministic=") &&
           read_flag(at, &conv->deterministic) && read_literal(at, "|epilogue=none");
}

tc_status tc_key_parse(const char *text, tc_conv *conv)
{
    if (!text || !conv)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a key and a descriptor to fill, got NULL");
    tc_conv parsed = {0};
    const char *at = text;
    if (!read_conv(&at, &parsed) || *at != '\0')
        return tc_fail(TC_INVALID_ARGUMENT, "malformed key at byte %zu, before '%.40s', of '%.*s'", (size_t)(at - text),
                       at, TC_KEY_SIZE, text);
    char canonical[TC_KEY_SIZE];
    tc_status status = tc_key_format(&parsed, canonical, sizeof canonical);
    if (status != TC_OK)
        return status;
    if (strcmp(canonical, text) != 0)
        return tc_fail(TC_INVALID_ARGUMENT, "a key must be written as '%s', got '%.*s'", canonical, TC_KEY_SIZE, text);
    *conv = parsed;
    return TC_OK;
}
