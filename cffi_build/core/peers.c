/* Processes that name the same file agree: one decides what runs for a key, the others take it. */
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "hash.h"
#include "locks.h"
#include "store.h"

/* Bytes that are locked; claims have theirs far beyond any that is written. */
enum { MEMBERS = 0, APPENDING = 1, HEADER_SIZE = 64 };
static const int64_t FIRST_CLAIM = INT64_C(1) << 32;
static const int64_t LARGEST_FILE = INT64_C(1) << 26;
/* How long a peer may take to come, or to write a record. */
static const double BRIEFLY = 0.5;

typedef struct peers_file {
    int descriptor, users;
    char *path;
    int64_t position; /* up to where records were taken in */
    tc_claim *claims; /* those held in this process */
} peers_file;

/* Both are guarded by TC_LOCK_PEERS, as is what is in the file. */
static peers_file *joined;
static double seconds_waited;

/* ---- locks and time ----------------------------------------------------------------------------------- */

/* Budgets' clock may be a test's, and waiting is for processes that have another one. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void nap(double seconds)
{
    struct timespec time = {.tv_nsec = (long)(1e9 * seconds)};
    nanosleep(&time, NULL);
}

static double longer(double pause)
{
    return pause < 0.02 ? 2 * pause : pause;
}

static int set_lock(const peers_file *file, int64_t place, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
    return fcntl(file->descriptor, F_OFD_SETLK, &lock) == 0;
}

static int set_lock_soon(const peers_file *file, int64_t place, short type)
{
    double end = now() + BRIEFLY;
    for (double pause = 0.0005; !set_lock(file, place, type); pause = longer(pause)) {
        if ((errno != EAGAIN && errno != EACCES) || now() >= end)
            return 0;
        nap(pause);
    }
    return 1;
}

/* ---- what is in the file: callers hold the lock ------------------------------------------------------------- */

static void make_header(char header[HEADER_SIZE])
{
    memset(header, ' ', HEADER_SIZE);
    int length = snprintf(header, HEADER_SIZE, "keras_tunedconv peers %d %zu", TC_ABI_VERSION, sizeof(tc_record));
    header[length] = ' ';
    header[HEADER_SIZE - 1] = '\n';
}

/* Where whole records end: what a writer that died left unfinished behind them is written over. */
static int64_t end_of_records(const peers_file *file)
{
    struct stat status;
    if (fstat(file->descriptor, &status) != 0 || status.st_size < HEADER_SIZE)
        return HEADER_SIZE;
    int64_t record_size = (int64_t)sizeof(tc_record);
    return HEADER_SIZE + (status.st_size - HEADER_SIZE) / record_size * record_size;
}

static void take_in(peers_file *file, int64_t end)
{
    tc_record record;
    for (; file->position < end; file->position += (int64_t)sizeof record) {
        if (pread(file->descriptor, &record, sizeof record, file->position) != (ssize_t)sizeof record)
            return;
        if (tc_store_shared(&record) != TC_OK)
            tc_warn("a record of a peer in %s is left out: %s", file->path, tc_last_error());
    }
}

/* Gives whether there was anything new. */
static int sync_file(peers_file *file)
{
    if (end_of_records(file) <= file->position || !set_lock_soon(file, APPENDING, F_RDLCK))
        return 0;
    take_in(file, end_of_records(file));
    set_lock(file, APPENDING, F_UNLCK);
    return 1;
}

static void append(peers_file *file, const tc_record *record)
{
    if (!set_lock_soon(file, APPENDING, F_WRLCK))
        return;
    int64_t end = end_of_records(file);
    take_in(file, end);
    if (end < LARGEST_FILE) {
        if (pwrite(file->descriptor, record, sizeof *record, end) == (ssize_t)sizeof *record)
            file->position = end + (int64_t)sizeof *record;
        else
            tc_warn("other processes are not told what was measured: %s cannot be written: %s", file->path,
                    strerror(errno));
    }
    set_lock(file, APPENDING, F_UNLCK);
}

/* ---- joining and leaving ------------------------------------------------------------------------------------ */

static void give_up(peers_file *file)
{
    if (--file->users > 0)
        return;
    close(file->descriptor);
    free(file->path);
    free(file);
}

/* Nothing that is not empty or begins like one of ours is written to. */
static int is_ours(const peers_file *file, const char header[HEADER_SIZE], size_t bytes)
{
    char found[HEADER_SIZE];
    ssize_t size = pread(file->descriptor, found, sizeof found, 0);
    return size == 0 || (size >= (ssize_t)bytes && memcmp(found, header, bytes) == 0);
}

static tc_status open_members(peers_file *file)
{
    struct stat status;
    char header[HEADER_SIZE];
    make_header(header);
    if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
        !is_ours(file, header, strlen("keras_tunedconv peers ")))
        return tc_fail(TC_INVALID_ARGUMENT, "%s is in the way, which is no file for processes to agree in: move it",
                       file->path);
    /* The first member begins anew: what was decided in former runs is in databases and models. */
    if (set_lock(file, MEMBERS, F_WRLCK) && (ftruncate(file->descriptor, 0) != 0 ||
        pwrite(file->descriptor, header, sizeof header, 0) != (ssize_t)sizeof header))
        return tc_fail(TC_UNAVAILABLE, "%s cannot be written: %s", file->path, strerror(errno));
    if (!set_lock_soon(file, MEMBERS, F_RDLCK))
        return tc_fail(TC_UNAVAILABLE, "%s cannot be locked: %s", file->path, strerror(errno));
    if (!is_ours(file, header, sizeof header))
        return tc_fail(TC_UNAVAILABLE, "%s is in use by processes with another version of this package", file->path);
    return TC_OK;
}

static tc_status open_file(const char *path, peers_file **opened)
{
    peers_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return tc_fail(TC_OUT_OF_MEMORY, "no memory to join peers");
    }
    file->users = 1;
    file->position = HEADER_SIZE;
    /* Never through a link, which anybody may have put into a shared folder. */
    file->descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    tc_status status = file->descriptor >= 0 ? open_members(file)
                                             : tc_fail(TC_UNAVAILABLE, "%s cannot be opened: %s", path, strerror(errno));
    if (status == TC_OK)
        *opened = file;
    else
        give_up(file);
    return status;
}

tc_status tc_peers_join(const char *path)
{
    if (!path || !*path)
        return tc_fail(TC_INVALID_ARGUMENT, "expected the path of a file for processes to agree in, got none");
    tc_status status = TC_OK;
    tc_acquire(TC_LOCK_PEERS);
    if (!joined || strcmp(joined->path, path) != 0) {
        peers_file *file = NULL;
        status = open_file(path, &file);
        if (joined)
            give_up(joined);
        joined = file;
    }
    if (joined)
        sync_file(joined);
    tc_release(TC_LOCK_PEERS);
    return status;
}

void tc_peers_leave(const char *path)
{
    tc_acquire(TC_LOCK_PEERS);
    if (joined && (!path || strcmp(joined->path, path) == 0)) {
        give_up(joined);
        joined = NULL;
    }
    tc_release(TC_LOCK_PEERS);
}

void tc_peers_sync(void)
{
    tc_acquire(TC_LOCK_PEERS);
    if (joined)
        sync_file(joined);
    tc_release(TC_LOCK_PEERS);
}

void tc_peers_after_fork(void)
{
    if (joined)
        close(joined->descriptor); /* the parent's locks stay as long as its own descriptor */
    joined = NULL;
}

/* ---- claims -------------------------------------------------------------------------------------------------- */

static int64_t place_of(const char *key, const char *environment, int32_t device_kind)
{
    uint64_t hash = tc_hash_bytes((uint64_t)device_kind, environment, strlen(environment));
    if (device_kind != TC_CPU)
        hash = tc_hash_bytes(hash, key, strlen(key));
    return FIRST_CLAIM + (int64_t)(hash >> 2);
}

/* One try; callers hold the lock. Two claims of one process share the lock that says so to others. */
static void try_claim(tc_claim *claim)
{
    if (set_lock(claim->file, claim->place, F_WRLCK)) {
        claim->state = TC_CLAIM_HELD;
        claim->next = claim->file->claims;
        claim->file->claims = claim;
    } else {
        claim->state = errno == EAGAIN || errno == EACCES ? TC_CLAIM_REFUSED : TC_CLAIM_NEEDLESS;
    }
}

static int is_news(const char *key, const char *environment, uint64_t known)
{
    tc_record record;
    int measured_here;
    return tc_store_find(key, environment, &record, &measured_here) && record.sequence != known;
}

void tc_peers_claim(const char *key, const char *environment, int32_t device_kind, uint64_t known, double patience,
                    tc_claim *claim)
{
    *claim = (tc_claim){.state = TC_CLAIM_NEEDLESS, .place = place_of(key, environment, device_kind)};
    tc_acquire(TC_LOCK_PEERS);
    if (!joined) {
        tc_release(TC_LOCK_PEERS);
        return;
    }
    claim->file = joined;
    joined->users++;
    double start = now(), end = start + patience, most = tc_config_process_budget() - seconds_waited;
    for (double pause = 0.0005;; pause = longer(pause)) {
        try_claim(claim);
        if (sync_file(claim->file))
            end = now() + patience;
        if (claim->state != TC_CLAIM_REFUSED || is_news(key, environment, known) || now() >= end ||
            now() - start >= most)
            break;
        tc_release(TC_LOCK_PEERS);
        nap(pause);
        tc_acquire(TC_LOCK_PEERS);
    }
    seconds_waited += now() - start;
    tc_release(TC_LOCK_PEERS);
}

int tc_peers_exist(void)
{
    tc_acquire(TC_LOCK_PEERS);
    int exist = joined != NULL;
    tc_release(TC_LOCK_PEERS);
    return exist;
}

void tc_peers_publish(const tc_claim *claim, const tc_record *record)
{
    if (claim->state != TC_CLAIM_HELD)
        return;
    tc_acquire(TC_LOCK_PEERS);
    append(claim->file, record);
    tc_release(TC_LOCK_PEERS);
}

void tc_peers_release(tc_claim *claim)
{
    if (!claim->file)
        return;
    tc_acquire(TC_LOCK_PEERS);
    peers_file *file = claim->file;
    int shared = 0;
    for (tc_claim **at = &file->claims; *at;) {
        if (*at == claim) {
            *at = claim->next;
            continue;
        }
        shared |= (*at)->place == claim->place;
        at = &(*at)->next;
    }
    if (claim->state == TC_CLAIM_HELD && !shared)
        set_lock(file, claim->place, F_UNLCK);
    give_up(file);
    tc_release(TC_LOCK_PEERS);
}
