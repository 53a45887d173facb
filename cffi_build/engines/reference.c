/*
 * The engine of last resort: plain loops that sum in double, for any rank, layout, dtype, groups, padding,
 * stride and dilation. Slow, and right by inspection: what the other engines are compared with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "numeric.h"
#include "tunedconv_engine.h"

static const char algorithm_name[] = "reference";

/* Steps in elements between neighbours: N, C, spatial (x, y) or O, I, spatial (w). */
typedef struct strides {
    int64_t of[TC_MAX_DIMS];
} strides;

/* Everything is treated as three-dimensional; axes a descriptor lacks have size 1. */
typedef struct loops {
    int64_t batch, groups, inputs, outputs; /* channels of one group */
    int64_t x_size[3], w_size[3], y_size[3];
    int64_t pad[3], stride[3], dilation[3];
    strides x, w, y;
    int32_t x_dtype, w_dtype, y_dtype, direction;
} loops;

/* Dense strides of dims whose order in memory, outermost first, is given. */
static strides dense(const int64_t *dims, const int *order, int rank)
{
    strides result = {{0}};
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        result.of[order[i]] = step;
        step *= dims[order[i]];
    }
    return result;
}

static strides data_strides(const int64_t *dims, int32_t layout)
{
    static const int orders[2][TC_MAX_DIMS] = {{0, 2, 3, 4, 1}, {0, 1, 2, 3, 4}};
    return dense(dims, orders[layout], TC_MAX_DIMS);
}

static strides filter_strides(const int64_t *dims, int32_t layout)
{
    static const int orders[3][TC_MAX_DIMS] = {{2, 3, 4, 1, 0}, {0, 1, 2, 3, 4}, {0, 2, 3, 4, 1}};
    return dense(dims, orders[layout], TC_MAX_DIMS);
}

static loops loops_of(const tc_conv *conv)
{
    loops l = {
        .batch = conv->x_dims[0],
        .groups = conv->groups,
        .inputs = conv->w_dims[1],
        .outputs = conv->w_dims[0] / conv->groups,
        .x_dtype = conv->x_dtype,
        .w_dtype = conv->w_dtype,
        .y_dtype = conv->y_dtype,
        .direction = conv->direction,
    };
    int64_t x_dims[TC_MAX_DIMS], w_dims[TC_MAX_DIMS], y_dims[TC_MAX_DIMS];
    for (int i = 0; i < TC_MAX_DIMS; i++) {
        int beyond = i >= conv->spatial_rank + 2;
        x_dims[i] = beyond ? 1 : conv->x_dims[i];
        w_dims[i] = beyond ? 1 : conv->w_dims[i];
        y_dims[i] = beyond ? 1 : conv->y_dims[i];
    }
    for (int i = 0; i < 3; i++) {
        int beyond = i >= conv->spatial_rank;
        l.x_size[i] = x_dims[2 + i];
        l.w_size[i] = w_dims[2 + i];
        l.y_size[i] = y_dims[2 + i];
        l.pad[i] = conv->pad_before[i];
        l.stride[i] = beyond ? 1 : conv->stride[i];
        l.dilation[i] = beyond ? 1 : conv->dilation[i];
    }
    l.x = data_strides(x_dims, conv->x_layout);
    l.w = filter_strides(w_dims, conv->w_layout);
    l.y = data_strides(y_dims, conv->y_layout);
    return l;
}

static int64_t offset(const strides *s, int64_t first, int64_t second, const int64_t spatial[3])
{
    return first * s->of[0] + second * s->of[1] + spatial[0] * s->of[2] + spatial[1] * s->of[3] +
           spatial[2] * s->of[4];
}

/* The input place that filter place k reads for output place p; 0 when it lies in the padding. */
static int input_place(const loops *l, const int64_t p[3], const int64_t k[3], int64_t at[3])
{
    for (int i = 0; i < 3; i++) {
        at[i] = p[i] * l->stride[i] + k[i] * l->dilation[i] - l->pad[i];
        if (at[i] < 0 || at[i] >= l->x_size[i])
            return 0;
    }
    return 1;
}

/* The output place that reads input place p through filter place k; 0 when none does. */
static int output_place(const loops *l, const int64_t p[3], const int64_t k[3], int64_t at[3])
{
    for (int i = 0; i < 3; i++) {
        int64_t moved = p[i] + l->pad[i] - k[i] * l->dilation[i];
        if (moved < 0 || moved % l->stride[i] != 0)
            return 0;
        at[i] = moved / l->stride[i];
        if (at[i] >= l->y_size[i])
            return 0;
    }
    return 1;
}

#define FOR_EACH_PLACE(place, size)                                  \
    for ((place)[0] = 0; (place)[0] < (size)[0]; (place)[0]++)       \
        for ((place)[1] = 0; (place)[1] < (size)[1]; (place)[1]++)   \
            for ((place)[2] = 0; (place)[2] < (size)[2]; (place)[2]++)

static double sum_forward(const loops *l, const tc_operands *o, int64_t n, int64_t group, int64_t output,
                          const int64_t p[3])
{
    double sum = 0;
    int64_t k[3], at[3];
    FOR_EACH_PLACE(k, l->w_size)
        if (input_place(l, p, k, at))
            for (int64_t c = 0; c < l->inputs; c++)
                sum += tc_load_value(o->x, offset(&l->x, n, group * l->inputs + c, at), l->x_dtype) *
                       tc_load_value(o->w, offset(&l->w, output, c, k), l->w_dtype);
    return sum;
}

static double sum_backward_data(const loops *l, const tc_operands *o, int64_t n, int64_t group, int64_t input,
                                const int64_t p[3])
{
    double sum = 0;
    int64_t k[3], at[3];
    FOR_EACH_PLACE(k, l->w_size)
        if (output_place(l, p, k, at))
            for (int64_t c = group * l->outputs; c < (group + 1) * l->outputs; c++)
                sum += tc_load_value(o->y, offset(&l->y, n, c, at), l->y_dtype) *
                       tc_load_value(o->w, offset(&l->w, c, input, k), l->w_dtype);
    return sum;
}

static double sum_backward_filter(const loops *l, const tc_operands *o, int64_t output, int64_t input,
                                  const int64_t k[3])
{
    double sum = 0;
    int64_t p[3], at[3], group = output / l->outputs;
    for (int64_t n = 0; n < l->batch; n++)
        FOR_EACH_PLACE(p, l->y_size)
            if (input_place(l, p, k, at))
                sum += tc_load_value(o->x, offset(&l->x, n, group * l->inputs + input, at), l->x_dtype) *
                       tc_load_value(o->y, offset(&l->y, n, output, p), l->y_dtype);
    return sum;
}

static void convolve(const loops *l, const tc_operands *o)
{
    int64_t p[3];
    if (l->direction == TC_BACKWARD_FILTER) {
        for (int64_t output = 0; output < l->groups * l->outputs; output++)
            for (int64_t input = 0; input < l->inputs; input++)
                FOR_EACH_PLACE(p, l->w_size)
                    tc_store_value(o->w, offset(&l->w, output, input, p), l->w_dtype,
                             sum_backward_filter(l, o, output, input, p));
        return;
    }
    int forward = l->direction == TC_FORWARD;
    int64_t channels = l->groups * (forward ? l->outputs : l->inputs);
    for (int64_t n = 0; n < l->batch; n++)
        for (int64_t c = 0; c < channels; c++)
            FOR_EACH_PLACE(p, forward ? l->y_size : l->x_size)
                if (forward)
                    tc_store_value(o->y, offset(&l->y, n, c, p), l->y_dtype,
                             sum_forward(l, o, n, c / l->outputs, c, p));
                else
                    tc_store_value(o->x, offset(&l->x, n, c, p), l->x_dtype,
                             sum_backward_data(l, o, n, c / l->inputs, c % l->inputs, p));
}

/* ---- the engine ------------------------------------------------------------------------------------ */

static tc_status open_engine(const char *const *paths, void **engine)
{
    (void)paths;
    *engine = NULL;
    return TC_OK;
}

static void close_engine(void *engine)
{
    (void)engine;
}

static tc_status describe(void *engine, char *text, size_t size)
{
    (void)engine;
    snprintf(text, size, "reference 1 (built in)");
    return TC_OK;
}

static tc_status environment(void *engine, int32_t ordinal, char *text, size_t size)
{
    (void)engine, (void)ordinal;
    snprintf(text, size, "engine=reference;version=1");
    return TC_OK;
}

static tc_status candidates(void *engine, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    (void)engine, (void)ordinal, (void)conv;
    return tc_candidate_add(list, algorithm_name, TC_CANDIDATE_DETERMINISTIC | TC_CANDIDATE_LAST_RESORT);
}

static tc_status prepare(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, void **plan)
{
    (void)engine, (void)ordinal;
    if (strcmp(name, algorithm_name) != 0)
        return tc_fail(TC_NOT_FOUND, "the reference engine has no algorithm '%.64s', only '%s'", name, algorithm_name);
    loops *l = malloc(sizeof *l);
    if (!l)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    *l = loops_of(conv);
    *plan = l;
    return TC_OK;
}

static void release(void *engine, void *plan)
{
    (void)engine;
    free(plan);
}

static size_t workspace(void *engine, const void *plan)
{
    (void)engine, (void)plan;
    return 0;
}

static tc_status run(void *engine, void *plan, const tc_context *ctx, void *scratch, const tc_operands *operands)
{
    (void)engine, (void)ctx, (void)scratch;
    convolve(plan, operands);
    return TC_OK;
}

static int32_t can_measure(void *engine, const tc_context *ctx)
{
    (void)engine, (void)ctx;
    return 1;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tc_status time_runs(void *engine, void *plan, const tc_context *ctx, void *scratch,
                           const tc_operands *operands, int32_t runs, double *seconds)
{
    double start = now();
    for (int32_t i = 0; i < runs; i++)
        run(engine, plan, ctx, scratch, operands);
    *seconds = now() - start;
    return TC_OK;
}

static tc_status fetch(void *engine, const tc_context *ctx, void *host, const void *device, size_t bytes)
{
    (void)engine, (void)ctx;
    memcpy(host, device, bytes);
    return TC_OK;
}

static tc_status poison(void *engine, const tc_context *ctx, void *device, size_t bytes)
{
    (void)engine, (void)ctx;
    memset(device, 0xFF, bytes);
    return TC_OK;
}

const tc_engine_ops tc_reference_engine = {
    .name = "reference",
    .device_kind = TC_CPU,
    .last_resort = 1,
    .is_exact = 1,
    .open = open_engine,
    .close = close_engine,
    .describe = describe,
    .environment = environment,
    .candidates = candidates,
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .run = run,
    .can_measure = can_measure,
    .time = time_runs,
    .fetch = fetch,
    .poison = poison,
};
