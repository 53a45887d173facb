/* Many threads on the same and on different keys; made to be run under ThreadSanitizer. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native_test.h"

enum { THREADS = 8, KEYS = 6, CALLS = 200 };

static const fake_algorithm standard = {.name = "standard", .seconds = 1e-3, .prepare_milliseconds = 20};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3, .workspace = 256};

typedef struct worker {
    pthread_t thread;
    int index;
    float *out; /* its own output, so that only the core is shared */
    void (*work)(struct worker *);
} worker;

static pthread_barrier_t start;

static void *work(void *argument)
{
    worker *self = argument;
    pthread_barrier_wait(&start);
    self->work(self);
    return NULL;
}

static void in_threads(void (*function)(worker *))
{
    worker workers[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.index = i, .out = calloc(64 * 4 * 6 * 6, sizeof(float)), .work = function};
        CHECK_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        free(workers[i].out);
    }
    pthread_barrier_destroy(&start);
}

/* Checks each element, since a plan two threads get in each other's way with spoils some. */
static void call(worker *self, const tc_conv *conv)
{
    tc_context ctx = context();
    tc_operands mine = {x_data, w_data, self->out};
    int64_t outputs = tc_elements(conv->y_dims, 2), xs = tc_elements(conv->x_dims, 2),
            ws = tc_elements(conv->w_dims, 2);
    memset(self->out, 0xFF, (size_t)outputs * sizeof(float));
    CHECK_INT(tc_convolve(conv, &ctx, &mine), TC_OK);
    for (int64_t i = 0; i < outputs; i++)
        CHECK_NEAR((double)self->out[i], (double)x_data[i % xs] * (double)w_data[i % ws], 1e-5);
}

static void call_one_key(worker *self)
{
    tc_conv conv = problem(2);
    for (int i = 0; i < CALLS; i++)
        call(self, &conv);
}

static void one_thread_tunes_for_all(void)
{
    begin(TC_CPU);
    SCRIPT(standard, fast);
    in_threads(call_one_key);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(stats().hits + stats().defaults, 0);
    CHECK_INT(record_count(), 1);
    CHECK_INT(fake.prepares("standard"), 1);
    CHECK_INT(fake.prepares("fast"), 1);
    CHECK_TEXT(only_record().algorithm, "fast");
    expect_no_warning();
}

static void call_all_keys(worker *self)
{
    for (int i = 0; i < CALLS; i++) {
        tc_conv conv = problem(1 + (self->index + i) % KEYS);
        call(self, &conv);
    }
}

static void each_key_is_tuned_once(void)
{
    begin(TC_CPU);
    SCRIPT(standard, fast);
    in_threads(call_all_keys);
    CHECK_INT(stats().measured, KEYS);
    CHECK_INT(record_count(), KEYS);
    CHECK_INT(fake.prepares("fast"), KEYS);
    CHECK_INT(fake.most_preparing(), 1); /* one key at a time: two would time each other */
}

/* While some call, others load, collect, change settings and ask. */
static void meddle(worker *self)
{
    for (int i = 0; i < CALLS; i++) {
        tc_conv conv = problem(1 + i % 40);
        if (self->index % 2 == 0) {
            call(self, &conv);
            continue;
        }
        char text[TC_MESSAGE_SIZE];
        size_t count;
        tc_record record = record_of(&conv, i % 3 ? "fast" : "standard"), collected[4];
        tc_config settings = config();
        CHECK_INT(tc_registry_put(&record), TC_OK);
        CHECK_INT(tc_registry_collect((uint64_t)i, collected, 4, &count), TC_OK);
        settings.mode = i % 7 ? TC_MODE_SEARCH : TC_MODE_HEURISTIC;
        configure(settings);
        CHECK_INT(tc_supported(&conv, TC_CPU, 0), TC_OK);
        CHECK_INT(tc_convolve(&conv, NULL, &operands), TC_INVALID_ARGUMENT);
        tc_count_fallback(record.key);
        tc_warn("from thread %d", self->index);
        tc_take_warning(text, sizeof text);
        CHECK(stats().measured >= 0);
    }
}

static void nothing_tears(void)
{
    begin(TC_CPU);
    SCRIPT(standard, fast);
    in_threads(meddle);
    tc_stats now = stats();
    CHECK_INT(now.measured + now.hits + now.defaults, 40);
}

/* The algorithm that all use fails for good: each thread goes on with the default, which is warned of once. */
static void call_through_a_failure(worker *self)
{
    tc_conv conv = problem(3);
    for (int i = 0; i < CALLS; i++)
        call(self, &conv);
}

static void threads_survive_a_failing_algorithm(void)
{
    begin(TC_CPU);
    fake_algorithm fragile = fast;
    fragile.run_status = TC_ENGINE_FAILURE;
    fragile.good_runs = 200;
    SCRIPT(standard, fragile);
    in_threads(call_through_a_failure);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(fake.prepares("fast"), 1);
    CHECK_INT(fake.prepares("standard"), 2); /* in the race, and once more for all threads */
    expect_warning("algorithm 'fast' failed");
}

/* A child of a busy process, as a data loader makes them, can ask and even convolve. */
static void fork_in_between(worker *self)
{
    for (int i = 0; i < CALLS; i++) {
        tc_conv conv = problem(1 + i % 40);
        tc_record record = record_of(&conv, "fast");
        if (self->index > 0) {
            CHECK_INT(tc_registry_put(&record), TC_OK);
            call(self, &conv);
        } else if (i % 40 == 0) {
            pid_t child = fork();
            if (child == 0) {
                char text[TC_MESSAGE_SIZE];
                tc_take_warning(text, sizeof text);
                call(self, &conv);
                _exit(record_count() > 0 && stats().measured >= 0 ? 0 : 1);
            }
            int status = -1;
            CHECK_INT(waitpid(child, &status, 0), child);
            CHECK_INT(status, 0);
        }
    }
}

static void a_forked_child_does_not_hang(void)
{
    begin(TC_CPU);
    SCRIPT(standard, fast);
    tc_conv conv = problem(1);
    CHECK_INT(convolve(&conv), TC_OK);
    in_threads(fork_in_between);
}

const test_case thread_cases[] = {
    {"thread/one_thread_tunes_for_all", one_thread_tunes_for_all},
    {"thread/each_key_is_tuned_once", each_key_is_tuned_once},
    {"thread/nothing_tears", nothing_tears},
    {"thread/threads_survive_a_failing_algorithm", threads_survive_a_failing_algorithm},
    {"thread/a_forked_child_does_not_hang", a_forked_child_does_not_hang},
    {NULL, NULL},
};
