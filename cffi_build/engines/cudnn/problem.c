/* Rewriting a convolution, and the conversions that this takes. */
#include "problem.h"

#include <string.h>

/* ---- strides --------------------------------------------------------------------------------------------- */

static void dense_strides(const int64_t *dims, const int *order, int count, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = count - 1; i >= 0; i--) {
        strides[order[i]] = stride;
        stride *= dims[order[i]];
    }
}

void tc_activation_strides(const int64_t *dims, int32_t rank, int32_t layout, int64_t *strides)
{
    int order[TC_MAX_DIMS] = {0}, count = 1;
    if (layout == TC_CHANNELS_FIRST)
        order[count++] = 1;
    for (int axis = 0; axis < rank; axis++)
        order[count++] = 2 + axis;
    if (layout == TC_CHANNELS_LAST)
        order[count++] = 1;
    dense_strides(dims, order, count, strides);
}

void tc_filter_strides(const int64_t *dims, int32_t rank, int32_t filter_layout, int64_t *strides)
{
    int order[TC_MAX_DIMS], count = 0;
    if (filter_layout != TC_HWIO)
        order[count++] = 0;
    if (filter_layout == TC_OIHW)
        order[count++] = 1;
    for (int axis = 0; axis < rank; axis++)
        order[count++] = 2 + axis;
    if (filter_layout != TC_OIHW)
        order[count++] = 1;
    if (filter_layout == TC_HWIO)
        order[count++] = 0;
    dense_strides(dims, order, count, strides);
}

/* ---- the rewritten convolution --------------------------------------------------------------------------- */

/* What is done along each axis: without folding, fold is 1 and offset 0; without written-out zeros, before is 0. */
typedef struct folding {
    int64_t fold[TC_MAX_SPATIAL], offset[TC_MAX_SPATIAL], before[TC_MAX_SPATIAL];
    int64_t positions; /* product of fold */
} folding;

/* Far beyond any memory, and products of sizes stay far from overflow. */
static const int64_t MOST_ELEMENTS = INT64_C(1) << 44;

/* Zeros around x become part of it. How many is the convolution's to say, so a name cannot make x any larger. */
static tc_status write_out_padding(tc_conv *c, folding *f)
{
    int64_t written = 0, elements = c->x_dims[0] * c->x_dims[1];
    for (int axis = 0; axis < c->spatial_rank; axis++) {
        int64_t zeros = c->pad_before[axis] + c->pad_after[axis];
        f->before[axis] = c->pad_before[axis];
        c->x_dims[2 + axis] += zeros;
        c->pad_before[axis] = c->pad_after[axis] = 0;
        written += zeros;
        if (__builtin_mul_overflow(elements, c->x_dims[2 + axis], &elements) || elements > MOST_ELEMENTS)
            return tc_fail(TC_UNSUPPORTED, "the tensor is too large to be copied with the zeros around it");
    }
    if (written == 0)
        return tc_fail(TC_UNSUPPORTED, "this convolution has no padding to write out");
    return TC_OK;
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/*
 * y[q] = sum over t of x[s q + t - before] w[t]. With position s q' + r of x folded into channel r of position
 * q', tap u of the new filter reaches position q' = q + first + u, that is t = r + s u + (before + s first).
 */
static tc_status fold_axis(tc_conv *c, int axis, folding *f)
{
    int64_t s = c->stride[axis], before = c->pad_before[axis], taps = c->w_dims[2 + axis];
    int64_t first = floor_divide(-before, s), last = floor_divide(taps - 1 - before, s);
    int64_t size = (c->x_dims[2 + axis] + s - 1) / s;
    int64_t after = c->y_dims[2 + axis] - size + last;
    if (after < 0) { /* positions at the end that no tap reaches */
        size += after;
        after = 0;
    }
    if (c->dilation[axis] != 1 || size < 1)
        return tc_fail(TC_UNSUPPORTED, "strides of this convolution cannot be folded into channels");
    f->fold[axis] = s;
    f->offset[axis] = before + s * first;
    c->x_dims[2 + axis] = size;
    c->w_dims[2 + axis] = last - first + 1;
    c->pad_before[axis] = -first;
    c->pad_after[axis] = after;
    c->stride[axis] = 1;
    return TC_OK;
}

static tc_status fold_strides(tc_conv *c, const tc_rewrite *rewrite, folding *f)
{
    for (int axis = 0; axis < c->spatial_rank; axis++) {
        f->fold[axis] = 1;
        f->offset[axis] = 0;
        if (rewrite->fold && c->stride[axis] > 1) {
            tc_status status = fold_axis(c, axis, f);
            if (status != TC_OK)
                return status;
        }
        f->positions *= f->fold[axis];
    }
    if (rewrite->fold && f->positions == 1)
        return tc_fail(TC_UNSUPPORTED, "this convolution has no strides to fold");
    c->w_dims[1] *= f->positions;
    c->x_dims[1] *= f->positions;
    return TC_OK;
}

static tc_status pad_channels(tc_conv *c, int64_t channels)
{
    if (!channels)
        return TC_OK;
    /* No more than a multiple of 8 asks for: a file must not make tensors of any size. */
    if (channels <= c->w_dims[1] || channels >= c->w_dims[1] + 8)
        return tc_fail(TC_UNSUPPORTED, "%lld channels are not a padding of %lld", (long long)channels,
                       (long long)c->w_dims[1]);
    c->w_dims[1] = channels;
    c->x_dims[1] = channels * c->groups;
    return TC_OK;
}

static void swap_dims(int64_t *a, int64_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

/* x and y change places; the filter is that of the adjoint. */
static tc_status swap_roles(tc_conv *c)
{
    for (int axis = 0; axis < c->spatial_rank; axis++) {
        int64_t reach = c->dilation[axis] * (c->w_dims[2 + axis] - 1);
        if (c->stride[axis] != 1 || c->pad_before[axis] > reach || c->pad_after[axis] > reach)
            return tc_fail(TC_UNSUPPORTED, "input and output of this convolution cannot change roles");
        c->pad_before[axis] = reach - c->pad_before[axis];
        c->pad_after[axis] = reach - c->pad_after[axis];
    }
    swap_dims(c->x_dims, c->y_dims, TC_MAX_DIMS);
    c->w_dims[0] = c->y_dims[1];
    c->w_dims[1] = c->x_dims[1] / c->groups;
    int32_t dtype = c->x_dtype;
    c->x_dtype = c->y_dtype;
    c->y_dtype = dtype;
    if (c->direction == TC_FORWARD)
        c->direction = TC_BACKWARD_DATA;
    else if (c->direction == TC_BACKWARD_DATA)
        c->direction = TC_FORWARD;
    return TC_OK;
}

/* ---- conversions ----------------------------------------------------------------------------------------- */

/* Places of the spatial axes in arrays of three: the last ones, so that the innermost is always [2]. */
static int place(const tc_conv *c, int axis)
{
    return axis + TC_MAX_SPATIAL - c->spatial_rank;
}

static tc_status check(tc_conversion *conversion)
{
    return conversion->active ? tc_conversion_check(conversion) : TC_OK;
}

/* `from_problem`: the tensor is the one that is computed. */
static tc_status convert_layout(tc_conversion *conversion, const int64_t *dims, int32_t rank, int32_t dtype,
                                int32_t caller, int32_t problem, int from_problem)
{
    int64_t positions = 1;
    for (int axis = 0; axis < rank; axis++)
        positions *= dims[2 + axis];
    if (caller == problem || positions == 1 || dims[1] == 1)
        return TC_OK;
    int32_t source = from_problem ? problem : caller;
    if (dims[0] > UINT32_MAX || dims[1] > UINT32_MAX || positions > UINT32_MAX)
        return tc_fail(TC_UNSUPPORTED, "the tensor is too large to be converted");
    conversion->active = 1;
    conversion->kernel = TC_KERNEL_TRANSPOSE;
    conversion->bytes = (uint32_t)tc_dtype_size(dtype);
    conversion->map.transpose = (tc_transpose_map){
        .batch = (uint32_t)dims[0],
        .rows = (uint32_t)(source == TC_CHANNELS_LAST ? positions : dims[1]),
        .columns = (uint32_t)(source == TC_CHANNELS_LAST ? dims[1] : positions),
    };
    return check(conversion);
}

/* The caller's x to the problem's, or back, where more than the layout differs: that one is channels-last. */
static tc_status convert_input(tc_conversion *conversion, const tc_conv *caller, const tc_conv *folded,
                               const folding *f)
{
    tc_activation_map *map = &conversion->map.activation;
    int64_t strides[TC_MAX_DIMS];
    tc_activation_strides(caller->x_dims, caller->spatial_rank, caller->x_layout, strides);
    conversion->active = 1;
    conversion->kernel =
        caller->direction == TC_BACKWARD_DATA ? TC_KERNEL_UNPACK_ACTIVATION : TC_KERNEL_PACK_ACTIVATION;
    conversion->bytes = (uint32_t)tc_dtype_size(caller->x_dtype);
    *map = (tc_activation_map){
        .stride_n = strides[0],
        .stride_c = strides[1],
        .batch = (uint32_t)caller->x_dims[0],
        .size = {1, 1, 1},
        .folded = {1, 1, 1},
        .fold = {1, 1, 1},
        .groups = (uint32_t)caller->groups,
        .channels = (uint32_t)caller->w_dims[1],
        .padded = (uint32_t)folded->w_dims[1],
    };
    for (int axis = 0; axis < caller->spatial_rank; axis++) {
        int at = place(caller, axis);
        map->stride[at] = strides[2 + axis];
        map->before[at] = (uint32_t)f->before[axis];
        map->size[at] = (uint32_t)caller->x_dims[2 + axis];
        map->folded[at] = (uint32_t)folded->x_dims[2 + axis];
        map->fold[at] = (uint32_t)f->fold[axis];
    }
    return check(conversion);
}

/* Whether the caller's filter, element by element, lies in memory as the problem's does. */
static int same_filter(const tc_conv *caller, const tc_conv *problem, const folding *f, int padded, int swapped)
{
    int64_t from[TC_MAX_DIMS], to[TC_MAX_DIMS];
    if (f->positions > 1 || padded || (swapped && caller->groups > 1))
        return 0;
    tc_filter_strides(caller->w_dims, caller->spatial_rank, caller->w_layout, from);
    tc_filter_strides(problem->w_dims, problem->spatial_rank, problem->w_layout, to);
    if (swapped)
        swap_dims(&from[0], &from[1], 1);
    for (int i = 0; i < 2 + problem->spatial_rank; i++)
        if (problem->w_dims[i] > 1 && (from[i] != to[i] || (swapped && i >= 2)))
            return 0;
    return 1;
}

static void map_filter(tc_filter_map *map, const tc_conv *caller, const tc_conv *folded, const tc_conv *problem,
                       const folding *f, int swapped)
{
    int64_t strides[TC_MAX_DIMS];
    tc_filter_strides(caller->w_dims, caller->spatial_rank, caller->w_layout, strides);
    *map = (tc_filter_map){
        .stride_o = strides[0],
        .stride_i = strides[1],
        .outputs = (uint32_t)(caller->w_dims[0] / caller->groups),
        .channels = (uint32_t)caller->w_dims[1],
        .taps = {1, 1, 1},
        .groups = (uint32_t)caller->groups,
        .problem_outputs = (uint32_t)problem->w_dims[0],
        .problem_channels = (uint32_t)problem->w_dims[1],
        .problem_taps = {1, 1, 1},
        .padded = (uint32_t)folded->w_dims[1],
        .fold = {1, 1, 1},
        .swapped = (uint32_t)swapped,
        .channels_last = problem->w_layout == TC_OHWI,
    };
    for (int axis = 0; axis < caller->spatial_rank; axis++) {
        int at = place(caller, axis);
        map->stride[at] = strides[2 + axis];
        map->taps[at] = (uint32_t)caller->w_dims[2 + axis];
        map->problem_taps[at] = (uint32_t)problem->w_dims[2 + axis];
        map->fold[at] = (uint32_t)f->fold[axis];
        map->offset[at] = (int32_t)f->offset[axis];
    }
}

static tc_status convert_filter(tc_conversion *conversion, const tc_conv *caller, const tc_conv *folded,
                                const tc_conv *problem, const folding *f, const tc_rewrite *rewrite)
{
    int computed = caller->direction == TC_BACKWARD_FILTER;
    if (same_filter(caller, problem, f, rewrite->channels != 0, rewrite->swapped))
        return TC_OK;
    conversion->active = 1;
    conversion->bytes = (uint32_t)tc_dtype_size(caller->w_dtype);
    if (caller->w_layout == TC_HWIO && problem->w_layout == TC_OHWI && f->positions == 1 && !rewrite->channels &&
        !rewrite->swapped) {
        /* A matrix turned over: the quickest of the kernels does it. */
        uint32_t outputs = (uint32_t)caller->w_dims[0];
        uint32_t inner = (uint32_t)(tc_elements(caller->w_dims, caller->spatial_rank) / caller->w_dims[0]);
        conversion->kernel = TC_KERNEL_TRANSPOSE;
        conversion->map.transpose = (tc_transpose_map){
            .batch = 1, .rows = computed ? outputs : inner, .columns = computed ? inner : outputs};
        return check(conversion);
    }
    conversion->kernel = computed ? TC_KERNEL_UNPACK_FILTER : TC_KERNEL_PACK_FILTER;
    map_filter(&conversion->map.filter, caller, folded, problem, f, rewrite->swapped);
    return check(conversion);
}

/* ---- the whole ------------------------------------------------------------------------------------------- */

/* cuDNN and the maps count in 32 bits along an axis. */
static tc_status check_sizes(const tc_conv *c)
{
    for (int i = 0; i < 2 + c->spatial_rank; i++)
        if (c->x_dims[i] > INT32_MAX || c->w_dims[i] > INT32_MAX || c->y_dims[i] > INT32_MAX)
            return tc_fail(TC_UNSUPPORTED, "cuDNN takes at most %d along an axis, and one here is longer", INT32_MAX);
    return TC_OK;
}

tc_status tc_problem_make(const tc_conv *conv, const tc_rewrite *rewrite, tc_problem *problem)
{
    folding f = {.positions = 1};
    memset(problem, 0, sizeof *problem);
    problem->conv = *conv;
    problem->swapped = rewrite->swapped;
    tc_conv *c = &problem->conv;
    int reshaped = rewrite->fold || rewrite->channels || rewrite->explicit_padding;
    if (reshaped && rewrite->other_layout)
        return tc_fail(TC_UNSUPPORTED, "folded and padded tensors are always channels-last");
    int32_t layout = rewrite->other_layout ? (conv->x_layout == TC_CHANNELS_LAST ? TC_CHANNELS_FIRST : TC_CHANNELS_LAST)
                                           : conv->x_layout;
    if (reshaped)
        layout = TC_CHANNELS_LAST;

    tc_status status = check_sizes(conv);
    if (status == TC_OK && rewrite->explicit_padding)
        status = write_out_padding(c, &f);
    if (status == TC_OK)
        status = check_sizes(c); /* before the maps count them */
    if (status == TC_OK)
        status = fold_strides(c, rewrite, &f);
    if (status == TC_OK)
        status = pad_channels(c, rewrite->channels);
    tc_conv folded = *c;
    if (status == TC_OK)
        status = check_sizes(c);
    if (status == TC_OK && rewrite->swapped)
        status = swap_roles(c);
    if (status != TC_OK)
        return status;

    c->x_layout = c->y_layout = layout;
    c->w_layout = layout == TC_CHANNELS_LAST ? TC_OHWI : TC_OIHW;
    if (reshaped)
        status = convert_input(&problem->x, conv, &folded, &f);
    else
        status = convert_layout(&problem->x, conv->x_dims, conv->spatial_rank, conv->x_dtype, conv->x_layout, layout,
                                conv->direction == TC_BACKWARD_DATA);
    if (status == TC_OK)
        status = convert_layout(&problem->y, conv->y_dims, conv->spatial_rank, conv->y_dtype, conv->y_layout, layout,
                                conv->direction == TC_FORWARD);
    if (status == TC_OK)
        status = convert_filter(&problem->w, conv, &folded, c, &f, rewrite);
    return status;
}
