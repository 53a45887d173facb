/* Comparing a candidate's output with the default's, on chunks spread evenly over it. */
#include "samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numeric.h"

enum { CHUNK_BYTES = 32 * 1024 };

/* ---- tolerances ------------------------------------------------------------------------------------- */

static double unit_roundoff(int32_t dtype)
{
    switch (dtype) {
    case TC_F16: return 0x1p-11;
    case TC_BF16: return 0x1p-8;
    case TC_F32: return 0x1p-24;
    default: return 0x1p-53;
    }
}

/*
 * Errors of a sum scale with the size of the values around it, not with its own, so most of what is
 * allowed is a share of the output's root mean square. Transformed algorithms (Winograd, FFT) lose some
 * digits more than plain sums; an algorithm that is wrong is off by about the root mean square itself.
 */
static void set_tolerances(tc_samples *samples, const tc_conv *conv)
{
    const int32_t dtypes[] = {conv->x_dtype, conv->w_dtype, conv->y_dtype, conv->compute_dtype};
    int32_t narrowest = TC_F64;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (unit_roundoff(dtypes[i]) > unit_roundoff(narrowest))
            narrowest = dtypes[i];
    static const double shares[] = {[TC_F16] = 1e-2, [TC_BF16] = 4e-2, [TC_F32] = 1e-3, [TC_F64] = 1e-9};
    double share = shares[narrowest];
    if (narrowest == TC_F32 && conv->allow_tf32)
        share = 1e-2;
    double walk = 16 * unit_roundoff(conv->compute_dtype) * sqrt((double)tc_conv_reduction(conv));
    samples->share = share + walk;
    samples->relative = 4 * unit_roundoff(samples->output.dtype);
}

/* ---- chunks ----------------------------------------------------------------------------------------- */

static void place_chunks(tc_samples *samples)
{
    size_t element = tc_dtype_size(samples->output.dtype);
    size_t total = (size_t)samples->output.elements * element;
    if (total <= (size_t)TC_SAMPLE_CHUNKS * CHUNK_BYTES) {
        samples->chunks = 1;
        samples->offsets[0] = 0;
        samples->sizes[0] = samples->bytes = total;
        return;
    }
    samples->chunks = TC_SAMPLE_CHUNKS;
    samples->bytes = (size_t)TC_SAMPLE_CHUNKS * CHUNK_BYTES;
    for (size_t i = 0; i < TC_SAMPLE_CHUNKS; i++) {
        size_t even = (total - CHUNK_BYTES) / (TC_SAMPLE_CHUNKS - 1) * i;
        samples->offsets[i] = i + 1 < TC_SAMPLE_CHUNKS ? even / element * element : total - CHUNK_BYTES;
        samples->sizes[i] = CHUNK_BYTES;
    }
}

static tc_status fetch(const tc_samples *samples, void *host)
{
    const tc_engine *engine = samples->engine;
    size_t used = 0;
    tc_status status = TC_OK;
    for (size_t i = 0; i < samples->chunks && status == TC_OK; i++) {
        status = engine->ops->fetch(engine->state, samples->ctx, (char *)host + used,
                                    (const char *)samples->output.pointer + samples->offsets[i], samples->sizes[i]);
        used += samples->sizes[i];
    }
    return status;
}

/* ---- the interface ----------------------------------------------------------------------------------- */

tc_status tc_samples_begin(tc_samples *samples, const tc_engine *engine, const tc_conv *conv, const tc_context *ctx,
                           const tc_operands *operands)
{
    *samples = (tc_samples){.engine = engine, .ctx = ctx, .output = tc_conv_output(conv, operands)};
    place_chunks(samples);
    set_tolerances(samples, conv);
    samples->reference = malloc(samples->bytes);
    samples->other = malloc(samples->bytes);
    if (samples->reference && samples->other)
        return TC_OK;
    tc_samples_end(samples);
    return tc_fail(TC_OUT_OF_MEMORY, "no memory for %zu bytes of samples", 2 * samples->bytes);
}

void tc_samples_end(tc_samples *samples)
{
    free(samples->reference);
    free(samples->other);
    samples->reference = samples->other = NULL;
}

tc_status tc_samples_poison(const tc_samples *samples)
{
    const tc_engine *engine = samples->engine;
    tc_status status = TC_OK;
    for (size_t i = 0; i < samples->chunks && status == TC_OK; i++)
        status = engine->ops->poison(engine->state, samples->ctx,
                                     (char *)samples->output.pointer + samples->offsets[i], samples->sizes[i]);
    return status;
}

tc_status tc_samples_take_reference(tc_samples *samples)
{
    tc_status status = fetch(samples, samples->reference);
    if (status != TC_OK)
        return status;
    size_t count = samples->bytes / tc_dtype_size(samples->output.dtype);
    double squares = 0;
    samples->finite = 0;
    for (size_t i = 0; i < count; i++) {
        double value = tc_load_value(samples->reference, (int64_t)i, samples->output.dtype);
        if (!isfinite(value))
            continue;
        squares += value * value;
        samples->finite++;
    }
    samples->rms = samples->finite ? sqrt(squares / (double)samples->finite) : 0;
    return TC_OK;
}

tc_status tc_samples_compare(tc_samples *samples)
{
    tc_status status = fetch(samples, samples->other);
    if (status != TC_OK || memcmp(samples->reference, samples->other, samples->bytes) == 0)
        return status;
    int32_t dtype = samples->output.dtype;
    size_t count = samples->bytes / tc_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        double expected = tc_load_value(samples->reference, (int64_t)i, dtype);
        double received = tc_load_value(samples->other, (int64_t)i, dtype);
        if (!isfinite(expected) && !isfinite(received))
            continue;
        double allowed = samples->share * samples->rms + samples->relative * fabs(expected);
        if (!(fabs(received - expected) <= allowed))
            return tc_fail(TC_ENGINE_FAILURE, "its output differs from the default's: %g where that has %g, more than "
                           "the %g that rounding explains", received, expected, allowed);
    }
    return TC_OK;
}

int tc_samples_are_useless(const tc_samples *samples)
{
    return 2 * samples->finite < samples->bytes / tc_dtype_size(samples->output.dtype);
}

int tc_samples_are_zero(const tc_samples *samples)
{
    return samples->finite > 0 && !(samples->rms > 0);
}
