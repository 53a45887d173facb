/* Loading and launching the kernels of conversions.cu. */
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include "conversions_ptx.h"

static const char *const KERNEL_NAMES[TC_KERNEL_KINDS] = {"tc_pack_activation", "tc_unpack_activation",
                                                          "tc_pack_filter", "tc_unpack_filter", "tc_transpose"};
static const uint32_t ELEMENT_BYTES[TC_ELEMENT_SIZES] = {2, 4, 8};

static CUresult find_functions(tc_kernels *kernels)
{
    const tc_cuda_api *cuda = &kernels->library->cuda;
    CUresult result = CUDA_SUCCESS;
    for (int kind = 0; kind < TC_KERNEL_KINDS && result == CUDA_SUCCESS; kind++)
        for (int size = 0; size < TC_ELEMENT_SIZES && result == CUDA_SUCCESS; size++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%u", KERNEL_NAMES[kind], (unsigned)ELEMENT_BYTES[size]);
            result = cuda->cuModuleGetFunction(&kernels->functions[kind][size], kernels->module, name);
        }
    if (result == CUDA_SUCCESS)
        result = cuda->cuModuleGetFunction(&kernels->transpose_pairs, kernels->module, "tc_transpose_pairs_2");
    if (result == CUDA_SUCCESS)
        result = cuda->cuModuleGetFunction(&kernels->delay, kernels->module, "tc_delay");
    return result;
}

tc_status tc_kernels_open(const tc_cudnn_library *library, tc_kernels **kernels)
{
    tc_kernels *made = calloc(1, sizeof *made);
    if (!made)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for the conversion kernels");
    made->library = library;
    CUresult result = library->cuda.cuModuleLoadData(&made->module, tc_conversions_ptx);
    if (result == CUDA_SUCCESS)
        result = find_functions(made);
    if (result != CUDA_SUCCESS) {
        tc_kernels_close(made);
        return tc_cuda_fail(library, result, "loading the conversion kernels");
    }
    *kernels = made;
    return TC_OK;
}

void tc_kernels_close(tc_kernels *kernels)
{
    if (kernels && kernels->module)
        kernels->library->cuda.cuModuleUnload(kernels->module);
    free(kernels);
}

/* ---- launching ------------------------------------------------------------------------------------------- */

/* How many blocks, and the numbers a kernel takes after its map. */
typedef struct launch {
    int64_t blocks;
    int64_t threads;
    uint32_t first, second;
} launch;

static int64_t product3(const uint32_t values[3])
{
    return (int64_t)values[0] * values[1] * values[2];
}

static launch launch_of_threads(int64_t threads, int64_t chunks)
{
    launch l = {.blocks = tc_divide_up(threads, TC_BLOCK), .threads = threads};
    l.first = chunks ? (uint32_t)chunks : (uint32_t)threads;
    l.second = (uint32_t)threads;
    return l;
}

static int uses_pairs(const tc_conversion *c)
{
    return c->bytes == 2 && c->map.transpose.rows % 2 == 0 && c->map.transpose.columns % 2 == 0;
}

static launch launch_of(const tc_conversion *c)
{
    const tc_activation_map *a = &c->map.activation;
    const tc_filter_map *f = &c->map.filter;
    const tc_transpose_map *t = &c->map.transpose;
    int64_t chunks;
    switch (c->kernel) {
    case TC_KERNEL_PACK_ACTIVATION:
        chunks = tc_divide_up((int64_t)a->groups * a->padded, TC_CHUNK);
        return launch_of_threads(a->batch * product3(a->folded) * chunks, chunks);
    case TC_KERNEL_UNPACK_ACTIVATION:
        chunks = tc_divide_up((int64_t)a->groups * a->channels, TC_CHUNK);
        return launch_of_threads(a->batch * product3(a->size) * chunks, chunks);
    case TC_KERNEL_PACK_FILTER:
        return launch_of_threads((int64_t)f->problem_outputs * f->problem_channels * product3(f->problem_taps), 0);
    case TC_KERNEL_UNPACK_FILTER:
        return launch_of_threads((int64_t)f->groups * f->outputs * f->channels * product3(f->taps), 0);
    default: {
        int64_t edge = uses_pairs(c) ? 2 * TC_TILE : TC_TILE;
        int64_t down = tc_divide_up(t->rows, edge), across = tc_divide_up(t->columns, edge);
        launch l = {.blocks = t->batch * down * across, .first = (uint32_t)down, .second = (uint32_t)across};
        l.threads = l.blocks * TC_BLOCK;
        return l;
    }
    }
}

tc_status tc_conversion_check(const tc_conversion *conversion)
{
    launch l = launch_of(conversion);
    if (conversion->kernel == TC_KERNEL_TRANSPOSE ? l.blocks > INT32_MAX : l.threads > INT32_MAX)
        return tc_fail(TC_UNSUPPORTED, "the tensor is too large to be converted: %lld threads",
                       (long long)l.threads);
    return TC_OK;
}

tc_status tc_conversion_run(const tc_kernels *kernels, const tc_conversion *conversion, CUstream stream,
                            const void *source, void *target)
{
    launch l = launch_of(conversion);
    int size = conversion->bytes == 2 ? 0 : conversion->bytes == 4 ? 1 : 2;
    CUfunction function = kernels->functions[conversion->kernel][size];
    if (conversion->kernel == TC_KERNEL_TRANSPOSE && uses_pairs(conversion))
        function = kernels->transpose_pairs;
    void *arguments[] = {&source, &target, (void *)&conversion->map, &l.first, &l.second};
    CUresult result = kernels->library->cuda.cuLaunchKernel(function, (unsigned)l.blocks, 1, 1, TC_BLOCK, 1, 1, 0,
                                                            stream, arguments, NULL);
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(kernels->library, result, "converting a tensor's layout");
}

tc_status tc_delay_run(const tc_kernels *kernels, CUstream stream, uint64_t nanoseconds)
{
    void *arguments[] = {&nanoseconds};
    CUresult result = kernels->library->cuda.cuLaunchKernel(kernels->delay, 1, 1, 1, 1, 1, 1, 0, stream, arguments,
                                                            NULL);
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(kernels->library, result, "delaying the stream");
}
