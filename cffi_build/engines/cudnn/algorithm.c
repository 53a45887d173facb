/* Names of algorithms. */
#include "algorithm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *layout_name(int32_t layout)
{
    return layout == TC_CHANNELS_LAST ? "channels-last" : "channels-first";
}

static int32_t other_layout(int32_t layout)
{
    return layout == TC_CHANNELS_LAST ? TC_CHANNELS_FIRST : TC_CHANNELS_LAST;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t size, length; /* length goes on counting past size */
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = w->length < w->size ? w->size - w->length : 0;
    int written = vsnprintf(room ? w->text + w->length : NULL, room, format, arguments);
    va_end(arguments);
    w->length += (size_t)written;
}

tc_status tc_algorithm_format(const tc_algorithm *algorithm, int32_t layout, char *name, size_t size)
{
    writer w = {.text = name, .size = size};
    put(&w, "cudnn:eng%" PRId64, algorithm->engine);
    for (int i = 0; i < algorithm->knob_count; i++)
        put(&w, "%sk%d=%" PRId64, i == 0 ? ":" : ",", algorithm->knobs[i].type, algorithm->knobs[i].value);
    if (algorithm->rewrite.fold)
        put(&w, "/fold");
    if (algorithm->rewrite.channels)
        put(&w, "/channels=%" PRId64, algorithm->rewrite.channels);
    if (algorithm->rewrite.explicit_padding)
        put(&w, "/explicit-padding");
    if (algorithm->rewrite.swapped)
        put(&w, "/swapped");
    if (algorithm->rewrite.other_layout)
        put(&w, "/layout=%s", layout_name(other_layout(layout)));
    if (w.length >= size)
        return tc_fail(TC_INTERNAL, "an algorithm's name needs %zu bytes, and %zu are there", w.length + 1, size);
    return TC_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static int take_text(const char **at, const char *text)
{
    size_t length = strlen(text);
    if (strncmp(*at, text, length) != 0)
        return 0;
    *at += length;
    return 1;
}

static int take_number(const char **at, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    if (end == *at || errno)
        return 0;
    *number = value;
    *at = end;
    return 1;
}

static int take_knobs(const char **at, tc_algorithm *a)
{
    const char *separator = ":k";
    for (; take_text(at, separator); separator = ",k") {
        int64_t type;
        if (a->knob_count == TC_MAX_KNOBS || !take_number(at, &type) || type < 0 || type > INT32_MAX ||
            !take_text(at, "=") || !take_number(at, &a->knobs[a->knob_count].value))
            return 0;
        a->knobs[a->knob_count].type = (int)type;
        if (a->knob_count > 0 && a->knobs[a->knob_count - 1].type >= type)
            return 0;
        a->knob_count++;
    }
    return 1;
}

static int take_rewrite(const char **at, int32_t layout, tc_rewrite *rewrite)
{
    rewrite->fold = take_text(at, "/fold");
    if (take_text(at, "/channels=") && !take_number(at, &rewrite->channels))
        return 0;
    rewrite->explicit_padding = take_text(at, "/explicit-padding");
    rewrite->swapped = take_text(at, "/swapped");
    if (take_text(at, "/layout=")) {
        rewrite->other_layout = 1;
        return take_text(at, layout_name(other_layout(layout)));
    }
    return 1;
}

tc_status tc_algorithm_parse(const char *name, int32_t layout, tc_algorithm *algorithm)
{
    char again[TC_NAME_SIZE];
    const char *at = name;
    memset(algorithm, 0, sizeof *algorithm);
    int read = take_text(&at, "cudnn:eng") && take_number(&at, &algorithm->engine) && take_knobs(&at, algorithm) &&
               take_rewrite(&at, layout, &algorithm->rewrite) && *at == '\0';
    /* Signs, leading zeros and blanks that strtoll accepts would make two names of one algorithm. */
    if (!read || tc_algorithm_format(algorithm, layout, again, sizeof again) != TC_OK || strcmp(name, again) != 0)
        return tc_fail(TC_NOT_FOUND, "'%.128s' is not the name of a cuDNN algorithm for this convolution", name);
    return TC_OK;
}
