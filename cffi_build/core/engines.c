/* The table of engines: opening, closing, and asking them what they can do. */
#include "engines.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "conv.h"
#include "locks.h"
#include "registry.h"
#include "status.h"

static const tc_engine_ops *const built_in[] = {
#ifdef TC_WITH_ONEDNN
    &tc_onednn_engine,
#endif
#ifndef TC_WITHOUT_CUDNN
    &tc_cudnn_engine,
#endif
    &tc_reference_engine,
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

/* Places are never moved, since plans point at them; one is taken again once its engine was closed. */
static tc_engine engines[TC_MAX_ENGINES];
static tc_engine *opened[TC_MAX_ENGINES]; /* the open ones, in the order they are asked */
static size_t opened_count;
static _Atomic uint64_t generation;
static _Atomic uint32_t exact_devices; /* a bit for each device kind all of whose open engines are exact */

/* ---- the table: callers hold the lock -------------------------------------------------------------- */

static tc_engine *find_open(const char *name)
{
    for (size_t i = 0; i < opened_count; i++)
        if (strcmp(opened[i]->ops->name, name) == 0)
            return opened[i];
    return NULL;
}

static void count_changed(void)
{
    uint32_t exact = 0, others = 0;
    for (size_t i = 0; i < opened_count; i++)
        *(opened[i]->ops->is_exact ? &exact : &others) |= UINT32_C(1) << opened[i]->ops->device_kind;
    atomic_store_explicit(&exact_devices, exact & ~others, memory_order_relaxed);
    atomic_fetch_add(&generation, 1);
}

static void list_opened(tc_engine *engine)
{
    size_t at = opened_count++;
    if (!engine->ops->last_resort)
        for (; at > 0 && opened[at - 1]->ops->last_resort; at--)
            opened[at] = opened[at - 1];
    opened[at] = engine;
    engine->open = 1;
    count_changed();
}

static tc_status open_ops(const tc_engine_ops *ops, const char *const *paths, void *library)
{
    if (find_open(ops->name))
        return library ? tc_fail(TC_INVALID_ARGUMENT, "an engine named '%s' is open already", ops->name) : TC_OK;
    for (size_t i = 0; i < TC_MAX_ENGINES; i++) {
        if (engines[i].open)
            continue;
        void *state = NULL;
        tc_status status = ops->open(paths, &state);
        if (status == TC_OK) {
            engines[i] = (tc_engine){.ops = ops, .state = state, .library = library};
            list_opened(&engines[i]);
        }
        return status;
    }
    return tc_fail(TC_UNAVAILABLE, "%d engines are open already; close one with tc_engine_close", TC_MAX_ENGINES);
}

/* ---- opening and closing ------------------------------------------------------------------------- */

tc_status tc_engine_open(const char *name, const char *const *paths)
{
    if (!name)
        return tc_fail(TC_INVALID_ARGUMENT, "expected the name of an engine, got NULL");
    for (size_t i = 0; i < BUILT_IN; i++) {
        if (strcmp(built_in[i]->name, name) != 0)
            continue;
        tc_acquire(TC_LOCK_ENGINES);
        tc_status status = open_ops(built_in[i], paths, NULL);
        tc_release(TC_LOCK_ENGINES);
        return status;
    }
    char known[TC_MESSAGE_SIZE / 2] = "";
    for (size_t i = 0; i < BUILT_IN; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", built_in[i]->name);
    return tc_fail(TC_NOT_FOUND, "this build has no engine named '%.64s'; it has %s", name, known);
}

/* A table with a hole would crash much later, so it is refused whole. */
static tc_status check_ops(const tc_engine_ops *ops)
{
    if (!ops->name || !*ops->name || strlen(ops->name) >= 64)
        return tc_fail(TC_INVALID_ARGUMENT, "an engine's name must have 1 to 63 bytes");
    if (ops->device_kind < TC_CPU || ops->device_kind > TC_CUDA)
        return tc_fail(TC_INVALID_ARGUMENT, "engine '%s' is for device kind %d, which the core does not know",
                       ops->name, ops->device_kind);
    int complete = ops->open && ops->close && ops->describe && ops->environment && ops->candidates && ops->prepare &&
                   ops->release && ops->workspace && ops->run && ops->can_measure && ops->time && ops->fetch &&
                   ops->poison && (ops->zero || ops->device_kind == TC_CPU);
    return complete ? TC_OK
                    : tc_fail(TC_INVALID_ARGUMENT, "engine '%s' leaves a required function NULL: see tc_engine_ops",
                              ops->name);
}

tc_status tc_engine_load(const char *library_path)
{
    if (!library_path)
        return tc_fail(TC_INVALID_ARGUMENT, "expected the path of an engine's library, got NULL");
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return tc_fail(TC_UNAVAILABLE, "cannot load an engine: %s", dlerror());
    tc_engine_entry entry;
    *(void **)&entry = dlsym(library, "tunedconv_engine_entry");
    const tc_engine_ops *ops = entry ? entry(tc_get_api()) : NULL;
    tc_status status;
    if (!entry)
        status = tc_fail(TC_INVALID_ARGUMENT, "'%.256s' is not an engine: it exports no tunedconv_engine_entry",
                         library_path);
    else if (!ops)
        status = tc_fail(TC_INVALID_ARGUMENT, "the engine in '%.256s' was built for another interface than version %d",
                         library_path, TC_ABI_VERSION);
    else
        status = check_ops(ops);
    if (status == TC_OK) {
        tc_acquire(TC_LOCK_ENGINES);
        status = open_ops(ops, NULL, library);
        tc_release(TC_LOCK_ENGINES);
    }
    if (status != TC_OK)
        dlclose(library);
    return status;
}

int32_t tc_engine_is_open(const char *name)
{
    tc_acquire(TC_LOCK_ENGINES);
    int32_t open = name && find_open(name);
    tc_release(TC_LOCK_ENGINES);
    return open;
}

tc_status tc_engine_close(const char *name)
{
    tc_acquire(TC_LOCK_ENGINES);
    tc_engine *engine = name ? find_open(name) : NULL;
    if (engine) {
        size_t at = 0;
        while (opened[at] != engine)
            at++;
        memmove(&opened[at], &opened[at + 1], (--opened_count - at) * sizeof *opened);
        count_changed();
    }
    tc_release(TC_LOCK_ENGINES);
    if (!engine)
        return tc_fail(TC_NOT_FOUND, "no engine named '%.64s' is open", name ? name : "");
    tc_registry_forget_engine(engine);
    engine->ops->close(engine->state);
    /* The library stays loaded: its ops table may still be read by whoever looks at this place. */
    tc_acquire(TC_LOCK_ENGINES);
    engine->open = 0;
    tc_release(TC_LOCK_ENGINES);
    return TC_OK;
}

tc_status tc_engine_describe(const char *name, char *text, size_t size)
{
    tc_acquire(TC_LOCK_ENGINES);
    tc_engine *engine = name ? find_open(name) : NULL;
    tc_release(TC_LOCK_ENGINES);
    if (!engine)
        return tc_fail(TC_NOT_FOUND, "no engine named '%.64s' is open", name ? name : "");
    return engine->ops->describe(engine->state, text, size);
}

tc_status tc_engine_environment(const char *name, int32_t ordinal, char *text, size_t size)
{
    tc_acquire(TC_LOCK_ENGINES);
    tc_engine *engine = name ? find_open(name) : NULL;
    tc_release(TC_LOCK_ENGINES);
    if (!engine)
        return tc_fail(TC_NOT_FOUND, "no engine named '%.64s' is open", name ? name : "");
    return engine->ops->environment(engine->state, ordinal, text, size);
}

tc_status tc_engine_names(char *text, size_t size)
{
    if (!text || size == 0)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a place for the names, got NULL");
    size_t used = 0;
    text[0] = '\0';
    tc_acquire(TC_LOCK_ENGINES);
    for (size_t i = 0; i < opened_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "\n" : "", opened[i]->ops->name);
    tc_release(TC_LOCK_ENGINES);
    return used < size ? TC_OK : tc_fail(TC_INVALID_ARGUMENT, "the engines' names need more than %zu bytes", size);
}

/* ---- asking --------------------------------------------------------------------------------------- */

size_t tc_engines_of(int32_t device_kind, const tc_engine *found[TC_MAX_ENGINES])
{
    size_t count = 0;
    tc_acquire(TC_LOCK_ENGINES);
    for (size_t i = 0; i < opened_count; i++)
        if (opened[i]->ops->device_kind == device_kind)
            found[count++] = opened[i];
    tc_release(TC_LOCK_ENGINES);
    return count;
}

uint64_t tc_engines_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

const tc_conv *tc_conv_known_as(const tc_conv *conv, int32_t device_kind, tc_conv *space)
{
    if (!(conv->deterministic | conv->allow_tf32) || device_kind < TC_CPU || device_kind > TC_CUDA ||
        !(atomic_load_explicit(&exact_devices, memory_order_relaxed) >> device_kind & 1))
        return conv;
    *space = *conv;
    space->deterministic = space->allow_tf32 = 0;
    return space;
}

static tc_status no_engine(int32_t device_kind)
{
    return tc_fail(TC_UNAVAILABLE, "no engine for device '%s' is open; call tc_engine_open first",
                   tc_device_name(device_kind));
}

tc_status tc_environment(int32_t device_kind, int32_t ordinal, char *text, size_t size)
{
    const tc_engine *of_device[TC_MAX_ENGINES];
    if (tc_engines_of(device_kind, of_device) == 0)
        return no_engine(device_kind);
    return of_device[0]->ops->environment(of_device[0]->state, ordinal, text, size);
}

/* Keeps what conv's determinism allows, then what is not a last resort before what is, each in its order. */
static void keep_eligible(const tc_conv *conv, tc_candidate_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (!conv->deterministic || (list->items[i].flags & TC_CANDIDATE_DETERMINISTIC))
            list->items[kept++] = list->items[i];
    list->count = kept;
    size_t front = 0;
    for (size_t i = 0; i < kept; i++) {
        if (list->items[i].flags & TC_CANDIDATE_LAST_RESORT)
            continue;
        tc_candidate candidate = list->items[i];
        memmove(&list->items[front + 1], &list->items[front], (i - front) * sizeof candidate);
        list->items[front++] = candidate;
    }
}

tc_status tc_engine_candidates(const tc_engine *engine, int32_t ordinal, const tc_conv *conv, tc_candidate_list *list)
{
    tc_status status = engine->ops->candidates(engine->state, ordinal, conv, list);
    if (status == TC_OK) {
        keep_eligible(conv, list);
        if (list->count == 0)
            status = tc_fail(TC_UNSUPPORTED, "engine '%s' has no %salgorithm for this convolution", engine->ops->name,
                             conv->deterministic ? "deterministic " : "");
    }
    if (status != TC_OK)
        tc_candidates_free(list);
    return status;
}

int tc_engine_can_find(const tc_engine *engine)
{
    return engine->ops->find && !engine->ops->last_resort;
}

tc_status tc_engine_find_candidate(const tc_engine *engine, int32_t ordinal, const tc_conv *conv, const char *name,
                                   uint32_t *flags)
{
    if (!tc_engine_can_find(engine))
        return tc_fail(TC_UNSUPPORTED, "engine '%s' can only list all of its algorithms", engine->ops->name);
    tc_status status = engine->ops->find(engine->state, ordinal, conv, name, flags);
    if (status == TC_OK && conv->deterministic && !(*flags & TC_CANDIDATE_DETERMINISTIC))
        status = tc_fail(TC_UNSUPPORTED, "the algorithm of engine '%s' is not deterministic", engine->ops->name);
    return status;
}

tc_status tc_find_engine(const tc_conv *conv, int32_t device_kind, int32_t ordinal, const tc_engine **engine,
                         tc_candidate_list *list)
{
    const tc_engine *of_device[TC_MAX_ENGINES];
    size_t count = tc_engines_of(device_kind, of_device);
    if (count == 0)
        return no_engine(device_kind);
    tc_status status = TC_UNSUPPORTED;
    for (size_t i = 0; i < count; i++) {
        status = tc_engine_candidates(of_device[i], ordinal, conv, list);
        *engine = of_device[i];
        if (status == TC_OK || status == TC_DEVICE_FAILURE)
            break;
    }
    return status;
}

tc_status tc_candidates(const tc_conv *conv, int32_t device_kind, int32_t ordinal, char *text, size_t *size)
{
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    if (!size)
        return tc_fail(TC_INVALID_ARGUMENT, "expected the size of the buffer, got NULL");
    tc_candidate_list list = {0};
    const tc_engine *engine;
    status = tc_find_engine(conv, device_kind, ordinal, &engine, &list);
    if (status != TC_OK)
        return status;
    size_t needed = 0, available = text ? *size : 0;
    for (size_t i = 0; i < list.count; i++) {
        size_t length = strlen(list.items[i].name);
        if (needed + length + 1 <= available) {
            memcpy(text + needed, list.items[i].name, length);
            text[needed + length] = i + 1 < list.count ? '\n' : '\0';
        }
        needed += length + 1;
    }
    tc_candidates_free(&list);
    *size = needed;
    if (text && needed > available)
        return tc_fail(TC_INVALID_ARGUMENT, "the candidates' names need %zu bytes, got %zu", needed, available);
    return TC_OK;
}

const tc_candidate *tc_candidate_named(const tc_candidate_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

void tc_candidates_join(const tc_candidate_list *list, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < list->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", list->items[i].name);
}
