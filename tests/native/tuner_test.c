/* The race: who wins, and who runs how often. Time is the engine's virtual clock. */
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

static void the_faster_one_wins(void)
{
    begin(TC_CPU); /* where the core keeps workspace of its own */
    tc_conv conv = problem(2);
    fake_algorithm fast = algorithm("fast", 0.5e-3);
    fast.tint = 1e-6;
    fast.workspace = 4096;
    fast.flags = 0;
    SCRIPT(standard, algorithm("slower", 1.1e-3), fast, algorithm("fastish", 0.6e-3));
    run(&conv);
    tc_record record = only_record();
    CHECK_TEXT(record.algorithm, "fast");
    CHECK_TEXT(record.runner_up, "fastish");
    CHECK_TEXT(record.environment, "engine=fake;version=1;device=any");
    char key[TC_KEY_SIZE];
    key_of(&conv, key);
    CHECK_TEXT(record.key, key);
    CHECK_NEAR(record.time_seconds, 0.5e-3, 1e-6);
    CHECK_NEAR(record.default_seconds, 1e-3, 1e-6);
    CHECK(record.spread < 1e-6);
    CHECK_INT(record.workspace_bytes, 4096);
    CHECK_INT(record.candidates_tried, 4);
    CHECK_INT(record.candidates_total, 4);
    CHECK_INT(record.provenance, TC_MEASURED);
    CHECK_INT(record.deterministic, 0);
    CHECK(record.created > 1600000000);
    CHECK_NEAR(record.tuning_seconds, fake.clock(), 1e-6);
    CHECK_NEAR(stats().tuning_seconds, fake.clock(), 1e-6);
    CHECK_INT(stats().measured, 1);
    CHECK_NEAR(tint_of_output(&conv), 1e-6, 0.2); /* the winner ran last */
    CHECK_INT(fake.live_plans(), 1);
    int64_t runs = fake.runs("fast"), others = fake.runs("standard");
    run(&conv);
    CHECK_INT(fake.runs("fast"), runs + 1);
    CHECK_INT(fake.runs("standard"), others);
    CHECK_INT(stats().measured, 1);
    expect_no_warning();
}

static void the_default_stays_within_the_margin(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("hardly faster", 0.98e-3));
    run(&conv);
    check_winner("standard");
    CHECK_TEXT(only_record().runner_up, "hardly faster");
    tc_registry_clear();
    tc_config settings = config();
    settings.margin = 0.01;
    configure(settings);
    run(&conv);
    check_winner("hardly faster");
}

/* A lead of 10 % counts for nothing where each second run of that one takes 30 % longer. */
static void the_default_stays_within_the_noise(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm noisy = algorithm("noisy", 0.9e-3);
    noisy.jitter = 0.3;
    SCRIPT(standard, noisy);
    run(&conv);
    check_winner("standard");
    tc_registry_clear();
    noisy.seconds = 0.4e-3;
    SCRIPT(standard, noisy);
    run(&conv);
    check_winner("noisy");
    CHECK(only_record().spread > 0.1);
}

/* A machine that is slower in each second round is so for all. */
static void what_slows_a_round_down_is_no_noise(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm slowed_default = algorithm("standard", 1e-3), slowed = algorithm("slowed", 0.9e-3);
    slowed_default.jitter = slowed.jitter = 0.3;
    SCRIPT(slowed_default, slowed);
    run(&conv);
    check_winner("slowed");
}

/* More rounds than the minimum run while the noise hides a lead. */
static void noise_gets_more_rounds(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm steady = algorithm("steady", 0.9e-3), noisy = algorithm("noisy", 0.9e-3);
    SCRIPT(standard, steady);
    run(&conv);
    int64_t enough = fake.runs("standard");
    tc_registry_clear();
    noisy.jitter = 0.2;
    SCRIPT(standard, noisy);
    run(&conv);
    CHECK(fake.runs("standard") >= enough + 2); /* beside the last run, which is its own now */
}

static void ties_go_by_determinism_workspace_order(void)
{
    begin(TC_CPU);
    tc_conv conv = problem(2);
    fake_algorithm first = algorithm("first", 0.5e-3), second = algorithm("second", 0.5e-3),
                   third = algorithm("third", 0.5e-3), loose = algorithm("loose", 0.5e-3);
    loose.flags = 0;
    first.workspace = 8192;
    second.workspace = third.workspace = 4096;
    SCRIPT(standard, loose, first, second, third);
    run(&conv);
    check_winner("second");
    tc_registry_clear();
    SCRIPT(standard, loose, first);
    run(&conv);
    check_winner("first");
    tc_registry_clear();
    loose.seconds = 0.4e-3; /* no tie */
    SCRIPT(standard, loose, first);
    run(&conv);
    check_winner("loose");
}

static void the_slow_are_dropped_at_once(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("slow", 0.1), algorithm("middling", 3e-3), algorithm("fast", 0.4e-3),
           algorithm("once in the race", 0.9e-3), algorithm("hopeless", 0.6e-3));
    run(&conv);
    check_winner("fast");
    CHECK_INT(fake.runs("slow"), 1);             /* no cold start takes that long */
    CHECK_INT(fake.runs("middling"), 2);         /* might have been one */
    CHECK_INT(fake.runs("once in the race"), 2); /* within twice the default, not within twice the best */
    CHECK_INT(fake.runs("hopeless"), 2 + 2);     /* and two rounds to show it */
    CHECK(fake.runs("fast") >= 2 + 5);
    CHECK_INT(fake.live_plans(), 1);
}

/* However many are as fast, the finals stay small, and each has been tried. */
static void many_candidates_keep_few_plans(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm many[40];
    for (int i = 0; i < 40; i++) {
        many[i] = algorithm("", i == 0 ? 1e-3 : 0.9e-3 - i * 1e-5);
        snprintf(many[i].name, sizeof many[i].name, "algorithm %d", i);
    }
    fake.set_algorithms(many, 40);
    run(&conv);
    check_winner("algorithm 39");
    CHECK_TEXT(only_record().runner_up, "algorithm 38");
    CHECK_INT(only_record().candidates_tried, 40);
    CHECK_INT(fake.runs("algorithm 20"), 2);
}

static void short_runs_are_timed_many_at_once(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(algorithm("standard", 20e-6), algorithm("fast", 10e-6));
    run(&conv);
    check_winner("fast");
    CHECK(fake.runs("fast") >= 5 * 10); /* samples of 100 us */
    CHECK_NEAR(only_record().time_seconds, 10e-6, 1e-6);
}

/* The first runs of a kind of kernel, and those before a clock has risen, may take several times as long. */
static void short_runs_may_start_cold(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm cold = algorithm("cold", 10e-6), slow = algorithm("slow", 200e-6);
    cold.chill = 100e-6;
    cold.cold_runs = 2;
    SCRIPT(algorithm("standard", 20e-6), cold, slow);
    run(&conv);
    check_winner("cold");
    CHECK_NEAR(only_record().time_seconds, 10e-6, 1e-6);
    CHECK_INT(fake.runs("slow"), 3);
}

static void failures_are_passed_by(void)
{
    begin(TC_CPU);
    tc_conv conv = problem(2);
    fake_algorithm no_plan = algorithm("no plan", 1e-6), no_run = algorithm("no run", 1e-6),
                   no_more = algorithm("no more", 0.7e-3), no_memory = algorithm("no memory", 1e-6),
                   too_much = algorithm("too much", 1e-6);
    no_plan.prepare_status = TC_ENGINE_FAILURE;
    no_run.run_status = TC_ENGINE_FAILURE;
    no_more.run_status = TC_ENGINE_FAILURE;
    no_more.good_runs = 4;
    no_memory.run_status = TC_OUT_OF_MEMORY;
    too_much.workspace = (INT64_C(1) << 30) + 1;
    SCRIPT(standard, no_plan, no_run, no_more, no_memory, too_much, algorithm("fast", 0.8e-3));
    run(&conv);
    check_winner("fast");
    CHECK_INT(fake.prepares("no plan"), 1);
    CHECK_INT(fake.runs("no run"), 1);
    CHECK_INT(fake.runs("no more"), 5);
    CHECK_INT(fake.runs("too much"), 0);
    CHECK_INT(only_record().candidates_tried, 7);
    CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
    CHECK_INT(fake.live_plans(), 1);
    expect_no_warning();
}

/* A framework that takes nothing back before the call ends does not lose more than the limit. */
static size_t handed_out;
static void *allocate(void *user, size_t bytes)
{
    static char memory[16384];
    (void)user;
    handed_out += bytes;
    return memory;
}

static void workspace_adds_up_where_none_is_taken_back(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    tc_config settings = config();
    settings.workspace_limit_bytes = 20000;
    configure(settings);
    fake_algorithm small = algorithm("small", 0.9e-3), middle = algorithm("middle", 0.8e-3),
                   large = algorithm("large", 0.7e-3), again = algorithm("again", 0.6e-3);
    small.workspace = 4096;
    middle.workspace = 8192;
    large.workspace = 16384;
    again.workspace = 8000;
    SCRIPT(standard, small, middle, large, again);
    tc_context ctx = context();
    ctx.allocate = allocate;
    handed_out = 0;
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    check_winner("again"); /* in what middle had */
    CHECK_INT(handed_out, 4096 + 8192);
    CHECK_INT(fake.runs("large"), 0);
}

/* The winner's very last run fails: the next one's numbers are in the output. */
static void a_winner_that_fails_last_makes_way(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm fast = algorithm("fast", 0.5e-3), second = algorithm("second", 0.6e-3);
    second.tint = 2e-6;
    SCRIPT(standard, fast, second);
    run(&conv);
    int64_t before_last = fake.runs("fast") - 1;
    tc_registry_clear();
    fast.run_status = TC_ENGINE_FAILURE;
    fast.good_runs = (int32_t)before_last;
    SCRIPT(standard, fast, second);
    run(&conv);
    check_winner("second");
    CHECK_TEXT(only_record().runner_up, "standard");
    CHECK_NEAR(tint_of_output(&conv), 2e-6, 0.2);
}

static void a_default_that_fails_is_replaced(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm broken = standard;
    broken.run_status = TC_ENGINE_FAILURE;
    SCRIPT(broken, algorithm("second", 1e-3), algorithm("third", 0.99e-3));
    run(&conv);
    check_winner("second"); /* now the baseline */
    CHECK_INT(stats().measured, 1);
    CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
}

static void a_lost_device_ends_everything(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm deadly = algorithm("deadly", 1e-3);
    deadly.run_status = TC_DEVICE_FAILURE;
    SCRIPT(standard, deadly, algorithm("fast", 0.1e-3));
    CHECK_INT(convolve(&conv), TC_DEVICE_FAILURE);
    CHECK_HAS(tc_last_error(), "deadly");
    CHECK_INT(fake.runs("fast"), 0);
    CHECK_INT(record_count(), 0);
    CHECK_INT(fake.live_plans(), 0);
}

static void last_resorts_wait_outside(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm loops = algorithm("loops", 1e-9);
    loops.flags |= TC_CANDIDATE_LAST_RESORT;
    SCRIPT(loops, standard, algorithm("fast", 0.5e-3)); /* even when the engine names it first */
    run(&conv);
    check_winner("fast");
    CHECK_INT(fake.prepares("loops"), 0);
    CHECK_INT(only_record().candidates_total, 2);
    CHECK_NEAR(only_record().default_seconds, 1e-3, 1e-6);
    tc_registry_clear();
    loops.seconds = 300;
    SCRIPT(loops);
    run(&conv);
    check_winner("loops");
    CHECK_INT(fake.runs("loops"), 1); /* the run that was asked for is the measurement */
    CHECK_NEAR(only_record().time_seconds, 300, 1e-6);
}

static void determinism_restricts_the_field(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    conv.deterministic = 1;
    fake_algorithm fast = algorithm("fast", 0.1e-3), loose_default = algorithm("loose", 0.5e-3);
    fast.flags = loose_default.flags = 0;
    SCRIPT(loose_default, standard, fast, algorithm("steady", 0.7e-3));
    run(&conv);
    check_winner("steady");
    CHECK_INT(only_record().deterministic, 1);
    CHECK_INT(fake.prepares("fast") + fake.prepares("loose"), 0);
    tc_registry_clear();
    SCRIPT(loose_default, fast);
    CHECK_INT(convolve(&conv), TC_UNSUPPORTED);
    CHECK_HAS(tc_last_error(), "deterministic");
}

static void a_refresh_keeps_the_better(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    tc_record stored = record_of(&conv, "stored");
    tc_config settings = config();
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    const struct { double stored, other; const char *kept; } races[] = {
        {0.5e-3, 0.9e-3, "stored"}, {0.5e-3, 0.3e-3, "other"}, {2e-3, 2e-3, "standard"}};
    for (size_t i = 0; i < 3; i++) {
        SCRIPT(standard, algorithm("other", races[i].other), algorithm("stored", races[i].stored));
        CHECK_INT(tc_registry_put(&stored), TC_OK);
        run(&conv);
        check_winner(races[i].kept);
        CHECK_INT(stats().measured, 1);
        int64_t runs = fake.runs("standard") + fake.runs("other") + fake.runs("stored");
        run(&conv); /* once a process */
        CHECK_INT(fake.runs("standard") + fake.runs("other") + fake.runs("stored"), runs + 1);
        tc_registry_clear();
    }
}

/* ---- when nothing may be measured --------------------------------------------------------------------------- */

static void capture_and_shape_inference_put_it_off(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    SCRIPT(standard, algorithm("fast", 0.5e-3));
    fake.set_capturing(1);
    run(&conv);
    run(&conv);
    CHECK_INT(stats().defaults, 1);
    CHECK_INT(fake.runs("standard"), 2);
    fake.set_capturing(0);
    tc_context forbidding = context();
    forbidding.forbid_measuring = 1;
    CHECK_INT(tc_convolve(&conv, &forbidding, &operands), TC_OK);
    CHECK_INT(fake.runs("standard"), 3);
    CHECK_INT(fake.prepares("standard"), 1);
    CHECK_INT(record_count(), 0);
    run(&conv);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().defaults, 0);
    CHECK_INT(fake.prepares("standard"), 1); /* the default's plan took part */
    check_winner("fast");
}

const test_case tuner_cases[] = {
    {"tuner/the_faster_one_wins", the_faster_one_wins},
    {"tuner/the_default_stays_within_the_margin", the_default_stays_within_the_margin},
    {"tuner/the_default_stays_within_the_noise", the_default_stays_within_the_noise},
    {"tuner/what_slows_a_round_down_is_no_noise", what_slows_a_round_down_is_no_noise},
    {"tuner/noise_gets_more_rounds", noise_gets_more_rounds},
    {"tuner/ties_go_by_determinism_workspace_order", ties_go_by_determinism_workspace_order},
    {"tuner/the_slow_are_dropped_at_once", the_slow_are_dropped_at_once},
    {"tuner/many_candidates_keep_few_plans", many_candidates_keep_few_plans},
    {"tuner/short_runs_are_timed_many_at_once", short_runs_are_timed_many_at_once},
    {"tuner/short_runs_may_start_cold", short_runs_may_start_cold},
    {"tuner/failures_are_passed_by", failures_are_passed_by},
    {"tuner/workspace_adds_up_where_none_is_taken_back", workspace_adds_up_where_none_is_taken_back},
    {"tuner/a_winner_that_fails_last_makes_way", a_winner_that_fails_last_makes_way},
    {"tuner/a_default_that_fails_is_replaced", a_default_that_fails_is_replaced},
    {"tuner/a_lost_device_ends_everything", a_lost_device_ends_everything},
    {"tuner/last_resorts_wait_outside", last_resorts_wait_outside},
    {"tuner/determinism_restricts_the_field", determinism_restricts_the_field},
    {"tuner/a_refresh_keeps_the_better", a_refresh_keeps_the_better},
    {"tuner/capture_and_shape_inference_put_it_off", capture_and_shape_inference_put_it_off},
    {NULL, NULL},
};
