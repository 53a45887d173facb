/*
 * The threads that call oneDNN: the process's main thread, or one worker.
 *
 * OpenMP keeps a team of threads for each thread that enters it, and the number of threads is a property
 * of the calling thread. Frameworks run ops on any thread of a pool: called from there, each would get a
 * team of its own, spinning beside the others, and results could depend on which thread it was. So a
 * worker does it for them, with one team of one size. Handing over costs two wake-ups, many times what a
 * small convolution takes: where the main thread calls first, as it does under eager execution, its jobs
 * run on itself, with a team of the same size, and its own OpenMP settings are given back.
 *
 * Whoever calls, one job runs at a time, as a convolution already uses every core, in C's default floating-point
 * environment: callers may flush denormals or round otherwise, and OpenMP's threads take what their creator has.
 *
 * Fork is safe: no team survives it, be it this one or one that others made the main thread have, and libgomp
 * would wait for its threads for good. So in a process that was forked and runs no new program, even the main
 * thread leaves its jobs to a new worker.
 */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum home { UNDECIDED, MAIN_THREAD, WORKER_ONLY } home;

static struct {
    pthread_mutex_t serial; /* held by whoever has a job running */
    const onednn_engine *owner;
    home home;           /* where jobs of the main thread run */
    unsigned generation; /* of processes: a fork begins another, the first is 1 */
    sem_t posted, finished;
    pthread_t thread;
    int running; /* the worker exists */
    onednn_job job; /* a job that is NULL ends the worker */
    void *argument;
    tc_status status;
    char message[TC_MESSAGE_SIZE];
} caller = {.serial = PTHREAD_MUTEX_INITIALIZER, .generation = 1};

/* OpenMP's threads take their creator's mask. Signals are the other threads' business, but for their own faults. */
static void block_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static void take_settings(const onednn_library *library, int threads)
{
    if (library->has_openmp) {
        library->omp_set_dynamic(0);
        library->omp_set_num_threads(threads);
    }
}

/* ---- the worker ------------------------------------------------------------------------------------ */

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0 && errno == EINTR)
        ;
}

static void *serve(void *unused)
{
    fesetenv(FE_DFL_ENV);
    take_settings(&caller.owner->library, caller.owner->threads);
    for (;;) {
        wait_for(&caller.posted);
        if (!caller.job)
            return unused;
        caller.status = caller.job(caller.argument);
        if (caller.status != TC_OK)
            snprintf(caller.message, sizeof caller.message, "%s", tc_last_error());
        sem_post(&caller.finished);
    }
}

/* With `serial` held, as in all that follows. */
static tc_status start(void)
{
    sigset_t before;
    sem_init(&caller.posted, 0, 0);
    sem_init(&caller.finished, 0, 0);
    block_signals(&before);
    int error = pthread_create(&caller.thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return tc_fail(TC_ENGINE_FAILURE, "could not start the thread that runs oneDNN: %s", strerror(error));
    pthread_setname_np(caller.thread, "tunedconv");
    caller.running = 1;
    return TC_OK;
}

static void stop(void)
{
    caller.job = NULL;
    sem_post(&caller.posted);
    pthread_join(caller.thread, NULL);
    sem_destroy(&caller.posted);
    sem_destroy(&caller.finished);
    caller.running = 0;
}

static tc_status run_on_worker(onednn_job job, void *argument)
{
    tc_status status = caller.running ? TC_OK : start();
    if (status != TC_OK)
        return status;
    caller.job = job;
    caller.argument = argument;
    sem_post(&caller.posted);
    wait_for(&caller.finished);
    return caller.status == TC_OK ? TC_OK : tc_fail(caller.status, "%s", caller.message);
}

/* ---- the main thread ------------------------------------------------------------------------------- */

static int is_main_thread(void)
{
    static _Thread_local unsigned asked; /* in which generation */
    static _Thread_local int is_main;
    if (asked != caller.generation) {
        asked = caller.generation;
        is_main = syscall(SYS_gettid) == getpid();
    }
    return is_main;
}

/* A fork may have come before this library: the kernel knows. Where it does not tell, take it that there was one. */
static int was_forked(void)
{
    enum { FORKED_AND_RAN_NO_PROGRAM = 0x40 }; /* Linux's PF_FORKNOEXEC */
    char text[512] = "";
    unsigned flags;
    FILE *file = caller.generation > 1 ? NULL : fopen("/proc/self/stat", "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = 0;
    const char *name_end = strrchr(text, ')');
    return !name_end || sscanf(name_end, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 ||
           (flags & FORKED_AND_RAN_NO_PROGRAM);
}

static tc_status run_here(onednn_job job, void *argument)
{
    const onednn_library *library = &caller.owner->library;
    int threads = library->omp_get_max_threads(), dynamic = library->omp_get_dynamic();
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    take_settings(library, caller.owner->threads);
    tc_status status = job(argument);
    library->omp_set_num_threads(threads);
    library->omp_set_dynamic(dynamic);
    fesetenv(&environment);
    return status;
}

static void do_nothing(void *unused)
{
    (void)unused;
}

static tc_status enter_region(void *unused)
{
    caller.owner->library.GOMP_parallel(do_nothing, unused, (unsigned)caller.owner->threads, 0);
    return TC_OK;
}

/* Its threads are bound to the CPUs that the main thread is bound to, so it must not be bound to fewer. */
static int make_team(void)
{
    if (!caller.owner->library.has_openmp || onednn_affinity_count() < caller.owner->threads || was_forked())
        return 0;
    sigset_t before;
    block_signals(&before);
    run_here(enter_region, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 1;
}

/* Within a parallel region a job would get no team or, where that is the region of one thread, a new one each time. */
static int may_run_here(void)
{
    if (caller.home == WORKER_ONLY)
        return 0;
    if (!is_main_thread()) {
        if (caller.home == UNDECIDED)
            caller.home = WORKER_ONLY;
        return 0;
    }
    if (caller.owner->library.has_openmp && caller.owner->library.omp_get_level())
        return 0;
    if (caller.home == UNDECIDED)
        caller.home = make_team() ? MAIN_THREAD : WORKER_ONLY;
    return caller.home == MAIN_THREAD;
}

/* ---- fork ------------------------------------------------------------------------------------------ */

/* A fork waits for the job that runs, so that the child finds oneDNN's own locks free. */
static void before_fork(void)
{
    pthread_mutex_lock(&caller.serial);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&caller.serial);
}

static void after_fork_in_child(void)
{
    caller.running = 0; /* only the forking thread lives on: the next job starts a new worker */
    caller.generation++;
    caller.home = WORKER_ONLY;
    pthread_mutex_unlock(&caller.serial);
}

static int fork_handlers_error;

static void install_fork_handlers(void)
{
    fork_handlers_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- for the engine -------------------------------------------------------------------------------- */

static void release(void)
{
    if (caller.running)
        stop();
    caller.owner = NULL;
    caller.home = UNDECIDED;
}

tc_status onednn_caller_acquire(onednn_engine *engine, onednn_job first)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    if (fork_handlers_error)
        return tc_fail(TC_OUT_OF_MEMORY, "could not prepare for fork: %s", strerror(fork_handlers_error));
    pthread_mutex_lock(&caller.serial);
    tc_status status = TC_OK;
    if (caller.owner) {
        status = tc_fail(TC_INVALID_ARGUMENT, "the oneDNN engine is already open");
    } else {
        caller.owner = engine;
        status = run_on_worker(first, engine);
        if (status != TC_OK)
            release();
    }
    pthread_mutex_unlock(&caller.serial);
    return status;
}

void onednn_caller_release(onednn_job last, void *argument)
{
    pthread_mutex_lock(&caller.serial);
    run_on_worker(last, argument);
    release();
    pthread_mutex_unlock(&caller.serial);
}

tc_status onednn_caller_run(onednn_job job, void *argument)
{
    pthread_mutex_lock(&caller.serial);
    tc_status status = may_run_here() ? run_here(job, argument) : run_on_worker(job, argument);
    pthread_mutex_unlock(&caller.serial);
    return status;
}

#endif
