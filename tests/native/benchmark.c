/* Nanoseconds of a look-up and of a call beyond the engine's run, among ten thousand keys. Prints only. */
#include <time.h>

#include "native_test.h"
#include "registry.h"

void benchmark(void);

enum { KEYS = 10000, ROUNDS = 200000 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Distinct keys without running them. */
static tc_conv key_number(int64_t i)
{
    tc_conv conv = problem(2);
    conv.x_dims[0] = 1 + i % 100;
    conv.w_dims[0] = 1 + i / 100;
    tc_conv_infer_output(&conv);
    return conv;
}

/* Of some keys in turn, out of all that are in the registry. */
static void time_lookups(const tc_conv *convs, int count)
{
    size_t found = 0;
    double start = now();
    for (int i = 0; i < ROUNDS; i++)
        found += tc_registry_find(&convs[(int64_t)i * 7919 % count], TC_CPU, 0) != NULL;
    double seconds = now() - start;
    printf("look-up of %d of %d keys: %.0f ns (%zu of %d found)\n", count, KEYS, seconds / ROUNDS * 1e9, found, ROUNDS);
}

void benchmark(void)
{
    begin(TC_CPU);
    const fake_algorithm idle = {.name = "idle", .output = FAKE_UNWRITTEN};
    fake.set_algorithms(&idle, 1);
    static tc_conv convs[KEYS];
    for (int i = 0; i < KEYS; i++) {
        convs[i] = key_number(i);
        tc_entry *entry;
        tc_registry_add(&convs[i], TC_CPU, 0, &entry);
    }
    time_lookups(convs, KEYS);
    time_lookups(convs, 160); /* the keys of a model's step */
    time_lookups(convs, 1);
    tc_context ctx = context();
    tc_convolve(&convs[0], &ctx, &operands);
    double start = now();
    for (int i = 0; i < ROUNDS; i++)
        tc_convolve(&convs[0], &ctx, &operands);
    printf("call of a known key with an engine that does nothing: %.0f ns\n", (now() - start) / ROUNDS * 1e9);
}
