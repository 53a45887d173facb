/* Validation of records, which come out of files that anybody may have written. */
#include "record.h"

#include <math.h>
#include <string.h>

static const int64_t LARGEST_WORKSPACE = INT64_C(1) << 40;
static const double LONGEST_SECONDS = 1e7;
static const int32_t MOST_CANDIDATES = 1000000;

/* Bytes of the UTF-8 character at text, which is NUL-terminated; 0 when malformed or a control character. */
static size_t utf8_length(const unsigned char *text)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t lead = text[0], point;
    size_t length;
    if (lead < 0x80)
        return lead >= 0x20 && lead != 0x7F;
    if (lead >= 0xC2 && lead < 0xE0) {
        length = 2;
        point = lead & 0x1F;
    } else if (lead >= 0xE0 && lead < 0xF0) {
        length = 3;
        point = lead & 0x0F;
    } else if (lead >= 0xF0 && lead < 0xF5) {
        length = 4;
        point = lead & 0x07;
    } else {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (text[i] & 0x3F);
    }
    int surrogate = point >= 0xD800 && point < 0xE000;
    int control = point < 0xA0 || point == 0x2028 || point == 0x2029;
    return point < smallest[length] || point > 0x10FFFF || surrogate || control ? 0 : length;
}

static tc_status check_text(const char *field, const char *text, size_t size, int may_be_empty)
{
    if (!memchr(text, '\0', size))
        return tc_fail(TC_INVALID_ARGUMENT, "a record's %s must end with NUL within %zu bytes", field, size);
    if (!*text && !may_be_empty)
        return tc_fail(TC_INVALID_ARGUMENT, "a record's %s must not be empty", field);
    for (size_t i = 0, length; text[i]; i += length) {
        length = utf8_length((const unsigned char *)text + i);
        if (length == 0)
            return tc_fail(TC_INVALID_ARGUMENT, "a record's %s must be printable UTF-8, byte %zu is not", field, i);
    }
    return TC_OK;
}

static tc_status check_number(const char *field, double value, double high)
{
    if (isfinite(value) && value >= 0 && value <= high)
        return TC_OK;
    return tc_fail(TC_INVALID_ARGUMENT, "a record's %s must be between 0 and %g, got %g", field, high, value);
}

static tc_status check_texts(const tc_record *record)
{
    tc_status status = check_text("key", record->key, sizeof record->key, 0);
    if (status == TC_OK)
        status = check_text("environment", record->environment, sizeof record->environment, 0);
    if (status == TC_OK)
        status = check_text("algorithm", record->algorithm, sizeof record->algorithm, 0);
    if (status == TC_OK)
        status = check_text("runner_up", record->runner_up, sizeof record->runner_up, 1);
    return status;
}

tc_status tc_record_check(const tc_record *record, tc_conv *conv)
{
    if (!record)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a record, got NULL");
    tc_status status = check_texts(record);
    if (status == TC_OK)
        status = tc_key_parse(record->key, conv);
    const struct { const char *field; double value, high; } numbers[] = {
        {"workspace_bytes", (double)record->workspace_bytes, (double)LARGEST_WORKSPACE},
        {"created", (double)record->created, 1e12},
        {"time_seconds", record->time_seconds, LONGEST_SECONDS},
        {"default_seconds", record->default_seconds, LONGEST_SECONDS},
        {"spread", record->spread, 1e6},
        {"tuning_seconds", record->tuning_seconds, LONGEST_SECONDS},
        {"candidates_total", record->candidates_total, MOST_CANDIDATES},
        {"candidates_tried", record->candidates_tried, record->candidates_total},
        {"math_type", record->math_type, 1},
        {"deterministic", record->deterministic, 1},
    };
    for (size_t i = 0; status == TC_OK && i < sizeof numbers / sizeof *numbers; i++)
        status = check_number(numbers[i].field, numbers[i].value, numbers[i].high);
    if (status == TC_OK && (record->provenance <= TC_DEFAULT || record->provenance > TC_PREDICTED))
        status = tc_fail(TC_INVALID_ARGUMENT, "a record's provenance must be between %d and %d, got %d", TC_MEASURED,
                         TC_PREDICTED, record->provenance);
    return status;
}
