/* Several processes that name one file: one measures a key, the others take its choice, nobody waits for ever. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native_test.h"

static const fake_algorithm standard = {.name = "standard", .flags = TC_CANDIDATE_DETERMINISTIC, .seconds = 1e-3};
static const fake_algorithm fast = {.name = "fast", .seconds = 0.5e-3};
/* Takes so long of the real clock to prepare that a peer meets the one that measures. */
static const fake_algorithm slow_to_prepare = {.name = "fast", .seconds = 0.5e-3, .prepare_milliseconds = 300};

static char path[256];
static int gate[2]; /* a pipe: peers that measure wait for what is written into it */

static void make_folder(void)
{
    char folder[] = "/tmp/tunedconv_peers_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/t.h5.peers", folder);
    CHECK_INT(pipe(gate), 0);
}

static void remove_folder(void)
{
    tc_peers_leave(NULL);
    unlink(path);
    *strrchr(path, '/') = '\0';
    CHECK_INT(rmdir(path), 0);
    close(gate[0]);
    close(gate[1]);
}

/* Others are waited for longer than a busy machine lets them wait. */
static void be_patient(void)
{
    tc_config settings = config();
    settings.key_budget_seconds = 50;
    settings.process_budget_seconds = 1000;
    configure(settings);
}

/* A peer: what it does with the file joined, in a process of its own; it says a byte when it may be gone on with. */
typedef struct peer {
    pid_t process;
    int said;
} peer;

static int mouth;

static void say(void)
{
    CHECK_INT(write(mouth, "x", 1), 1);
}

static peer start_peer(void (*run)(void))
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    peer started = {.process = fork(), .said = ends[0]};
    if (started.process == 0) {
        mouth = ends[1];
        close(gate[1]); /* so that it does not outlive who could let it go on */
        if (!tc_engine_is_open("fake"))
            begin(TC_CUDA);
        be_patient();
        tc_registry_clear();
        CHECK_INT(tc_peers_join(path), TC_OK);
        run();
        _exit(0);
    }
    close(ends[1]);
    return started;
}

static void hear(const peer *from)
{
    char byte;
    CHECK_INT(read(from->said, &byte, 1), 1);
}

static void end_peer(const peer *ended)
{
    int status = -1;
    CHECK_INT(waitpid(ended->process, &status, 0), ended->process);
    CHECK_INT(status, 0);
}

static void kill_peer(const peer *killed)
{
    CHECK_INT(kill(killed->process, SIGKILL), 0);
    CHECK_INT(waitpid(killed->process, NULL, 0), killed->process);
}

static void join(void)
{
    begin(TC_CUDA);
    be_patient();
    CHECK_INT(tc_peers_join(path), TC_OK);
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- agreeing ------------------------------------------------------------------------------------------------ */

static void measure_one(void)
{
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    say();
}

static void what_a_peer_measured_is_taken(void)
{
    make_folder();
    join();
    peer other = start_peer(measure_one);
    end_peer(&other);
    /* Here "standard" would win. */
    fake_algorithm slow = fast;
    slow.seconds = 2e-3;
    SCRIPT(standard, slow);
    tc_conv conv = problem(2);
    for (int i = 0; i < 3; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK_TEXT(only_record().algorithm, "fast");
    CHECK_INT(stats().hits, 1);
    CHECK_INT(stats().measured + stats().defaults, 0);
    CHECK_INT(fake.runs("fast"), 3);
    expect_no_warning();
    remove_folder();
}

static void measure_slowly(void)
{
    SCRIPT(standard, slow_to_prepare);
    tc_conv conv = problem(2);
    say();
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured + stats().hits, 1);
    CHECK_TEXT(only_record().algorithm, "fast");
}

static void who_comes_later_waits(void)
{
    make_folder();
    peer others[3];
    for (int i = 0; i < 3; i++)
        others[i] = start_peer(measure_slowly);
    join();
    SCRIPT(standard, slow_to_prepare);
    for (int i = 0; i < 3; i++)
        hear(&others[i]);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured + stats().hits, 1);
    CHECK_INT(stats().defaults, 0);
    for (int i = 0; i < 3; i++)
        end_peer(&others[i]);
    struct stat file;
    CHECK_INT(stat(path, &file), 0);
    CHECK_INT(file.st_size, 64 + (long)sizeof(tc_record)); /* one of the four measured */
    remove_folder();
}

static void copies_are_agreed_on(void)
{
    make_folder();
    join();
    peer other = start_peer(measure_one);
    end_peer(&other);
    SCRIPT(standard, fast);
    tc_config settings = config();
    settings.batch_policy = TC_POLICY_NEAREST;
    configure(settings);
    tc_conv conv = problem(3);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().copied, 1);
    CHECK_INT(stats().measured, 0);
    struct stat file;
    CHECK_INT(stat(path, &file), 0);
    CHECK_INT(file.st_size, 64 + 2 * (long)sizeof(tc_record));
    remove_folder();
}

static void refresh_one(void)
{
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    tc_record stored = record_of(&conv, "standard");
    CHECK_INT(tc_registry_put(&stored), TC_OK);
    tc_config settings = config();
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
}

static void a_refresh_is_one_peers_work(void)
{
    make_folder();
    join();
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    tc_record stored = record_of(&conv, "standard");
    CHECK_INT(tc_registry_put(&stored), TC_OK);
    CHECK_INT(convolve(&conv), TC_OK);
    tc_config settings = config();
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    peer other = start_peer(refresh_one);
    end_peer(&other);
    tc_peers_sync();
    for (int i = 0; i < 3; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 0);
    CHECK_INT(fake.prepares("fast"), 1);
    CHECK_TEXT(only_record().algorithm, "fast");
    settings.mode = TC_MODE_SEARCH; /* the next refresh is another */
    configure(settings);
    settings.mode = TC_MODE_REFRESH;
    configure(settings);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    remove_folder();
}

/* ---- peers that are gone, or do not come on ------------------------------------------------------------------- */

static void measure_once_let(void)
{
    fake_algorithm held = fast;
    held.prepare_reads = gate[0];
    SCRIPT(standard, held);
    tc_conv conv = problem(2);
    say();
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
}

static int is_claimed(int file)
{
    struct flock claims = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_C(1) << 32};
    CHECK_INT(fcntl(file, F_OFD_GETLK, &claims), 0);
    return claims.l_type != F_UNLCK;
}

/* Until a peer decides what runs; it does not end before it is let. */
static void wait_for_claim(const peer *other)
{
    hear(other);
    int file = open(path, O_RDWR);
    CHECK(file >= 0);
    while (!is_claimed(file))
        usleep(1000);
    close(file);
}

static void a_killed_peer_is_not_waited_for(void)
{
    make_folder();
    peer other = start_peer(measure_once_let);
    wait_for_claim(&other);
    join();
    SCRIPT(standard, fast);
    kill_peer(&other);
    tc_conv conv = problem(2);
    double start = seconds();
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK(seconds() - start < 100); /* twice as many would be waited */
    CHECK_INT(stats().measured, 1);
    CHECK_TEXT(only_record().algorithm, "fast");
    expect_no_warning();
    remove_folder();
}

static void a_peer_killed_meanwhile_is_waited_for_no_longer(void)
{
    make_folder();
    peer other = start_peer(measure_once_let);
    wait_for_claim(&other);
    pid_t killer = fork();
    if (killer == 0) {
        usleep(300000);
        _exit(kill(other.process, SIGKILL));
    }
    join();
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    CHECK_INT(waitpid(killer, NULL, 0), killer);
    CHECK_INT(waitpid(other.process, NULL, 0), other.process);
    remove_folder();
}

static void a_stuck_peer_is_waited_for_once(void)
{
    make_folder();
    peer other = start_peer(measure_once_let);
    wait_for_claim(&other);
    join();
    SCRIPT(standard, fast);
    tc_config settings = config();
    settings.key_budget_seconds = 0.01;
    configure(settings);
    tc_conv conv = problem(2);
    double start = seconds();
    for (int i = 0; i < 50; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK(seconds() - start < 25); /* once for a second and the like, not each time */
    CHECK_INT(stats().measured, 0);
    CHECK_INT(stats().defaults, 1);
    CHECK_INT(fake.runs("standard"), 50);
    CHECK_INT(record_count(), 0);
    kill_peer(&other);
    for (int i = 0; i < 64; i++)
        CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    remove_folder();
}

static void an_answer_that_comes_late_is_taken(void)
{
    make_folder();
    peer other = start_peer(measure_once_let);
    wait_for_claim(&other);
    join();
    SCRIPT(standard, fast);
    tc_config settings = config();
    settings.key_budget_seconds = 0.01;
    configure(settings);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().defaults, 1);
    CHECK_INT(write(gate[1], "x", 1), 1);
    end_peer(&other);
    tc_peers_sync(); /* as a callback does every second */
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 0);
    CHECK_INT(stats().hits, 1);
    CHECK_INT(fake.runs("fast"), 1);
    remove_folder();
}

/* ---- the file ------------------------------------------------------------------------------------------------- */

static void the_first_member_begins_anew(void)
{
    make_folder();
    peer other = start_peer(measure_one);
    end_peer(&other);
    join();
    SCRIPT(standard, fast);
    tc_conv conv = problem(2);
    CHECK_INT(record_count(), 0);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    remove_folder();
}

static void write_at_end(const void *bytes, size_t size)
{
    int file = open(path, O_WRONLY | O_APPEND);
    CHECK(file >= 0);
    CHECK_INT(write(file, bytes, size), size);
    close(file);
}

static void what_a_killed_writer_left_is_written_over(void)
{
    make_folder();
    join();
    write_at_end("half a record", 13);
    peer other = start_peer(measure_one);
    end_peer(&other);
    tc_peers_sync();
    CHECK_TEXT(only_record().algorithm, "fast");
    expect_no_warning();
    remove_folder();
}

static void malformed_records_are_left_out(void)
{
    make_folder();
    join();
    tc_record record;
    memset(&record, 'x', sizeof record);
    write_at_end(&record, sizeof record);
    peer other = start_peer(measure_one);
    end_peer(&other);
    tc_peers_sync();
    CHECK_TEXT(only_record().algorithm, "fast");
    expect_warning("a record of a peer");
    remove_folder();
}

static void files_of_others_are_left_alone(void)
{
    make_folder();
    begin(TC_CUDA);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK_INT(write(file, "somebody's", 10), 10);
    close(file);
    CHECK_INT(tc_peers_join(path), TC_INVALID_ARGUMENT);
    CHECK_HAS(tc_last_error(), "is in the way");
    struct stat status;
    CHECK_INT(stat(path, &status), 0);
    CHECK_INT(status.st_size, 10);
    unlink(path);
    char target[sizeof path + 8];
    snprintf(target, sizeof target, "%s.target", path);
    CHECK_INT(symlink(target, path), 0);
    CHECK_INT(tc_peers_join(path), TC_UNAVAILABLE);
    CHECK(stat(target, &status) != 0);
    unlink(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_INT(tc_peers_join(path), TC_INVALID_ARGUMENT);
    remove_folder();
}

static void without_a_folder_each_measures_on_its_own(void)
{
    begin(TC_CUDA);
    SCRIPT(standard, fast);
    CHECK_INT(tc_peers_join("/nowhere/t.h5.peers"), TC_UNAVAILABLE);
    CHECK_HAS(tc_last_error(), "/nowhere/t.h5.peers cannot be opened");
    CHECK_INT(tc_peers_join(""), TC_INVALID_ARGUMENT);
    tc_peers_sync();
    tc_peers_leave(NULL);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
}

static void a_forked_child_is_no_member(void)
{
    make_folder();
    join();
    SCRIPT(standard, fast);
    pid_t child = fork();
    if (child == 0) {
        tc_conv conv = problem(2);
        CHECK_INT(convolve(&conv), TC_OK);
        _exit(stats().measured == 1 ? 0 : 1);
    }
    int status = -1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    tc_peers_sync();
    CHECK_INT(record_count(), 0);
    tc_conv conv = problem(2);
    CHECK_INT(convolve(&conv), TC_OK);
    CHECK_INT(stats().measured, 1);
    remove_folder();
}

const test_case peers_cases[] = {
    {"peers/what_a_peer_measured_is_taken", what_a_peer_measured_is_taken},
    {"peers/who_comes_later_waits", who_comes_later_waits},
    {"peers/copies_are_agreed_on", copies_are_agreed_on},
    {"peers/a_refresh_is_one_peers_work", a_refresh_is_one_peers_work},
    {"peers/a_killed_peer_is_not_waited_for", a_killed_peer_is_not_waited_for},
    {"peers/a_peer_killed_meanwhile_is_waited_for_no_longer", a_peer_killed_meanwhile_is_waited_for_no_longer},
    {"peers/a_stuck_peer_is_waited_for_once", a_stuck_peer_is_waited_for_once},
    {"peers/an_answer_that_comes_late_is_taken", an_answer_that_comes_late_is_taken},
    {"peers/the_first_member_begins_anew", the_first_member_begins_anew},
    {"peers/what_a_killed_writer_left_is_written_over", what_a_killed_writer_left_is_written_over},
    {"peers/malformed_records_are_left_out", malformed_records_are_left_out},
    {"peers/files_of_others_are_left_alone", files_of_others_are_left_alone},
    {"peers/without_a_folder_each_measures_on_its_own", without_a_folder_each_measures_on_its_own},
    {"peers/a_forked_child_is_no_member", a_forked_child_is_no_member},
    {NULL, NULL},
};
