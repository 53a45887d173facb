/* Making, running and timing a plan. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "candidates.h"
#include "descriptors.h"
#include "direct/direct.h"
#include "trace.h"

/* Parts of the workspace begin at multiples of this, as memory from CUDA's allocators does. */
enum { WORKSPACE_ALIGNMENT = 256, X = 0, W = 1, Y = 2, OPERANDS = 3 };

/* What a launch costs the host, generously: the stream is kept busy for as long before a measurement. */
static const uint64_t LAUNCH_NANOSECONDS = 15000, LONGEST_DELAY_NANOSECONDS = 3000000;

struct tc_plan {
    tc_device *device;
    tc_conv conv;
    char name[TC_NAME_SIZE];
    tc_problem problem;
    tc_execution execution;
    const tc_kernels *kernels;  /* NULL when nothing is converted */
    tc_direct_plan direct;      /* in place of cuDNN where it has a family */
    size_t places[OPERANDS];    /* of the converted tensors in the workspace, behind cuDNN's part */
    size_t workspace;
    /* cuDNN does not promise that one plan runs in two threads at once. */
    pthread_mutex_t lock;
    cudnnBackendDescriptor_t pack; /* of the last run, good for the next with the same addresses */
    void *packed[OPERANDS + 1];
};

/* ---- making ---------------------------------------------------------------------------------------------- */

static const tc_conversion *conversion_of(const tc_plan *plan, int operand)
{
    return operand == X ? &plan->problem.x : operand == W ? &plan->problem.w : &plan->problem.y;
}

/* Bytes of the tensor that the problem has in place of the caller's operand. */
static size_t converted_bytes(const tc_plan *plan, int operand)
{
    const tc_conv *c = &plan->problem.conv;
    if (plan->problem.swapped && operand != W)
        operand = operand == X ? Y : X;
    const int64_t *dims = operand == X ? c->x_dims : operand == W ? c->w_dims : c->y_dims;
    int32_t dtype = operand == X ? c->x_dtype : operand == W ? c->w_dtype : c->y_dtype;
    return (size_t)tc_elements(dims, c->spatial_rank) * tc_dtype_size(dtype);
}

static size_t aligned(size_t bytes)
{
    return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

static int converts(const tc_plan *plan)
{
    return plan->problem.x.active || plan->problem.w.active || plan->problem.y.active;
}

static void lay_out_workspace(tc_plan *plan)
{
    plan->workspace = (size_t)plan->execution.workspace;
    for (int operand = 0; operand < OPERANDS; operand++) {
        if (!conversion_of(plan, operand)->active)
            continue;
        plan->places[operand] = aligned(plan->workspace);
        plan->workspace = plan->places[operand] + converted_bytes(plan, operand);
    }
}

static tc_status build(tc_plan *plan, const tc_algorithm *algorithm, cudnnHandle_t handle)
{
    tc_graph graph;
    tc_notes notes = 0;
    tc_status status = tc_graph_make(plan->device->library, handle, &plan->problem.conv, &graph);
    if (status != TC_OK)
        return status;
    status = tc_graph_engine_notes(&graph, algorithm->engine, &notes);
    if (status == TC_OK && !tc_notes_allowed(&plan->conv, notes))
        status = tc_fail(TC_NOT_FOUND, "this engine does not compute as the convolution asks for");
    if (status == TC_OK && !tc_engine_is_right(&plan->problem.conv, algorithm->engine))
        status = tc_fail(TC_NOT_FOUND, "this engine gives wrong results for such a convolution");
    if (status == TC_OK)
        status = tc_graph_execution(&graph, algorithm->engine, algorithm->knobs, algorithm->knob_count,
                                    &plan->execution);
    tc_graph_destroy(&graph);
    return status;
}

static tc_status make(tc_plan *plan)
{
    tc_algorithm algorithm;
    tc_cudnn_handle *handle;
    tc_status status;
    if (tc_direct_is_name(plan->name)) {
        status = tc_direct_prepare(plan->device, &plan->conv, plan->name, &plan->direct);
        plan->workspace = plan->direct.workspace;
        return status;
    }
    status = tc_algorithm_parse(plan->name, plan->conv.x_layout, &algorithm);
    if (status == TC_OK)
        status = tc_problem_make(&plan->conv, &algorithm.rewrite, &plan->problem);
    if (status == TC_OK)
        status = tc_device_take_handle(plan->device, NULL, &handle);
    if (status != TC_OK)
        return status;
    status = build(plan, &algorithm, handle->handle);
    tc_device_give_handle(plan->device, handle);
    if (status == TC_OK && converts(plan))
        status = tc_device_kernels(plan->device, &plan->kernels);
    lay_out_workspace(plan);
    return status;
}

/* Adds which algorithm and convolution it was about. */
static tc_status explain(const tc_plan *plan, tc_status status, const char *doing)
{
    char key[TC_KEY_SIZE];
    if (tc_key_format(&plan->conv, key, sizeof key) != TC_OK)
        key[0] = '\0';
    return tc_fail(status, "%s %s for %s: %s", doing, plan->name, key, tc_last_error());
}

tc_status tc_plan_make(tc_device *device, const tc_conv *conv, const char *name, tc_plan **plan)
{
    if (strlen(name) >= TC_NAME_SIZE)
        return tc_fail(TC_NOT_FOUND, "an algorithm's name has at most %d bytes", TC_NAME_SIZE - 1);
    tc_plan *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    made->device = device;
    made->conv = *conv;
    strcpy(made->name, name);
    pthread_mutex_init(&made->lock, NULL);
    tc_device_scope scope;
    tc_status status = tc_device_enter(device, 1, &scope);
    if (status == TC_OK) {
        status = make(made);
        tc_device_leave(device, &scope);
    }
    if (status == TC_OK) {
        *plan = made;
        return TC_OK;
    }
    char reason[TC_MESSAGE_SIZE];
    strcpy(reason, tc_last_error()); /* destroying may say something of its own */
    tc_fail(status, "%s", reason);
    status = explain(made, status == TC_UNSUPPORTED ? TC_NOT_FOUND : status, "preparing");
    tc_plan_destroy(made);
    return status;
}

void tc_plan_destroy(tc_plan *plan)
{
    tc_device_scope scope;
    if (tc_device_enter(plan->device, 1, &scope) == TC_OK) {
        /* What was compiled for the plan goes with it, so nothing of it may still be queued. */
        if (plan->execution.plan)
            plan->device->library->cuda.cuCtxSynchronize();
        tc_build_destroy(plan->device->library, &plan->pack);
        tc_execution_destroy(&plan->execution);
        tc_device_leave(plan->device, &scope);
    }
    pthread_mutex_destroy(&plan->lock);
    free(plan);
}

const tc_device *tc_plan_device(const tc_plan *plan)
{
    return plan->device;
}

size_t tc_plan_workspace(const tc_plan *plan)
{
    return plan->workspace;
}

/* ---- running --------------------------------------------------------------------------------------------- */

/* One run's addresses: the caller's, and where cuDNN reads and writes. */
typedef struct addresses {
    void *caller[OPERANDS], *problem[OPERANDS], *workspace;
} addresses;

static int output_of(const tc_plan *plan)
{
    return plan->conv.direction == TC_FORWARD ? Y : plan->conv.direction == TC_BACKWARD_DATA ? X : W;
}

static tc_status find_addresses(const tc_plan *plan, void *workspace, const tc_operands *operands, addresses *a)
{
    static const char *const NAMES[OPERANDS] = {"x", "w", "y"};
    *a = (addresses){.caller = {operands->x, operands->w, operands->y}, .workspace = workspace};
    if (plan->workspace && (!workspace || (uintptr_t)workspace % TC_TENSOR_ALIGNMENT))
        return tc_fail(TC_INVALID_ARGUMENT, "expected a workspace of %zu bytes at a multiple of %d, got one at %p",
                       plan->workspace, TC_TENSOR_ALIGNMENT, workspace);
    for (int operand = 0; operand < OPERANDS; operand++) {
        if (!a->caller[operand] || (uintptr_t)a->caller[operand] % TC_TENSOR_ALIGNMENT)
            return tc_fail(TC_INVALID_ARGUMENT,
                           "expected %s at an address that is a multiple of %d bytes, got %p; copy it first",
                           NAMES[operand], TC_TENSOR_ALIGNMENT, a->caller[operand]);
        a->problem[operand] = conversion_of(plan, operand)->active ? (char *)workspace + plan->places[operand]
                                                                   : a->caller[operand];
    }
    return TC_OK;
}

/* The variant pack of these addresses: frameworks hand out the same ones step after step. */
static cudnnStatus_t pack(tc_plan *plan, const addresses *a)
{
    const int64_t uids[OPERANDS] = {plan->problem.swapped ? TC_UID_Y : TC_UID_X, TC_UID_W,
                                    plan->problem.swapped ? TC_UID_X : TC_UID_Y};
    void *wanted[OPERANDS + 1] = {a->problem[X], a->problem[W], a->problem[Y], a->workspace};
    if (plan->pack && memcmp(wanted, plan->packed, sizeof wanted) == 0)
        return CUDNN_STATUS_SUCCESS;
    tc_builder b = {.library = plan->device->library};
    tc_build_destroy(b.library, &plan->pack);
    plan->pack = tc_build_create(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    tc_build_set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, OPERANDS, uids);
    tc_build_set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, OPERANDS, a->problem);
    tc_build_set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &a->workspace);
    tc_build_finalize(&b, plan->pack);
    if (b.status == CUDNN_STATUS_SUCCESS)
        memcpy(plan->packed, wanted, sizeof wanted);
    else
        tc_build_destroy(b.library, &plan->pack);
    return b.status;
}

/* cuDNN calls every failure to launch by one name: whether the device is lost, the stream tells. */
static tc_status execution_failure(const tc_plan *plan, CUstream stream, cudnnStatus_t answer)
{
    tc_status status = tc_cudnn_fail(plan->device->library, answer, "executing");
    if (answer / 1000 != CUDNN_STATUS_EXECUTION_FAILED / 1000)
        return status;
    CUresult result = plan->device->library->cuda.cuStreamQuery(stream);
    return tc_cuda_is_sticky(result) ? tc_cuda_fail(plan->device->library, result, "executing") : status;
}

static tc_status execute(tc_plan *plan, CUstream stream, const addresses *a)
{
    tc_cudnn_handle *handle;
    tc_status status = tc_device_take_handle(plan->device, stream, &handle);
    if (status != TC_OK)
        return status;
    cudnnStatus_t answer = pack(plan, a);
    if (answer == CUDNN_STATUS_SUCCESS)
        answer = plan->device->library->cudnn.cudnnBackendExecute(handle->handle, plan->execution.plan, plan->pack);
    if (answer != CUDNN_STATUS_SUCCESS)
        status = execution_failure(plan, stream, answer);
    tc_device_give_handle(plan->device, handle);
    return status;
}

static tc_status convert(const tc_plan *plan, int operand, CUstream stream, const addresses *a)
{
    const tc_conversion *conversion = conversion_of(plan, operand);
    int computed = operand == output_of(plan);
    if (!conversion->active)
        return TC_OK;
    return tc_conversion_run(plan->kernels, conversion, stream,
                             computed ? a->problem[operand] : a->caller[operand],
                             computed ? a->caller[operand] : a->problem[operand]);
}

/* Inputs converted, cuDNN, the output converted; inside the device's context and the plan's lock. */
static tc_status enqueue(tc_plan *plan, CUstream stream, const addresses *a)
{
    tc_status status = TC_OK;
    if (plan->direct.family)
        return plan->direct.family->run(&plan->direct, stream, a->workspace,
                                        &(tc_operands){a->caller[X], a->caller[W], a->caller[Y]});
    for (int operand = 0; operand < OPERANDS && status == TC_OK; operand++)
        if (operand != output_of(plan))
            status = convert(plan, operand, stream, a);
    if (status == TC_OK)
        status = execute(plan, stream, a);
    return status == TC_OK ? convert(plan, output_of(plan), stream, a) : status;
}

static void trace(const tc_plan *plan)
{
    char key[TC_KEY_SIZE];
    if (tc_key_format(&plan->conv, key, sizeof key) == TC_OK)
        tc_trace_push("%s %s", plan->name, key);
    else
        tc_trace_push("%s", plan->name);
}

tc_status tc_plan_run(tc_plan *plan, CUstream stream, void *workspace, const tc_operands *operands)
{
    addresses a;
    tc_device_scope scope;
    tc_status status = find_addresses(plan, workspace, operands, &a);
    if (status == TC_OK)
        status = tc_device_enter(plan->device, 0, &scope);
    if (status != TC_OK)
        return explain(plan, status, "running");
    int traced = tc_trace_on();
    if (traced)
        trace(plan);
    pthread_mutex_lock(&plan->lock);
    status = enqueue(plan, stream, &a);
    pthread_mutex_unlock(&plan->lock);
    if (traced)
        tc_trace_pop();
    tc_device_leave(plan->device, &scope);
    return status == TC_OK ? TC_OK : explain(plan, status, "running");
}

/* ---- timing ---------------------------------------------------------------------------------------------- */

/* The delay lets the host get ahead, so that short kernels are not timed with the gaps between launches. */
static tc_status delay(tc_plan *plan, CUstream stream, int32_t runs)
{
    const tc_kernels *kernels;
    uint64_t launches = 1 + plan->problem.x.active + plan->problem.w.active + plan->problem.y.active;
    for (int i = 1; i < TC_DIRECT_FUNCTIONS; i++)
        launches += plan->direct.functions[i] != NULL;
    uint64_t nanoseconds = launches * (uint64_t)runs * LAUNCH_NANOSECONDS;
    tc_status status = tc_device_kernels(plan->device, &kernels);
    if (status != TC_OK)
        return status;
    return tc_delay_run(kernels, stream,
                        nanoseconds < LONGEST_DELAY_NANOSECONDS ? nanoseconds : LONGEST_DELAY_NANOSECONDS);
}

static tc_status time_between(tc_plan *plan, CUstream stream, const addresses *a, int32_t runs, const tc_timer *timer,
                              double *seconds)
{
    const tc_cuda_api *cuda = &plan->device->library->cuda;
    float milliseconds = 0;
    tc_status status = delay(plan, stream, runs);
    CUresult result = status == TC_OK ? cuda->cuEventRecord(timer->start, stream) : CUDA_SUCCESS;
    for (int32_t i = 0; i < runs && status == TC_OK && result == CUDA_SUCCESS; i++)
        status = enqueue(plan, stream, a);
    if (status != TC_OK)
        return status;
    if (result == CUDA_SUCCESS)
        result = cuda->cuEventRecord(timer->stop, stream);
    if (result == CUDA_SUCCESS)
        result = cuda->cuEventSynchronize(timer->stop);
    if (result == CUDA_SUCCESS)
        result = cuda->cuEventElapsedTime(&milliseconds, timer->start, timer->stop);
    *seconds = (double)milliseconds * 1e-3;
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(plan->device->library, result, "measuring");
}

tc_status tc_plan_time(tc_plan *plan, CUstream stream, void *workspace, const tc_operands *operands, int32_t runs,
                       double *seconds)
{
    addresses a;
    tc_device_scope scope;
    tc_timer *timer;
    tc_status status = find_addresses(plan, workspace, operands, &a);
    if (status == TC_OK)
        status = tc_device_enter(plan->device, 1, &scope);
    if (status != TC_OK)
        return explain(plan, status, "timing");
    status = tc_device_take_timer(plan->device, &timer);
    if (status == TC_OK) {
        pthread_mutex_lock(&plan->lock);
        status = time_between(plan, stream, &a, runs, timer, seconds);
        pthread_mutex_unlock(&plan->lock);
        tc_device_give_timer(plan->device, timer);
    }
    tc_device_leave(plan->device, &scope);
    return status == TC_OK ? TC_OK : explain(plan, status, "timing");
}
