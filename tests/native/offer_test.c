/* Records on offer, from databases that many models share: used like stored ones, and told once they are used. */
#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3};

static tc_record from(int32_t provenance, const char *algorithm)
{
    tc_conv conv = problem(2);
    tc_record record = record_of(&conv, algorithm);
    record.provenance = provenance;
    return record;
}

static void is_told_once_it_is_used(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    tc_record record = from(TC_SHIPPED, "standard");
    CHECK_INT(tc_registry_offer(&record), TC_OK);
    CHECK_INT(record_count(), 0);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().measured, 0);
    CHECK_TEXT(only_record().algorithm, "standard");
    CHECK_INT(only_record().provenance, TC_SHIPPED);
    record.key[0] = '\0';
    CHECK_INT(tc_registry_offer(&record), TC_INVALID_ARGUMENT);
}

static void gives_way(void)
{
    begin(TC_CUDA);
    const struct { int offered; int32_t provenance; const char *algorithm; size_t told; } steps[] = {
        {1, TC_SHIPPED, "a", 0},  {1, TC_IMPORTED, "b", 0}, {0, TC_COPIED, "c", 0}, {0, TC_IMPORTED, "b", 1},
        {1, TC_IMPORTED, "d", 1}, {1, TC_COPIED, "e", 1},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        tc_record record = from(steps[i].provenance, steps[i].algorithm);
        CHECK_INT(steps[i].offered ? tc_registry_offer(&record) : tc_registry_put(&record), TC_OK);
        CHECK_INT(record_count(), steps[i].told);
    }
    CHECK_TEXT(only_record().algorithm, "b");
}

static void stands_above_a_copy(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    tc_record copied = from(TC_COPIED, "standard"), offer = from(TC_SHIPPED, "fast");
    CHECK_INT(tc_registry_put(&copied), TC_OK);
    CHECK_INT(tc_registry_offer(&offer), TC_OK);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_TEXT(only_record().algorithm, "fast");
}

const test_case offer_cases[] = {
    {"offer/is_told_once_it_is_used", is_told_once_it_is_used},
    {"offer/gives_way", gives_way},
    {"offer/stands_above_a_copy", stands_above_a_copy},
    {NULL, NULL},
};
