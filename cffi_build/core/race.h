/*
 * The state of one search, and the steps on a single algorithm in it. A lane is an algorithm that is still
 * in the race; lane 0 is the baseline, the library's default, which stays to the end.
 */
#ifndef TC_RACE_H
#define TC_RACE_H

#include "samples.h"
#include "tuner.h"
#include "workspace.h"

/* Beside the baseline; when one more would win a place, the slowest gives way. Bounds memory and time. */
enum { TC_FINALISTS = 8 };

typedef struct tc_lane {
    const tc_candidate *candidate;
    size_t order;      /* its place in the engine's list */
    void *plan;
    int borrowed;      /* the plan is the search's ready one */
    size_t workspace;
    double estimate;   /* device seconds of a run, from the first ones */
    double wall;       /* wall seconds of a run with its overhead, the latest */
    int32_t runs;      /* back to back in one sample */
    double *samples;   /* device seconds of a run, one a round */
    size_t count;
    double median;
    double spread;     /* interquartile range over median */
    int out;
} tc_lane;

/* By how much a run of one lane is shorter than one of another, as a share of the latter, and what of it may be noise. */
typedef struct tc_lead {
    double share, noise;
} tc_lead;

typedef struct tc_race {
    const tc_search *search;
    tc_config config;
    double started, plan_seconds;
    double deadline;         /* of this key */
    double process_deadline; /* of all measuring */
    double screening; /* wall seconds that screening a candidate takes, a mean */
    size_t tried;     /* of the engine's list */
    size_t total;     /* of it, last resorts left out */
    const void *last; /* the plan whose numbers are in the output */
    tc_lane lanes[1 + TC_FINALISTS];
    size_t count;
    tc_workspace workspace;
    size_t held;      /* bytes the framework handed out and cannot take back before the call ends */
    tc_samples samples;
    tc_trial *trials; /* of `total` candidates, in the engine's order; NULL unless they are to be kept */
} tc_race;

/* ---- race.c ---------------------------------------------------------------------------------------------- */
/* Prepares an algorithm and gets workspace for it. */
tc_status tc_lane_open(tc_race *race, size_t order, tc_lane *lane);
void tc_lane_close(tc_race *race, tc_lane *lane);
/* Device seconds of a run, the mean of several back to back; also keeps the wall time. */
tc_status tc_lane_time(tc_race *race, tc_lane *lane, int32_t runs, double *seconds);
/* Leaves the lane's numbers in the output, if they are not there already. */
tc_status tc_lane_run(tc_race *race, tc_lane *lane);
/* Sets median and spread from the samples, or from the estimate where there are none. */
void tc_lane_summarise(tc_lane *lane);
/* From samples of the same rounds, so that what slows a whole round down does not count as noise. */
tc_lead tc_lane_lead(const tc_lane *ahead, const tc_lane *behind);

/* Makes the sampled places of the output NaN. */
tc_status tc_race_poison(tc_race *race);

/* Whether a step of so many seconds would end after the deadline. */
int tc_race_is_over(const tc_race *race, double seconds);
/* Seconds of a round of all lanes, if there is more than one, and of the winner's last run. */
double tc_race_wall_to_end(const tc_race *race);

/* ---- finals.c -------------------------------------------------------------------------------------------- */
/* Measures all lanes in rounds until time is up or the noise no longer hides who is ahead. */
tc_status tc_race_run_finals(tc_race *race);
/* Leaves the winner's numbers in the output; one that fails only now makes way for the next. */
tc_status tc_race_run_winner(tc_race *race, tc_lane **winner);
/* The fastest beside the winner, the default included; NULL when there is none. */
const tc_lane *tc_race_next_best(const tc_race *race, const tc_lane *winner);

/* ---- notes.c: what is kept of each candidate, if it is to be ------------------------------------------------- */
/* A candidate of that place is out of the race. `reason` of failures; "" if none. */
void tc_note_out(tc_race *race, size_t order, tc_trial_state state, const char *reason);
void tc_note_plan_seconds(tc_race *race, size_t order, double seconds);
/* Workspace and estimate of a lane, and what screening it took. */
void tc_note_screened(tc_race *race, const tc_lane *lane, double seconds);
/* Samples and fate of all that were in the finals. */
void tc_note_finals(tc_race *race, const tc_lane *winner);

/* ---- begin and end ------------------------------------------------------------------------------------------ */
void tc_race_begin(tc_race *race, const tc_search *search);
/* Closes every lane but `keep` (NULL: all), and gives the workspace back. */
void tc_race_end(tc_race *race, const tc_lane *keep);

#endif
