/* The state of one search, and the steps on a single algorithm in it. */
#include "race.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "trace.h"
#include "trials.h"

/* ---- memory ------------------------------------------------------------------------------------------ */

/* Without a deallocate what was handed out counts until the call ends, so a search never holds over the limit. */
static tc_status reserve(tc_race *race, size_t bytes)
{
    const tc_context *ctx = race->search->ctx;
    if (bytes <= race->workspace.bytes)
        return TC_OK;
    int keeps = ctx->allocate && !ctx->deallocate;
    if (keeps && race->held + bytes > (size_t)race->config.workspace_limit_bytes)
        return tc_fail(TC_OUT_OF_MEMORY, "%zu bytes of workspace beside the %zu of other candidates are over the limit",
                       bytes, race->held);
    tc_workspace_give(ctx, &race->workspace);
    tc_status status = tc_workspace_take(ctx, bytes, &race->workspace);
    if (status == TC_OK && keeps)
        race->held += bytes;
    return status;
}

/* ---- lanes ------------------------------------------------------------------------------------------- */

tc_status tc_lane_open(tc_race *race, size_t order, tc_lane *lane)
{
    const tc_search *search = race->search;
    const tc_engine *engine = search->engine;
    *lane = (tc_lane){.candidate = &search->candidates->items[order], .order = order};
    if (search->ready && strcmp(search->ready->algorithm, lane->candidate->name) == 0) {
        lane->plan = search->ready->plan;
        lane->borrowed = 1;
    } else {
        double start = tc_clock();
        tc_trace_push("preparing %s", lane->candidate->name);
        tc_status status = engine->ops->prepare(engine->state, search->ctx->device_ordinal, search->conv,
                                                lane->candidate->name, &lane->plan);
        tc_trace_pop();
        double seconds = tc_clock() - start;
        race->plan_seconds += seconds;
        tc_note_plan_seconds(race, order, seconds);
        if (status != TC_OK)
            return status;
    }
    lane->workspace = engine->ops->workspace(engine->state, lane->plan);
    tc_status status = reserve(race, lane->workspace);
    if (status != TC_OK)
        tc_lane_close(race, lane);
    return status;
}

void tc_lane_close(tc_race *race, tc_lane *lane)
{
    const tc_engine *engine = race->search->engine;
    if (lane->plan && !lane->borrowed)
        engine->ops->release(engine->state, lane->plan);
    free(lane->samples);
    *lane = (tc_lane){.out = 1};
}

/* A lane may have lost its workspace to a failed attempt at more. */
static tc_status workspace_of(tc_race *race, const tc_lane *lane, void **pointer)
{
    tc_status status = reserve(race, lane->workspace);
    *pointer = lane->workspace ? race->workspace.pointer : NULL;
    return status;
}

tc_status tc_lane_time(tc_race *race, tc_lane *lane, int32_t runs, double *seconds)
{
    const tc_search *search = race->search;
    void *workspace;
    tc_status status = workspace_of(race, lane, &workspace);
    if (status != TC_OK)
        return status;
    double total = 0, start = tc_clock();
    race->last = NULL;
    tc_trace_push("timing %s", lane->candidate->name);
    status = search->engine->ops->time(search->engine->state, lane->plan, search->ctx, workspace, search->operands,
                                       runs, &total);
    tc_trace_pop();
    if (status == TC_OK && !(isfinite(total) && total >= 0))
        status = tc_fail(TC_ENGINE_FAILURE, "engine '%s' measured %g seconds", search->engine->ops->name, total);
    if (status != TC_OK)
        return status;
    race->last = lane->plan;
    lane->wall = (tc_clock() - start) / runs;
    *seconds = fmax(total / runs, 1e-9); /* a coarse clock may see none */
    return TC_OK;
}

tc_status tc_lane_run(tc_race *race, tc_lane *lane)
{
    const tc_search *search = race->search;
    if (race->last == lane->plan)
        return TC_OK;
    void *workspace;
    tc_status status = workspace_of(race, lane, &workspace);
    return status == TC_OK ? search->engine->ops->run(search->engine->state, lane->plan, search->ctx, workspace,
                                                      search->operands)
                           : status;
}

/* ---- statistics --------------------------------------------------------------------------------------- */

/* Fewer pairs than this do not tell their spread; then a lead counts when it is larger than this share. */
enum { FEWEST_PAIRS = 3 };
static const double ROUGH_NOISE = 0.14;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Between neighbours, where the share of the way through does not hit one. */
static double quantile(const double *sorted, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    double rest = at - (double)below;
    return below + 1 < count ? sorted[below] + rest * (sorted[below + 1] - sorted[below]) : sorted[below];
}

/* Sorts the values; *range is the one between their quartiles. */
static double median_of(double *values, size_t count, double *range)
{
    qsort(values, count, sizeof *values, compare_doubles);
    *range = quantile(values, count, 0.75) - quantile(values, count, 0.25);
    return quantile(values, count, 0.5);
}

void tc_lane_summarise(tc_lane *lane)
{
    double *sorted = lane->count ? malloc(lane->count * sizeof *sorted) : NULL;
    double range = 0;
    lane->median = lane->estimate;
    if (sorted) {
        memcpy(sorted, lane->samples, lane->count * sizeof *sorted);
        lane->median = median_of(sorted, lane->count, &range);
    }
    lane->spread = range / lane->median;
    free(sorted);
}

tc_lead tc_lane_lead(const tc_lane *ahead, const tc_lane *behind)
{
    size_t count = ahead->count < behind->count ? ahead->count : behind->count;
    double *shares = count >= FEWEST_PAIRS ? malloc(count * sizeof *shares) : NULL, range;
    if (!shares)
        return (tc_lead){1 - ahead->median / behind->median, ROUGH_NOISE};
    for (size_t i = 0; i < count; i++)
        shares[i] = 1 - ahead->samples[i] / behind->samples[i];
    double share = median_of(shares, count, &range);
    free(shares);
    /* Half the width of a notch in a box plot: medians further apart than their notches differ. */
    return (tc_lead){share, 1.57 * range / sqrt((double)count)};
}

/* ---- the race ------------------------------------------------------------------------------------------ */

void tc_race_begin(tc_race *race, const tc_search *search)
{
    *race = (tc_race){.search = search};
    tc_get_config(&race->config);
    race->started = tc_clock();
    double left = race->config.process_budget_seconds - tc_stats_tuning_seconds();
    race->process_deadline = race->started + left;
    race->deadline = fmin(race->started + race->config.key_budget_seconds, race->process_deadline);
    race->total = search->candidates->count;
    while (race->total > 1 && (search->candidates->items[race->total - 1].flags & TC_CANDIDATE_LAST_RESORT))
        race->total--;
    if (race->config.record_candidates)
        race->trials = tc_trials_make(search->candidates, race->total);
}

int tc_race_is_over(const tc_race *race, double seconds)
{
    return tc_clock() + seconds > race->deadline;
}

static double wall_of_sample(const tc_lane *lane)
{
    return lane->wall * lane->runs;
}

double tc_race_wall_to_end(const tc_race *race)
{
    double wall = race->lanes[0].wall;
    if (race->count == 1)
        return wall;
    for (size_t i = 0; i < race->count; i++)
        if (!race->lanes[i].out)
            wall += wall_of_sample(&race->lanes[i]);
    return wall;
}

tc_status tc_race_poison(tc_race *race)
{
    race->last = NULL;
    return tc_samples_poison(&race->samples);
}

void tc_race_end(tc_race *race, const tc_lane *keep)
{
    for (size_t i = 0; i < race->count; i++) {
        tc_lane *lane = &race->lanes[i];
        if (lane == keep)
            free(lane->samples);
        else
            tc_lane_close(race, lane);
    }
    free(race->trials);
    tc_samples_end(&race->samples);
    tc_workspace_drop(race->search->ctx, &race->workspace);
}
