/* A candidate wins by right numbers only. */
#include <math.h>

#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 0.5e-3};

static void run(const tc_conv *conv)
{
    CHECK_INT(convolve(conv), TC_OK);
}

static void check_choice(const tc_conv *conv, const fake_algorithm *candidate, const char *chosen)
{
    SCRIPT(standard, *candidate);
    run(conv);
    CHECK_TEXT(only_record().algorithm, chosen);
    tc_registry_clear();
}

static void wrong_numbers_never_win(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(40); /* an output of more than one chunk's bytes */
    fake_algorithm wrong = fast;
    wrong.tint = 1;
    check_choice(&conv, &wrong, "standard");
    wrong.tint = 0.02;
    check_choice(&conv, &wrong, "standard");
    wrong.tint = 1e-4; /* as rounding and transforms do */
    check_choice(&conv, &wrong, "fast");
    wrong.tint = 0.002; /* as TF32 does, where it is allowed and where it is not */
    check_choice(&conv, &wrong, "standard");
    conv.allow_tf32 = 1;
    check_choice(&conv, &wrong, "fast");
}

static void unwritten_outputs_never_win(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fake_algorithm lazy = fast;
    lazy.output = FAKE_UNWRITTEN; /* what the default wrote before does not count as its work */
    check_choice(&conv, &lazy, "standard");
    lazy.output = FAKE_CUT_SHORT;
    check_choice(&conv, &lazy, "standard");
    fill_operands_with(0); /* nor do zeros */
    check_choice(&conv, &lazy, "standard");
    CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
}

static void verifying_can_be_turned_off(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    tc_config settings = config();
    settings.verify = 0;
    configure(settings);
    fake_algorithm wrong = fast;
    wrong.tint = 1;
    check_choice(&conv, &wrong, "fast");
}

/* Inputs may hold NaN and infinity: they have to come out at the same places. */
static void stray_nans_are_compared_by_place(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    x_data[3] = (float)NAN;
    x_data[5] = (float)INFINITY;
    check_choice(&conv, &fast, "fast");
    fake_algorithm wrong = fast;
    wrong.tint = 1;
    check_choice(&conv, &wrong, "standard");
    wrong.tint = (double)NAN;
    check_choice(&conv, &wrong, "standard");
}

/* Where all is NaN an unwritten output looks right, so such data decide nothing. */
static void useless_data_put_it_off(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fill_operands_with((float)NAN);
    SCRIPT(standard, fast);
    run(&conv);
    CHECK_INT(stats().defaults, 1);
    CHECK_INT(record_count(), 0);
    CHECK_INT(fake.runs("fast"), 0);
    run(&conv); /* tried again at once, then ever less often */
    int64_t runs = fake.runs("standard");
    run(&conv);
    CHECK_INT(fake.runs("standard"), runs + 1);
    CHECK_INT(fake.prepares("standard"), 1);
    fill_operands();
    for (int i = 0; i < 10; i++)
        run(&conv);
    CHECK_TEXT(only_record().algorithm, "fast");
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().defaults, 0);
}

/* Zeros hide most errors: the winner is looked at again on the next data. */
static void a_winner_on_zeros_is_checked_again(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fill_operands_with(0);
    SCRIPT(standard, fast);
    run(&conv);
    CHECK_TEXT(only_record().algorithm, "fast");
    run(&conv);
    fill_operands();
    for (int i = 0; i < 3; i++)
        run(&conv);
    int64_t checks = fake.runs("standard");
    for (int i = 0; i < 20; i++) {
        run(&conv);
        CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
    }
    CHECK_INT(fake.runs("standard"), checks); /* settled */
    CHECK_INT(stats().measured, 1);
    expect_no_warning();
}

static void a_wrong_winner_on_zeros_is_found_out(void)
{
    begin(TC_CUDA);
    tc_conv conv = problem(2);
    fill_operands_with(0);
    fake_algorithm wrong = fast, right = fast;
    wrong.tint = 1;
    strcpy(right.name, "right");
    right.seconds = 0.8e-3;
    SCRIPT(standard, wrong, right);
    run(&conv);
    CHECK_TEXT(only_record().algorithm, "fast");
    fill_operands();
    run(&conv);
    CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6); /* already this call's numbers are right */
    CHECK_TEXT(only_record().algorithm, "right");
    expect_warning("'fast' is no longer used");
    for (int i = 0; i < 5; i++) {
        run(&conv);
        CHECK_NEAR(1 + tint_of_output(&conv), 1, 1e-6);
    }
}

const test_case verify_cases[] = {
    {"verify/wrong_numbers_never_win", wrong_numbers_never_win},
    {"verify/unwritten_outputs_never_win", unwritten_outputs_never_win},
    {"verify/verifying_can_be_turned_off", verifying_can_be_turned_off},
    {"verify/stray_nans_are_compared_by_place", stray_nans_are_compared_by_place},
    {"verify/useless_data_put_it_off", useless_data_put_it_off},
    {"verify/a_winner_on_zeros_is_checked_again", a_winner_on_zeros_is_checked_again},
    {"verify/a_wrong_winner_on_zeros_is_found_out", a_wrong_winner_on_zeros_is_found_out},
    {NULL, NULL},
};
