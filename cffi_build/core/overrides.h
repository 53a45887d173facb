/* Algorithms that somebody asked for by name: for a direction, or for the convolutions that match a pattern. */
#ifndef TC_OVERRIDES_H
#define TC_OVERRIDES_H

#include "registry.h"

/*
 * The algorithm asked for; NULL when there is none, which costs a load or two. A direction's stands above a
 * pattern's, and of two patterns the one set later. The name lives until the process ends.
 */
const char *tc_override_of(tc_entry *entry);

#endif
