/* The table of functions through which the core uses oneDNN. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the engine's state, made and unmade by jobs ---------------------------------------------- */

static void destroy_state(onednn_engine *engine)
{
    const onednn_library *lib = &engine->library;
    onednn_choices_forget(engine);
    if (engine->attributes)
        lib->primitive_attr_destroy(engine->attributes);
    if (engine->stream)
        lib->stream_destroy(engine->stream);
    if (engine->cpu)
        lib->engine_destroy(engine->cpu);
}

static tc_status create_state(onednn_engine *engine)
{
    const onednn_library *lib = &engine->library;
    tc_status status = onednn_check(lib->engine_create(&engine->cpu, dnnl_cpu, 0), "open the CPU");
    if (status == TC_OK)
        status = onednn_check(lib->stream_create(&engine->stream, engine->cpu, dnnl_stream_default_flags),
                              "make a stream");
    if (status == TC_OK)
        status = onednn_check(lib->primitive_attr_create(&engine->attributes), "make attributes");
    if (status == TC_OK)
        status = onednn_check(lib->primitive_attr_set_fpmath_mode(engine->attributes, dnnl_fpmath_mode_strict),
                              "ask for strict float32");
    if (status == TC_OK)
        status = onednn_check(
            lib->primitive_attr_set_scratchpad_mode(engine->attributes, dnnl_scratchpad_mode_user),
            "ask for scratchpads from outside");
    return status;
}

static tc_status destroy_job(void *argument)
{
    destroy_state(argument);
    return TC_OK;
}

static tc_status create_job(void *argument)
{
    tc_status status = create_state(argument);
    if (status != TC_OK)
        destroy_state(argument);
    return status;
}

/* The limit of the thread that opens the engine: OMP_NUM_THREADS, omp_set_num_threads, or the CPUs it may use. */
static int count_threads(const onednn_library *library)
{
    switch (library->version()->cpu_runtime) {
    case DNNL_RUNTIME_SEQ: return 1;
    case DNNL_RUNTIME_OMP: return library->has_openmp ? library->omp_get_max_threads() : onednn_affinity_count();
    default: return onednn_affinity_count();
    }
}

static void close_engine(void *state)
{
    onednn_caller_release(destroy_job, state);
    free(state);
}

static tc_status open_engine(const char *const *paths, void **state)
{
    onednn_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for an engine");
    tc_status status = onednn_library_open(paths, &engine->library);
    if (status == TC_OK) {
        engine->threads = count_threads(&engine->library);
        status = onednn_environment(&engine->library, engine->threads, engine->environment,
                                    sizeof engine->environment);
    }
    if (status == TC_OK)
        status = onednn_caller_acquire(engine, create_job);
    if (status == TC_OK)
        *state = engine;
    else
        free(engine);
    return status;
}

static tc_status describe(void *state, char *text, size_t size)
{
    const onednn_engine *engine = state;
    const dnnl_version_t *version = engine->library.version();
    return tc_print(text, size, "the engine's description", "oneDNN %d.%d.%d (%s threads), %s", version->major,
                    version->minor, version->patch, onednn_runtime_name(version->cpu_runtime), engine->library.path);
}

static tc_status environment(void *state, int32_t ordinal, char *text, size_t size)
{
    const onednn_engine *engine = state;
    if (ordinal != 0)
        return tc_fail(TC_INVALID_ARGUMENT, "oneDNN sees one CPU device, number 0; got %d", ordinal);
    return tc_print(text, size, "the environment", "%s", engine->environment);
}

/* ---- algorithms ---------------------------------------------------------------------------------------- */

typedef struct candidates_job {
    onednn_engine *engine;
    const onednn_problem *problem;
    tc_candidate_list *list;
} candidates_job;

static tc_status run_candidates(void *argument)
{
    candidates_job *job = argument;
    const onednn_choices *choices;
    tc_status status = onednn_choices_of(job->engine, job->problem, &choices);
    for (size_t i = 0; status == TC_OK && i < choices->count; i++)
        status = tc_candidate_add(job->list, choices->items[i].candidate.name, choices->items[i].candidate.flags);
    return status;
}

static tc_status candidates(void *state, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    (void)ordinal;
    onednn_problem problem;
    tc_status status = onednn_problem_make(conv, &problem);
    if (status != TC_OK)
        return status;
    return onednn_caller_run(run_candidates, &(candidates_job){state, &problem, list});
}

typedef struct find_job {
    onednn_engine *engine;
    const onednn_problem *problem;
    const char *name;
    uint32_t flags;
} find_job;

static tc_status run_find(void *argument)
{
    find_job *job = argument;
    const onednn_choice *choice;
    tc_status status = onednn_choice_named(job->engine, job->problem, job->name, &choice);
    if (status == TC_OK)
        job->flags = choice->candidate.flags;
    return status;
}

static tc_status find(void *state, int32_t ordinal, const tc_conv *conv, const char *name, uint32_t *flags)
{
    (void)ordinal;
    onednn_problem problem;
    tc_status status = onednn_problem_make(conv, &problem);
    if (status != TC_OK)
        return status;
    find_job job = {state, &problem, name ? name : onednn_any_name, 0};
    status = onednn_caller_run(run_find, &job);
    *flags = job.flags;
    return status;
}

typedef struct prepare_job {
    onednn_engine *engine;
    const onednn_problem *problem;
    const char *name;
    onednn_plan *plan;
} prepare_job;

static tc_status run_prepare(void *argument)
{
    prepare_job *job = argument;
    return onednn_plan_make(job->engine, job->problem, job->name, &job->plan);
}

static tc_status prepare(void *state, int32_t ordinal, const tc_conv *conv, const char *name, void **plan)
{
    (void)ordinal;
    onednn_problem problem;
    tc_status status = onednn_problem_make(conv, &problem);
    if (status != TC_OK)
        return status;
    prepare_job job = {state, &problem, name, NULL};
    status = onednn_caller_run(run_prepare, &job);
    if (status == TC_OK)
        *plan = job.plan;
    return status;
}

typedef struct run_job {
    onednn_engine *engine;
    onednn_plan *plan;
    void *workspace;
    const tc_operands *operands;
    int32_t runs;
    double seconds;
} run_job;

static tc_status run_release(void *argument)
{
    run_job *job = argument;
    onednn_plan_free(job->engine, job->plan);
    return TC_OK;
}

static void release(void *state, void *plan)
{
    onednn_caller_run(run_release, &(run_job){.engine = state, .plan = plan});
}

static size_t workspace_bytes(void *state, const void *plan)
{
    (void)state;
    return ((const onednn_plan *)plan)->workspace;
}

static tc_status run_once(void *argument)
{
    run_job *job = argument;
    return onednn_plan_run(job->engine, job->plan, job->workspace, job->operands);
}

static tc_status run(void *state, void *plan, const tc_context *ctx, void *workspace, const tc_operands *operands)
{
    (void)ctx;
    return onednn_caller_run(run_once, &(run_job){state, plan, workspace, operands, 1, 0.0});
}

/* ---- for the tuner -------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tc_status run_timed(void *argument)
{
    run_job *job = argument;
    tc_status status = TC_OK;
    double begin = now();
    for (int32_t i = 0; i < job->runs && status == TC_OK; i++)
        status = run_once(job);
    job->seconds = now() - begin;
    return status;
}

static tc_status time_runs(void *state, void *plan, const tc_context *ctx, void *workspace,
                           const tc_operands *operands, int32_t runs, double *seconds)
{
    (void)ctx;
    run_job job = {state, plan, workspace, operands, runs, 0.0};
    tc_status status = onednn_caller_run(run_timed, &job);
    *seconds = job.seconds;
    return status;
}

static int32_t can_measure(void *state, const tc_context *ctx)
{
    (void)state;
    (void)ctx;
    return 1;
}

static tc_status fetch(void *state, const tc_context *ctx, void *host, const void *device, size_t bytes)
{
    (void)state;
    (void)ctx;
    memcpy(host, device, bytes);
    return TC_OK;
}

static tc_status poison(void *state, const tc_context *ctx, void *device, size_t bytes)
{
    (void)state;
    (void)ctx;
    memset(device, 0xFF, bytes);
    return TC_OK;
}

const tc_engine_ops tc_onednn_engine = {
    .name = "onednn",
    .device_kind = TC_CPU,
    .is_exact = 1,
    .open = open_engine,
    .close = close_engine,
    .describe = describe,
    .environment = environment,
    .candidates = candidates,
    .find = find,
    .prepare = prepare,
    .release = release,
    .workspace = workspace_bytes,
    .run = run,
    .can_measure = can_measure,
    .time = time_runs,
    .fetch = fetch,
    .poison = poison,
};

#endif
