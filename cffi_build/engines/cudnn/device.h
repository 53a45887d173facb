/*
 * One GPU: its context, its cuDNN handles, its timing events and its conversion kernels. Nothing made for
 * one device is ever used on another.
 */
#ifndef TC_CUDNN_DEVICE_H
#define TC_CUDNN_DEVICE_H

#include <pthread.h>

#include "kernels.h"

enum { TC_CUDNN_MAX_DEVICES = 64 };

/* A cuDNN handle must not serve two threads at once, so each is lent to one at a time. */
typedef struct tc_cudnn_handle {
    cudnnHandle_t handle;
    CUstream stream; /* the one set, once has_stream is */
    int has_stream;
    struct tc_cudnn_handle *next;
} tc_cudnn_handle;

typedef struct tc_timer {
    CUevent start, stop;
    struct tc_timer *next;
} tc_timer;

/* PTX that the driver has compiled for the device. */
typedef struct tc_module {
    const char *ptx;
    CUmodule module;
    struct tc_module *next;
} tc_module;

typedef struct tc_device {
    const tc_cudnn_library *library;
    int ordinal;
    CUdevice device;
    CUcontext primary;
    char name[96];
    int compute_major, compute_minor, multiprocessors;

    pthread_mutex_t lock; /* of what follows */
    tc_cudnn_handle *handles;
    tc_timer *timers;
    tc_kernels *kernels;
    tc_module *modules;
} tc_device;

/* Knows the device; makes nothing on it yet beyond its primary context. */
tc_status tc_device_open(const tc_cudnn_library *library, int ordinal, tc_device **device);
void tc_device_close(tc_device *device);

/* What tc_device_leave has to undo. */
typedef struct tc_device_scope {
    int pushed, relaxed;
    CUstreamCaptureMode mode;
} tc_device_scope;

/*
 * Makes a context of the device current on this thread, if none is. With `relaxed`, calls that wait or
 * allocate are allowed although some stream of the process is being captured into a graph.
 */
tc_status tc_device_enter(tc_device *device, int relaxed, tc_device_scope *scope);
void tc_device_leave(tc_device *device, const tc_device_scope *scope);

/* Lends a handle whose stream is `stream`; inside enter and leave. */
tc_status tc_device_take_handle(tc_device *device, CUstream stream, tc_cudnn_handle **handle);
void tc_device_give_handle(tc_device *device, tc_cudnn_handle *handle);

/* The conversion kernels, loaded when first asked for; inside enter (relaxed) and leave. */
tc_status tc_device_kernels(tc_device *device, const tc_kernels **kernels);
/* A kernel by its name in a text of PTX, which outlives the device and is compiled once; likewise. */
tc_status tc_device_function(tc_device *device, const char *ptx, const char *name, CUfunction *function);

/* Lends a pair of events; inside enter and leave. */
tc_status tc_device_take_timer(tc_device *device, tc_timer **timer);
void tc_device_give_timer(tc_device *device, tc_timer *timer);

#endif
