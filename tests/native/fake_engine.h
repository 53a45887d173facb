/*
 * How tests script the fake engine. Its functions are exported by the engine's library; everything they
 * set holds until fake_reset.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

typedef enum fake_output {
    FAKE_RIGHT = 0,
    FAKE_UNWRITTEN = 1, /* leaves the output as it was */
    FAKE_CUT_SHORT = 2  /* leaves its last element as it was */
} fake_output;

/* One algorithm; zeros make a working one of no duration. */
typedef struct fake_algorithm {
    char name[64];
    uint32_t flags;         /* tc_candidate_flags */
    int32_t output;         /* fake_output */
    double seconds;         /* a run takes, on the engine's virtual clock */
    double jitter;          /* every second run takes this share longer */
    double chill;           /* each of the first `cold_runs` takes this many seconds longer */
    int64_t cold_runs;
    double prepare_seconds;
    double tint;            /* share added to each value: tells whose numbers they are, 1 makes them wrong */
    int64_t workspace;
    int32_t prepare_status; /* what prepare returns */
    int32_t run_status;     /* what a run returns after `good_runs` that worked */
    int32_t good_runs;
    int32_t prepare_milliseconds; /* of the real clock, for threads to meet in */
    int32_t prepare_reads;  /* a file that prepare waits for a byte from, for processes to meet in; 0 is none */
} fake_algorithm;

/* Before tunedconv loads the engine: the tc_device_kind it claims to be for. */
void fake_set_device_kind(int32_t device_kind);
/* Before it is loaded: whether it claims that determinism and TF32 make no difference to it. */
void fake_set_exact(int32_t exact);
/* Before it is loaded: whether it can be asked for one algorithm by name. */
void fake_set_finding(int32_t finding);
/* The algorithms, in the engine's order of preference. */
void fake_set_algorithms(const fake_algorithm *algorithms, size_t count);
/* Whether every stream is being captured, so that nothing may be measured. */
void fake_set_capturing(int32_t capturing);
/* The device model named in the environment of an ordinal. */
void fake_set_model(int32_t ordinal, const char *model);
/* Soft fields of the environment, such as "~patch=1;~driver=2"; none by default. */
void fake_set_soft(const char *fields);
void fake_reset(void);

/* Seconds that preparing and running took so far. */
double fake_clock(void);
int64_t fake_runs(const char *algorithm);
int64_t fake_prepares(const char *algorithm);
/* How often it was asked for all of its algorithms. */
int64_t fake_listings(void);
/* The most threads that were in prepare at once. */
int64_t fake_most_preparing(void);
/* Plans that were prepared and not released. */
int64_t fake_live_plans(void);

#endif
