/* The operation graph of one convolution. */
#include "graph.h"

#include <string.h>

#include "descriptors.h"
#include "problem.h"

static int data_type(int32_t dtype)
{
    switch (dtype) {
    case TC_F16: return CUDNN_DATA_HALF;
    case TC_BF16: return CUDNN_DATA_BFLOAT16;
    case TC_F64: return CUDNN_DATA_DOUBLE;
    default: return CUDNN_DATA_FLOAT;
    }
}

/* cuDNN has no convolution with a single spatial axis: it gets one of size 1 before it. */
static int widen(int64_t *values, int rank, int first_spatial, int64_t filler)
{
    if (rank > 1)
        return rank;
    values[first_spatial + 1] = values[first_spatial];
    values[first_spatial] = filler;
    return 2;
}

static cudnnBackendDescriptor_t make_tensor(tc_builder *b, int64_t uid, int32_t dtype, const int64_t *dims,
                                            const int64_t *strides, int rank)
{
    int64_t wide_dims[TC_MAX_DIMS], wide_strides[TC_MAX_DIMS];
    memcpy(wide_dims, dims, sizeof wide_dims);
    memcpy(wide_strides, strides, sizeof wide_strides);
    int wide = widen(wide_dims, rank, 2, 1);
    widen(wide_strides, rank, 2, strides[2] * dims[2]);
    cudnnBackendDescriptor_t tensor = tc_build_create(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tc_build_set_int64(b, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    tc_build_set_int(b, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(dtype));
    tc_build_set(b, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2 + wide, wide_dims);
    tc_build_set(b, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 2 + wide, wide_strides);
    tc_build_set_int64(b, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, TC_TENSOR_ALIGNMENT);
    tc_build_finalize(b, tensor);
    return tensor;
}

static void set_spatial(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        const int64_t *values, int rank, int64_t filler)
{
    int64_t wide[TC_MAX_SPATIAL];
    memcpy(wide, values, sizeof wide);
    tc_build_set(b, descriptor, name, CUDNN_TYPE_INT64, widen(wide, rank, 0, filler), wide);
}

static cudnnBackendDescriptor_t make_convolution(tc_builder *b, const tc_conv *conv)
{
    int rank = conv->spatial_rank;
    cudnnBackendDescriptor_t c = tc_build_create(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    tc_build_set_int(b, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(conv->compute_dtype));
    tc_build_set_int(b, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    tc_build_set_int64(b, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, rank > 1 ? rank : 2);
    set_spatial(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, conv->pad_before, rank, 0);
    set_spatial(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, conv->pad_after, rank, 0);
    set_spatial(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, conv->dilation, rank, 1);
    set_spatial(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, conv->stride, rank, 1);
    tc_build_finalize(b, c);
    return c;
}

/* The operation's descriptor and attributes, by direction. */
static const struct {
    int descriptor, convolution, x, w, y, alpha, beta;
} OPERATIONS[] = {
    [TC_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [TC_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [TC_BACKWARD_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t make_operation(tc_builder *b, const tc_conv *conv, const tc_graph *graph)
{
    const double one = 1.0, zero = 0.0;
    const float one_f = 1.0f, zero_f = 0.0f;
    int is_double = conv->compute_dtype == TC_F64;
    int type = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    cudnnBackendDescriptor_t o = tc_build_create(b, OPERATIONS[conv->direction].descriptor);
    tc_build_set_descriptor(b, o, OPERATIONS[conv->direction].convolution, graph->convolution);
    tc_build_set_descriptor(b, o, OPERATIONS[conv->direction].x, graph->x);
    tc_build_set_descriptor(b, o, OPERATIONS[conv->direction].w, graph->w);
    tc_build_set_descriptor(b, o, OPERATIONS[conv->direction].y, graph->y);
    tc_build_set(b, o, OPERATIONS[conv->direction].alpha, type, 1, is_double ? (const void *)&one : &one_f);
    tc_build_set(b, o, OPERATIONS[conv->direction].beta, type, 1, is_double ? (const void *)&zero : &zero_f);
    tc_build_finalize(b, o);
    return o;
}

tc_status tc_graph_make(const tc_cudnn_library *library, cudnnHandle_t handle, const tc_conv *conv, tc_graph *graph)
{
    tc_builder b = {.library = library};
    int64_t strides[TC_MAX_DIMS];
    int rank = conv->spatial_rank;
    *graph = (tc_graph){.library = library, .handle = handle};
    tc_activation_strides(conv->x_dims, rank, conv->x_layout, strides);
    graph->x = make_tensor(&b, TC_UID_X, conv->x_dtype, conv->x_dims, strides, rank);
    tc_filter_strides(conv->w_dims, rank, conv->w_layout, strides);
    graph->w = make_tensor(&b, TC_UID_W, conv->w_dtype, conv->w_dims, strides, rank);
    tc_activation_strides(conv->y_dims, rank, conv->y_layout, strides);
    graph->y = make_tensor(&b, TC_UID_Y, conv->y_dtype, conv->y_dims, strides, rank);
    graph->convolution = make_convolution(&b, conv);
    graph->operation = make_operation(&b, conv, graph);
    graph->graph = tc_build_create(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    tc_build_set(&b, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    tc_build_set_descriptor(&b, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, graph->operation);
    tc_build_finalize(&b, graph->graph);
    if (b.status == CUDNN_STATUS_SUCCESS)
        return TC_OK;
    tc_status status = tc_cudnn_fail(library, b.status, "describing the convolution");
    tc_graph_destroy(graph);
    /* A shape that cuDNN's checks refuse is no fault of the library. */
    return b.status / 1000 == CUDNN_STATUS_BAD_PARAM / 1000 ? TC_UNSUPPORTED : status;
}

void tc_graph_destroy(tc_graph *graph)
{
    tc_build_destroy(graph->library, &graph->graph);
    tc_build_destroy(graph->library, &graph->operation);
    tc_build_destroy(graph->library, &graph->convolution);
    tc_build_destroy(graph->library, &graph->x);
    tc_build_destroy(graph->library, &graph->w);
    tc_build_destroy(graph->library, &graph->y);
}
