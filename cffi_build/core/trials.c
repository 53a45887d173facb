/* What became of the candidates of each search: one list of the process, the oldest search first. */
#include "trials.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "locks.h"

/* Bounds memory at some 50 MB. */
enum { MOST_TRIALS = 65536 };

typedef struct search {
    tc_trials_head head;
    struct search *newer;
    size_t count;
    tc_trial trials[];
} search;

static search *oldest;
static size_t kept; /* trials in the list */
static uint64_t sequence;

tc_trial *tc_trials_make(const tc_candidate_list *candidates, size_t count)
{
    tc_trial *trials = calloc(count, sizeof *trials);
    if (!trials) {
        tc_warn("there is no memory to record %zu candidates", count);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        strcpy(trials[i].algorithm, candidates->items[i].name);
        trials[i].order = (int32_t)i;
        trials[i].deterministic = (candidates->items[i].flags & TC_CANDIDATE_DETERMINISTIC) != 0;
    }
    return trials;
}

/* ---- the list: callers hold the lock ------------------------------------------------------------------- */

static search *take_out(search **place)
{
    search *taken = *place;
    *place = taken->newer;
    kept -= taken->count;
    return taken;
}

static search **place_of(const char *key, const char *environment)
{
    search **place = &oldest;
    while (*place && (strcmp((*place)->head.key, key) != 0 || strcmp((*place)->head.environment, environment) != 0))
        place = &(*place)->newer;
    return place;
}

/* What the later search did not come to is known from the earlier one; the winner is the later one's. */
static void fill_in(search *later, const search *earlier)
{
    for (size_t i = 0; i < later->count; i++) {
        tc_trial *trial = &later->trials[i];
        for (size_t j = 0; trial->state == TC_TRIAL_NOT_TRIED && j < earlier->count; j++) {
            int32_t order = trial->order;
            if (strcmp(trial->algorithm, earlier->trials[j].algorithm) != 0)
                continue;
            *trial = earlier->trials[j];
            trial->order = order;
            if (trial->state == TC_TRIAL_WON)
                trial->state = TC_TRIAL_FINALIST;
            break;
        }
    }
}

static void append(search *added)
{
    search **place = place_of(added->head.key, added->head.environment);
    if (*place) {
        search *earlier = take_out(place);
        fill_in(added, earlier);
        free(earlier);
    }
    while (oldest && kept + added->count > MOST_TRIALS)
        free(take_out(&oldest));
    search **end = &oldest;
    while (*end)
        end = &(*end)->newer;
    *end = added;
    kept += added->count;
    added->head.sequence = ++sequence;
}

/* ---- the interface ------------------------------------------------------------------------------------- */

tc_status tc_trials_keep(const char *key, const char *environment, const tc_trial *trials, size_t count)
{
    if (count == 0)
        return TC_OK;
    search *added = calloc(1, sizeof *added + count * sizeof *trials);
    if (!added)
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for %zu trials", count);
    strcpy(added->head.key, key);
    strcpy(added->head.environment, environment);
    added->head.created = (int64_t)time(NULL);
    added->count = count;
    memcpy(added->trials, trials, count * sizeof *trials);
    tc_acquire(TC_LOCK_TRIALS);
    append(added);
    tc_release(TC_LOCK_TRIALS);
    return TC_OK;
}

tc_status tc_trials_next(uint64_t since, tc_trials_head *head, tc_trial *trials, size_t capacity, size_t *count)
{
    if (!head || !count || (capacity > 0 && !trials))
        return tc_fail(TC_INVALID_ARGUMENT, "expected places for a head, %zu trials and their count, got NULL", capacity);
    *head = (tc_trials_head){0};
    *count = 0;
    tc_acquire(TC_LOCK_TRIALS);
    const search *at = oldest;
    while (at && at->head.sequence <= since)
        at = at->newer;
    if (at) {
        *head = at->head;
        *count = at->count;
        if (capacity > 0)
            memcpy(trials, at->trials, (capacity < at->count ? capacity : at->count) * sizeof *trials);
    }
    tc_release(TC_LOCK_TRIALS);
    return TC_OK;
}

void tc_trials_clear(void)
{
    tc_acquire(TC_LOCK_TRIALS);
    while (oldest)
        free(take_out(&oldest));
    /* The sequence goes on, so that whoever remembers one from before does not miss what comes. */
    tc_release(TC_LOCK_TRIALS);
}
