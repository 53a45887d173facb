/* Measuring the candidates of one descriptor on the operands of a call. */
#ifndef TC_TUNER_H
#define TC_TUNER_H

#include "registry.h"

typedef struct tc_search {
    const tc_conv *conv;
    const tc_context *ctx;
    const tc_operands *operands;
    const tc_engine *engine;
    const tc_candidate_list *candidates; /* the default first, last resorts at the end */
    const tc_choice *ready;              /* already prepared, used where its algorithm takes part; or NULL */
    const tc_record *known;              /* what is stored: its algorithm joins the race; or NULL */
    int resume;                          /* leave out the candidates that known's search had gone through */
} tc_search;

typedef struct tc_result {
    tc_record record; /* all but key and environment */
    void *plan;       /* of record.algorithm; ready's own, or the caller's to release */
    int decided;      /* 0: this output cannot be used to check candidates; the default ran, unmeasured */
    int unverified;   /* the output was all zeros, which is a weak check of the winner */
    tc_trial *trials; /* what became of each candidate, the caller's to free; NULL unless it was to be kept */
    size_t trial_count;
} tc_result;

/*
 * Runs the race. On TC_OK the output holds the numbers of the algorithm in the result. The caller sees to
 * it that nothing else is measured on the device meanwhile.
 */
tc_status tc_tune(const tc_search *search, tc_result *result);

/*
 * Checks an unverified winner, which must be the search's ready choice, on new operands. On TC_OK the output
 * is right, and *verified tells whether these operands could show it; else the winner is not to be trusted.
 */
tc_status tc_verify(const tc_search *search, const tc_choice *winner, int *verified);

#endif
