/* The family of the kernels of grouped.cu. */
#include <stdio.h>
#include <string.h>

#include "families.h"
#include "grouped_map.h"
#include "grouped_ptx.h"
#include "problem.h"

/* Sizes and pads at most: positions in a padded image are counted in 32 bits. */
#define MOST (INT32_C(1) << 28)

enum { STRIP = 8, ROWS_AT_LEAST = 4, DIVISIONS = 4 };

typedef struct kernel_entry {
    int32_t dtype, window, step, classes, wide;
    const char *ptx, *name;
} kernel_entry;

#define ENTRY(DTYPE, NAME, WINDOW, STEP, CLASSES, WIDE)                                                          \
    {DTYPE, WINDOW, STEP, CLASSES, WIDE, tc_grouped_##NAME##_##WINDOW##_##STEP##_##CLASSES##_##WIDE##_ptx,       \
     "tc_grouped_" #NAME "_" #WINDOW "_" #STEP "_" #CLASSES "_" #WIDE}
#define ENTRIES(WINDOW, STEP, CLASSES, WIDE)                                                                     \
    ENTRY(TC_F16, f16, WINDOW, STEP, CLASSES, WIDE), ENTRY(TC_BF16, bf16, WINDOW, STEP, CLASSES, WIDE)

static const kernel_entry KERNELS[] = {
    ENTRIES(3, 1, 1, 8), ENTRIES(3, 1, 1, 16), ENTRIES(3, 1, 1, 32), ENTRIES(5, 1, 1, 8), ENTRIES(7, 1, 1, 8),
    ENTRIES(3, 2, 1, 8), ENTRIES(3, 2, 1, 16), ENTRIES(3, 2, 1, 32), ENTRIES(5, 2, 1, 8), ENTRIES(7, 2, 1, 8),
    ENTRIES(2, 1, 2, 8), ENTRIES(2, 1, 2, 16), ENTRIES(2, 1, 2, 32), ENTRIES(3, 1, 2, 8), ENTRIES(4, 1, 2, 8),
};

/* What a launch needs to know; kept in the plan. */
typedef struct grouped_plan {
    tc_grouped_map map;
    uint32_t teams, threads; /* of a thread block: tiles, and threads in all */
    int backward;
} grouped_plan;

static int64_t divide_down(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -tc_divide_up(-a, b);
}

static int64_t group_size(const tc_conv *conv)
{
    return conv->w_dims[1];
}

/* The kernel for a convolution, or NULL. Groups of a kernel that reads 8 channels may be smaller. */
static const kernel_entry *kernel_for(const tc_conv *conv)
{
    int backward = conv->direction == TC_BACKWARD_DATA;
    int64_t stride = conv->stride[0], taps = conv->w_dims[2], size = group_size(conv);
    int64_t classes = backward ? stride : 1, window = backward && stride == 2 ? (taps + 1) / 2 : taps;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++) {
        const kernel_entry *k = &KERNELS[i];
        if (k->dtype == conv->x_dtype && k->window == window && k->step == (backward ? 1 : stride) &&
            k->classes == classes && k->wide == (size < 8 ? 8 : size))
            return k;
    }
    return NULL;
}

static void set_axis(const tc_conv *conv, int axis, tc_grouped_map *map)
{
    int backward = conv->direction == TC_BACKWARD_DATA;
    const int64_t *in = backward ? conv->y_dims : conv->x_dims, *out = backward ? conv->x_dims : conv->y_dims;
    int64_t classes = backward ? conv->stride[axis] : 1, before = conv->pad_before[axis];
    map->in[axis] = (uint32_t)in[2 + axis];
    map->out[axis] = (uint32_t)out[2 + axis];
    map->positions[axis] = (uint32_t)tc_divide_up(out[2 + axis], classes);
    int64_t shift = backward ? -divide_down(conv->w_dims[2 + axis] - 1 - before, classes) : -before;
    map->shift[axis] = (int32_t)shift;
    for (int c = 0; c < classes; c++)
        map->tap_first[axis][c] = (int32_t)(backward ? c + before - classes * shift : 0);
}

static uint32_t channels_of_team(int32_t wide)
{
    return wide == 32 ? 32 : 16;
}

static grouped_plan plan_of(const tc_conv *conv, const kernel_entry *kernel, int64_t rows)
{
    int backward = conv->direction == TC_BACKWARD_DATA;
    int64_t strides[TC_MAX_DIMS], size = group_size(conv);
    tc_filter_strides(conv->w_dims, conv->spatial_rank, conv->w_layout, strides);
    grouped_plan plan = {.backward = backward};
    tc_grouped_map *map = &plan.map;
    map->batch = (uint32_t)conv->x_dims[0];
    map->channels = (uint32_t)conv->x_dims[1];
    while ((int64_t)1 << map->group_bits < size)
        map->group_bits++;
    /* The filter's axes are (written, read in the group) forward and (read, written in the group) backward. */
    uint32_t within = (uint32_t)size - 1, whole = UINT32_MAX;
    map->read_mask = backward ? whole : within;
    map->written_mask = backward ? within : whole;
    map->stride_read = (int32_t)strides[backward ? 0 : 1];
    map->stride_written = (int32_t)strides[backward ? 1 : 0];
    map->tap_step = backward ? -(int32_t)conv->stride[0] : 1;
    map->taps = (uint32_t)conv->w_dims[2];
    for (int axis = 0; axis < 2; axis++) {
        map->stride_tap[axis] = (int32_t)strides[2 + axis];
        set_axis(conv, axis, map);
    }
    map->rows = (uint32_t)rows;
    map->down = (uint32_t)tc_divide_up(map->positions[0], rows);
    map->across = (uint32_t)tc_divide_up(map->positions[1], STRIP);
    int one_block = kernel->window == 7 || kernel->window == 4, team = kernel->wide == 32 || one_block ? 2 : 1;
    int row_classes_apart = kernel->classes == 2 && !(kernel->window == 2 && kernel->wide < 32);
    plan.teams = team == 1 ? 4 : 1;
    plan.threads = 32 * (uint32_t)team * plan.teams;
    int64_t tiles = tc_divide_up((int64_t)map->batch * map->across, 2) * map->down;
    map->parts = (uint32_t)tc_divide_up(map->channels, channels_of_team(kernel->wide)) * (row_classes_apart ? 2 : 1);
    map->tiles = tiles * map->parts < MOST ? (uint32_t)tiles : 0;
    return plan;
}

static int fits(const tc_conv *conv)
{
    int64_t channels = conv->x_dims[1], size = group_size(conv);
    if (conv->direction == TC_BACKWARD_FILTER || conv->spatial_rank != 2 || conv->y_dims[1] != channels ||
        channels % 8 || size & (size - 1) || channels % size || conv->x_layout != TC_CHANNELS_LAST ||
        conv->y_layout != TC_CHANNELS_LAST || conv->w_dtype != conv->x_dtype || conv->y_dtype != conv->x_dtype ||
        conv->stride[0] != conv->stride[1] || conv->w_dims[2] != conv->w_dims[3] || !kernel_for(conv))
        return 0;
    int64_t filter = channels * size * conv->w_dims[2] * conv->w_dims[3];
    for (int axis = 0; axis < 2; axis++)
        if (conv->dilation[axis] != 1 || conv->x_dims[2 + axis] > MOST || conv->y_dims[2 + axis] > MOST ||
            conv->pad_before[axis] > MOST)
            return 0;
    return conv->x_dims[0] <= MOST && channels <= MOST && filter <= INT32_MAX;
}

/* Tiles of whole images, of halves and so on: most rows read once, or most tiles. Those first that fill the device. */
static int settings(const tc_conv *conv, int multiprocessors, int64_t values[TC_DIRECT_SETTINGS])
{
    if (!fits(conv))
        return 0;
    const kernel_entry *kernel = kernel_for(conv);
    int64_t full = plan_of(conv, kernel, 1).map.positions[0], later[DIVISIONS];
    int count = 0, late = 0;
    for (int64_t parts = 1, last = 0; parts < 1 << DIVISIONS; parts *= 2) {
        int64_t rows = tc_divide_up(full, parts);
        if (rows == last || (parts > 1 && rows < ROWS_AT_LEAST))
            break;
        last = rows;
        uint32_t tiles = plan_of(conv, kernel, rows).map.tiles;
        if (tiles && tiles * plan_of(conv, kernel, rows).map.parts >= 24 * (uint32_t)multiprocessors)
            values[count++] = rows;
        else if (tiles)
            later[late++] = rows;
    }
    while (late > 0)
        values[count++] = later[--late];
    return count;
}

/* As many teams as the device holds at once, each with as many tiles as any other or one fewer. */
static void share_tiles(grouped_plan *plan, int64_t resident)
{
    tc_grouped_map *map = &plan->map;
    int64_t teams = resident * plan->teams / map->parts;
    int64_t each = tc_divide_up(map->tiles, teams > 0 ? teams : 1);
    map->teams = (uint32_t)tc_divide_up(map->tiles, each);
}

static tc_status prepare(tc_device *device, const tc_conv *conv, int64_t value, tc_direct_plan *plan)
{
    _Static_assert(sizeof(grouped_plan) <= TC_DIRECT_STATE, "it fits into the plan");
    const kernel_entry *kernel = kernel_for(conv);
    grouped_plan made = plan_of(conv, kernel, value);
    tc_status status = tc_device_function(device, kernel->ptx, kernel->name, &plan->functions[0]);
    if (status != TC_OK)
        return status;
    int resident = 1;
    CUresult result = device->library->cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, plan->functions[0], (int)made.threads, 0);
    if (result != CUDA_SUCCESS)
        return tc_cuda_fail(device->library, result, "asking how many blocks a multiprocessor holds");
    share_tiles(&made, (int64_t)resident * device->multiprocessors);
    memcpy(plan->state, &made, sizeof made);
    return TC_OK;
}

static tc_status run(const tc_direct_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    (void)workspace;
    const grouped_plan *made = (const grouped_plan *)plan->state;
    void *in = made->backward ? operands->y : operands->x, *out = made->backward ? operands->x : operands->y;
    void *filter = operands->w;
    void *arguments[] = {&in, &filter, &out, (void *)&made->map};
    int64_t teams = (int64_t)made->map.parts * made->map.teams;
    return tc_direct_launch(plan, 0, tc_divide_up(teams, made->teams), made->threads, stream, arguments);
}

const tc_direct_family tc_grouped_family = {.name = "cuda:grouped",
                                            .setting = "rows",
                                            .compute = 80,
                                            .settings = settings,
                                            .prepare = prepare,
                                            .run = run};
