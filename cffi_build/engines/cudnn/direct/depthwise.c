/* The family of the kernels of depthwise.cu. */
#include <stdio.h>

#include "depthwise_map.h"
#include "depthwise_ptx.h"
#include "families.h"
#include "problem.h"

enum { DTYPES_COUNT = 3, KERNELS = 3 };

static const int SIZES[KERNELS] = {3, 5, 7};
static const int32_t DTYPES[DTYPES_COUNT] = {TC_F16, TC_BF16, TC_F32};
static const char *const DTYPE_NAMES[DTYPES_COUNT] = {"f16", "bf16", "f32"};

/* Place in the tables above; -1: there is none. */
static int kernel_place(const tc_conv *conv)
{
    for (int k = 0; k < KERNELS; k++)
        if (conv->w_dims[2] == SIZES[k] && conv->w_dims[3] == SIZES[k])
            return k;
    return -1;
}

static int dtype_place(const tc_conv *conv)
{
    for (int d = 0; d < DTYPES_COUNT; d++)
        if (conv->x_dtype == DTYPES[d] && conv->w_dtype == DTYPES[d] && conv->y_dtype == DTYPES[d])
            return d;
    return -1;
}

/* The largest number of channel pairs that divides them evenly, as far as a block can take them. */
static uint32_t pairs_of_block(int64_t pairs)
{
    for (int64_t n = TC_DEPTHWISE_PAIRS; n > TC_DEPTHWISE_PAIRS / 4; n--)
        if (pairs % n == 0)
            return (uint32_t)n;
    return (uint32_t)(pairs < TC_DEPTHWISE_PAIRS ? pairs : TC_DEPTHWISE_PAIRS / 2);
}

static tc_depthwise_map map_of(const tc_conv *conv)
{
    int turned = conv->direction == TC_BACKWARD_DATA;
    const int64_t *in = turned ? conv->y_dims : conv->x_dims, *out = turned ? conv->x_dims : conv->y_dims;
    int64_t strides[TC_MAX_DIMS];
    tc_filter_strides(conv->w_dims, conv->spatial_rank, conv->w_layout, strides);
    tc_depthwise_map map = {.batch = (uint32_t)in[0],
                            .channels = (uint32_t)in[1],
                            .stride_channel = strides[0],
                            .turned = (uint32_t)turned,
                            .pairs = pairs_of_block(in[1] / 2)};
    for (int axis = 0; axis < 2; axis++) {
        map.in[axis] = (uint32_t)in[2 + axis];
        map.out[axis] = (uint32_t)out[2 + axis];
        int64_t before = conv->pad_before[axis];
        map.pad[axis] = (int32_t)(turned ? conv->w_dims[2 + axis] - 1 - before : before);
        map.stride_tap[axis] = strides[2 + axis];
    }
    map.strips = TC_DEPTHWISE_THREADS / map.pairs;
    return map;
}

static int64_t blocks_of(const tc_depthwise_map *map)
{
    int64_t down = tc_divide_up(map->out[0], TC_DEPTHWISE_ROWS), across = tc_divide_up(map->out[1], TC_DEPTHWISE_COLUMNS);
    return tc_divide_up(map->batch * down * across, map->strips) * tc_divide_up(map->channels / 2, map->pairs);
}

static int settings(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS])
{
    (void)multiprocessors;
    (void)values;
    int64_t channels = conv->groups;
    if (conv->direction == TC_BACKWARD_FILTER || conv->spatial_rank != 2 || channels % 2 || channels < 2 ||
        conv->x_dims[1] != channels || conv->y_dims[1] != channels || kernel_place(conv) < 0 ||
        dtype_place(conv) < 0 || conv->x_layout != TC_CHANNELS_LAST || conv->y_layout != TC_CHANNELS_LAST)
        return 0;
    for (int axis = 0; axis < 2; axis++)
        if (conv->stride[axis] != 1 || conv->dilation[axis] != 1 || conv->x_dims[2 + axis] > INT32_MAX / 2 ||
            conv->pad_before[axis] > INT32_MAX / 4)
            return 0;
    tc_depthwise_map map = map_of(conv);
    return conv->x_dims[0] <= INT32_MAX && blocks_of(&map) * map.strips <= INT32_MAX;
}

static tc_status prepare(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan)
{
    (void)value;
    tc_depthwise_map *map = (tc_depthwise_map *)plan->state;
    _Static_assert(sizeof *map <= TC_DIRECT_STATE, "the map fits into the plan");
    *map = map_of(conv);
    char name[64];
    snprintf(name, sizeof name, "tc_depthwise_%s_%d", DTYPE_NAMES[dtype_place(conv)], SIZES[kernel_place(conv)]);
    return tc_device_function(device, tc_depthwise_ptx, name, &plan->functions[0]);
}

static tc_status run(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    (void)workspace;
    const tc_depthwise_map *map = (const tc_depthwise_map *)plan->state;
    void *in = map->turned ? operands->y : operands->x, *out = map->turned ? operands->x : operands->y;
    void *filter = operands->w;
    void *arguments[] = {&in, &filter, &out, (void *)map};
    return tc_direct_launch(plan, 0, blocks_of(map), map->pairs * map->strips, stream, arguments);
}

const tc_direct_family tc_depthwise_family = {
    .name = "cuda:depthwise", .compute = 70, .settings = settings, .prepare = prepare, .run = run};
