/* The list that an engine fills with the algorithms it has for a descriptor. */
#include <stdlib.h>
#include <string.h>

#include "tunedconv_engine.h"

tc_status tc_candidate_add(tc_candidate_list *list, const char *name, uint32_t flags)
{
    size_t length = strlen(name);
    if (length == 0 || length >= TC_NAME_SIZE)
        return tc_fail(TC_INTERNAL, "an algorithm's name must have 1 to %d bytes, got %zu: '%.64s'",
                       TC_NAME_SIZE - 1, length, name);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        tc_candidate *items = realloc(list->items, capacity * sizeof *items);
        if (!items)
            return tc_fail(TC_OUT_OF_MEMORY, "no memory for a list of %zu candidates", capacity);
        list->items = items;
        list->capacity = capacity;
    }
    tc_candidate *candidate = &list->items[list->count++];
    memset(candidate, 0, sizeof *candidate);
    memcpy(candidate->name, name, length);
    candidate->flags = flags;
    return TC_OK;
}

void tc_candidates_free(tc_candidate_list *list)
{
    free(list->items);
    memset(list, 0, sizeof *list);
}
