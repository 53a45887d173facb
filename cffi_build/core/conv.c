/* The descriptor of a convolution: its check and what follows from its numbers. */
#include "conv.h"

#include <string.h>

/* Keeps sums such as dilation * (kernel - 1) + pads far from overflow, and the key's text short. */
static const int64_t LARGEST_STEP = INT32_MAX;
static const int64_t LARGEST_TENSOR_BYTES = INT64_C(1) << 60;

size_t tc_dtype_size(int32_t dtype)
{
    switch (dtype) {
    case TC_F16: case TC_BF16: return 2;
    case TC_F32: return 4;
    case TC_F64: return 8;
    default: return 0;
    }
}

const char *tc_dtype_name(int32_t dtype)
{
    static const char *const names[] = {"float16", "bfloat16", "float32", "float64"};
    return dtype >= 0 && dtype <= TC_F64 ? names[dtype] : "unknown dtype";
}

const char *tc_direction_name(int32_t direction)
{
    static const char *const names[] = {"forward", "backward_data", "backward_filter"};
    return direction >= 0 && direction <= TC_BACKWARD_FILTER ? names[direction] : "unknown direction";
}

const char *tc_device_name(int32_t device_kind)
{
    static const char *const names[] = {"cpu", "cuda"};
    return device_kind >= 0 && device_kind <= TC_CUDA ? names[device_kind] : "unknown device";
}

int64_t tc_elements(const int64_t *dims, int32_t spatial_rank)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < spatial_rank + 2; i++)
        elements *= dims[i];
    return elements;
}

static tc_status check_range(const char *field, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return TC_OK;
    return tc_fail(TC_INVALID_ARGUMENT, "%s must be between %lld and %lld, got %lld", field, (long long)low,
                   (long long)high, (long long)value);
}

static tc_status check_enumerators(const tc_conv *conv)
{
    const struct { const char *field; int32_t value, low, high; } fields[] = {
        {"direction", conv->direction, TC_FORWARD, TC_BACKWARD_FILTER},
        {"spatial_rank", conv->spatial_rank, 1, TC_MAX_SPATIAL},
        {"x_dtype", conv->x_dtype, TC_F16, TC_F64},
        {"w_dtype", conv->w_dtype, TC_F16, TC_F64},
        {"y_dtype", conv->y_dtype, TC_F16, TC_F64},
        {"compute_dtype", conv->compute_dtype, TC_F16, TC_F64},
        {"x_layout", conv->x_layout, TC_CHANNELS_LAST, TC_CHANNELS_FIRST},
        {"w_layout", conv->w_layout, TC_HWIO, TC_OHWI},
        {"y_layout", conv->y_layout, TC_CHANNELS_LAST, TC_CHANNELS_FIRST},
        {"allow_tf32", conv->allow_tf32, 0, 1},
        {"deterministic", conv->deterministic, 0, 1},
        {"epilogue", conv->epilogue, 0, 0},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        tc_status status = check_range(fields[i].field, fields[i].value, fields[i].low, fields[i].high);
        if (status != TC_OK)
            return status;
    }
    return TC_OK;
}

/* A dim of 0 makes an empty tensor; the others are still bounded, as if it were 1. */
static tc_status check_dims(const char *field, const int64_t *dims, int32_t spatial_rank, int32_t dtype)
{
    int64_t bytes = (int64_t)tc_dtype_size(dtype);
    for (int32_t i = 0; i < TC_MAX_DIMS; i++) {
        if (i >= spatial_rank + 2) {
            if (dims[i] != 0)
                return tc_fail(TC_INVALID_ARGUMENT, "%s[%d] is beyond the rank and must be 0, got %lld", field, i,
                               (long long)dims[i]);
        } else if (dims[i] < 0) {
            return tc_fail(TC_INVALID_ARGUMENT, "%s[%d] must not be negative, got %lld", field, i,
                           (long long)dims[i]);
        } else if (__builtin_mul_overflow(bytes, dims[i] ? dims[i] : 1, &bytes) || bytes > LARGEST_TENSOR_BYTES) {
            return tc_fail(TC_INVALID_ARGUMENT, "the dims of %s make a tensor of over 2^60 bytes", field);
        }
    }
    return TC_OK;
}

static tc_status check_steps(const char *field, const int64_t *steps, int32_t spatial_rank, int64_t low)
{
    for (int32_t i = 0; i < TC_MAX_SPATIAL; i++) {
        if (i >= spatial_rank ? steps[i] != 0 : steps[i] < low || steps[i] > LARGEST_STEP)
            return tc_fail(TC_INVALID_ARGUMENT, "%s[%d] must be %s, got %lld", field, i,
                           i >= spatial_rank ? "0 (it is beyond the rank)" : low ? "positive and below 2^31"
                                                                                 : "at least 0 and below 2^31",
                           (long long)steps[i]);
    }
    return TC_OK;
}

/* What holds of x, w, and the parameters, whatever y is. */
static tc_status check_inputs(const tc_conv *conv)
{
    int32_t rank = conv->spatial_rank;
    tc_status status = check_enumerators(conv);
    if (status == TC_OK)
        status = check_dims("x_dims", conv->x_dims, rank, conv->x_dtype);
    if (status == TC_OK)
        status = check_dims("w_dims", conv->w_dims, rank, conv->w_dtype);
    if (status == TC_OK)
        status = check_steps("pad_before", conv->pad_before, rank, 0);
    if (status == TC_OK)
        status = check_steps("pad_after", conv->pad_after, rank, 0);
    if (status == TC_OK)
        status = check_steps("stride", conv->stride, rank, 1);
    if (status == TC_OK)
        status = check_steps("dilation", conv->dilation, rank, 1);
    if (status != TC_OK)
        return status;
    for (int32_t i = 0; i < rank; i++)
        if (conv->w_dims[2 + i] < 1 || conv->w_dims[2 + i] > LARGEST_STEP)
            return tc_fail(TC_INVALID_ARGUMENT, "w_dims[%d], a kernel size, must be positive and below 2^31, got %lld",
                           2 + i, (long long)conv->w_dims[2 + i]);
    int64_t channels;
    if (conv->groups < 1)
        return tc_fail(TC_INVALID_ARGUMENT, "groups must be positive, got %lld", (long long)conv->groups);
    if (__builtin_mul_overflow(conv->w_dims[1], conv->groups, &channels) || channels != conv->x_dims[1])
        return tc_fail(TC_INVALID_ARGUMENT, "x has %lld channels, but the filter takes %lld in each of %lld groups",
                       (long long)conv->x_dims[1], (long long)conv->w_dims[1], (long long)conv->groups);
    if (conv->w_dims[0] % conv->groups != 0)
        return tc_fail(TC_INVALID_ARGUMENT, "the filter's %lld output channels do not divide into %lld groups",
                       (long long)conv->w_dims[0], (long long)conv->groups);
    return TC_OK;
}

/* Positions of the filter along one axis; 0 when the padded input is smaller than the dilated kernel. */
static int64_t output_size(const tc_conv *conv, int32_t axis)
{
    int64_t padded = conv->x_dims[2 + axis] + conv->pad_before[axis] + conv->pad_after[axis];
    int64_t extent = (conv->w_dims[2 + axis] - 1) * conv->dilation[axis] + 1;
    return padded < extent ? 0 : (padded - extent) / conv->stride[axis] + 1;
}

tc_status tc_conv_infer_output(tc_conv *conv)
{
    if (!conv)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a descriptor, got NULL");
    tc_status status = check_inputs(conv);
    if (status != TC_OK)
        return status;
    memset(conv->y_dims, 0, sizeof conv->y_dims);
    conv->y_dims[0] = conv->x_dims[0];
    conv->y_dims[1] = conv->w_dims[0];
    for (int32_t i = 0; i < conv->spatial_rank; i++)
        conv->y_dims[2 + i] = output_size(conv, i);
    return check_dims("y_dims", conv->y_dims, conv->spatial_rank, conv->y_dtype);
}

tc_status tc_conv_check(const tc_conv *conv)
{
    if (!conv)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a descriptor, got NULL");
    tc_conv expected = *conv;
    tc_status status = tc_conv_infer_output(&expected);
    if (status != TC_OK)
        return status;
    for (int32_t i = 0; i < TC_MAX_DIMS; i++)
        if (conv->y_dims[i] != expected.y_dims[i])
            return tc_fail(TC_INVALID_ARGUMENT, "y_dims[%d] must be %lld for this input, filter, padding, stride and "
                           "dilation, got %lld", i, (long long)expected.y_dims[i], (long long)conv->y_dims[i]);
    return TC_OK;
}

tc_output tc_conv_output(const tc_conv *conv, const tc_operands *operands)
{
    switch (conv->direction) {
    case TC_FORWARD:
        return (tc_output){operands->y, tc_elements(conv->y_dims, conv->spatial_rank), conv->y_dtype};
    case TC_BACKWARD_DATA:
        return (tc_output){operands->x, tc_elements(conv->x_dims, conv->spatial_rank), conv->x_dtype};
    default:
        return (tc_output){operands->w, tc_elements(conv->w_dims, conv->spatial_rank), conv->w_dtype};
    }
}

int64_t tc_conv_reduction(const tc_conv *conv)
{
    int64_t kernel = 1, positions = conv->y_dims[0];
    for (int32_t i = 0; i < conv->spatial_rank; i++) {
        kernel *= conv->w_dims[2 + i];
        positions *= conv->y_dims[2 + i];
    }
    switch (conv->direction) {
    case TC_FORWARD: return kernel * conv->w_dims[1];
    case TC_BACKWARD_DATA: return kernel * (conv->w_dims[0] / conv->groups);
    default: return positions;
    }
}

int tc_conv_is_empty(const tc_conv *conv)
{
    return tc_elements(conv->x_dims, conv->spatial_rank) == 0 || tc_elements(conv->w_dims, conv->spatial_rank) == 0 ||
           tc_elements(conv->y_dims, conv->spatial_rank) == 0;
}
