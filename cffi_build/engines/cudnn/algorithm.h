/*
 * The name of an algorithm, and what it stands for: an engine of cuDNN with the settings of its knobs, and
 * how the convolution is rewritten before cuDNN sees it.
 *
 *     cudnn:eng22:k2=5,k13=1,k14=3/fold/channels=16/explicit-padding/swapped
 *
 * /fold             strides are folded into channels: each s x s block of positions becomes one position
 * /channels=N       input channels of a group, after folding, are padded with zeros to N
 * /explicit-padding the zeros around the input are written into a copy of it, and cuDNN pads nothing; without
 *                   it cuDNN pads, and uneven padding keeps it from its best engines
 * /swapped          input and output change roles, the filter is turned round: backward_data runs as a
 *                   forward convolution, forward as backward_data
 * /layout=L         activations are converted to channels-last or channels-first
 */
#ifndef TC_CUDNN_ALGORITHM_H
#define TC_CUDNN_ALGORITHM_H

#include "tunedconv_engine.h"

/* No engine has had a third as many. */
enum { TC_MAX_KNOBS = 32 };

typedef struct tc_rewrite {
    int fold, swapped;
    int explicit_padding;
    int other_layout;  /* activations in the layout that the caller's are not in */
    int64_t channels;  /* 0: not padded */
} tc_rewrite;

typedef struct tc_knob {
    int type;
    int64_t value;
} tc_knob;

typedef struct tc_algorithm {
    int64_t engine;
    int knob_count;
    tc_knob knobs[TC_MAX_KNOBS]; /* by type, ascending */
    tc_rewrite rewrite;
} tc_algorithm;

/* `layout` is that of the caller's activations: the other one is what other_layout stands for. */
tc_status tc_algorithm_format(const tc_algorithm *algorithm, int32_t layout, char *name, size_t size);
/* The exact inverse: TC_NOT_FOUND for anything that tc_algorithm_format would not write. */
tc_status tc_algorithm_parse(const char *name, int32_t layout, tc_algorithm *algorithm);

#endif
