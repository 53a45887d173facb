/* The text of a device and the library that serves it, the second half of every key. */
#ifndef TC_ENVIRONMENT_H
#define TC_ENVIRONMENT_H

#include <stddef.h>

/*
 * Bytes of its hard part. Fields stand as "name=value" with ';' between them; soft ones come last, each with a
 * '~' before its name: "engine=cudnn;version=9.19;device=...;~patch=1;~driver=13.0". Where only those differ,
 * the same algorithms exist under the same names, but may not be as fast: what is stored is used, and measured
 * again once.
 */
size_t tc_environment_hard_length(const char *environment);

#endif
