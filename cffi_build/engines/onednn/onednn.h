/*
 * The parts of the oneDNN engine and what they share.
 *
 *   library.c      finds the library and its functions
 *   caller.c       the threads that call oneDNN
 *   environment.c  the text of CPU and library in the key
 *   problem.c      tc_conv in oneDNN's terms
 *   candidates.c   the implementations oneDNN has for it
 *   defects.c      those of them that must not run
 *   plan.c         one of them, ready to run
 *   engine.c       the table of functions for the core
 */
#ifndef TC_ONEDNN_H
#define TC_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "tunedconv_engine.h"

/* ---- library.c --------------------------------------------------------------------------------- */

/* What is called of oneDNN, without the prefix dnnl_. */
#define ONEDNN_FUNCTIONS(X) \
    X(version) \
    X(get_effective_cpu_isa) \
    X(engine_create) \
    X(engine_destroy) \
    X(stream_create) \
    X(stream_destroy) \
    X(stream_wait) \
    X(primitive_attr_create) \
    X(primitive_attr_destroy) \
    X(primitive_attr_set_fpmath_mode) \
    X(primitive_attr_set_scratchpad_mode) \
    X(memory_desc_create_with_strides) \
    X(memory_desc_create_with_tag) \
    X(memory_desc_destroy) \
    X(memory_desc_equal) \
    X(memory_desc_query) \
    X(memory_desc_get_size) \
    X(memory_create) \
    X(memory_destroy) \
    X(memory_set_data_handle) \
    X(convolution_forward_primitive_desc_create) \
    X(convolution_backward_data_primitive_desc_create) \
    X(convolution_backward_weights_primitive_desc_create) \
    X(reorder_primitive_desc_create) \
    X(primitive_desc_clone) \
    X(primitive_desc_destroy) \
    X(primitive_desc_next_impl) \
    X(primitive_desc_query) \
    X(primitive_desc_query_md) \
    X(primitive_create) \
    X(primitive_execute) \
    X(primitive_destroy)

/* What is called of the OpenMP that the library calls. */
#define ONEDNN_OPENMP_FUNCTIONS(X) \
    X(omp_get_max_threads) \
    X(omp_set_num_threads) \
    X(omp_get_dynamic) \
    X(omp_set_dynamic) \
    X(omp_get_level) \
    X(GOMP_parallel)

typedef struct onednn_library {
    void *handle;
    char path[512];
    int has_openmp; /* as its threading runtime, with all of these functions */
    int (*omp_get_max_threads)(void);
    void (*omp_set_num_threads)(int);
    int (*omp_get_dynamic)(void);
    void (*omp_set_dynamic)(int);
    int (*omp_get_level)(void);
    void (*GOMP_parallel)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);
#define X(name) __typeof__(&dnnl_##name) name;
    ONEDNN_FUNCTIONS(X)
#undef X
} onednn_library;

/* The copy already in the process, else the first of paths that will do, else the system's. */
tc_status onednn_library_open(const char *const *paths, onednn_library *library);
const char *onednn_runtime_name(unsigned runtime);
/* TC_OK, or fails with "oneDNN could not <what>" and the status that fits oneDNN's. */
tc_status onednn_check(dnnl_status_t status, const char *what);

/* ---- engine.c ------------------------------------------------------------------------------------ */

/* Everything but library, threads and environment is touched by jobs of caller.c only. */
typedef struct onednn_engine {
    onednn_library library;
    int threads;
    char environment[TC_ENVIRONMENT_SIZE];
    dnnl_engine_t cpu;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* strict float32, scratchpads from the caller */
    struct onednn_listing *listings;  /* of candidates.c, as is `uses` */
    uint64_t uses;
} onednn_engine;

/* ---- caller.c ------------------------------------------------------------------------------------ */

typedef tc_status (*onednn_job)(void *argument);

/*
 * Makes the engine the one whose jobs are run, until it is released; the first job, with the engine as its
 * argument, and the last one are the worker's. A first job that fails releases the engine.
 */
tc_status onednn_caller_acquire(onednn_engine *engine, onednn_job first);
void onednn_caller_release(onednn_job last, void *argument);
/* Runs a job, one at a time, and waits for it; its message becomes the caller's. */
tc_status onednn_caller_run(onednn_job job, void *argument);

/* ---- environment.c ------------------------------------------------------------------------------- */

tc_status onednn_environment(const onednn_library *library, int threads, char *text, size_t size);
/* CPUs this process may run on, at least 1. */
int onednn_affinity_count(void);

/* ---- problem.c ----------------------------------------------------------------------------------- */

enum { ONEDNN_X, ONEDNN_W, ONEDNN_Y, ONEDNN_OPERANDS };

/* A tensor as it lies in the caller's memory. */
typedef struct onednn_tensor {
    int ndims;
    dnnl_data_type_t dtype;
    dnnl_dims_t dims, strides;
} onednn_tensor;

typedef struct onednn_problem {
    tc_direction direction;
    onednn_tensor tensors[ONEDNN_OPERANDS];
    dnnl_dims_t strides, dilations, pad_before, pad_after;
    int32_t spatial_rank;
    int channels_last;       /* input and output */
    int pointwise, strided;  /* a filter of one element; a stride other than 1 */
    int position_in_padding; /* some position of the output meets no element of the input */
    int tap_in_padding;      /* some element of the filter meets none, at any position */
} onednn_problem;

/* Which layouts oneDNN may choose for itself: bit ONEDNN_X, ONEDNN_W, ONEDNN_Y. */
typedef unsigned onednn_freedom;

/* TC_UNSUPPORTED for what oneDNN has no words for (float64). */
tc_status onednn_problem_make(const tc_conv *conv, onednn_problem *problem);
/* A descriptor of the first implementation. TC_UNSUPPORTED when there is none. */
tc_status onednn_problem_describe(const onednn_engine *engine, const onednn_problem *problem,
                                  onednn_freedom freedom, dnnl_primitive_desc_t *desc);
tc_status onednn_tensor_describe(const onednn_engine *engine, const onednn_tensor *tensor, int any,
                                 dnnl_memory_desc_t *desc);
/* The layout an implementation wants an operand in (owned by desc), and the operand's name when it runs. */
const_dnnl_memory_desc_t onednn_operand_desc(const onednn_engine *engine, tc_direction direction,
                                             const_dnnl_primitive_desc_t desc, int operand);
int onednn_operand_argument(tc_direction direction, int operand);
/* The operand that the direction computes. */
int onednn_output(tc_direction direction);

/* ---- candidates.c -------------------------------------------------------------------------------- */

typedef struct onednn_choice {
    tc_candidate candidate;
    char implementation[TC_NAME_SIZE / 2];
    int occurrence; /* among the implementations of that name in one formulation */
    int rank;       /* place in oneDNN's own order within one formulation */
    int formulation; /* its place among the formulations of the problem */
    int repeated;   /* an earlier formulation has the same */
    int is_compared; /* that is known; of complete lists it always is */
    dnnl_primitive_desc_t desc;
} onednn_choice;

typedef struct onednn_choices {
    onednn_choice *items;
    size_t count, capacity;
    int is_complete; /* else some that were looked for */
} onednn_choices;

/*
 * All implementations, the default first; each different from those before it. The list is the engine's, and
 * stays until the next call.
 */
tc_status onednn_choices_of(onednn_engine *engine, const onednn_problem *problem, const onednn_choices **choices);
/* In place of a name: whatever is no last resort. */
extern const char onednn_any_name[];
/* The one of that name in the list, TC_NOT_FOUND if there is none. Stays until the next call of either. */
tc_status onednn_choice_named(onednn_engine *engine, const onednn_problem *problem, const char *name,
                              const onednn_choice **choice);
/* Frees the lists that the engine keeps. */
void onednn_choices_forget(onednn_engine *engine);

/* ---- defects.c ----------------------------------------------------------------------------------- */

/* Whether the implementation called `name` that desc stands at is known to go wrong on this problem. */
int onednn_is_defective(const onednn_engine *engine, const onednn_problem *problem, const_dnnl_primitive_desc_t desc,
                        const char *name);

/* ---- plan.c -------------------------------------------------------------------------------------- */

/* A primitive and the place of its scratchpad. */
typedef struct onednn_step {
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad; /* NULL when it needs none */
} onednn_step;

typedef struct onednn_operand {
    onednn_step reorder;  /* primitive NULL when the caller's layout is the one wanted */
    dnnl_memory_t given;  /* in the caller's memory */
    dnnl_memory_t wanted; /* in the workspace; `given` itself when there is no reorder */
    size_t offset;        /* of `wanted` in the workspace */
} onednn_operand;

typedef struct onednn_plan {
    tc_direction direction;
    onednn_step convolution;
    onednn_operand operands[ONEDNN_OPERANDS];
    size_t workspace;
} onednn_plan;

tc_status onednn_plan_make(onednn_engine *engine, const onednn_problem *problem, const char *name,
                           onednn_plan **plan);
void onednn_plan_free(const onednn_engine *engine, onednn_plan *plan);
/* workspace: plan->workspace bytes for scratchpads and reordered tensors; nothing in it outlives the call. */
tc_status onednn_plan_run(const onednn_engine *engine, onednn_plan *plan, void *workspace,
                          const tc_operands *operands);

#endif
