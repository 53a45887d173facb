/*
 * Says what cuDNN is asked in place of a convolution. Each line of the standard input is a key and, behind a
 * blank, the name of an algorithm; the answer is one line of JSON, or null where the rewriting is refused.
 * Built and run by tests/engines/test_cudnn_problem.py.
 */
#include <stdio.h>
#include <string.h>

#include "problem.h"

static void put_numbers(const char *name, const int64_t *values, int count)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%lld", i ? ", " : "", (long long)values[i]);
    printf("]");
}

static void put_three(const char *name, const uint32_t values[3])
{
    put_numbers(name, (const int64_t[]){values[0], values[1], values[2]}, 3);
}

static void put_conversion(const char *name, const tc_conversion *c)
{
    static const char *const KERNELS[] = {"pack_activation", "unpack_activation", "pack_filter", "unpack_filter",
                                          "transpose"};
    printf(", \"%s\": ", name);
    if (!c->active) {
        printf("null");
        return;
    }
    printf("{\"kernel\": \"%s\"", KERNELS[c->kernel]);
    if (c->kernel == TC_KERNEL_PACK_ACTIVATION || c->kernel == TC_KERNEL_UNPACK_ACTIVATION) {
        const tc_activation_map *map = &c->map.activation;
        put_three("size", map->size);
        put_three("folded", map->folded);
        put_three("fold", map->fold);
        put_three("before", map->before);
        put_numbers("channels", (const int64_t[]){map->groups, map->channels, map->padded}, 3);
    }
    printf("}");
}

static void put_problem(const tc_problem *problem)
{
    const tc_conv *c = &problem->conv;
    int rank = c->spatial_rank;
    printf("{\"direction\": %d", (int)c->direction);
    put_numbers("x_dims", c->x_dims, rank + 2);
    put_numbers("w_dims", c->w_dims, rank + 2);
    put_numbers("y_dims", c->y_dims, rank + 2);
    put_numbers("pad_before", c->pad_before, rank);
    put_numbers("pad_after", c->pad_after, rank);
    put_numbers("stride", c->stride, rank);
    printf(", \"channels_last\": %s", c->x_layout == TC_CHANNELS_LAST ? "true" : "false");
    put_conversion("x", &problem->x);
    put_conversion("w", &problem->w);
    put_conversion("y", &problem->y);
    printf("}\n");
}

int main(void)
{
    char line[TC_KEY_SIZE + TC_NAME_SIZE + 2];
    while (fgets(line, sizeof line, stdin)) {
        tc_conv conv;
        tc_algorithm algorithm;
        tc_problem problem;
        line[strcspn(line, "\n")] = '\0';
        char *name = strchr(line, ' ');
        if (!name)
            return 1;
        *name++ = '\0';
        if (tc_key_parse(line, &conv) != TC_OK || tc_algorithm_parse(name, conv.x_layout, &algorithm) != TC_OK) {
            fprintf(stderr, "%s\n", tc_last_error());
            return 1;
        }
        if (tc_problem_make(&conv, &algorithm.rewrite, &problem) == TC_OK)
            put_problem(&problem);
        else
            printf("null\n");
    }
    return 0;
}
