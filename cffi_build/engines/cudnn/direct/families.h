/* The families of direct algorithms: each in files of its own. */
#ifndef TC_CUDNN_FAMILIES_H
#define TC_CUDNN_FAMILIES_H

#include "direct.h"

/* Depthwise convolution and its input's gradient with stride 1, in float32 arithmetic of ordinary cores. */
extern const tc_direct_family tc_depthwise_family;
/* Grouped and depthwise convolution and its input's gradient with strides of 1 and 2, on tensor cores. */
extern const tc_direct_family tc_grouped_family;
/* The filter's gradient of the same. */
extern const tc_direct_family tc_grouped_filter_family;
/* Forward convolution of 1 to 4 input channels on tensor cores. */
extern const tc_direct_family tc_few_channels_family;
/* The filter's gradient of the same. */
extern const tc_direct_family tc_few_channels_filter_family;

#endif
