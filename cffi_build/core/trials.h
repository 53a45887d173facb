/* What became of the candidates of each search, for whoever asks for it (config.record_candidates). */
#ifndef TC_TRIALS_H
#define TC_TRIALS_H

#include "tunedconv_engine.h"

/* A trial for each of the first `count` candidates, none of them tried; to be freed. NULL without memory, with a warning. */
tc_trial *tc_trials_make(const tc_candidate_list *candidates, size_t count);
/* Keeps a copy of the trials of a finished search; none when there are none. */
tc_status tc_trials_keep(const char *key, const char *environment, const tc_trial *trials, size_t count);
void tc_trials_clear(void);

#endif
