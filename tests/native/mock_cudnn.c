/*
 * cuDNN's backend interface without a GPU: descriptors that are checked as the real ones are, a handful of
 * engines with settings, and a convolution in double precision on the host's memory, by the strides given.
 *
 * The engines: 0 does everything; 1 takes settings 2 (0 to 3) and 13 (0 or 1), needs a workspace and fills it
 * with rubbish; 2 is not deterministic; 3 converts its inputs down; 4 refuses each graph when the plan is
 * built; 5 fails when run; 6 is known to no heuristic. All but 0 and 6 use tensor cores.
 *
 * mock_cudnn_set("name", value) changes what it answers; see the settings below. Built as libcudnn.so.9.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_api.h"

/* ---- settings -------------------------------------------------------------------------------------------- */

static struct {
    long version, cudart, fail_execute, fail_create, fail_plan, silent_heuristics, handles, plans, executions, packs;
} now = {.version = 92800, .cudart = 12090};

void mock_cudnn_set(const char *name, long value)
{
    if (!strcmp(name, "version"))
        now.version = value;
    else if (!strcmp(name, "cudart"))
        now.cudart = value;
    else if (!strcmp(name, "fail_execute"))
        now.fail_execute = value;
    else if (!strcmp(name, "fail_create"))
        now.fail_create = value;
    else if (!strcmp(name, "fail_plan"))
        now.fail_plan = value;
    else if (!strcmp(name, "silent_heuristics"))
        now.silent_heuristics = value;
    else
        abort();
}

long mock_cudnn_count(const char *name)
{
    return !strcmp(name, "handles")      ? now.handles
           : !strcmp(name, "plans")      ? now.plans
           : !strcmp(name, "packs")      ? now.packs
           : !strcmp(name, "executions") ? now.executions
                                         : -1;
}

/* ---- descriptors ----------------------------------------------------------------------------------------- */

enum { MAX_ATTRIBUTES = 12, MAX_BYTES = 1024, ENGINES = 7, WORKSPACE = 1000 };

typedef struct attribute {
    int name, type;
    int64_t count;
    unsigned char bytes[MAX_BYTES];
} attribute;

typedef struct descriptor {
    int type, finalized, attributes;
    attribute at[MAX_ATTRIBUTES];
} descriptor;

struct cudnnContext {
    int device;
    CUstream stream;
};

static _Thread_local char last_error[256];

static int fail(int status, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return status;
}

static size_t size_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
    }
}

static attribute *find(descriptor *d, int name)
{
    for (int i = 0; d && i < d->attributes; i++)
        if (d->at[i].name == name)
            return &d->at[i];
    return NULL;
}

static int64_t integer(descriptor *d, int name, int64_t missing)
{
    attribute *a = find(d, name);
    int64_t value = 0;
    if (!a)
        return missing;
    memcpy(&value, a->bytes, size_of(a->type));
    return value;
}

static const int64_t *integers(descriptor *d, int name)
{
    attribute *a = find(d, name);
    return a ? (const int64_t *)a->bytes : NULL;
}

static descriptor *child(descriptor *d, int name)
{
    return (descriptor *)integer(d, name, 0);
}

int cudnnBackendCreateDescriptor(int type, void **out)
{
    descriptor *d = calloc(1, sizeof *d);
    d->type = type;
    *out = d;
    now.plans += type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
    now.packs += type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
    return 0;
}

int cudnnBackendDestroyDescriptor(void *where)
{
    descriptor *d = where;
    if (d && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        now.plans--;
        free((void *)integer(d, -1, 0)); /* see finalize_plan */
    }
    free(d);
    return 0;
}

int cudnnBackendSetAttribute(void *where, int name, int type, int64_t count, const void *values)
{
    descriptor *d = where;
    size_t bytes = (size_t)count * size_of(type);
    if (!d || d->finalized || !values || count < 1 || bytes > MAX_BYTES || d->attributes == MAX_ATTRIBUTES)
        return fail(CUDNN_STATUS_BAD_PARAM, "set attribute");
    attribute *a = &d->at[d->attributes++];
    *a = (attribute){.name = name, .type = type, .count = count};
    memcpy(a->bytes, values, bytes);
    return 0;
}

/* ---- what may be finalized ------------------------------------------------------------------------------- */

static int is_dense(const int64_t *dims, const int64_t *strides, const int *order, int n)
{
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        if (dims[order[i]] > 1 && strides[order[i]] != stride)
            return 0;
        stride *= dims[order[i]];
    }
    return 1;
}

/* The real library takes other strides without a word and computes nonsense; here they are refused. */
static int is_known_layout(descriptor *tensor)
{
    int n = (int)find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->count;
    const int64_t *dims = integers(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *strides = integers(tensor, CUDNN_ATTR_TENSOR_STRIDES);
    const int first[] = {0, 1, 2, 3, 4}, last4[] = {0, 2, 3, 1}, last5[] = {0, 2, 3, 4, 1};
    return is_dense(dims, strides, first, n) || is_dense(dims, strides, n == 4 ? last4 : last5, n);
}

static int finalize_tensor(descriptor *d)
{
    attribute *dims = find(d, CUDNN_ATTR_TENSOR_DIMENSIONS), *strides = find(d, CUDNN_ATTR_TENSOR_STRIDES);
    if (!dims || !strides || dims->count != strides->count || dims->count < 4 || dims->count > 5 ||
        integer(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1) < 0 || integer(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1) < 0 ||
        integer(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0) != 16)
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor");
    for (int64_t i = 0; i < dims->count; i++)
        if (((int64_t *)dims->bytes)[i] < 1 || ((int64_t *)strides->bytes)[i] < 1)
            return fail(CUDNN_STATUS_BAD_PARAM, "tensor sizes");
    return 0;
}

typedef struct operation {
    int direction;
    descriptor *x, *w, *y, *convolution;
} operation;

static operation operation_of(descriptor *d)
{
    operation o = {.direction = d->type};
    int base = d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 702
               : d->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 708
                                                                                         : 714;
    o.convolution = child(d, base);
    o.w = child(d, base == 714 ? 715 : base + 1);
    o.x = child(d, base == 714 ? 716 : base + 2);
    o.y = child(d, base + 3);
    return o;
}

static int finalize_operation(descriptor *d)
{
    operation o = operation_of(d);
    if (!o.x || !o.w || !o.y || !o.convolution || !o.x->finalized || !o.w->finalized || !o.y->finalized ||
        !o.convolution->finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "operation");
    const int64_t *x = integers(o.x, CUDNN_ATTR_TENSOR_DIMENSIONS), *w = integers(o.w, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *y = integers(o.y, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const int64_t *pre = integers(o.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *post = integers(o.convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const int64_t *stride = integers(o.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = integers(o.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    int64_t rank = integer(o.convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    if (find(o.x, CUDNN_ATTR_TENSOR_DIMENSIONS)->count != rank + 2 || x[0] != y[0] || x[1] % w[1] || w[0] != y[1] ||
        w[0] % (x[1] / w[1]))
        return fail(CUDNN_STATUS_BAD_PARAM, "operation's channels");
    for (int64_t i = 0; i < rank; i++) {
        int64_t reach = dilation[i] * (w[2 + i] - 1) + 1;
        if (pre[i] < 0 || post[i] < 0 || y[2 + i] != (x[2 + i] + pre[i] + post[i] - reach) / stride[i] + 1)
            return fail(CUDNN_STATUS_BAD_PARAM, "operation's sizes");
    }
    return 0;
}

static int finalize_graph(descriptor *d)
{
    descriptor *op = child(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (!op || !op->finalized || !integer(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 0))
        return fail(CUDNN_STATUS_BAD_PARAM, "graph");
    operation o = operation_of(op);
    if (!is_known_layout(o.x) || !is_known_layout(o.w) || !is_known_layout(o.y))
        return fail(3004, "this layout");
    return 0;
}

static int finalize_config(descriptor *d)
{
    descriptor *engine = child(d, CUDNN_ATTR_ENGINECFG_ENGINE);
    attribute *choices = find(d, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    if (!engine || !engine->finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "configuration");
    for (int64_t i = 0; choices && i < choices->count; i++) {
        descriptor *choice = ((descriptor **)choices->bytes)[i];
        int64_t knob = integer(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, -1);
        int64_t value = integer(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, -1);
        int known = integer(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1) == 1 && (knob == 2 || knob == 13);
        if (!known || value < 0 || value > (knob == 2 ? 3 : 1))
            return fail(CUDNN_STATUS_BAD_PARAM, "a setting");
    }
    return 0;
}

/* Plans outlive the graphs that they were made from, so they keep copies of what they need. */
typedef struct plan {
    operation op;
    descriptor x, w, y, convolution;
    int64_t engine;
    int device;
} plan;

static int finalize_plan(descriptor *d)
{
    descriptor *config = child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    descriptor *engine = config ? child(config, CUDNN_ATTR_ENGINECFG_ENGINE) : NULL;
    cudnnHandle_t handle = (cudnnHandle_t)integer(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 0);
    if (!config || !config->finalized || !engine || !handle)
        return fail(CUDNN_STATUS_BAD_PARAM, "plan");
    if (now.fail_plan)
        return fail((int)now.fail_plan, "as the test asked for");
    plan p = {.engine = integer(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1), .device = handle->device};
    if (p.engine == 4)
        return fail(3002, "no such shape");
    p.op = operation_of(child(child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS));
    plan *kept = malloc(sizeof *kept);
    *kept = p;
    kept->x = *p.op.x;
    kept->w = *p.op.w;
    kept->y = *p.op.y;
    kept->convolution = *p.op.convolution;
    kept->op = (operation){p.op.direction, &kept->x, &kept->w, &kept->y, &kept->convolution};
    int64_t address = (int64_t)kept;
    return cudnnBackendSetAttribute(d, -1, CUDNN_TYPE_INT64, 1, &address);
}

int cudnnBackendFinalize(void *where)
{
    descriptor *d = where;
    int status = 0;
    if (!d || d->finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "finalize");
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: status = finalize_tensor(d); break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: status = finalize_operation(d); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: status = finalize_graph(d); break;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: status = finalize_config(d); break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: status = finalize_plan(d); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: status = now.silent_heuristics ? fail(3000, "no heuristics") : 0; break;
    }
    d->finalized = status == 0;
    return status;
}

/* ---- what can be read ------------------------------------------------------------------------------------ */

static const struct {
    int engine, settings, first, second;
} SUGGESTIONS[4][6] = {
    [CUDNN_HEUR_MODE_A] = {{1, 2, 1, 0}, {1, 2, 2, 0}, {3, 0, 0, 0}, {2, 0, 0, 0}, {0, 0, 0, 0}, {-1, 0, 0, 0}},
    [CUDNN_HEUR_MODE_B] = {{1, 2, 2, 0}, {1, 2, 3, 1}, {4, 0, 0, 0}, {-1, 0, 0, 0}},
    [CUDNN_HEUR_MODE_FALLBACK] = {{0, 0, 0, 0}, {5, 0, 0, 0}, {-1, 0, 0, 0}},
};

static void set(descriptor *d, int name, int type, int64_t value)
{
    cudnnBackendSetAttribute(d, name, type, 1, &value);
}

static int suggest(descriptor *d, int64_t capacity, int64_t *count, void **configs)
{
    int64_t mode = integer(d, CUDNN_ATTR_ENGINEHEUR_MODE, 0);
    for (*count = 0; SUGGESTIONS[mode][*count].engine >= 0; ++*count) {
        if (*count >= capacity)
            continue;
        descriptor *config = configs[*count];
        set(config, -2, CUDNN_TYPE_INT64, SUGGESTIONS[mode][*count].engine);
        set(config, -3, CUDNN_TYPE_INT64, SUGGESTIONS[mode][*count].settings);
        set(config, -4, CUDNN_TYPE_INT64, SUGGESTIONS[mode][*count].first);
        set(config, -5, CUDNN_TYPE_INT64, SUGGESTIONS[mode][*count].second);
        config->finalized = 1;
    }
    return 0;
}

/* Settings come in no order. */
static int read_choices(descriptor *d, int64_t capacity, int64_t *count, void **choices)
{
    *count = integer(d, -3, 0);
    for (int64_t i = 0; i < *count && i < capacity; i++) {
        set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, i == 0 ? 13 : 2);
        set(choices[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, integer(d, i == 0 ? -5 : -4, 0));
        ((descriptor *)choices[i])->finalized = 1;
    }
    return 0;
}

static int read_notes(int64_t engine, int64_t *count, int *notes)
{
    *count = 0;
    if (engine != 0 && engine != 6)
        notes[(*count)++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (engine == 2)
        notes[(*count)++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    if (engine == 3)
        notes[(*count)++] = CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    return 0;
}

int cudnnBackendGetAttribute(void *const where, int name, int type, int64_t capacity, int64_t *count, void *values)
{
    descriptor *d = where;
    (void)type;
    if (!d || !d->finalized)
        return fail(CUDNN_STATUS_BAD_PARAM, "get attribute");
    *count = 1;
    switch (name) {
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: *(int64_t *)values = ENGINES; return 0;
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return suggest(d, capacity, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        descriptor *engine = *(descriptor **)values;
        set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, integer(d, -2, 0));
        engine->finalized = 1;
        return 0;
    }
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: return read_choices(d, capacity, count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return read_notes(integer(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1), count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = ((plan *)integer(d, -1, 0))->engine == 1 ? WORKSPACE : 0;
        return 0;
    default: {
        attribute *a = find(d, name);
        if (!a)
            return fail(CUDNN_STATUS_BAD_PARAM, "no such attribute");
        memcpy(values, a->bytes, size_of(a->type));
        return 0;
    }
    }
}

/* ---- convolving ------------------------------------------------------------------------------------------ */

typedef struct tensor {
    int type;
    const int64_t *dims, *strides;
    void *data;
} tensor;

static double load(const tensor *t, int64_t at)
{
    switch (t->type) {
    case CUDNN_DATA_HALF: return (double)((_Float16 *)t->data)[at];
    case CUDNN_DATA_DOUBLE: return ((double *)t->data)[at];
    case CUDNN_DATA_BFLOAT16: {
        uint32_t bits = (uint32_t)((uint16_t *)t->data)[at] << 16;
        float value;
        memcpy(&value, &bits, 4);
        return (double)value;
    }
    default: return (double)((float *)t->data)[at];
    }
}

static void store(const tensor *t, int64_t at, double value)
{
    switch (t->type) {
    case CUDNN_DATA_HALF: ((_Float16 *)t->data)[at] = (_Float16)value; break;
    case CUDNN_DATA_DOUBLE: ((double *)t->data)[at] = value; break;
    case CUDNN_DATA_BFLOAT16: {
        float rounded = (float)value;
        uint32_t bits;
        memcpy(&bits, &rounded, 4);
        ((uint16_t *)t->data)[at] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        break;
    }
    default: ((float *)t->data)[at] = (float)value;
    }
}

static tensor tensor_of(descriptor *d, descriptor *pack)
{
    attribute *uids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    tensor t = {.type = (int)integer(d, CUDNN_ATTR_TENSOR_DATA_TYPE, 0),
                .dims = integers(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
                .strides = integers(d, CUDNN_ATTR_TENSOR_STRIDES)};
    for (int64_t i = 0; i < uids->count; i++)
        if (((int64_t *)uids->bytes)[i] == integer(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, -1))
            t.data = ((void **)find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->bytes)[i];
    return t;
}

/* Adds up every product of the forward convolution in the place of whichever tensor is computed. */
static void convolve(plan *p, tensor *x, tensor *w, tensor *y)
{
    descriptor *c = p->op.convolution;
    int64_t rank = integer(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0), groups = x->dims[1] / w->dims[1];
    const int64_t *pre = integers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *stride = integers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = integers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    tensor *out = p->op.direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? y
                  : p->op.direction == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
                                                                                                    : w;
    int64_t span = 1, positions = y->dims[0] * w->dims[0], taps = w->dims[1];
    for (int64_t i = 0; i < rank + 2; i++)
        span += (out->dims[i] - 1) * out->strides[i];
    double *sums = calloc((size_t)span, sizeof *sums);
    for (int64_t i = 0; i < rank; i++) {
        positions *= y->dims[2 + i];
        taps *= w->dims[2 + i];
    }
    for (int64_t i = 0; i < positions; i++) {
        int64_t rest = i, q[3];
        for (int64_t a = rank - 1; a >= 0; a--) {
            q[a] = rest % y->dims[2 + a];
            rest /= y->dims[2 + a];
        }
        int64_t o = rest % w->dims[0], n = rest / w->dims[0], group = o / (w->dims[0] / groups);
        int64_t at_y = n * y->strides[0] + o * y->strides[1];
        for (int64_t a = 0; a < rank; a++)
            at_y += q[a] * y->strides[2 + a];
        for (int64_t j = 0; j < taps; j++) {
            int64_t left = j, inside = 1, at_x = n * x->strides[0], at_w = o * w->strides[0];
            for (int64_t a = rank - 1; a >= 0; a--) {
                int64_t t = left % w->dims[2 + a], position = q[a] * stride[a] + t * dilation[a] - pre[a];
                left /= w->dims[2 + a];
                inside = inside && position >= 0 && position < x->dims[2 + a];
                at_x += position * x->strides[2 + a];
                at_w += t * w->strides[2 + a];
            }
            at_x += (group * w->dims[1] + left) * x->strides[1];
            at_w += left * w->strides[1];
            if (!inside)
                continue;
            if (out == y)
                sums[at_y] += load(x, at_x) * load(w, at_w);
            else if (out == x)
                sums[at_x] += load(y, at_y) * load(w, at_w);
            else
                sums[at_w] += load(x, at_x) * load(y, at_y);
        }
    }
    for (int64_t i = 0; i < span; i++)
        store(out, i, sums[i]);
    free(sums);
}

extern int cuCtxGetDevice(CUdevice *device);

int cudnnBackendExecute(cudnnHandle_t handle, void *where, void *variant)
{
    descriptor *d = where, *pack = variant;
    plan *p = (plan *)integer(d, -1, 0);
    CUdevice current = -1;
    cuCtxGetDevice(&current);
    if (!p || !pack->finalized || handle->device != p->device || current != p->device)
        return fail(CUDNN_STATUS_BAD_PARAM, "execute: another device");
    now.executions++;
    if (now.fail_execute || p->engine == 5)
        return fail(now.fail_execute ? (int)now.fail_execute : CUDNN_STATUS_EXECUTION_FAILED, "as the test asked for");
    tensor x = tensor_of(p->op.x, pack), w = tensor_of(p->op.w, pack), y = tensor_of(p->op.y, pack);
    void *workspace = (void *)integer(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    if (p->engine == 1 && !workspace)
        return fail(2002, "no workspace");
    /* Before and after, so that a tensor that overlaps the workspace is spoiled whichever way it is used. */
    if (p->engine == 1)
        memset(workspace, 0xA5, WORKSPACE);
    convolve(p, &x, &w, &y);
    if (p->engine == 1)
        memset(workspace, 0xA5, WORKSPACE);
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return (size_t)now.version;
}
size_t cudnnGetCudartVersion(void)
{
    return (size_t)now.cudart;
}
const char *cudnnGetErrorString(int status)
{
    return status == 5000 ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_OTHER";
}
void cudnnGetLastErrorString(char *text, size_t size)
{
    snprintf(text, size, "%s", last_error);
}
int cudnnCreate(cudnnHandle_t *handle)
{
    CUdevice device = -1;
    if (now.fail_create)
        return fail((int)now.fail_create, "as the test asked for");
    if (cuCtxGetDevice(&device))
        return fail(CUDNN_STATUS_NOT_INITIALIZED, "no context");
    *handle = calloc(1, sizeof **handle);
    (*handle)->device = device;
    now.handles++;
    return 0;
}
int cudnnDestroy(cudnnHandle_t handle)
{
    now.handles--;
    free(handle);
    return 0;
}
int cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    handle->stream = stream;
    return 0;
}
