/* Finding and opening cuDNN and the CUDA driver, and turning their errors into the core's. */
#include "library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CUDNN_SONAME[] = "libcudnn.so.9";
static const char HOW_TO_GET[] = "Install it with `pip install nvidia-cudnn-cu12` (or -cu13 for CUDA 13)";

/* ---- the driver ------------------------------------------------------------------------------------------ */

static tc_status resolve_cuda(tc_cudnn_library *library)
{
#define RESOLVE(result, name, parameters)                                                            \
    library->cuda.name = (result(*) parameters)dlsym(library->cuda_handle, #name);                   \
    if (!library->cuda.name)                                                                         \
        return tc_fail(TC_UNAVAILABLE, "the CUDA driver has no " #name ": it is too old for cuDNN 9");
    TC_CUDA_FUNCTIONS(RESOLVE)
#undef RESOLVE
    return TC_OK;
}

static tc_status open_cuda(tc_cudnn_library *library)
{
    library->cuda_handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library->cuda_handle)
        return tc_fail(TC_UNAVAILABLE, "no NVIDIA driver here (%s): convolutions run on the CPU", dlerror());
    tc_status status = resolve_cuda(library);
    if (status != TC_OK)
        return status;
    int devices = 0;
    if (library->cuda.cuDriverGetVersion(&library->driver) != CUDA_SUCCESS)
        library->driver = 0;
    CUresult result = library->cuda.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = library->cuda.cuDeviceGetCount(&devices);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && devices == 0))
        return tc_fail(TC_UNAVAILABLE, "the NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES is %s)",
                       getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "not set");
    if (result != CUDA_SUCCESS) {
        tc_cuda_fail(library, result, "starting the NVIDIA driver");
        return tc_fail(TC_UNAVAILABLE, "%s", tc_last_error());
    }
    return TC_OK;
}

/* ---- cuDNN ----------------------------------------------------------------------------------------------- */

typedef struct search {
    char tried[640]; /* one reason a file, for the message when none will do */
    size_t length;
} search;

static void note(search *s, const char *file, const char *reason)
{
    int written = snprintf(s->tried + s->length, sizeof s->tried - s->length, "%s%s: %s", s->length ? "; " : "", file,
                           reason);
    s->length += (size_t)written;
    if (s->length >= sizeof s->tried)
        s->length = sizeof s->tried - 1;
}

static int resolve_cudnn(tc_cudnn_library *library)
{
    int complete = 1;
#define RESOLVE(result, name, parameters)                                            \
    library->cudnn.name = (result(*) parameters)dlsym(library->cudnn_handle, #name); \
    complete = complete && library->cudnn.name;
    TC_CUDNN_FUNCTIONS(RESOLVE)
#undef RESOLVE
    return complete;
}

/* cuDNN 8 counted 1000 to a major version, 9 counts 10000. */
static void split_version(size_t version, tc_cudnn_library *library)
{
    size_t unit = version >= 90000 ? 10000 : 1000;
    library->major = (int)(version / unit);
    library->minor = (int)(version % unit / 100);
    library->patch = (int)(version % 100);
}

/* Whether the opened file will do; notes why not. */
static int accept(tc_cudnn_library *library, const char *file, search *s)
{
    char reason[160];
    int complete = resolve_cudnn(library);
    if (!library->cudnn.cudnnGetVersion) {
        note(s, file, "is not cuDNN");
        return 0;
    }
    split_version(library->cudnn.cudnnGetVersion(), library);
    if (library->major != 9 || !complete) {
        snprintf(reason, sizeof reason, "is cuDNN %d.%d.%d, and a 9.x is needed", library->major, library->minor,
                 library->patch);
        note(s, file, reason);
        return 0;
    }
    int built_for = (int)library->cudnn.cudnnGetCudartVersion() / 1000;
    if (library->driver && built_for > library->driver / 1000) {
        snprintf(reason, sizeof reason, "is built for CUDA %d, and the driver supports up to CUDA %d.%d", built_for,
                 library->driver / 1000, library->driver % 1000 / 10);
        note(s, file, reason);
        return 0;
    }
    return 1;
}

static int try_file(tc_cudnn_library *library, const char *file, int flags, const char *origin, search *s)
{
    library->cudnn_handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | flags);
    if (!library->cudnn_handle) {
        if (!(flags & RTLD_NOLOAD))
            note(s, file, dlerror());
        return 0;
    }
    if (!accept(library, file, s)) {
        dlclose(library->cudnn_handle);
        library->cudnn_handle = NULL;
        return 0;
    }
    library->origin = origin;
    return 1;
}

static void note_path(tc_cudnn_library *library)
{
    Dl_info info;
    void *symbol = dlsym(library->cudnn_handle, "cudnnGetVersion");
    int found = dladdr(symbol, &info) && info.dli_fname;
    snprintf(library->path, sizeof library->path, "%s", found ? info.dli_fname : CUDNN_SONAME);
}

/* Two cuDNNs in one process are a mistake of the installation that is hard to see: say which one is used. */
static int warn_of_another(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const tc_cudnn_library *library = user;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (name && strncmp(name, "/libcudnn.so.", 13) == 0 && strcmp(info->dlpi_name, library->path) != 0)
        tc_warn("two copies of cuDNN are loaded, %s and %s: the tuned convolutions use the first. "
                "Keep one of them, for example by removing the nvidia-cudnn package that no framework needs",
                library->path, info->dlpi_name);
    return 0;
}

static tc_status open_cudnn(tc_cudnn_library *library, const char *const *paths)
{
    search s = {.length = 0};
    int found = try_file(library, CUDNN_SONAME, RTLD_NOLOAD, "loaded by the process before", &s);
    for (size_t i = 0; !found && paths && paths[i]; i++)
        found = try_file(library, paths[i], 0, "the first of the files named that will do", &s);
    if (!found)
        found = try_file(library, CUDNN_SONAME, 0, "found by the system's library search", &s);
    if (!found)
        return tc_fail(TC_UNAVAILABLE, "no cuDNN 9 here (%s). %s", s.tried, HOW_TO_GET);
    note_path(library);
    dl_iterate_phdr(warn_of_another, library);
    return TC_OK;
}

tc_status tc_cudnn_library_open(tc_cudnn_library *library, const char *const *paths)
{
    memset(library, 0, sizeof *library);
    tc_status status = open_cuda(library);
    return status == TC_OK ? open_cudnn(library, paths) : status;
}


/* ---- errors ---------------------------------------------------------------------------------------------- */

int tc_cuda_is_sticky(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN: return 1;
    default: return 0;
    }
}

tc_status tc_cuda_fail(const tc_cudnn_library *library, CUresult result, const char *what)
{
    const char *name = NULL, *text = NULL;
    library->cuda.cuGetErrorName(result, &name);
    library->cuda.cuGetErrorString(result, &text);
    if (tc_cuda_is_sticky(result))
        return tc_fail(TC_DEVICE_FAILURE, "%s: %s (%d): %s. The GPU's context is lost; this process must be restarted",
                       what, name ? name : "CUDA error", result, text ? text : "unknown");
    return tc_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TC_OUT_OF_MEMORY : TC_ENGINE_FAILURE, "%s: %s (%d): %s", what,
                   name ? name : "CUDA error", result, text ? text : "unknown");
}

static tc_status status_of(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return TC_OUT_OF_MEMORY;
    return status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000 ? TC_UNSUPPORTED : TC_ENGINE_FAILURE;
}

tc_status tc_cudnn_fail(const tc_cudnn_library *library, cudnnStatus_t status, const char *what)
{
    char reason[256] = "";
    library->cudnn.cudnnGetLastErrorString(reason, sizeof reason);
    reason[sizeof reason - 1] = '\0';
    for (char *c = reason; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return tc_fail(status_of(status), "%s: cuDNN %d.%d.%d answers %s (%d)%s%s", what, library->major, library->minor,
                   library->patch, library->cudnn.cudnnGetErrorString(status), status, reason[0] ? ": " : "", reason);
}
