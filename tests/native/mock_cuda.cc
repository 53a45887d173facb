/*
 * A CUDA driver without a GPU: memory is the host's, kernels run at once on the CPU, streams are always idle.
 * The kernels are the real ones, compiled as C++; see cuda_on_cpu.h.
 *
 * mock_set("name", value) changes what it answers; see the settings below. Built as libcuda.so.1.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <list>
#include <string>
#include <vector>

#include "cuda_on_cpu.h"

#include "conversions.cu"
#include "direct/depthwise.cu"
#include "direct/few_channels.cu"
#include "direct/few_channels_filter.cu"
#include "direct/grouped.cu"
#include "direct/grouped_filter.cu"

/* ---- settings -------------------------------------------------------------------------------------------- */

namespace {

struct settings {
    long devices = 2, driver = 13000, capturing = 0;
    std::string failing; /* "function=code": that function answers code */
    long launches = 0;   /* of kernels so far */
} now;

int answer(const char *function)
{
    size_t length = std::strlen(function);
    if (now.failing.compare(0, length, function) == 0 && now.failing[length] == '=')
        return std::atoi(now.failing.c_str() + length + 1);
    return 0;
}

#define ANSWER()                             \
    do {                                     \
        if (int code = answer(__func__))     \
            return code;                     \
    } while (0)

/* ---- contexts -------------------------------------------------------------------------------------------- */

struct context {
    int device;
} primaries[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};

thread_local std::vector<context *> stack;

double seconds()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct event {
    int device;
    double time;
};

/* ---- kernels --------------------------------------------------------------------------------------------- */

struct kernel {
    const char *name;
    void (*run)(void **arguments);
    bool synchronises;
};

template <typename P, typename M>
void call4(void (*f)(P, typename std::remove_const<typename std::remove_pointer<P>::type>::type *, M, uint32_t),
           void **a)
{
    using T = typename std::remove_const<typename std::remove_pointer<P>::type>::type;
    f(*(P *)a[0], *(T **)a[1], *(M *)a[2], *(uint32_t *)a[3]);
}

template <typename P, typename M>
void call5(void (*f)(P, typename std::remove_const<typename std::remove_pointer<P>::type>::type *, M, uint32_t,
                     uint32_t),
           void **a)
{
    using T = typename std::remove_const<typename std::remove_pointer<P>::type>::type;
    f(*(P *)a[0], *(T **)a[1], *(M *)a[2], *(uint32_t *)a[3], *(uint32_t *)a[4]);
}

template <typename T, typename M> void call_direct(void (*f)(const T *, const T *, T *, M), void **a)
{
    f(*(const T **)a[0], *(const T **)a[1], *(T **)a[2], *(M *)a[3]);
}

template <typename T, typename M> void call_filter(void (*f)(const T *, const T *, float *, M), void **a)
{
    f(*(const T **)a[0], *(const T **)a[1], *(float **)a[2], *(M *)a[3]);
}

template <typename T, typename M> void call_add(void (*f)(const float *, T *, M), void **a)
{
    f(*(const float **)a[0], *(T **)a[1], *(M *)a[2]);
}

#define DIRECT(NAME) {"tc_" #NAME, [](void **a) { call_direct(tc_##NAME, a); }, true}
#define DEPTHWISE(NAME) DIRECT(depthwise_##NAME##_3), DIRECT(depthwise_##NAME##_5), DIRECT(depthwise_##NAME##_7)
#define GROUPED(NAME)                                                                                                \
    DIRECT(grouped_##NAME##_3_1_1_8), DIRECT(grouped_##NAME##_3_1_1_16), DIRECT(grouped_##NAME##_3_1_1_32),          \
        DIRECT(grouped_##NAME##_5_1_1_8), DIRECT(grouped_##NAME##_7_1_1_8), DIRECT(grouped_##NAME##_3_2_1_8),        \
        DIRECT(grouped_##NAME##_3_2_1_16), DIRECT(grouped_##NAME##_3_2_1_32), DIRECT(grouped_##NAME##_5_2_1_8),      \
        DIRECT(grouped_##NAME##_7_2_1_8), DIRECT(grouped_##NAME##_2_1_2_8), DIRECT(grouped_##NAME##_2_1_2_16),       \
        DIRECT(grouped_##NAME##_2_1_2_32), DIRECT(grouped_##NAME##_3_1_2_8), DIRECT(grouped_##NAME##_4_1_2_8)
#define FEW_CHANNELS_OF(ROWS, UNITS)                                                                                 \
    DIRECT(few_channels_f16_##ROWS##_##UNITS), DIRECT(few_channels_bf16_##ROWS##_##UNITS),
#define FEW_FILTER(NAME)                                                                                              \
    {"tc_few_channels_filter_" #NAME, [](void **a) { call_filter(tc_few_channels_filter_##NAME, a); }, true},        \
        {"tc_few_channels_filter_sum_" #NAME, [](void **a) { call_add(tc_few_channels_filter_sum_##NAME, a); }, true},
#define FEW_FILTERS_OF(UNITS, ROWS, TILES)                                                                           \
    FEW_FILTER(f16_##UNITS##_##ROWS##_##TILES) FEW_FILTER(bf16_##UNITS##_##ROWS##_##TILES)
#define FILTER(NAME) {"tc_grouped_filter_" #NAME, [](void **a) { call_filter(tc_grouped_filter_##NAME, a); }, true}
#define FILTERS(NAME)                                                                                                \
    {"tc_grouped_filter_add_" #NAME, [](void **a) { call_add(tc_grouped_filter_add_##NAME, a); }, true},             \
        FILTER(NAME##_3_1), FILTER(NAME##_3_2), FILTER(NAME##_5_1), FILTER(NAME##_5_2), FILTER(NAME##_7_1),          \
        FILTER(NAME##_7_2), FILTER(NAME##_3_1_16), FILTER(NAME##_3_2_16), FILTER(NAME##_3_1_32),                     \
        FILTER(NAME##_3_2_32)
#define OF_SIZE(BYTES)                                                                                               \
    {"tc_pack_activation_" #BYTES, [](void **a) { call5(tc_pack_activation_##BYTES, a); }, false},                    \
        {"tc_unpack_activation_" #BYTES, [](void **a) { call5(tc_unpack_activation_##BYTES, a); }, false},            \
        {"tc_pack_filter_" #BYTES, [](void **a) { call4(tc_pack_filter_##BYTES, a); }, false},                        \
        {"tc_unpack_filter_" #BYTES, [](void **a) { call4(tc_unpack_filter_##BYTES, a); }, false},                    \
    {                                                                                                                \
        "tc_transpose_" #BYTES, [](void **a) { call5(tc_transpose_##BYTES, a); }, true                               \
    }

const kernel KERNELS_BY_NAME[] = {
    OF_SIZE(2),
    OF_SIZE(4),
    OF_SIZE(8),
    {"tc_transpose_pairs_2", [](void **a) { call5(tc_transpose_pairs_2, a); }, true},
    {"tc_delay", [](void **) {}, false},
    DEPTHWISE(f16), DEPTHWISE(bf16), DEPTHWISE(f32), GROUPED(f16), GROUPED(bf16), FILTERS(f16), FILTERS(bf16),
    TC_FEW_CHANNELS_SIZES(FEW_CHANNELS_OF) TC_FEW_CHANNELS_FILTER_SIZES(FEW_FILTERS_OF)
};

} // namespace

/* ---- the driver's functions ------------------------------------------------------------------------------ */

extern "C" {

void mock_set(const char *name, const char *value)
{
    std::string key = name;
    if (key == "devices")
        now.devices = std::atol(value);
    else if (key == "driver")
        now.driver = std::atol(value);
    else if (key == "capturing")
        now.capturing = std::atol(value);
    else if (key == "failing")
        now.failing = value;
    else if (key == "reset")
        now = settings();
    else
        std::abort();
}

long mock_launches() { return now.launches; }
/* How many contexts the calling thread has pushed and not popped. */
long mock_depth() { return long(stack.size()); }

int cuInit(unsigned) { ANSWER(); return now.devices ? 0 : 100; }
int cuDriverGetVersion(int *v) { *v = int(now.driver); return 0; }
int cuGetErrorName(int code, const char **text)
{
    *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuGetErrorString(int, const char **text) { *text = "as the test asked for"; return 0; }
int cuDeviceGetCount(int *n) { ANSWER(); *n = int(now.devices); return 0; }
int cuDeviceGet(int *device, int ordinal) { ANSWER(); *device = ordinal; return ordinal < now.devices ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) { std::snprintf(name, size_t(size), "Mock GPU; model %c", 'A' + device); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 16 ? 10 + device : attribute == 75 ? 9 : 0;
    return 0;
}
int cuDevicePrimaryCtxRetain(context **c, int device) { ANSWER(); *c = &primaries[device]; return 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxGetCurrent(context **c) { ANSWER(); *c = stack.empty() ? nullptr : stack.back(); return 0; }
int cuCtxGetDevice(int *device) { if (stack.empty()) return 201; *device = stack.back()->device; return 0; }
int cuCtxPushCurrent_v2(context *c) { ANSWER(); stack.push_back(c); return 0; }
int cuCtxPopCurrent_v2(context **c) { if (stack.empty()) return 201; *c = stack.back(); stack.pop_back(); return 0; }
int cuCtxSynchronize() { ANSWER(); return stack.empty() ? 201 : 0; }
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    static thread_local int kept = 0;
    int before = kept;
    kept = *mode;
    *mode = before;
    return 0;
}
int cuStreamIsCapturing(void *, int *status) { ANSWER(); *status = int(now.capturing); return 0; }
int cuStreamQuery(void *) { ANSWER(); return 0; }
int cuStreamSynchronize(void *) { ANSWER(); return 0; }
int cuEventCreate(event **e, unsigned) { ANSWER(); if (stack.empty()) return 201; *e = new event{stack.back()->device, 0}; return 0; }
int cuEventDestroy_v2(event *e) { delete e; return 0; }
int cuEventRecord(event *e, void *) { ANSWER(); if (stack.empty() || stack.back()->device != e->device) return 400; e->time = seconds(); return 0; }
int cuEventSynchronize(event *) { ANSWER(); return 0; }
int cuEventElapsedTime(float *ms, event *a, event *b) { ANSWER(); *ms = float((b->time - a->time) * 1e3); return 0; }
int cuMemcpyDtoHAsync_v2(void *host, unsigned long long device, size_t bytes, void *) { ANSWER(); std::memcpy(host, (void *)device, bytes); return 0; }
int cuMemsetD8Async(unsigned long long device, unsigned char byte, size_t bytes, void *) { ANSWER(); std::memset((void *)device, byte, bytes); return 0; }

struct function {
    const kernel *code;
    int device;
};
struct module {
    int device;
    std::string ptx;
    std::list<function> functions;
};
int cuModuleLoadData(module **m, const void *image)
{
    ANSWER();
    if (stack.empty())
        return 201;
    *m = new module{stack.back()->device, static_cast<const char *>(image), {}};
    return (*m)->ptx.compare(0, 8, ".version") == 0 ? 0 : 218;
}
int cuModuleUnload(module *m) { delete m; return 0; }
int cuModuleGetFunction(function **f, module *m, const char *name)
{
    ANSWER();
    for (const kernel &k : KERNELS_BY_NAME)
        if (!std::strcmp(k.name, name) && m->ptx.find(".entry " + std::string(name) + "(") != std::string::npos) {
            m->functions.push_back({&k, m->device});
            *f = &m->functions.back();
            return 0;
        }
    return 500;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, function *, int, size_t)
{
    ANSWER();
    *blocks = 1;
    return 0;
}
int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned, unsigned, unsigned,
                   void *, void **arguments, void **)
{
    ANSWER();
    if (stack.empty() || stack.back()->device != f->device)
        return 400; /* a function of another device */
    if (gy != 1 || gz != 1 || gx == 0 || gx > 2147483647u)
        return 1;
    const kernel *k = f->code;
    now.launches++;
    for (unsigned block = 0; block < gx; block++) {
        blockIdx.x = block;
        if (k->synchronises) {
            cuda_on_cpu::run_block(bx, k->run, arguments);
            continue;
        }
        for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++)
            k->run(arguments);
    }
    return 0;
}

} // extern "C"
