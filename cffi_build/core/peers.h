/*
 * Processes that name the same file agree: one decides what runs for a key, the others take it.
 *
 * The file holds the records that were decided since the first of its present members came, one after
 * another. Who is deciding is said by locks on bytes of the file (those of open file descriptions), which the
 * system drops when their holder dies, so nobody is waited for who is not there any more.
 */
#ifndef TC_PEERS_H
#define TC_PEERS_H

#include "tunedconv_engine.h"

typedef enum tc_claim_state {
    TC_CLAIM_NEEDLESS, /* there is nobody to agree with */
    TC_CLAIM_HELD,     /* the caller decides */
    TC_CLAIM_REFUSED   /* a peer has decided, and the store has it now, or is still deciding */
} tc_claim_state;

typedef struct tc_claim {
    tc_claim_state state;
    struct peers_file *file;
    int64_t place;
    struct tc_claim *next;
} tc_claim;

/*
 * Asks to decide a key, and takes in what peers decided so far. Waits while a peer is deciding, at most `patience`
 * seconds beyond its last decision, and in all at most the process's budget. On a CPU, whose cores peers
 * share, one peer decides at a time; elsewhere one for each key. `known` is the sequence of the caller's
 * record, 0 for none: another one in the store ends the wait. Every claim is given back with tc_peers_release.
 */
void tc_peers_claim(const char *key, const char *environment, int32_t device_kind, uint64_t known, double patience,
                    tc_claim *claim);
/* Whether there is anybody to agree with. */
int tc_peers_exist(void);
/* Tells peers what was decided under a claim. */
void tc_peers_publish(const tc_claim *claim, const tc_record *record);
void tc_peers_release(tc_claim *claim);

/* In a forked child, which is no member. */
void tc_peers_after_fork(void);

#endif
