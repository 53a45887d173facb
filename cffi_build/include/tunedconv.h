/*
 * tunedconv.h - the C interface of the tuned convolution core.
 *
 * Included by the core, the engines and the bridges, and read by cffi: the lines between CFFI-BEGIN
 * and CFFI-END are the declarations Python sees, so they hold plain C without preprocessor lines.
 *
 * Data flows one way: bridge -> tc_convolve -> registry -> tuner -> engine. Nothing here knows a
 * framework: the core gets pointers, a descriptor, a stream and a workspace allocator.
 */
#ifndef TUNEDCONV_H
#define TUNEDCONV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a signature below changes; bridges built apart compare it on binding. */
#define TC_ABI_VERSION 2

/* CFFI-BEGIN */

enum {
    TC_MAX_SPATIAL = 3,
    TC_MAX_DIMS = 5,          /* N, C and up to three spatial axes */
    TC_KEY_SIZE = 640,        /* bytes of a canonical key, NUL included */
    TC_ENVIRONMENT_SIZE = 256,
    TC_NAME_SIZE = 256,       /* an algorithm's name */
    TC_MESSAGE_SIZE = 1024,
    TC_TRIAL_SAMPLES = 16
};

typedef enum tc_status {
    TC_OK = 0,
    TC_INVALID_ARGUMENT = 1,  /* the caller's mistake: a malformed descriptor, key, record, option */
    TC_UNSUPPORTED = 2,       /* well-formed, but no engine or algorithm can do it */
    TC_NOT_FOUND = 3,         /* no such algorithm, engine, entry */
    TC_OUT_OF_MEMORY = 4,     /* not remembered as a fault of the algorithm */
    TC_ENGINE_FAILURE = 5,    /* the library reported an error; another algorithm may work */
    TC_DEVICE_FAILURE = 6,    /* sticky: the device context is lost; never swallowed */
    TC_UNAVAILABLE = 7,       /* library missing, too old, or not opened */
    TC_INTERNAL = 8
} tc_status;

typedef enum tc_direction { TC_FORWARD = 0, TC_BACKWARD_DATA = 1, TC_BACKWARD_FILTER = 2 } tc_direction;
typedef enum tc_dtype { TC_F16 = 0, TC_BF16 = 1, TC_F32 = 2, TC_F64 = 3 } tc_dtype;
typedef enum tc_layout { TC_CHANNELS_LAST = 0, TC_CHANNELS_FIRST = 1 } tc_layout;
/* HWIO is Keras's (spatial, in/groups, out); OIHW torch's; OHWI is what cuDNN calls KRSC. */
typedef enum tc_filter_layout { TC_HWIO = 0, TC_OIHW = 1, TC_OHWI = 2 } tc_filter_layout;
typedef enum tc_device_kind { TC_CPU = 0, TC_CUDA = 1 } tc_device_kind;
typedef enum tc_provenance {
    TC_DEFAULT = 0,           /* the library's own first choice; nothing was measured */
    TC_MEASURED = 1,
    TC_SHIPPED = 2,
    TC_IMPORTED = 3,
    TC_COPIED = 4,            /* from another batch size */
    TC_OVERRIDE = 5,
    TC_PREDICTED = 6
} tc_provenance;
typedef enum tc_mode {
    TC_MODE_SEARCH = 0,       /* use what is stored, measure what is not */
    TC_MODE_HEURISTIC = 1,    /* use what is stored, else the default; measure nothing (tune=False) */
    TC_MODE_REPLAY = 2,       /* use what is stored; a key that is not stored is TC_NOT_FOUND */
    TC_MODE_REFRESH = 3       /* measure again and keep the better */
} tc_mode;
/* What happens to a batch or image size that nothing is stored for, where others of the convolution are known. */
typedef enum tc_batch_policy {
    TC_POLICY_EXACT = 0,      /* it is measured */
    TC_POLICY_NEAREST = 1     /* it takes the nearest one's algorithm, and is measured when it comes back often */
} tc_batch_policy;

/*
 * One convolution: the contents of its tensor, filter and convolution descriptors. Plain data with no
 * padding bytes; zero it before filling, since entries are compared byte for byte. All dims are in the
 * logical order given, whatever the layout in memory (which is dense in the layout named); x, w and y
 * are always those of the forward operation. Unused spatial places are 0 (dims, pads) and 0 (stride,
 * dilation).
 */
typedef struct tc_conv {
    int32_t direction, spatial_rank;
    int32_t x_dtype, w_dtype, y_dtype, compute_dtype;
    int32_t x_layout, w_layout, y_layout;
    int32_t allow_tf32;       /* 0 or 1 */
    int32_t deterministic;    /* 0 or 1: only deterministic algorithms may run */
    int32_t epilogue;         /* 0: none */
    int64_t groups;
    int64_t x_dims[5];        /* N, C, spatial... */
    int64_t w_dims[5];        /* O, C / groups, spatial... */
    int64_t y_dims[5];        /* N, O, spatial... */
    int64_t pad_before[3], pad_after[3], stride[3], dilation[3];
} tc_conv;

/* Device pointers of the forward operation's tensors; the one the direction computes is written. */
typedef struct tc_operands { void *x, *w, *y; } tc_operands;

/*
 * Where and how a call runs. allocate may be NULL on the CPU (the core then keeps workspace of its own).
 * deallocate may be NULL: the framework frees what it handed out when the op ends.
 */
typedef struct tc_context {
    int32_t device_kind, device_ordinal;
    void *stream;             /* CUstream; NULL on the CPU */
    void *(*allocate)(void *user, size_t bytes); /* NULL: out of memory */
    void (*deallocate)(void *user, void *pointer);
    void *user;
    int32_t forbid_measuring; /* 1: run stored or default only (shape inference, capture known to the bridge) */
    int32_t reserved;
} tc_context;

/* What is known of one key in one environment. Text is NUL-terminated UTF-8. */
typedef struct tc_record {
    char key[640];
    char environment[256];
    char algorithm[256];
    char runner_up[256];      /* next best, for when the algorithm's workspace no longer fits; may be "" */
    int64_t workspace_bytes;
    int64_t created;          /* seconds since the epoch */
    double time_seconds;      /* median of one run; 0 when not measured */
    double default_seconds;   /* the same of the library's default */
    double spread;            /* interquartile range over median of the winner's samples */
    double tuning_seconds;    /* spent on this key, plan building included */
    int32_t candidates_tried, candidates_total;
    int32_t provenance;
    int32_t math_type;        /* 0: strict, 1: TF32 */
    int32_t deterministic;    /* the algorithm gives the same bits each run */
    int32_t reserved;
    uint64_t sequence;        /* set by the registry: grows with each change */
} tc_record;

/* What became of a candidate in a search. */
typedef enum tc_trial_state {
    TC_TRIAL_NOT_TRIED = 0,   /* the search ended before its turn */
    TC_TRIAL_WON = 1,
    TC_TRIAL_FINALIST = 2,    /* measured to the end, and not the best */
    TC_TRIAL_SLOW = 3,        /* dropped on the way as too slow */
    TC_TRIAL_FAILED = 4,      /* could not be prepared or run, or had no workspace */
    TC_TRIAL_WRONG = 5        /* its output differed from the default's */
} tc_trial_state;

/* One candidate of a search. Text is NUL-terminated UTF-8. Seconds are 0 where nothing was measured. */
typedef struct tc_trial {
    char algorithm[256];
    char reason[256];         /* why it failed or was wrong, cut to fit; else "" */
    int32_t order;            /* its place in the engine's list, the library's default being 0 */
    int32_t state;            /* tc_trial_state */
    int32_t deterministic;
    int32_t sample_count;     /* in samples */
    int64_t workspace_bytes;
    double plan_seconds;      /* wall time of building its plan */
    double screen_seconds;    /* wall time until it was let into the finals or dropped, plan included */
    double estimate_seconds;  /* of one run, the least of its first ones */
    double median_seconds;    /* of one run, over all samples of the finals */
    double samples[16];       /* seconds of one run, the first ones of the finals in their order */
} tc_trial;

/* A search whose trials were kept. */
typedef struct tc_trials_head {
    char key[640];
    char environment[256];
    int64_t created;          /* seconds since the epoch */
    uint64_t sequence;        /* grows with each search; 0 where there is none */
} tc_trials_head;

typedef struct tc_config {
    int32_t mode;                     /* tc_mode */
    int32_t verify;                   /* compare each candidate's output with the default's */
    int32_t resume;                   /* go on with keys whose stored search was cut short */
    int32_t minimum_runs;             /* timed runs of a candidate that stays in the race */
    int32_t batch_policy;             /* tc_batch_policy, for mode search */
    int32_t copies_before_measuring;  /* runs of a key with a copied or predicted algorithm before it is measured */
    int32_t maximum_sizes;            /* image sizes of a convolution that are measured at first sight */
    int32_t record_candidates;        /* keep what became of each candidate of a search: tc_trials_next */
    double key_budget_seconds;        /* measuring of one key stops here */
    double process_budget_seconds;    /* measuring in this process stops here */
    double margin;                    /* a winner must beat the default by this share, 0.03 = 3 % */
    double drop_ratio;                /* a candidate slower than this times the best is dropped at once */
    int64_t workspace_limit_bytes;
} tc_config;

typedef struct tc_stats {
    int64_t measured, hits, copied, defaults, fallbacks; /* counts of keys */
    double tuning_seconds;
    double plan_seconds;              /* part of tuning_seconds spent building plans */
} tc_stats;

/* ---- errors -------------------------------------------------------------------------------------- */
/* The calling thread's message for the last status that was not TC_OK; "" if none. */
const char *tc_last_error(void);
const char *tc_status_name(int32_t status);
/* Takes the oldest pending warning; returns its length, 0 when there is none. */
size_t tc_take_warning(char *text, size_t size);

/* ---- descriptors and keys -------------------------------------------------------------------------- */
/* Checks dims against each other, positivity, enumerators; names the field at fault. */
tc_status tc_conv_check(const tc_conv *conv);
/* Fills y_dims from x, w, pads, strides, dilations and sets the rest as given. */
tc_status tc_conv_infer_output(tc_conv *conv);
tc_status tc_key_format(const tc_conv *conv, char *text, size_t size);
/* The exact inverse: accepts only what tc_key_format writes. */
tc_status tc_key_parse(const char *text, tc_conv *conv);

/* ---- engines ----------------------------------------------------------------------------------------- */
/* Opens a built-in engine ("onednn", "cudnn", "reference"). paths: NULL-terminated library files to try, in order. */
tc_status tc_engine_open(const char *name, const char *const *paths);
/* Opens an engine of somebody else's from a shared library: see tunedconv_engine_entry in tunedconv_engine.h. */
tc_status tc_engine_load(const char *library_path);
int32_t tc_engine_is_open(const char *name);
/* Closes an engine and forgets the plans made with it. No convolution may be running. */
tc_status tc_engine_close(const char *name);
/* The library's version and the file it was loaded from, one line. */
tc_status tc_engine_describe(const char *name, char *text, size_t size);
/* Names of the open engines in the order they are asked, one a line. */
tc_status tc_engine_names(char *text, size_t size);
tc_status tc_engine_environment(const char *name, int32_t ordinal, char *text, size_t size);
/* That of the engine which is asked first for a device. */
tc_status tc_environment(int32_t device_kind, int32_t ordinal, char *text, size_t size);
/*
 * Whether an open engine has an algorithm for it that is not a mere last resort; cheap after the first time.
 * Engines of last resort count only where the device has no other.
 */
tc_status tc_supported(const tc_conv *conv, int32_t device_kind, int32_t ordinal);
/* Names of the candidates, the default first, one a line. *size: bytes there, then bytes needed (NUL included). */
tc_status tc_candidates(const tc_conv *conv, int32_t device_kind, int32_t ordinal, char *text, size_t *size);

/* ---- running ------------------------------------------------------------------------------------------- */
tc_status tc_convolve(const tc_conv *conv, const tc_context *context, const tc_operands *operands);
/* Runs one algorithm by name, past the registry. *seconds: the mean of `repeats` timed runs after a first one. */
tc_status tc_run_algorithm(const tc_conv *conv, const tc_context *context, const tc_operands *operands,
                           const char *algorithm, int32_t repeats, double *seconds);

/* ---- registry ------------------------------------------------------------------------------------------ */
/*
 * Adds what a file says. Refuses malformed records (TC_INVALID_ARGUMENT). Of two records of one key and
 * environment the later one stays, but never in place of one measured in this process, nor a copied or
 * predicted one in place of a measured one.
 */
tc_status tc_registry_put(const tc_record *record);
/*
 * Adds what a database says that many models share: it is used like a stored record, but gives way to any of its
 * rank that is put, and is not collected before a convolution has asked for it. Of two offers the later one stays.
 */
tc_status tc_registry_offer(const tc_record *record);
/* Copies records changed after sequence `since`, at most capacity, oldest change first; *count: how many there are. */
tc_status tc_registry_collect(uint64_t since, tc_record *records, size_t capacity, size_t *count);
/*
 * The oldest search that was kept after sequence `since` (config.record_candidates): its head, with sequence 0
 * when there is none, at most `capacity` of its trials in the engine's order, and in *count how many there are.
 * Of a convolution searched again what the later search tried replaces what the earlier did. At most 65536
 * trials are kept; the oldest searches give way.
 */
tc_status tc_trials_next(uint64_t since, tc_trials_head *head, tc_trial *trials, size_t capacity, size_t *count);
/* Forgets plans, records, trials, statistics and pending warnings; engines stay open. No convolution may be running. */
void tc_registry_clear(void);
/* Seconds of one look-up of a key that has run here, the mean of `repeats`; else TC_NOT_FOUND. */
tc_status tc_time_lookup(const tc_conv *conv, int32_t device_kind, int32_t ordinal, int32_t repeats, double *seconds);
void tc_get_stats(tc_stats *stats);
void tc_count_fallback(const char *key);  /* a bridge chose the framework's own convolution for this key */
void tc_get_config(tc_config *config);
tc_status tc_set_config(const tc_config *config);
/*
 * Runs this algorithm for a direction (-1: all three) whatever is stored; NULL ends it. A convolution that
 * cannot run it fails, and the message lists what can. Such runs are not measured, stored or counted.
 */
tc_status tc_set_override(int32_t direction, const char *algorithm);
/*
 * The same for the convolutions that match a pattern, in whatever batch: its direction, x_dtype, groups, w_dims,
 * stride, dilation, and on each axis whose x_dims is not 0 that size with its padding. Of two patterns that match the
 * one set later counts; tc_set_override stands above both.
 */
tc_status tc_set_pattern_override(const tc_conv *pattern, const char *algorithm);

/* ---- peers: other processes that name the same file --------------------------------------------------------- */
/*
 * From now on this process and others that joined the same file agree: one measures a key and tells, the others
 * wait for it, within bounds, and take its choice. The file is made when it is missing; one that is joined
 * already is only read. TC_UNAVAILABLE where it cannot be written or locked: each then measures on its own.
 */
tc_status tc_peers_join(const char *path);
/* Ends it, for this path or whatever is joined (NULL). */
void tc_peers_leave(const char *path);
/* Takes in what peers decided, for convolutions that run something else meanwhile. */
void tc_peers_sync(void);

typedef struct tc_api tc_api;
const tc_api *tc_get_api(void);

struct tc_candidate_list;

/*
 * The same functions as a table, for bridges compiled apart from the core (the TensorFlow op): Python
 * hands them its address. size and abi_version are checked before anything else is read.
 */
struct tc_api {
    uint32_t abi_version;
    uint32_t size;
    tc_status (*convolve)(const tc_conv *, const tc_context *, const tc_operands *);
    tc_status (*supported)(const tc_conv *, int32_t device_kind, int32_t ordinal);
    tc_status (*conv_check)(const tc_conv *);
    const char *(*last_error)(void);
    /* The XLA FFI handlers (XLA_FFI_Handler *) for host and CUDA memory; NULL where built without XLA's headers. */
    void *xla_handler_host;
    void *xla_handler_cuda;
    /* For engines in libraries of their own. */
    tc_status (*candidate_add)(struct tc_candidate_list *list, const char *name, uint32_t flags);
    tc_status (*fail)(tc_status status, const char *format, ...);
};

/* CFFI-END */

#ifdef __cplusplus
}
#endif
#endif
