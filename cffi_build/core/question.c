/* What is stored for a question, and the choices that need no measuring: the stored one and the default. */
#include "question.h"

#include <string.h>

#include "config.h"
#include "run.h"
#include "store.h"

void tc_publish(tc_entry *entry, tc_choice *choice, tc_choice_state state)
{
    choice->state = state;
    atomic_store_explicit(&entry->choice, choice, memory_order_release);
}

void tc_question_forget(tc_question *q)
{
    tc_store_reject(q->entry->key, q->environment, q->record.algorithm);
    q->is_stored = 0;
}

static void reject_stored(tc_question *q, const char *reason)
{
    tc_warn("the stored algorithm '%s' is left out for %s: %s", q->record.algorithm, q->entry->key, reason);
    tc_question_forget(q);
}

const tc_candidate *tc_question_candidate(tc_question *q, const char *algorithm)
{
    const tc_candidate *candidate = tc_candidate_named(&q->candidates, algorithm);
    uint32_t flags;
    if (candidate || !q->is_by_name || !*algorithm ||
        tc_engine_find_candidate(q->engine, q->entry->device_ordinal, &q->entry->conv, algorithm, &flags) != TC_OK ||
        tc_candidate_add(&q->candidates, algorithm, flags) != TC_OK)
        return candidate;
    return &q->candidates.items[q->candidates.count - 1];
}

const char *tc_question_ineligibility(tc_question *q, const char *algorithm)
{
    const tc_candidate *candidate = tc_question_candidate(q, algorithm);
    if (!candidate)
        return "it is not one of the algorithms for this convolution here";
    if ((candidate->flags & TC_CANDIDATE_LAST_RESORT) && (q->is_by_name || candidate != q->candidates.items))
        return "it is a last resort, and there are others";
    return tc_entry_has_failed(q->entry, q->engine, algorithm) ? "it failed before" : NULL;
}

void tc_question_check(tc_question *q)
{
    const char *reason = tc_question_ineligibility(q, q->record.algorithm);
    if (reason)
        reject_stored(q, reason);
}

void tc_question_leave_out_failures(tc_question *q)
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
static int find_other_filter_layout(tc_question *q)
{
    tc_conv other = q->entry->conv;
    char key[TC_KEY_SIZE];
    if (q->entry->device_kind != TC_CUDA)
        return 0;
    for (other.w_layout = TC_HWIO; other.w_layout <= TC_OHWI; other.w_layout++)
        if (other.w_layout != q->entry->conv.w_layout && tc_key_format(&other, key, sizeof key) == TC_OK &&
            tc_store_find(key, q->environment, &q->record, &q->measured_here) &&
            !tc_question_ineligibility(q, q->record.algorithm))
            return 1;
    return 0;
}

int tc_question_find(tc_question *q)
{
    return tc_store_find(q->entry->key, q->environment, &q->record, &q->measured_here) || find_other_filter_layout(q);
}

static void publish_copied(tc_question *q, tc_choice *choice, int32_t copies_before_measuring)
{
    atomic_store_explicit(&q->entry->runs_left, (uint64_t)copies_before_measuring - 1, memory_order_relaxed);
    tc_entry_count(q->entry, TC_COUNT_COPIED);
    tc_publish(q->entry, choice, TC_CHOICE_COPIED);
}

void tc_question_publish(tc_question *q, tc_choice *choice, const tc_config *config)
{
    if (tc_record_is_guess(&q->record)) {
        publish_copied(q, choice, config->copies_before_measuring);
        return;
    }
    tc_entry_count(q->entry, TC_COUNT_HITS);
    tc_publish(q->entry, choice, TC_CHOICE_STORED);
}

tc_status tc_question_use_stored(tc_question *q, tc_choice **choice)
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
    tc_question_publish(q, *choice, &config);
    return TC_OK;
}

tc_status tc_question_use_default(tc_question *q, tc_choice **choice)
{
    tc_status status;
    if (q->candidates.count > 0)
        status = tc_entry_prepare(q->entry, q->engine, q->candidates.items[0].name, choice);
    else
        status = tc_fail(TC_UNSUPPORTED, "each algorithm of engine '%s' failed before", q->engine->ops->name);
    if (status != TC_OK)
        return tc_run_any(q->entry, status, q->ctx, q->operands);
    tc_entry_count(q->entry, q->engine->ops->last_resort ? TC_COUNT_FALLBACKS : TC_COUNT_DEFAULTS);
    tc_publish(q->entry, *choice, q->engine->ops->last_resort ? TC_CHOICE_FALLBACK : TC_CHOICE_DEFAULT);
    return TC_OK;
}
