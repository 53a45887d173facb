/* Deciding what runs for a descriptor: what is stored, what is measured, or the default. */
#include "settle.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "nearest.h"
#include "peers.h"
#include "run.h"
#include "store.h"
#include "trace.h"
#include "trials.h"
#include "tuner.h"

/* ---- whether a choice still stands ------------------------------------------------------------------- */

static int may_measure(tc_entry *entry, const tc_engine *engine, const tc_context *ctx)
{
    int32_t mode = tc_config_mode();
    if ((mode != TC_MODE_SEARCH && mode != TC_MODE_REFRESH) || ctx->forbid_measuring ||
        tc_stats_tuning_seconds() >= tc_config_process_budget() || !engine->ops->can_measure(engine->state, ctx))
        return 0;
    uint64_t runs_left = atomic_load_explicit(&entry->runs_left, memory_order_relaxed);
    if (runs_left > 0)
        atomic_store_explicit(&entry->runs_left, runs_left - 1, memory_order_relaxed);
    return runs_left == 0;
}

/* Chosen before mode refresh was turned on. */
static int is_stale(const tc_choice *choice)
{
    return tc_config_mode() == TC_MODE_REFRESH && choice->refreshes != tc_config_refreshes();
}

/* Taken over from another size or from a model: it runs at once, and is measured when it has come back often. */
static int is_guess(const tc_record *record)
{
    return record->provenance == TC_COPIED || record->provenance == TC_PREDICTED;
}

/* Whether a copied choice is what the store has for it, also where other entries have come since. */
static int is_still_stored(tc_entry *entry, const tc_choice *choice)
{
    uint64_t generation = tc_store_generation();
    if (atomic_load_explicit(&entry->store_generation, memory_order_relaxed) == generation)
        return 1;
    char environment[TC_ENVIRONMENT_SIZE];
    tc_record record;
    int measured_here;
    const tc_engine *engine = choice->engine;
    if (engine->ops->environment(engine->state, entry->device_ordinal, environment, sizeof environment) != TC_OK ||
        !tc_store_find(entry->key, environment, &record, &measured_here) || !is_guess(&record) ||
        strcmp(record.algorithm, choice->algorithm) != 0)
        return 0;
    atomic_store_explicit(&entry->store_generation, generation, memory_order_relaxed);
    return 1;
}

int tc_choice_stands(tc_entry *entry, const tc_choice *choice, const tc_context *ctx)
{
    switch (choice->state) {
    case TC_CHOICE_MEASURED:
        return (!is_stale(choice) && !atomic_load_explicit(&entry->unverified, memory_order_relaxed)) ||
               !may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_STORED:
        return (!is_stale(choice) && !choice->unfinished) || !may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_COPIED:
        if (is_stale(choice) || tc_config_batch_policy() == TC_POLICY_EXACT)
            atomic_store_explicit(&entry->runs_left, 0, memory_order_relaxed);
        return is_still_stored(entry, choice) && !may_measure(entry, choice->engine, ctx);
    case TC_CHOICE_DEFAULT:
        return tc_config_mode() != TC_MODE_REPLAY &&
               atomic_load_explicit(&entry->store_generation, memory_order_relaxed) == tc_store_generation() &&
               !may_measure(entry, choice->engine, ctx);
    default:
        return !choice->engine->ops->last_resort || choice->engines_generation == tc_engines_generation();
    }
}

/* ---- settling: the calling thread has the entry ------------------------------------------------------- */

/* What settling one entry works on. */
typedef struct question {
    tc_entry *entry;
    const tc_context *ctx;
    const tc_operands *operands;
    const tc_engine *engine;
    tc_candidate_list candidates;
    char environment[TC_ENVIRONMENT_SIZE];
    tc_record record; /* what is stored */
    int is_stored, measured_here;
} question;

/* One search at a time on the devices of a kind: two would time each other. */
static pthread_mutex_t measuring[TC_CUDA + 1] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

void tc_settle_after_fork(void)
{
    for (size_t i = 0; i < sizeof measuring / sizeof *measuring; i++)
        pthread_mutex_init(&measuring[i], NULL);
}

static void publish(tc_entry *entry, tc_choice *choice, tc_choice_state state)
{
    choice->state = state;
    atomic_store_explicit(&entry->choice, choice, memory_order_release);
}

static void forget_stored(question *q)
{
    tc_store_reject(q->entry->key, q->environment, q->record.algorithm);
    q->is_stored = 0;
}

static void reject_stored(question *q, const char *reason)
{
    tc_warn("the stored algorithm '%s' is left out for %s: %s", q->record.algorithm, q->entry->key, reason);
    forget_stored(q);
}

/* Why an algorithm out of a file or of a relative is none that would be measured here; NULL when it is one. */
static const char *ineligibility(const question *q, const char *algorithm)
{
    const tc_candidate *candidate = tc_candidate_named(&q->candidates, algorithm);
    if (!candidate)
        return "it is not one of the algorithms for this convolution here";
    if ((candidate->flags & TC_CANDIDATE_LAST_RESORT) && candidate != q->candidates.items)
        return "it is a last resort, and there are others";
    return tc_entry_has_failed(q->entry, q->engine, algorithm) ? "it failed before" : NULL;
}

static void check_eligible(question *q)
{
    const char *reason = ineligibility(q, q->record.algorithm);
    if (reason)
        reject_stored(q, reason);
}

/* Candidates that failed in this process are not chosen again. */
static void leave_out_failures(question *q)
{
    size_t kept = 0;
    for (size_t i = 0; i < q->candidates.count; i++)
        if (!tc_entry_has_failed(q->entry, q->engine, q->candidates.items[i].name))
            q->candidates.items[kept++] = q->candidates.items[i];
    q->candidates.count = kept;
}

/*
 * On GPUs a plan converts the filter to what its kernels take, at a cost that most algorithms share, so what is
 * known of one order serves the others: backends hand the same filter over in different ones.
 */
static int find_other_filter_layout(question *q)
{
    tc_conv other = q->entry->conv;
    char key[TC_KEY_SIZE];
    if (q->entry->device_kind != TC_CUDA)
        return 0;
    for (other.w_layout = TC_HWIO; other.w_layout <= TC_OHWI; other.w_layout++)
        if (other.w_layout != q->entry->conv.w_layout && tc_key_format(&other, key, sizeof key) == TC_OK &&
            tc_store_find(key, q->environment, &q->record, &q->measured_here) &&
            !ineligibility(q, q->record.algorithm))
            return 1;
    return 0;
}

static int find_stored(question *q)
{
    return tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here) || find_other_filter_layout(q);
}

static void publish_copied(question *q, tc_choice *choice, int32_t copies_before_measuring)
{
    atomic_store_explicit(&q->entry->runs_left, (uint64_t)copies_before_measuring - 1, memory_order_relaxed);
    tc_entry_count(q->entry, TC_COUNT_COPIED);
    publish(q->entry, choice, TC_CHOICE_COPIED);
}

static void publish_by_provenance(question *q, tc_choice *choice, const tc_config *config)
{
    if (is_guess(&q->record)) {
        publish_copied(q, choice, config->copies_before_measuring);
        return;
    }
    tc_entry_count(q->entry, TC_COUNT_HITS);
    publish(q->entry, choice, TC_CHOICE_STORED);
}

/* *choice stays NULL when the record turns out to be of no use. */
static tc_status use_stored(question *q, tc_choice **choice)
{
    tc_config config;
    tc_get_config(&config);
    tc_status status = tc_entry_prepare(q->entry, q->engine, q->record.algorithm, choice);
    if (status == TC_DEVICE_FAILURE)
        return status;
    if (status != TC_OK) {
        reject_stored(q, tc_last_error());
        return TC_OK;
    }
    strcpy((*choice)->runner_up, q->record.runner_up);
    (*choice)->refreshes = q->measured_here ? tc_config_refreshes() : 0;
    (*choice)->unfinished = config.resume && !q->measured_here &&
                            q->record.candidates_tried < q->record.candidates_total;
    publish_by_provenance(q, *choice, &config);
    return TC_OK;
}

/* The first choice of the engine. With *choice NULL afterwards the convolution has been run by something else. */
static tc_status use_default(question *q, tc_choice **choice)
{
    tc_status status;
    if (q->candidates.count > 0)
        status = tc_entry_prepare(q->entry, q->engine, q->candidates.items[0].name, choice);
    else
        status = tc_fail(TC_UNSUPPORTED, "each algorithm of engine '%s' failed before", q->engine->ops->name);
    if (status != TC_OK)
        return tc_run_any(q->entry, status, q->ctx, q->operands);
    tc_entry_count(q->entry, q->engine->ops->last_resort ? TC_COUNT_FALLBACKS : TC_COUNT_DEFAULTS);
    publish(q->entry, *choice, q->engine->ops->last_resort ? TC_CHOICE_FALLBACK : TC_CHOICE_DEFAULT);
    return TC_OK;
}

/* ---- copying ------------------------------------------------------------------------------------------ */

/* Only where nothing is known of this very convolution here, neither stored nor found out before. */
static int may_copy(const question *q)
{
    const tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    return !q->is_stored && !q->engine->ops->last_resort &&
           (!current || current->engine != q->engine || current->state == TC_CHOICE_DEFAULT);
}

/* What was found where only soft parts of the environment differ, else for the nearest batch or image size. */
static int find_source(const question *q, const tc_config *config, tc_record *source)
{
    if (config->mode != TC_MODE_REFRESH && tc_store_find_twin(q->entry->key, q->environment, source) &&
        !ineligibility(q, source->algorithm))
        return 1;
    return config->mode == TC_MODE_SEARCH && config->batch_policy == TC_POLICY_NEAREST &&
           tc_nearest(&q->entry->conv, q->environment, config->maximum_sizes, source) &&
           !ineligibility(q, source->algorithm);
}

/* What somebody chose for this very convolution is not for measuring to change. */
static int is_chosen(const tc_record *source, const question *q)
{
    return source->provenance == TC_OVERRIDE && strcmp(source->key, q->entry->key) == 0;
}

static tc_record record_of_copy(const question *q, const tc_choice *choice, const tc_record *source)
{
    const tc_candidate *candidate = tc_candidate_named(&q->candidates, source->algorithm);
    tc_record record = {.workspace_bytes = (int64_t)choice->workspace,
                        .created = (int64_t)time(NULL),
                        .provenance = is_chosen(source, q) ? TC_OVERRIDE : TC_COPIED,
                        .math_type = q->entry->conv.allow_tf32,
                        .deterministic = (candidate->flags & TC_CANDIDATE_DETERMINISTIC) != 0};
    strcpy(record.key, q->entry->key);
    strcpy(record.environment, q->environment);
    strcpy(record.algorithm, source->algorithm);
    if (!ineligibility(q, source->runner_up))
        strcpy(record.runner_up, source->runner_up);
    return record;
}

/* Takes the algorithm of what is nearest. *choice stays NULL when there is none of use. */
static tc_status copy_nearest(question *q, tc_choice **choice)
{
    tc_config config;
    tc_record source;
    tc_get_config(&config);
    if (!may_copy(q) || !find_source(q, &config, &source))
        return TC_OK;
    tc_status status = tc_entry_prepare(q->entry, q->engine, source.algorithm, choice);
    if (status != TC_OK) {
        *choice = NULL;
        return status == TC_DEVICE_FAILURE ? status : TC_OK;
    }
    if ((int64_t)(*choice)->workspace > config.workspace_limit_bytes) {
        tc_entry_discard(q->entry, *choice);
        *choice = NULL;
        return TC_OK;
    }
    q->record = record_of_copy(q, *choice, &source);
    strcpy((*choice)->runner_up, q->record.runner_up);
    (*choice)->refreshes = tc_config_refreshes();
    publish_by_provenance(q, *choice, &config);
    if (tc_store_copied(&q->record) != TC_OK)
        tc_warn("what was copied for %s is not kept: %s", q->entry->key, tc_last_error());
    return TC_OK;
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

static int is_worth_measuring(const question *q)
{
    const tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_config config;
    tc_get_config(&config);
    if (q->engine->ops->last_resort)
        return 0;
    if (!q->is_stored)
        return 1;
    if (is_guess(&q->record) && config.mode == TC_MODE_SEARCH)
        return config.batch_policy == TC_POLICY_EXACT ||
               (current && current->state == TC_CHOICE_COPIED); /* it has run often enough */
    if (q->measured_here) /* by this entry, for another device of the model, or by a peer */
        return current && is_stale(current) && q->measured_here != TC_MEASURED_BY_PEER;
    return config.mode == TC_MODE_REFRESH ||
           (config.resume && q->record.candidates_tried < q->record.candidates_total);
}

/* These data were no good: tries again after 0, 1, 3, 7... further calls. */
static void postpone(tc_entry *entry)
{
    atomic_store_explicit(&entry->runs_left, (UINT64_C(1) << entry->postponements) - 1, memory_order_relaxed);
    if (entry->postponements < 20)
        entry->postponements++;
}

/* Keeps what a search found, and gives the entry its plan. The output holds that plan's numbers already. */
static tc_status keep_result(question *q, const tc_choice *ready, tc_result *result)
{
    tc_entry *entry = q->entry;
    tc_choice *choice = NULL;
    tc_status status;
    if (ready && result->plan == ready->plan)
        status = tc_entry_share(entry, ready, &choice);
    else
        status = tc_entry_adopt(entry, q->engine, result->record.algorithm, result->plan, &choice);
    if (status != TC_OK)
        return status;
    if (!result->decided) {
        postpone(entry);
        tc_entry_count(entry, TC_COUNT_DEFAULTS);
        publish(entry, choice, TC_CHOICE_DEFAULT);
        return TC_OK;
    }
    strcpy(result->record.key, entry->key);
    strcpy(result->record.environment, q->environment);
    strcpy(choice->runner_up, result->record.runner_up);
    choice->refreshes = tc_config_refreshes();
    atomic_store_explicit(&entry->unverified, result->unverified, memory_order_relaxed);
    tc_entry_count(entry, TC_COUNT_MEASURED);
    publish(entry, choice, TC_CHOICE_MEASURED);
    if (tc_store_measured(&result->record) != TC_OK)
        tc_warn("what was measured for %s is not kept: %s", entry->key, tc_last_error());
    if (tc_trials_keep(entry->key, q->environment, result->trials, result->trial_count) != TC_OK)
        tc_warn("what became of the candidates for %s is not kept: %s", entry->key, tc_last_error());
    return TC_OK;
}

static tc_search search_of(const question *q, const tc_choice *ready)
{
    return (tc_search){.conv = &q->entry->conv,
                       .ctx = q->ctx,
                       .operands = q->operands,
                       .engine = q->engine,
                       .candidates = &q->candidates,
                       .ready = ready && ready->engine == q->engine ? ready : NULL};
}

/* *ran tells whether the convolution has been run, be it with an error that is to be returned. */
static tc_status measure(question *q, int *ran)
{
    tc_choice *ready = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_search search = search_of(q, ready);
    search.known = q->is_stored ? &q->record : NULL;
    search.resume = search.known && tc_config_mode() != TC_MODE_REFRESH && !is_guess(&q->record);
    tc_result result;
    tc_status status = TC_OK;
    pthread_mutex_lock(&measuring[q->entry->device_kind]);
    *ran = q->candidates.count > 0 && tc_stats_tuning_seconds() < tc_config_process_budget();
    if (*ran) {
        tc_trace_push("tuning %s", q->entry->key);
        status = tc_tune(&search, &result);
        tc_trace_pop();
    }
    pthread_mutex_unlock(&measuring[q->entry->device_kind]);
    if (!*ran)
        return TC_OK;
    if (status != TC_OK)
        return tc_run_any(q->entry, status, q->ctx, q->operands);
    status = keep_result(q, ready, &result);
    free(result.trials);
    return status;
}

/* ---- verifying ----------------------------------------------------------------------------------------- */

/*
 * A winner that was checked on zeros only is checked again, now that the data may tell more. *ran tells
 * whether the convolution has been run; a winner that turns out wrong is kept out from now on.
 */
static tc_status verify(question *q, const tc_choice *winner, int *ran)
{
    tc_search search = search_of(q, winner);
    int verified;
    pthread_mutex_lock(&measuring[q->entry->device_kind]);
    tc_status status = tc_verify(&search, winner, &verified);
    pthread_mutex_unlock(&measuring[q->entry->device_kind]);
    *ran = status == TC_OK;
    if (status == TC_DEVICE_FAILURE)
        return status;
    if (status == TC_OK && verified) {
        atomic_store_explicit(&q->entry->unverified, 0, memory_order_relaxed);
    } else if (status == TC_OK || status == TC_OUT_OF_MEMORY) {
        postpone(q->entry);
    } else {
        tc_warn("algorithm '%s' is no longer used for %s: %s", winner->algorithm, q->entry->key, tc_last_error());
        tc_entry_add_failure(q->entry, q->engine, winner->algorithm);
        forget_stored(q);
    }
    return TC_OK;
}

/* ---- the order in which it is settled ------------------------------------------------------------------ */

/* A choice that was made before and is as good as what would be made now. */
static int is_current(const question *q, const tc_choice *current)
{
    if (!current || current->engine != q->engine || (is_stale(current) && q->measured_here == TC_MEASURED_BY_PEER))
        return 0;
    switch (current->state) {
    case TC_CHOICE_MEASURED: return !tc_entry_has_failed(q->entry, q->engine, current->algorithm);
    case TC_CHOICE_COPIED:
        return q->is_stored && is_guess(&q->record) &&
               strcmp(q->record.algorithm, current->algorithm) == 0;
    case TC_CHOICE_STORED: return q->is_stored && strcmp(q->record.algorithm, current->algorithm) == 0;
    case TC_CHOICE_DEFAULT: return !q->is_stored && tc_config_mode() != TC_MODE_REPLAY;
    default: return 0;
    }
}

/* What was made before, if it is still right, else what the record says, if that works here. */
static tc_status use_known(question *q, tc_choice *current, tc_choice **choice)
{
    if (is_current(q, current))
        *choice = current;
    return *choice || !q->is_stored ? TC_OK : use_stored(q, choice);
}

/* Decides what is not known yet: it is copied, measured, or, where neither can be, left as it is. */
static tc_status decide(question *q, int measures, int *ran, tc_choice **choice)
{
    tc_status status = copy_nearest(q, choice);
    if (status == TC_OK && !*choice && measures && is_worth_measuring(q))
        status = measure(q, ran);
    return status;
}

static void look_up(question *q)
{
    q->is_stored = tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here);
    if (q->is_stored)
        check_eligible(q);
}

/*
 * The same where other processes may be deciding it too: one does, the others take its answer. One that has none
 * after a time does not measure meanwhile and tries again later.
 */
static tc_status decide_with_peers(question *q, int measures, int *ran, tc_choice **choice)
{
    tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_config config;
    tc_claim claim;
    tc_get_config(&config);
    int waits = measures && q->entry->postponements == 0;
    uint64_t known = q->is_stored ? q->record.sequence : 0;
    tc_peers_claim(q->entry->key, q->environment, q->entry->device_kind, known,
                   waits ? 4 * config.key_budget_seconds + 1 : 0, &claim);
    if (claim.state != TC_CLAIM_NEEDLESS)
        look_up(q);
    uint64_t before = q->is_stored ? q->record.sequence : 0;
    tc_status status = TC_OK;
    if (q->is_stored && before != known)
        status = use_known(q, current, choice);
    if (status == TC_OK && !*choice && claim.state != TC_CLAIM_REFUSED)
        status = decide(q, measures, ran, choice);
    else if (status == TC_OK && !*choice && measures)
        postpone(q->entry);
    if (claim.state == TC_CLAIM_HELD && tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here) &&
        q->record.sequence != before)
        tc_peers_publish(&claim, &q->record);
    tc_peers_release(&claim);
    return status;
}

static tc_status settle_question(question *q, tc_choice **choice)
{
    tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_status status = TC_OK;
    int ran = 0, measures = may_measure(q->entry, q->engine, q->ctx);
    if (measures && current && current->engine == q->engine && current->state == TC_CHOICE_MEASURED &&
        atomic_load_explicit(&q->entry->unverified, memory_order_relaxed))
        status = verify(q, current, &ran);
    if (q->is_stored)
        check_eligible(q);
    leave_out_failures(q);
    if (!ran && status == TC_OK && !(measures && is_worth_measuring(q)))
        status = use_known(q, current, choice);
    if (!ran && status == TC_OK && !*choice && !q->engine->ops->last_resort)
        status = decide_with_peers(q, measures, &ran, choice);
    if (!ran && status == TC_OK && !*choice) /* there was no time left to measure */
        status = use_known(q, current, choice);
    if (ran || status != TC_OK || *choice)
        return status;
    if (tc_config_mode() == TC_MODE_REPLAY && !q->engine->ops->last_resort)
        return tc_fail(TC_NOT_FOUND, "nothing is stored for %s on '%s', and mode replay measures nothing: load a file "
                       "that has it, or set mode to search", q->entry->key, q->environment);
    return use_default(q, choice);
}

tc_status tc_settle(tc_entry *entry, const tc_context *ctx, const tc_operands *operands, tc_choice **choice)
{
    tc_entry_acquire(entry);
    *choice = atomic_load_explicit(&entry->choice, memory_order_acquire);
    if (*choice && tc_choice_stands(entry, *choice, ctx)) { /* another thread settled it meanwhile */
        tc_entry_release(entry);
        return TC_OK;
    }
    *choice = NULL;
    question q = {.entry = entry, .ctx = ctx, .operands = operands};
    atomic_store_explicit(&entry->store_generation, tc_store_generation(), memory_order_relaxed);
    tc_status status = tc_find_engine(&entry->conv, entry->device_kind, entry->device_ordinal, &q.engine,
                                      &q.candidates);
    if (status == TC_OK)
        status = q.engine->ops->environment(q.engine->state, entry->device_ordinal, q.environment,
                                            sizeof q.environment);
    if (status == TC_OK) {
        q.is_stored = find_stored(&q);
        status = settle_question(&q, choice);
    }
    tc_candidates_free(&q.candidates);
    tc_entry_release(entry);
    return status;
}

