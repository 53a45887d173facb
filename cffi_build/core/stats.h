/* Statistics of the process. A key is counted in one place at a time. */
#ifndef TC_STATS_H
#define TC_STATS_H

#include "tunedconv_engine.h"

typedef enum tc_counter {
    TC_COUNT_NONE = 0,
    TC_COUNT_MEASURED,
    TC_COUNT_HITS,
    TC_COUNT_COPIED,
    TC_COUNT_DEFAULTS,
    TC_COUNT_FALLBACKS,
    TC_COUNTERS
} tc_counter;

/* Moves one key from a counter to another. */
void tc_stats_move(tc_counter from, tc_counter to);
void tc_stats_add_seconds(double tuning, double plan);
double tc_stats_tuning_seconds(void);
void tc_stats_clear(void);

#endif
