/* Records of environments that differ in soft fields only: used once eligible, marked, measured again once. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3};
static const fake_algorithm other = {.name = "other", .seconds = 0.9e-3};

static const char HERE[] = "engine=fake;version=1;device=any;~patch=2;~driver=7";

static void start(int32_t batch_policy)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    fake.set_soft("~patch=2;~driver=7");
    tc_config settings = config();
    settings.batch_policy = batch_policy;
    settings.copies_before_measuring = 3;
    configure(settings);
}

static void put(tc_conv conv, const char *environment, const char *algorithm, int32_t provenance, int64_t created)
{
    tc_record record = record_of(&conv, algorithm);
    strcpy(record.environment, environment);
    record.provenance = provenance;
    record.created = created;
    CHECK_INT(tc_registry_put(&record), TC_OK);
}

/* The one record of an environment. */
static tc_record record_in(const char *environment)
{
    tc_record records[16], found = {0};
    size_t count, matches = 0;
    CHECK_INT(tc_registry_collect(0, records, 16, &count), TC_OK);
    CHECK(count <= 16);
    for (size_t i = 0; i < count; i++)
        if (strcmp(records[i].environment, environment) == 0) {
            found = records[i];
            matches++;
        }
    CHECK_INT(matches, 1);
    return found;
}

static void run(tc_conv conv, int times)
{
    for (int i = 0; i < times; i++)
        CHECK_INT(convolve(&conv), TC_OK);
}

static void is_used_and_rechecked_once(void)
{
    start(TC_POLICY_NEAREST);
    static const char before[] = "engine=fake;version=1;device=any;~patch=1;~driver=7";
    put(problem(2), before, "other", TC_MEASURED, 100);
    run(problem(2), 3);
    CHECK_INT(fake.runs("other"), 3);
    CHECK_INT(stats().copied, 1);
    CHECK_INT(stats().measured + stats().hits + stats().defaults, 0);
    tc_record marked = record_in(HERE);
    CHECK_TEXT(marked.algorithm, "other");
    CHECK_INT(marked.provenance, TC_COPIED);
    CHECK(marked.time_seconds == 0);
    run(problem(2), 1);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().copied, 0);
    CHECK_TEXT(record_in(HERE).algorithm, "fast");
    CHECK_INT(record_in(HERE).provenance, TC_MEASURED);
    int64_t standards = fake.runs("standard");
    run(problem(2), 10);
    CHECK_INT(fake.runs("standard"), standards);
    tc_record old = record_in(before);
    CHECK_TEXT(old.algorithm, "other");
    CHECK_INT(old.provenance, TC_MEASURED);
    CHECK(old.created == 100);
    expect_no_warning();
}

static void is_used_where_every_size_is_measured(void)
{
    start(TC_POLICY_EXACT);
    put(problem(2), "engine=fake;version=1;device=any", "other", TC_MEASURED, 100); /* without soft fields */
    run(problem(2), 1);
    CHECK_INT(stats().copied, 1);
    run(problem(2), 1);
    CHECK_INT(stats().measured, 1);
    CHECK_TEXT(record_in(HERE).algorithm, "fast");
}

static void hard_fields_are_no_hit(void)
{
    static const char *const elsewhere[] = {
        "engine=fake;version=2;device=any;~patch=2;~driver=7",
        "engine=fake;version=1;device=an;~patch=2;~driver=7",
        "engine=fake;version=1;device=any2;~patch=2;~driver=7",
        "engine=fake;version=1;device=any;threads=2;~patch=2;~driver=7",
        "engine=fake;version=1;~patch=2;~driver=7",
        "engine=other;version=1;device=any;~patch=2;~driver=7",
        "~patch=2;~driver=7",
    };
    start(TC_POLICY_NEAREST);
    size_t count = sizeof elsewhere / sizeof *elsewhere;
    for (size_t i = 0; i < count; i++)
        put(problem(2), elsewhere[i], "other", TC_MEASURED, 100);
    run(problem(2), 1);
    CHECK_INT(stats().copied + stats().hits, 0);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(record_count(), count + 1);
    tc_conv dilated = problem(3); /* another key of the environment */
    dilated.dilation[0] = dilated.pad_before[0] = dilated.pad_after[0] = 2;
    CHECK_INT(tc_conv_infer_output(&dilated), TC_OK);
    put(dilated, "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 100);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_EXACT;
    configure(settings);
    run(problem(3), 1);
    CHECK_INT(stats().measured, 2);
}

static void what_cannot_run_is_a_miss_and_stays(void)
{
    static const char before[] = "engine=fake;version=1;device=any;~patch=1";
    static const char *const names[] = {"gone", "loops", "broken", "large"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        start(TC_POLICY_NEAREST);
        fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT};
        fake_algorithm broken = {.name = "broken", .prepare_status = TC_ENGINE_FAILURE};
        fake_algorithm large = {.name = "large", .workspace = 1 << 20};
        SCRIPT(standard, fast, broken, large, loops);
        tc_config settings = config();
        settings.workspace_limit_bytes = 4096;
        configure(settings);
        tc_registry_clear();
        put(problem(2), before, names[i], TC_MEASURED, 100);
        run(problem(2), 1);
        CHECK_INT(stats().copied, 0);
        CHECK_INT(stats().measured, 1);
        CHECK_TEXT(record_in(HERE).algorithm, "fast");
        CHECK_TEXT(record_in(before).algorithm, names[i]);
        expect_no_warning();
        CHECK_INT(tc_engine_close("fake"), TC_OK);
    }
}

static void the_higher_then_the_later_is_taken(void)
{
    start(TC_POLICY_NEAREST);
    put(problem(2), "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 200);
    put(problem(2), "engine=fake;version=1;device=any;~patch=4", "fast", TC_COPIED, 900);
    put(problem(2), "engine=fake;version=1;device=any;~patch=3", "standard", TC_MEASURED, 100);
    run(problem(2), 1);
    CHECK_TEXT(record_in(HERE).algorithm, "other");
}

static void its_own_environment_comes_first(void)
{
    start(TC_POLICY_NEAREST);
    put(problem(2), "engine=fake;version=1;device=any;~patch=9", "fast", TC_MEASURED, 900);
    put(problem(2), HERE, "other", TC_MEASURED, 1);
    run(problem(2), 5);
    CHECK_INT(fake.runs("other"), 5);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(record_count(), 2);
}

static void what_comes_later_takes_its_place(void)
{
    start(TC_POLICY_NEAREST);
    put(problem(2), "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 100);
    run(problem(2), 1);
    put(problem(2), HERE, "standard", TC_MEASURED, 100);
    run(problem(2), 1);
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().copied, 0);
}

static void a_choice_that_somebody_made_stays_one(void)
{
    start(TC_POLICY_NEAREST);
    put(problem(2), "engine=fake;version=1;device=any;~patch=1", "other", TC_OVERRIDE, 100);
    run(problem(2), 10);
    CHECK_INT(fake.runs("other"), 10);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(record_in(HERE).provenance, TC_OVERRIDE);
}

static void set_mode(int32_t mode)
{
    tc_config settings = config();
    settings.mode = mode;
    configure(settings);
}

static void is_used_where_nothing_is_measured(void)
{
    static const int32_t modes[] = {TC_MODE_HEURISTIC, TC_MODE_REPLAY};
    for (size_t i = 0; i < 2; i++) {
        start(TC_POLICY_NEAREST);
        tc_registry_clear();
        set_mode(modes[i]);
        put(problem(2), "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 100);
        run(problem(2), 10);
        CHECK_INT(fake.runs("other"), 10);
        CHECK_INT(stats().copied, 1);
        CHECK_INT(stats().measured, 0);
        CHECK_INT(tc_engine_close("fake"), TC_OK);
    }
}

static void a_refresh_measures_at_once(void)
{
    start(TC_POLICY_NEAREST);
    set_mode(TC_MODE_REFRESH);
    put(problem(2), "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 100);
    run(problem(2), 1);
    CHECK_INT(stats().measured, 1);
}

static void other_batches_follow(void)
{
    start(TC_POLICY_NEAREST);
    put(problem(4), "engine=fake;version=1;device=any;~patch=1", "other", TC_MEASURED, 100);
    run(problem(4), 1);
    run(problem(2), 1);
    CHECK_INT(fake.runs("other"), 2);
    CHECK_INT(stats().copied, 2);
}

static void thousands_of_twins_are_looked_through(void)
{
    start(TC_POLICY_NEAREST);
    char environment[TC_ENVIRONMENT_SIZE];
    for (int i = 10; i < 5010; i++) {
        snprintf(environment, sizeof environment, "engine=fake;version=1;device=any;~patch=%d", i);
        put(problem(2), environment, i == 2000 ? "other" : "standard", TC_MEASURED, i == 2000 ? 9 : 1);
    }
    run(problem(2), 1);
    CHECK_INT(fake.runs("other"), 1);
}

const test_case soft_cases[] = {
    {"soft/is_used_and_rechecked_once", is_used_and_rechecked_once},
    {"soft/is_used_where_every_size_is_measured", is_used_where_every_size_is_measured},
    {"soft/hard_fields_are_no_hit", hard_fields_are_no_hit},
    {"soft/what_cannot_run_is_a_miss_and_stays", what_cannot_run_is_a_miss_and_stays},
    {"soft/the_higher_then_the_later_is_taken", the_higher_then_the_later_is_taken},
    {"soft/its_own_environment_comes_first", its_own_environment_comes_first},
    {"soft/what_comes_later_takes_its_place", what_comes_later_takes_its_place},
    {"soft/a_choice_that_somebody_made_stays_one", a_choice_that_somebody_made_stays_one},
    {"soft/is_used_where_nothing_is_measured", is_used_where_nothing_is_measured},
    {"soft/a_refresh_measures_at_once", a_refresh_measures_at_once},
    {"soft/other_batches_follow", other_batches_follow},
    {"soft/thousands_of_twins_are_looked_through", thousands_of_twins_are_looked_through},
    {NULL, NULL},
};
