/* The two libraries, opened at run time: cuDNN 9 and the CUDA driver. */
#ifndef TC_CUDNN_LIBRARY_H
#define TC_CUDNN_LIBRARY_H

#include "cudnn_api.h"
#include "tunedconv_engine.h"

typedef struct tc_cudnn_library {
    void *cuda_handle, *cudnn_handle; /* of dlopen */
    tc_cuda_api cuda;
    tc_cudnn_api cudnn;
    int major, minor, patch;          /* cuDNN's */
    int driver;                       /* the newest CUDA it supports, 12040 for 12.4; 0 when it does not say */
    char path[512];                   /* cuDNN's file */
    const char *origin;               /* why this copy was taken */
} tc_cudnn_library;

/*
 * Opens both. cuDNN: the copy that the process has loaded already (a second one would cost memory and mix
 * states), then the paths in order, then whatever the system's search finds. TC_UNAVAILABLE says what was
 * tried and what to install. Neither is ever unloaded: GPU libraries do not survive that in a running process.
 */
tc_status tc_cudnn_library_open(tc_cudnn_library *library, const char *const *paths);

/*
 * The status of a failed call as the core knows it, with a message: what was being done, the library's name
 * of the error and its explanation. `what` is what was being done, without a full stop.
 */
tc_status tc_cuda_fail(const tc_cudnn_library *library, CUresult result, const char *what);
tc_status tc_cudnn_fail(const tc_cudnn_library *library, cudnnStatus_t status, const char *what);

/* Whether the error stays with the context, so that nothing will run on the device again. */
int tc_cuda_is_sticky(CUresult result);

#endif
