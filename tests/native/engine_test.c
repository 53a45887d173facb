/* Opening, asking and closing engines, and what convolutions of no elements give. */
#include <stdlib.h>

#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};

static void engines_are_opened_by_name(void)
{
    CHECK_INT(tc_engine_is_open("reference"), 0);
    CHECK_INT(tc_engine_open("unheard of", NULL), TC_NOT_FOUND);
    CHECK_HAS(tc_last_error(), "reference");
    CHECK_INT(tc_engine_open(NULL, NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    CHECK_INT(tc_engine_is_open("reference"), 1);
    CHECK_INT(tc_engine_is_open(NULL), 0);
    char text[TC_MESSAGE_SIZE];
    CHECK_INT(tc_engine_describe("reference", text, sizeof text), TC_OK);
    CHECK_HAS(text, "reference");
    CHECK_INT(tc_engine_describe("fake", text, sizeof text), TC_NOT_FOUND);
    CHECK_INT(tc_environment(TC_CPU, 0, text, sizeof text), TC_OK);
    CHECK_TEXT(text, "engine=reference;version=1");
    CHECK_INT(tc_engine_close("reference"), TC_OK);
    CHECK_INT(tc_engine_close("reference"), TC_NOT_FOUND);
    CHECK_INT(tc_environment(TC_CPU, 0, text, sizeof text), TC_UNAVAILABLE);
    CHECK_HAS(tc_last_error(), "tc_engine_open");
}

static void only_engines_are_loaded(void)
{
    CHECK_INT(tc_engine_load("/nowhere/libengine.so"), TC_UNAVAILABLE);
    CHECK_INT(tc_engine_load(NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_engine_load("libm.so.6"), TC_INVALID_ARGUMENT);
    CHECK_HAS(tc_last_error(), "tunedconv_engine_entry");
    begin(TC_CUDA);
    CHECK_INT(tc_engine_load(fake_library()), TC_INVALID_ARGUMENT); /* it is open already */
    CHECK_INT(tc_engine_close("fake"), TC_OK);
    fake.set_device_kind(7);
    CHECK_INT(tc_engine_load(fake_library()), TC_INVALID_ARGUMENT);
    CHECK_HAS(tc_last_error(), "device kind 7");
}

/* An engine of last resort is asked last, whatever was opened first. */
static void last_resorts_are_asked_last(void)
{
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    begin(TC_CPU);
    SCRIPT(standard);
    char text[TC_ENVIRONMENT_SIZE];
    CHECK_INT(tc_environment(TC_CPU, 0, text, sizeof text), TC_OK);
    CHECK_HAS(text, "engine=fake");
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard") > 0, 1);
    conv.x_dtype = conv.w_dtype = conv.y_dtype = TC_F64; /* which only the plain loops do */
    CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_UNSUPPORTED);
}

/* Whether there is one at all needs no list, but where last resorts or others decide it. */
static void support_is_told_by_one_algorithm(void)
{
    begin(TC_CUDA);
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT}, second = {.name = "second"};
    tc_conv conv = problem(2), deterministic = conv;
    deterministic.deterministic = 1;
    SCRIPT(loops, second, standard);
    CHECK_INT(tc_supported(&conv, TC_CUDA, 0), TC_OK);
    CHECK_INT(fake.listings(), can_find ? 0 : 1);
    CHECK_INT(tc_supported(&deterministic, TC_CUDA, 0), TC_OK); /* by "standard", the third */
    SCRIPT(loops);
    conv = problem(3);
    CHECK_INT(tc_supported(&conv, TC_CUDA, 0), TC_UNSUPPORTED);
    SCRIPT(second);
    deterministic.x_dims[0] = deterministic.y_dims[0] = 3;
    CHECK_INT(tc_supported(&deterministic, TC_CUDA, 0), TC_UNSUPPORTED);
}

/* Names out of files: one that is a last resort, or not deterministic where that is asked for, is left out. */
static void what_is_found_by_name_is_as_eligible_as_what_is_listed(void)
{
    begin(TC_CUDA);
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT}, second = {.name = "second"};
    SCRIPT(standard, second, loops);
    tc_conv conv = problem(2), deterministic = problem(3);
    deterministic.deterministic = 1;
    tc_record record = record_of(&conv, "loops"), other = record_of(&deterministic, "second");
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(tc_registry_put(&other), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    expect_warning("the stored algorithm 'loops' is left out");
    CHECK_INT(convolve(&deterministic), TC_OK);
    expect_warning("the stored algorithm 'second' is left out");
    CHECK_INT(fake.runs("loops"), 0);
    CHECK_INT(stats().hits, 0);
    CHECK_INT(stats().measured, 2);
}

/* Frameworks with other settings have one key where the settings make no difference. */
static void what_makes_no_difference_is_in_no_key(void)
{
    for (int exact = 0; exact < 2; exact++) {
        if (exact) {
            CHECK_INT(tc_engine_close("fake"), TC_OK);
            tc_registry_clear();
            fake.set_exact(1);
            CHECK_INT(tc_engine_load(fake_library()), TC_OK);
        } else {
            begin(TC_CUDA);
        }
        SCRIPT(standard);
        tc_conv conv = problem(2);
        for (int i = 0; i < 4; i++) {
            conv.deterministic = i & 1;
            conv.allow_tf32 = i >> 1;
            CHECK_INT(tc_supported(&conv, TC_CUDA, 0), TC_OK);
            CHECK_INT(convolve(&conv), TC_OK);
            double seconds;
            CHECK_INT(tc_time_lookup(&conv, TC_CUDA, 0, 1, &seconds), TC_OK);
        }
        CHECK_INT(record_count(), exact ? 1 : 4);
    }
    CHECK_HAS(only_record().key, "|tf32=0|deterministic=0|");
    CHECK_INT(only_record().math_type, 0);
}

static void candidates_are_listed(void)
{
    begin(TC_CUDA);
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT}, second = {.name = "second"};
    SCRIPT(loops, standard, second);
    tc_conv conv = problem(2);
    size_t size = 0;
    CHECK_INT(tc_candidates(&conv, TC_CUDA, 0, NULL, &size), TC_OK);
    CHECK_INT(size, sizeof "standard\nsecond\nloops");
    char *text = malloc(size); /* a sanitizer sees a byte too many */
    CHECK_INT(tc_candidates(&conv, TC_CUDA, 0, text, &size), TC_OK);
    CHECK_TEXT(text, "standard\nsecond\nloops");
    size_t too_small = size - 1;
    CHECK_INT(tc_candidates(&conv, TC_CUDA, 0, text, &too_small), TC_INVALID_ARGUMENT);
    CHECK_INT(too_small, size);
    free(text);
    conv.deterministic = 1;
    CHECK_INT(tc_candidates(&conv, TC_CUDA, 0, NULL, &size), TC_OK);
    CHECK_INT(size, sizeof "standard");
    CHECK_INT(tc_candidates(&conv, TC_CPU, 0, NULL, &size), TC_UNAVAILABLE);
    CHECK_INT(tc_candidates(&conv, TC_CUDA, 0, NULL, NULL), TC_INVALID_ARGUMENT);
}

static void support_is_remembered_until_engines_change(void)
{
    tc_conv conv = problem(2), doubles = conv;
    doubles.x_dtype = doubles.w_dtype = doubles.y_dtype = TC_F64;
    CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_UNAVAILABLE);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_OK); /* where there is nothing else */
    CHECK_INT(tc_supported(&doubles, TC_CPU, 0), TC_OK);
    begin(TC_CPU);
    fake_algorithm loops = {.name = "loops", .flags = TC_CANDIDATE_LAST_RESORT};
    SCRIPT(loops);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_UNSUPPORTED);
        CHECK_INT(tc_supported(&doubles, TC_CPU, 0), TC_UNSUPPORTED);
    }
    CHECK_INT(tc_engine_close("fake"), TC_OK);
    begin(TC_CPU);
    SCRIPT(standard);
    CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_OK);
    conv.groups = 0;
    CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_INVALID_ARGUMENT);
}

static void closing_forgets_the_plans(void)
{
    begin(TC_CUDA);
    fake_algorithm fast = {.name = "fast", .seconds = 1e-4};
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.live_plans(), 1);
    CHECK_INT(tc_engine_close("fake"), TC_OK);
    CHECK_INT(fake.live_plans(), 0);
    CHECK_INT(convolve(&conv), TC_UNAVAILABLE);
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("fast"), 1); /* what was measured is still known */
    CHECK_INT(record_count(), 1);
}

/* What fell back on plain loops gets a real engine once there is one. */
static void a_later_engine_takes_over(void)
{
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    tc_conv conv = problem(2);
    tc_context ctx = {.device_kind = TC_CPU};
    fill_operands();
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(tc_convolve(&conv, &ctx, &operands), TC_OK);
    CHECK_INT(stats().fallbacks, 1);
    begin(TC_CPU);
    SCRIPT(standard);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().fallbacks, 0);
    CHECK_INT(stats().measured, 1);
}

static void bad_calls_are_refused(void)
{
    begin(TC_CUDA);
    SCRIPT(standard);
    tc_conv conv = problem(2), malformed = conv;
    tc_context ctx = context(), nowhere = {.device_kind = 5};
    tc_operands missing = operands;
    missing.w = NULL;
    malformed.stride[0] = 0;
    CHECK_INT(tc_convolve(NULL, &ctx, &operands), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_convolve(&conv, NULL, &operands), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_convolve(&conv, &ctx, NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_convolve(&conv, &nowhere, &operands), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_convolve(&conv, &ctx, &missing), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_convolve(&malformed, &ctx, &operands), TC_INVALID_ARGUMENT);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(stats().measured + stats().defaults, 0);
}

static void empty_convolutions_give_zeros(void)
{
    begin(TC_CUDA);
    SCRIPT(standard);
    tc_conv conv = problem(0);
    CHECK_INT(convolve(&conv), TC_OK); /* nothing to write */
    conv.direction = TC_BACKWARD_FILTER;
    w_data[0] = w_data[4 * 3 * 3 * 3 - 1] = w_data[4 * 3 * 3 * 3] = 5;
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK(w_data[0] == 0 && w_data[4 * 3 * 3 * 3 - 1] == 0);
    CHECK(w_data[4 * 3 * 3 * 3] == 5); /* beyond the filter */
    tc_operands nowhere = operands;
    nowhere.w = NULL;
    tc_context ctx = context();
    CHECK_INT(tc_convolve(&conv, &ctx, &nowhere), TC_INVALID_ARGUMENT);
    conv = problem(2);
    conv.x_dims[1] = conv.w_dims[1] = 0; /* a sum over no channels */
    y_data[0] = 5;
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK(y_data[0] == 0);
    CHECK_INT(tc_supported(&conv, TC_CUDA, 0), TC_OK);
    CHECK_INT(fake.runs("standard"), 0);
    CHECK_INT(record_count(), 0);
    CHECK_INT(stats().measured + stats().defaults + stats().fallbacks, 0);
    CHECK_INT(tc_engine_close("fake"), TC_OK);
    CHECK_INT(convolve(&conv), TC_UNAVAILABLE);
}

static void one_algorithm_runs_by_name(void)
{
    begin(TC_CPU);
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    fake_algorithm scratch = {.name = "scratch", .seconds = 2e-3, .workspace = 128};
    SCRIPT(standard, scratch);
    tc_conv conv = problem(2);
    tc_context ctx = context();
    double seconds = -1;
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, "scratch", 0, &seconds), TC_OK);
    CHECK(seconds == 0);
    CHECK_INT(fake.runs("scratch"), 1);
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, "scratch", 5, &seconds), TC_OK);
    CHECK_NEAR(seconds, 2e-3, 1e-6);
    CHECK_INT(fake.runs("scratch"), 7);
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, "reference", 0, NULL), TC_OK); /* the other engine's */
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, "unheard of", 0, NULL), TC_NOT_FOUND);
    CHECK_HAS(tc_last_error(), "unheard of");
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, "standard", -1, NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_run_algorithm(&conv, &ctx, &operands, NULL, 0, NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(fake.live_plans(), 0);
    CHECK_INT(record_count(), 0);
    CHECK_INT(stats().measured + stats().defaults, 0);
}

static void the_table_has_what_bridges_need(void)
{
    const tc_api *api = tc_get_api();
    CHECK_INT(api->abi_version, TC_ABI_VERSION);
    CHECK_INT(api->size, sizeof *api);
    CHECK(api->convolve == tc_convolve && api->supported == tc_supported && api->conv_check == tc_conv_check);
    CHECK(api->last_error == tc_last_error && api->candidate_add == tc_candidate_add && api->fail == tc_fail);
    CHECK(api == tc_get_api());
    CHECK_TEXT(tc_status_name(TC_OUT_OF_MEMORY), "out of memory");
    CHECK_TEXT(tc_status_name(99), "unknown status");
}

const test_case engine_cases[] = {
    {"engine/engines_are_opened_by_name", engines_are_opened_by_name},
    {"engine/only_engines_are_loaded", only_engines_are_loaded},
    {"engine/last_resorts_are_asked_last", last_resorts_are_asked_last},
    {"engine/support_is_told_by_one_algorithm", support_is_told_by_one_algorithm},
    {"engine/what_is_found_by_name_is_as_eligible_as_what_is_listed",
     what_is_found_by_name_is_as_eligible_as_what_is_listed},
    {"engine/what_makes_no_difference_is_in_no_key", what_makes_no_difference_is_in_no_key},
    {"engine/candidates_are_listed", candidates_are_listed},
    {"engine/support_is_remembered_until_engines_change", support_is_remembered_until_engines_change},
    {"engine/closing_forgets_the_plans", closing_forgets_the_plans},
    {"engine/a_later_engine_takes_over", a_later_engine_takes_over},
    {"engine/bad_calls_are_refused", bad_calls_are_refused},
    {"engine/empty_convolutions_give_zeros", empty_convolutions_give_zeros},
    {"engine/one_algorithm_runs_by_name", one_algorithm_runs_by_name},
    {"engine/the_table_has_what_bridges_need", the_table_has_what_bridges_need},
    {NULL, NULL},
};
