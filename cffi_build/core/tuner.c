/*
 * Measuring the candidates of one descriptor: the default first, then each candidate a few times
 * (screening), then those that are left in the finals (finals.c). Each step is foreseen from the ones
 * before and left out when it would not end before the deadline.
 */
#include "tuner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "race.h"

/* A sample shorter than this says more about the clock than about the algorithm. */
static const double SHORTEST_SAMPLE = 100e-6;
static const double MOST_RUNS = 1000;
/* A run shorter than this costs little, beside an algorithm that is left out for a hiccup. */
static const double SHORT_RUN = 0.5e-3;
/* A first run up to this long may owe it to loading code, so a second one decides. */
static const double COLD_START = 0.05;

/* ---- the baseline -------------------------------------------------------------------------------------- */

static int32_t runs_of_sample(const tc_lane *lane)
{
    return (int32_t)fmin(fmax(ceil(SHORTEST_SAMPLE / lane->estimate), 1), MOST_RUNS);
}

static int is_last_resort(const tc_lane *lane)
{
    return (lane->candidate->flags & TC_CANDIDATE_LAST_RESORT) != 0;
}

static tc_status time_again(tc_race *race, tc_lane *lane, int32_t runs)
{
    double seconds;
    tc_status status = tc_lane_time(race, lane, runs, &seconds);
    if (status == TC_OK)
        lane->estimate = fmin(lane->estimate, seconds);
    return status;
}

/*
 * After a first run, which may be cold. A second one of a short algorithm may be so too, or be missed by the clock,
 * so it is not what puts one over the limit.
 */
static tc_status time_warm(tc_race *race, tc_lane *lane, double limit)
{
    tc_status status = time_again(race, lane, 1);
    int32_t runs = runs_of_sample(lane);
    int is_doubtful = runs > 1 || (lane->estimate > limit && lane->estimate < SHORT_RUN);
    return status == TC_OK && is_doubtful ? time_again(race, lane, runs) : status;
}

/* Warm, unless the first run took a good part of the budget. */
static tc_status time_baseline(tc_race *race, tc_lane *lane)
{
    tc_status status = tc_lane_time(race, lane, 1, &lane->estimate);
    if (status == TC_OK && race->config.verify)
        status = tc_samples_take_reference(&race->samples);
    if (status != TC_OK || is_last_resort(lane) || tc_race_is_over(race, 10 * lane->wall))
        return status;
    return time_warm(race, lane, INFINITY);
}

/* The first algorithm of the engine's order that runs at all. */
static tc_status open_baseline(tc_race *race)
{
    tc_status status = TC_UNSUPPORTED;
    for (size_t i = 0; i < race->total && status != TC_OK && status != TC_DEVICE_FAILURE; i++) {
        double start = tc_clock();
        status = tc_lane_open(race, i, &race->lanes[0]);
        if (status == TC_OK) {
            status = time_baseline(race, &race->lanes[0]);
            tc_note_screened(race, &race->lanes[0], tc_clock() - start);
            if (status != TC_OK)
                tc_lane_close(race, &race->lanes[0]);
        }
        if (status != TC_OK) {
            tc_note_out(race, i, TC_TRIAL_FAILED, tc_last_error());
            continue;
        }
        race->screening = tc_clock() - start;
        race->tried = i + 1;
    }
    if (status != TC_OK)
        return status;
    race->count = 1;
    race->lanes[0].runs = runs_of_sample(&race->lanes[0]);
    tc_lane_summarise(&race->lanes[0]);
    return TC_OK;
}

/* ---- screening ------------------------------------------------------------------------------------------ */

static double best_estimate(const tc_race *race)
{
    double best = race->lanes[0].estimate;
    for (size_t i = 1; i < race->count; i++)
        best = fmin(best, race->lanes[i].estimate);
    return best;
}

static void remove_lane(tc_race *race, size_t at)
{
    tc_note_out(race, race->lanes[at].order, TC_TRIAL_SLOW, "");
    tc_lane_close(race, &race->lanes[at]);
    race->lanes[at] = race->lanes[--race->count];
}

/* Lets a lane in; what that leaves without a chance goes. */
static void enter(tc_race *race, tc_lane *lane)
{
    lane->runs = runs_of_sample(lane);
    if (race->count == 1 + TC_FINALISTS) {
        size_t slowest = 1;
        for (size_t i = 2; i < race->count; i++)
            if (race->lanes[i].estimate > race->lanes[slowest].estimate)
                slowest = i;
        if (race->lanes[slowest].estimate <= lane->estimate) {
            tc_note_out(race, lane->order, TC_TRIAL_SLOW, "");
            tc_lane_close(race, lane);
            return;
        }
        remove_lane(race, slowest);
    }
    race->lanes[race->count++] = *lane;
    for (size_t i = race->count - 1; i > 0; i--)
        if (race->lanes[i].estimate > race->config.drop_ratio * best_estimate(race))
            remove_lane(race, i);
}

/*
 * Runs a candidate once, and again if that may have been cold, and checks what it wrote; TC_ENGINE_FAILURE also
 * when it is too slow. On failure *fate says what became of it.
 */
static tc_status try_lane(tc_race *race, tc_lane *lane, tc_trial_state *fate)
{
    double limit = race->config.drop_ratio * best_estimate(race);
    tc_status status = race->config.verify ? tc_race_poison(race) : TC_OK;
    *fate = TC_TRIAL_FAILED;
    if (status == TC_OK)
        status = tc_lane_time(race, lane, 1, &lane->estimate);
    if (status == TC_OK && race->config.verify) {
        *fate = TC_TRIAL_WRONG;
        status = tc_samples_compare(&race->samples);
    }
    if (status == TC_OK)
        *fate = TC_TRIAL_FAILED;
    if (status == TC_OK && (lane->estimate <= limit || lane->wall <= COLD_START) && !tc_race_is_over(race, lane->wall))
        status = time_warm(race, lane, limit);
    if (status == TC_OK && lane->estimate > limit) {
        *fate = TC_TRIAL_SLOW;
        status = tc_fail(TC_ENGINE_FAILURE, "it takes %g s, over the limit of %g s", lane->estimate, limit);
    }
    return status;
}

/* Only a lost device ends the search; a candidate that fails otherwise is merely not in the race. */
static tc_status screen(tc_race *race, size_t order)
{
    tc_lane lane;
    tc_trial_state fate = TC_TRIAL_FAILED;
    double start = tc_clock();
    tc_status status = tc_lane_open(race, order, &lane);
    int opened = status == TC_OK;
    if (opened) {
        status = try_lane(race, &lane, &fate);
        tc_note_screened(race, &lane, tc_clock() - start);
    }
    if (status == TC_OK)
        enter(race, &lane);
    else
        tc_note_out(race, order, fate, fate == TC_TRIAL_SLOW ? "" : tc_last_error());
    if (opened && status != TC_OK)
        tc_lane_close(race, &lane);
    race->screening = 0.7 * race->screening + 0.3 * (tc_clock() - start);
    return status == TC_DEVICE_FAILURE ? status : TC_OK;
}

/*
 * The first rival of a default that uses the key's budget up by itself is still tried: it costs one run
 * more like the one that had to be made, and may save all later ones.
 */
static int has_time_to_screen(const tc_race *race, int is_first)
{
    double end = tc_clock() + 1.2 * race->screening + tc_race_wall_to_end(race);
    return end <= (is_first ? race->process_deadline : race->deadline);
}

static tc_status screen_all(tc_race *race)
{
    const tc_search *search = race->search;
    size_t known = race->total, next = race->tried;
    tc_status status = TC_OK;
    if (search->known) {
        const tc_candidate *stored = tc_candidate_named(search->candidates, search->known->algorithm);
        known = stored ? (size_t)(stored - search->candidates->items) : race->total;
        if (known >= race->tried && known < race->total)
            status = screen(race, known);
        if (search->resume && (size_t)search->known->candidates_tried > next)
            next = (size_t)search->known->candidates_tried;
    }
    size_t first = next + (next == known);
    for (; next < race->total && status == TC_OK; next++) {
        if (next == known)
            continue;
        if (!has_time_to_screen(race, next == first))
            break;
        status = screen(race, next);
    }
    race->tried = next;
    return status;
}

/* ---- the record ---------------------------------------------------------------------------------------------- */

static void fill_record(const tc_race *race, const tc_lane *winner, tc_record *record)
{
    const tc_search *search = race->search;
    const tc_lane *runner_up = tc_race_next_best(race, winner);
    *record = (tc_record){
        .workspace_bytes = (int64_t)winner->workspace,
        .created = (int64_t)time(NULL),
        .time_seconds = winner->median,
        .default_seconds = race->lanes[0].median,
        .spread = winner->spread,
        .tuning_seconds = tc_clock() - race->started + (search->resume ? search->known->tuning_seconds : 0),
        .candidates_tried = (int32_t)race->tried,
        .candidates_total = (int32_t)race->total,
        .provenance = TC_MEASURED,
        .math_type = search->conv->allow_tf32,
        .deterministic = (winner->candidate->flags & TC_CANDIDATE_DETERMINISTIC) != 0,
    };
    strcpy(record->algorithm, winner->candidate->name);
    if (runner_up)
        strcpy(record->runner_up, runner_up->candidate->name);
}

/* ---- the interface ------------------------------------------------------------------------------------------ */

static tc_status run_race(tc_race *race, tc_lane **winner, int *decided)
{
    tc_status status = open_baseline(race);
    if (status != TC_OK)
        return status;
    *winner = &race->lanes[0]; /* what it wrote is in the output */
    *decided = !race->config.verify || !tc_samples_are_useless(&race->samples);
    if (!*decided || is_last_resort(*winner))
        return TC_OK;
    status = screen_all(race);
    if (status == TC_OK)
        status = tc_race_run_finals(race);
    return status == TC_OK ? tc_race_run_winner(race, winner) : status;
}

tc_status tc_tune(const tc_search *search, tc_result *result)
{
    tc_race race;
    tc_lane *winner = NULL;
    *result = (tc_result){0};
    tc_race_begin(&race, search);
    tc_status status = TC_OK;
    if (race.config.verify)
        status = tc_samples_begin(&race.samples, search->engine, search->conv, search->ctx, search->operands);
    if (status == TC_OK)
        status = run_race(&race, &winner, &result->decided);
    if (status == TC_OK) {
        fill_record(&race, winner, &result->record);
        result->plan = winner->plan;
        tc_note_finals(&race, winner);
        result->trials = race.trials;
        result->trial_count = race.trials ? race.total : 0;
        race.trials = NULL;
        result->unverified = race.config.verify && winner != &race.lanes[0] && tc_samples_are_zero(&race.samples);
    }
    tc_race_end(&race, status == TC_OK ? winner : NULL);
    tc_stats_add_seconds(tc_clock() - race.started, race.plan_seconds);
    return status;
}

/* What the winner gives on operands whose default is in the samples. */
static tc_status check_winner(tc_race *race, const tc_choice *winner)
{
    const tc_candidate_list *candidates = race->search->candidates;
    const tc_candidate *candidate = tc_candidate_named(candidates, winner->algorithm);
    if (!candidate)
        return tc_fail(TC_NOT_FOUND, "'%s' is no longer a candidate", winner->algorithm);
    tc_lane lane;
    double seconds;
    tc_status status = tc_lane_open(race, (size_t)(candidate - candidates->items), &lane);
    if (status != TC_OK)
        return status;
    status = tc_race_poison(race);
    if (status == TC_OK)
        status = tc_lane_time(race, &lane, 1, &seconds);
    if (status == TC_OK)
        status = tc_samples_compare(&race->samples);
    tc_lane_close(race, &lane);
    return status;
}

tc_status tc_verify(const tc_search *search, const tc_choice *winner, int *verified)
{
    tc_race race;
    *verified = 0;
    tc_race_begin(&race, search);
    race.config.verify = 1;
    tc_status status = tc_samples_begin(&race.samples, search->engine, search->conv, search->ctx, search->operands);
    if (status == TC_OK)
        status = open_baseline(&race);
    if (status == TC_OK && !tc_samples_are_useless(&race.samples) && !tc_samples_are_zero(&race.samples)) {
        status = check_winner(&race, winner);
        *verified = status == TC_OK;
    }
    tc_race_end(&race, NULL);
    tc_stats_add_seconds(tc_clock() - race.started, race.plan_seconds);
    return status;
}
