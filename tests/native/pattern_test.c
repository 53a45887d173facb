/* Algorithms asked for by a pattern: for which convolutions, in which order, and until when. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3};
static const fake_algorithm other = {.name = "other", .seconds = 0.9e-3};

/* They outlive a case, and all cases may run in one process: each begins by ending those of the one before. */
static tc_conv asked[16];
static size_t asked_count;

static tc_conv start(void)
{
    begin(TC_CUDA);
    while (asked_count > 0)
        CHECK_INT(tc_set_pattern_override(&asked[--asked_count], NULL), TC_OK);
    SCRIPT(standard, fast, other);
    return problem(2);
}

static void ask(const tc_conv *pattern, const char *algorithm)
{
    CHECK_INT(tc_set_pattern_override(pattern, algorithm), TC_OK);
    CHECK(asked_count < sizeof asked / sizeof *asked);
    asked[asked_count++] = *pattern;
}

static void runs_what_is_asked_for_in_every_batch(void)
{
    tc_conv conv = start(), larger = problem(3);
    ask(&conv, "other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(convolve(&larger), TC_OK);
    CHECK_INT(fake.runs("other"), 2);
    CHECK_INT(fake.runs("standard") + fake.runs("fast"), 0);
    CHECK_INT(stats().measured + stats().hits + stats().defaults, 0);
    CHECK_INT(record_count(), 0);
}

static void holds_for_keys_that_ran_before_and_ends(void)
{
    tc_conv conv = start();
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    int64_t before = fake.runs("other");
    ask(&conv, "other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), before + 1);
    ask(&conv, NULL);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), before + 1);
    CHECK_TEXT(only_record().algorithm, "fast");
}

static void leaves_other_convolutions_alone(void)
{
    tc_conv conv = start(), each;
    ask(&conv, "none such");
#define UNTOUCHED(...)                                      \
    do {                                                    \
        each = conv;                                        \
        __VA_ARGS__;                                        \
        CHECK_INT(tc_conv_infer_output(&each), TC_OK);      \
        CHECK_INT(convolve(&each), TC_OK);                  \
    } while (0)
    UNTOUCHED(each.pad_before[0] = each.pad_after[0] = 0);
    UNTOUCHED(each.stride[0] = 2);
    UNTOUCHED(each.dilation[0] = 2, each.pad_before[0] = each.pad_after[0] = 2);
    UNTOUCHED(each.x_dims[2]--);
    UNTOUCHED(each.direction = TC_BACKWARD_DATA);
    CHECK_INT(convolve(&conv), TC_NOT_FOUND);
    CHECK_HAS(tc_last_error(), "the override 'none such' cannot run");
    CHECK_HAS(tc_last_error(), "standard, fast, other");
}

static void an_unknown_size_stands_for_all(void)
{
    tc_conv conv = start(), pattern = conv;
    memset(pattern.x_dims, 0, sizeof pattern.x_dims);
    memset(pattern.pad_before, 0x55, sizeof pattern.pad_before); /* of no meaning without the size */
    ask(&pattern, "other");
    CHECK_INT(convolve(&conv), TC_OK);
    conv.x_dims[2]--;
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), 2);
}

static void the_later_pattern_counts_and_a_direction_stands_above(void)
{
    tc_conv conv = start(), pattern = conv;
    pattern.x_dims[2] = 0;
    ask(&conv, "other");
    ask(&pattern, "standard");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard"), 1);
    ask(&conv, "other");
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("other"), 1);
    CHECK_INT(tc_set_override(TC_FORWARD, "fast"), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("fast"), 1);
    CHECK_INT(tc_set_override(-1, NULL), TC_OK);
    ask(&conv, NULL);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(fake.runs("standard"), 2);
}

static void refuses_bad_patterns(void)
{
    tc_conv conv = start(), bad = conv;
    char name[300];
    memset(name, 'x', sizeof name);
    name[299] = '\0';
    CHECK_INT(tc_set_pattern_override(NULL, "other"), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_set_pattern_override(&conv, ""), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_set_pattern_override(&conv, name), TC_INVALID_ARGUMENT);
    bad.direction = 3;
    CHECK_INT(tc_set_pattern_override(&bad, "other"), TC_INVALID_ARGUMENT);
    bad = conv;
    bad.spatial_rank = 4;
    CHECK_INT(tc_set_pattern_override(&bad, "other"), TC_INVALID_ARGUMENT);
    ask(&conv, NULL); /* ends nothing */
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
}

const test_case pattern_cases[] = {
    {"pattern/runs_what_is_asked_for_in_every_batch", runs_what_is_asked_for_in_every_batch},
    {"pattern/holds_for_keys_that_ran_before_and_ends", holds_for_keys_that_ran_before_and_ends},
    {"pattern/leaves_other_convolutions_alone", leaves_other_convolutions_alone},
    {"pattern/an_unknown_size_stands_for_all", an_unknown_size_stands_for_all},
    {"pattern/the_later_pattern_counts_and_a_direction_stands_above",
     the_later_pattern_counts_and_a_direction_stands_above},
    {"pattern/refuses_bad_patterns", refuses_bad_patterns},
    {NULL, NULL},
};
