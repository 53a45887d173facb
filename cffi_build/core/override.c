/* Running the algorithm that somebody asked for by name, past what is stored. */
#include <stdio.h>
#include <string.h>

#include "run.h"

static tc_status cannot_override(tc_status status, const tc_entry *entry, const char *algorithm)
{
    char names[TC_MESSAGE_SIZE / 2] = "none", reason[TC_MESSAGE_SIZE / 4];
    snprintf(reason, sizeof reason, "%s", tc_last_error());
    tc_candidate_list list = {0};
    const tc_engine *engine;
    if (tc_find_engine(&entry->conv, entry->device_kind, entry->device_ordinal, &engine, &list) == TC_OK)
        tc_candidates_join(&list, names, sizeof names);
    tc_candidates_free(&list);
    return tc_fail(status, "the override '%s' cannot run %s (%s); what can: %s", algorithm, entry->key, reason, names);
}

static tc_status prepare_override(tc_entry *entry, const char *algorithm, tc_choice **choice)
{
    const tc_engine *engines[TC_MAX_ENGINES];
    size_t count = tc_engines_of(entry->device_kind, engines);
    tc_status status = tc_fail(TC_NOT_FOUND, "no engine has an algorithm of that name for it");
    for (size_t i = 0; i < count && !*choice; i++) {
        tc_candidate_list list = {0};
        if (tc_engine_candidates(engines[i], entry->device_ordinal, &entry->conv, &list) == TC_OK &&
            tc_candidate_named(&list, algorithm))
            status = tc_entry_prepare(entry, engines[i], algorithm, choice);
        tc_candidates_free(&list);
    }
    return *choice ? TC_OK : status;
}

tc_status tc_run_override(tc_entry *entry, const char *algorithm, const tc_context *ctx,
                          const tc_operands *operands)
{
    tc_status status = TC_OK;
    tc_choice *choice = atomic_load_explicit(&entry->override, memory_order_acquire);
    if (!choice || strcmp(choice->algorithm, algorithm) != 0) {
        choice = NULL;
        tc_entry_acquire(entry);
        status = prepare_override(entry, algorithm, &choice);
        if (status == TC_OK) {
            choice->state = TC_CHOICE_OVERRIDE;
            atomic_store_explicit(&entry->override, choice, memory_order_release);
        }
        tc_entry_release(entry);
    }
    if (status == TC_OK)
        status = tc_run_choice(choice, ctx, operands);
    if (status == TC_OK || status == TC_DEVICE_FAILURE)
        return status;
    return cannot_override(status, entry, algorithm);
}

