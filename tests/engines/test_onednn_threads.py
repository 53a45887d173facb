"""Which threads call oneDNN: each test in a process of its own."""

from __future__ import annotations

import pytest
from engines.onednn_process import run_python

from keras_tunedconv.core import engines
from keras_tunedconv.core.errors import UnavailableError

try:
    engines.ensure_open("cpu")
except UnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

# OMP_NUM_THREADS=2 in all of them, so that a team is one thread more than who calls.
HELPERS = """
import contextlib, ctypes, re, signal, threading, time, traceback

def tasks():
    names = {}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it ended in the meantime
            names[task.name] = (task / "comm").read_text().strip()
    return names

class worker_jobs:
    # How often the worker has waited for a job within the block.

    def waits(self):
        # The threads of its team, which come after it, take its name.
        worker = min(int(name) for name, command in tasks().items() if command == "tunedconv")
        while True:
            status = Path("/proc/self/task", str(worker), "status").read_text()
            if re.search("^State:\\s*S", status, re.MULTILINE):  # else it is still on its way to sleep
                return int(re.search("^voluntary_ctxt_switches:\\s*(\\d+)", status, re.MULTILINE)[1])
            time.sleep(0.001)

    def __enter__(self):
        engines.ensure_open("cpu")
        self.before = self.waits()
        return self

    def __exit__(self, *_):
        self.count = self.waits() - self.before

def openmp():
    (path,) = libraries("libgomp")
    return ctypes.CDLL(path)

def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
    while str(thread.native_id) in tasks():  # Python joins it a little before it is gone
        time.sleep(0.001)

def in_child(function, seconds=200):
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
"""


def run(script: str) -> str:
    indented = HELPERS.replace("\n", "\n    ")
    return run_python(f"    {indented}\n{script}", OMP_NUM_THREADS="2")


def test_main_thread_that_calls_first_runs_its_own():
    script = """
    with worker_jobs() as jobs:
        before = len(tasks())
        check()
        check()
    assert jobs.count == 0
    assert len(tasks()) == before + 1, tasks()
    """
    run(script)


def test_other_threads_share_one_worker():
    script = """
    check()
    before = len(tasks())
    with worker_jobs() as jobs:
        for _ in range(3):
            in_thread(check)
    assert jobs.count > 0
    assert len(tasks()) == before + 1, tasks()
    with worker_jobs() as jobs:
        check()
    assert jobs.count == 0
    """
    run(script)


def test_main_thread_leaves_its_jobs_to_a_worker_with_a_team():
    script = """
    in_thread(check)
    before = len(tasks())
    with worker_jobs() as jobs:
        check()
    assert jobs.count > 0
    assert len(tasks()) == before, tasks()
    """
    run(script)


def test_main_thread_keeps_its_own_openmp_settings():
    script = """
    check()
    omp = openmp()
    omp.omp_set_num_threads(1)
    omp.omp_set_dynamic(1)
    check()
    assert (omp.omp_get_max_threads(), omp.omp_get_dynamic()) == (1, 1)
    assert "threads=2;" in engines.environment("cpu")
    """
    run(script)


def test_results_do_not_depend_on_the_thread():
    script = """
    def convolve(result):
        engines.run_algorithm(descriptor, x, w, result, engines.candidates(descriptor)[0])
    here, there = np.zeros_like(y), np.zeros_like(y)
    convolve(here)
    with worker_jobs() as jobs:
        in_thread(lambda: convolve(there))
    assert jobs.count > 0
    np.testing.assert_array_equal(here, there)
    """
    run(script)


@pytest.mark.parametrize("setting", ["engines.ensure_open('cpu')", "check()", "in_thread(check)"])
def test_results_do_not_depend_on_floating_point_settings(setting):
    """One that flushes denormals computes with other threads that do not, or the other way round."""
    script = f"""
    def flush_denormals(flush):
        math = ctypes.CDLL("libm.so.6")
        words = (ctypes.c_uint32 * 16)()  # glibc's fenv_t and more
        assert math.fegetenv(words) == 0
        words[7] = (words[7] | 0x8040) if flush else (words[7] & ~0x8040)  # MXCSR
        assert math.fesetenv(words) == 0
        assert (np.float32(1e-20) * np.float32(1e-20) == 0) == flush

    def convolve():
        result = np.full_like(y, np.nan)
        engines.run_algorithm(descriptor, x, w, result, engines.candidates(descriptor)[0])
        return result

    if os.uname().machine != "x86_64":
        sys.exit()
    {setting}
    x[:] = w[:] = 1e-20
    flush_denormals(True)
    flushing, there = convolve(), []
    in_thread(lambda: there.append(convolve()))
    assert np.float32(1e-20) * np.float32(1e-20) == 0
    flush_denormals(False)
    assert (flushing > 0).all()
    np.testing.assert_array_equal(flushing, convolve())
    np.testing.assert_array_equal(flushing, there[0])
    """
    run(script)


def test_regions_of_one_thread_leave_jobs_to_the_worker():
    """A team within a region is made for it alone and ends with it."""
    script = """
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: check())
    for threads in (1, 2):
        check()
        with worker_jobs() as jobs:
            openmp().GOMP_parallel(region, None, threads, 0)
        assert jobs.count > 0
    with worker_jobs() as jobs:
        check()
    assert jobs.count == 0
    """
    run(script)


def test_threads_of_the_team_leave_signals_to_the_main_thread():
    script = """
    engines.ensure_open("cpu")
    before = set(tasks())
    check()
    (other,) = set(tasks()) - before
    status = Path("/proc/self/task", other, "status").read_text()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        assert blocked >> (number - 1) & 1
    assert not blocked >> (signal.SIGSEGV - 1) & 1
    assert not {signal.SIGINT, signal.SIGTERM} & signal.pthread_sigmask(signal.SIG_BLOCK, ())
    """
    run(script)


@pytest.mark.parametrize("first", ["check()", "in_thread(check)"])
def test_bound_main_thread_does_not_bind_the_team(first):
    """A team that the main thread makes is bound as it is: then the worker's, made before, has to do."""
    script = f"""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        sys.exit()
    engines.ensure_open("cpu")
    os.sched_setaffinity(0, set(list(cpus)[:1]))
    with worker_jobs() as jobs:
        {first}
        check()
    assert jobs.count > 0
    """
    run(script)


@pytest.mark.parametrize("first", ["check()", "in_thread(check)"])
@pytest.mark.parametrize("forker", ["fork_and_check()", "in_thread(fork_and_check)"])
def test_child_of_a_fork_makes_a_worker(first, forker):
    script = f"""
    def check_here_and_in_child():
        check()
        with worker_jobs() as jobs:
            check()
        assert jobs.count > 0
        in_thread(check)
        in_child(check)

    def fork_and_check():
        in_child(check_here_and_in_child)

    {first}
    {forker}
    check()
    """
    run(script)


@pytest.mark.parametrize("opened", [True, False])
def test_child_of_a_fork_does_not_wait_for_a_team_of_the_program(opened):
    """The main thread has one of the same OpenMP, which the fork ends, be the engine open by then or not."""
    script = f"""
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    if {opened}:
        engines.ensure_open("cpu")
    library = ctypes.CDLL(next(iter(libraries("libgomp")), "libgomp.so.1"))
    library.GOMP_parallel(region, None, 2, 0)

    def check_with_one_openmp():
        check()
        assert len(libraries("libgomp")) == 1

    in_child(check_with_one_openmp, seconds=60)
    """
    run(script)


def test_fork_after_the_engine_was_closed_and_opened_again():
    script = """
    def reopen_and_check():
        assert lib.tc_engine_close(b"onednn") == lib.TC_OK
        with worker_jobs() as jobs:
            check()
        assert jobs.count > 0

    check()
    in_child(reopen_and_check)
    """
    run(script)


def test_child_of_a_fork_convolves():
    script = """
    check()
    stop = threading.Event()
    def keep_busy():
        while not stop.is_set():
            check()
    other = threading.Thread(target=keep_busy)
    other.start()
    try:
        for _ in range(3):
            in_child(check)
            check()
    finally:
        stop.set()
        other.join()
    """
    run(script)
