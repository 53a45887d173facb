/*
 * A whole engine in one small file: forward convolutions with 1x1 kernels, as a product of matrices on the CPU.
 * `keras-tunedconv docs engines` explains it line by line. Build and load it:
 *
 *     include=$(python -c "from keras_tunedconv.core import library; print(library.native_folder() / 'include')")
 *     cc -O2 -shared -fPIC -I"$include" pointwise_engine.c -o pointwise.so
 *     python -c "from keras_tunedconv.core import engines; print(engines.load_engine('pointwise.so'))"
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tunedconv_engine.h>

static const tc_api *core; /* the functions of the core that an engine may call */

/* ---- what it can do ---------------------------------------------------------------------------------------- */

static int is_plain(const tc_conv *conv)
{
    int plain = conv->direction == TC_FORWARD && conv->groups == 1 && conv->x_dtype == TC_F32 &&
                conv->w_dtype == TC_F32 && conv->y_dtype == TC_F32 && conv->compute_dtype == TC_F32 &&
                conv->x_layout == TC_CHANNELS_LAST && conv->y_layout == TC_CHANNELS_LAST && conv->w_layout == TC_HWIO;
    for (int32_t i = 0; i < conv->spatial_rank; i++)
        plain = plain && conv->w_dims[2 + i] == 1 && conv->stride[i] == 1 && conv->pad_before[i] == 0 &&
                conv->pad_after[i] == 0;
    return plain;
}

/* The first one is the default, which every other has to beat. */
static tc_status candidates(void *engine, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    (void)engine, (void)ordinal;
    if (!is_plain(conv))
        return core->fail(TC_UNSUPPORTED, "the pointwise engine does 1x1 kernels, forward, in float32 only");
    tc_status status = core->candidate_add(list, "pointwise:dot", TC_CANDIDATE_DETERMINISTIC);
    return status == TC_OK ? core->candidate_add(list, "pointwise:axpy", TC_CANDIDATE_DETERMINISTIC) : status;
}

/* ---- plans ------------------------------------------------------------------------------------------------- */

typedef struct plan {
    int by_rows; /* pointwise:axpy */
    int64_t pixels, inputs, outputs;
} plan;

/* Names come out of files too, written by anybody on whatever machine. */
static tc_status prepare(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, void **made)
{
    (void)engine, (void)ordinal;
    int by_rows = strcmp(name, "pointwise:axpy") == 0;
    if (!is_plain(conv) || (!by_rows && strcmp(name, "pointwise:dot") != 0))
        return core->fail(TC_NOT_FOUND, "the pointwise engine has no algorithm '%.64s' for this convolution", name);
    plan *p = malloc(sizeof *p);
    if (!p)
        return core->fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    *p = (plan){.by_rows = by_rows, .pixels = conv->x_dims[0], .inputs = conv->x_dims[1], .outputs = conv->y_dims[1]};
    for (int32_t i = 0; i < conv->spatial_rank; i++)
        p->pixels *= conv->x_dims[2 + i];
    *made = p;
    return TC_OK;
}

static void release(void *engine, void *made)
{
    (void)engine;
    free(made);
}

static size_t workspace(void *engine, const void *made)
{
    (void)engine, (void)made;
    return 0; /* what the framework's allocator is asked for before each run */
}

static void multiply_by_dot_products(const plan *p, const float *x, const float *w, float *y)
{
    for (int64_t i = 0; i < p->pixels; i++)
        for (int64_t o = 0; o < p->outputs; o++) {
            float sum = 0;
            for (int64_t c = 0; c < p->inputs; c++)
                sum += x[i * p->inputs + c] * w[c * p->outputs + o];
            y[i * p->outputs + o] = sum;
        }
}

static void multiply_by_rows(const plan *p, const float *x, const float *w, float *y)
{
    for (int64_t i = 0; i < p->pixels; i++) {
        float *row = y + i * p->outputs;
        memset(row, 0, (size_t)p->outputs * sizeof *row);
        for (int64_t c = 0; c < p->inputs; c++)
            for (int64_t o = 0; o < p->outputs; o++)
                row[o] += x[i * p->inputs + c] * w[c * p->outputs + o];
    }
}

/* Two threads may run one plan at once, so a plan is never written to. */
static tc_status run(void *engine, void *made, const tc_context *ctx, void *scratch, const tc_operands *operands)
{
    (void)engine, (void)ctx, (void)scratch;
    const plan *p = made;
    (p->by_rows ? multiply_by_rows : multiply_by_dot_products)(p, operands->x, operands->w, operands->y);
    return TC_OK;
}

/* ---- for the tuner ----------------------------------------------------------------------------------------- */

static int32_t can_measure(void *engine, const tc_context *ctx)
{
    (void)engine, (void)ctx;
    return 1;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static tc_status time_runs(void *engine, void *made, const tc_context *ctx, void *scratch, const tc_operands *operands,
                           int32_t runs, double *seconds)
{
    double start = now();
    for (int32_t i = 0; i < runs; i++)
        run(engine, made, ctx, scratch, operands);
    *seconds = now() - start;
    return TC_OK;
}

/* Device memory is the host's. */
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

/* ---- the engine -------------------------------------------------------------------------------------------- */

static tc_status open_engine(const char *const *paths, void **engine)
{
    (void)paths; /* where a library would be looked for */
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
    snprintf(text, size, "pointwise 1 (an example)");
    return TC_OK;
}

/* Whatever may change which algorithm is fastest belongs here: it is half of what entries are stored under. */
static tc_status environment(void *engine, int32_t ordinal, char *text, size_t size)
{
    (void)engine, (void)ordinal;
    snprintf(text, size, "engine=pointwise;version=1");
    return TC_OK;
}

const tc_engine_ops *tunedconv_engine_entry(const tc_api *api)
{
    static const tc_engine_ops ops = {
        .name = "pointwise",
        .device_kind = TC_CPU,
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
    core = api;
    return api->abi_version == TC_ABI_VERSION ? &ops : NULL;
}
