/* Searches for a question, and looking again at what an earlier one found. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "question.h"
#include "run.h"
#include "store.h"
#include "trace.h"
#include "trials.h"
#include "tuner.h"

/* One search at a time on the devices of a kind: two would time each other. */
static pthread_mutex_t measuring[TC_CUDA + 1] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

void tc_searches_after_fork(void)
{
    for (size_t i = 0; i < sizeof measuring / sizeof *measuring; i++)
        pthread_mutex_init(&measuring[i], NULL);
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

int tc_question_is_worth_measuring(const tc_question *q)
{
    const tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_config config;
    tc_get_config(&config);
    if (q->engine->ops->last_resort)
        return 0;
    if (!q->is_stored)
        return 1;
    if (tc_record_is_guess(&q->record) && config.mode == TC_MODE_SEARCH)
        return config.batch_policy == TC_POLICY_EXACT ||
               (current && current->state == TC_CHOICE_COPIED); /* it has run often enough */
    if (q->measured_here) /* by this entry, for another device of the model, or by a peer */
        return current && tc_choice_is_stale(current) && q->measured_here != TC_MEASURED_BY_PEER;
    return config.mode == TC_MODE_REFRESH ||
           (config.resume && q->record.candidates_tried < q->record.candidates_total);
}

void tc_postpone(tc_entry *entry)
{
    atomic_store_explicit(&entry->runs_left, (UINT64_C(1) << entry->postponements) - 1, memory_order_relaxed);
    if (entry->postponements < 20)
        entry->postponements++;
}

/* Keeps what a search found, and gives the entry its plan. The output holds that plan's numbers already. */
static tc_status keep_result(tc_question *q, const tc_choice *ready, tc_result *result)
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
        tc_postpone(entry);
        tc_entry_count(entry, TC_COUNT_DEFAULTS);
        tc_publish(entry, choice, TC_CHOICE_DEFAULT);
        return TC_OK;
    }
    strcpy(result->record.key, entry->key);
    strcpy(result->record.environment, q->environment);
    strcpy(choice->runner_up, result->record.runner_up);
    choice->refreshes = tc_config_refreshes();
    atomic_store_explicit(&entry->unverified, result->unverified, memory_order_relaxed);
    tc_entry_count(entry, TC_COUNT_MEASURED);
    tc_publish(entry, choice, TC_CHOICE_MEASURED);
    if (tc_store_measured(&result->record) != TC_OK)
        tc_warn("what was measured for %s is not kept: %s", entry->key, tc_last_error());
    if (tc_trials_keep(entry->key, q->environment, result->trials, result->trial_count) != TC_OK)
        tc_warn("what became of the candidates for %s is not kept: %s", entry->key, tc_last_error());
    return TC_OK;
}

static tc_search search_of(const tc_question *q, const tc_choice *ready)
{
    return (tc_search){.conv = &q->entry->conv,
                       .ctx = q->ctx,
                       .operands = q->operands,
                       .engine = q->engine,
                       .candidates = &q->candidates,
                       .ready = ready && ready->engine == q->engine ? ready : NULL};
}

tc_status tc_question_measure(tc_question *q, int *ran)
{
    tc_choice *ready = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_search search = search_of(q, ready);
    search.known = q->is_stored ? &q->record : NULL;
    search.resume = search.known && tc_config_mode() != TC_MODE_REFRESH && !tc_record_is_guess(&q->record);
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

tc_status tc_question_verify(tc_question *q, const tc_choice *winner, int *ran)
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
        tc_postpone(q->entry);
    } else {
        tc_warn("algorithm '%s' is no longer used for %s: %s", winner->algorithm, q->entry->key, tc_last_error());
        tc_entry_add_failure(q->entry, q->engine, winner->algorithm);
        tc_question_forget(q);
    }
    return TC_OK;
}
