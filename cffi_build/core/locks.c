/* The locks of the process's tables, and what a fork does to them. */
#include "locks.h"

#include "peers.h"
#include "question.h"
#include "registry.h"

static pthread_mutex_t locks[TC_LOCKS] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
};

void tc_acquire(tc_lock lock)
{
    pthread_mutex_lock(&locks[lock]);
}

void tc_release(tc_lock lock)
{
    pthread_mutex_unlock(&locks[lock]);
}

/* The engines' lock is left out: a library that is being opened under it may itself fork. */
static void before_fork(void)
{
    for (int lock = TC_LOCK_REGISTRY; lock < TC_LOCKS; lock++)
        tc_acquire((tc_lock)lock);
}

static void after_fork_in_parent(void)
{
    for (int lock = TC_LOCKS - 1; lock >= TC_LOCK_REGISTRY; lock--)
        tc_release((tc_lock)lock);
}

static void after_fork_in_child(void)
{
    after_fork_in_parent();
    pthread_mutex_init(&locks[TC_LOCK_ENGINES], NULL);
    tc_peers_after_fork();
    tc_registry_after_fork();
    tc_searches_after_fork();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
