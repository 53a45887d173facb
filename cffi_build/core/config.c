/* Settings of the process. */
#include "config.h"

#include <math.h>
#include <stdatomic.h>

#include "locks.h"

#define DEFAULT_MODE TC_MODE_SEARCH
#define DEFAULT_WORKSPACE_LIMIT (INT64_C(1) << 30)
#define DEFAULT_PROCESS_BUDGET 60.0

static tc_config current = {
    .mode = DEFAULT_MODE,
    .verify = 1,
    .minimum_runs = 5,
    .batch_policy = TC_POLICY_NEAREST,
    .copies_before_measuring = 20,
    .maximum_sizes = 1,
    .key_budget_seconds = 2.0,
    .process_budget_seconds = DEFAULT_PROCESS_BUDGET,
    .margin = 0.03,
    .drop_ratio = 2.0,
    .workspace_limit_bytes = DEFAULT_WORKSPACE_LIMIT,
};
static _Atomic int32_t current_mode = DEFAULT_MODE;
static _Atomic int64_t current_workspace_limit = DEFAULT_WORKSPACE_LIMIT;
static _Atomic int32_t current_batch_policy = TC_POLICY_NEAREST;
static _Atomic uint64_t refreshes;
static _Atomic double current_process_budget = DEFAULT_PROCESS_BUDGET;

/* ---- settings ------------------------------------------------------------------------------------ */

void tc_get_config(tc_config *config)
{
    tc_acquire(TC_LOCK_CONFIG);
    *config = current;
    tc_release(TC_LOCK_CONFIG);
}

int32_t tc_config_mode(void)
{
    return atomic_load_explicit(&current_mode, memory_order_relaxed);
}

int64_t tc_config_workspace_limit(void)
{
    return atomic_load_explicit(&current_workspace_limit, memory_order_relaxed);
}

double tc_config_process_budget(void)
{
    return atomic_load_explicit(&current_process_budget, memory_order_relaxed);
}

int32_t tc_config_batch_policy(void)
{
    return atomic_load_explicit(&current_batch_policy, memory_order_relaxed);
}

uint64_t tc_config_refreshes(void)
{
    return atomic_load_explicit(&refreshes, memory_order_relaxed);
}

static tc_status check_number(const char *field, double value, double low, int low_allowed, double high)
{
    if (isfinite(value) && (value > low || (low_allowed && value == low)) && value <= high)
        return TC_OK;
    return tc_fail(TC_INVALID_ARGUMENT, "%s must be %s %g and at most %g, got %g", field,
                   low_allowed ? "at least" : "above", low, high, value);
}

static tc_status check_config(const tc_config *config)
{
    const struct { const char *field; double value, low; int low_allowed; double high; } fields[] = {
        {"mode", config->mode, TC_MODE_SEARCH, 1, TC_MODE_REFRESH},
        {"verify", config->verify, 0, 1, 1},
        {"resume", config->resume, 0, 1, 1},
        {"minimum_runs", config->minimum_runs, 1, 1, 1000},
        {"batch_policy", config->batch_policy, TC_POLICY_EXACT, 1, TC_POLICY_NEAREST},
        {"copies_before_measuring", config->copies_before_measuring, 1, 1, 1e9},
        {"record_candidates", config->record_candidates, 0, 1, 1},
        {"maximum_sizes", config->maximum_sizes, 1, 1, TC_MAXIMUM_SIZES},
        {"key_budget_seconds", config->key_budget_seconds, 0, 0, 1e6},
        {"process_budget_seconds", config->process_budget_seconds, 0, 0, 1e6},
        {"margin", config->margin, 0, 1, 1},
        {"drop_ratio", config->drop_ratio, 1, 1, 1e6},
        {"workspace_limit_bytes", (double)config->workspace_limit_bytes, 0, 1, (double)(INT64_C(1) << 50)},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        tc_status status = check_number(fields[i].field, fields[i].value, fields[i].low, fields[i].low_allowed,
                                        fields[i].high);
        if (status != TC_OK)
            return status;
    }
    return TC_OK;
}

tc_status tc_set_config(const tc_config *config)
{
    if (!config)
        return tc_fail(TC_INVALID_ARGUMENT, "expected a configuration, got NULL");
    tc_status status = check_config(config);
    if (status != TC_OK)
        return status;
    tc_acquire(TC_LOCK_CONFIG);
    if (config->mode == TC_MODE_REFRESH && current.mode != TC_MODE_REFRESH)
        atomic_fetch_add_explicit(&refreshes, 1, memory_order_relaxed);
    current = *config;
    atomic_store_explicit(&current_mode, config->mode, memory_order_relaxed);
    atomic_store_explicit(&current_workspace_limit, config->workspace_limit_bytes, memory_order_relaxed);
    atomic_store_explicit(&current_batch_policy, config->batch_policy, memory_order_relaxed);
    atomic_store_explicit(&current_process_budget, config->process_budget_seconds, memory_order_relaxed);
    tc_release(TC_LOCK_CONFIG);
    return TC_OK;
}
