/* Deciding what runs for a descriptor: what is stored, what is measured, or the default. */
#ifndef TC_SETTLE_H
#define TC_SETTLE_H

#include "registry.h"

/* Whether a published choice is still what should run; a copied one takes a lock where the store has changed. */
int tc_choice_stands(tc_entry *entry, const tc_choice *choice, const tc_context *ctx);
/* Gives the choice to run, or NULL when the convolution has been run already. */
tc_status tc_settle(tc_entry *entry, const tc_context *ctx, const tc_operands *operands, tc_choice **choice);

#endif
