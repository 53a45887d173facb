/* Which known convolution is nearest to one that nothing is stored for. */
#include "nearest.h"

#include <string.h>

#include "config.h"
#include "store.h"

/* How near a relative is; distances are ratios of at least 1. */
typedef struct nearness {
    int is_found, is_measured;
    double size_ratio, batch_ratio;
    int64_t pixels, batch;
} nearness;

typedef struct search {
    const tc_conv *conv;
    nearness same_size, other_size;
    tc_record same_size_record, other_size_record;
    int64_t sizes[TC_MAXIMUM_SIZES][TC_MAX_SPATIAL]; /* measured ones */
    int32_t size_count, maximum_sizes;
} search;

static int64_t pixels_of(const tc_conv *conv)
{
    int64_t pixels = 1;
    for (int i = 0; i < conv->spatial_rank; i++)
        pixels *= conv->x_dims[2 + i];
    return pixels;
}

static double ratio_of(int64_t a, int64_t b)
{
    return a > b ? (double)a / (double)b : (double)b / (double)a;
}

static int is_measured(const tc_record *record)
{
    return record->provenance != TC_COPIED && record->provenance != TC_PREDICTED;
}

/* Relatives of one image size may still differ in padding. */
static int is_same_size(const tc_conv *a, const tc_conv *b)
{
    return memcmp(a->x_dims + 2, b->x_dims + 2, sizeof a->x_dims - 2 * sizeof *a->x_dims) == 0 &&
           memcmp(a->pad_before, b->pad_before, sizeof a->pad_before) == 0 &&
           memcmp(a->pad_after, b->pad_after, sizeof a->pad_after) == 0;
}

static void count_size(search *in, const tc_conv *conv)
{
    if (in->size_count == in->maximum_sizes)
        return;
    for (int32_t i = 0; i < in->size_count; i++)
        if (memcmp(in->sizes[i], conv->x_dims + 2, sizeof in->sizes[i]) == 0)
            return;
    memcpy(in->sizes[in->size_count++], conv->x_dims + 2, sizeof *in->sizes);
}

static int is_nearer(const nearness *a, const nearness *b)
{
    if (!b->is_found || a->is_measured != b->is_measured)
        return !b->is_found || a->is_measured;
    if (a->size_ratio != b->size_ratio)
        return a->size_ratio < b->size_ratio;
    if (a->pixels != b->pixels)
        return a->pixels > b->pixels;
    if (a->batch_ratio != b->batch_ratio)
        return a->batch_ratio < b->batch_ratio;
    return a->batch > b->batch;
}

static void consider(void *user, const tc_record *record, const tc_conv *conv)
{
    search *in = user;
    int same_size = is_same_size(conv, in->conv);
    nearness near = {.is_found = 1, .is_measured = is_measured(record), .pixels = pixels_of(conv),
                     .batch = conv->x_dims[0], .batch_ratio = ratio_of(conv->x_dims[0], in->conv->x_dims[0])};
    near.size_ratio = ratio_of(near.pixels, pixels_of(in->conv));
    if (near.is_measured)
        count_size(in, conv);
    nearness *best = same_size ? &in->same_size : &in->other_size;
    if (!is_nearer(&near, best))
        return;
    *best = near;
    memcpy(same_size ? &in->same_size_record : &in->other_size_record, record, sizeof *record);
}

int tc_nearest(const tc_conv *conv, const char *environment, int32_t maximum_sizes, tc_record *record)
{
    search in = {.conv = conv, .maximum_sizes = maximum_sizes};
    tc_store_visit_relatives(conv, environment, consider, &in);
    int has_all_sizes = in.size_count == maximum_sizes;
    if (!in.same_size.is_found && !(has_all_sizes && in.other_size.is_found))
        return 0;
    *record = in.same_size.is_found ? in.same_size_record : in.other_size_record;
    return 1;
}
