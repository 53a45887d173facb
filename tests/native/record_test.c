/* Records: what is refused, and how the store keeps, replaces and hands them out. */
#include <math.h>

#include "native_test.h"

static tc_record good(void)
{
    tc_conv conv = problem(2);
    return record_of(&conv, "fast");
}

static void refuses_malformed_records(void)
{
    const tc_record base = good();
#define REFUSED(field, ...)                                        \
    do {                                                           \
        tc_record record = base;                                   \
        __VA_ARGS__;                                               \
        CHECK_INT(tc_registry_put(&record), TC_INVALID_ARGUMENT);  \
        CHECK_HAS(tc_last_error(), field);                         \
    } while (0)
    REFUSED("key", record.key[0] = '\0');
    REFUSED("key", record.key[3] = '#');
    REFUSED("key", memset(record.key, 'x', sizeof record.key));
    REFUSED("environment", record.environment[0] = '\0');
    REFUSED("environment", memset(record.environment, 'x', sizeof record.environment));
    REFUSED("environment", strcpy(record.environment, "new\nline"));
    REFUSED("algorithm", record.algorithm[0] = '\0');
    REFUSED("algorithm", memset(record.algorithm, 'x', sizeof record.algorithm));
    REFUSED("algorithm", strcpy(record.algorithm, "\xC0\xAF"));         /* overlong */
    REFUSED("algorithm", strcpy(record.algorithm, "\xED\xA0\x80"));     /* a surrogate */
    REFUSED("algorithm", strcpy(record.algorithm, "\xF4\x90\x80\x80")); /* beyond Unicode */
    REFUSED("algorithm", strcpy(record.algorithm, "cut\xE2\x82"));
    REFUSED("runner_up", strcpy(record.runner_up, "\x1b[2J"));
    REFUSED("runner_up", memset(record.runner_up, 'x', sizeof record.runner_up));
    REFUSED("workspace_bytes", record.workspace_bytes = -1);
    REFUSED("workspace_bytes", record.workspace_bytes = INT64_C(1) << 50);
    REFUSED("created", record.created = -1);
    REFUSED("time_seconds", record.time_seconds = (double)NAN);
    REFUSED("time_seconds", record.time_seconds = -1);
    REFUSED("default_seconds", record.default_seconds = (double)INFINITY);
    REFUSED("spread", record.spread = -0.1);
    REFUSED("tuning_seconds", record.tuning_seconds = 1e300);
    REFUSED("candidates_tried", record.candidates_tried = 3);
    REFUSED("candidates_tried", record.candidates_tried = -1);
    REFUSED("candidates_total", record.candidates_total = INT32_MAX);
    REFUSED("provenance", record.provenance = TC_DEFAULT);
    REFUSED("provenance", record.provenance = 7);
    REFUSED("math_type", record.math_type = 2);
    REFUSED("deterministic", record.deterministic = 2);
    CHECK_INT(tc_registry_put(NULL), TC_INVALID_ARGUMENT);
    CHECK_INT(record_count(), 0);
    expect_no_warning();
    tc_record unicode = base;
    strcpy(unicode.environment, "cpu=Größe \xF0\x9F\x98\x80");
    CHECK_INT(tc_registry_put(&unicode), TC_OK);
}

static void collects_what_changed(void)
{
    tc_conv conv;
    tc_record record, records[4];
    size_t count;
    for (int64_t batch = 1; batch <= 3; batch++) {
        conv = problem(batch);
        record = record_of(&conv, "fast");
        CHECK_INT(tc_registry_put(&record), TC_OK);
    }
    CHECK_INT(tc_registry_collect(0, records, 4, &count), TC_OK);
    CHECK_INT(count, 3);
    CHECK(records[0].sequence < records[1].sequence && records[1].sequence < records[2].sequence);
    uint64_t since = records[2].sequence;
    CHECK_INT(tc_registry_put(&record), TC_OK); /* nothing new */
    CHECK_INT(tc_registry_collect(since, records, 4, &count), TC_OK);
    CHECK_INT(count, 0);
    conv = problem(1);
    record = record_of(&conv, "faster");
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(tc_registry_collect(since, records, 4, &count), TC_OK);
    CHECK_INT(count, 1);
    CHECK_TEXT(records[0].algorithm, "faster");
    CHECK_TEXT(records[0].key, record.key);
    CHECK_INT(tc_registry_collect(0, records, 2, &count), TC_OK); /* the first two of three */
    CHECK_INT(count, 3);
    CHECK_TEXT(records[1].algorithm, "fast");
    tc_registry_clear();
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(tc_registry_collect(since + 1, records, 4, &count), TC_OK); /* the sequence went on */
    CHECK_INT(count, 1);
    CHECK_INT(tc_registry_collect(0, NULL, 1, &count), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_registry_collect(0, NULL, 0, NULL), TC_INVALID_ARGUMENT);
}

static void keeps_environments_apart(void)
{
    tc_record record = good();
    CHECK_INT(tc_registry_put(&record), TC_OK);
    strcpy(record.environment, "another");
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(record_count(), 2);
}

static void ranks_where_records_come_from(void)
{
    tc_record record = good();
    const struct { int32_t provenance; const char *algorithm, *kept; } puts[] = {
        {TC_PREDICTED, "a", "a"}, {TC_PREDICTED, "b", "b"}, {TC_COPIED, "c", "c"},   {TC_PREDICTED, "d", "c"},
        {TC_SHIPPED, "e", "e"},   {TC_COPIED, "f", "e"},    {TC_MEASURED, "g", "g"}, {TC_IMPORTED, "h", "h"},
        {TC_OVERRIDE, "i", "i"},  {TC_MEASURED, "j", "i"},
    };
    for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
        record.provenance = puts[i].provenance;
        strcpy(record.algorithm, puts[i].algorithm);
        CHECK_INT(tc_registry_put(&record), TC_OK);
        CHECK_TEXT(only_record().algorithm, puts[i].kept);
    }
}

static void ignores_bytes_beyond_the_text(void)
{
    tc_record record = good();
    CHECK_INT(tc_registry_put(&record), TC_OK);
    uint64_t sequence = only_record().sequence;
    record.algorithm[TC_NAME_SIZE - 1] = 'x';
    record.environment[TC_ENVIRONMENT_SIZE - 1] = 'x';
    record.sequence = 77;
    CHECK_INT(tc_registry_put(&record), TC_OK);
    CHECK_INT(only_record().sequence, sequence);
}

static void holds_thousands(void)
{
    tc_record record = good();
    for (int i = 0; i < 10000; i++) {
        snprintf(record.environment, sizeof record.environment, "engine=foreign;device=%d", i);
        CHECK_INT(tc_registry_put(&record), TC_OK);
    }
    CHECK_INT(record_count(), 10000);
}

static void queues_a_warning_once(void)
{
    char text[TC_MESSAGE_SIZE], small[8];
    CHECK_INT(tc_take_warning(text, sizeof text), 0);
    tc_warn("first %d", 1);
    tc_warn("second");
    tc_warn("first %d", 1);
    CHECK_INT(tc_take_warning(text, sizeof text), 7);
    CHECK_TEXT(text, "first 1");
    CHECK_INT(tc_take_warning(small, sizeof small), 6);
    tc_warn("first 1"); /* taken, but still known */
    CHECK_INT(tc_take_warning(text, sizeof text), 0);
    tc_registry_clear();
    tc_warn("first 1");
    CHECK_INT(tc_take_warning(small, 4), 3); /* cut to the buffer */
    CHECK_TEXT(small, "fir");
    for (int i = 0; i < 5000; i++)
        tc_warn("number %d", i);
    int taken = 0;
    while (tc_take_warning(text, sizeof text))
        taken++;
    CHECK(taken > 100 && taken < 5000);
}

static void counts_a_reported_fallback_once(void)
{
    tc_count_fallback("one");
    tc_count_fallback("two");
    tc_count_fallback("one");
    tc_count_fallback(NULL);
    CHECK_INT(stats().fallbacks, 2);
    tc_registry_clear();
    CHECK_INT(stats().fallbacks, 0);
}

static void refuses_bad_settings(void)
{
    const tc_config base = config();
    CHECK_INT(base.mode, TC_MODE_SEARCH);
    CHECK_INT(base.verify, 1);
    CHECK_INT(base.resume, 0);
    CHECK_INT(base.minimum_runs, 5);
    CHECK_INT(base.workspace_limit_bytes, 1 << 30);
    CHECK(base.key_budget_seconds == 2.0 && base.process_budget_seconds == 60.0);
    CHECK(base.margin == 0.03 && base.drop_ratio == 2.0);
#undef REFUSED
#define REFUSED(field, ...)                                        \
    do {                                                           \
        tc_config settings = base;                                 \
        settings.__VA_ARGS__;                                      \
        CHECK_INT(tc_set_config(&settings), TC_INVALID_ARGUMENT);  \
        CHECK_HAS(tc_last_error(), field);                         \
    } while (0)
    REFUSED("mode", mode = 4);
    REFUSED("mode", mode = -1);
    REFUSED("verify", verify = 2);
    REFUSED("resume", resume = -1);
    REFUSED("minimum_runs", minimum_runs = 0);
    REFUSED("key_budget_seconds", key_budget_seconds = 0);
    REFUSED("key_budget_seconds must be above 0", key_budget_seconds = -1);
    REFUSED("key_budget_seconds", key_budget_seconds = (double)NAN);
    REFUSED("process_budget_seconds", process_budget_seconds = (double)INFINITY);
    REFUSED("margin", margin = -0.01);
    REFUSED("margin", margin = 1.5);
    REFUSED("drop_ratio", drop_ratio = 0.5);
    REFUSED("workspace_limit_bytes", workspace_limit_bytes = -1);
    CHECK(config().margin == base.margin);
    CHECK_INT(tc_set_config(NULL), TC_INVALID_ARGUMENT);
}

const test_case record_cases[] = {
    {"record/refuses_malformed_records", refuses_malformed_records},
    {"record/collects_what_changed", collects_what_changed},
    {"record/keeps_environments_apart", keeps_environments_apart},
    {"record/ranks_where_records_come_from", ranks_where_records_come_from},
    {"record/ignores_bytes_beyond_the_text", ignores_bytes_beyond_the_text},
    {"record/holds_thousands", holds_thousands},
    {"record/queues_a_warning_once", queues_a_warning_once},
    {"record/counts_a_reported_fallback_once", counts_a_reported_fallback_once},
    {"record/refuses_bad_settings", refuses_bad_settings},
    {NULL, NULL},
};
