/* The family of the kernels of few_channels.cu. Its setting is the output rows of a tile. */
#include "families.h"
#include "few_channels.h"
#include "few_channels_ptx.h"
#include "problem.h"

enum { WARPS = TC_FEW_CHANNELS_THREADS / 32, LARGEST_SIZE = 1 << 24, LARGEST_PADDING = 1 << 20, LARGEST_STRIDE = 16 };

/* A kernel, and how many of its blocks a multiprocessor holds. */
typedef struct tc_few_kernel {
    uint32_t rows, units;
    int32_t dtype, resident;
    const char *name, *ptx;
} tc_few_kernel;

#define KERNEL(DTYPE, NAME, ROWS, UNITS)                                                                             \
    {ROWS, UNITS, DTYPE, TC_FEW_CHANNELS_RESIDENT(ROWS, UNITS), "tc_few_channels_" #NAME "_" #ROWS "_" #UNITS,         \
     tc_few_channels_##NAME##_##ROWS##_##UNITS##_ptx},
#define KERNELS_OF_SIZE(ROWS, UNITS) KERNEL(TC_F16, f16, ROWS, UNITS) KERNEL(TC_BF16, bf16, ROWS, UNITS)

static const tc_few_kernel KERNELS[] = {TC_FEW_CHANNELS_SIZES(KERNELS_OF_SIZE)};

/* The kernel of a filter's size, NULL when there is none. */
static const tc_few_kernel *kernel_of(const tc_conv *conv)
{
    int64_t units = (conv->w_dims[3] * conv->w_dims[1] + 7) / 8;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (KERNELS[i].rows == conv->w_dims[2] && KERNELS[i].units == units && KERNELS[i].dtype == conv->x_dtype)
            return &KERNELS[i];
    return NULL;
}

int tc_few_channels_cut(tc_few_channels_map *map, uint32_t shared, uint32_t rows)
{
    uint32_t in_rows = (rows - 1) * map->stride[0] + map->filter_rows;
    uint32_t step = map->stride[1] * map->channels, most = shared / 16 / in_rows;
    /* Elements of a row beyond the first of the last column. */
    const uint32_t beside = 8 * divide_up(map->elements, 8) + 6;
    if (8 * most < beside + 15 * step)
        return 0;
    uint32_t widest = (8 * most - beside) / step + 1;
    widest -= widest % 16;
    map->tile[0] = rows;
    map->tile[1] = (divide_up(map->out[1], divide_up(map->out[1], widest)) + 15) / 16 * 16;
    for (int axis = 0; axis < 2; axis++)
        map->tiles[axis] = divide_up(map->out[axis], map->tile[axis]);
    map->pitch = divide_up((map->tile[1] - 1) * step + beside, 8);
    uint64_t total = (uint64_t)map->batch * map->tiles[0] * map->tiles[1];
    map->total = (uint32_t)total;
    return total <= INT32_MAX / 2;
}

static void share_among_warps(tc_few_channels_map *map, const tc_few_kernel *kernel, int multiprocessors)
{
    uint32_t parts = divide_up(map->outputs, TC_FEW_CHANNELS_OUTPUTS);
    map->groups = divide_up(parts, WARPS);
    map->parts = divide_up(parts, map->groups);
    map->members = WARPS / map->parts;
    uint32_t workers = divide_up((uint32_t)(multiprocessors * kernel->resident), map->groups);
    map->workers = workers < map->total ? workers : map->total;
}

tc_few_channels_map tc_few_channels_map_of(const tc_conv *conv)
{
    tc_few_channels_map map = {.batch = (uint32_t)conv->x_dims[0],
                               .channels = (uint32_t)conv->x_dims[1],
                               .outputs = (uint32_t)conv->y_dims[1],
                               .filter_rows = (uint32_t)conv->w_dims[2],
                               .elements = (uint32_t)(conv->w_dims[3] * conv->w_dims[1])};
    tc_filter_strides(conv->w_dims, conv->spatial_rank, conv->w_layout, map.filter);
    for (int axis = 0; axis < 2; axis++) {
        map.in[axis] = (uint32_t)conv->x_dims[2 + axis];
        map.out[axis] = (uint32_t)conv->y_dims[2 + axis];
        map.pad[axis] = (int32_t)conv->pad_before[axis];
        map.stride[axis] = (uint32_t)conv->stride[axis];
    }
    return map;
}

int tc_few_channels_fit(const tc_conv *conv)
{
    int64_t channels = conv->x_dims[1], outputs = conv->y_dims[1];
    if (conv->spatial_rank != 2 || conv->groups != 1 || channels > 4 || outputs % 8 || outputs > UINT16_MAX ||
        conv->w_dims[2] > 7 || conv->w_dims[3] * channels > 32 ||
        (conv->x_dtype != TC_F16 && conv->x_dtype != TC_BF16) ||
        conv->w_dtype != conv->x_dtype || conv->y_dtype != conv->x_dtype || conv->x_layout != TC_CHANNELS_LAST ||
        conv->y_layout != TC_CHANNELS_LAST || conv->x_dims[0] > INT32_MAX)
        return 0;
    for (int axis = 0; axis < 2; axis++)
        if (conv->dilation[axis] != 1 || conv->stride[axis] > LARGEST_STRIDE ||
            conv->x_dims[2 + axis] > LARGEST_SIZE || conv->pad_before[axis] > LARGEST_PADDING ||
            conv->pad_after[axis] > LARGEST_PADDING)
            return 0;
    return 1;
}

static int settings(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS])
{
    (void)multiprocessors;
    static const uint32_t ROWS[] = {4, 2, 8, 1};
    if (conv->direction != TC_FORWARD || !tc_few_channels_fit(conv) || !kernel_of(conv) ||
        conv->stride[1] * conv->x_dims[1] % 2)
        return 0;
    int count = 0;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        tc_few_channels_map map = tc_few_channels_map_of(conv);
        if (ROWS[i] < 2 * map.out[0] && tc_few_channels_cut(&map, TC_FEW_CHANNELS_SHARED, ROWS[i]))
            values[count++] = ROWS[i];
    }
    return count;
}

static tc_status prepare(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan)
{
    tc_few_channels_map *map = (tc_few_channels_map *)plan->state;
    _Static_assert(sizeof *map <= TC_DIRECT_STATE, "the map fits into the plan");
    const tc_few_kernel *kernel = kernel_of(conv);
    *map = tc_few_channels_map_of(conv);
    tc_few_channels_cut(map, TC_FEW_CHANNELS_SHARED, (uint32_t)value);
    share_among_warps(map, kernel, device->multiprocessors);
    return tc_device_function(device, kernel->ptx, kernel->name, &plan->functions[0]);
}

static tc_status run(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    (void)workspace;
    const tc_few_channels_map *map = (const tc_few_channels_map *)plan->state;
    tc_operands pointers = *operands;
    void *arguments[] = {&pointers.x, &pointers.w, &pointers.y, (void *)map};
    return tc_direct_launch(plan, 0, (int64_t)map->workers * map->groups, 32 * map->parts * map->members, stream,
                            arguments);
}

const tc_direct_family tc_few_channels_family = {.name = "cuda:few-channels",
                                                 .setting = "rows",
                                                 .compute = 80,
                                                 .settings = settings,
                                                 .prepare = prepare,
                                                 .run = run};
