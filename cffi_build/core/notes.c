/* What is kept of each candidate while a race goes on; does nothing unless that was asked for. */
#include <string.h>

#include "race.h"

/* As much of a text as fits, not cutting a UTF-8 character in two. */
static void copy_text(char *to, size_t size, const char *from)
{
    size_t length = strlen(from);
    if (length >= size)
        for (length = size - 1; length > 0 && ((unsigned char)from[length] & 0xC0) == 0x80; length--)
            ;
    memcpy(to, from, length);
    to[length] = '\0';
}

void tc_note_out(tc_race *race, size_t order, tc_trial_state state, const char *reason)
{
    if (!race->trials)
        return;
    tc_trial *trial = &race->trials[order];
    trial->state = (int32_t)state;
    copy_text(trial->reason, sizeof trial->reason, reason);
}

void tc_note_plan_seconds(tc_race *race, size_t order, double seconds)
{
    if (race->trials)
        race->trials[order].plan_seconds += seconds;
}

void tc_note_screened(tc_race *race, const tc_lane *lane, double seconds)
{
    if (!race->trials)
        return;
    tc_trial *trial = &race->trials[lane->order];
    trial->workspace_bytes = (int64_t)lane->workspace;
    trial->estimate_seconds = lane->estimate;
    trial->screen_seconds = seconds;
}

static void note_finalist(tc_trial *trial, const tc_lane *lane, int won)
{
    if (won)
        trial->state = TC_TRIAL_WON;
    else if (trial->state != TC_TRIAL_FAILED)
        trial->state = lane->out ? TC_TRIAL_SLOW : TC_TRIAL_FINALIST;
    if (lane->count == 0)
        return;
    size_t count = lane->count < TC_TRIAL_SAMPLES ? lane->count : TC_TRIAL_SAMPLES;
    trial->median_seconds = lane->median;
    trial->sample_count = (int32_t)count;
    memcpy(trial->samples, lane->samples, count * sizeof *trial->samples);
}

void tc_note_finals(tc_race *race, const tc_lane *winner)
{
    for (size_t i = 0; race->trials && i < race->count; i++)
        note_finalist(&race->trials[race->lanes[i].order], &race->lanes[i], &race->lanes[i] == winner);
}
