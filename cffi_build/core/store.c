/* What is known of every key and environment, by their full text: measured here or taken from files. */
#include "store.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "environment.h"
#include "hash.h"
#include "locks.h"
#include "record.h"

/*
 * A record, in its bucket, in the bucket of its relatives (other sizes in its environment), in that of its twins
 * (the same key where only soft parts of the environment differ), and in the list of all by time of change.
 */
typedef struct node {
    tc_record record;
    tc_conv conv;
    uint64_t hash, family_hash, twin_hash;
    int measured_here, rejected; /* measured_here as tc_store_find tells it */
    int offered; /* nothing has asked for it yet, so nobody is told of it */
    uint64_t refreshes; /* of the configuration when it came */
    struct node *next_in_bucket, *next_in_family, *next_twin;
    struct node *older, *newer;
} node;

static struct {
    node **buckets, **families, **twins; /* of bucket_count each */
    size_t bucket_count, count;
    node *oldest, *newest;
    uint64_t sequence;
} store;
static _Atomic uint64_t generation;

/* ---- the table and the list: callers hold the lock --------------------------------------------------- */

static uint64_t hash_of(const char *key, const char *environment)
{
    return tc_hash_bytes(tc_hash_bytes(0, key, strlen(key)), environment, strlen(environment));
}

static uint64_t twin_hash_of(const char *key, const char *environment)
{
    return tc_hash_bytes(tc_hash_bytes(1, key, strlen(key)), environment, tc_environment_hard_length(environment));
}

/* What relatives have in common: all but batch, image size and padding, which follows from the size. */
static tc_conv family_of(const tc_conv *conv)
{
    tc_conv family = *conv;
    family.x_dims[0] = family.y_dims[0] = 0;
    for (int i = 0; i < TC_MAX_SPATIAL; i++)
        family.x_dims[2 + i] = family.y_dims[2 + i] = family.pad_before[i] = family.pad_after[i] = 0;
    return family;
}

static uint64_t family_hash_of(const tc_conv *family, const char *environment)
{
    return tc_hash_bytes(tc_hash_bytes(0, family, sizeof *family), environment, strlen(environment));
}

static node *find(const char *key, const char *environment, uint64_t hash)
{
    node *at = store.bucket_count ? store.buckets[hash % store.bucket_count] : NULL;
    while (at && !(at->hash == hash && strcmp(at->record.key, key) == 0 &&
                   strcmp(at->record.environment, environment) == 0))
        at = at->next_in_bucket;
    return at;
}

static void enter(node *entered)
{
    node **bucket = &store.buckets[entered->hash % store.bucket_count],
         **family = &store.families[entered->family_hash % store.bucket_count],
         **twin = &store.twins[entered->twin_hash % store.bucket_count];
    entered->next_in_bucket = *bucket;
    *bucket = entered;
    entered->next_in_family = *family;
    *family = entered;
    entered->next_twin = *twin;
    *twin = entered;
}

static int grow(void)
{
    size_t bucket_count = store.bucket_count ? 2 * store.bucket_count : 64;
    node **buckets = calloc(3 * bucket_count, sizeof(node *));
    if (!buckets)
        return 0;
    free(store.buckets);
    store.buckets = buckets;
    store.families = buckets + bucket_count;
    store.twins = buckets + 2 * bucket_count;
    store.bucket_count = bucket_count;
    for (node *each = store.oldest; each; each = each->newer)
        enter(each);
    return 1;
}

static void unlist(node *changed)
{
    *(changed->older ? &changed->older->newer : &store.oldest) = changed->newer;
    *(changed->newer ? &changed->newer->older : &store.newest) = changed->older;
}

static void list_as_newest(node *changed)
{
    changed->older = store.newest;
    changed->newer = NULL;
    *(store.newest ? &store.newest->newer : &store.oldest) = changed;
    store.newest = changed;
    changed->record.sequence = ++store.sequence;
}

static node *add(uint64_t hash, const tc_conv *conv, const tc_record *record)
{
    if (store.count >= store.bucket_count && !grow())
        return NULL;
    node *added = calloc(1, sizeof *added);
    if (!added)
        return NULL;
    tc_conv family = family_of(conv);
    added->conv = *conv;
    added->hash = hash;
    added->family_hash = family_hash_of(&family, record->environment);
    added->twin_hash = twin_hash_of(record->key, record->environment);
    enter(added);
    store.count++;
    return added;
}

static void clear_beyond(char *text, size_t size)
{
    size_t length = strlen(text);
    memset(text + length, 0, size - length);
}

/* Text beyond the NUL and the sequence are not part of what a record says. */
static void copy_record(tc_record *to, const tc_record *from)
{
    *to = *from;
    clear_beyond(to->key, sizeof to->key);
    clear_beyond(to->environment, sizeof to->environment);
    clear_beyond(to->algorithm, sizeof to->algorithm);
    clear_beyond(to->runner_up, sizeof to->runner_up);
    to->reserved = 0;
    to->sequence = 0;
}

/* Where a record comes from that is to be kept. */
typedef enum origin { FROM_FILE, FROM_OFFER, MEASURED_HERE, MEASURED_BY_PEER } origin;

static tc_status keep(const tc_record *record, const tc_conv *conv, uint64_t hash, node *known, origin from)
{
    if (known)
        unlist(known);
    else if (!(known = add(hash, conv, record)))
        return tc_fail(TC_OUT_OF_MEMORY, "no memory for a record");
    copy_record(&known->record, record);
    known->measured_here = from == MEASURED_BY_PEER ? TC_MEASURED_BY_PEER : from == MEASURED_HERE;
    known->offered = from == FROM_OFFER;
    known->refreshes = tc_config_refreshes();
    known->rejected = 0;
    list_as_newest(known);
    return TC_OK;
}

/* ---- the interface --------------------------------------------------------------------------------- */

/* An entry somebody chose stands above measured ones, those above entries from another size or a model. */
static int rank(const tc_record *record)
{
    switch (record->provenance) {
    case TC_OVERRIDE: return 3;
    case TC_COPIED: return 1;
    case TC_PREDICTED: return 0;
    default: return 2;
    }
}

static int same_contents(const tc_record *stored, const tc_record *record)
{
    tc_record a, b;
    copy_record(&a, stored);
    copy_record(&b, record);
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Whether what is known stays in place of a record from a file, from one that is only on offer, or of a peer. */
static int stays(const node *known, const tc_record *record, origin from)
{
    if (known->rejected)
        return strcmp(known->record.algorithm, record->algorithm) == 0;
    if (rank(record) < rank(&known->record) || (known->measured_here && from != MEASURED_BY_PEER))
        return 1;
    if (from == FROM_OFFER)
        return !known->offered && rank(record) == rank(&known->record);
    return !known->offered && same_contents(&known->record, record);
}

static tc_status take_in(const tc_record *record, origin from)
{
    tc_conv conv;
    tc_status status = tc_record_check(record, &conv);
    if (status != TC_OK)
        return status;
    uint64_t hash = hash_of(record->key, record->environment);
    tc_acquire(TC_LOCK_STORE);
    node *known = find(record->key, record->environment, hash);
    if (!known || !stays(known, record, from)) {
        status = keep(record, &conv, hash, known, from);
        atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    }
    tc_release(TC_LOCK_STORE);
    return status;
}

tc_status tc_registry_put(const tc_record *record)
{
    return take_in(record, FROM_FILE);
}

tc_status tc_registry_offer(const tc_record *record)
{
    return take_in(record, FROM_OFFER);
}

static tc_status keep_own(const tc_record *record, origin from)
{
    tc_conv conv;
    tc_status status = tc_key_parse(record->key, &conv);
    if (status != TC_OK)
        return status;
    uint64_t hash = hash_of(record->key, record->environment);
    tc_acquire(TC_LOCK_STORE);
    status = keep(record, &conv, hash, find(record->key, record->environment, hash), from);
    tc_release(TC_LOCK_STORE);
    return status;
}

tc_status tc_store_measured(const tc_record *record)
{
    return keep_own(record, MEASURED_HERE);
}

tc_status tc_store_copied(const tc_record *record)
{
    return keep_own(record, FROM_FILE);
}

tc_status tc_store_shared(const tc_record *record)
{
    return take_in(record, rank(record) < 2 ? FROM_FILE : MEASURED_BY_PEER);
}

void tc_store_visit_relatives(const tc_conv *conv, const char *environment, tc_store_visitor visit, void *user)
{
    tc_conv family = family_of(conv);
    uint64_t hash = family_hash_of(&family, environment);
    tc_acquire(TC_LOCK_STORE);
    node *at = store.bucket_count ? store.families[hash % store.bucket_count] : NULL;
    for (; at; at = at->next_in_family) {
        if (at->rejected || at->family_hash != hash || strcmp(at->record.environment, environment) != 0)
            continue;
        tc_conv other = family_of(&at->conv);
        if (memcmp(&other, &family, sizeof family) == 0)
            visit(user, &at->record, &at->conv);
    }
    tc_release(TC_LOCK_STORE);
}

int tc_store_find(const char *key, const char *environment, tc_record *record, int *measured_here)
{
    uint64_t hash = hash_of(key, environment);
    tc_acquire(TC_LOCK_STORE);
    node *known = find(key, environment, hash);
    int found = known && !known->rejected;
    if (found && known->offered) { /* from now on it is news for those who collect */
        known->offered = 0;
        unlist(known);
        list_as_newest(known);
    }
    if (found) {
        *record = known->record;
        *measured_here = known->measured_here;
        if (known->measured_here == TC_MEASURED_BY_PEER && known->refreshes != tc_config_refreshes())
            *measured_here = TC_MEASURED_HERE;
    }
    tc_release(TC_LOCK_STORE);
    return found;
}

static int is_twin(const node *at, uint64_t hash, const char *key, const char *environment)
{
    size_t length = tc_environment_hard_length(environment);
    return at->twin_hash == hash && !at->rejected && strcmp(at->record.key, key) == 0 &&
           tc_environment_hard_length(at->record.environment) == length &&
           memcmp(at->record.environment, environment, length) == 0;
}

/* Of two twins the one that stands higher, then the later one. */
static int is_better_twin(const tc_record *a, const tc_record *b)
{
    return rank(a) != rank(b) ? rank(a) > rank(b) : a->created > b->created;
}

int tc_store_find_twin(const char *key, const char *environment, tc_record *record)
{
    uint64_t hash = twin_hash_of(key, environment);
    const node *best = NULL;
    tc_acquire(TC_LOCK_STORE);
    for (const node *at = store.bucket_count ? store.twins[hash % store.bucket_count] : NULL; at; at = at->next_twin)
        if (is_twin(at, hash, key, environment) && (!best || is_better_twin(&at->record, &best->record)))
            best = at;
    if (best)
        *record = best->record;
    tc_release(TC_LOCK_STORE);
    return best != NULL;
}

void tc_store_reject(const char *key, const char *environment, const char *algorithm)
{
    tc_acquire(TC_LOCK_STORE);
    node *known = find(key, environment, hash_of(key, environment));
    if (known && strcmp(known->record.algorithm, algorithm) == 0)
        known->rejected = 1;
    tc_release(TC_LOCK_STORE);
}

uint64_t tc_store_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

static int is_told(const node *known)
{
    return !known->rejected && !known->offered;
}

tc_status tc_registry_collect(uint64_t since, tc_record *records, size_t capacity, size_t *count)
{
    if (!count || (capacity > 0 && !records))
        return tc_fail(TC_INVALID_ARGUMENT, "expected a place for the count and for %zu records, got NULL", capacity);
    tc_acquire(TC_LOCK_STORE);
    const node *first = NULL;
    *count = 0;
    for (const node *at = store.newest; at && at->record.sequence > since; at = at->older) {
        first = at;
        *count += is_told(at);
    }
    size_t copied = 0;
    for (; first && copied < capacity; first = first->newer)
        if (is_told(first))
            records[copied++] = first->record;
    tc_release(TC_LOCK_STORE);
    return TC_OK;
}

void tc_store_clear(void)
{
    tc_acquire(TC_LOCK_STORE);
    for (node *each = store.oldest, *newer; each; each = newer) {
        newer = each->newer;
        free(each);
    }
    free(store.buckets);
    store.buckets = store.families = store.twins = NULL;
    store.bucket_count = store.count = 0;
    store.oldest = store.newest = NULL;
    /* The sequence goes on, so that whoever remembers one from before does not miss what comes. */
    tc_release(TC_LOCK_STORE);
}
