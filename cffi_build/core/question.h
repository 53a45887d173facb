/* What settling one entry works on, and its steps. The calling thread has the entry. */
#ifndef TC_QUESTION_H
#define TC_QUESTION_H

#include "engines.h"
#include "registry.h"

typedef struct tc_question {
    tc_entry *entry;
    const tc_context *ctx;
    const tc_operands *operands;
    const tc_engine *engine;
    tc_candidate_list candidates; /* all, or those whose names were asked for */
    int is_by_name;
    char environment[TC_ENVIRONMENT_SIZE];
    tc_record record; /* what is stored */
    int is_stored, measured_here;
} tc_question;

/* ---- standing.c --------------------------------------------------------------------------------------- */

/* Whether settings, budget and device allow measuring in this call, which counts as one of those to wait for. */
int tc_may_measure(tc_entry *entry, const tc_engine *engine, const tc_context *ctx);
/* Chosen before mode refresh was turned on. */
int tc_choice_is_stale(const tc_choice *choice);
/* Taken over from another size or from a model: it runs at once, and is measured when it has come back often. */
int tc_record_is_guess(const tc_record *record);
/* Whether record is a guess, and of the algorithm that was chosen. */
int tc_choice_follows_guess(const tc_choice *choice, const tc_record *record);

/* ---- question.c --------------------------------------------------------------------------------------- */

void tc_publish(tc_entry *entry, tc_choice *choice, tc_choice_state state);
/* Publishes what record says: as stored, or, of a guess, as copied. */
void tc_question_publish(tc_question *q, tc_choice *choice, const tc_config *config);
int tc_question_find(tc_question *q);
/* The candidate of that name, looked for in the engine where the question is by name; NULL when there is none. */
const tc_candidate *tc_question_candidate(tc_question *q, const char *algorithm);
/* Why an algorithm out of a file or of a relative is none that would be measured here; NULL when it is one. */
const char *tc_question_ineligibility(tc_question *q, const char *algorithm);
/* Rejects what is stored if its algorithm is not eligible. */
void tc_question_check(tc_question *q);
void tc_question_forget(tc_question *q);
/* Candidates that failed in this process are not chosen again. */
void tc_question_leave_out_failures(tc_question *q);
/* *choice stays NULL when the record turns out to be of no use. */
tc_status tc_question_use_stored(tc_question *q, tc_choice **choice);
/* The first choice of the engine. With *choice NULL afterwards the convolution has been run by something else. */
tc_status tc_question_use_default(tc_question *q, tc_choice **choice);

/* ---- copying.c ---------------------------------------------------------------------------------------- */

/* Takes the algorithm of what is nearest. *choice stays NULL when there is none of use. */
tc_status tc_question_copy(tc_question *q, tc_choice **choice);

/* ---- searching.c -------------------------------------------------------------------------------------- */

int tc_question_is_worth_measuring(const tc_question *q);
/* *ran tells whether the convolution has been run, be it with an error that is to be returned. */
tc_status tc_question_measure(tc_question *q, int *ran);
/*
 * A winner that was checked on zeros only is checked again, now that the data may tell more. *ran tells
 * whether the convolution has been run; a winner that turns out wrong is kept out from now on.
 */
tc_status tc_question_verify(tc_question *q, const tc_choice *winner, int *ran);
/* These data were no good: measuring is tried again after 0, 1, 3, 7... further calls. */
void tc_postpone(tc_entry *entry);
/* In a forked child: no thread is measuring any more. */
void tc_searches_after_fork(void);

#endif
