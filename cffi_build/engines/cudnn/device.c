/* The state kept for one GPU. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name goes into the environment text, which is one line of name=value pairs. */
static void clean_name(char *name)
{
    for (; *name; name++)
        if (*name == ';' || *name == '=' || *name == '|' || (unsigned char)*name < ' ')
            *name = ' ';
}

static CUresult query(tc_device *device)
{
    const tc_cuda_api *cuda = &device->library->cuda;
    CUresult result = cuda->cuDeviceGet(&device->device, device->ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetName(device->name, sizeof device->name, device->device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetAttribute(&device->compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                            device->device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetAttribute(&device->compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                            device->device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetAttribute(&device->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                            device->device);
    if (result == CUDA_SUCCESS)
        result = cuda->cuDevicePrimaryCtxRetain(&device->primary, device->device);
    return result;
}

tc_status tc_device_open(const tc_cudnn_library *library, int ordinal, tc_device **device)
{
    int count = 0;
    CUresult result = library->cuda.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return tc_cuda_fail(library, result, "counting the GPUs");
    if (ordinal < 0 || ordinal >= count || ordinal >= TC_CUDNN_MAX_DEVICES)
        return tc_fail(TC_INVALID_ARGUMENT, "there is no GPU %d: this process sees %d, numbered from 0", ordinal, count);
    tc_device *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for the state of GPU %d", ordinal);
    made->library = library;
    made->ordinal = ordinal;
    pthread_mutex_init(&made->lock, NULL);
    result = query(made);
    if (result != CUDA_SUCCESS) {
        tc_device_close(made);
        return tc_cuda_fail(library, result, "looking at the GPU");
    }
    clean_name(made->name);
    *device = made;
    return TC_OK;
}

void tc_device_close(tc_device *device)
{
    const tc_cudnn_library *library = device->library;
    tc_device_scope scope;
    if (device->primary && tc_device_enter(device, 1, &scope) == TC_OK) {
        for (tc_cudnn_handle *handle = device->handles, *next; handle; handle = next) {
            next = handle->next;
            library->cudnn.cudnnDestroy(handle->handle);
            free(handle);
        }
        for (tc_timer *timer = device->timers, *next; timer; timer = next) {
            next = timer->next;
            library->cuda.cuEventDestroy_v2(timer->start);
            library->cuda.cuEventDestroy_v2(timer->stop);
            free(timer);
        }
        tc_kernels_close(device->kernels);
        for (tc_module *module = device->modules, *next; module; module = next) {
            next = module->next;
            library->cuda.cuModuleUnload(module->module);
            free(module);
        }
        tc_device_leave(device, &scope);
    }
    if (device->primary)
        library->cuda.cuDevicePrimaryCtxRelease_v2(device->device);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

tc_status tc_device_enter(tc_device *device, int relaxed, tc_device_scope *scope)
{
    const tc_cuda_api *cuda = &device->library->cuda;
    CUcontext context = NULL;
    CUdevice current = -1;
    memset(scope, 0, sizeof *scope);
    CUresult result = cuda->cuCtxGetCurrent(&context);
    if (result == CUDA_SUCCESS && context)
        result = cuda->cuCtxGetDevice(&current);
    if (result == CUDA_SUCCESS && (!context || current != device->device)) {
        result = cuda->cuCtxPushCurrent_v2(device->primary);
        scope->pushed = result == CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS)
        return tc_cuda_fail(device->library, result, "entering the GPU's context");
    if (relaxed) {
        scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        scope->relaxed = cuda->cuThreadExchangeStreamCaptureMode(&scope->mode) == CUDA_SUCCESS;
    }
    return TC_OK;
}

void tc_device_leave(tc_device *device, const tc_device_scope *scope)
{
    const tc_cuda_api *cuda = &device->library->cuda;
    CUstreamCaptureMode mode = scope->mode;
    CUcontext popped;
    if (scope->relaxed)
        cuda->cuThreadExchangeStreamCaptureMode(&mode);
    if (scope->pushed)
        cuda->cuCtxPopCurrent_v2(&popped);
}

/* ---- handles --------------------------------------------------------------------------------------------- */

/* A free handle that has the stream already, else any free one; NULL when all are lent. */
static tc_cudnn_handle *take_free(tc_device *device, CUstream stream)
{
    pthread_mutex_lock(&device->lock);
    tc_cudnn_handle **link = &device->handles;
    while (*link && !((*link)->has_stream && (*link)->stream == stream))
        link = &(*link)->next;
    if (!*link)
        link = &device->handles;
    tc_cudnn_handle *handle = *link;
    if (handle)
        *link = handle->next;
    pthread_mutex_unlock(&device->lock);
    return handle;
}

static tc_status make_handle(tc_device *device, tc_cudnn_handle **handle)
{
    const tc_cudnn_library *library = device->library;
    tc_device_scope scope;
    tc_cudnn_handle *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a cuDNN handle");
    tc_status status = tc_device_enter(device, 1, &scope);
    if (status != TC_OK) {
        free(made);
        return status;
    }
    cudnnStatus_t answer = library->cudnn.cudnnCreate(&made->handle);
    tc_device_leave(device, &scope);
    if (answer != CUDNN_STATUS_SUCCESS) {
        free(made);
        return tc_cudnn_fail(library, answer, "making a cuDNN handle");
    }
    *handle = made;
    return TC_OK;
}

tc_status tc_device_take_handle(tc_device *device, CUstream stream, tc_cudnn_handle **handle)
{
    *handle = take_free(device, stream);
    if (!*handle) {
        tc_status status = make_handle(device, handle);
        if (status != TC_OK)
            return status;
    }
    if ((*handle)->has_stream && (*handle)->stream == stream)
        return TC_OK;
    cudnnStatus_t answer = device->library->cudnn.cudnnSetStream((*handle)->handle, stream);
    (*handle)->has_stream = answer == CUDNN_STATUS_SUCCESS;
    (*handle)->stream = stream;
    if (answer == CUDNN_STATUS_SUCCESS)
        return TC_OK;
    tc_device_give_handle(device, *handle);
    *handle = NULL;
    return tc_cudnn_fail(device->library, answer, "setting the stream of a cuDNN handle");
}

void tc_device_give_handle(tc_device *device, tc_cudnn_handle *handle)
{
    pthread_mutex_lock(&device->lock);
    handle->next = device->handles;
    device->handles = handle;
    pthread_mutex_unlock(&device->lock);
}

tc_status tc_device_kernels(tc_device *device, const tc_kernels **kernels)
{
    pthread_mutex_lock(&device->lock);
    tc_status status = device->kernels ? TC_OK : tc_kernels_open(device->library, &device->kernels);
    *kernels = device->kernels;
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* Under the lock. */
static tc_status load_module(tc_device *device, const char *ptx, tc_module **module)
{
    for (*module = device->modules; *module; *module = (*module)->next)
        if ((*module)->ptx == ptx)
            return TC_OK;
    tc_module *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a module of kernels");
    CUresult result = device->library->cuda.cuModuleLoadData(&made->module, ptx);
    if (result != CUDA_SUCCESS) {
        free(made);
        return tc_cuda_fail(device->library, result, "loading kernels");
    }
    made->ptx = ptx;
    made->next = device->modules;
    *module = device->modules = made;
    return TC_OK;
}

tc_status tc_device_function(tc_device *device, const char *ptx, const char *name, CUfunction *function)
{
    tc_module *module;
    pthread_mutex_lock(&device->lock);
    tc_status status = load_module(device, ptx, &module);
    if (status == TC_OK) {
        CUresult result = device->library->cuda.cuModuleGetFunction(function, module->module, name);
        if (result != CUDA_SUCCESS)
            status = tc_cuda_fail(device->library, result, "finding a kernel");
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* ---- timers ---------------------------------------------------------------------------------------------- */

static tc_status make_timer(tc_device *device, tc_timer **timer)
{
    const tc_cuda_api *cuda = &device->library->cuda;
    tc_timer *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a timer");
    CUresult result = cuda->cuEventCreate(&made->start, 0);
    if (result == CUDA_SUCCESS) {
        result = cuda->cuEventCreate(&made->stop, 0);
        if (result != CUDA_SUCCESS)
            cuda->cuEventDestroy_v2(made->start);
    }
    if (result != CUDA_SUCCESS) {
        free(made);
        return tc_cuda_fail(device->library, result, "making events to time with");
    }
    *timer = made;
    return TC_OK;
}

tc_status tc_device_take_timer(tc_device *device, tc_timer **timer)
{
    pthread_mutex_lock(&device->lock);
    *timer = device->timers;
    if (*timer)
        device->timers = (*timer)->next;
    pthread_mutex_unlock(&device->lock);
    return *timer ? TC_OK : make_timer(device, timer);
}

void tc_device_give_timer(tc_device *device, tc_timer *timer)
{
    pthread_mutex_lock(&device->lock);
    timer->next = device->timers;
    device->timers = timer;
    pthread_mutex_unlock(&device->lock);
}
