/*
 * Implementations that the library offers although they crash, write out of bounds or compute something
 * else. Found by comparing every implementation of oneDNN 3.2 with a float64 reference, its tensors and its
 * workspace between guards, on processors and instruction sets from SSE4.1 to AMX; none is known to be
 * right in newer versions, so the version is not asked.
 */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <string.h>

static int contains(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

static int begins(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* By way of a matrix product, or the plain loops: both are right where the generated kernels are not. */
static int is_generic(const char *name)
{
    return contains(name, "gemm:") || begins(name, "ref");
}

static int is_half(dnnl_data_type_t dtype)
{
    return dtype == dnnl_bf16 || dtype == dnnl_f16;
}

static int is_blocked(const onednn_engine *engine, const_dnnl_memory_desc_t desc)
{
    int blocks = 0;
    dnnl_status_t status = engine->library.memory_desc_query(desc, dnnl_query_inner_nblks_s32, &blocks);
    return status == dnnl_success && blocks > 0;
}

int onednn_is_defective(const onednn_engine *engine, const onednn_problem *problem, const_dnnl_primitive_desc_t desc,
                        const char *name)
{
    /* Calls a kernel that was never built, for such a position; see oneDNN's pull request 5944, of 2026. */
    if (problem->position_in_padding && contains(name, "brg"))
        return 1;

    /* In half precision the filter's gradient is wrong for taps that only see padding, and in three spatial axes. */
    if (problem->direction == TC_BACKWARD_FILTER && is_half(problem->tensors[ONEDNN_X].dtype) &&
        (problem->tap_in_padding || problem->spatial_rank == 3) && !is_generic(name))
        return 1;

    /* Loads whole tiles from behind the end of the input. */
    if (begins(name, "jit_1x1:avx512_core_amx"))
        return 1;

    /*
     * Where channels are not blocked, the pointwise kernels of bfloat16 go wrong on what is left of a block, and
     * all of them when they gather the positions of a stride.
     */
    if (problem->pointwise && begins(name, "jit") && contains(name, "_1x1") &&
        (problem->strided || contains(name, "bf16")) &&
        !is_blocked(engine, onednn_operand_desc(engine, problem->direction, desc, ONEDNN_X)))
        return 1;
    return 0;
}

#endif
