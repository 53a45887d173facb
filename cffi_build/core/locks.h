/*
 * The locks of the process's tables, in one place so that a fork finds none of them held: a child that
 * only reads what is known must not hang on a lock whose owner was not copied. They are taken in this
 * order where two are held at once.
 */
#ifndef TC_LOCKS_H
#define TC_LOCKS_H

#include <pthread.h>

typedef enum tc_lock {
    TC_LOCK_ENGINES,
    TC_LOCK_REGISTRY,
    TC_LOCK_CONFIG,
    TC_LOCK_STATS,
    TC_LOCK_PEERS,
    TC_LOCK_STORE,
    TC_LOCK_TRIALS,
    TC_LOCK_WORKSPACE,
    TC_LOCK_WARNINGS,
    TC_LOCKS
} tc_lock;

void tc_acquire(tc_lock lock);
void tc_release(tc_lock lock);

#endif
