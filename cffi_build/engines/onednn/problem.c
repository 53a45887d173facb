/* A tc_conv in oneDNN's terms: tensors with strides, and a primitive descriptor made of them. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <string.h>

static int convert_dtype(int32_t dtype, dnnl_data_type_t *result)
{
    switch (dtype) {
    case TC_F16: *result = dnnl_f16; return 1;
    case TC_BF16: *result = dnnl_bf16; return 1;
    case TC_F32: *result = dnnl_f32; return 1;
    default: return 0;
    }
}

/* Strides of dims[0..ndims) when their axes lie in memory in this order, outermost first. */
static void dense_strides(const int64_t *dims, int ndims, const int *order, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = ndims - 1; i >= 0; i--) {
        strides[order[i]] = stride;
        stride *= dims[order[i]];
    }
}

static void make_data(const int64_t *dims, int32_t layout, int32_t spatial_rank, onednn_tensor *tensor)
{
    int ndims = spatial_rank + 2, order[TC_MAX_DIMS] = {0, 1, 2, 3, 4};
    if (layout == TC_CHANNELS_LAST) {
        for (int i = 1; i < ndims - 1; i++)
            order[i] = i + 1;
        order[ndims - 1] = 1;
    }
    tensor->ndims = ndims;
    memcpy(tensor->dims, dims, (size_t)ndims * sizeof *dims);
    dense_strides(tensor->dims, ndims, order, tensor->strides);
}

static void make_filter(const tc_conv *conv, onednn_tensor *tensor)
{
    int ndims = conv->spatial_rank + 2, order[TC_MAX_DIMS] = {0, 1, 2, 3, 4};
    int64_t strides[TC_MAX_DIMS];
    if (conv->w_layout != TC_OIHW) {
        int spatial = conv->w_layout == TC_HWIO ? 0 : 1; /* where the spatial axes begin in memory */
        for (int i = 0; i < conv->spatial_rank; i++)
            order[spatial + i] = 2 + i;
        order[ndims - 1] = conv->w_layout == TC_HWIO ? 0 : 1;
        if (conv->w_layout == TC_HWIO)
            order[ndims - 2] = 1;
    }
    dense_strides(conv->w_dims, ndims, order, strides);

    /* Groups are the outer part of the output channels, an axis of their own to oneDNN. */
    int grouped = conv->groups > 1;
    tensor->ndims = ndims + grouped;
    memcpy(tensor->dims + grouped, conv->w_dims, (size_t)ndims * sizeof *strides);
    memcpy(tensor->strides + grouped, strides, (size_t)ndims * sizeof *strides);
    if (grouped) {
        tensor->dims[0] = conv->groups;
        tensor->dims[1] = conv->w_dims[0] / conv->groups;
        tensor->strides[0] = strides[0] * tensor->dims[1];
    }
}

/* Whether none of the points offset, offset + step, ... (count of them) lies in 0 ... size - 1. */
static int misses(int64_t offset, int64_t step, int64_t count, int64_t size)
{
    int64_t first = offset < 0 ? (step - 1 - offset) / step : 0;
    return first >= count || offset + first * step >= size;
}

/* What of output and filter only meets padding along an axis. */
static void find_padding(const tc_conv *conv, int axis, onednn_problem *problem)
{
    int64_t size = conv->x_dims[2 + axis], taps = conv->w_dims[2 + axis], positions = conv->y_dims[2 + axis];
    int64_t stride = conv->stride[axis], dilation = conv->dilation[axis], pad = conv->pad_before[axis];
    for (int64_t i = 0; i < positions && !problem->position_in_padding; i++)
        problem->position_in_padding = misses(i * stride - pad, dilation, taps, size);
    for (int64_t i = 0; i < taps && !problem->tap_in_padding; i++)
        problem->tap_in_padding = misses(i * dilation - pad, stride, positions, size);
}

tc_status onednn_problem_make(const tc_conv *conv, onednn_problem *problem)
{
    memset(problem, 0, sizeof *problem);
    if (conv->compute_dtype != TC_F32 || !convert_dtype(conv->x_dtype, &problem->tensors[ONEDNN_X].dtype) ||
        !convert_dtype(conv->w_dtype, &problem->tensors[ONEDNN_W].dtype) ||
        !convert_dtype(conv->y_dtype, &problem->tensors[ONEDNN_Y].dtype))
        return tc_fail(TC_UNSUPPORTED, "oneDNN convolves float32, bfloat16 and float16 on CPUs and accumulates in "
                       "float32, not float64");
    problem->direction = (tc_direction)conv->direction;
    problem->spatial_rank = conv->spatial_rank;
    problem->channels_last = conv->x_layout == TC_CHANNELS_LAST && conv->y_layout == TC_CHANNELS_LAST;
    problem->pointwise = 1;
    make_data(conv->x_dims, conv->x_layout, conv->spatial_rank, &problem->tensors[ONEDNN_X]);
    make_data(conv->y_dims, conv->y_layout, conv->spatial_rank, &problem->tensors[ONEDNN_Y]);
    make_filter(conv, &problem->tensors[ONEDNN_W]);
    for (int i = 0; i < conv->spatial_rank; i++) {
        problem->strides[i] = conv->stride[i];
        problem->dilations[i] = conv->dilation[i] - 1; /* oneDNN counts the gaps */
        problem->pad_before[i] = conv->pad_before[i];
        problem->pad_after[i] = conv->pad_after[i];
        problem->pointwise &= conv->w_dims[2 + i] == 1;
        problem->strided |= conv->stride[i] > 1;
        find_padding(conv, i, problem);
    }
    return TC_OK;
}

tc_status onednn_tensor_describe(const onednn_engine *engine, const onednn_tensor *tensor, int any,
                                 dnnl_memory_desc_t *desc)
{
    const onednn_library *lib = &engine->library;
    dnnl_status_t status =
        any ? lib->memory_desc_create_with_tag(desc, tensor->ndims, tensor->dims, tensor->dtype, dnnl_format_tag_any)
            : lib->memory_desc_create_with_strides(desc, tensor->ndims, tensor->dims, tensor->dtype, tensor->strides);
    return onednn_check(status, "describe a tensor");
}

static dnnl_status_t create(const onednn_engine *engine, const onednn_problem *p, dnnl_memory_desc_t *tensors,
                            dnnl_primitive_desc_t *desc)
{
    const onednn_library *lib = &engine->library;
    dnnl_memory_desc_t x = tensors[ONEDNN_X], w = tensors[ONEDNN_W], y = tensors[ONEDNN_Y];
    switch (p->direction) {
    case TC_FORWARD:
        return lib->convolution_forward_primitive_desc_create(
            desc, engine->cpu, dnnl_forward_training, dnnl_convolution_direct, x, w, NULL, y, p->strides, p->dilations,
            p->pad_before, p->pad_after, engine->attributes);
    case TC_BACKWARD_DATA:
        return lib->convolution_backward_data_primitive_desc_create(
            desc, engine->cpu, dnnl_convolution_direct, x, w, y, p->strides, p->dilations, p->pad_before, p->pad_after,
            NULL, engine->attributes);
    default:
        return lib->convolution_backward_weights_primitive_desc_create(
            desc, engine->cpu, dnnl_convolution_direct, x, w, NULL, y, p->strides, p->dilations, p->pad_before,
            p->pad_after, NULL, engine->attributes);
    }
}

tc_status onednn_problem_describe(const onednn_engine *engine, const onednn_problem *problem,
                                  onednn_freedom freedom, dnnl_primitive_desc_t *desc)
{
    dnnl_memory_desc_t tensors[ONEDNN_OPERANDS] = {NULL};
    tc_status status = TC_OK;
    for (int i = 0; i < ONEDNN_OPERANDS && status == TC_OK; i++)
        status = onednn_tensor_describe(engine, &problem->tensors[i], (freedom >> i) & 1, &tensors[i]);
    if (status == TC_OK)
        status = onednn_check(create(engine, problem, tensors, desc), "find an implementation of this convolution");
    for (int i = 0; i < ONEDNN_OPERANDS; i++)
        if (tensors[i])
            engine->library.memory_desc_destroy(tensors[i]);
    return status;
}

const_dnnl_memory_desc_t onednn_operand_desc(const onednn_engine *engine, tc_direction direction,
                                             const_dnnl_primitive_desc_t desc, int operand)
{
    static const dnnl_query_t queries[][ONEDNN_OPERANDS] = {
        [TC_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [TC_BACKWARD_DATA] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        [TC_BACKWARD_FILTER] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
    };
    return engine->library.primitive_desc_query_md(desc, queries[direction][operand], 0);
}

int onednn_operand_argument(tc_direction direction, int operand)
{
    static const int arguments[][ONEDNN_OPERANDS] = {
        [TC_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [TC_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [TC_BACKWARD_FILTER] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    return arguments[direction][operand];
}

int onednn_output(tc_direction direction)
{
    static const int outputs[] = {
        [TC_FORWARD] = ONEDNN_Y, [TC_BACKWARD_DATA] = ONEDNN_X, [TC_BACKWARD_FILTER] = ONEDNN_W};
    return outputs[direction];
}

#endif
