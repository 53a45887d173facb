/* An implementation made ready: the convolution's primitive and the reorders around it. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CACHE_LINE = 64 };

static size_t align_up(size_t bytes)
{
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* Builds the primitive and raises *scratch to what it needs: one step runs at a time, so they share it. */
static tc_status make_step(const onednn_engine *engine, const_dnnl_primitive_desc_t desc, size_t *scratch,
                           onednn_step *step)
{
    const onednn_library *lib = &engine->library;
    tc_status status = onednn_check(lib->primitive_create(&step->primitive, desc), "build a primitive");
    if (status != TC_OK)
        return status;
    const_dnnl_memory_desc_t scratchpad = lib->primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = scratchpad ? lib->memory_desc_get_size(scratchpad) : 0;
    if (bytes == 0)
        return TC_OK;
    if (bytes > *scratch)
        *scratch = bytes;
    return onednn_check(lib->memory_create(&step->scratchpad, scratchpad, engine->cpu, DNNL_MEMORY_NONE),
                        "make a scratchpad");
}

static void free_step(const onednn_engine *engine, onednn_step *step)
{
    if (step->primitive)
        engine->library.primitive_destroy(step->primitive);
    if (step->scratchpad)
        engine->library.memory_destroy(step->scratchpad);
}

static tc_status make_reorder(const onednn_engine *engine, const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to,
                              size_t *scratch, onednn_step *step)
{
    dnnl_primitive_desc_t desc = NULL;
    tc_status status = onednn_check(engine->library.reorder_primitive_desc_create(&desc, from, engine->cpu, to,
                                                                                  engine->cpu, engine->attributes),
                                    "find a reorder");
    if (status == TC_OK)
        status = make_step(engine, desc, scratch, step);
    if (desc)
        engine->library.primitive_desc_destroy(desc);
    return status;
}

/* given: the caller's layout. Takes a place in the workspace behind *end for a tensor that must be reordered. */
static tc_status make_operand(const onednn_engine *engine, const_dnnl_memory_desc_t given,
                              const_dnnl_memory_desc_t wanted, int is_output, size_t *scratch, size_t *end,
                              onednn_operand *operand)
{
    const onednn_library *lib = &engine->library;
    tc_status status = onednn_check(lib->memory_create(&operand->given, given, engine->cpu, DNNL_MEMORY_NONE),
                                    "make a tensor");
    if (status != TC_OK || lib->memory_desc_equal(given, wanted)) {
        operand->wanted = operand->given;
        return status;
    }
    operand->offset = *end;
    *end = align_up(*end + lib->memory_desc_get_size(wanted));
    status = onednn_check(lib->memory_create(&operand->wanted, wanted, engine->cpu, DNNL_MEMORY_NONE),
                          "make a tensor");
    if (status != TC_OK)
        return status;
    return is_output ? make_reorder(engine, wanted, given, scratch, &operand->reorder)
                     : make_reorder(engine, given, wanted, scratch, &operand->reorder);
}

static tc_status fill_plan(const onednn_engine *engine, const onednn_problem *problem, const_dnnl_primitive_desc_t desc,
                           onednn_plan *plan)
{
    size_t scratch = 0, end = 0;
    tc_status status = make_step(engine, desc, &scratch, &plan->convolution);
    for (int i = 0; i < ONEDNN_OPERANDS && status == TC_OK; i++) {
        dnnl_memory_desc_t given = NULL;
        status = onednn_tensor_describe(engine, &problem->tensors[i], 0, &given);
        if (status == TC_OK)
            status = make_operand(engine, given, onednn_operand_desc(engine, problem->direction, desc, i),
                                  i == onednn_output(problem->direction), &scratch, &end, &plan->operands[i]);
        if (given)
            engine->library.memory_desc_destroy(given);
    }
    scratch = align_up(scratch);
    for (int i = 0; i < ONEDNN_OPERANDS; i++)
        plan->operands[i].offset += scratch;
    plan->workspace = scratch + end;
    if (plan->workspace)
        plan->workspace += CACHE_LINE; /* the caller's memory may begin anywhere */
    return status;
}

tc_status onednn_plan_make(onednn_engine *engine, const onednn_problem *problem, const char *name,
                           onednn_plan **result)
{
    const onednn_choice *choice;
    tc_status status = onednn_choice_named(engine, problem, name, &choice);
    if (status != TC_OK)
        return status;
    onednn_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a plan");
    plan->direction = problem->direction;
    status = fill_plan(engine, problem, choice->desc, plan);
    if (status == TC_OK)
        *result = plan;
    else
        onednn_plan_free(engine, plan);
    return status;
}

void onednn_plan_free(const onednn_engine *engine, onednn_plan *plan)
{
    const onednn_library *lib = &engine->library;
    for (int i = 0; i < ONEDNN_OPERANDS; i++) {
        onednn_operand *operand = &plan->operands[i];
        free_step(engine, &operand->reorder);
        if (operand->wanted && operand->wanted != operand->given)
            lib->memory_destroy(operand->wanted);
        if (operand->given)
            lib->memory_destroy(operand->given);
    }
    free_step(engine, &plan->convolution);
    free(plan);
}

static dnnl_status_t bind_step(const onednn_library *lib, onednn_step *step, char *base)
{
    return step->scratchpad ? lib->memory_set_data_handle(step->scratchpad, base) : dnnl_success;
}

/* Points every memory object at this call's tensors and workspace. */
static tc_status bind_plan(const onednn_engine *engine, onednn_plan *plan, char *base, const tc_operands *operands)
{
    const onednn_library *lib = &engine->library;
    void *const tensors[ONEDNN_OPERANDS] = {operands->x, operands->w, operands->y};
    dnnl_status_t status = bind_step(lib, &plan->convolution, base);
    for (int i = 0; i < ONEDNN_OPERANDS && status == dnnl_success; i++) {
        onednn_operand *operand = &plan->operands[i];
        status = lib->memory_set_data_handle(operand->given, tensors[i]);
        if (status == dnnl_success && operand->reorder.primitive)
            status = lib->memory_set_data_handle(operand->wanted, base + operand->offset);
        if (status == dnnl_success)
            status = bind_step(lib, &operand->reorder, base);
    }
    return onednn_check(status, "take the tensors");
}

static dnnl_status_t execute(const onednn_engine *engine, const onednn_step *step, dnnl_exec_arg_t *arguments,
                             int count)
{
    if (step->scratchpad)
        arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, step->scratchpad};
    return engine->library.primitive_execute(step->primitive, engine->stream, count, arguments);
}

static dnnl_status_t execute_reorder(const onednn_engine *engine, const onednn_operand *operand, int is_output)
{
    dnnl_exec_arg_t arguments[3] = {
        {DNNL_ARG_FROM, is_output ? operand->wanted : operand->given},
        {DNNL_ARG_TO, is_output ? operand->given : operand->wanted},
    };
    return operand->reorder.primitive ? execute(engine, &operand->reorder, arguments, 2) : dnnl_success;
}

tc_status onednn_plan_run(const onednn_engine *engine, onednn_plan *plan, void *workspace,
                          const tc_operands *operands)
{
    int output = onednn_output(plan->direction);
    char *base = workspace;
    if (base)
        base += align_up((uintptr_t)base) - (uintptr_t)base;
    tc_status bound = bind_plan(engine, plan, base, operands);
    if (bound != TC_OK)
        return bound;

    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < ONEDNN_OPERANDS && status == dnnl_success; i++)
        if (i != output)
            status = execute_reorder(engine, &plan->operands[i], 0);
    dnnl_exec_arg_t arguments[ONEDNN_OPERANDS + 1];
    for (int i = 0; i < ONEDNN_OPERANDS; i++)
        arguments[i] = (dnnl_exec_arg_t){onednn_operand_argument(plan->direction, i), plan->operands[i].wanted};
    if (status == dnnl_success)
        status = execute(engine, &plan->convolution, arguments, ONEDNN_OPERANDS);
    if (status == dnnl_success)
        status = execute_reorder(engine, &plan->operands[output], 1);
    if (status == dnnl_success)
        status = engine->library.stream_wait(engine->stream);
    return onednn_check(status, "run a convolution");
}

#endif
