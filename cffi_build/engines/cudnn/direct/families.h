/* The families of direct algorithms: each in files of its own. */
#ifndef TC_CUDNN_FAMILIES_H
#define TC_CUDNN_FAMILIES_H

#include "direct.h"

/* Depthwise convolution and its input's gradient with stride 1, in float32 arithmetic of ordinary cores. */
extern const tc_direct_family tc_depthwise_family;

#endif
