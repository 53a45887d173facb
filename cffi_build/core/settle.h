/* Deciding what runs for a descriptor: what is stored, what is measured, or the default. */
#ifndef TC_SETTLE_H
#define TC_SETTLE_H

#include "registry.h"

/* Whether a published choice is still what should run; takes no lock. */
int tc_choice_stands(tc_entry *entry, const tc_choice *choice, const tc_context *ctx);
/* Gives the choice to run, or NULL when the convolution has been run already. */
tc_status tc_settle(tc_entry *entry, const tc_context *ctx, const tc_operands *operands, tc_choice **choice);
/* In a forked child: no thread is measuring any more. */
void tc_settle_after_fork(void);

#endif
