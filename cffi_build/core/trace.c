/*
 * NVTX without its headers or a library of its own. A profiler puts the path of its library into the
 * environment; a program that has ranges to show loads that library and hands it a table of empty places,
 * into which the profiler writes its functions. Without the variable nothing is loaded and a range costs one
 * comparison.
 */
#include "trace.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers of NVTX's interface between programs and tools. */
enum { TABLE_CALLBACKS = 1, TABLE_VERSION = 3 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5, MODULE_FUNCTIONS = 16 };
enum { NVTX_VERSION = 3, TEXT_SIZE = 1024 };

typedef void (*function)(void);

static function range_push, range_pop;
/* Where the functions go that nobody here calls. */
static function unused;

#define UNUSED3 &unused, &unused, &unused
/* The places by number: 9 pushes a range, 11 pops one. Number 0 means nothing, and NULL ends a table. */
static function *core[MODULE_FUNCTIONS + 1] = {NULL,    UNUSED3,    UNUSED3, &unused, &unused, &range_push,
                                               &unused, &range_pop, UNUSED3, &unused, NULL};
static function *core2[MODULE_FUNCTIONS + 1] = {NULL, UNUSED3, UNUSED3, UNUSED3, UNUSED3, UNUSED3, NULL};

static int module_table(int module, function ***functions, unsigned *size)
{
    if (module != MODULE_CORE && module != MODULE_CORE2)
        return 0;
    if (functions)
        *functions = module == MODULE_CORE ? core : core2;
    if (size)
        *size = MODULE_FUNCTIONS;
    return 1;
}

static void take_version(uint32_t version)
{
    (void)version;
}

static const void *export_table(uint32_t id)
{
    static const struct {
        size_t size;
        int (*module_table)(int, function ***, unsigned *);
    } callbacks = {sizeof callbacks, module_table};
    static const struct {
        size_t size;
        uint32_t version, reserved;
        void (*take_version)(uint32_t);
    } version = {sizeof version, NVTX_VERSION, 0, take_version};
    return id == TABLE_CALLBACKS ? (const void *)&callbacks : id == TABLE_VERSION ? (const void *)&version : NULL;
}

static int listening;

static void connect(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    if (!library)
        return;
    int (*initialize)(const void *(*)(uint32_t)) =
        (int (*)(const void *(*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2");
    listening = initialize && initialize(export_table) && range_push && range_pop;
}

int tc_trace_on(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, connect);
    return listening;
}

void tc_trace_push(const char *format, ...)
{
    if (!tc_trace_on())
        return;
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ((int (*)(const char *))range_push)(text);
}

void tc_trace_pop(void)
{
    if (tc_trace_on())
        ((int (*)(void))range_pop)();
}
