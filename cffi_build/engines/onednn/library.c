/* Finding oneDNN's library in the process or on disk, and its functions in the library. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SONAME "libdnnl.so.3"
#define HOW_TO_GET_IT \
    "install it with `pip install onednn-cpu-gomp`, or name the file of a " SONAME \
    " (oneDNN 3.2 or newer) in KERAS_TUNEDCONV_ONEDNN"

/*
 * A process may hold other copies of oneDNN and of libstdc++'s templates in its global scope: TensorFlow
 * puts its libraries there, whose std::_Hashtable has another layout than the one this library's older
 * compiler knew. Deep binding makes the library use its own. Sanitizers refuse it, since it goes past
 * their interceptors.
 */
static int deep_binding(void)
{
    static const char *const runtimes[] = {"__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"};
    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        if (dlsym(RTLD_DEFAULT, runtimes[i]))
            return 0;
    return RTLD_DEEPBIND;
}

static void find_path(onednn_library *library)
{
    struct link_map *map = NULL;
    if (dlinfo(library->handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name[0])
        snprintf(library->path, sizeof library->path, "%s", SONAME);
    else
        snprintf(library->path, sizeof library->path, "%s", map->l_name);
}

static tc_status find_functions(onednn_library *library)
{
    const struct { const char *name; void *pointer; } functions[] = {
#define X(name) {"dnnl_" #name, &library->name},
        ONEDNN_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library->handle, functions[i].name);
        if (!symbol)
            return tc_fail(TC_UNAVAILABLE, "%s has no function %s: it is not oneDNN 3.2 or newer; %s", library->path,
                           functions[i].name, HOW_TO_GET_IT);
        memcpy(functions[i].pointer, &symbol, sizeof symbol);
    }
    return TC_OK;
}

static tc_status check_version(const onednn_library *library)
{
    const dnnl_version_t *version = library->version();
    if (version->major != 3 || version->minor < 2)
        return tc_fail(TC_UNAVAILABLE, "%s is oneDNN %d.%d.%d, expected 3.2 or a newer 3.x; %s", library->path,
                       version->major, version->minor, version->patch, HOW_TO_GET_IT);
    switch (version->cpu_runtime) {
    case DNNL_RUNTIME_OMP: case DNNL_RUNTIME_TBB: case DNNL_RUNTIME_SEQ: return TC_OK;
    default:
        return tc_fail(TC_UNAVAILABLE, "%s was built for the CPU runtime '%s', expected openmp, tbb or sequential; %s",
                       library->path, onednn_runtime_name(version->cpu_runtime), HOW_TO_GET_IT);
    }
}

/* The OpenMP functions that the library's own calls reach, in the order the loader searches for it. */
static void find_openmp(onednn_library *library, int deeply_bound)
{
    const struct { const char *name; void *pointer; } functions[] = {
#define X(name) {#name, &library->name},
        ONEDNN_OPENMP_FUNCTIONS(X)
#undef X
    };
    library->has_openmp = library->version()->cpu_runtime == DNNL_RUNTIME_OMP;
    if (!library->has_openmp)
        return;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = deeply_bound ? NULL : dlsym(RTLD_DEFAULT, functions[i].name);
        if (!symbol)
            symbol = dlsym(library->handle, functions[i].name);
        library->has_openmp &= symbol != NULL;
        memcpy(functions[i].pointer, &symbol, sizeof symbol);
    }
}

static tc_status bind_library(void *handle, int deeply_bound, onednn_library *library)
{
    library->handle = handle;
    find_path(library);
    tc_status status = find_functions(library);
    if (status == TC_OK)
        status = check_version(library);
    if (status == TC_OK)
        find_openmp(library, deeply_bound);
    else
        dlclose(handle);
    return status;
}

/* Adds the calling thread's message to what was tried. */
static void note(char *tried, size_t size, const char *message)
{
    size_t length = strlen(tried);
    snprintf(tried + length, size - length, "%s%s", length ? "; " : "", message);
}

/*
 * GNU's OpenMP lets its threads spin after each parallel region, by default for many milliseconds on recent
 * CPUs: a core that the framework wants for what comes between two convolutions. The count is read when that
 * library is loaded, so it stands in the environment only while oneDNN's is, and only if the user set neither.
 */
static void *open_spinning_briefly(const char *file, int flags)
{
    static const char variable[] = "GOMP_SPINCOUNT", about_100_microseconds[] = "2000";
    int chosen = getenv(variable) || getenv("OMP_WAIT_POLICY");
    if (!chosen)
        setenv(variable, about_100_microseconds, 1);
    void *handle = dlopen(file, flags);
    if (!chosen)
        unsetenv(variable);
    return handle;
}

tc_status onednn_library_open(const char *const *paths, onednn_library *library)
{
    static const char *const system_only[] = {NULL};
    static const char *const system_library = SONAME;
    char tried[TC_MESSAGE_SIZE - 256] = "";

    void *handle = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle)
        return bind_library(handle, 0, library);

    int deep = deep_binding();
    for (const char *const *path = paths ? paths : system_only;; path++) {
        const char *file = *path ? *path : system_library;
        /* Kept for good: OpenMP's threads would outlive the code they run. */
        handle = open_spinning_briefly(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | deep);
        if (!handle) {
            note(tried, sizeof tried, dlerror());
        } else if (bind_library(handle, deep != 0, library) == TC_OK) {
            return TC_OK;
        } else {
            note(tried, sizeof tried, tc_last_error());
        }
        if (!*path)
            break;
    }
    return tc_fail(TC_UNAVAILABLE, "oneDNN's library could not be opened (%s); %s", tried, HOW_TO_GET_IT);
}

const char *onednn_runtime_name(unsigned runtime)
{
    switch (runtime) {
    case DNNL_RUNTIME_NONE: return "none";
    case DNNL_RUNTIME_SEQ: return "sequential";
    case DNNL_RUNTIME_OMP: return "openmp";
    case DNNL_RUNTIME_TBB: return "tbb";
    case DNNL_RUNTIME_THREADPOOL: return "threadpool";
    case DNNL_RUNTIME_SYCL: return "sycl";
    default: return "unknown";
    }
}

tc_status onednn_check(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success: return TC_OK;
    case dnnl_out_of_memory: return tc_fail(TC_OUT_OF_MEMORY, "oneDNN could not %s: out of memory", what);
    case dnnl_unimplemented: return tc_fail(TC_UNSUPPORTED, "oneDNN could not %s: not implemented", what);
    case dnnl_invalid_arguments: return tc_fail(TC_ENGINE_FAILURE, "oneDNN could not %s: invalid arguments", what);
    case dnnl_runtime_error: return tc_fail(TC_ENGINE_FAILURE, "oneDNN could not %s: runtime error", what);
    default: return tc_fail(TC_ENGINE_FAILURE, "oneDNN could not %s: status %d", what, (int)status);
    }
}

#endif
