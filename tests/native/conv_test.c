/* Descriptors and their keys: what is refused, and that text and descriptor say the same. */
#include "native_test.h"

static tc_conv one_dimensional(void)
{
    tc_conv conv = {
        .direction = TC_BACKWARD_FILTER, .spatial_rank = 1,
        .x_dtype = TC_BF16, .w_dtype = TC_F16, .y_dtype = TC_F64, .compute_dtype = TC_F64,
        .x_layout = TC_CHANNELS_FIRST, .w_layout = TC_OHWI, .y_layout = TC_CHANNELS_LAST,
        .allow_tf32 = 1, .deterministic = 1, .groups = 2,
        .x_dims = {5, 4, 100}, .w_dims = {6, 2, 3},
        .pad_before = {0}, .pad_after = {7}, .stride = {2}, .dilation = {3},
    };
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    return conv;
}

static tc_conv three_dimensional(void)
{
    tc_conv conv = {
        .direction = TC_BACKWARD_DATA, .spatial_rank = 3,
        .x_dtype = TC_F32, .w_dtype = TC_F32, .y_dtype = TC_F32, .compute_dtype = TC_F32,
        .w_layout = TC_OIHW, .groups = 1,
        .x_dims = {1, 2, 9, 8, 7}, .w_dims = {3, 2, 1, 2, 3},
        .pad_before = {0, 1, 2}, .pad_after = {3, 4, 5}, .stride = {1, 2, 3}, .dilation = {3, 2, 1},
    };
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    return conv;
}

static void formats_as_documented(void)
{
    char key[TC_KEY_SIZE];
    tc_conv conv = problem(8);
    key_of(&conv, key);
    CHECK_TEXT(key, "forward|x=float32:nhwc:8x3x6x6|w=float32:hwio:4x3x3x3|y=float32:nhwc:8x4x6x6|pad=1,1:1,1|"
                    "stride=1,1|dilation=1,1|groups=1|mode=cross_correlation|compute=float32|tf32=0|deterministic=0|"
                    "epilogue=none");
    conv = one_dimensional();
    key_of(&conv, key);
    CHECK_TEXT(key, "backward_filter|x=bfloat16:ncw:5x4x100|w=float16:owi:6x2x3|y=float64:nwc:5x6x51|pad=0:7|stride=2|"
                    "dilation=3|groups=2|mode=cross_correlation|compute=float64|tf32=1|deterministic=1|epilogue=none");
    conv = three_dimensional();
    key_of(&conv, key);
    CHECK_HAS(key, "w=float32:oidhw:3x2x1x2x3|");
}

static void parses_what_it_formats(void)
{
    const tc_conv convs[] = {problem(1), problem(0), one_dimensional(), three_dimensional()};
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        char key[TC_KEY_SIZE];
        tc_conv parsed;
        key_of(&convs[i], key);
        CHECK_INT(tc_key_parse(key, &parsed), TC_OK);
        CHECK(memcmp(&parsed, &convs[i], sizeof parsed) == 0);
    }
}

/* Whatever a byte is changed to, what is accepted is written the same way again. */
static void accepts_nothing_else(void)
{
    char key[TC_KEY_SIZE], mutated[TC_KEY_SIZE], again[TC_KEY_SIZE];
    tc_conv conv = one_dimensional(), parsed;
    key_of(&conv, key);
    size_t length = strlen(key);
    for (size_t i = 0; i < length; i++) {
        for (int byte = 1; byte < 256; byte++) {
            strcpy(mutated, key);
            mutated[i] = (char)byte;
            if (tc_key_parse(mutated, &parsed) == TC_OK) {
                key_of(&parsed, again);
                CHECK_TEXT(again, mutated);
            }
        }
        strcpy(mutated, key);
        mutated[i] = '\0';
        CHECK_INT(tc_key_parse(mutated, &parsed), TC_INVALID_ARGUMENT);
    }
    const char *const malformed[] = {
        "", "forward", "forward|x=float32:nhwc:08x3x6x6|", "forward|x=float32:nhwc:+8x3x6x6|",
        "forward|x=float32:nhwc:99999999999999999999x3x6x6|",
    };
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        CHECK_INT(tc_key_parse(malformed[i], &parsed), TC_INVALID_ARGUMENT);
    strcat(strcpy(mutated, key), " ");
    CHECK_INT(tc_key_parse(mutated, &parsed), TC_INVALID_ARGUMENT);
    CHECK_INT(tc_key_parse(NULL, &parsed), TC_INVALID_ARGUMENT);
}

/* The same output size from other padding, stride or dilation is another key. */
static void tells_every_field_apart(void)
{
    tc_conv convs[32];
    size_t count = 0;
    const tc_conv base = one_dimensional();
#define VARIANT(...)                                              \
    do {                                                          \
        tc_conv *conv = &convs[count++];                          \
        *conv = base;                                             \
        __VA_ARGS__;                                              \
        CHECK_INT(tc_conv_infer_output(conv), TC_OK);             \
    } while (0)
    VARIANT(conv->direction = TC_FORWARD);
    VARIANT(conv->direction = TC_BACKWARD_DATA);
    VARIANT(conv->direction = TC_BACKWARD_FILTER);
    VARIANT(conv->x_dtype = TC_F32);
    VARIANT(conv->w_dtype = TC_F32);
    VARIANT(conv->y_dtype = TC_F32);
    VARIANT(conv->compute_dtype = TC_F32);
    VARIANT(conv->x_layout = TC_CHANNELS_LAST);
    VARIANT(conv->w_layout = TC_HWIO);
    VARIANT(conv->w_layout = TC_OIHW);
    VARIANT(conv->y_layout = TC_CHANNELS_FIRST);
    VARIANT(conv->allow_tf32 = 0);
    VARIANT(conv->deterministic = 0);
    VARIANT(conv->groups = 1, conv->w_dims[1] = 4);
    VARIANT(conv->x_dims[0] = 6);
    VARIANT(conv->x_dims[1] = 8, conv->w_dims[1] = 4);
    VARIANT(conv->x_dims[2] = 101);
    VARIANT(conv->w_dims[0] = 8);
    VARIANT(conv->w_dims[2] = 4);
    VARIANT(conv->pad_before[0] = 1);
    VARIANT(conv->pad_before[0] = 7, conv->pad_after[0] = 0);
    VARIANT(conv->pad_after[0] = 8);
    VARIANT(conv->stride[0] = 1);
    VARIANT(conv->dilation[0] = 2);
    VARIANT(conv->dilation[0] = 2, conv->w_dims[2] = 4);
    for (size_t i = 0; i < count; i++) {
        char key[TC_KEY_SIZE], other[TC_KEY_SIZE];
        key_of(&convs[i], key);
        for (size_t j = 0; j < i; j++) {
            key_of(&convs[j], other);
            CHECK(strcmp(key, other) != 0);
        }
    }
}

static void names_the_field_at_fault(void)
{
    const tc_conv base = problem(2);
#define REFUSED(field, ...)                                        \
    do {                                                           \
        tc_conv conv = base;                                       \
        __VA_ARGS__;                                               \
        CHECK_INT(tc_conv_check(&conv), TC_INVALID_ARGUMENT);      \
        CHECK_HAS(tc_last_error(), field);                         \
    } while (0)
    REFUSED("direction", conv.direction = 3);
    REFUSED("direction", conv.direction = -1);
    REFUSED("spatial_rank", conv.spatial_rank = 4);
    REFUSED("spatial_rank", conv.spatial_rank = 0);
    REFUSED("x_dtype", conv.x_dtype = 4);
    REFUSED("w_dtype", conv.w_dtype = -1);
    REFUSED("y_dtype", conv.y_dtype = 99);
    REFUSED("compute_dtype", conv.compute_dtype = 4);
    REFUSED("x_layout", conv.x_layout = 2);
    REFUSED("w_layout", conv.w_layout = 3);
    REFUSED("allow_tf32", conv.allow_tf32 = 2);
    REFUSED("deterministic", conv.deterministic = -1);
    REFUSED("epilogue", conv.epilogue = 1);
    REFUSED("groups", conv.groups = 0);
    REFUSED("groups", conv.groups = 2);
    REFUSED("groups", conv.groups = INT64_MAX);
    REFUSED("x_dims[2]", conv.x_dims[2] = -1);
    REFUSED("x_dims[4]", conv.x_dims[4] = 1);
    REFUSED("x_dims", conv.x_dims[0] = INT64_MAX);
    REFUSED("w_dims[3]", conv.w_dims[3] = 0);
    REFUSED("channels", conv.w_dims[1] = 2);
    REFUSED("y_dims[0]", conv.y_dims[0] = 3);
    REFUSED("y_dims[2]", conv.y_dims[2] = 5);
    REFUSED("pad_before[0]", conv.pad_before[0] = -1);
    REFUSED("pad_after[2]", conv.pad_after[2] = 1);
    REFUSED("stride[1]", conv.stride[1] = 0);
    REFUSED("stride[0]", conv.stride[0] = INT64_C(1) << 31);
    REFUSED("dilation[0]", conv.dilation[0] = 0);
    CHECK_INT(tc_conv_check(NULL), TC_INVALID_ARGUMENT);
}

static void infers_the_output(void)
{
    tc_conv conv = problem(2);
    conv.x_dims[2] = 9;
    conv.stride[0] = 2;
    conv.pad_before[0] = conv.pad_after[0] = 0;
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    CHECK_INT(conv.y_dims[2], 4);
    conv.dilation[0] = 5; /* 11 places wide, in an input of 9: no place to put it */
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    CHECK_INT(conv.y_dims[2], 0);
    conv.pad_after[0] = 2; /* exactly one */
    CHECK_INT(tc_conv_infer_output(&conv), TC_OK);
    CHECK_INT(conv.y_dims[2], 1);
    CHECK_INT(conv.y_dims[1], 4);
}

static void says_how_large_a_buffer_must_be(void)
{
    char key[TC_KEY_SIZE], expected[64];
    tc_conv conv = problem(2);
    key_of(&conv, key);
    size_t needed = strlen(key) + 1;
    CHECK_INT(tc_key_format(&conv, key, needed), TC_OK);
    CHECK_INT(tc_key_format(&conv, key, needed - 1), TC_INVALID_ARGUMENT);
    snprintf(expected, sizeof expected, "%zu bytes", needed);
    CHECK_HAS(tc_last_error(), expected);
    CHECK_INT(tc_key_format(&conv, key, 0), TC_INVALID_ARGUMENT);
}

const test_case conv_cases[] = {
    {"conv/formats_as_documented", formats_as_documented},
    {"conv/parses_what_it_formats", parses_what_it_formats},
    {"conv/accepts_nothing_else", accepts_nothing_else},
    {"conv/tells_every_field_apart", tells_every_field_apart},
    {"conv/names_the_field_at_fault", names_the_field_at_fault},
    {"conv/infers_the_output", infers_the_output},
    {"conv/says_how_large_a_buffer_must_be", says_how_large_a_buffer_must_be},
    {NULL, NULL},
};
