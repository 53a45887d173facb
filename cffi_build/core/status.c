/* Errors (a code and the thread's message) and the queue of warnings that Python empties. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "locks.h"

/* Texts beyond this many are dropped: a fault that words each warning anew must not eat the memory. */
enum { MAX_WARNINGS = 1024 };

static _Thread_local char last_message[TC_MESSAGE_SIZE];

/* Every text queued so far, in order; those before `taken` were handed out and stay for the comparison. */
static struct {
    char *texts[MAX_WARNINGS];
    size_t count, taken;
} warnings;

tc_status tc_fail(tc_status status, const char *format, ...)
{
    /* The arguments may contain the last message itself, so it is only replaced once the new one is complete. */
    char message[TC_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    memcpy(last_message, message, sizeof last_message);
    return status;
}

const char *tc_last_error(void)
{
    return last_message;
}

const char *tc_status_name(int32_t status)
{
    switch (status) {
    case TC_OK: return "ok";
    case TC_INVALID_ARGUMENT: return "invalid argument";
    case TC_UNSUPPORTED: return "unsupported";
    case TC_NOT_FOUND: return "not found";
    case TC_OUT_OF_MEMORY: return "out of memory";
    case TC_ENGINE_FAILURE: return "engine failure";
    case TC_DEVICE_FAILURE: return "device failure";
    case TC_UNAVAILABLE: return "unavailable";
    case TC_INTERNAL: return "internal error";
    default: return "unknown status";
    }
}

void tc_warn(const char *format, ...)
{
    char message[TC_MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    tc_acquire(TC_LOCK_WARNINGS);
    size_t i = 0;
    while (i < warnings.count && strcmp(warnings.texts[i], message) != 0)
        i++;
    if (i == warnings.count && warnings.count < MAX_WARNINGS) {
        char *copy = strdup(message);
        if (copy)
            warnings.texts[warnings.count++] = copy;
    }
    tc_release(TC_LOCK_WARNINGS);
}

size_t tc_take_warning(char *text, size_t size)
{
    size_t length = 0;
    tc_acquire(TC_LOCK_WARNINGS);
    if (size > 0 && warnings.taken < warnings.count) {
        const char *oldest = warnings.texts[warnings.taken++];
        snprintf(text, size, "%s", oldest);
        length = strlen(text);
    }
    tc_release(TC_LOCK_WARNINGS);
    return length;
}

void tc_warnings_clear(void)
{
    tc_acquire(TC_LOCK_WARNINGS);
    for (size_t i = 0; i < warnings.count; i++)
        free(warnings.texts[i]);
    warnings.count = warnings.taken = 0;
    tc_release(TC_LOCK_WARNINGS);
}

tc_status tc_print(char *text, size_t size, const char *what, const char *format, ...)
{
    if (!text || size == 0)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a buffer for %s, got none", what);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, size, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= size)
        return tc_fail(TC_INVALID_ARGUMENT, "%s needs a buffer of %d bytes, got %zu", what, length + 1, size);
    return TC_OK;
}
