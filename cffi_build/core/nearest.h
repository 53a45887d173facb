/* Which known convolution is nearest to one that nothing is stored for. */
#ifndef TC_NEAREST_H
#define TC_NEAREST_H

#include "tunedconv_engine.h"

/*
 * Copies the record of the nearest relative, measured ones before copied ones: of the nearest batch, by ratio,
 * where the image size is known; else, once maximum_sizes sizes have been measured, of the nearest size by
 * pixels. At equal distance the larger is taken. 0 when there is none, so that conv should be measured.
 */
int tc_nearest(const tc_conv *conv, const char *environment, int32_t maximum_sizes, tc_record *record);

#endif
