/*
 * monitor.c: the thread that flushes pending writes during long iterations, takes samples and runs
 * the watchdog.
 *
 *     +--> tick: is an iteration long, with pending writes? --> Go flushes them
 *     |      |
 *     |      v
 *     +--- sleep until an alarm expires: a loop has made no turn for some ms
 *     |      |     the next sample is due
 *     |      |     3.4 ms or 6.8 ms are over, if an iteration is long
 *     |      |
 *     |      | no loop was awake for 50 ms
 *     |      v
 *   wake <-- parked: no wake-ups at all
 *
 * A callback writes, then computes or waits; without the monitor the bytes would be sent at the end
 * of the iteration only.  abi.h, "The monitor", has the protocol by which the monitor locks a
 * reactor while it flushes.
 *
 * The thread is a C thread. A goroutine that sleeps in a system call, or by Go's timers, keeps
 * Go's own monitor thread awake: 16,000 wake-ups in 3 s and 4 to 8 % of a core. This thread enters
 * Go only to flush, to count samples that no turn has counted, and to report.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "_cgo_export.h"
#include "monitor_alarm.h"
#include "monitor_alarm_pace.h"
#include "monitor_flusher_lock.h"
#include "monitor.h"
#include "runtime_thread.h"

/* At a tick, an iteration is long if it is older than this time. */
#define LONG_ITERATION_NS 1000000
/* The monitor parks if no loop was awake for this time. */
#define IDLE_NS 50000000
/* The monitor does not sleep longer, unless it is parked. */
#define MAX_SLEEP_NS 200000000
/* A loop that slept when so many samples in a row were due hardly runs: its samples come so many
 * times as late, until one is due while it runs. */
#define HARDLY_RUNS 16
#define RARE_SAMPLES 4
/* The loop is not responsible for the time before a tick that is this late. */
#define LATE_TICK_NS 150000000
/* From this age of an iteration on, the GIL may be held and clients may wait for an answer. */
#define GIL_HELD_NS 100000000
/* The watchdog checks an iteration from this fraction of its limit on. */
#define WATCHDOG_FRACTION 128

/* Reads a word that another thread may write. */
#define LOAD(pointer) __atomic_load_n(pointer, __ATOMIC_RELAXED)

/* A reactor that is monitored. */
typedef struct monitored {
    struct monitored *next;
    int32_t reactor;
    gl_shared *shared;
    uint64_t turns; /* turns of the loop at the last tick */
    /* Times in ns, without the time in which the monitor was parked; see sample_if_due. */
    int64_t sampled_at; /* the last regular sample */
    int64_t sample_due; /* the next regular sample */
    int64_t every;      /* the mean interval of the samples when it was last read */
    int asleep;         /* samples in a row that were due while the loop slept */
    int64_t began;      /* start of the iteration */
    int64_t next_extra; /* age of the iteration at its next extra sample */
} monitored;

/* lint: allow mutable-static: of the process; the monitor writes it, with its lock */
gl_samples monitor_samples;

/* lint: allow mutable-static: of the process, as the thread is; guarded by `mutex` */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t unparked;
    bool started, parked;           /* the thread runs; it sleeps until monitor_wake() */
    uint32_t thread;                /* atomic: the thread id; 0 until the thread runs */
    bool fenced;                    /* membarrier(2) does not work, or not any more */
    monitored *all;                 /* list of the reactors */
    int64_t tick_at, running_since; /* ns; the monitor did not run before running_since */
    int64_t awake_at;               /* ns: time of the last tick at which a loop was awake */
    int64_t look_due, sample_due;   /* ns: times of the next tick, and of the next sample */
    uint64_t random;                /* state of a linear congruential generator */
} monitor = {.mutex = PTHREAD_MUTEX_INITIALIZER, .unparked = PTHREAD_COND_INITIALIZER};

/* ---- membarrier(2) --------------------------------------------------------------------- */

#define BARRIER (1 << 3)          /* MEMBARRIER_CMD_PRIVATE_EXPEDITED, Linux 4.14 */
#define BARRIER_REGISTER (1 << 4) /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */

/* Makes the system call membarrier(2); false if it failed or does not exist. */
static bool
membarrier(int command)
{
#if defined(__linux__) && defined(SYS_membarrier)
    return syscall(SYS_membarrier, command, 0, 0) == 0;
#else
    (void)command;
    return false;
#endif
}

/* Orders memory between this thread and every other thread of the process, on both sides.  Returns
 * false if that is impossible at present; C is then asked to use fences, and later calls return
 * true: see has_fences() for each block.  With the mutex. */
static bool
barrier(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (monitor.fenced || membarrier(BARRIER))
        return true; /* without membarrier both sides have fences: see has_fences() */
    /* A process that was saved to a file and restored has lost its registration. */
    if (membarrier(BARRIER_REGISTER) && membarrier(BARRIER))
        return true;
    monitor.fenced = true;
    for (monitored *w = monitor.all; w != NULL; w = w->next)
        __atomic_store_n(&w->shared->fence_state, GL_FENCE_REQUESTED, __ATOMIC_RELAXED);
    return false;
}

/* Returns true if barrier() orders this block too: membarrier(2) works, or C has answered that it
 * uses fences. */
static bool
has_fences(gl_shared *sh)
{
    return !monitor.fenced ||
           __atomic_load_n(&sh->fence_state, __ATOMIC_ACQUIRE) == GL_FENCE_IN_USE;
}

/* ---- the thread ------------------------------------------------------------------------ */

/* Sends the reactor's pending writes in place of the loop's thread, and counts a late write.  Does
 * nothing if C uses the reactor or the memory can't be ordered now; the next tick tries again.
 * With the mutex. */
static void
flush_for_loop(monitored *w)
{
    gl_shared *sh = w->shared;
    if (LOAD(&sh->lock_depth) != 0 || !has_fences(sh) || !flusher_try_lock(sh, monitor.thread))
        return;
    if (barrier() && __atomic_load_n(&sh->lock_depth, __ATOMIC_ACQUIRE) == 0 && sh->sends_pending) {
        uint64_t sends = sh->sends;
        goloop_flush_late(w->reactor);
        bool late = sh->sends != sends; /* else C has sent the bytes already */
        if (late) {
            sh->metrics.late_writes++;
            pace_flushed();
            GL_PROBE(late_write, sh->number, sh->now);
        }
    }
    flusher_unlock(sh, monitor.thread);
}

int64_t
monitor_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Returns the earlier of two times. */
static int64_t
min_ns(int64_t a, int64_t b)
{
    if (a < b)
        return a;
    return b;
}

/* Returns the later of two times. */
static int64_t
max_ns(int64_t a, int64_t b)
{
    if (a > b)
        return a;
    return b;
}

/* Returns the time of a thread's processor clock, or 0 if it is not known. */
static int64_t
cpu_time_ns(clockid_t clock)
{
    struct timespec ts;
    if (clock_gettime(clock, &ts) < 0)
        return 0;
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Takes a sample of the stack of a loop and adds it to the ring.  If the ring is full, Go counts
 * its samples first.  The sample represents the time since `since`.  Does nothing for a loop that
 * is not active, or if C can't read the stack. */
static void
take_sample(monitored *w, int64_t now, int64_t since)
{
    gl_shared *sh = w->shared;
    if (!LOAD(&sh->loop_active) || sh->watchdog == NULL)
        return;
    if (monitor_samples.written - __atomic_load_n(&monitor_samples.counted, __ATOMIC_ACQUIRE) ==
        GL_MAX_SAMPLES)
        goloop_count_samples();
    gl_sample *s = &monitor_samples.sample[monitor_samples.written % GL_MAX_SAMPLES];
    s->at = now;
    s->since = since;
    s->loop = (int32_t)LOAD(&sh->number);
    s->iteration = w->began;
    s->serial = LOAD(sh->popped) + LOAD(sh->handed);
    s->polled = LOAD(&sh->metrics.poll_time.sum);
    s->cpu = cpu_time_ns(LOAD(&sh->clock));
    if (sh->watchdog->sample(sh, s))
        __atomic_store_n(&monitor_samples.written, monitor_samples.written + 1, __ATOMIC_RELEASE);
}

/* Takes the extra samples of an iteration that may become slow: from half of the limit on, each
 * time that its age has grown by an eighth. */
static void
take_extra_sample(monitored *w, int64_t now, int64_t slow)
{
    int64_t age = now - w->began;
    if (age >= w->next_extra) {
        take_sample(w, now, now);
        w->next_extra = age + max_ns(age, slow) / 8;
    }
}

/* Returns a random time between 1/2 and 3/2 of the mean. */
static int64_t
random_interval(int64_t mean)
{
    monitor.random = monitor.random * 6364136223846793005u + 1442695040888963407u;
    return mean / 2 + (int64_t)((monitor.random >> 32) * (uint64_t)mean >> 32);
}

/* Takes a sample of a loop if one is due, and returns the time of the next sample; INT64_MAX if the
 * loop takes none.  The times are independent of the loop's work: they are spread over the time in
 * which the monitor was not parked, and each sample represents the time before it.  Go counts the
 * samples in the loop's next turn (golib/profile), so the monitor enters Go only if no turn
 * comes.  A long iteration gets extra samples that represent no time. */
static int64_t
sample_if_due(monitored *w, int64_t now)
{
    gl_shared *sh = w->shared;
    int64_t every = LOAD(&sh->sample_every);
    int64_t slow = LOAD(&sh->slow_limit);
    int64_t began = LOAD(&sh->now);
    if (began != w->began) {
        w->began = began;
        w->next_extra = slow / 2;
    }
    if (slow > 0)
        take_extra_sample(w, now, slow);
    if (every <= 0 || every != w->every) {
        w->every = every;
        w->sampled_at = now; /* sampling begins, or its interval has changed */
        w->sample_due = now;
        w->asleep = 0;
    }
    if (every <= 0)
        return INT64_MAX;
    if (now < w->sample_due)
        return w->sample_due;
    if (w->sampled_at < now)
        take_sample(w, now, w->sampled_at);
    if (LOAD(&sh->loop_active))
        w->asleep = 0;
    else if (w->asleep < HARDLY_RUNS)
        w->asleep++;
    if (w->asleep == HARDLY_RUNS)
        every *= RARE_SAMPLES;
    w->sampled_at = now;
    w->sample_due = now + random_interval(every);
    return w->sample_due;
}

/* Calls the watchdog for an iteration that is as old as blocked_end, or as a fraction of
 * blocked_limit.  Time in which the process was stopped or had no processor does not count. */
static void
check_blocked(monitored *w, int64_t now)
{
    gl_shared *sh = w->shared;
    int64_t since = LOAD(&sh->now);
    int64_t ns = now - max_ns(since, monitor.running_since);
    int64_t limit = LOAD(&sh->blocked_limit);
    int64_t end = LOAD(&sh->blocked_end);
    if (sh->watchdog != NULL &&
        ((end > 0 && ns >= end) || (limit > 0 && ns >= limit / WATCHDOG_FRACTION)))
        goloop_check_iteration(w->reactor, since, ns, now);
}

/* Returns true if the loop is awake, or has made turns since the last call, and notes the turns. */
static bool
check_awake(monitored *w)
{
    uint64_t turns = LOAD(&w->shared->metrics.turns);
    bool awake = turns != w->turns || LOAD(&w->shared->loop_active);
    w->turns = turns;
    return awake;
}

/* Examines an active loop: sends late writes, and calls the watchdog.  Returns the time until the
 * next tick for it; INT64_MAX if its iteration is not long, or its alarm is still to come.  With
 * the mutex. */
static int64_t
examine(monitored *w, int64_t now)
{
    gl_shared *sh = w->shared;
    int64_t age = now - LOAD(&sh->now);
    if (LOAD(&sh->sends_pending) && age >= LONG_ITERATION_NS)
        flush_for_loop(w);
    check_blocked(w, now);
    if (age < LONG_ITERATION_NS || now < LOAD(&sh->alarm_at))
        return INT64_MAX;
    return pace_tick_ns(now);
}

/* Runs one tick for all reactors: samples, late flushes, watchdog, and introspection clients that
 * wait while the GIL is held.  Sets the times of this tick, of the next one and of the next sample.
 * `expired`: an alarm has woken the monitor.  With the mutex. */
static void
run_tick(bool expired)
{
    gl_introspection_socket *introspection_socket = NULL;
    int64_t now = monitor_now();
    int64_t pause = MAX_SLEEP_NS;
    bool replaces_alarm = false;
    if (now > min_ns(monitor.look_due, monitor.sample_due) + LATE_TICK_NS)
        monitor.running_since = now;
    monitor.tick_at = now;
    monitor.sample_due = INT64_MAX;
    for (monitored *w = monitor.all; w != NULL; w = w->next) {
        gl_shared *sh = w->shared;
        monitor.sample_due = min_ns(monitor.sample_due, sample_if_due(w, now));
        if (check_awake(w))
            monitor.awake_at = now;
        if (LOAD(&sh->alarm) < 0 && w->turns != 0) {
            pause = min_ns(pause, pace_tick_ns(now));
            replaces_alarm = true;
        }
        if (!LOAD(&sh->loop_active)) {
            if (expired)
                __atomic_store_n(&sh->alarm_unneeded, 1u, __ATOMIC_RELAXED);
            continue;
        }
        pause = min_ns(pause, examine(w, now));
        if (now - LOAD(&sh->now) >= GIL_HELD_NS)
            introspection_socket = sh->introspection;
    }
    monitor.look_due = now + pause;
    if (expired || replaces_alarm)
        pace_count_alarm(now);
    if (introspection_socket != NULL)
        goloop_poll_introspection_socket(introspection_socket, now);
}

/* Sets the monitor's state, for itself and in the blocks of all loops.  With the mutex. */
static void
set_parked(bool parked)
{
    monitor.parked = parked;
    for (monitored *w = monitor.all; w != NULL; w = w->next)
        __atomic_store_n(&w->shared->monitor_parked, parked, __ATOMIC_RELAXED);
}

/* Parks the monitor: waits until a loop wakes it, moves the samples' times by that wait, and sets
 * tick_at to its end, so that the wait does not count as a late tick.  Returns at once if a loop
 * has become active, or if the memory can't be ordered now.  With the mutex, which is released
 * meanwhile. */
static void
park(void)
{
    set_parked(true);
    bool sure = barrier(); /* else C has to learn of the fences first: the next tick parks */
    for (monitored *w = monitor.all; w != NULL; w = w->next)
        if (!sure || LOAD(&w->shared->loop_active)) {
            set_parked(false);
            return;
        }
    int64_t began = monitor_now();
    while (monitor.parked)
        pthread_cond_wait(&monitor.unparked, &monitor.mutex);
    monitor.awake_at = monitor_now();
    int64_t parked_ns = monitor.awake_at - began;
    monitor.look_due = monitor.awake_at;
    for (monitored *w = monitor.all; w != NULL; w = w->next) {
        w->sampled_at += parked_ns;
        w->sample_due += parked_ns;
        w->asleep = 0;
    }
}

/* Sleeps until an alarm expires, at most until the next tick is due.  Returns true if one has
 * expired. */
static bool
sleep_until_due(void)
{
    int64_t due = min_ns(monitor.look_due, monitor.sample_due);
    return alarm_wait(max_ns(due - monitor_now(), 0));
}

/* The monitor's thread: runs ticks and parks, for the life of the process. */
static void *
run_monitor(void *unused)
{
    thread_set_name(MONITOR_THREAD_NAME);
    thread_set_short_slice();
    __atomic_store_n(&monitor.thread, thread_id(), __ATOMIC_RELAXED);
    for (bool expired = false;; expired = sleep_until_due()) {
        alarm_hold(); /* again, because starting a thread ends it */
        pthread_mutex_lock(&monitor.mutex);
        run_tick(expired);
        if (monitor.tick_at - monitor.awake_at >= IDLE_NS) {
            alarm_release();
            park();
            alarm_hold();
            run_tick(false);
        }
        pthread_mutex_unlock(&monitor.mutex);
    }
    return unused;
}

int32_t
monitor_stop_alarm(gl_shared *sh)
{
    if (sh->alarm >= 0) {
        sh->alarm_due = 0;
        (void)alarm_set(sh, LOAD(&monitor.thread), 0);
    }
    return 0;
}

int32_t
monitor_move_alarm(gl_shared *sh, int64_t now)
{
    const alarm_pace *p = pace_update(sh, now);
    uint32_t thread = LOAD(&monitor.thread);
    if (now < sh->alarm_at)
        __atomic_store_n(&sh->alarm_unneeded, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&sh->alarm_at, now + p->alarm, __ATOMIC_RELAXED);
    sh->alarm_due = now + p->forward;
    sh->alarm_is_far = p->is_far;
    if (thread != 0 && alarm_set(sh, thread, p->alarm) != 0)
        sh->alarm_due = INT64_MAX;
    return 0;
}

/* ---- reactors -------------------------------------------------------------------------- */

/* Starts the monitor's thread, and finds out whether membarrier(2) works.  Returns 0 or an errno.
 * With the mutex. */
static int
start_monitor(void)
{
    monitor.fenced = !membarrier(BARRIER_REGISTER);
    int err = thread_start(run_monitor, NULL);
    monitor.started = err == 0;
    return err;
}

int32_t
monitor_add_reactor(int32_t reactor, gl_shared *shared)
{
    monitored *w = malloc(sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&monitor.mutex);
    int err = 0;
    if (!monitor.started)
        err = start_monitor();
    if (err == 0) {
        shared->alarm = -1;
        *w = (monitored){.next = monitor.all, .reactor = reactor, .shared = shared};
        monitor.all = w;
        /* The caller is C, so C knows of the fences. */
        shared->fence_state = monitor.fenced ? GL_FENCE_IN_USE : 0;
        __atomic_store_n(&shared->monitor_parked, monitor.parked, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&monitor.mutex);
    if (err != 0)
        free(w);
    return -err;
}

void
monitor_remove_reactor(int32_t reactor)
{
    monitored *gone = NULL;
    pthread_mutex_lock(&monitor.mutex);
    for (monitored **p = &monitor.all; *p != NULL; p = &(*p)->next)
        if ((*p)->reactor == reactor) {
            gone = *p;
            *p = gone->next;
            break;
        }
    if (gone != NULL)
        alarm_delete(gone->shared);
    pthread_mutex_unlock(&monitor.mutex);
    free(gone);
}

void
monitor_each(void (*each)(gl_shared *shared, void *arg), void *arg)
{
    pthread_mutex_lock(&monitor.mutex);
    for (monitored *w = monitor.all; w != NULL; w = w->next)
        each(w->shared, arg);
    pthread_mutex_unlock(&monitor.mutex);
}

int32_t
monitor_wake(int32_t reactor)
{
    (void)reactor;
    pthread_mutex_lock(&monitor.mutex);
    if (monitor.parked) {
        set_parked(false);
        pthread_cond_signal(&monitor.unparked);
    }
    pthread_mutex_unlock(&monitor.mutex);
    return 0;
}
