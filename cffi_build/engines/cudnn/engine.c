/* The cuDNN engine: the table of functions that the core knows it by. */
#include <stdio.h>
#include <stdlib.h>

#include "candidates.h"
#include "plan.h"

typedef struct engine {
    tc_cudnn_library library;
    pthread_mutex_t lock; /* of the devices' list; each looks after itself */
    tc_device *devices[TC_CUDNN_MAX_DEVICES];
} engine;

static tc_status open_engine(const char *const *paths, void **state)
{
    engine *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for the cuDNN engine");
    tc_status status = tc_cudnn_library_open(&made->library, paths);
    if (status != TC_OK) {
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    *state = made;
    return TC_OK;
}

static void close_engine(void *state)
{
    engine *e = state;
    for (int i = 0; i < TC_CUDNN_MAX_DEVICES; i++)
        if (e->devices[i])
            tc_device_close(e->devices[i]);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static tc_status describe(void *state, char *text, size_t size)
{
    const tc_cudnn_library *library = &((engine *)state)->library;
    snprintf(text, size, "cuDNN %d.%d.%d, %s (%s)", library->major, library->minor, library->patch, library->path,
             library->origin);
    return TC_OK;
}

static tc_status find_device(engine *e, int32_t ordinal, tc_device **device)
{
    tc_status status = TC_OK;
    *device = NULL;
    if (ordinal < 0 || ordinal >= TC_CUDNN_MAX_DEVICES)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a GPU's number from 0 to %d, got %d", TC_CUDNN_MAX_DEVICES - 1,
                       ordinal);
    pthread_mutex_lock(&e->lock);
    if (!e->devices[ordinal])
        status = tc_device_open(&e->library, ordinal, &e->devices[ordinal]);
    *device = e->devices[ordinal];
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* What decides which algorithms there are and how fast they run; cuDNN's patch level and the driver are soft. */
static tc_status environment(void *state, int32_t ordinal, char *text, size_t size)
{
    engine *e = state;
    tc_device *device;
    tc_status status = find_device(e, ordinal, &device);
    if (status != TC_OK)
        return status;
    int length = snprintf(text, size,
                          "engine=cudnn;version=%d.%d;device=%s;sm=%d.%d;multiprocessors=%d;~patch=%d;~driver=%d.%d",
                          e->library.major, e->library.minor, device->name, device->compute_major,
                          device->compute_minor, device->multiprocessors, e->library.patch,
                          e->library.driver / 1000, e->library.driver % 1000 / 10);
    if (length < 0 || (size_t)length >= size)
        return tc_fail(TC_INTERNAL, "the environment's text needs %d bytes, and %zu are there", length + 1, size);
    return TC_OK;
}

static tc_status candidates(void *state, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    engine *e = state;
    tc_device *device;
    tc_device_scope scope;
    tc_cudnn_handle *handle;
    if (conv->epilogue)
        return tc_fail(TC_UNSUPPORTED, "the cuDNN engine fuses no epilogue");
    tc_status status = find_device(e, ordinal, &device);
    if (status == TC_OK)
        status = tc_device_enter(device, 1, &scope);
    if (status != TC_OK)
        return status;
    status = tc_device_take_handle(device, NULL, &handle);
    if (status == TC_OK) {
        status = tc_cudnn_candidates(device, handle->handle, conv, list);
        tc_device_give_handle(device, handle);
    }
    tc_device_leave(device, &scope);
    return status;
}

static tc_status prepare(void *state, int32_t ordinal, const tc_conv *conv, const char *name, void **plan)
{
    tc_device *device;
    tc_plan *made = NULL;
    if (conv->epilogue)
        return tc_fail(TC_NOT_FOUND, "the cuDNN engine fuses no epilogue");
    tc_status status = find_device(state, ordinal, &device);
    if (status == TC_OK)
        status = tc_plan_make(device, conv, name, &made);
    if (status == TC_OK)
        *plan = made;
    return status;
}

static void release(void *state, void *plan)
{
    (void)state;
    tc_plan_destroy(plan);
}

static size_t workspace(void *state, const void *plan)
{
    (void)state;
    return tc_plan_workspace(plan);
}

static tc_status check_device(const tc_plan *plan, const tc_context *ctx)
{
    int made_for = tc_plan_device(plan)->ordinal;
    return ctx->device_ordinal == made_for ? TC_OK
                                           : tc_fail(TC_INVALID_ARGUMENT, "a plan for GPU %d cannot run on GPU %d",
                                                     made_for, ctx->device_ordinal);
}

static tc_status run(void *state, void *plan, const tc_context *ctx, void *memory, const tc_operands *operands)
{
    (void)state;
    tc_status status = check_device(plan, ctx);
    return status == TC_OK ? tc_plan_run(plan, ctx->stream, memory, operands) : status;
}

/* ---- for the tuner --------------------------------------------------------------------------------------- */

static int32_t can_measure(void *state, const tc_context *ctx)
{
    engine *e = state;
    tc_device *device;
    tc_device_scope scope;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (find_device(e, ctx->device_ordinal, &device) != TC_OK || tc_device_enter(device, 0, &scope) != TC_OK)
        return 0;
    CUresult result = e->library.cuda.cuStreamIsCapturing(ctx->stream, &capture);
    tc_device_leave(device, &scope);
    return result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE;
}

static tc_status time_plan(void *state, void *plan, const tc_context *ctx, void *memory, const tc_operands *operands,
                           int32_t runs, double *seconds)
{
    (void)state;
    tc_status status = check_device(plan, ctx);
    return status == TC_OK ? tc_plan_time(plan, ctx->stream, memory, operands, runs, seconds) : status;
}

static tc_status fetch(void *state, const tc_context *ctx, void *host, const void *memory, size_t bytes)
{
    engine *e = state;
    tc_device *device;
    tc_device_scope scope;
    tc_status status = find_device(e, ctx->device_ordinal, &device);
    if (status == TC_OK)
        status = tc_device_enter(device, 1, &scope);
    if (status != TC_OK)
        return status;
    CUresult result = e->library.cuda.cuMemcpyDtoHAsync_v2(host, (CUdeviceptr)memory, bytes, ctx->stream);
    if (result == CUDA_SUCCESS)
        result = e->library.cuda.cuStreamSynchronize(ctx->stream);
    tc_device_leave(device, &scope);
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(&e->library, result, "copying from the GPU");
}

static tc_status fill(engine *e, const tc_context *ctx, void *memory, unsigned char byte, size_t bytes)
{
    tc_device *device;
    tc_device_scope scope;
    tc_status status = find_device(e, ctx->device_ordinal, &device);
    if (status == TC_OK)
        status = tc_device_enter(device, 0, &scope);
    if (status != TC_OK)
        return status;
    CUresult result = e->library.cuda.cuMemsetD8Async((CUdeviceptr)memory, byte, bytes, ctx->stream);
    tc_device_leave(device, &scope);
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(&e->library, result, "filling memory of the GPU");
}

static tc_status poison(void *state, const tc_context *ctx, void *memory, size_t bytes)
{
    return fill(state, ctx, memory, 0xFF, bytes);
}

static tc_status zero(void *state, const tc_context *ctx, void *memory, size_t bytes)
{
    return fill(state, ctx, memory, 0, bytes);
}

const tc_engine_ops tc_cudnn_engine = {
    .name = "cudnn",
    .device_kind = TC_CUDA,
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
    .time = time_plan,
    .fetch = fetch,
    .poison = poison,
    .zero = zero,
};
