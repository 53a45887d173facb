/* What is stored is used, on every device it is for, and never measured again. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3};
static const fake_algorithm other = {.name = "other", .seconds = 0.9e-3};

static void put(const tc_conv *conv, const char *algorithm)
{
    tc_record record = record_of(conv, algorithm);
    CHECK_INT(tc_registry_put(&record), TC_OK);
}

static void set_mode(int32_t mode)
{
    tc_config settings = config();
    settings.mode = mode;
    configure(settings);
}

static void a_hit_measures_nothing(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2);
    put(&conv, "other");
    for (int i = 0; i < 3; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), 3);
    CHECK_INT(fake.runs("standard") + fake.runs("fast"), 0);
    CHECK_INT(fake.prepares("other"), 1);
    CHECK_INT(fake.listings(), can_find ? 0 : 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().measured + stats().defaults, 0);
    CHECK(stats().tuning_seconds == 0);
    expect_no_warning();
}

static void another_key_or_environment_is_no_hit(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2), padded = conv;
    padded.dilation[0] = 2; /* and pads that make the same output */
    padded.pad_before[0] = padded.pad_after[0] = 2;
    CHECK_INT(tc_conv_infer_output(&padded), TC_OK);
    put(&padded, "other");
    tc_record record = record_of(&conv, "other");
    strcpy(record.environment, "engine=fake;version=2;device=any");
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().hits, 0);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(record_count(), 3); /* those of elsewhere are kept */
}

static void run_what_is_stored_for_another_order_of_the_filter(int32_t device, const char *algorithm)
{
    begin(device);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2), keras = conv;
    keras.w_layout = TC_HWIO;
    conv.w_layout = TC_OHWI;
    put(&keras, algorithm);
    CHECK_INT(convolve(&conv), TC_OK);
    expect_no_warning();
}

static void another_order_of_the_filter_is_a_hit_on_gpus(void)
{
    run_what_is_stored_for_another_order_of_the_filter(TC_CUDA, "other");
    CHECK_INT(fake.runs("other"), 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().measured, 0);
    CHECK_INT(record_count(), 1);
}

static void another_order_of_the_filter_is_another_key_on_cpus(void)
{
    run_what_is_stored_for_another_order_of_the_filter(TC_CPU, "other");
    CHECK_INT(stats().measured, 1);
    CHECK_INT(record_count(), 2);
}

static void an_algorithm_for_that_order_only_is_no_hit(void)
{
    run_what_is_stored_for_another_order_of_the_filter(TC_CUDA, "of another order");
    CHECK_INT(stats().measured, 1);
    CHECK_INT(record_count(), 2);
}

static void a_second_device_of_the_model_takes_the_result(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    fake.set_model(0, "H200");
    fake.set_model(1, "H200");
    fake.set_model(2, "A100");
    tc_conv conv = problem(2);
    tc_context ctx = context();
    for (ctx.device_ordinal = 0; ctx.device_ordinal < 3; ctx.device_ordinal++)
        CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(stats().measured, 2);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(record_count(), 2);
    CHECK_INT(fake.prepares("fast"), 3); /* no plan is shared between devices */
}

static void a_refresh_does_not_repeat_what_another_device_measured(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    set_mode(TC_MODE_REFRESH);
    tc_conv conv = problem(2);
    tc_context ctx = context();
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    ctx.device_ordinal = 1;
    for (int i = 0; i < 3; i++)
        CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(fake.prepares("fast"), 2);
}

/* Turned on later, it repeats once what this process measured before; each time it is turned on. */
static void a_refresh_repeats_what_was_measured_before(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_TEXT(only_record().algorithm, "fast");
    fake_algorithm faster = other;
    for (int i = 0; i < 2; i++) {
        faster.seconds = i ? 0.1e-3 : 0.3e-3;
        strcpy(faster.name, i ? "third" : "second");
        SCRIPT(standard, fast, faster);
        set_mode(TC_MODE_REFRESH);
        CHECK_INT(convolve(&conv), TC_OK);
        CHECK_INT(stats().measured, 1);
        CHECK_TEXT(only_record().algorithm, faster.name);
        int64_t runs = fake.runs("standard");
        CHECK_INT(convolve(&conv), TC_OK);
        set_mode(TC_MODE_SEARCH);
        CHECK_INT(convolve(&conv), TC_OK);
        CHECK_INT(fake.runs("standard"), runs);
    }
}

static void what_was_measured_here_stays(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    put(&conv, "other");
    CHECK_TEXT(only_record().algorithm, "fast");
    int64_t runs = fake.runs("other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), runs);
}

static void a_mere_default_gives_way(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2), foreign = problem(3);
    set_mode(TC_MODE_HEURISTIC);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().defaults, 1);
    put(&foreign, "other"); /* another key's record changes nothing */
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard"), 2);
    CHECK_INT(fake.prepares("standard"), 1);
    put(&conv, "other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), 1);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().defaults, 0);
}

static void a_heuristic_run_measures_nothing(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    set_mode(TC_MODE_HEURISTIC);
    tc_conv conv = problem(2);
    for (int i = 0; i < 5; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard"), 5);
    CHECK_INT(fake.runs("fast"), 0);
    CHECK_INT(record_count(), 0);
    set_mode(TC_MODE_SEARCH);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().defaults, 0);
}

static void a_replay_wants_everything_stored(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast, other);
    tc_conv conv = problem(2), stored = problem(3);
    char key[TC_KEY_SIZE];
    key_of(&conv, key);
    set_mode(TC_MODE_HEURISTIC);
    CHECK_INT(convolve(&conv), TC_OK); /* a default from before does not count as stored */
    set_mode(TC_MODE_REPLAY);
    put(&stored, "other");
    CHECK_INT(convolve(&stored), TC_OK);
    CHECK_INT(fake.runs("other"), 1);
    CHECK_INT(convolve(&conv), TC_NOT_FOUND);
    CHECK_HAS(tc_last_error(), key);
    CHECK_HAS(tc_last_error(), "set mode to search");
    put(&conv, "fast");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().hits, 2);
}

/* ---- records that are of no use here --------------------------------------------------------------------- */

static void check_left_out(const tc_conv *conv, const char *algorithm, const char *reason)
{
    char key[TC_KEY_SIZE];
    key_of(conv, key);
    put(conv, algorithm);
    CHECK_INT(convolve(conv), TC_OK);
    CHECK_INT(stats().hits, 0);
    CHECK_INT(stats().measured, 1);
    CHECK(strcmp(only_record().algorithm, algorithm) != 0);
    char warning[TC_MESSAGE_SIZE];
    CHECK(tc_take_warning(warning, sizeof warning) > 0);
    CHECK_HAS(warning, algorithm);
    CHECK_HAS(warning, key);
    CHECK_HAS(warning, reason);
    expect_no_warning();
    put(conv, algorithm); /* loading the file again changes nothing */
    CHECK_INT(convolve(conv), TC_OK);
    expect_no_warning();
    tc_registry_clear();
}

static void ineligible_algorithms_are_left_out(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2), deterministic = conv;
    deterministic.deterministic = 1;
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT | TC_CANDIDATE_DETERMINISTIC};
    fake_algorithm broken = {.name = "broken", .seconds = 1e-6, .prepare_status = TC_ENGINE_FAILURE};
    SCRIPT(standard, fast, loops, broken);
    check_left_out(&conv, "rm -rf", "not one of the algorithms");
    check_left_out(&conv, "loops", "last resort");
    check_left_out(&conv, "broken", "scripted to fail");
    check_left_out(&deterministic, "fast", "not one of the algorithms");
}

static void a_rejected_record_is_not_handed_out(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    set_mode(TC_MODE_HEURISTIC);
    tc_conv conv = problem(2);
    put(&conv, "gone");
    CHECK_INT(record_count(), 1);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_INT(record_count(), 0);
    expect_warning("gone");
    put(&conv, "gone");
    CHECK_INT(record_count(), 0);
    put(&conv, "fast"); /* another choice has its chance */
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("fast"), 1);
    CHECK_INT(record_count(), 1);
}

/* ---- workspace that no longer fits -------------------------------------------------------------------------- */

static size_t available;
static void *allocate(void *user, size_t bytes)
{
    static char memory[1 << 16];
    (void)user;
    return bytes <= available ? memory : NULL;
}

static void no_memory_runs_something_smaller(void)
{
    begin(TC_CUDA);
    fake_algorithm large = {.name = "large", .workspace = 4096}, small = {.name = "small", .workspace = 64},
                   larger = {.name = "larger", .workspace = 8192};
    SCRIPT(larger, small, large, standard);
    tc_conv conv = problem(2);
    tc_record record = record_of(&conv, "large");
    strcpy(record.runner_up, "small");
    CHECK_INT(tc_registry_put(&record), TC_OK);
    tc_context ctx = context();
    ctx.allocate = allocate;
    available = 1024;
    for (int i = 0; i < 3; i++)
        CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(fake.runs("small"), 3); /* the runner-up */
    CHECK_INT(fake.prepares("small"), 1);
    CHECK_INT(fake.prepares("larger"), 0);
    CHECK_INT(stats().hits, 1);
    expect_warning("'large' needs 4096 bytes");
    available = 0;
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(fake.runs("standard"), 1);
    available = 1 << 16; /* no fault of the algorithm */
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(fake.runs("large"), 1);
    CHECK_TEXT(only_record().algorithm, "large");
}

static void the_limit_holds_for_stored_choices(void)
{
    begin(TC_CPU);
    fake_algorithm large = {.name = "large", .workspace = 4096};
    SCRIPT(large, standard);
    tc_conv conv = problem(2);
    put(&conv, "large");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("large"), 1);
    tc_config settings = config();
    settings.workspace_limit_bytes = 4095;
    configure(settings);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("large"), 1);
    CHECK_INT(fake.runs("standard"), 1);
    CHECK_TEXT(only_record().algorithm, "large");
}

const test_case stored_cases[] = {
    {"stored/a_hit_measures_nothing", a_hit_measures_nothing},
    {"stored/another_key_or_environment_is_no_hit", another_key_or_environment_is_no_hit},
    {"stored/another_order_of_the_filter_is_a_hit_on_gpus", another_order_of_the_filter_is_a_hit_on_gpus},
    {"stored/another_order_of_the_filter_is_another_key_on_cpus", another_order_of_the_filter_is_another_key_on_cpus},
    {"stored/an_algorithm_for_that_order_only_is_no_hit", an_algorithm_for_that_order_only_is_no_hit},
    {"stored/a_second_device_of_the_model_takes_the_result", a_second_device_of_the_model_takes_the_result},
    {"stored/a_refresh_does_not_repeat_what_another_device_measured",
     a_refresh_does_not_repeat_what_another_device_measured},
    {"stored/a_refresh_repeats_what_was_measured_before", a_refresh_repeats_what_was_measured_before},
    {"stored/what_was_measured_here_stays", what_was_measured_here_stays},
    {"stored/a_mere_default_gives_way", a_mere_default_gives_way},
    {"stored/a_heuristic_run_measures_nothing", a_heuristic_run_measures_nothing},
    {"stored/a_replay_wants_everything_stored", a_replay_wants_everything_stored},
    {"stored/ineligible_algorithms_are_left_out", ineligible_algorithms_are_left_out},
    {"stored/a_rejected_record_is_not_handed_out", a_rejected_record_is_not_handed_out},
    {"stored/no_memory_runs_something_smaller", no_memory_runs_something_smaller},
    {"stored/the_limit_holds_for_stored_choices", the_limit_holds_for_stored_choices},
    {NULL, NULL},
};
