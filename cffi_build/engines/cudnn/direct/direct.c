/* The table of direct algorithms, and their names. */
#include "direct.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "families.h"

static const tc_direct_family *const FAMILIES[] = {&tc_grouped_family, &tc_grouped_filter_family,
                                                   &tc_few_channels_family, &tc_few_channels_filter_family,
                                                   &tc_depthwise_family};
enum { FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES };

static int settings_of(const tc_direct_family *family, const tc_device *device, const tc_conv *conv,
                       int64_t values[TC_DIRECT_SETTINGS])
{
    if (10 * device->compute_major + device->compute_minor < family->compute)
        return 0;
    return family->settings(conv, device->multiprocessors, values);
}

static void format(const tc_direct_family *family, int64_t value, char name[TC_NAME_SIZE])
{
    if (family->setting)
        snprintf(name, TC_NAME_SIZE, "%s:%s=%" PRId64, family->name, family->setting, value);
    else
        snprintf(name, TC_NAME_SIZE, "%s", family->name);
}

tc_status tc_direct_candidates(const tc_device *device, const tc_conv *conv, tc_candidate_list *list)
{
    tc_status status = TC_OK;
    for (int f = 0; f < FAMILY_COUNT; f++) {
        int64_t values[TC_DIRECT_SETTINGS] = {0};
        int count = settings_of(FAMILIES[f], device, conv, values);
        for (int i = 0; i < count && status == TC_OK; i++) {
            char name[TC_NAME_SIZE];
            format(FAMILIES[f], values[i], name);
            status = tc_candidate_add(list, name, TC_CANDIDATE_DETERMINISTIC);
        }
    }
    return status;
}

int tc_direct_is_name(const char *name)
{
    return strncmp(name, "cuda:", strlen("cuda:")) == 0;
}

tc_status tc_direct_prepare(tc_device *device, const tc_conv *conv, const char *name, tc_direct_plan *plan)
{
    for (int f = 0; f < FAMILY_COUNT; f++) {
        int64_t values[TC_DIRECT_SETTINGS] = {0};
        int count = settings_of(FAMILIES[f], device, conv, values);
        for (int i = 0; i < count; i++) {
            char known[TC_NAME_SIZE];
            format(FAMILIES[f], values[i], known);
            if (strcmp(name, known) != 0)
                continue;
            *plan = (tc_direct_plan){.family = FAMILIES[f], .library = device->library};
            return FAMILIES[f]->prepare(device, conv, values[i], plan);
        }
    }
    return tc_fail(TC_NOT_FOUND, "'%.128s' is not an algorithm for this convolution on this GPU", name);
}

tc_status tc_direct_launch(const tc_direct_plan *plan, int function, int64_t blocks, uint32_t threads, CUstream stream,
                           void **arguments)
{
    CUresult result = plan->library->cuda.cuLaunchKernel(plan->functions[function], (unsigned)blocks, 1, 1, threads, 1,
                                                         1, 0, stream, arguments, NULL);
    return result == CUDA_SUCCESS ? TC_OK : tc_cuda_fail(plan->library, result, "launching a direct kernel");
}
