/*
 * The table of the process: a descriptor on a device -> the plan that runs it.
 *
 * Entries are only ever added, and plans are kept until tc_registry_clear, so a call whose plan is ready
 * takes no lock. What an entry holds beside its published choices belongs to the thread that made it busy.
 */
#ifndef TC_REGISTRY_H
#define TC_REGISTRY_H

#include <pthread.h>
#include <stdatomic.h>

#include "engines.h"
#include "stats.h"

typedef enum tc_choice_state {
    TC_CHOICE_DEFAULT,  /* nothing known: the library's first choice, until something is */
    TC_CHOICE_STORED,   /* what a record says */
    TC_CHOICE_COPIED,   /* what a record copied from another size, or predicted, says */
    TC_CHOICE_MEASURED, /* the winner of this process's measuring */
    TC_CHOICE_FALLBACK, /* what still ran after another had failed */
    TC_CHOICE_OVERRIDE
} tc_choice_state;

/* A prepared algorithm. Never changed once published. */
typedef struct tc_choice {
    const tc_engine *engine;
    void *plan;
    size_t workspace;
    tc_choice_state state;
    uint64_t engines_generation; /* of a fallback to a last resort: another engine may do it by now */
    int shared;                  /* the plan belongs to another choice of the entry */
    uint64_t refreshes;          /* of the configuration when it was measured; 0 for what a file says */
    int unfinished;              /* a stored search was cut short and is to be resumed */
    char algorithm[TC_NAME_SIZE];
    char runner_up[TC_NAME_SIZE];
    struct tc_choice *made_before;
} tc_choice;

typedef struct tc_failure {
    const tc_engine *engine;
    char algorithm[TC_NAME_SIZE];
    struct tc_failure *next;
} tc_failure;

typedef struct tc_entry {
    /* What a call with a known key reads comes first, to lie close together. */
    tc_conv conv;
    int32_t device_kind, device_ordinal;
    _Atomic(tc_choice *) choice;   /* what runs */
    _Atomic(tc_choice *) spare;    /* what runs when choice's workspace cannot be had */
    _Atomic(tc_choice *) override;
    _Atomic(const char *) asked;       /* the algorithm that a pattern asks for */
    _Atomic uint64_t asked_generation; /* of the patterns when that was looked up */
    _Atomic uint64_t store_generation; /* of the store when choice was made */
    _Atomic int unverified;            /* the measured choice was checked on zeros only */
    _Atomic uint64_t runs_left;        /* before measuring or verifying is tried again */
    _Atomic uint64_t support;          /* tc_supported's answer, see registry.c */

    pthread_mutex_t lock;
    pthread_cond_t idle;
    int busy;
    tc_counter counted;
    int postponements;    /* attempts at measuring or verifying that the data were no good for */
    tc_choice *made;      /* every choice made for it, to be released at the end */
    tc_failure *failures; /* algorithms that failed when run */
    struct tc_entry *next; /* in the list of all */
    uint64_t hash;
    char key[TC_KEY_SIZE];
} tc_entry;

/* NULL when the descriptor was never seen on this device. */
tc_entry *tc_registry_find(const tc_conv *conv, int32_t device_kind, int32_t device_ordinal);
/* Adds it, or gives the one that another thread just added. conv must have been checked. */
tc_status tc_registry_add(const tc_conv *conv, int32_t device_kind, int32_t device_ordinal, tc_entry **entry);

/* Makes the entry busy for the calling thread, waiting for the one that has it. */
void tc_entry_acquire(tc_entry *entry);
void tc_entry_release(tc_entry *entry);

/* ---- for the thread that has the entry -------------------------------------------------------------- */
/* Prepares an algorithm and notes the plan for release at the end. */
tc_status tc_entry_prepare(tc_entry *entry, const tc_engine *engine, const char *algorithm, tc_choice **choice);
/* The same around a plan that is prepared already; takes it over, also on failure. */
tc_status tc_entry_adopt(tc_entry *entry, const tc_engine *engine, const char *algorithm, void *plan,
                         tc_choice **choice);
/* A choice with the plan of another one, which stays its owner. */
tc_status tc_entry_share(tc_entry *entry, const tc_choice *with, tc_choice **choice);
/* Releases the newest choice at once; it must not have been published. */
void tc_entry_discard(tc_entry *entry, tc_choice *choice);
/* Counts the key here, and no longer where it was counted before. */
void tc_entry_count(tc_entry *entry, tc_counter counter);
void tc_entry_add_failure(tc_entry *entry, const tc_engine *engine, const char *algorithm);
int tc_entry_has_failed(const tc_entry *entry, const tc_engine *engine, const char *algorithm);

/* Forgets every plan of an engine that is being closed. */
void tc_registry_forget_engine(const tc_engine *engine);
/* In a forked child: no thread has an entry any more. */
void tc_registry_after_fork(void);

#endif
