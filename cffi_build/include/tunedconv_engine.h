/*
 * tunedconv_engine.h - what an engine (a library of convolution algorithms on one kind of device)
 * implements. To add one: fill a tc_engine_ops, and name it in core/engines.c.
 */
#ifndef TUNEDCONV_ENGINE_H
#define TUNEDCONV_ENGINE_H

#include "tunedconv.h"

typedef enum tc_candidate_flags {
    TC_CANDIDATE_DETERMINISTIC = 1, /* same bits each run */
    TC_CANDIDATE_LAST_RESORT = 2    /* may take minutes: runs only when nothing else can */
} tc_candidate_flags;

typedef struct tc_candidate {
    char name[TC_NAME_SIZE]; /* stable across processes with the same environment text */
    uint32_t flags;
} tc_candidate;

/* Grown by tc_candidate_add, freed by its owner with tc_candidates_free. */
typedef struct tc_candidate_list {
    tc_candidate *items;
    size_t count, capacity;
} tc_candidate_list;

tc_status tc_candidate_add(tc_candidate_list *list, const char *name, uint32_t flags);
void tc_candidates_free(tc_candidate_list *list);

/* Sets the calling thread's message (printf format) and returns status, so that `return tc_fail(...)` reads. */
tc_status tc_fail(tc_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Queues a warning for Python; the same text is queued once a process. */
void tc_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Every function may be called from any thread. Two threads may run one plan at once: an engine whose
 * library does not allow it serialises inside. ctx names the device and the stream; work that is
 * queued on the stream need not be finished on return.
 *
 * What run returns decides what happens next: TC_OUT_OF_MEMORY is held against nobody, TC_DEVICE_FAILURE
 * and TC_INVALID_ARGUMENT (the caller's operands) go back to the caller as they are, and after any other
 * error the algorithm is not run again for this descriptor in this process.
 */
typedef struct tc_engine_ops {
    const char *name;
    int32_t device_kind;
    int32_t last_resort; /* 1: only asked when the other engines of its device failed */
    int32_t is_exact;    /* 1: each algorithm is deterministic and none rounds to TF32, whatever is asked for */

    /* Loads the library (paths: NULL-terminated, in order of preference) and makes the engine's state. */
    tc_status (*open)(const char *const *paths, void **engine);
    void (*close)(void *engine);
    /* Version and file of the library, one line. */
    tc_status (*describe)(void *engine, char *text, size_t size);
    /*
     * Canonical text of the device and the library, e.g. "engine=onednn;version=3.2;cpu=...;threads=2;~patch=0".
     * Fields marked '~' come last and are soft: where only they differ, what is stored is used and rechecked once.
     */
    tc_status (*environment)(void *engine, int32_t ordinal, char *text, size_t size);

    /* The algorithms that can do conv, the library's default first, heuristics' order after it. */
    tc_status (*candidates)(void *engine, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list);
    /*
     * The flags of the candidate of that name, or, where name is NULL, of any that is no last resort: TC_NOT_FOUND
     * when there is none. For engines that can tell without listing all; may be NULL.
     */
    tc_status (*find)(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, uint32_t *flags);
    /* From a name, also one out of a file: TC_NOT_FOUND when it is not one of conv's candidates. */
    tc_status (*prepare)(void *engine, int32_t ordinal, const tc_conv *conv, const char *name, void **plan);
    void (*release)(void *engine, void *plan);
    /* Bytes of workspace that run needs from the caller's allocator. */
    size_t (*workspace)(void *engine, const void *plan);
    tc_status (*run)(void *engine, void *plan, const tc_context *ctx, void *workspace, const tc_operands *operands);

    /* ---- for the tuner ---- */
    /* 0 while the stream is being captured into a graph. */
    int32_t (*can_measure)(void *engine, const tc_context *ctx);
    /* Runs the plan `runs` times back to back, waits, and gives the device seconds of all of them together. */
    tc_status (*time)(void *engine, void *plan, const tc_context *ctx, void *workspace, const tc_operands *operands,
                      int32_t runs, double *seconds);
    /* Copies from device memory, after what is queued on the stream. */
    tc_status (*fetch)(void *engine, const tc_context *ctx, void *host, const void *device, size_t bytes);
    /* Fills device memory with the byte 0xFF, a NaN in every dtype, so that a value nobody wrote shows. */
    tc_status (*poison)(void *engine, const tc_context *ctx, void *device, size_t bytes);
    /* Fills device memory with zeros, for outputs that are empty sums. May be NULL on the CPU. */
    tc_status (*zero)(void *engine, const tc_context *ctx, void *device, size_t bytes);
} tc_engine_ops;

/*
 * What tc_engine_load looks up in a library, which defines it: takes the core's functions, gives the
 * engine's table (which must outlive the process's use of it), or NULL when api->abi_version is not one it
 * knows.
 */
const tc_engine_ops *tunedconv_engine_entry(const tc_api *api);
typedef const tc_engine_ops *(*tc_engine_entry)(const tc_api *api);

extern const tc_engine_ops tc_onednn_engine;
extern const tc_engine_ops tc_cudnn_engine;
extern const tc_engine_ops tc_reference_engine;

/* Bytes of one element; 0 for an unknown dtype. */
size_t tc_dtype_size(int32_t dtype);
/* Elements of x, w or y. */
int64_t tc_elements(const int64_t *dims, int32_t spatial_rank);

#endif
