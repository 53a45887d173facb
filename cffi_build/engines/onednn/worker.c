/*
 * The one thread that calls oneDNN.
 *
 * OpenMP keeps a team of threads for each thread that enters it, and the number of threads is a property
 * of the calling thread. Frameworks run ops on any thread of a pool: called from there, each would get a
 * team of its own, spinning beside the others, and results could depend on which thread it was. One
 * worker has one team of one size; it also serialises, as a convolution already uses every core, and
 * makes fork safe: the child starts a new worker, whose team is new too.
 */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct {
    pthread_mutex_t serial; /* held by whoever has a job running */
    sem_t posted, finished;
    pthread_t thread;
    int owned, running;
    onednn_job setup, job; /* a job that is NULL ends the worker */
    void *setup_argument, *argument;
    tc_status status;
    char message[TC_MESSAGE_SIZE];
} worker = {.serial = PTHREAD_MUTEX_INITIALIZER};

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0 && errno == EINTR)
        ;
}

static void *serve(void *unused)
{
    worker.setup(worker.setup_argument);
    for (;;) {
        wait_for(&worker.posted);
        if (!worker.job)
            return unused;
        worker.status = worker.job(worker.argument);
        if (worker.status != TC_OK)
            snprintf(worker.message, sizeof worker.message, "%s", tc_last_error());
        sem_post(&worker.finished);
    }
}

/* Signals are the other threads' business, but for those of its own faults. With `serial` held. */
static tc_status start(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t blocked, before;
    sem_init(&worker.posted, 0, 0);
    sem_init(&worker.finished, 0, 0);
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&worker.thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return tc_fail(TC_ENGINE_FAILURE, "could not start the thread that runs oneDNN: %s", strerror(error));
    pthread_setname_np(worker.thread, "tunedconv");
    worker.running = 1;
    return TC_OK;
}

static void stop(void)
{
    worker.job = NULL;
    sem_post(&worker.posted);
    pthread_join(worker.thread, NULL);
    sem_destroy(&worker.posted);
    sem_destroy(&worker.finished);
    worker.running = 0;
}

/* A fork waits for the job that runs, so that the child finds oneDNN's own locks free. */
static void before_fork(void)
{
    pthread_mutex_lock(&worker.serial);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&worker.serial);
}

static void after_fork_in_child(void)
{
    worker.running = 0; /* only the forking thread lives on: the next job starts a new worker */
    pthread_mutex_unlock(&worker.serial);
}

static int fork_handlers_error;

static void install_fork_handlers(void)
{
    fork_handlers_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

tc_status onednn_worker_acquire(onednn_job setup, void *argument)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handlers);
    if (fork_handlers_error)
        return tc_fail(TC_OUT_OF_MEMORY, "could not prepare for fork: %s", strerror(fork_handlers_error));
    pthread_mutex_lock(&worker.serial);
    tc_status status = TC_OK;
    if (worker.owned) {
        status = tc_fail(TC_INVALID_ARGUMENT, "the oneDNN engine is already open");
    } else {
        worker.setup = setup;
        worker.setup_argument = argument;
        status = start();
        worker.owned = status == TC_OK;
    }
    pthread_mutex_unlock(&worker.serial);
    return status;
}

void onednn_worker_release(void)
{
    pthread_mutex_lock(&worker.serial);
    if (worker.running)
        stop();
    worker.owned = 0;
    pthread_mutex_unlock(&worker.serial);
}

tc_status onednn_worker_run(onednn_job job, void *argument)
{
    pthread_mutex_lock(&worker.serial);
    tc_status status = worker.running ? TC_OK : start();
    if (status == TC_OK) {
        worker.job = job;
        worker.argument = argument;
        sem_post(&worker.posted);
        wait_for(&worker.finished);
        status = worker.status;
        if (status != TC_OK)
            tc_fail(status, "%s", worker.message);
    }
    pthread_mutex_unlock(&worker.serial);
    return status;
}

#endif
