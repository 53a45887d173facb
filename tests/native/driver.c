/* Runs the C tests: without arguments it lists the cases, else it runs those named ("all": every one). */
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "native_test.h"

void benchmark(void);

/* ---- checks --------------------------------------------------------------------------------------------- */

static const char *running;

void fail_check(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s failed at %s:%d: ", running, file, line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

/* ---- the scripted engine ---------------------------------------------------------------------------------- */

fake_functions fake;
int can_find;
static int32_t device_kind;

const char *fake_library(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    CHECK(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/libfake.so");
    return path;
}

static void load_fake(void)
{
    void *library = dlopen(fake_library(), RTLD_NOW);
    if (!library)
        fail_check(__FILE__, __LINE__, "%s", dlerror());
    const struct { const char *name; void *place; } functions[] = {
        {"fake_set_device_kind", &fake.set_device_kind}, {"fake_set_algorithms", &fake.set_algorithms},
        {"fake_set_capturing", &fake.set_capturing},     {"fake_set_model", &fake.set_model},
        {"fake_set_soft", &fake.set_soft},               {"fake_reset", &fake.reset},
        {"fake_clock", &fake.clock},
        {"fake_runs", &fake.runs},                       {"fake_prepares", &fake.prepares},
        {"fake_most_preparing", &fake.most_preparing},   {"fake_live_plans", &fake.live_plans},
        {"fake_set_exact", &fake.set_exact},             {"fake_set_finding", &fake.set_finding},
        {"fake_listings", &fake.listings},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(library, functions[i].name);
        CHECK(symbol);
        memcpy(functions[i].place, &symbol, sizeof symbol);
    }
}

void begin(int32_t kind)
{
    load_fake();
    fake.reset();
    fake.set_device_kind(kind);
    fake.set_exact(0);
    fake.set_finding(can_find);
    device_kind = kind;
    tc_clock = fake.clock;
    CHECK_INT(tc_engine_load(fake_library()), TC_OK);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_EXACT;
    configure(settings);
    fill_operands();
}

/* ---- a problem ------------------------------------------------------------------------------------------ */

enum { LARGEST = 64 * 4 * 6 * 6 };
float x_data[LARGEST], w_data[LARGEST], y_data[LARGEST];
const tc_operands operands = {x_data, w_data, y_data};

tc_conv problem(int64_t batch)
{
    tc_conv conv = {
        .spatial_rank = 2,
        .x_dtype = TC_F32, .w_dtype = TC_F32, .y_dtype = TC_F32, .compute_dtype = TC_F32,
        .groups = 1,
        .x_dims = {batch, 3, 6, 6},
        .w_dims = {4, 3, 3, 3},
        .pad_before = {1, 1}, .pad_after = {1, 1},
        .stride = {1, 1},
        .dilation = {1, 1},
    };
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    return conv;
}

void key_of(const tc_conv *conv, char key[TC_KEY_SIZE])
{
    CHECK_INT(tc_key_format(conv, key, TC_KEY_SIZE), TC_OK);
}

void fill_operands(void)
{
    for (int i = 0; i < LARGEST; i++) {
        x_data[i] = (float)(1 + i % 7) / 4;
        w_data[i] = (float)(3 - i % 5) / 2;
        y_data[i] = (float)(2 + i % 3) / 3;
    }
}

void fill_operands_with(float value)
{
    for (int i = 0; i < LARGEST; i++)
        x_data[i] = w_data[i] = y_data[i] = value;
}

tc_context context(void)
{
    return (tc_context){.device_kind = device_kind};
}

tc_status convolve(const tc_conv *conv)
{
    tc_context ctx = context();
    return tc_convolve(conv, &ctx, &operands);
}

double tint_of_output(const tc_conv *conv)
{
    int64_t outputs = tc_elements(conv->y_dims, 2), xs = tc_elements(conv->x_dims, 2),
            ws = tc_elements(conv->w_dims, 2);
    double most = 0;
    for (int64_t i = 0; i < outputs; i++) {
        double product = (double)x_data[i % xs] * (double)w_data[i % ws];
        double tint = product == 0 ? 0 : (double)y_data[i] / product - 1;
        CHECK(!isnan(tint));
        if (fabs(tint) > fabs(most))
            most = tint;
    }
    return most;
}

/* ---- what the core says ------------------------------------------------------------------------------------ */

tc_stats stats(void)
{
    tc_stats now;
    tc_get_stats(&now);
    return now;
}

tc_config config(void)
{
    tc_config now;
    tc_get_config(&now);
    return now;
}

void configure(tc_config settings)
{
    CHECK_INT(tc_set_config(&settings), TC_OK);
}

size_t record_count(void)
{
    size_t count;
    CHECK_INT(tc_registry_collect(0, NULL, 0, &count), TC_OK);
    return count;
}

tc_record only_record(void)
{
    tc_record record;
    size_t count;
    CHECK_INT(tc_registry_collect(0, &record, 1, &count), TC_OK);
    CHECK_INT(count, 1);
    return record;
}

tc_record record_of(const tc_conv *conv, const char *algorithm)
{
    tc_record record = {.time_seconds = 1e-3, .default_seconds = 2e-3, .created = 1, .candidates_tried = 2,
                        .candidates_total = 2, .provenance = TC_MEASURED};
    key_of(conv, record.key);
    strcpy(record.environment, "engine=fake;version=1;device=any");
    strcpy(record.algorithm, algorithm);
    return record;
}

void expect_no_warning(void)
{
    char text[TC_MESSAGE_SIZE];
    if (tc_take_warning(text, sizeof text) > 0)
        fail_check(__FILE__, __LINE__, "expected no warning, got '%s'", text);
}

void expect_warning(const char *part)
{
    char text[TC_MESSAGE_SIZE] = "";
    tc_take_warning(text, sizeof text);
    CHECK_HAS(text, part);
    expect_no_warning();
}

/* ---- running ----------------------------------------------------------------------------------------------- */

static const test_case *const all_cases[] = {conv_cases,   record_cases,   tuner_cases,  budget_cases,    verify_cases,
                                             stored_cases, soft_cases,     offer_cases,  pattern_cases,   policy_cases,
                                             fallback_cases, engine_cases, reference_cases, thread_cases, trials_cases,
                                             peers_cases};
static double (*real_clock)(void);

static void run_once(const test_case *test)
{
    static tc_config defaults;
    if (defaults.minimum_runs == 0)
        tc_get_config(&defaults);
    running = test->name;
    test->run();
    tc_engine_close("fake"); /* those that are not open say so, which is no matter */
    tc_engine_close("reference");
    tc_set_override(-1, NULL);
    tc_registry_clear();
    tc_set_config(&defaults);
    tc_clock = real_clock;
    if (fake.live_plans)
        CHECK_INT(fake.live_plans(), 0);
}

static void run_case(const test_case *test)
{
    for (can_find = 0; can_find < 2; can_find++)
        run_once(test);
    printf("%s ok\n", test->name);
}

int main(int argc, char **argv)
{
    real_clock = tc_clock;
    for (size_t i = 0; i < sizeof all_cases / sizeof *all_cases; i++) {
        for (const test_case *test = all_cases[i]; test->name; test++) {
            int named = argc == 2 && strcmp(argv[1], "all") == 0;
            for (int j = 1; j < argc; j++)
                named |= strcmp(argv[j], test->name) == 0;
            if (argc == 1)
                printf("%s\n", test->name);
            else if (named)
                run_case(test);
        }
    }
    if (argc == 2 && strcmp(argv[1], "benchmark") == 0)
        benchmark();
    return 0;
}
