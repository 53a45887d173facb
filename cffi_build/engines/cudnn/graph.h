/* cuDNN's descriptors of one convolution: its operation graph, engine configurations and execution plans. */
#ifndef TC_CUDNN_GRAPH_H
#define TC_CUDNN_GRAPH_H

#include "algorithm.h"
#include "library.h"

/* Identifiers of the tensors in a graph. */
enum { TC_UID_X = 1, TC_UID_W = 2, TC_UID_Y = 3 };

/* cuDNN wants its tensors to begin at addresses that are multiples of this. */
enum { TC_TENSOR_ALIGNMENT = 16 };

typedef struct tc_graph {
    const tc_cudnn_library *library;
    cudnnHandle_t handle; /* lent while the graph is planned */
    cudnnBackendDescriptor_t x, w, y, convolution, operation, graph;
} tc_graph;

/* TC_UNSUPPORTED when cuDNN knows no such operation. */
tc_status tc_graph_make(const tc_cudnn_library *library, cudnnHandle_t handle, const tc_conv *conv, tc_graph *graph);
void tc_graph_destroy(tc_graph *graph);

/* A set of numerical notes, bit by note. */
typedef uint32_t tc_notes;

typedef struct tc_suggestion {
    int64_t engine;
    int knob_count;
    tc_knob knobs[TC_MAX_KNOBS];
    tc_notes notes;
} tc_suggestion;

/*
 * What a mode of cuDNN's heuristics suggests, best first, at most `capacity`. A mode that has nothing to say of
 * this graph gives none; that is no failure.
 */
tc_status tc_graph_suggest(const tc_graph *graph, int mode, tc_suggestion *suggestions, size_t capacity,
                           size_t *count);
/* How many engines the graph's kind of operation has; their numbers begin at 0. */
tc_status tc_graph_engine_count(const tc_graph *graph, int64_t *count);
/* The notes of an engine; TC_NOT_FOUND when this graph has no such engine. */
tc_status tc_graph_engine_notes(const tc_graph *graph, int64_t engine, tc_notes *notes);
/* Whether an engine takes the graph with its own default settings; builds no plan. */
int tc_graph_engine_fits(const tc_graph *graph, int64_t engine, tc_notes *notes);

/* A plan ready to run, with the descriptors it is made of. */
typedef struct tc_execution {
    const tc_cudnn_library *library;
    cudnnBackendDescriptor_t engine, config, plan;
    int64_t workspace;
} tc_execution;

/* TC_NOT_FOUND when the engine, its settings or both together do not fit the graph. */
tc_status tc_graph_execution(const tc_graph *graph, int64_t engine, const tc_knob *knobs, int knob_count,
                             tc_execution *execution);
void tc_execution_destroy(tc_execution *execution);

#endif
