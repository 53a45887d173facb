/* Batch and image sizes that nothing is stored for: which algorithm is copied, and when they are measured. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3, .workspace = 64};
static const fake_algorithm other = {.name = "other", .seconds = 0.9e-3};

static void start(int32_t copies_before_measuring, int32_t maximum_sizes)
{
    begin(TC_CPU);
    SCRIPT(standard, fast, other);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_NEAREST;
    settings.copies_before_measuring = copies_before_measuring;
    settings.maximum_sizes = maximum_sizes;
    configure(settings);
}

static tc_conv sized(int64_t batch, int64_t height, int64_t width)
{
    tc_conv conv = problem(batch);
    conv.x_dims[2] = height;
    conv.x_dims[3] = width;
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    return conv;
}

static void put(tc_conv conv, const char *algorithm, int32_t provenance)
{
    tc_record record = record_of(&conv, algorithm);
    record.provenance = provenance;
    CHECK_INT(tc_registry_put(&record), TC_OK);
}

static void run(tc_conv conv)
{
    CHECK_INT(convolve(&conv), TC_OK);
}

static tc_record record_for(tc_conv conv)
{
    tc_record records[64];
    size_t count;
    char key[TC_KEY_SIZE];
    key_of(&conv, key);
    CHECK_INT(tc_registry_collect(0, records, 64, &count), TC_OK);
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++)
        if (strcmp(records[i].key, key) == 0)
            return records[i];
    fail_check(__FILE__, __LINE__, "there is no record of %s", key);
}

static void the_first_batch_is_measured_and_others_copy_it(void)
{
    start(20, 4);
    run(problem(4));
    CHECK_INT(stats().measured, 1);
    int64_t standards = fake.runs("standard"), fasts = fake.runs("fast");
    double seconds = stats().tuning_seconds;
    int64_t listings = fake.listings();
    run(problem(2));
    run(problem(3));
    run(problem(2));
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().copied, 2);
    CHECK_INT(fake.listings() - listings, can_find ? 0 : 2);
    CHECK_INT(stats().hits + stats().defaults, 0);
    CHECK_INT(fake.runs("standard"), standards);
    CHECK_INT(fake.runs("fast"), fasts + 3);
    CHECK(stats().tuning_seconds == seconds);
    tc_record record = record_for(problem(2));
    CHECK_TEXT(record.algorithm, "fast");
    CHECK_TEXT(record.runner_up, record_for(problem(4)).runner_up);
    CHECK_TEXT(record.environment, "engine=fake;version=1;device=any");
    CHECK_INT(record.provenance, TC_COPIED);
    CHECK_INT(record.workspace_bytes, 64);
    CHECK_INT(record.deterministic, 0);
    CHECK_INT(record.candidates_total, 0);
    CHECK(record.time_seconds == 0 && record.default_seconds == 0 && record.created > 0);
    expect_no_warning();
}

static void exact_measures_each(void)
{
    start(20, 1);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_EXACT;
    configure(settings);
    run(problem(4));
    run(problem(2));
    run(sized(4, 5, 5));
    CHECK_INT(stats().measured, 3);
    CHECK_INT(stats().copied, 0);
}

static void exact_measures_what_was_copied_before(void)
{
    start(20, 4);
    put(problem(4), "other", TC_MEASURED);
    put(problem(8), "other", TC_COPIED);
    run(problem(2));
    CHECK_INT(stats().copied, 1);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_EXACT;
    configure(settings);
    run(problem(2));
    CHECK_INT(stats().measured, 1);
    run(problem(8));
    CHECK_INT(stats().measured, 2);
    CHECK_INT(stats().copied, 0);
}

static void check_copy(tc_conv conv, const char *algorithm)
{
    run(conv);
    tc_record record = record_for(conv);
    CHECK_TEXT(record.algorithm, algorithm);
    CHECK_INT(record.provenance, TC_COPIED);
    CHECK_INT(stats().measured, 0);
}

static void the_nearest_batch_by_ratio_counts(void)
{
    start(20, 4);
    put(problem(2), "other", TC_MEASURED);
    put(problem(8), "fast", TC_MEASURED);
    check_copy(problem(3), "other");
    check_copy(problem(1), "other");
    check_copy(problem(6), "fast");
    check_copy(problem(64), "fast");
    check_copy(problem(4), "fast"); /* as far from both: the larger */
}

static void a_measured_batch_stands_above_a_nearer_copy(void)
{
    start(20, 4);
    put(problem(7), "other", TC_COPIED);
    check_copy(problem(6), "other"); /* better than nothing */
    put(problem(1), "fast", TC_MEASURED);
    check_copy(problem(8), "fast");
}

static void only_relatives_of_the_environment_are_copied(void)
{
    start(20, 4);
    tc_conv conv = problem(4), dilated = conv, backward = conv;
    dilated.dilation[0] = dilated.pad_before[0] = dilated.pad_after[0] = 2;
    CHECK_INT(tc_conv_infer_output(&dilated), TC_OK);
    backward.direction = TC_BACKWARD_DATA;
    put(dilated, "other", TC_MEASURED);
    put(backward, "other", TC_MEASURED);
    tc_record elsewhere = record_of(&conv, "other");
    strcpy(elsewhere.environment, "engine=fake;version=2;device=any");
    CHECK_INT(tc_registry_put(&elsewhere), TC_OK);
    run(problem(2));
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().copied, 0);
}

static void a_size_that_comes_back_often_is_measured(void)
{
    start(3, 4);
    put(problem(4), "other", TC_MEASURED);
    for (int i = 0; i < 3; i++)
        run(problem(2));
    CHECK_INT(fake.runs("other"), 3);
    CHECK_INT(stats().copied, 1);
    CHECK_INT(stats().measured, 0);
    run(problem(2));
    CHECK_INT(stats().copied, 0);
    CHECK_INT(stats().measured, 1);
    tc_record record = record_for(problem(2));
    CHECK_TEXT(record.algorithm, "fast");
    CHECK_INT(record.provenance, TC_MEASURED);
    int64_t standards = fake.runs("standard");
    run(problem(2));
    CHECK_INT(fake.runs("standard"), standards);
}

static void without_budget_the_copy_goes_on(void)
{
    start(2, 4);
    run(problem(4));
    tc_config settings = config();
    settings.process_budget_seconds = stats().tuning_seconds / 2;
    configure(settings);
    int64_t standards = fake.runs("standard");
    for (int i = 0; i < 10; i++)
        run(problem(2));
    CHECK_INT(fake.runs("standard"), standards);
    CHECK_INT(stats().copied, 1);
    CHECK_INT(stats().measured, 1);
}

static void a_stored_copy_runs_and_is_measured_when_it_comes_back_often(void)
{
    start(3, 4);
    put(problem(2), "other", TC_COPIED);
    for (int i = 0; i < 3; i++)
        run(problem(2));
    CHECK_INT(fake.runs("other"), 3);
    CHECK_INT(stats().copied, 1);
    run(problem(2));
    CHECK_INT(stats().measured, 1);
}

static void a_record_of_the_size_itself_ends_the_copy(void)
{
    start(20, 4);
    put(problem(4), "fast", TC_MEASURED);
    run(problem(2));
    CHECK_INT(stats().copied, 1);
    put(problem(2), "other", TC_MEASURED);
    run(problem(2));
    CHECK_INT(fake.runs("other"), 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().copied, 0);
}

static void modes_that_do_not_search_copy_nothing(void)
{
    start(20, 4);
    tc_config settings = config();
    put(problem(4), "other", TC_MEASURED);
    put(problem(8), "other", TC_COPIED);
    settings.mode = TC_MODE_HEURISTIC;
    configure(settings);
    run(problem(2));
    CHECK_INT(stats().defaults, 1);
    settings.mode = TC_MODE_REPLAY;
    configure(settings);
    tc_conv conv = problem(3);
    CHECK_INT(convolve(&conv), TC_NOT_FOUND);
    run(problem(8)); /* a stored copy is stored */
    CHECK_INT(fake.runs("other"), 1);
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    run(problem(8));
    CHECK_INT(stats().measured, 1);
    run(problem(3));
    CHECK_INT(stats().measured, 2);
}

static void what_cannot_run_is_not_copied(void)
{
    start(20, 4);
    fake_algorithm broken = {.name = "broken", .prepare_status = TC_ENGINE_FAILURE};
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT};
    fake_algorithm large = {.name = "large", .workspace = 1 << 20};
    SCRIPT(standard, fast, broken, large, loops);
    tc_config settings = config();
    settings.workspace_limit_bytes = 4095;
    configure(settings);
    static const char *const names[] = {"gone", "broken", "loops", "large"};
    for (int i = 0; i < 4; i++) {
        tc_registry_clear();
        put(problem(4), names[i], TC_MEASURED);
        run(problem(2));
        CHECK_INT(stats().copied, 0);
        CHECK_INT(stats().measured, 1);
        CHECK_TEXT(record_for(problem(2)).algorithm, "fast");
        expect_no_warning();
    }
}

static void a_copy_that_fails_is_replaced(void)
{
    start(20, 4);
    fake_algorithm broken = {.name = "broken", .run_status = TC_ENGINE_FAILURE};
    SCRIPT(standard, fast, broken);
    put(problem(4), "broken", TC_MEASURED);
    run(problem(2));
    CHECK_INT(fake.runs("standard"), 1);
    expect_warning("algorithm 'broken' failed");
    run(problem(2));
    CHECK_INT(fake.runs("broken"), 1);
    CHECK_INT(record_count(), 1); /* that of the other size */
}

static void a_few_sizes_are_measured_and_further_ones_copied(void)
{
    start(20, 2);
    run(sized(2, 6, 6));
    run(sized(2, 3, 3));
    CHECK_INT(stats().measured, 2);
    for (int64_t height = 2; height < 7; height++)
        for (int64_t width = 4; width < 6; width++)
            run(sized(2, height, width));
    CHECK_INT(stats().measured, 2);
    CHECK_INT(stats().copied, 10);
    run(sized(4, 3, 3)); /* another batch of a known size */
    CHECK_INT(stats().measured, 2);
    CHECK_INT(stats().copied, 11);
}

static void the_nearest_size_by_pixels_counts(void)
{
    start(20, 2);
    put(sized(2, 6, 6), "fast", TC_MEASURED);
    put(sized(2, 2, 2), "other", TC_MEASURED);
    check_copy(sized(2, 5, 5), "fast");
    check_copy(sized(2, 2, 3), "other");
    check_copy(sized(2, 3, 4), "fast"); /* as far from both: the larger */
}

static void copied_sizes_do_not_count_as_measured(void)
{
    start(20, 2);
    put(sized(2, 6, 6), "fast", TC_MEASURED);
    put(sized(4, 6, 6), "fast", TC_MEASURED); /* no other size */
    put(sized(2, 5, 5), "fast", TC_COPIED);
    run(sized(2, 3, 3));
    CHECK_INT(stats().measured, 1);
    run(sized(2, 2, 2));
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().copied, 1);
}

/* Paddings follow from the size under "same" with strides, and do not part a family. */
static void other_padding_is_another_size(void)
{
    start(20, 1);
    tc_conv conv = problem(2), padded = conv;
    put(conv, "other", TC_MEASURED);
    padded.x_dims[2] = 5;
    padded.pad_before[0] = 0;
    padded.pad_after[0] = 2;
    CHECK_INT(tc_conv_infer_output(&padded), TC_OK);
    check_copy(padded, "other");
}

static void thousands_of_records_are_looked_through(void)
{
    start(20, 4);
    for (int64_t batch = 100; batch < 5100; batch++)
        put(problem(batch), batch == 100 ? "fast" : "other", TC_MEASURED);
    run(problem(50));
    CHECK_INT(fake.runs("fast"), 1);
    CHECK_INT(stats().copied, 1);
}

/* A model's guess runs at once, is measured when it comes back often, and takes part in that. */
static void a_prediction_runs_and_is_measured_later(void)
{
    start(3, 4);
    put(problem(4), "other", TC_PREDICTED);
    run(problem(4));
    run(problem(4));
    CHECK_INT(fake.runs("other"), 2);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(stats().copied, 1);
    CHECK_INT(stats().measured + stats().hits, 0);
    CHECK_INT(record_for(problem(4)).provenance, TC_PREDICTED);
    run(problem(4));
    run(problem(4));
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().copied, 0);
    CHECK_TEXT(record_for(problem(4)).algorithm, "fast");
    CHECK_INT(record_for(problem(4)).provenance, TC_MEASURED);
}

static void exact_measures_predictions_at_once(void)
{
    start(20, 4);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_EXACT;
    configure(settings);
    put(problem(4), "other", TC_PREDICTED);
    run(problem(4));
    CHECK_INT(stats().measured, 1);
    CHECK_TEXT(record_for(problem(4)).algorithm, "fast");
}

static void a_measured_batch_stands_above_a_predicted_one(void)
{
    start(20, 4);
    put(problem(16), "fast", TC_MEASURED);
    put(problem(3), "other", TC_PREDICTED);
    run(problem(2));
    CHECK_INT(fake.runs("fast"), 1);
    CHECK_INT(stats().copied, 1);
}

static void a_prediction_that_cannot_run_is_left_out(void)
{
    start(20, 4);
    put(problem(4), "of another version", TC_PREDICTED);
    run(problem(4));
    CHECK_INT(stats().measured, 1);
    CHECK_TEXT(record_for(problem(4)).algorithm, "fast");
    expect_warning("of another version");
}

const test_case policy_cases[] = {
    {"policy/the_first_batch_is_measured_and_others_copy_it", the_first_batch_is_measured_and_others_copy_it},
    {"policy/exact_measures_each", exact_measures_each},
    {"policy/exact_measures_what_was_copied_before", exact_measures_what_was_copied_before},
    {"policy/the_nearest_batch_by_ratio_counts", the_nearest_batch_by_ratio_counts},
    {"policy/a_measured_batch_stands_above_a_nearer_copy", a_measured_batch_stands_above_a_nearer_copy},
    {"policy/only_relatives_of_the_environment_are_copied", only_relatives_of_the_environment_are_copied},
    {"policy/a_size_that_comes_back_often_is_measured", a_size_that_comes_back_often_is_measured},
    {"policy/without_budget_the_copy_goes_on", without_budget_the_copy_goes_on},
    {"policy/a_stored_copy_runs_and_is_measured_when_it_comes_back_often",
     a_stored_copy_runs_and_is_measured_when_it_comes_back_often},
    {"policy/a_record_of_the_size_itself_ends_the_copy", a_record_of_the_size_itself_ends_the_copy},
    {"policy/modes_that_do_not_search_copy_nothing", modes_that_do_not_search_copy_nothing},
    {"policy/what_cannot_run_is_not_copied", what_cannot_run_is_not_copied},
    {"policy/a_copy_that_fails_is_replaced", a_copy_that_fails_is_replaced},
    {"policy/a_few_sizes_are_measured_and_further_ones_copied", a_few_sizes_are_measured_and_further_ones_copied},
    {"policy/the_nearest_size_by_pixels_counts", the_nearest_size_by_pixels_counts},
    {"policy/copied_sizes_do_not_count_as_measured", copied_sizes_do_not_count_as_measured},
    {"policy/other_padding_is_another_size", other_padding_is_another_size},
    {"policy/a_prediction_runs_and_is_measured_later", a_prediction_runs_and_is_measured_later},
    {"policy/exact_measures_predictions_at_once", exact_measures_predictions_at_once},
    {"policy/a_measured_batch_stands_above_a_predicted_one", a_measured_batch_stands_above_a_predicted_one},
    {"policy/a_prediction_that_cannot_run_is_left_out", a_prediction_that_cannot_run_is_left_out},
    {"policy/thousands_of_records_are_looked_through", thousands_of_records_are_looked_through},
    {NULL, NULL},
};
