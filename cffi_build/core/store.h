/* What is known of every key and environment, by their full text: measured here or taken from files. */
#ifndef TC_STORE_H
#define TC_STORE_H

#include "tunedconv_engine.h"

/* What tc_store_find says of where a record comes from. */
enum { TC_FROM_FILE = 0, TC_MEASURED_HERE = 1, TC_MEASURED_BY_PEER = 2 };

/*
 * Copies the record of a key in an environment; 0 when there is none, or it was rejected. One that was only on
 * offer counts as stored from then on. One that a peer measured before mode refresh was last turned on counts as
 * measured here, which is what it is as good as.
 */
int tc_store_find(const char *key, const char *environment, tc_record *record, int *measured_here);
/*
 * Copies the best record of a key in environments that differ from this one in nothing but soft parts, or not at
 * all; 0 when there is none.
 */
int tc_store_find_twin(const char *key, const char *environment, tc_record *record);
/* Keeps what was measured in this process, in place of whatever was there. */
tc_status tc_store_measured(const tc_record *record);
/* Keeps what was copied from a relative; a record from a file may take its place. */
tc_status tc_store_copied(const tc_record *record);
/* Takes in what a peer decided, in place also of what was measured here; refuses malformed records. */
tc_status tc_store_shared(const tc_record *record);
/*
 * Visits the records of convolutions that differ from conv in nothing but batch, image size and padding, in
 * one environment. The store is locked meanwhile, and the record lives no longer than the visit.
 */
typedef void (*tc_store_visitor)(void *user, const tc_record *record, const tc_conv *conv);
void tc_store_visit_relatives(const tc_conv *conv, const char *environment, tc_store_visitor visit, void *user);
/*
 * Keeps the record of a key out when it names this algorithm, which did not work here: it is not found and
 * not collected, and putting the same choice again does not bring it back.
 */
void tc_store_reject(const char *key, const char *environment, const char *algorithm);
/* Grows with each record from a file that was taken in. */
uint64_t tc_store_generation(void);
void tc_store_clear(void);

#endif
