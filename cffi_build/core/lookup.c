/* How long finding a known key takes, for the benchmark: nothing outside can time a part of tc_convolve. */
#include "clock.h"
#include "conv.h"
#include "registry.h"
#include "status.h"

tc_status tc_time_lookup(const tc_conv *conv, int32_t device_kind, int32_t ordinal, int32_t repeats, double *seconds)
{
    if (repeats <= 0 || !seconds)
        return tc_fail(TC_INVALID_ARGUMENT, "expected at least 1 repeat and a place for the seconds, got %d repeats",
                       repeats);
    tc_status status = tc_conv_check(conv);
    if (status != TC_OK)
        return status;
    tc_conv space;
    conv = tc_conv_known_as(conv, device_kind, &space);
    int32_t found = 0;
    double begin = tc_clock();
    for (int32_t i = 0; i < repeats; i++)
        found += tc_registry_find(conv, device_kind, ordinal) != NULL;
    *seconds = (tc_clock() - begin) / repeats;
    if (found == repeats)
        return TC_OK;
    return tc_fail(TC_NOT_FOUND, "the convolution was never run in this process on device '%s' %d; run it first",
                   tc_device_name(device_kind), ordinal);
}
