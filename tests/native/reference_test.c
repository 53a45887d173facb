/*
 * The plain loops against identities that need no second implementation: the three directions are
 * derivatives of one trilinear form, so <y, conv(x, w)> = <x, conv_data(w, y)> = <w, conv_filter(x, y)>.
 * Their numbers against an independent convolution are in tests/engines.
 */
#include <math.h>
#include <stdlib.h>

#include "native_test.h"
#include "numeric.h"

static void run(const tc_conv *conv, const tc_operands *data)
{
    tc_context ctx = {.device_kind = TC_CPU};
    CHECK_INT(tc_run_algorithm(conv, &ctx, data, "reference", 0, NULL), TC_OK);
}

/* Small whole numbers, which every dtype holds. */
static void *numbers(int64_t count, int32_t dtype, int seed)
{
    void *data = malloc((size_t)count * tc_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++)
        tc_store_value(data, i, dtype, (double)((i * 7 + seed * 3) % 5 - 2));
    return data;
}

static double dot(const void *a, const void *b, int64_t count, int32_t dtype)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += tc_load_value(a, i, dtype) * tc_load_value(b, i, dtype);
    return sum;
}

static void check_adjoint(tc_conv conv)
{
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    int64_t xs = tc_elements(conv.x_dims, conv.spatial_rank), ws = tc_elements(conv.w_dims, conv.spatial_rank),
            ys = tc_elements(conv.y_dims, conv.spatial_rank);
    CHECK(ys > 0);
    void *x = numbers(xs, conv.x_dtype, 1), *w = numbers(ws, conv.w_dtype, 2), *dy = numbers(ys, conv.y_dtype, 3),
         *y = numbers(ys, conv.y_dtype, 4), *dx = numbers(xs, conv.x_dtype, 5), *dw = numbers(ws, conv.w_dtype, 6);
    conv.direction = TC_FORWARD;
    run(&conv, &(tc_operands){x, w, y});
    conv.direction = TC_BACKWARD_DATA;
    run(&conv, &(tc_operands){dx, w, dy});
    conv.direction = TC_BACKWARD_FILTER;
    run(&conv, &(tc_operands){x, dw, dy});
    double form = dot(y, dy, ys, conv.y_dtype);
    CHECK(form != 0);
    CHECK_NEAR(dot(x, dx, xs, conv.x_dtype), form, 1e-12);
    CHECK_NEAR(dot(w, dw, ws, conv.w_dtype), form, 1e-12);
    free(x), free(w), free(y), free(dx), free(dw), free(dy);
}

static void directions_are_adjoint(void)
{
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    for (int32_t dtype = TC_F16; dtype <= TC_F64; dtype++) {
        tc_conv conv = {
            .spatial_rank = 2, .x_dtype = dtype, .w_dtype = dtype, .y_dtype = dtype, .compute_dtype = TC_F32,
            .groups = 2, .x_dims = {2, 4, 7, 6}, .w_dims = {6, 2, 3, 2},
            .pad_before = {1, 0}, .pad_after = {2, 1}, .stride = {2, 1}, .dilation = {1, 3},
        };
        for (int32_t layout = 0; layout < 6; layout++) {
            conv.x_layout = layout % 2;
            conv.y_layout = layout / 2 % 2;
            conv.w_layout = layout % 3;
            if (dtype >= TC_F32) /* halves round the sums */
                check_adjoint(conv);
        }
    }
    tc_conv line = {.spatial_rank = 1, .x_dtype = TC_F32, .w_dtype = TC_F32, .y_dtype = TC_F32,
                    .compute_dtype = TC_F32, .groups = 3, .x_dims = {1, 3, 20}, .w_dims = {3, 1, 5},
                    .pad_before = {4}, .stride = {3}, .dilation = {2}};
    check_adjoint(line);
    tc_conv volume = {.spatial_rank = 3, .x_dtype = TC_F64, .w_dtype = TC_F64, .y_dtype = TC_F64,
                      .compute_dtype = TC_F64, .groups = 1, .x_dims = {2, 2, 5, 4, 3}, .w_dims = {3, 2, 2, 3, 1},
                      .pad_before = {0, 1, 0}, .pad_after = {1, 1, 0}, .stride = {1, 2, 1}, .dilation = {2, 1, 1}};
    check_adjoint(volume);
}

/* By hand: [1 2 3 4] with the filter [1 0 -1], padded by one, gives [-2 -2 -2 3]. */
static void known_numbers_come_out(void)
{
    CHECK_INT(tc_engine_open("reference", NULL), TC_OK);
    tc_conv conv = {.spatial_rank = 1, .x_dtype = TC_F32, .w_dtype = TC_F32, .y_dtype = TC_F32,
                    .compute_dtype = TC_F32, .groups = 1, .x_dims = {1, 1, 4}, .w_dims = {1, 1, 3},
                    .pad_before = {1}, .pad_after = {1}, .stride = {1}, .dilation = {1}};
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    float x[] = {1, 2, 3, 4}, w[] = {1, 0, -1}, y[4];
    const float expected[] = {-2, -2, -2, 3};
    run(&conv, &(tc_operands){x, w, y});
    for (int i = 0; i < 4; i++)
        CHECK(y[i] == expected[i]);
}

static void check_rounding(double value, uint16_t f16, uint16_t bf16)
{
    CHECK_INT(tc_double_to_f16(value), f16);
    CHECK_INT(tc_double_to_bf16(value), bf16);
}

static void halves_round_to_even(void)
{
    check_rounding(1.0, 0x3C00, 0x3F80);
    check_rounding(-2.0, 0xC000, 0xC000);
    check_rounding(-0.0, 0x8000, 0x8000);
    check_rounding(1 + 0x1p-11, 0x3C00, 0x3F80);          /* half way: to even, down */
    check_rounding(1 + 3 * 0x1p-11, 0x3C02, 0x3F80);      /* half way: to even, up */
    check_rounding(1 + 0x1p-11 + 0x1p-40, 0x3C01, 0x3F80);
    check_rounding(1 + 3 * 0x1p-8, 0x3C0C, 0x3F82);
    check_rounding(65504, 0x7BFF, 0x4780);
    check_rounding(65519.99, 0x7BFF, 0x4780);
    check_rounding(65520, 0x7C00, 0x4780);                /* rounds up, out of float16's range */
    check_rounding(0x1.FFp127, 0x7C00, 0x7F80);
    check_rounding(0x1.FEp127, 0x7C00, 0x7F7F);
    check_rounding(0x1p-24, 0x0001, 0x3380);              /* float16's smallest */
    check_rounding(0x1p-25, 0x0000, 0x3300);
    check_rounding(0x1.8p-25, 0x0001, 0x3340);
    check_rounding(0x1.FF8p-15, 0x03FF, 0x3880);          /* the largest subnormal */
    check_rounding(0x1.FFCp-15, 0x0400, 0x3880);          /* carries into the exponent */
    check_rounding(0x1p-133, 0x0000, 0x0001);
    check_rounding((double)INFINITY, 0x7C00, 0x7F80);
    check_rounding((double)-INFINITY, 0xFC00, 0xFF80);
    CHECK(isnan(tc_f16_to_double(tc_double_to_f16((double)NAN))));
    CHECK(isnan(tc_bf16_to_double(tc_double_to_bf16((double)NAN))));
    for (uint32_t bits = 0; bits < 0x10000; bits++) { /* every value comes back */
        double f16 = tc_f16_to_double((uint16_t)bits), bf16 = tc_bf16_to_double((uint16_t)bits);
        if (!isnan(f16))
            CHECK_INT(tc_double_to_f16(f16), bits);
        if (!isnan(bf16))
            CHECK_INT(tc_double_to_bf16(bf16), bits);
    }
}

const test_case reference_cases[] = {
    {"reference/directions_are_adjoint", directions_are_adjoint},
    {"reference/known_numbers_come_out", known_numbers_come_out},
    {"reference/halves_round_to_even", halves_round_to_even},
    {NULL, NULL},
};
