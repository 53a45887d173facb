/* Candidates: what cuDNN's heuristics suggest, for the convolution as it is and rewritten, and the engine's own. */
#include "candidates.h"

#include <stdlib.h>
#include <string.h>

#include "direct/direct.h"

/*
 * Plans are costly to build, so the order decides what a budget buys: the heuristics' first choice, which is the
 * default, the engine's own kernels, which cost nothing to build, the heuristics' other favourites, those for
 * each rewriting, then the rest of both.
 */
enum {
    FIRST_PLAIN = 6,
    FIRST_REWRITTEN = 4,
    MOST_PLAIN = 32,
    MOST_REWRITTEN = 12,
    ENOUGH = 16, /* from this many on, the slow mode of the heuristics is not asked */
    FEW = 8      /* fewer than this, and engines that no heuristic mentions are added */
};

int tc_notes_allowed(const tc_conv *conv, tc_notes notes)
{
    /* These compute in less than the key's compute dtype. */
    tc_notes forbidden = (tc_notes)1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                         (tc_notes)1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    if (conv->x_dtype == TC_F32 && !conv->allow_tf32)
        forbidden |= (tc_notes)1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (conv->deterministic)
        forbidden |= (tc_notes)1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return !(notes & forbidden);
}

static int pads_evenly(const tc_conv *conv)
{
    for (int axis = 0; axis < conv->spatial_rank; axis++)
        if (conv->pad_before[axis] != conv->pad_after[axis])
            return 0;
    return 1;
}

/*
 * Engines whose results were wrong on an H200 under cuDNN 9.19, where cuDNN accepts the convolution all the
 * same: those of the old backward-filter algorithms take the padding before an axis for the padding after it
 * too, and engine 50 leaves parts of its output unwritten.
 */
int tc_engine_is_right(const tc_conv *conv, int64_t engine)
{
    switch (conv->direction) {
    case TC_BACKWARD_FILTER: return pads_evenly(conv) || !(engine == 1 || engine == 18 || engine == 20);
    case TC_BACKWARD_DATA: return engine != 50;
    default: return 1;
    }
}

/* ---- rewritings ------------------------------------------------------------------------------------------ */

static int all_equal(const int64_t *values, int count, int64_t value)
{
    for (int i = 0; i < count; i++)
        if (values[i] != value)
            return 0;
    return 1;
}

/* Tensor cores take channels in eights; other arithmetic gains nothing from padding. */
static int wants_padding(const tc_conv *c)
{
    return c->groups == 1 && (c->x_dtype == TC_F16 || c->x_dtype == TC_BF16 || (c->x_dtype == TC_F32 && c->allow_tf32));
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static void add(tc_rewrite *rewrites, int *count, tc_rewrite rewrite)
{
    if (*count < TC_MAX_REWRITES)
        rewrites[(*count)++] = rewrite;
}

/* Few input channels leave most of a tensor core's tile empty: padding, and folding of strides, fill it. */
static void add_for_few_channels(const tc_conv *c, tc_rewrite *rewrites, int *count)
{
    int64_t channels = c->w_dims[1], positions = 1;
    int wide = 1; /* a filter narrower than the stride would fold into zeros */
    for (int axis = 0; axis < c->spatial_rank; axis++) {
        positions *= c->stride[axis];
        wide = wide && c->w_dims[2 + axis] >= c->stride[axis];
    }
    int64_t folded = channels * positions;
    if (positions > 1 && folded <= 64 && wide) {
        tc_rewrite rewrite = {.fold = 1, .channels = folded % 8 ? round_up(folded, 8) : 0};
        if (c->direction == TC_BACKWARD_DATA)
            add(rewrites, count, (tc_rewrite){.fold = 1, .channels = rewrite.channels, .swapped = 1});
        add(rewrites, count, rewrite);
    }
    if (channels % 8)
        add(rewrites, count, (tc_rewrite){.channels = round_up(channels, 8)});
    if (channels < 4)
        add(rewrites, count, (tc_rewrite){.channels = 4});
}

/* The plain one first. */
static int rewrites_with_implicit_padding(const tc_conv *conv, tc_rewrite *rewrites)
{
    int count = 0, rank = conv->spatial_rank;
    int unit_stride = all_equal(conv->stride, rank, 1);
    int pointwise = unit_stride && all_equal(conv->w_dims + 2, rank, 1) && conv->groups == 1;
    int depthwise = conv->groups > 1 && conv->w_dims[1] == 1;
    add(rewrites, &count, (tc_rewrite){0});
    if (conv->x_layout == TC_CHANNELS_FIRST || depthwise)
        add(rewrites, &count, (tc_rewrite){.other_layout = 1});
    if (wants_padding(conv) && conv->w_dims[1] < 16)
        add_for_few_channels(conv, rewrites, &count);
    /* Pointwise filters of Keras, (in, out), are what the swapped problem takes: no conversion is left. */
    if (unit_stride && (conv->direction == TC_BACKWARD_DATA || (pointwise && conv->w_layout == TC_HWIO))) {
        add(rewrites, &count, (tc_rewrite){.swapped = 1});
        if (conv->x_layout == TC_CHANNELS_FIRST)
            add(rewrites, &count, (tc_rewrite){.swapped = 1, .other_layout = 1});
    }
    return count;
}

/* cuDNN's best engines pad as much before an axis as after it: where it is asked otherwise, zeros are written out. */
static void add_with_explicit_padding(const tc_conv *conv, tc_rewrite rewrite, tc_rewrite *rewrites, int *count)
{
    tc_problem problem;
    if (tc_problem_make(conv, &rewrite, &problem) != TC_OK || pads_evenly(&problem.conv))
        return;
    rewrite.explicit_padding = 1;
    if (tc_problem_make(conv, &rewrite, &problem) == TC_OK)
        add(rewrites, count, rewrite);
}

int tc_rewrites_for(const tc_conv *conv, tc_rewrite rewrites[TC_MAX_REWRITES])
{
    tc_rewrite implicit[TC_MAX_REWRITES];
    int implicit_count = rewrites_with_implicit_padding(conv, implicit), count = 0;
    add(rewrites, &count, implicit[0]);
    for (int i = 1; i < implicit_count; i++)
        add_with_explicit_padding(conv, implicit[i], rewrites, &count);
    for (int i = 1; i < implicit_count; i++)
        add(rewrites, &count, implicit[i]);
    add_with_explicit_padding(conv, implicit[0], rewrites, &count);
    return count;
}

/* ---- the algorithms of one rewriting --------------------------------------------------------------------- */

enum { CAPACITY = 128 };

typedef struct variant {
    const tc_rewrite *rewrite;
    tc_conv asked; /* what cuDNN is asked: the convolution after rewriting */
    tc_suggestion *suggestions;
    size_t count, taken;
} variant;

static int same_choice(const tc_suggestion *a, const tc_suggestion *b)
{
    if (a->engine != b->engine || a->knob_count != b->knob_count)
        return 0;
    for (int i = 0; i < a->knob_count; i++)
        if (a->knobs[i].type != b->knobs[i].type || a->knobs[i].value != b->knobs[i].value)
            return 0;
    return 1;
}

/* `conv` is the caller's, whose arithmetic counts. */
static void keep(variant *v, const tc_conv *conv, const tc_suggestion *suggestion)
{
    if (v->count == CAPACITY || !tc_notes_allowed(conv, suggestion->notes) ||
        !tc_engine_is_right(&v->asked, suggestion->engine))
        return;
    for (size_t i = 0; i < v->count; i++)
        if (same_choice(&v->suggestions[i], suggestion))
            return;
    v->suggestions[v->count++] = *suggestion;
}

static tc_status ask(const tc_graph *graph, const tc_conv *conv, int mode, tc_suggestion *scratch, variant *v)
{
    size_t given;
    tc_status status = tc_graph_suggest(graph, mode, scratch, CAPACITY, &given);
    for (size_t i = 0; status == TC_OK && i < given; i++)
        keep(v, conv, &scratch[i]);
    return status;
}

/* Engines with their own default settings, whether or not the heuristics know them. */
static tc_status add_all_engines(const tc_graph *graph, const tc_conv *conv, variant *v)
{
    int64_t engines = 0;
    tc_status status = tc_graph_engine_count(graph, &engines);
    for (int64_t engine = 0; status == TC_OK && engine < engines; engine++) {
        tc_suggestion suggestion = {.engine = engine};
        size_t i = 0;
        while (i < v->count && v->suggestions[i].engine != engine)
            i++;
        if (i == v->count && tc_graph_engine_fits(graph, engine, &suggestion.notes))
            keep(v, conv, &suggestion);
    }
    return status;
}

/* Mode B takes ten times as long as A; where A has much to say it says the same, and it does not know these. */
static int asks_mode_b(const tc_conv *conv, const variant *v)
{
    return v->count < ENOUGH && conv->groups == 1 && conv->spatial_rank < 3 &&
           all_equal(conv->dilation, conv->spatial_rank, 1);
}

/* The plain convolution is asked about in full; of the others, only what the quick mode thinks best. */
static tc_status fill(const tc_graph *graph, const tc_conv *conv, int plain, tc_suggestion *scratch, variant *v)
{
    tc_status status = ask(graph, conv, CUDNN_HEUR_MODE_A, scratch, v);
    if (status == TC_OK && plain && asks_mode_b(conv, v))
        status = ask(graph, conv, CUDNN_HEUR_MODE_B, scratch, v);
    if (status == TC_OK && (plain || v->count == 0))
        status = ask(graph, conv, CUDNN_HEUR_MODE_FALLBACK, scratch, v);
    if (status == TC_OK && plain && v->count < FEW)
        status = add_all_engines(graph, conv, v);
    return status;
}

/* A rewriting that is not possible, or that cuDNN does not know, has no algorithms. */
static tc_status find(const tc_cudnn_library *library, cudnnHandle_t handle, const tc_conv *conv, int plain,
                      tc_suggestion *scratch, variant *v)
{
    tc_problem problem;
    tc_graph graph;
    tc_status status = tc_problem_make(conv, v->rewrite, &problem);
    if (status == TC_OK) {
        v->asked = problem.conv;
        status = tc_graph_make(library, handle, &problem.conv, &graph);
    }
    if (status == TC_UNSUPPORTED)
        return TC_OK;
    if (status != TC_OK)
        return status;
    status = fill(&graph, conv, plain, scratch, v);
    tc_graph_destroy(&graph);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------------------- */

static tc_status take(variant *v, int32_t layout, size_t most, tc_candidate_list *list)
{
    tc_status status = TC_OK;
    for (; status == TC_OK && v->taken < v->count && v->taken < most; v->taken++) {
        const tc_suggestion *s = &v->suggestions[v->taken];
        tc_algorithm algorithm = {.engine = s->engine, .knob_count = s->knob_count, .rewrite = *v->rewrite};
        char name[TC_NAME_SIZE];
        memcpy(algorithm.knobs, s->knobs, sizeof algorithm.knobs);
        status = tc_algorithm_format(&algorithm, layout, name, sizeof name);
        int deterministic = !(s->notes & (tc_notes)1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        if (status == TC_OK)
            status = tc_candidate_add(list, name, deterministic ? TC_CANDIDATE_DETERMINISTIC : 0);
    }
    return status;
}

static tc_status take_in_turn(const tc_device *device, const tc_conv *conv, variant *variants, int count,
                              tc_candidate_list *list)
{
    static const size_t MOST[2][2] = {{FIRST_PLAIN, FIRST_REWRITTEN}, {MOST_PLAIN, MOST_REWRITTEN}};
    tc_status status = take(&variants[0], conv->x_layout, 1, list);
    if (status == TC_OK)
        status = tc_direct_candidates(device, conv, list);
    for (int round = 0; round < 2; round++)
        for (int i = 0; status == TC_OK && i < count; i++)
            status = take(&variants[i], conv->x_layout, MOST[round][i > 0], list);
    return status;
}

tc_status tc_cudnn_candidates(const tc_device *device, cudnnHandle_t handle, const tc_conv *conv,
                              tc_candidate_list *list)
{
    const tc_cudnn_library *library = device->library;
    tc_rewrite rewrites[TC_MAX_REWRITES];
    variant variants[TC_MAX_REWRITES] = {{0}};
    int count = tc_rewrites_for(conv, rewrites);
    tc_suggestion *memory = calloc((size_t)(count + 1) * CAPACITY, sizeof *memory);
    if (!memory)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for the candidates of a convolution");
    tc_status status = TC_OK;
    for (int i = 0; status == TC_OK && i < count; i++) {
        variants[i].rewrite = &rewrites[i];
        variants[i].suggestions = memory + (size_t)(i + 1) * CAPACITY;
        status = find(library, handle, conv, i == 0, memory, &variants[i]);
    }
    if (status == TC_OK)
        status = take_in_turn(device, conv, variants, count, list);
    free(memory);
    if (status == TC_OK && list->count == 0)
        return tc_fail(TC_UNSUPPORTED, "cuDNN %d.%d.%d has no algorithm for this convolution", library->major,
                       library->minor, library->patch);
    return status;
}
