/* What the budgets of a key and of the process allow. Time is the engine's virtual clock. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};

static fake_algorithm algorithm(const char *name, double seconds)
{
    fake_algorithm made = standard;
    strcpy(made.name, name);
    made.seconds = seconds;
    return made;
}

static void run(const tc_conv *conv)
{
    CHECK_INT(convolve(conv), TC_OK);
}

static void check_winner(const char *name)
{
    CHECK_TEXT(only_record().algorithm, name);
}

static void a_key_keeps_its_budget(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm many[40];
    for (int i = 0; i < 40; i++) {
        many[i] = algorithm("", 10e-3 - i * 1e-5);
        many[i].prepare_seconds = 0.1;
        snprintf(many[i].name, sizeof many[i].name, "algorithm %d", i);
    }
    fake.set_algorithms(many, 40);
    run(&conv);
    tc_record record = only_record();
    CHECK(fake.clock() <= 2.0 * 1.2);
    CHECK(fake.clock() > 2.0 * 0.7);
    CHECK(record.candidates_tried < 40 && record.candidates_tried > 8);
    CHECK_INT(record.candidates_total, 40);
    CHECK(stats().plan_seconds > 0.8 && stats().plan_seconds < stats().tuning_seconds);
    CHECK_INT(fake.live_plans(), 1);
}

/* What would not end in time is not begun: one plan more would be 28 % over. */
static void a_step_too_long_is_not_begun(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm many[5];
    for (int i = 0; i < 5; i++) {
        many[i] = algorithm("", 1e-3);
        many[i].prepare_seconds = 0.64;
        snprintf(many[i].name, sizeof many[i].name, "algorithm %d", i);
    }
    fake.set_algorithms(many, 5);
    run(&conv);
    CHECK_INT(only_record().candidates_tried, 2);
    CHECK(fake.clock() <= 2.0);
}

/* A default that takes most of the budget still meets a candidate, and its one run is not repeated. */
static void a_slow_default_meets_its_rivals(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(algorithm("standard", 0.5), algorithm("fast", 0.05));
    run(&conv);
    check_winner("fast");
    CHECK(fake.clock() <= 2.0 * 1.2);
    tc_registry_clear();
    SCRIPT(algorithm("standard", 10), algorithm("fast", 0.05), algorithm("another", 0.05));
    double before = fake.clock();
    run(&conv); /* over the key's budget by itself, it meets one rival */
    check_winner("fast");
    CHECK_NEAR(fake.clock() - before, 10.05, 1e-6);
    CHECK_INT(only_record().candidates_tried, 2);
    tc_registry_clear();
    SCRIPT(algorithm("standard", 40), algorithm("fast", 0.05));
    run(&conv); /* two such runs would be over the process's budget too */
    check_winner("standard");
    CHECK_INT(fake.runs("fast"), 0);
}

static void the_process_keeps_its_budget(void)
{
    begin(TC_CUDA);
    tc_config settings = config();
    settings.process_budget_seconds = 1;
    configure(settings);
    SCRIPT(algorithm("standard", 30e-3), algorithm("fast", 15e-3));
    for (int64_t batch = 1; batch <= 10; batch++) {
        tc_conv conv = problem(batch);
        run(&conv);
        CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
    }
    CHECK(stats().tuning_seconds <= 1.2);
    CHECK(stats().measured >= 2 && stats().defaults >= 2);
    CHECK_INT(stats().measured + stats().defaults, 10);
    CHECK_INT(record_count(), stats().measured); /* defaults are not handed out */
    settings.process_budget_seconds = 60;
    configure(settings);
    for (int64_t batch = 1; batch <= 10; batch++) {
        tc_conv conv = problem(batch);
        run(&conv);
    }
    CHECK_INT(stats().measured, 10); /* made up for once there is time */
    CHECK_INT(stats().defaults, 0);
}

static void a_search_goes_on_where_it_stopped(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm many[30];
    for (int i = 0; i < 30; i++) {
        many[i] = algorithm("", i == 29 ? 5e-3 : i == 3 ? 8e-3 : 10e-3);
        many[i].prepare_seconds = 0.15;
        snprintf(many[i].name, sizeof many[i].name, "algorithm %d", i);
    }
    fake.set_algorithms(many, 30);
    run(&conv);
    tc_record cut = only_record();
    CHECK_TEXT(cut.algorithm, "algorithm 3");
    CHECK(cut.candidates_tried < 30);
    tc_registry_clear();
    CHECK_INT(tc_registry_put(&cut), TC_OK); /* as another process would */
    run(&conv);
    CHECK_INT(stats().hits, 1); /* used as it is */
    tc_registry_clear();
    tc_config settings = config();
    settings.resume = 1;
    configure(settings);
    int processes = 0;
    for (; cut.candidates_tried < 30; processes++) {
        fake.set_algorithms(many, 30);
        CHECK_INT(tc_registry_put(&cut), TC_OK);
        run(&conv);
        CHECK_INT(stats().measured, 1);
        CHECK_INT(stats().hits, 0);
        tc_record next = only_record();
        CHECK(next.candidates_tried > cut.candidates_tried);
        CHECK(next.tuning_seconds > cut.tuning_seconds);
        CHECK_INT(fake.runs("algorithm 1"), 0); /* gone through before */
        cut = next;
        tc_registry_clear();
    }
    CHECK(processes >= 1 && processes < 10);
    CHECK_TEXT(cut.algorithm, "algorithm 29");
    fake.set_algorithms(many, 30);
    CHECK_INT(tc_registry_put(&cut), TC_OK);
    run(&conv);
    CHECK_INT(stats().hits, 1); /* complete */
}

const test_case budget_cases[] = {
    {"budget/a_key_keeps_its_budget", a_key_keeps_its_budget},
    {"budget/a_step_too_long_is_not_begun", a_step_too_long_is_not_begun},
    {"budget/a_slow_default_meets_its_rivals", a_slow_default_meets_its_rivals},
    {"budget/the_process_keeps_its_budget", the_process_keeps_its_budget},
    {"budget/a_search_goes_on_where_it_stopped", a_search_goes_on_where_it_stopped},
    {NULL, NULL},
};
