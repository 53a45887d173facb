/*
 * The end of a race: those that are left run in rounds, side by side with the default, so that whatever
 * slows the device down in between slows them all; then the decision.
 */
#include <math.h>
#include <stdlib.h>

#include "race.h"

/* After two rounds, what was never within this of the best is dropped. */
static const double HOPELESS = 1.25;
/* Rounds go on to this many times the minimum while the noise hides which is ahead. */
enum { PATIENCE = 4 };

/* ---- rounds ---------------------------------------------------------------------------------------------- */

static tc_status sample(tc_race *race, tc_lane *lane)
{
    double seconds;
    tc_status status = tc_lane_time(race, lane, lane->runs, &seconds);
    if (status == TC_OK) {
        lane->samples[lane->count++] = seconds;
    } else if (lane != &race->lanes[0]) {
        lane->out = 1;
        tc_note_out(race, lane->order, TC_TRIAL_FAILED, tc_last_error());
    }
    return status;
}

static tc_status run_round(tc_race *race, size_t round)
{
    tc_status status = sample(race, &race->lanes[0]);
    size_t others = race->count - 1;
    for (size_t i = 0; i < others && status == TC_OK; i++) { /* each starts a round in its turn */
        tc_lane *lane = &race->lanes[1 + (i + round) % others];
        if (!lane->out && sample(race, lane) == TC_DEVICE_FAILURE)
            status = TC_DEVICE_FAILURE;
    }
    for (size_t i = 0; i < race->count; i++)
        if (!race->lanes[i].out)
            tc_lane_summarise(&race->lanes[i]);
    return status;
}

static double shortest(const tc_lane *lane)
{
    double least = INFINITY;
    for (size_t i = 0; i < lane->count; i++)
        least = fmin(least, lane->samples[i]);
    return least;
}

static void drop_hopeless(tc_race *race)
{
    double best = INFINITY;
    for (size_t i = 0; i < race->count; i++)
        if (!race->lanes[i].out)
            best = fmin(best, race->lanes[i].median);
    for (size_t i = 1; i < race->count; i++)
        if (shortest(&race->lanes[i]) > HOPELESS * best)
            race->lanes[i].out = 1;
}

/* Whether `ahead` seems shorter by the margin, and the noise may be all of it. */
static int is_doubtful(const tc_race *race, const tc_lane *ahead, const tc_lane *behind)
{
    tc_lead lead = tc_lane_lead(ahead, behind);
    return lead.share > race->config.margin && lead.share <= lead.noise;
}

/* Whether more rounds may change the choice: by another lane that beats the baseline, or the fastest. */
static int is_undecided(const tc_race *race)
{
    const tc_lane *fastest = &race->lanes[0];
    for (size_t i = 1; i < race->count; i++)
        if (!race->lanes[i].out && race->lanes[i].median < fastest->median)
            fastest = &race->lanes[i];
    for (size_t i = 1; i < race->count; i++) {
        const tc_lane *lane = &race->lanes[i];
        if (!lane->out && (is_doubtful(race, lane, &race->lanes[0]) || is_doubtful(race, fastest, lane)))
            return 1;
    }
    return 0;
}

tc_status tc_race_run_finals(tc_race *race)
{
    size_t minimum = (size_t)race->config.minimum_runs, most = PATIENCE * minimum;
    for (size_t i = 0; i < race->count; i++) {
        race->lanes[i].samples = malloc(most * sizeof(double));
        if (!race->lanes[i].samples)
            return tc_fail(TC_OUT_OF_MEMORY, "no memory for the samples of a candidate");
        tc_lane_summarise(&race->lanes[i]);
    }
    tc_status status = TC_OK;
    for (size_t round = 0; round < most && status == TC_OK; round++) {
        if (tc_race_is_over(race, tc_race_wall_to_end(race)) || (round >= minimum && !is_undecided(race)))
            break;
        status = run_round(race, round);
        if (round >= 1)
            drop_hopeless(race);
    }
    return status;
}

/* ---- the decision ------------------------------------------------------------------------------------------ */

static int beats_baseline(const tc_race *race, const tc_lane *lane)
{
    const tc_lane *baseline = &race->lanes[0];
    tc_lead lead = tc_lane_lead(lane, baseline);
    return lane->median < baseline->median && lead.share > fmax(race->config.margin, lead.noise);
}

/* Shorter by no more than the margin, and that may be noise: larger leads are the better guess, noise or not. */
static int is_as_good(const tc_race *race, const tc_lane *lane, const tc_lane *fastest)
{
    tc_lead lead = tc_lane_lead(fastest, lane);
    return lead.share <= fmin(race->config.margin, lead.noise);
}

/* Of two that are as good: deterministic, then less workspace, then the engine's order. */
static int is_preferred(const tc_lane *lane, const tc_lane *over)
{
    uint32_t deterministic = lane->candidate->flags & TC_CANDIDATE_DETERMINISTIC;
    if (deterministic != (over->candidate->flags & TC_CANDIDATE_DETERMINISTIC))
        return deterministic != 0;
    if (lane->workspace != over->workspace)
        return lane->workspace < over->workspace;
    return lane->order < over->order;
}

/* The baseline, unless others beat it; of those the fastest or one as good. */
static tc_lane *decide(tc_race *race)
{
    tc_lane *fastest = NULL;
    for (size_t i = 1; i < race->count; i++) {
        tc_lane *lane = &race->lanes[i];
        if (!lane->out && beats_baseline(race, lane) && (!fastest || lane->median < fastest->median))
            fastest = lane;
    }
    if (!fastest)
        return &race->lanes[0];
    tc_lane *winner = fastest;
    for (size_t i = 1; i < race->count; i++) {
        tc_lane *lane = &race->lanes[i];
        if (!lane->out && is_as_good(race, lane, fastest) && beats_baseline(race, lane) && is_preferred(lane, winner))
            winner = lane;
    }
    return winner;
}

const tc_lane *tc_race_next_best(const tc_race *race, const tc_lane *winner)
{
    const tc_lane *next = NULL;
    for (size_t i = 0; i < race->count; i++) {
        const tc_lane *lane = &race->lanes[i];
        if (lane != winner && !lane->out && (!next || lane->median < next->median))
            next = lane;
    }
    return next;
}

tc_status tc_race_run_winner(tc_race *race, tc_lane **winner)
{
    for (;;) {
        *winner = decide(race);
        tc_status status = tc_lane_run(race, *winner);
        if (status == TC_OK || status == TC_DEVICE_FAILURE || *winner == &race->lanes[0])
            return status;
        (*winner)->out = 1;
        tc_note_out(race, (*winner)->order, TC_TRIAL_FAILED, tc_last_error());
    }
}
