/* What the rest of the core needs of status.c beside tc_fail and tc_warn. */
#ifndef TC_STATUS_H
#define TC_STATUS_H

#include "tunedconv_engine.h"

/* Forgets pending warnings and which texts were queued before. */
void tc_warnings_clear(void);

/*
 * snprintf into a caller's buffer: TC_INVALID_ARGUMENT when `what` does not fit, never cut short. The
 * calling function's name for the text goes into the message.
 */
tc_status tc_print(char *text, size_t size, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
