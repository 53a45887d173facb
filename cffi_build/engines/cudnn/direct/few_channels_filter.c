/* The family of the kernels of few_channels_filter.cu. Its setting is the output rows of a tile. */
#include <stdio.h>

#include "families.h"
#include "few_channels.h"
#include "few_channels_filter_ptx.h"

enum { WARPS = TC_FEW_CHANNELS_THREADS / 32 };

/* A kernel: eights of elements of a row; rows of the filter and sixteens of outputs that a warp takes. */
typedef struct kernel_entry {
    uint32_t units, rows, tiles;
    int32_t dtype, resident;
    const char *name, *ptx;
} kernel_entry;

#define KERNEL(DTYPE, NAME, UNITS, ROWS, TILES)                                                                      \
    {UNITS, ROWS, TILES, DTYPE, TC_FEW_CHANNELS_FILTER_RESIDENT(UNITS, ROWS, TILES),                                 \
     #NAME "_" #UNITS "_" #ROWS "_" #TILES, tc_few_channels_filter_##NAME##_##UNITS##_##ROWS##_##TILES##_ptx},
#define KERNELS_OF_SIZE(UNITS, ROWS, TILES) \
    KERNEL(TC_F16, f16, UNITS, ROWS, TILES) KERNEL(TC_BF16, bf16, UNITS, ROWS, TILES)

static const kernel_entry KERNELS[] = {TC_FEW_CHANNELS_FILTER_SIZES(KERNELS_OF_SIZE)};

/* The kernel that takes all outputs in the fewest blocks, with no more to spare than another; NULL: there is none. */
static const kernel_entry *kernel_of(const tc_conv *conv)
{
    int64_t units = (conv->w_dims[3] * conv->w_dims[1] + 7) / 8;
    const kernel_entry *best = NULL;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        const kernel_entry *k = &KERNELS[i];
        uint32_t outputs = (uint32_t)conv->y_dims[1], groups = divide_up(outputs, 16 * k->tiles);
        if (k->units != units || k->dtype != conv->x_dtype || WARPS * k->rows < conv->w_dims[2])
            continue;
        uint32_t fewest = best ? divide_up(outputs, 16 * best->tiles) : 0;
        if (!best || groups < fewest || (groups == fewest && k->tiles < best->tiles))
            best = k;
    }
    return best;
}

static void share(tc_few_channels_map *map, const kernel_entry *kernel, int multiprocessors)
{
    map->groups = divide_up(map->outputs, 16 * kernel->tiles);
    map->parts = divide_up(map->filter_rows, kernel->rows);
    map->part_rows = divide_up(map->filter_rows, map->parts);
    map->members = WARPS / map->parts;
    map->steps = TC_FEW_CHANNELS_STEPS;
    map->sums = map->groups * map->parts * 32 * kernel->tiles * kernel->rows * kernel->units * 4;
    uint32_t workers = divide_up((uint32_t)(multiprocessors * kernel->resident), map->groups);
    map->workers = workers < map->total ? workers : map->total;
}

static int settings(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS])
{
    (void)multiprocessors;
    static const uint32_t ROWS[] = {8, 4, 16, 2, 1};
    if (conv->direction != TC_BACKWARD_FILTER || !tc_few_channels_fit(conv) || !kernel_of(conv))
        return 0;
    int count = 0;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        tc_few_channels_map map = tc_few_channels_map_of(conv);
        if (ROWS[i] < 2 * map.out[0] && tc_few_channels_cut(&map, TC_FEW_CHANNELS_FILTER_SHARED, ROWS[i]))
            values[count++] = ROWS[i];
    }
    return count;
}

static tc_status prepare(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan)
{
    tc_few_channels_map *map = (tc_few_channels_map *)plan->state;
    _Static_assert(sizeof *map <= TC_DIRECT_STATE, "the map fits into the plan");
    const kernel_entry *kernel = kernel_of(conv);
    *map = tc_few_channels_map_of(conv);
    tc_few_channels_cut(map, TC_FEW_CHANNELS_FILTER_SHARED, (uint32_t)value);
    share(map, kernel, device->multiprocessors);
    plan->workspace = sizeof(float) * (size_t)map->workers * map->sums;
    static const char *const PARTS[] = {"", "sum_"};
    tc_status status = TC_OK;
    for (int i = 0; i < 2 && status == TC_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "tc_few_channels_filter_%s%s", PARTS[i], kernel->name);
        status = tc_device_function(device, kernel->ptx, name, &plan->functions[i]);
    }
    return status;
}

static tc_status run(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    const tc_few_channels_map *map = (const tc_few_channels_map *)plan->state;
    void *x = operands->x, *y = operands->y, *w = operands->w;
    void *products[] = {&x, &y, &workspace, (void *)map};
    tc_status status = tc_direct_launch(plan, 0, (int64_t)map->workers * map->groups, 32 * map->parts * map->members,
                                        stream, products);
    if (status != TC_OK)
        return status;
    void *sums[] = {&workspace, &w, (void *)map};
    return tc_direct_launch(plan, 1, map->sums / TC_FEW_CHANNELS_SUM_WIDTH,
                            TC_FEW_CHANNELS_SUM_WIDTH * TC_FEW_CHANNELS_SUM_SHARES, stream, sums);
}

const tc_direct_family tc_few_channels_filter_family = {.name = "cuda:few-channels-filter",
                                                        .setting = "rows",
                                                        .compute = 80,
                                                        .settings = settings,
                                                        .prepare = prepare,
                                                        .run = run};
