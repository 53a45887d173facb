/*
 * A complete engine in one file, as an example of how to add one, and scripted, so that tests decide how
 * its algorithms behave. In place of a convolution it multiplies its two inputs element by element.
 *
 * Built as a shared library of its own, it reaches the core only through the table that
 * tunedconv_engine_entry is given:
 *
 *     cc -shared -fPIC -Icffi_build/include tests/native/fake_engine.c -o libfake.so
 *
 *     keras_tunedconv.core.library.lib.tc_engine_load(b"libfake.so")
 */
#include "fake_engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tunedconv_engine.h"

enum { MAX_ALGORITHMS = 64, MAX_ORDINALS = 4 };

static const tc_api *core;

/* ---- the script -------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    fake_algorithm algorithms[MAX_ALGORITHMS];
    int64_t runs[MAX_ALGORITHMS], prepares[MAX_ALGORITHMS];
    size_t count;
    int32_t capturing;
    char models[MAX_ORDINALS][32], soft[64];
    double clock;
    int64_t live_plans, preparing, most_preparing, listings;
} script;

void fake_set_algorithms(const fake_algorithm *algorithms, size_t count)
{
    pthread_mutex_lock(&lock);
    script.count = count < MAX_ALGORITHMS ? count : MAX_ALGORITHMS;
    memcpy(script.algorithms, algorithms, script.count * sizeof *algorithms);
    memset(script.runs, 0, sizeof script.runs);
    memset(script.prepares, 0, sizeof script.prepares);
    pthread_mutex_unlock(&lock);
}

void fake_set_capturing(int32_t capturing)
{
    pthread_mutex_lock(&lock);
    script.capturing = capturing;
    pthread_mutex_unlock(&lock);
}

void fake_set_model(int32_t ordinal, const char *model)
{
    pthread_mutex_lock(&lock);
    snprintf(script.models[ordinal % MAX_ORDINALS], sizeof script.models[0], "%s", model);
    pthread_mutex_unlock(&lock);
}

void fake_set_soft(const char *fields)
{
    pthread_mutex_lock(&lock);
    snprintf(script.soft, sizeof script.soft, "%s", fields);
    pthread_mutex_unlock(&lock);
}

/* Plans outlive it: the core still has them. */
void fake_reset(void)
{
    pthread_mutex_lock(&lock);
    int64_t live_plans = script.live_plans;
    memset(&script, 0, sizeof script);
    script.live_plans = live_plans;
    pthread_mutex_unlock(&lock);
}

double fake_clock(void)
{
    pthread_mutex_lock(&lock);
    double seconds = script.clock;
    pthread_mutex_unlock(&lock);
    return seconds;
}

/* Where an algorithm is in the script; script.count when it is not there. The caller holds the lock. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < script.count && strcmp(script.algorithms[i].name, name) != 0)
        i++;
    return i;
}

static int64_t count_of(const int64_t *counts, const char *name)
{
    pthread_mutex_lock(&lock);
    size_t i = find(name);
    int64_t count = i < script.count ? counts[i] : 0;
    pthread_mutex_unlock(&lock);
    return count;
}

int64_t fake_runs(const char *algorithm)
{
    return count_of(script.runs, algorithm);
}

int64_t fake_prepares(const char *algorithm)
{
    return count_of(script.prepares, algorithm);
}

int64_t fake_listings(void)
{
    pthread_mutex_lock(&lock);
    int64_t listings = script.listings;
    pthread_mutex_unlock(&lock);
    return listings;
}

int64_t fake_most_preparing(void)
{
    pthread_mutex_lock(&lock);
    int64_t threads = script.most_preparing;
    pthread_mutex_unlock(&lock);
    return threads;
}

int64_t fake_live_plans(void)
{
    pthread_mutex_lock(&lock);
    int64_t plans = script.live_plans;
    pthread_mutex_unlock(&lock);
    return plans;
}

/* ---- the engine: what a library is asked once -------------------------------------------------------- */

static void acquire(void)
{
    pthread_mutex_lock(&lock);
}

static void let_go(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child must not find the lock held by a thread that was not copied. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(acquire, let_go, let_go);
}

static tc_status open_engine(const char *const *paths, void **engine)
{
    (void)paths;
    *engine = NULL; /* an engine with state of its own would hand it out here */
    return TC_OK;
}

static void close_engine(void *engine)
{
    (void)engine;
}

static tc_status describe(void *engine, char *text, size_t size)
{
    (void)engine;
    snprintf(text, size, "fake 1 (scripted)");
    return TC_OK;
}

static tc_status environment(void *engine, int32_t ordinal, char *text, size_t size)
{
    (void)engine;
    pthread_mutex_lock(&lock);
    const char *model = script.models[ordinal % MAX_ORDINALS];
    snprintf(text, size, "engine=fake;version=1;device=%s%s%s", *model ? model : "any", *script.soft ? ";" : "",
             script.soft);
    pthread_mutex_unlock(&lock);
    return TC_OK;
}

/* ---- what it is asked for a descriptor ---------------------------------------------------------------- */

static int can_do(const tc_conv *conv)
{
    return conv->x_dtype == TC_F32 && conv->w_dtype == TC_F32 && conv->y_dtype == TC_F32;
}

static tc_status candidates(void *engine, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    (void)engine, (void)ordinal;
    if (!can_do(conv))
        return core->fail(TC_UNSUPPORTED, "the fake engine multiplies float32 only");
    tc_status status = TC_OK;
    pthread_mutex_lock(&lock);
    script.listings++;
    for (size_t i = 0; i < script.count && status == TC_OK; i++)
        status = core->candidate_add(list, script.algorithms[i].name, script.algorithms[i].flags);
    pthread_mutex_unlock(&lock);
    return status;
}

/* An engine whose list is short has no use for it. */
static tc_status find_candidate(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, uint32_t *flags)
{
    (void)engine, (void)ordinal;
    tc_status status = can_do(conv) ? TC_NOT_FOUND : TC_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < script.count && status == TC_NOT_FOUND; i++) {
        const fake_algorithm *a = &script.algorithms[i];
        if (name ? strcmp(a->name, name) == 0 : !(a->flags & TC_CANDIDATE_LAST_RESORT)) {
            *flags = a->flags;
            status = TC_OK;
        }
    }
    pthread_mutex_unlock(&lock);
    return status == TC_OK ? status : core->fail(status, "the fake engine has no such algorithm");
}

typedef struct plan {
    tc_conv conv;
    fake_algorithm algorithm;
    size_t place; /* in the script */
} plan;

static tc_status prepare(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, void **made)
{
    (void)engine, (void)ordinal;
    plan *p = can_do(conv) ? calloc(1, sizeof *p) : NULL;
    if (!p)
        return core->fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    tc_status status = TC_OK;
    pthread_mutex_lock(&lock);
    if (++script.preparing > script.most_preparing)
        script.most_preparing = script.preparing;
    p->conv = *conv;
    p->place = find(name);
    if (p->place == script.count) {
        status = core->fail(TC_NOT_FOUND, "the fake engine has no algorithm '%s'", name);
    } else {
        p->algorithm = script.algorithms[p->place];
        script.prepares[p->place]++;
        script.clock += p->algorithm.prepare_seconds;
        if (p->algorithm.prepare_status != TC_OK)
            status = core->fail(p->algorithm.prepare_status, "'%s' is scripted to fail in prepare", name);
    }
    script.live_plans += status == TC_OK;
    pthread_mutex_unlock(&lock);
    int32_t milliseconds = p->algorithm.prepare_milliseconds;
    const struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    char byte;
    if (p->algorithm.prepare_reads && read(p->algorithm.prepare_reads, &byte, 1) != 1)
        abort(); /* nobody is left who could write it */
    pthread_mutex_lock(&lock);
    script.preparing--;
    pthread_mutex_unlock(&lock);
    if (status == TC_OK)
        *made = p;
    else
        free(p);
    return status;
}

static void release(void *engine, void *released)
{
    (void)engine;
    pthread_mutex_lock(&lock);
    script.live_plans--;
    pthread_mutex_unlock(&lock);
    free(released);
}

static size_t workspace(void *engine, const void *of)
{
    (void)engine;
    return (size_t)((const plan *)of)->algorithm.workspace;
}

/* ---- running -------------------------------------------------------------------------------------------- */

static int64_t elements(const int64_t *dims, int32_t spatial_rank)
{
    int64_t count = 1;
    for (int32_t i = 0; i < spatial_rank + 2; i++)
        count *= dims[i];
    return count;
}

static void multiply(const plan *p, const tc_operands *operands)
{
    const tc_conv *conv = &p->conv;
    struct { float *data; int64_t count; } x = {operands->x, elements(conv->x_dims, conv->spatial_rank)},
                                           w = {operands->w, elements(conv->w_dims, conv->spatial_rank)},
                                           y = {operands->y, elements(conv->y_dims, conv->spatial_rank)},
                                           first = x, second = w, out = y;
    if (conv->direction == TC_BACKWARD_DATA)
        first = w, second = y, out = x;
    else if (conv->direction == TC_BACKWARD_FILTER)
        first = x, second = y, out = w;
    if (p->algorithm.output == FAKE_UNWRITTEN)
        return;
    int64_t written = out.count - (p->algorithm.output == FAKE_CUT_SHORT);
    for (int64_t i = 0; i < written; i++)
        out.data[i] = (float)((double)first.data[i % first.count] * (double)second.data[i % second.count] *
                              (1 + p->algorithm.tint));
}

/* Counts a run, moves the clock on and gives how long the run took. */
static tc_status account(const plan *p, double *seconds)
{
    const fake_algorithm *a = &p->algorithm;
    tc_status status = TC_OK;
    pthread_mutex_lock(&lock);
    int64_t runs = script.runs[p->place]++;
    *seconds = a->seconds * (runs % 2 ? 1 + a->jitter : 1) + (runs < a->cold_runs ? a->chill : 0);
    script.clock += *seconds;
    if (a->run_status != TC_OK && runs >= a->good_runs)
        status = core->fail(a->run_status, "'%s' is scripted to fail in run", a->name);
    pthread_mutex_unlock(&lock);
    return status;
}

static tc_status run_once(const plan *p, void *scratch, const tc_operands *operands, double *seconds)
{
    tc_status status = account(p, seconds);
    if (status != TC_OK)
        return status;
    if (p->algorithm.workspace > 0) /* a sanitizer sees it when there is less */
        memset(scratch, 1, (size_t)p->algorithm.workspace);
    multiply(p, operands);
    return TC_OK;
}

static tc_status run(void *engine, void *of, const tc_context *ctx, void *scratch, const tc_operands *operands)
{
    (void)engine, (void)ctx;
    double seconds;
    return run_once(of, scratch, operands, &seconds);
}

/* ---- for the tuner ---------------------------------------------------------------------------------------- */

static int32_t can_measure(void *engine, const tc_context *ctx)
{
    (void)engine, (void)ctx;
    pthread_mutex_lock(&lock);
    int32_t capturing = script.capturing;
    pthread_mutex_unlock(&lock);
    return !capturing;
}

static tc_status time_runs(void *engine, void *of, const tc_context *ctx, void *scratch,
                           const tc_operands *operands, int32_t runs, double *seconds)
{
    (void)engine, (void)ctx;
    tc_status status = TC_OK;
    double one;
    *seconds = 0;
    for (int32_t i = 0; i < runs && status == TC_OK; i++) {
        status = run_once(of, scratch, operands, &one);
        *seconds += one;
    }
    return status;
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

static tc_status zero(void *engine, const tc_context *ctx, void *device, size_t bytes)
{
    (void)engine, (void)ctx;
    memset(device, 0, bytes);
    return TC_OK;
}

static tc_engine_ops ops = {
    .name = "fake",
    .device_kind = TC_CUDA, /* so that it serves beside a real CPU engine */
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
    .zero = zero,
};

void fake_set_device_kind(int32_t device_kind)
{
    ops.device_kind = device_kind;
}

void fake_set_exact(int32_t exact)
{
    ops.is_exact = exact;
}

void fake_set_finding(int32_t finding)
{
    ops.find = finding ? find_candidate : NULL;
}

/* What tc_engine_load looks up. */
const tc_engine_ops *tunedconv_engine_entry(const tc_api *api)
{
    if (api->abi_version != TC_ABI_VERSION)
        return NULL;
    core = api;
    return &ops;
}
