/*
 * The part of the CUDA driver interface (libcuda.so.1) that the engine uses: the driver is on every machine
 * with a GPU, so that no CUDA runtime is needed. Names and values are CUDA's own, compared with the real
 * header by tests/engines/test_cudnn_declarations.py where one is found. Functions that CUDA's header
 * renames (cuCtxPushCurrent is cuCtxPushCurrent_v2) carry the name in the library.
 */
#ifndef TC_CUDA_API_H
#define TC_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;

/* CUresult */
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
    CUDA_ERROR_CONTAINED = 226,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_INVALID_PC = 718,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_UNKNOWN = 999
};

/* CUdevice_attribute */
enum {
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
};

/* CUstreamCaptureStatus, CUstreamCaptureMode */
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

/* clang-format off */
#define TC_CUDA_FUNCTIONS(F)                                                                                      \
    F(CUresult, cuInit, (unsigned int))                                                                           \
    F(CUresult, cuDriverGetVersion, (int *))                                                                      \
    F(CUresult, cuGetErrorName, (CUresult, const char **))                                                        \
    F(CUresult, cuGetErrorString, (CUresult, const char **))                                                      \
    F(CUresult, cuDeviceGetCount, (int *))                                                                        \
    F(CUresult, cuDeviceGet, (CUdevice *, int))                                                                   \
    F(CUresult, cuDeviceGetName, (char *, int, CUdevice))                                                         \
    F(CUresult, cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                      \
    F(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                                \
    F(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                         \
    F(CUresult, cuCtxGetCurrent, (CUcontext *))                                                                   \
    F(CUresult, cuCtxGetDevice, (CUdevice *))                                                                     \
    F(CUresult, cuCtxPushCurrent_v2, (CUcontext))                                                                 \
    F(CUresult, cuCtxPopCurrent_v2, (CUcontext *))                                                                \
    F(CUresult, cuCtxSynchronize, (void))                                                                         \
    F(CUresult, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))                                       \
    F(CUresult, cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))                                         \
    F(CUresult, cuStreamQuery, (CUstream))                                                                        \
    F(CUresult, cuStreamSynchronize, (CUstream))                                                                  \
    F(CUresult, cuEventCreate, (CUevent *, unsigned int))                                                         \
    F(CUresult, cuEventDestroy_v2, (CUevent))                                                                     \
    F(CUresult, cuEventRecord, (CUevent, CUstream))                                                               \
    F(CUresult, cuEventSynchronize, (CUevent))                                                                    \
    F(CUresult, cuEventElapsedTime, (float *, CUevent, CUevent))                                                  \
    F(CUresult, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                    \
    F(CUresult, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                  \
    F(CUresult, cuModuleLoadData, (CUmodule *, const void *))                                                     \
    F(CUresult, cuModuleUnload, (CUmodule))                                                                       \
    F(CUresult, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                      \
    F(CUresult, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, CUfunction, int, size_t))                    \
    F(CUresult, cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,              \
                                 unsigned int, unsigned int, unsigned int, CUstream, void **, void **))
/* clang-format on */

#define TC_DECLARE_CUDA_POINTER(result, name, parameters) result(*name) parameters;
typedef struct tc_cuda_api {
    TC_CUDA_FUNCTIONS(TC_DECLARE_CUDA_POINTER)
} tc_cuda_api;

#endif
