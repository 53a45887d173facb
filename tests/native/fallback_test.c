/* When an algorithm fails at work: what runs instead, what is remembered, and what is never hidden. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};

static fake_algorithm failing(const char *name, int32_t good_runs)
{
    fake_algorithm made = {.seconds = 0.5e-3, .run_status = TC_ENGINE_FAILURE, .good_runs = good_runs};
    strcpy(made.name, name);
    return made;
}

static tc_conv stored(const char *algorithm, const char *runner_up)
{
    tc_conv conv = problem(2);
    tc_record record = record_of(&conv, algorithm);
    strcpy(record.runner_up, runner_up);
    CHECK_INT(tc_registry_put(&record), TC_OK);
    return conv;
}

static void check_right(const tc_conv *conv)
{
    CHECK_INT(convolve(conv), TC_OK);
    CHECK_NEAR(1 + tint_of_output(conv), 1, 1e-6);
}

static void the_runner_up_comes_first(void)
{
    begin(TC_CUDA);
    fake_algorithm second = {.name = "second"};
    SCRIPT(standard, failing("stored", 2), second);
    tc_conv conv = stored("stored", "second");
    for (int i = 0; i < 5; i++)
        check_right(&conv);
    CHECK_INT(fake.runs("stored"), 3); /* two that worked, one that failed, and never again */
    CHECK_INT(fake.runs("second"), 3);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(record_count(), 0); /* what fails is not handed on */
    expect_warning("algorithm 'stored' failed");
}

static void then_the_default_then_the_rest(void)
{
    begin(TC_CUDA);
    fake_algorithm last = {.name = "last"};
    SCRIPT(failing("standard", 0), failing("stored", 0), failing("third", 0), last);
    tc_conv conv = stored("stored", "");
    for (int i = 0; i < 3; i++)
        check_right(&conv);
    CHECK_INT(fake.runs("stored"), 1);
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_INT(fake.runs("third"), 1);
    CHECK_INT(fake.runs("last"), 3);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().fallbacks, 0);
    expect_warning("'last' of engine 'fake' runs instead");
}

static void a_measured_winner_that_fails_later_is_replaced(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, failing("fast", 100));
    check_right(&conv);
    CHECK_TEXT(only_record().algorithm, "fast");
    for (int i = 0; i < 100; i++)
        check_right(&conv);
    CHECK_INT(fake.runs("fast"), 101);
    CHECK_INT(record_count(), 0);
    CHECK_INT(stats().measured, 1);
    expect_warning("algorithm 'fast' failed");
}

static void plain_loops_are_the_last(void)
{
    begin(TC_CPU);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    SCRIPT(failing("standard", 0), failing("stored", 0));
    tc_conv conv = stored("stored", "");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().fallbacks, 1);
    CHECK_INT(stats().hits, 0);
    expect_warning("'reference' of engine 'reference' runs instead");
    double expected = 0; /* the middle of the first image: 27 products */
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int c = 0; c < 3; c++)
                expected += (double)x_data[((2 + i) * 6 + 2 + j) * 3 + c] * (double)w_data[((i * 3 + j) * 3 + c) * 4];
    CHECK_NEAR((double)y_data[(3 * 6 + 3) * 4], expected, 1e-6);
}

static void without_them_the_error_says_what_failed(void)
{
    begin(TC_CUDA);
    SCRIPT(failing("standard", 0), failing("stored", 0));
    tc_conv conv = stored("stored", "");
    char key[TC_KEY_SIZE];
    key_of(&conv, key);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(convolve(&conv), TC_ENGINE_FAILURE);
        CHECK_HAS(tc_last_error(), key);
        CHECK_HAS(tc_last_error(), "scripted to fail");
    }
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_INT(fake.live_plans(), 1);
}

/* Also when nothing was ever chosen: in a search, and without one. */
static void a_key_of_failures_ends_in_plain_loops(void)
{
    begin(TC_CPU);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    fake_algorithm unprepared = failing("unprepared", 0);
    unprepared.prepare_status = TC_UNSUPPORTED;
    tc_config settings = config();
    for (int32_t mode = TC_MODE_SEARCH; mode <= TC_MODE_HEURISTIC; mode++) {
        settings.mode = mode;
        configure(settings);
        SCRIPT(unprepared, failing("standard", 0));
        tc_conv conv = problem(2);
        CHECK_INT(convolve(&conv), TC_OK);
        CHECK_INT(convolve(&conv), TC_OK);
        CHECK_INT(stats().fallbacks, 1);
        CHECK_INT(stats().measured + stats().defaults, 0);
        CHECK_INT(record_count(), 0);
        expect_warning("'reference'");
        tc_registry_clear();
    }
}

static void a_lost_device_is_never_hidden(void)
{
    begin(TC_CUDA);
    fake_algorithm deadly = failing("deadly", 1);
    deadly.run_status = TC_DEVICE_FAILURE;
    SCRIPT(standard, deadly);
    tc_conv conv = stored("deadly", "standard");
    check_right(&conv);
    for (int i = 0; i < 2; i++)
        CHECK_INT(convolve(&conv), TC_DEVICE_FAILURE);
    CHECK_HAS(tc_last_error(), "deadly");
    CHECK_INT(fake.runs("standard"), 0);
    expect_no_warning();
    tc_registry_clear();
    fake_algorithm deadly_plan = {.name = "deadly", .prepare_status = TC_DEVICE_FAILURE};
    SCRIPT(standard, deadly_plan);
    conv = stored("deadly", "standard");
    CHECK_INT(convolve(&conv), TC_DEVICE_FAILURE);
    CHECK_INT(fake.runs("standard"), 0);
}

static void the_callers_mistake_is_no_fault_of_the_algorithm(void)
{
    begin(TC_CUDA);
    fake_algorithm picky = failing("picky", 1);
    picky.run_status = TC_INVALID_ARGUMENT;
    SCRIPT(standard, picky);
    tc_conv conv = stored("picky", "");
    check_right(&conv);
    CHECK_INT(convolve(&conv), TC_INVALID_ARGUMENT);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(record_count(), 1);
}

/* ---- override ------------------------------------------------------------------------------------------------ */

static void an_override_runs_what_it_names(void)
{
    begin(TC_CUDA);
    fake_algorithm other = {.name = "other", .seconds = 5e-3}, fast = {.name = "fast", .seconds = 1e-4};
    SCRIPT(standard, other, fast);
    tc_conv conv = problem(2);
    CHECK_INT(tc_set_override(-1, "other"), TC_OK);
    check_right(&conv);
    check_right(&conv);
    CHECK_INT(fake.runs("other"), 2);
    CHECK_INT(fake.prepares("other"), 1);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(record_count(), 0);
    CHECK_INT(stats().measured + stats().hits + stats().defaults, 0);
    CHECK_INT(tc_set_override(TC_FORWARD, "standard"), TC_OK);
    check_right(&conv);
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_INT(tc_set_override(TC_FORWARD, NULL), TC_OK);
    check_right(&conv);
    CHECK_INT(stats().measured, 1);
    CHECK_TEXT(only_record().algorithm, "fast");
    conv.direction = TC_BACKWARD_DATA; /* the other directions still have theirs */
    int64_t runs = fake.runs("other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), runs + 1);
}

static void an_override_that_cannot_run_lists_what_can(void)
{
    begin(TC_CUDA);
    fake_algorithm other = {.name = "other"};
    SCRIPT(standard, failing("broken", 0), other);
    tc_conv conv = problem(2);
    CHECK_INT(tc_set_override(-1, "unheard of"), TC_OK);
    CHECK_INT(convolve(&conv), TC_NOT_FOUND);
    CHECK_HAS(tc_last_error(), "'unheard of'");
    CHECK_HAS(tc_last_error(), "standard, broken, other");
    CHECK_INT(tc_set_override(-1, "broken"), TC_OK);
    CHECK_INT(convolve(&conv), TC_ENGINE_FAILURE);
    CHECK_HAS(tc_last_error(), "scripted to fail");
    CHECK_HAS(tc_last_error(), "standard, broken, other");
    CHECK_INT(tc_set_override(3, "other"), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_set_override(0, ""), TC_INVALID_ARGUMENT);
}

const test_case fallback_cases[] = {
    {"fallback/the_runner_up_comes_first", the_runner_up_comes_first},
    {"fallback/then_the_default_then_the_rest", then_the_default_then_the_rest},
    {"fallback/a_measured_winner_that_fails_later_is_replaced", a_measured_winner_that_fails_later_is_replaced},
    {"fallback/plain_loops_are_the_last", plain_loops_are_the_last},
    {"fallback/without_them_the_error_says_what_failed", without_them_the_error_says_what_failed},
    {"fallback/a_key_of_failures_ends_in_plain_loops", a_key_of_failures_ends_in_plain_loops},
    {"fallback/a_lost_device_is_never_hidden", a_lost_device_is_never_hidden},
    {"fallback/the_callers_mistake_is_no_fault_of_the_algorithm", the_callers_mistake_is_no_fault_of_the_algorithm},
    {"fallback/an_override_runs_what_it_names", an_override_runs_what_it_names},
    {"fallback/an_override_that_cannot_run_lists_what_can", an_override_that_cannot_run_lists_what_can},
    {NULL, NULL},
};
