/* The interface as a table, for bridges and engines that are compiled apart from the core. */
#include <pthread.h>

#include "tunedconv_engine.h"

#ifdef TC_WITH_XLA_FFI
void *tc_xla_handler_host(void);
void *tc_xla_handler_cuda(void);
#endif

static tc_api api;
static pthread_once_t filled = PTHREAD_ONCE_INIT;

static void fill(void)
{
    api = (tc_api){
        .abi_version = TC_ABI_VERSION,
        .size = sizeof api,
        .convolve = tc_convolve,
        .supported = tc_supported,
        .conv_check = tc_conv_check,
        .last_error = tc_last_error,
#ifdef TC_WITH_XLA_FFI
        .xla_handler_host = tc_xla_handler_host(),
        .xla_handler_cuda = tc_xla_handler_cuda(),
#endif
        .candidate_add = tc_candidate_add,
        .fail = tc_fail,
    };
}

const tc_api *tc_get_api(void)
{
    pthread_once(&filled, fill);
    return &api;
}
