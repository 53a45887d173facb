/* Engines: which ones cuDNN suggests for a graph, and plans made from an engine's number and settings. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "descriptors.h"
#include "graph.h"

/* More suggestions than any mode has given; more notes than there are. */
enum { MAX_SUGGESTIONS = 128, MAX_NOTES = 32 };

/* ---- reading a configuration ------------------------------------------------------------------------------ */

static tc_notes read_notes(tc_builder *b, cudnnBackendDescriptor_t engine)
{
    int notes[MAX_NOTES];
    tc_notes set = 0;
    int64_t count = tc_build_get(b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
                                 notes);
    for (int64_t i = 0; i < count && i < MAX_NOTES; i++)
        if (notes[i] >= 0 && notes[i] < 32)
            set |= (tc_notes)1 << notes[i];
    return set;
}

static int by_type(const void *a, const void *b)
{
    return ((const tc_knob *)a)->type - ((const tc_knob *)b)->type;
}

static void read_knobs(tc_builder *b, cudnnBackendDescriptor_t config, tc_suggestion *suggestion)
{
    cudnnBackendDescriptor_t choices[TC_MAX_KNOBS] = {NULL};
    for (int i = 0; i < TC_MAX_KNOBS; i++)
        choices[i] = tc_build_create(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    int64_t count = tc_build_get(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 TC_MAX_KNOBS, choices);
    suggestion->knob_count = (int)(count < TC_MAX_KNOBS ? count : TC_MAX_KNOBS);
    for (int i = 0; i < suggestion->knob_count; i++) {
        tc_build_get(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                     &suggestion->knobs[i].type);
        tc_build_get(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                     &suggestion->knobs[i].value);
    }
    qsort(suggestion->knobs, (size_t)suggestion->knob_count, sizeof *suggestion->knobs, by_type);
    for (int i = 0; i < TC_MAX_KNOBS; i++)
        tc_build_destroy(b->library, &choices[i]);
}

static void read_config(tc_builder *b, cudnnBackendDescriptor_t config, tc_suggestion *suggestion)
{
    memset(suggestion, 0, sizeof *suggestion);
    cudnnBackendDescriptor_t engine = tc_build_create(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR), made = engine;
    tc_build_get(b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    tc_build_get(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &suggestion->engine);
    suggestion->notes = read_notes(b, engine);
    tc_build_destroy(b->library, &made);
    read_knobs(b, config, suggestion);
}

/* ---- heuristics ------------------------------------------------------------------------------------------- */

/* Mode B's network is not known to bear two threads at once. */
static pthread_mutex_t mode_b_lock = PTHREAD_MUTEX_INITIALIZER;

static cudnnBackendDescriptor_t query(tc_builder *b, const tc_graph *graph, int mode)
{
    cudnnBackendDescriptor_t heuristics = tc_build_create(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    tc_build_set_descriptor(b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->graph);
    tc_build_set_int(b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (mode == CUDNN_HEUR_MODE_B)
        pthread_mutex_lock(&mode_b_lock);
    tc_build_finalize(b, heuristics);
    if (mode == CUDNN_HEUR_MODE_B)
        pthread_mutex_unlock(&mode_b_lock);
    return heuristics;
}

tc_status tc_graph_suggest(const tc_graph *graph, int mode, tc_suggestion *suggestions, size_t capacity,
                           size_t *count)
{
    tc_builder b = {.library = graph->library};
    cudnnBackendDescriptor_t configs[MAX_SUGGESTIONS] = {NULL};
    int64_t wanted = (int64_t)(capacity < MAX_SUGGESTIONS ? capacity : MAX_SUGGESTIONS);
    *count = 0;
    cudnnBackendDescriptor_t heuristics = query(&b, graph, mode);
    int nothing = b.status != CUDNN_STATUS_SUCCESS;
    int64_t available = tc_build_get(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                     NULL);
    if (wanted > available)
        wanted = available;
    for (int64_t i = 0; i < wanted; i++)
        configs[i] = tc_build_create(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t given = wanted > 0 ? tc_build_get(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, wanted, configs)
                               : 0;
    for (int64_t i = 0; i < given && i < wanted && b.status == CUDNN_STATUS_SUCCESS; i++) {
        read_config(&b, configs[i], &suggestions[*count]);
        *count += b.status == CUDNN_STATUS_SUCCESS;
    }
    for (int64_t i = 0; i < wanted; i++)
        tc_build_destroy(graph->library, &configs[i]);
    tc_build_destroy(graph->library, &heuristics);
    if (nothing || *count > 0)
        return TC_OK;
    return b.status == CUDNN_STATUS_SUCCESS ? TC_OK
                                            : tc_cudnn_fail(graph->library, b.status, "asking cuDNN's heuristics");
}

/* ---- engines ---------------------------------------------------------------------------------------------- */

tc_status tc_graph_engine_count(const tc_graph *graph, int64_t *count)
{
    tc_builder b = {.library = graph->library};
    *count = 0;
    tc_build_get(&b, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, count);
    return b.status == CUDNN_STATUS_SUCCESS ? TC_OK : tc_cudnn_fail(graph->library, b.status, "counting the engines");
}

static cudnnBackendDescriptor_t make_engine(tc_builder *b, const tc_graph *graph, int64_t number)
{
    cudnnBackendDescriptor_t engine = tc_build_create(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    tc_build_set_descriptor(b, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->graph);
    tc_build_set_int64(b, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, number);
    tc_build_finalize(b, engine);
    return engine;
}

/* Names come out of files: what cuDNN refuses is not there, whatever the reason; only real failures are failures. */
static tc_status miss(const tc_cudnn_library *library, cudnnStatus_t status, const char *what)
{
    int kind = status / 1000;
    tc_status mapped = tc_cudnn_fail(library, status, what);
    int refused = kind == CUDNN_STATUS_BAD_PARAM / 1000 || kind == CUDNN_STATUS_NOT_SUPPORTED / 1000;
    return refused ? TC_NOT_FOUND : mapped;
}

tc_status tc_graph_engine_notes(const tc_graph *graph, int64_t number, tc_notes *notes)
{
    tc_builder b = {.library = graph->library};
    int64_t count;
    tc_status status = tc_graph_engine_count(graph, &count);
    if (status != TC_OK)
        return status;
    if (number < 0 || number >= count)
        return tc_fail(TC_NOT_FOUND, "cuDNN has engines 0 to %lld for this convolution, not %lld",
                       (long long)count - 1, (long long)number);
    cudnnBackendDescriptor_t engine = make_engine(&b, graph, number);
    *notes = read_notes(&b, engine);
    if (b.status != CUDNN_STATUS_SUCCESS)
        status = miss(graph->library, b.status, "taking up an engine");
    tc_build_destroy(graph->library, &engine);
    return status;
}

/* ---- plans ------------------------------------------------------------------------------------------------ */

static void set_knobs(tc_builder *b, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *choices,
                      const tc_knob *knobs, int count)
{
    for (int i = 0; i < count; i++) {
        choices[i] = tc_build_create(b, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        tc_build_set_int(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, knobs[i].type);
        tc_build_set_int64(b, choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knobs[i].value);
        tc_build_finalize(b, choices[i]);
    }
    if (count > 0)
        tc_build_set(b, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, choices);
}

static void make_config(tc_builder *b, const tc_knob *knobs, int knob_count, tc_execution *execution)
{
    cudnnBackendDescriptor_t choices[TC_MAX_KNOBS] = {NULL};
    execution->config = tc_build_create(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    tc_build_set_descriptor(b, execution->config, CUDNN_ATTR_ENGINECFG_ENGINE, execution->engine);
    set_knobs(b, execution->config, choices, knobs, knob_count);
    tc_build_finalize(b, execution->config);
    for (int i = 0; i < knob_count; i++)
        tc_build_destroy(b->library, &choices[i]);
}

int tc_graph_engine_fits(const tc_graph *graph, int64_t engine, tc_notes *notes)
{
    tc_builder b = {.library = graph->library};
    tc_execution execution = {.library = graph->library};
    execution.engine = make_engine(&b, graph, engine);
    *notes = read_notes(&b, execution.engine);
    make_config(&b, NULL, 0, &execution);
    tc_execution_destroy(&execution);
    return b.status == CUDNN_STATUS_SUCCESS;
}

tc_status tc_graph_execution(const tc_graph *graph, int64_t engine, const tc_knob *knobs, int knob_count,
                             tc_execution *execution)
{
    tc_builder b = {.library = graph->library};
    *execution = (tc_execution){.library = graph->library};
    execution->engine = make_engine(&b, graph, engine);
    make_config(&b, knobs, knob_count, execution);
    execution->plan = tc_build_create(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    tc_build_set(&b, execution->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &graph->handle);
    tc_build_set_descriptor(&b, execution->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, execution->config);
    tc_build_finalize(&b, execution->plan);
    tc_build_get(&b, execution->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                 &execution->workspace);
    if (b.status == CUDNN_STATUS_SUCCESS && execution->workspace >= 0)
        return TC_OK;
    tc_status status = miss(graph->library, b.status, "building the plan");
    tc_execution_destroy(execution);
    return status;
}

void tc_execution_destroy(tc_execution *execution)
{
    if (!execution->library)
        return;
    tc_build_destroy(execution->library, &execution->plan);
    tc_build_destroy(execution->library, &execution->config);
    tc_build_destroy(execution->library, &execution->engine);
}
