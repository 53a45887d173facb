/* Deciding what runs for a descriptor: what is stored, what is measured, or the default. */
#include "settle.h"

#include <string.h>

#include "config.h"
#include "peers.h"
#include "question.h"
#include "run.h"
#include "store.h"

/* A choice that was made before and is as good as what would be made now. */
static int is_current(const tc_question *q, const tc_choice *current)
{
    if (!current || current->engine != q->engine ||
        (tc_choice_is_stale(current) && q->measured_here == TC_MEASURED_BY_PEER))
        return 0;
    switch (current->state) {
    case TC_CHOICE_MEASURED: return !tc_entry_has_failed(q->entry, q->engine, current->algorithm);
    case TC_CHOICE_COPIED: return q->is_stored && tc_choice_follows_guess(current, &q->record);
    case TC_CHOICE_STORED: return q->is_stored && strcmp(q->record.algorithm, current->algorithm) == 0;
    case TC_CHOICE_DEFAULT: return !q->is_stored && tc_config_mode() != TC_MODE_REPLAY;
    default: return 0;
    }
}

/* What was made before, if it is still right, else what the record says, if that works here. */
static tc_status use_known(tc_question *q, tc_choice *current, tc_choice **choice)
{
    if (is_current(q, current))
        *choice = current;
    return *choice || !q->is_stored ? TC_OK : tc_question_use_stored(q, choice);
}

/* Decides what is not known yet: it is copied, measured, or, where neither can be, left as it is. */
static tc_status decide(tc_question *q, int measures, int *ran, tc_choice **choice)
{
    tc_status status = tc_question_copy(q, choice);
    if (status == TC_OK && !*choice && measures && tc_question_is_worth_measuring(q))
        status = tc_question_measure(q, ran);
    return status;
}

/* What is known of the question where its engine runs. */
static tc_status find_known(tc_question *q)
{
    tc_status status = q->engine->ops->environment(q->engine->state, q->entry->device_ordinal, q->environment,
                                                   sizeof q->environment);
    if (status == TC_OK)
        q->is_stored = tc_question_find(q);
    return status;
}

static void look_up(tc_question *q)
{
    q->is_stored = tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here);
    if (q->is_stored)
        tc_question_check(q);
}

/*
 * The same where other processes may be deciding it too: one does, the others take its answer. One that has none
 * after a time does not measure meanwhile and tries again later.
 */
static tc_status decide_with_peers(tc_question *q, int measures, int *ran, tc_choice **choice)
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
        tc_postpone(q->entry);
    if (claim.state == TC_CLAIM_HELD && tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here) &&
        q->record.sequence != before)
        tc_peers_publish(&claim, &q->record);
    tc_peers_release(&claim);
    return status;
}

static tc_status settle_question(tc_question *q, tc_choice **choice)
{
    tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    tc_status status = TC_OK;
    int ran = 0, measures = tc_may_measure(q->entry, q->engine, q->ctx);
    if (measures && current && current->engine == q->engine && current->state == TC_CHOICE_MEASURED &&
        atomic_load_explicit(&q->entry->unverified, memory_order_relaxed))
        status = tc_question_verify(q, current, &ran);
    if (q->is_stored)
        tc_question_check(q);
    tc_question_leave_out_failures(q);
    if (!ran && status == TC_OK && !(measures && tc_question_is_worth_measuring(q)))
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
    return tc_question_use_default(q, choice);
}

/*
 * What a name decides: the one that is stored, or the one to copy. Listing all algorithms takes longer than the
 * rest, so an engine that can tell is asked about that one alone. *choice stays NULL where more has to be known.
 */
static tc_status settle_by_name(tc_question *q, tc_choice **choice)
{
    const tc_engine *engines[TC_MAX_ENGINES];
    if (atomic_load_explicit(&q->entry->choice, memory_order_relaxed) ||
        tc_engines_of(q->entry->device_kind, engines) == 0 || !tc_engine_can_find(engines[0]))
        return TC_OK;
    q->engine = engines[0];
    q->is_by_name = 1;
    tc_status status = find_known(q);
    if (status == TC_OK && q->is_stored) {
        if (!tc_question_is_worth_measuring(q) && !tc_question_ineligibility(q, q->record.algorithm))
            status = tc_question_use_stored(q, choice);
    } else if (status == TC_OK && !tc_peers_exist()) {
        status = tc_question_copy(q, choice);
    }
    tc_candidates_free(&q->candidates);
    q->is_by_name = 0;
    return status;
}

/* The same, knowing all algorithms. */
static tc_status settle_by_list(tc_question *q, tc_choice **choice)
{
    tc_entry *entry = q->entry;
    tc_status status = tc_find_engine(&entry->conv, entry->device_kind, entry->device_ordinal, &q->engine,
                                      &q->candidates);
    if (status == TC_OK)
        status = find_known(q);
    if (status == TC_OK)
        status = settle_question(q, choice);
    tc_candidates_free(&q->candidates);
    return status;
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
    tc_question q = {.entry = entry, .ctx = ctx, .operands = operands};
    atomic_store_explicit(&entry->store_generation, tc_store_generation(), memory_order_relaxed);
    tc_status status = settle_by_name(&q, choice);
    if (status == TC_OK && !*choice)
        status = settle_by_list(&q, choice);
    tc_entry_release(entry);
    return status;
}
