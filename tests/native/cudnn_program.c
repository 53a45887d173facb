/*
 * Runs every candidate of the cuDNN engine for each key on the standard input, on the mock driver, with
 * buffers of exactly the sizes that the core names: a sanitizer then sees any access beside them. Built and
 * run by tests/engines/test_cudnn_sanitized.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tunedconv_engine.h"

static void *allocated;

static void *allocate(void *user, size_t bytes)
{
    (void)user;
    free(allocated);
    return posix_memalign(&allocated, 256, bytes) ? NULL : allocated;
}

static void *tensor(const int64_t *dims, int32_t rank, int32_t dtype)
{
    void *memory = NULL;
    size_t bytes = (size_t)tc_elements(dims, rank) * tc_dtype_size(dtype);
    if (posix_memalign(&memory, 256, bytes))
        abort();
    memset(memory, 0x11, bytes);
    return memory;
}

static int run_all(const tc_conv *conv, int32_t ordinal)
{
    size_t size = 0;
    if (tc_candidates(conv, TC_CUDA, ordinal, NULL, &size) != TC_OK)
        return 0;
    char *names = malloc(size);
    tc_context ctx = {.device_kind = TC_CUDA, .device_ordinal = ordinal, .allocate = allocate};
    tc_operands operands = {tensor(conv->x_dims, conv->spatial_rank, conv->x_dtype),
                            tensor(conv->w_dims, conv->spatial_rank, conv->w_dtype),
                            tensor(conv->y_dims, conv->spatial_rank, conv->y_dtype)};
    int ran = 0;
    tc_candidates(conv, TC_CUDA, ordinal, names, &size);
    for (char *rest = names, *name; (name = strtok_r(rest, "\n", &rest));) {
        double seconds;
        ran += tc_run_algorithm(conv, &ctx, &operands, name, 1, &seconds) == TC_OK;
    }
    ran += tc_convolve(conv, &ctx, &operands) == TC_OK;
    free(names);
    free(operands.x);
    free(operands.w);
    free(operands.y);
    return ran;
}

int main(int argc, char **argv)
{
    const char *paths[] = {argc > 1 ? argv[1] : NULL, NULL};
    char line[TC_KEY_SIZE];
    int ran = 0;
    if (tc_engine_open("cudnn", paths) != TC_OK) {
        fprintf(stderr, "%s\n", tc_last_error());
        return 1;
    }
    for (int32_t i = 0; fgets(line, sizeof line, stdin); i++) {
        tc_conv conv;
        line[strcspn(line, "\n")] = '\0';
        if (tc_key_parse(line, &conv) != TC_OK) {
            fprintf(stderr, "%s\n", tc_last_error());
            return 1;
        }
        ran += run_all(&conv, i % 2);
    }
    tc_registry_clear();
    tc_engine_close("cudnn");
    free(allocated);
    printf("%d\n", ran);
    return 0;
}
