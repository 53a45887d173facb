/* The family of the kernels of grouped_filter.cu. */
#include <stdio.h>
#include <string.h>

#include "families.h"
#include "grouped_filter_map.h"
#include "grouped_filter_ptx.h"
#include "problem.h"

/* A kernel as its names have it: dtype, size, stride, and channels of a group from 16 on. */
typedef struct variant {
    const char *name, *ptx;
} variant;

#define VARIANT(NAME) {#NAME, tc_grouped_filter_##NAME##_ptx}
#define VARIANTS(DTYPE)                                                                                              \
    VARIANT(DTYPE##_3_1), VARIANT(DTYPE##_3_2), VARIANT(DTYPE##_5_1), VARIANT(DTYPE##_5_2), VARIANT(DTYPE##_7_1),    \
        VARIANT(DTYPE##_7_2), VARIANT(DTYPE##_3_1_16), VARIANT(DTYPE##_3_2_16), VARIANT(DTYPE##_3_1_32),             \
        VARIANT(DTYPE##_3_2_32)
static const variant TABLE[] = {VARIANTS(f16), VARIANTS(bf16)};
enum { VARIANT_COUNT = sizeof TABLE / sizeof *TABLE };

static const char *dtype_of(const tc_conv *conv)
{
    if (conv->w_dtype != conv->x_dtype || conv->y_dtype != conv->x_dtype)
        return NULL;
    return conv->x_dtype == TC_F16 ? "f16" : conv->x_dtype == TC_BF16 ? "bf16" : NULL;
}

/* NULL: there is none. */
static const variant *variant_of(const tc_conv *conv)
{
    const char *dtype = dtype_of(conv);
    int64_t group = conv->w_dims[1];
    if (!dtype || conv->w_dims[2] != conv->w_dims[3] || conv->stride[0] != conv->stride[1] || group < 1 ||
        group > 32 || (group & (group - 1)))
        return NULL;
    char name[64], suffix[8] = "";
    if (group > 8)
        snprintf(suffix, sizeof suffix, "_%d", (int)group);
    int length = snprintf(name, sizeof name, "%s_%lld_%lld%s", dtype, (long long)conv->w_dims[2],
                          (long long)conv->stride[0], suffix);
    for (int i = 0; i < VARIANT_COUNT && length < (int)sizeof name; i++)
        if (!strcmp(TABLE[i].name, name))
            return &TABLE[i];
    return NULL;
}

static int64_t strips_across(const tc_conv *conv)
{
    return tc_divide_up(conv->y_dims[3], TC_GROUPED_FILTER_STRIP);
}

/* Rows of all pairs of strips. */
static int64_t rows_of(const tc_conv *conv)
{
    return tc_divide_up(conv->y_dims[0] * strips_across(conv), 2) * conv->y_dims[2];
}

static int64_t sets_of(const tc_conv *conv)
{
    return tc_divide_up(conv->x_dims[1], 8 * TC_GROUPED_FILTER_CHUNKS);
}

static int64_t elements_of(const tc_conv *conv)
{
    return conv->w_dims[0] * conv->w_dims[1] * conv->w_dims[2] * conv->w_dims[3];
}

static int computes(const tc_conv *conv)
{
    int64_t channels = conv->x_dims[1];
    if (conv->direction != TC_BACKWARD_FILTER || conv->spatial_rank != 2 || conv->x_layout != TC_CHANNELS_LAST ||
        conv->y_layout != TC_CHANNELS_LAST || conv->y_dims[1] != channels || channels % 8 || !variant_of(conv))
        return 0;
    for (int axis = 0; axis < 2; axis++)
        if (conv->dilation[axis] != 1 || conv->x_dims[2 + axis] > INT32_MAX / 4 ||
            conv->y_dims[2 + axis] > INT32_MAX / 4 || conv->pad_before[axis] > INT32_MAX / 8)
            return 0;
    int64_t x_size = conv->x_dims[0] * channels * conv->x_dims[2] * conv->x_dims[3];
    int64_t y_size = conv->y_dims[0] * channels * conv->y_dims[2] * conv->y_dims[3];
    return conv->x_dims[0] <= INT32_MAX && channels <= INT32_MAX / (32 * 49) && x_size / 8 <= UINT32_MAX &&
           y_size / 8 <= UINT32_MAX &&
           conv->x_dims[0] * strips_across(conv) < INT32_MAX && rows_of(conv) <= INT32_MAX;
}

/* Numbers of slices: for so many blocks on each multiprocessor, and no more than rows. */
static int settings(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS])
{
    static const int BLOCKS[] = {3, 4, 6, 2, 1, 8, 12};
    if (!computes(conv))
        return 0;
    int count = 0;
    for (size_t i = 0; i < sizeof BLOCKS / sizeof *BLOCKS; i++) {
        int64_t slices = (int64_t)BLOCKS[i] * multiprocessors / sets_of(conv), rows = rows_of(conv);
        slices = slices > rows ? rows : slices;
        slices = slices < 1 ? 1 : slices;
        int known = 0;
        for (int j = 0; j < count; j++)
            known |= values[j] == slices;
        if (!known)
            values[count++] = slices;
    }
    return count;
}

static tc_grouped_filter_map map_of(const tc_conv *conv, int64_t slices)
{
    int64_t strides[TC_MAX_DIMS];
    tc_filter_strides(conv->w_dims, conv->spatial_rank, conv->w_layout, strides);
    tc_grouped_filter_map map = {.batch = (uint32_t)conv->x_dims[0],
                                 .channels = (uint32_t)conv->x_dims[1],
                                 .kernel = (uint32_t)conv->w_dims[2],
                                 .group = (uint32_t)conv->w_dims[1],
                                 .across = (uint32_t)strips_across(conv),
                                 .rows = (uint32_t)rows_of(conv),
                                 .slices = (uint32_t)slices,
                                 .sets = (uint32_t)sets_of(conv),
                                 .elements = (uint32_t)elements_of(conv),
                                 .stride_output = strides[0],
                                 .stride_input = strides[1]};
    for (int axis = 0; axis < 2; axis++) {
        map.in[axis] = (uint32_t)conv->x_dims[2 + axis];
        map.out[axis] = (uint32_t)conv->y_dims[2 + axis];
        map.pad[axis] = (int32_t)conv->pad_before[axis];
        map.stride_tap[axis] = strides[2 + axis];
    }
    return map;
}

static tc_status prepare(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan)
{
    tc_grouped_filter_map *map = (tc_grouped_filter_map *)plan->state;
    _Static_assert(sizeof *map <= TC_DIRECT_STATE, "the map fits into the plan");
    *map = map_of(conv, value);
    plan->workspace = sizeof(float) * (size_t)value * map->elements;
    const variant *kernel = variant_of(conv);
    char name[64];
    snprintf(name, sizeof name, "tc_grouped_filter_%s", kernel->name);
    tc_status status = tc_device_function(device, kernel->ptx, name, &plan->functions[0]);
    if (status != TC_OK)
        return status;
    snprintf(name, sizeof name, "tc_grouped_filter_add_%s", dtype_of(conv));
    return tc_device_function(device, kernel->ptx, name, &plan->functions[1]);
}

static tc_status run(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    const tc_grouped_filter_map *map = (const tc_grouped_filter_map *)plan->state;
    void *x = operands->x, *y = operands->y, *w = operands->w;
    void *sum[] = {&x, &y, &workspace, (void *)map};
    tc_status status =
        tc_direct_launch(plan, 0, (int64_t)map->sets * map->slices, TC_GROUPED_FILTER_THREADS, stream, sum);
    if (status != TC_OK)
        return status;
    void *add[] = {&workspace, &w, (void *)map};
    return tc_direct_launch(plan, 1, tc_divide_up(map->elements, TC_GROUPED_FILTER_ELEMENTS),
                            TC_GROUPED_FILTER_PARTS * TC_GROUPED_FILTER_ELEMENTS, stream, add);
}

const tc_direct_family tc_grouped_filter_family = {.name = "cuda:grouped-filter",
                                                   .setting = "slices",
                                                   .compute = 80,
                                                   .settings = settings,
                                                   .prepare = prepare,
                                                   .run = run};
