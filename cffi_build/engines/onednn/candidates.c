/*
 * The implementations oneDNN has for a convolution, in three formulations that differ in who chooses
 * the layouts of the tensors:
 *
 *   plain   input and output stay as they are, the filter is oneDNN's choice
 *   any     oneDNN chooses all; tensors are reordered where it chose another layout than the caller's
 *   strict  all stay as they are
 *
 * The default is what frameworks built on oneDNN ask for, its first implementation of "plain" for channels-last
 * tensors and of "any" for others, for which its kernels want blocks of channels.
 *
 * Names are "onednn:<implementation>#<occurrence>/<formulation>", the occurrence counting the implementations
 * of one name in one formulation. What a later formulation would run with the very layouts of an earlier one
 * is left out.
 */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct onednn_formulation {
    const char *name;
    onednn_freedom freedom;
} onednn_formulation;

const char onednn_any_name[] = "any";

static const onednn_formulation plain = {"plain", 1u << ONEDNN_W};
static const onednn_formulation any = {"any", 1u << ONEDNN_X | 1u << ONEDNN_W | 1u << ONEDNN_Y};
static const onednn_formulation strict = {"strict", 0};

enum { FORMULATIONS = 3 };
static const onednn_formulation *const channels_last_order[FORMULATIONS] = {&plain, &any, &strict};
static const onednn_formulation *const other_order[FORMULATIONS] = {&any, &plain, &strict};

static int same_layouts(const onednn_engine *engine, tc_direction direction, const_dnnl_primitive_desc_t a,
                        const_dnnl_primitive_desc_t b)
{
    for (int i = 0; i < ONEDNN_OPERANDS; i++)
        if (!engine->library.memory_desc_equal(onednn_operand_desc(engine, direction, a, i),
                                               onednn_operand_desc(engine, direction, b, i)))
            return 0;
    return 1;
}

/* Whether a formulation before this one runs the same implementation on the same layouts. */
static int repeats_another(const onednn_engine *engine, tc_direction direction, const onednn_choices *choices,
                           const onednn_choice *choice)
{
    for (size_t i = 0; i < choices->count; i++) {
        const onednn_choice *other = &choices->items[i];
        if (other->formulation < choice->formulation && other->occurrence == choice->occurrence &&
            strcmp(other->implementation, choice->implementation) == 0 &&
            same_layouts(engine, direction, other->desc, choice->desc))
            return 1;
    }
    return 0;
}

static tc_status append(onednn_choices *choices, const onednn_choice *choice)
{
    if (choices->count == choices->capacity) {
        size_t capacity = choices->capacity ? 2 * choices->capacity : 16;
        onednn_choice *items = realloc(choices->items, capacity * sizeof *items);
        if (!items)
            return tc_fail(TC_OUT_OF_MEMORY, "no memory for a list of %zu implementations", capacity);
        choices->items = items;
        choices->capacity = capacity;
    }
    choices->items[choices->count++] = *choice;
    return TC_OK;
}

static void name_choice(const onednn_choice *choice, const char *formulation, char *name, size_t size)
{
    snprintf(name, size, "onednn:%s#%d/%s", choice->implementation, choice->occurrence, formulation);
}

/* The name of the implementation, its flags and its occurrence among those listed so far. */
static tc_status identify(const onednn_engine *engine, const onednn_choices *choices, const_dnnl_primitive_desc_t desc,
                          const char *formulation, onednn_choice *choice)
{
    const char *implementation = NULL;
    tc_status status = onednn_check(
        engine->library.primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&implementation),
        "name an implementation");
    if (status != TC_OK)
        return status;
    snprintf(choice->implementation, sizeof choice->implementation, "%s", implementation);
    for (size_t i = 0; i < choices->count; i++)
        choice->occurrence += choices->items[i].formulation == choice->formulation &&
                              strcmp(choices->items[i].implementation, choice->implementation) == 0;
    name_choice(choice, formulation, choice->candidate.name, sizeof choice->candidate.name);
    choice->candidate.flags = TC_CANDIDATE_DETERMINISTIC; /* work is split by the number of threads alone */
    if (strncmp(choice->implementation, "ref", 3) == 0)
        choice->candidate.flags |= TC_CANDIDATE_LAST_RESORT;
    return TC_OK;
}

/*
 * Whether the iterator gave an implementation a second time: oneDNN's own hands out a cached descriptor without
 * moving on once primitives of such a convolution exist, so its list would grow as a process runs.
 */
static int is_listed(const onednn_engine *engine, tc_direction direction, const onednn_choices *choices,
                     const_dnnl_primitive_desc_t desc, const onednn_choice *choice)
{
    for (size_t i = 0; i < choices->count; i++) {
        const onednn_choice *other = &choices->items[i];
        if (other->formulation == choice->formulation &&
            strcmp(other->implementation, choice->implementation) == 0 &&
            same_layouts(engine, direction, other->desc, desc))
            return 1;
    }
    return 0;
}

static int count_of(const onednn_choices *choices, int formulation)
{
    int count = 0;
    for (size_t i = 0; i < choices->count; i++)
        count += choices->items[i].formulation == formulation;
    return count;
}

/* Adds the implementation that desc stands at. */
static tc_status add_choice(const onednn_engine *engine, const onednn_problem *problem, onednn_choices *choices,
                            const_dnnl_primitive_desc_t desc, const char *formulation, onednn_choice choice)
{
    tc_status status = identify(engine, choices, desc, formulation, &choice);
    if (status != TC_OK || onednn_is_defective(engine, problem, desc, choice.implementation) ||
        is_listed(engine, problem->direction, choices, desc, &choice))
        return status;
    status = onednn_check(engine->library.primitive_desc_clone(&choice.desc, desc), "copy a descriptor");
    if (status != TC_OK)
        return status;
    status = append(choices, &choice);
    if (status != TC_OK)
        engine->library.primitive_desc_destroy(choice.desc);
    return status;
}

static int is_wanted(const onednn_choice *choice, const char *name)
{
    if (name == onednn_any_name)
        return !(choice->candidate.flags & TC_CANDIDATE_LAST_RESORT) && !choice->repeated;
    return strcmp(choice->candidate.name, name) == 0;
}

static const onednn_choice *choice_named(const onednn_choices *choices, const char *name)
{
    for (size_t i = 0; i < choices->count; i++)
        if (is_wanted(&choices->items[i], name))
            return &choices->items[i];
    return NULL;
}

/* Adds what a formulation has beyond what is listed already; with a name, it ends when that is listed. */
static tc_status add_formulation(const onednn_engine *engine, const onednn_problem *problem,
                                 const onednn_formulation *formulation, int place, const char *name,
                                 onednn_choices *choices)
{
    dnnl_primitive_desc_t desc = NULL;
    tc_status status = onednn_problem_describe(engine, problem, formulation->freedom, &desc);
    if (status == TC_UNSUPPORTED)
        return TC_OK; /* no implementation takes these layouts */
    if (status != TC_OK)
        return status;
    do
        status = add_choice(engine, problem, choices, desc, formulation->name,
                            (onednn_choice){.formulation = place, .rank = count_of(choices, place)});
    while (status == TC_OK && !(name && choice_named(choices, name)) &&
           engine->library.primitive_desc_next_impl(desc) == dnnl_success);
    engine->library.primitive_desc_destroy(desc);
    return status;
}

static void drop_repeated(const onednn_engine *engine, tc_direction direction, onednn_choices *choices)
{
    size_t kept = 0;
    for (size_t i = 0; i < choices->count; i++)
        choices->items[i].repeated = repeats_another(engine, direction, choices, &choices->items[i]);
    for (size_t i = 0; i < choices->count; i++) {
        if (choices->items[i].repeated)
            engine->library.primitive_desc_destroy(choices->items[i].desc);
        else
            choices->items[kept++] = choices->items[i];
    }
    choices->count = kept;
}

/* Last resorts last; else the first of each formulation, the second of each, and so on. */
static int compare_choices(const void *left, const void *right)
{
    const onednn_choice *a = left, *b = right;
    int last_a = (a->candidate.flags & TC_CANDIDATE_LAST_RESORT) != 0;
    int last_b = (b->candidate.flags & TC_CANDIDATE_LAST_RESORT) != 0;
    if (last_a != last_b)
        return last_a - last_b;
    return a->rank != b->rank ? a->rank - b->rank : a->formulation - b->formulation;
}

static void free_choices(const onednn_engine *engine, onednn_choices *choices)
{
    for (size_t i = 0; i < choices->count; i++)
        engine->library.primitive_desc_destroy(choices->items[i].desc);
    free(choices->items);
    memset(choices, 0, sizeof *choices);
}

static const onednn_formulation *const *formulations_of(const onednn_problem *problem)
{
    return problem->channels_last ? channels_last_order : other_order;
}

/* Lists what is not listed yet, and puts all in order. */
static tc_status complete_choices(const onednn_engine *engine, const onednn_problem *problem, onednn_choices *choices)
{
    tc_status status = TC_OK;
    for (int i = 0; i < FORMULATIONS && status == TC_OK; i++)
        status = add_formulation(engine, problem, formulations_of(problem)[i], i, NULL, choices);
    if (status == TC_OK && choices->count == 0)
        status = tc_fail(TC_UNSUPPORTED, "oneDNN has no implementation of this convolution for this processor");
    if (status != TC_OK) {
        free_choices(engine, choices);
        return status;
    }
    drop_repeated(engine, problem->direction, choices);
    qsort(choices->items, choices->count, sizeof *choices->items, compare_choices);
    choices->is_complete = 1;
    return TC_OK;
}

/* Lists as far as the name. */
static tc_status look_for(const onednn_engine *engine, const onednn_problem *problem, const char *name,
                          onednn_choices *choices)
{
    const char *end = strrchr(name, '/');
    tc_status status = TC_OK;
    for (int i = 0; i < FORMULATIONS && status == TC_OK && !choice_named(choices, name); i++) {
        const onednn_formulation *formulation = formulations_of(problem)[i];
        if (name == onednn_any_name || (end && strcmp(formulation->name, end + 1) == 0))
            status = add_formulation(engine, problem, formulation, i, name, choices);
    }
    return status;
}

/*
 * Whether a complete list leaves a choice out, since it repeats another: tells from the namesakes in the formulations
 * before its own, which are listed as far as they.
 */
static tc_status compare_with_earlier(const onednn_engine *engine, const onednn_problem *problem,
                                      onednn_choices *choices, size_t at)
{
    const onednn_choice choice = choices->items[at]; /* listing more moves it */
    tc_status status = TC_OK;
    for (int i = 0; i < choice.formulation && status == TC_OK; i++) {
        const onednn_formulation *formulation = formulations_of(problem)[i];
        char namesake[sizeof choice.candidate.name];
        name_choice(&choice, formulation->name, namesake, sizeof namesake);
        if (!choice_named(choices, namesake))
            status = add_formulation(engine, problem, formulation, i, namesake, choices);
    }
    if (status == TC_OK) {
        choices->items[at].repeated = repeats_another(engine, problem->direction, choices, &choice);
        choices->items[at].is_compared = 1;
    }
    return status;
}

/* ---- lists that are kept ------------------------------------------------------------------------------ */

/*
 * Asking oneDNN for all implementations takes about a millisecond, and a convolution is asked about when it is
 * traced, when its algorithm is settled, and for each plan of a search: the latest lists are kept. Where only one
 * name matters, they go no further than that name.
 */
enum { LISTINGS = 16 };

typedef struct onednn_listing {
    onednn_problem problem;
    onednn_choices choices; /* empty where nothing is known */
    uint64_t used;
} onednn_listing;

static int lists(const onednn_listing *listing, const onednn_problem *problem)
{
    return listing->choices.count && memcmp(&listing->problem, problem, sizeof *problem) == 0;
}

/* The listing of a problem, else the one that was used longest ago. */
static onednn_listing *find_listing(onednn_listing *listings, const onednn_problem *problem)
{
    onednn_listing *oldest = listings;
    for (onednn_listing *listing = listings; listing < listings + LISTINGS; listing++) {
        if (lists(listing, problem))
            return listing;
        if (listing->used < oldest->used)
            oldest = listing;
    }
    return oldest;
}

/* What is known of a problem: nothing, where it is new or was forgotten. */
static tc_status known_choices(onednn_engine *engine, const onednn_problem *problem, onednn_choices **choices)
{
    if (!engine->listings && !(engine->listings = calloc(LISTINGS, sizeof *engine->listings)))
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for lists of implementations");
    onednn_listing *listing = find_listing(engine->listings, problem);
    if (!lists(listing, problem)) {
        free_choices(engine, &listing->choices);
        memcpy(&listing->problem, problem, sizeof *problem); /* the gaps between fields as well */
    }
    listing->used = ++engine->uses;
    *choices = &listing->choices;
    return TC_OK;
}

tc_status onednn_choices_of(onednn_engine *engine, const onednn_problem *problem, const onednn_choices **result)
{
    onednn_choices *choices;
    tc_status status = known_choices(engine, problem, &choices);
    if (status == TC_OK && !choices->is_complete)
        status = complete_choices(engine, problem, choices);
    *result = choices;
    return status;
}

tc_status onednn_choice_named(onednn_engine *engine, const onednn_problem *problem, const char *name,
                              const onednn_choice **result)
{
    onednn_choices *choices;
    tc_status status = known_choices(engine, problem, &choices);
    if (status != TC_OK)
        return status;
    *result = choice_named(choices, name);
    if (!*result && !choices->is_complete) {
        status = look_for(engine, problem, name, choices);
        *result = choice_named(choices, name);
    }
    if (status == TC_OK && *result && name != onednn_any_name && !choices->is_complete && !(*result)->is_compared) {
        status = compare_with_earlier(engine, problem, choices, (size_t)(*result - choices->items));
        *result = choice_named(choices, name);
    }
    if (status == TC_OK && (!*result || (*result)->repeated))
        status = tc_fail(TC_NOT_FOUND, "oneDNN has no algorithm '%s' for this convolution", name);
    return status;
}

void onednn_choices_forget(onednn_engine *engine)
{
    for (int i = 0; engine->listings && i < LISTINGS; i++)
        free_choices(engine, &engine->listings[i].choices);
    free(engine->listings);
    engine->listings = NULL;
}

#endif
