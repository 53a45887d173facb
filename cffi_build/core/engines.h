/* The engines that are open, and what they can do with a descriptor. */
#ifndef TC_ENGINES_H
#define TC_ENGINES_H

#include "tunedconv_engine.h"

enum { TC_MAX_ENGINES = 8 };

typedef struct tc_engine {
    const tc_engine_ops *ops;
    void *state;   /* what ops->open made */
    void *library; /* from dlopen, of an engine that tc_engine_load brought in */
    int open;
} tc_engine;

/* Open engines of a device, in the order they are asked: as opened, those of last resort at the end. */
size_t tc_engines_of(int32_t device_kind, const tc_engine *engines[TC_MAX_ENGINES]);
/* Grows with each engine that is opened or closed. */
uint64_t tc_engines_generation(void);

/*
 * The descriptor under which a convolution is known on a device: without what makes no difference to the engines
 * that are open for it, so that frameworks with other settings have the same keys. Gives conv or *space.
 */
const tc_conv *tc_conv_known_as(const tc_conv *conv, int32_t device_kind, tc_conv *space);

/*
 * What an engine has for conv: only what conv's determinism allows, last resorts moved to the end.
 * TC_UNSUPPORTED when that is nothing.
 */
tc_status tc_engine_candidates(const tc_engine *engine, int32_t ordinal, const tc_conv *conv,
                               tc_candidate_list *list);
/* Whether one algorithm can be asked for without listing all. */
int tc_engine_can_find(const tc_engine *engine);
/*
 * The candidate of that name, or with NULL any that is no last resort, without listing the others. TC_NOT_FOUND when
 * there is none, TC_UNSUPPORTED when the engine cannot tell, or not with the determinism that conv asks for.
 */
tc_status tc_engine_find_candidate(const tc_engine *engine, int32_t ordinal, const tc_conv *conv, const char *name,
                                   uint32_t *flags);
/* The first engine of the device that has candidates for conv. */
tc_status tc_find_engine(const tc_conv *conv, int32_t device_kind, int32_t ordinal, const tc_engine **engine,
                         tc_candidate_list *list);
/* The candidate of that name; NULL when it is not in the list. */
const tc_candidate *tc_candidate_named(const tc_candidate_list *list, const char *name);
/* "a, b, c, ..." for a message. */
void tc_candidates_join(const tc_candidate_list *list, char *text, size_t size);

#endif
