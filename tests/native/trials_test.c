/* What became of each candidate, where config.record_candidates is set. Time is the engine's virtual clock. */
#include <math.h>

#include "native_test.h"

enum { MOST = 40 };

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};

static fake_algorithm algorithm(const char *name, double seconds)
{
    fake_algorithm made = standard;
    strcpy(made.name, name);
    made.seconds = seconds;
    return made;
}

static void begin_recording(int32_t device_kind)
{
    begin(device_kind);
    tc_config settings = config();
    settings.record_candidates = 1;
    configure(settings);
}

static tc_trial trials[MOST];

/* The next search after one, its trials in `trials`. */
static tc_trials_head next(uint64_t since, size_t expected)
{
    tc_trials_head head;
    size_t count;
    CHECK_INT(tc_trials_next(since, &head, trials, MOST, &count), TC_OK);
    CHECK_INT(count, expected);
    return head;
}

static void check_trial(size_t at, const char *name, tc_trial_state state)
{
    CHECK_TEXT(trials[at].algorithm, name);
    if (trials[at].state != (int32_t)state)
        fail_check(__FILE__, __LINE__, "the state of '%s' is %d, expected %d", name, trials[at].state, (int)state);
    CHECK_INT(trials[at].order, at);
}

static void nothing_is_kept_unless_asked_for(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("fast", 0.5e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(next(0, 0).sequence, 0);
}

static void each_fate_is_told(void)
{
    begin_recording(TC_CPU); /* where the core keeps workspace of its own */
    tc_conv conv = problem(2);
    fake_algorithm unprepared = algorithm("unprepared", 1e-3), failing = algorithm("failing", 1e-3);
    fake_algorithm wrong = algorithm("wrong", 1e-4), fast = algorithm("fast", 0.5e-3);
    unprepared.prepare_status = failing.run_status = TC_ENGINE_FAILURE;
    wrong.tint = 0.5;
    fast.workspace = 4096;
    fast.flags = 0;
    fast.prepare_seconds = 0.02;
    SCRIPT(standard, unprepared, algorithm("slow", 9e-3), fast, failing, wrong, algorithm("close", 0.51e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    tc_trials_head head = next(0, 7);
    char key[TC_KEY_SIZE];
    key_of(&conv, key);
    CHECK_TEXT(head.key, key);
    CHECK_TEXT(head.environment, "engine=fake;version=1;device=any");
    CHECK(head.created > 1600000000);
    check_trial(0, "standard", TC_TRIAL_FINALIST); /* the default stays to the end */
    check_trial(1, "unprepared", TC_TRIAL_FAILED);
    check_trial(2, "slow", TC_TRIAL_SLOW);
    check_trial(3, "fast", TC_TRIAL_WON);
    check_trial(4, "failing", TC_TRIAL_FAILED);
    check_trial(5, "wrong", TC_TRIAL_WRONG);
    check_trial(6, "close", TC_TRIAL_FINALIST);
    CHECK_HAS(trials[1].reason, "scripted to fail");
    CHECK_HAS(trials[4].reason, "scripted to fail");
    CHECK_HAS(trials[5].reason, "differs from the default's");
    CHECK_TEXT(trials[2].reason, "");
    CHECK_NEAR(trials[2].estimate_seconds, 9e-3, 1e-6);
    CHECK(trials[2].median_seconds == 0 && trials[2].sample_count == 0);
    CHECK_INT(trials[3].workspace_bytes, 4096);
    CHECK_INT(trials[3].deterministic, 0);
    CHECK_INT(trials[6].deterministic, 1);
    CHECK_NEAR(trials[3].plan_seconds, 0.02, 1e-6);
    CHECK(trials[3].screen_seconds >= 0.02 + 2 * 0.5e-3 - 1e-9);
    CHECK_NEAR(trials[3].median_seconds, 0.5e-3, 1e-6);
    CHECK(trials[3].sample_count >= 5 && trials[3].sample_count <= TC_TRIAL_SAMPLES);
    for (int i = 0; i < trials[3].sample_count; i++)
        CHECK_NEAR(trials[3].samples[i], 0.5e-3, 1e-6);
}

static void samples_are_bounded(void)
{
    begin_recording(TC_CUDA);
    tc_config settings = config();
    settings.minimum_runs = 50;
    configure(settings);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("fast", 0.5e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    next(0, 2);
    CHECK_INT(trials[1].sample_count, TC_TRIAL_SAMPLES);
}

/* A search cut short tells what it did not come to; what an earlier one knows of that is kept. */
static void what_a_search_does_not_come_to(void)
{
    begin_recording(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm many[4];
    for (int i = 0; i < 4; i++) {
        many[i] = algorithm("", 1e-3 - i * 1e-4);
        snprintf(many[i].name, sizeof many[i].name, "algorithm %d", i);
    }
    fake.set_algorithms(many, 4);
    CHECK_INT(convolve(&conv), TC_OK);
    int64_t before = (int64_t)next(0, 4).sequence; /* sequences go on where other cases ended */
    check_trial(3, "algorithm 3", TC_TRIAL_WON);
    for (int i = 0; i < 4; i++)
        many[i].prepare_seconds = 0.64;
    fake.set_algorithms(many, 4);
    tc_conv other = problem(3);
    CHECK_INT(convolve(&other), TC_OK);
    next((uint64_t)before, 4);
    check_trial(1, "algorithm 1", TC_TRIAL_WON);
    check_trial(2, "algorithm 2", TC_TRIAL_NOT_TRIED);
    check_trial(3, "algorithm 3", TC_TRIAL_NOT_TRIED);
    CHECK(trials[3].estimate_seconds == 0);
    tc_config settings = config();
    settings.mode = TC_MODE_REFRESH; /* the known winner takes part first, then the list until time is up */
    settings.key_budget_seconds = 1;
    configure(settings);
    CHECK_INT(convolve(&conv), TC_OK);
    tc_trials_head last = next((uint64_t)before + 1, 4);
    CHECK_INT((int64_t)last.sequence, before + 2);
    check_trial(3, "algorithm 3", TC_TRIAL_WON);
    CHECK(trials[1].plan_seconds > 0.6); /* of this search */
    check_trial(2, "algorithm 2", TC_TRIAL_FINALIST);
    CHECK(trials[2].plan_seconds < 0.1); /* of the first */
    CHECK_NEAR(trials[2].median_seconds, 0.8e-3, 1e-6);
}

static void a_refresh_replaces_the_search(void)
{
    begin_recording(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("fast", 0.5e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    tc_trials_head first = next(0, 2);
    tc_config settings = config();
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    SCRIPT(standard, algorithm("new", 0.25e-3), algorithm("fast", 0.5e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    tc_trials_head second = next(0, 3);
    CHECK(second.sequence > first.sequence);
    check_trial(1, "new", TC_TRIAL_WON);
    check_trial(2, "fast", TC_TRIAL_SLOW);
    CHECK_INT(next(second.sequence, 0).sequence, 0);
}

static void a_search_that_decides_nothing_is_not_kept(void)
{
    begin_recording(TC_CUDA);
    tc_conv conv = problem(2);
    fill_operands_with((float)NAN);
    SCRIPT(standard, algorithm("fast", 0.5e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(record_count(), 0);
    next(0, 0);
}

static void few_places_get_the_first(void)
{
    begin_recording(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("fast", 0.5e-3), algorithm("faster", 0.4e-3));
    CHECK_INT(convolve(&conv), TC_OK);
    tc_trials_head head;
    size_t count;
    trials[1] = (tc_trial){.order = 77};
    CHECK_INT(tc_trials_next(0, &head, trials, 1, &count), TC_OK);
    CHECK_INT(count, 3);
    check_trial(0, "standard", TC_TRIAL_FINALIST);
    CHECK_INT(trials[1].order, 77);
    CHECK_INT(tc_trials_next(0, &head, NULL, 1, &count), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_trials_next(0, NULL, trials, 1, &count), TC_INVALID_ARGUMENT);
    tc_registry_clear();
    CHECK_INT(tc_trials_next(0, &head, NULL, 0, &count), TC_OK);
    CHECK_INT(count, 0);
}

const test_case trials_cases[] = {
    {"trials/nothing_is_kept_unless_asked_for", nothing_is_kept_unless_asked_for},
    {"trials/each_fate_is_told", each_fate_is_told},
    {"trials/samples_are_bounded", samples_are_bounded},
    {"trials/what_a_search_does_not_come_to", what_a_search_does_not_come_to},
    {"trials/a_refresh_replaces_the_search", a_refresh_replaces_the_search},
    {"trials/a_search_that_decides_nothing_is_not_kept", a_search_that_decides_nothing_is_not_kept},
    {"trials/few_places_get_the_first", few_places_get_the_first},
    {NULL, NULL},
};
