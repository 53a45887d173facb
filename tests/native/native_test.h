/* What the C tests share: checks, the scripted engine, and a small problem to run on it. */
#ifndef NATIVE_TEST_H
#define NATIVE_TEST_H

#include <stdio.h>
#include <string.h>

#include "fake_engine.h"
#include "tunedconv_engine.h"

typedef struct test_case {
    const char *name;
    void (*run)(void);
} test_case;

extern const test_case conv_cases[], record_cases[], tuner_cases[], budget_cases[], verify_cases[], stored_cases[],
    soft_cases[], offer_cases[], pattern_cases[], policy_cases[], fallback_cases[], engine_cases[], reference_cases[],
    thread_cases[], trials_cases[], peers_cases[];

/* ---- checks: the first that fails ends the case -------------------------------------------------------- */
_Noreturn void fail_check(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define CHECK(condition)                                              \
    do {                                                              \
        if (!(condition))                                             \
            fail_check(__FILE__, __LINE__, "%s is false", #condition); \
    } while (0)
#define CHECK_INT(received, expected)                                                                             \
    do {                                                                                                          \
        long long got_ = (long long)(received), want_ = (long long)(expected);                                    \
        if (got_ != want_)                                                                                        \
            fail_check(__FILE__, __LINE__, "%s is %lld, expected %lld (last error: %s)", #received, got_, want_,  \
                       tc_last_error());                                                                          \
    } while (0)
#define CHECK_NEAR(received, expected, share)                                                              \
    do {                                                                                                   \
        double got_ = (received), want_ = (expected), off_ = got_ - want_;                                 \
        if (!((off_ < 0 ? -off_ : off_) <= (share) * (want_ < 0 ? -want_ : want_)))                        \
            fail_check(__FILE__, __LINE__, "%s is %g, expected %g", #received, got_, want_);               \
    } while (0)
#define CHECK_TEXT(received, expected)                                                                      \
    do {                                                                                                    \
        const char *got_ = (received), *want_ = (expected);                                                 \
        if (strcmp(got_, want_) != 0)                                                                       \
            fail_check(__FILE__, __LINE__, "%s is '%s', expected '%s'", #received, got_, want_);            \
    } while (0)
#define CHECK_HAS(text, part)                                                                               \
    do {                                                                                                    \
        const char *got_ = (text), *want_ = (part);                                                         \
        if (!strstr(got_, want_))                                                                           \
            fail_check(__FILE__, __LINE__, "%s is '%s', expected it to have '%s'", #text, got_, want_);     \
    } while (0)

/* ---- the scripted engine, loaded for each case ------------------------------------------------------- */
typedef struct fake_functions {
    void (*set_device_kind)(int32_t);
    void (*set_exact)(int32_t);
    void (*set_finding)(int32_t);
    void (*set_algorithms)(const fake_algorithm *, size_t);
    void (*set_capturing)(int32_t);
    void (*set_model)(int32_t, const char *);
    void (*set_soft)(const char *);
    void (*reset)(void);
    double (*clock)(void);
    int64_t (*runs)(const char *);
    int64_t (*prepares)(const char *);
    int64_t (*listings)(void);
    int64_t (*most_preparing)(void);
    int64_t (*live_plans)(void);
} fake_functions;
extern fake_functions fake;
/* The file of the scripted engine, and one that is no engine. */
const char *fake_library(void);

/*
 * Loads it for a device kind, with the clock of budgets its virtual one; each batch size is measured. Each case
 * begins with it. Cases run twice, the second time with an engine that can be asked for one algorithm by name.
 */
void begin(int32_t device_kind);
extern int can_find;
#define SCRIPT(...)                                                                                     \
    fake.set_algorithms((const fake_algorithm[]){__VA_ARGS__},                                          \
                        sizeof((const fake_algorithm[]){__VA_ARGS__}) / sizeof(fake_algorithm))

/* ---- a problem ------------------------------------------------------------------------------------------ */
/* A forward convolution in float32; the batch size tells keys apart. At most 64 items. */
tc_conv problem(int64_t batch);
void key_of(const tc_conv *conv, char key[TC_KEY_SIZE]);
/* The operands of every problem. Filled with numbers of order 1, or all with one value. */
extern float x_data[], w_data[], y_data[];
void fill_operands(void);
void fill_operands_with(float value);
extern const tc_operands operands;
tc_context context(void); /* of the device kind that begin was given */
tc_status convolve(const tc_conv *conv);
/* By how much the output differs from the product the engine is to form, as a share: an algorithm's tint. */
double tint_of_output(const tc_conv *conv);

tc_stats stats(void);
tc_config config(void);
void configure(tc_config settings);
/* The one record of the registry. */
tc_record only_record(void);
size_t record_count(void);
/* A record for a problem as a file might have it. */
tc_record record_of(const tc_conv *conv, const char *algorithm);
/* Takes one warning that has all of the text, and checks there is no other. */
void expect_warning(const char *part);
void expect_no_warning(void);

#endif
