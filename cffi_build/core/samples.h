/* Comparing a candidate's output with the default's, on chunks spread evenly over it. */
#ifndef TC_SAMPLES_H
#define TC_SAMPLES_H

#include "conv.h"
#include "engines.h"

enum { TC_SAMPLE_CHUNKS = 16 };

typedef struct tc_samples {
    const tc_engine *engine;
    const tc_context *ctx;
    tc_output output;
    size_t offsets[TC_SAMPLE_CHUNKS], sizes[TC_SAMPLE_CHUNKS], chunks; /* bytes */
    size_t bytes;
    void *reference, *other;      /* the chunks, one after the other */
    double rms;                   /* of the reference's finite values */
    size_t finite;                /* how many of them there are */
    double share, relative;       /* of rms and of the value: differences that rounding explains */
} tc_samples;

tc_status tc_samples_begin(tc_samples *samples, const tc_engine *engine, const tc_conv *conv, const tc_context *ctx,
                           const tc_operands *operands);
void tc_samples_end(tc_samples *samples);

/* Makes the sampled places NaN, so that a value nobody writes shows. */
tc_status tc_samples_poison(const tc_samples *samples);
/* Keeps what is there now as the values to compare with. */
tc_status tc_samples_take_reference(tc_samples *samples);
/* TC_ENGINE_FAILURE when what is there now differs by more than rounding explains. */
tc_status tc_samples_compare(tc_samples *samples);

/* Too few finite values to tell a right output from a wrong one. */
int tc_samples_are_useless(const tc_samples *samples);
/* All zeros, as many wrong algorithms would give for the same input. */
int tc_samples_are_zero(const tc_samples *samples);

#endif
