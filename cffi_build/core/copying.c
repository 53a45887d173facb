/* Taking over what was found for another batch or image size, or where only soft parts of the environment differ. */
#include <string.h>
#include <time.h>

#include "config.h"
#include "nearest.h"
#include "question.h"
#include "store.h"

/* Only where nothing is known of this very convolution here, neither stored nor found out before. */
static int may_copy(const tc_question *q)
{
    const tc_choice *current = atomic_load_explicit(&q->entry->choice, memory_order_relaxed);
    return !q->is_stored && !q->engine->ops->last_resort &&
           (!current || current->engine != q->engine || current->state == TC_CHOICE_DEFAULT);
}

/* What was found where only soft parts of the environment differ, else for the nearest batch or image size. */
static int find_source(tc_question *q, const tc_config *config, tc_record *source)
{
    if (config->mode != TC_MODE_REFRESH && tc_store_find_twin(q->entry->key, q->environment, source) &&
        !tc_question_ineligibility(q, source->algorithm))
        return 1;
    return config->mode == TC_MODE_SEARCH && config->batch_policy == TC_POLICY_NEAREST &&
           tc_nearest(&q->entry->conv, q->environment, config->maximum_sizes, source) &&
           !tc_question_ineligibility(q, source->algorithm);
}

/* What somebody chose for this very convolution is not for measuring to change. */
static int is_chosen(const tc_record *source, const tc_question *q)
{
    return source->provenance == TC_OVERRIDE && strcmp(source->key, q->entry->key) == 0;
}

static tc_record record_of_copy(tc_question *q, const tc_choice *choice, const tc_record *source)
{
    const tc_candidate *candidate = tc_question_candidate(q, source->algorithm);
    tc_record record = {.workspace_bytes = (int64_t)choice->workspace,
                        .created = (int64_t)time(NULL),
                        .provenance = is_chosen(source, q) ? TC_OVERRIDE : TC_COPIED,
                        .math_type = q->entry->conv.allow_tf32,
                        .deterministic = (candidate->flags & TC_CANDIDATE_DETERMINISTIC) != 0};
    strcpy(record.key, q->entry->key);
    strcpy(record.environment, q->environment);
    strcpy(record.algorithm, source->algorithm);
    strcpy(record.runner_up, source->runner_up); /* whether it is one here is asked when it is needed */
    return record;
}

tc_status tc_question_copy(tc_question *q, tc_choice **choice)
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
    tc_question_publish(q, *choice, &config);
    if (tc_store_copied(&q->record) != TC_OK)
        tc_warn("what was copied for %s is not kept: %s", q->entry->key, tc_last_error());
    return TC_OK;
}
