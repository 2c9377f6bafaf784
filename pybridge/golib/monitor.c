/*
 * monitor.c: a thread that sends what was written while Python goes on, and sees what blocks.
 *
 *     +--> tick: whose iteration is long, and has left something unsent? --> Go sends it
 *     |      |
 *     +------+ 1.7 ms; 6.8 ms beside loops that are busy, and whose iterations are short
 *     |      | nobody was awake for some ticks
 *   watch <-- parked: no wake-ups at all
 *
 * Python writes, then computes or waits; what it wrote would leave at the end of the
 * iteration only.  abi.h, "The monitor", tells how it gets a reactor for itself meanwhile.
 *
 * The thread is C's.  A goroutine that sleeps in a system call, or by Go's timers, keeps Go's
 * own monitor thread awake, by 16,000 wake-ups in 3 s and 4 to 8 % of a core.  This one enters
 * Go only to send, and to count samples that no turn has counted.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "_cgo_export.h"
#include "monitor.h"
#include "thread.h"

/* What was written leaves within LATE_NS and a tick: an iteration that is older when the monitor
 * comes is a long one.  A tick takes 10 to 20 us from a loop that is busy on the same core, so it
 * comes seldom where loops are busy and no iteration is long.  Beside a loop that sleeps it costs
 * idle time only.  It even gains some: a Linux whose next timer is less than a jiffy away does not
 * stop its own tick when a core goes idle, and wakes up sooner. */
#define TICK_NS 1700000
#define SELDOM_NS (4 * TICK_NS)
#define LATE_NS 1000000
/* `steady` goes up by 1 with each tick that finds a busy loop, down by STEADY_LOSS with one that
 * finds none, and to 0 with a long iteration.  From STEADY_TICKS on, ticks are seldom. */
#define STEADY_TICKS 64
#define STEADY_LOSS 8
/* So many ticks without a loop that is awake, and the monitor parks. */
#define IDLE_TICKS 5
/* A tick that comes so late was not the loop's fault alone. */
#define STARVED_NS 250000000
/* Somebody may hold the GIL, so long does an iteration last. */
#define HELD_NS 100000000
/* From such a part of its limit on a block is watched. */
#define WATCHED_PART 128

typedef struct watched {
    struct watched *next;
    int32_t reactor;
    gl_shared *shared;
    uint64_t turns, polled;      /* at the last tick: how many, and ns in the poller */
    int64_t sampled, sample_due; /* ns, while the monitor was not parked; see monitor_sample */
    int64_t began, look_at;      /* of the iteration: and how old it is when it is looked at next */
} watched;

/* lint: allow mutable-static: of the process; the monitor writes it, with its lock */
gl_samples monitor_samples;

/* lint: allow mutable-static: of the process, as the thread is; guarded by `mutex` */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t unparked;
    bool started, parked;
    uint32_t thread; /* its id; constant once it runs */
    bool fenced;     /* there is no membarrier, or none any more */
    watched *all;
    int64_t looked_at, attentive_since; /* ns: what happened before it did not see */
    int steady;                         /* see STEADY_TICKS */
    int64_t due;                        /* ns: when the next sample is */
    uint64_t random;
} monitor = {.mutex = PTHREAD_MUTEX_INITIALIZER, .unparked = PTHREAD_COND_INITIALIZER};

/* ---- membarrier(2) --------------------------------------------------------------------- */

#define BARRIER (1 << 3)          /* MEMBARRIER_CMD_PRIVATE_EXPEDITED, Linux 4.14 */
#define BARRIER_REGISTER (1 << 4) /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */

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

/* What this thread has written is known to every other one of the process before it takes
 * another step, and the other way round; or it is false.  With the mutex. */
static bool
barrier(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (monitor.fenced || membarrier(BARRIER))
        return true; /* where there are fences, they are on both sides: monitor_has_fences() */
    /* A process that was saved to a file and restored is not registered any more. */
    if (membarrier(BARRIER_REGISTER) && membarrier(BARRIER))
        return true;
    monitor.fenced = true;
    for (watched *w = monitor.all; w != NULL; w = w->next)
        __atomic_store_n(&w->shared->fence_state, GL_FENCE_REQUESTED, __ATOMIC_RELAXED);
    return false;
}

/* Whether barrier() is one for whoever uses the block: C has to know that it needs fences. */
static bool
monitor_has_fences(gl_shared *sh)
{
    return !monitor.fenced ||
           __atomic_load_n(&sh->fence_state, __ATOMIC_ACQUIRE) == GL_FENCE_IN_USE;
}

/* ---- the guest ------------------------------------------------------------------------ *
 *
 * gl_shared.guest is a mutex that the monitor only tries.  A thread that waits for it has the GIL,
 * and perhaps a priority for real time on the processor on which the monitor was interrupted: if it
 * yielded, the monitor would never run there.  So it waits in the kernel, which gives its priority
 * to the owner. */

#define GUEST_YIELDS 20

static uint32_t
thread_id(void)
{
#if defined(__linux__)
    return (uint32_t)syscall(SYS_gettid);
#else
    return 1;
#endif
}

static bool
flusher_try_lock(gl_shared *sh, uint32_t me)
{
    uint32_t nobody = 0;
    return __atomic_compare_exchange_n(&sh->flusher_lock, &nobody, me, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}

static void
flusher_lock(gl_shared *sh, uint32_t me)
{
    for (int i = 0; !flusher_try_lock(sh, me); i++) {
        if (i < GUEST_YIELDS) {
            sched_yield();
            continue;
        }
#if defined(__linux__)
        if (syscall(SYS_futex, &sh->flusher_lock, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0)
            return;
#endif
        const struct timespec moment = {0, 50000}; /* the processor is somebody else's meanwhile */
        nanosleep(&moment, NULL);
    }
}

static void
flusher_unlock(gl_shared *sh, uint32_t me)
{
    if (__atomic_compare_exchange_n(&sh->flusher_lock, &me, 0u, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED))
        return;
#if defined(__linux__)
    syscall(SYS_futex, &sh->flusher_lock, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0);
#endif
}

int32_t
monitor_yield_to_flusher(gl_shared *sh)
{
    int saved = errno;
    uint32_t me = thread_id();
    __atomic_store_n(&sh->lock_depth, 0u, __ATOMIC_SEQ_CST);
    flusher_lock(sh, me);
    __atomic_store_n(&sh->lock_depth, 1u, __ATOMIC_SEQ_CST);
    flusher_unlock(sh, me);
    errno = saved;
    return 0;
}

/* ---- clients that ask ------------------------------------------------------------------
 *
 * A thread of Python's answers, which needs the GIL.  Where it does not get it though somebody waits,
 * Go answers what it knows (asking.go), each client on its own thread. */

/* Sends a trace until it ends.  `ms`: the time to wait before the next part; -1 if there is no trace. */
static void
send_trace(int fd, int32_t ms)
{
    struct pollfd client = {.fd = fd, .events = POLLIN};
    while (ms >= 0) {
        bool has_ended = poll(&client, 1, ms) != 0;
        ms = goloop_trace_goes_on(fd, has_ended);
    }
}

static void *
run_answer_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    thread_set_name("goloop-answer");
    send_trace(fd, goloop_answer(fd));
    return NULL;
}

static void *
run_trace_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    thread_set_name("goloop-answer");
    send_trace(fd, goloop_trace_begin(fd));
    return NULL;
}

int
monitor_start_answer(int32_t fd)
{
    return thread_start(run_answer_thread, (void *)(intptr_t)fd);
}

int
monitor_start_trace(int32_t fd)
{
    return thread_start(run_trace_thread, (void *)(intptr_t)fd);
}

/* ---- reports of blocks, which wait for the GIL ------------------------------------------- */

/* lint: allow mutable-static: of the process; constant once a block was seen */
static const gl_watchdog *reporter;

static void *
monitor_tells(void *reactor)
{
    thread_set_name(REPORT_THREAD_NAME);
    reporter->tell((int32_t)(intptr_t)reactor);
    return NULL;
}

void
monitor_reports(int32_t reactor, gl_shared *sh)
{
    reporter = sh->watchdog;
    (void)thread_start(monitor_tells, (void *)(intptr_t)reactor);
}

/* ---- the thread ------------------------------------------------------------------------ */

/* Unless C is at work on the reactor, which it never is for long: the next tick tries again. */
static void
monitor_send(watched *w)
{
    gl_shared *sh = w->shared;
    if (__atomic_load_n(&sh->lock_depth, __ATOMIC_RELAXED) != 0 || !monitor_has_fences(sh) ||
        !flusher_try_lock(sh, monitor.thread))
        return;
    if (barrier() && __atomic_load_n(&sh->lock_depth, __ATOMIC_ACQUIRE) == 0 && sh->sends_pending) {
        uint64_t sends = sh->sends;
        goloop_flush_late(w->reactor);
        bool late = sh->sends != sends; /* else C had sent it already */
        sh->metrics.late_writes += late;
        if (late)
            GL_PROBE(late_write, sh->number, sh->now);
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

/* Has the loop had a core for itself in these ns?  That is, did it turn, and wait for less than a
 * quarter of them?  A build without metrics doesn't tell. */
static bool
monitor_sees_busy(watched *w, int64_t ns)
{
    uint64_t turns = __atomic_load_n(&w->shared->metrics.turns, __ATOMIC_RELAXED) - w->turns;
    uint64_t sum = __atomic_load_n(&w->shared->metrics.poll_time.sum, __ATOMIC_RELAXED);
    uint64_t polled = sum - w->polled;
    w->turns += turns;
    w->polled = sum;
    return turns != 0 && sum != 0 && polled < (uint64_t)ns / 4;
}

/* Takes a sample of a loop that is at work. */
static void
monitor_take(watched *w, int64_t now, int64_t since)
{
    gl_shared *sh = w->shared;
    struct timespec cpu = {0};
    if (!__atomic_load_n(&sh->loop_active, __ATOMIC_RELAXED) || sh->watchdog == NULL)
        return;
    if (monitor_samples.written - __atomic_load_n(&monitor_samples.counted, __ATOMIC_ACQUIRE) ==
        GL_SAMPLES_MOST)
        goloop_count_samples();
    gl_sample *s = &monitor_samples.sample[monitor_samples.written % GL_SAMPLES_MOST];
    s->at = now, s->since = since,
    s->loop = (int32_t)__atomic_load_n(&sh->number, __ATOMIC_RELAXED), s->iteration = w->began;
    s->serial = __atomic_load_n(sh->popped, __ATOMIC_RELAXED) +
                __atomic_load_n(sh->handed, __ATOMIC_RELAXED);
    s->polled = __atomic_load_n(&sh->metrics.poll_time.sum, __ATOMIC_RELAXED);
    s->cpu = clock_gettime(__atomic_load_n(&sh->clock, __ATOMIC_RELAXED), &cpu) < 0
                 ? 0
                 : (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
    if (sh->watchdog->sample(sh, s))
        __atomic_store_n(&monitor_samples.written, monitor_samples.written + 1, __ATOMIC_RELEASE);
}

/* Takes a sample of a loop, if one is due.  The moments have nothing to do with what the loop does:
 * they are spread evenly over the time in which the monitor was not parked.  Go counts them in the
 * loop's next turn (golib/profile.go): the monitor enters Go only where none comes.  An iteration
 * that gets long is looked at more often, by samples that stand for no time.  Returns when the next
 * one is due. */
static int64_t
monitor_sample(watched *w, int64_t now)
{
    gl_shared *sh = w->shared;
    int64_t every = __atomic_load_n(&sh->sample_every, __ATOMIC_RELAXED);
    int64_t slow = __atomic_load_n(&sh->slow_limit, __ATOMIC_RELAXED);
    int64_t began = __atomic_load_n(&sh->now, __ATOMIC_RELAXED), age = now - began;
    if (began != w->began)
        w->began = began, w->look_at = slow / 2;
    if (slow > 0 && age >= w->look_at) {
        monitor_take(w, now, now);
        w->look_at = age + (age > slow ? age : slow) / 8;
    }
    if (every <= 0 || w->sampled == 0 || w->sample_due > now + 2 * every)
        w->sampled = w->sample_due = now;
    if (every <= 0 || now < w->sample_due)
        return every <= 0 ? INT64_MAX : w->sample_due;
    if (w->sampled < now)
        monitor_take(w, now, w->sampled);
    w->sampled = now;
    monitor.random = monitor.random * 6364136223846793005u + 1442695040888963407u;
    w->sample_due = now + every / 2 + (int64_t)((monitor.random >> 32) * (uint64_t)every >> 32);
    return w->sample_due;
}

/* Of a process that was stopped, or did not get a processor, nobody is to blame. */
static void
monitor_watches(watched *w, int64_t now)
{
    gl_shared *sh = w->shared;
    int64_t since = __atomic_load_n(&sh->now, __ATOMIC_RELAXED);
    int64_t ns = now - (since > monitor.attentive_since ? since : monitor.attentive_since);
    int64_t limit = __atomic_load_n(&sh->blocked_limit, __ATOMIC_RELAXED);
    int64_t end = __atomic_load_n(&sh->blocked_end, __ATOMIC_RELAXED);
    if (sh->watchdog != NULL &&
        ((end > 0 && ns >= end) || (limit > 0 && ns >= limit / WATCHED_PART)))
        goloop_watch(w->reactor, since, ns, now);
}

/* Sends what is late, and looks for what blocks; true if some loop was awake.  With the mutex. */
static bool
monitor_look(void)
{
    bool awake = false, busy = false;
    gl_asker *asker = NULL;
    int64_t now = monitor_now(), since = now - monitor.looked_at;
    monitor.due = INT64_MAX;
    if (since > STARVED_NS)
        monitor.attentive_since = now;
    monitor.looked_at = now;
    for (watched *w = monitor.all; w != NULL; w = w->next) {
        gl_shared *sh = w->shared;
        busy |= monitor_sees_busy(w, since);
        int64_t due = monitor_sample(w, now);
        monitor.due = due < monitor.due ? due : monitor.due;
        if (!__atomic_load_n(&sh->loop_active, __ATOMIC_RELAXED))
            continue;
        awake = true;
        if (__atomic_load_n(&sh->sends_pending, __ATOMIC_RELAXED) &&
            now - __atomic_load_n(&sh->now, __ATOMIC_RELAXED) >= LATE_NS) {
            monitor.steady = 0;
            monitor_send(w);
        }
        monitor_watches(w, now);
        if (now - __atomic_load_n(&sh->now, __ATOMIC_RELAXED) >= HELD_NS)
            asker = sh->asker;
    }
    if (asker != NULL)
        goloop_look_for_askers(asker, now);
    if (busy)
        monitor.steady += monitor.steady < STEADY_TICKS;
    else
        monitor.steady = monitor.steady > STEADY_LOSS ? monitor.steady - STEADY_LOSS : 0;
    return awake;
}

static void
monitor_set_parked(bool parked)
{
    monitor.parked = parked;
    for (watched *w = monitor.all; w != NULL; w = w->next)
        __atomic_store_n(&w->shared->monitor_parked, parked, __ATOMIC_RELAXED);
}

/* Waits until somebody wakes.  With the mutex. */
static void
monitor_park(void)
{
    monitor_set_parked(true);
    bool sure = barrier(); /* else C learns of fences first: the next tick is late enough */
    for (watched *w = monitor.all; w != NULL; w = w->next)
        if (!sure || __atomic_load_n(&w->shared->loop_active, __ATOMIC_RELAXED)) {
            monitor_set_parked(false);
            return;
        }
    int64_t began = monitor_now();
    while (monitor.parked)
        pthread_cond_wait(&monitor.unparked, &monitor.mutex);
    monitor.looked_at = monitor_now();
    for (watched *w = monitor.all; w != NULL; w = w->next)
        w->sampled += monitor.looked_at - began, w->sample_due += monitor.looked_at - began;
}

static void *
monitor_thread(void *unused)
{
    thread_set_name(MONITOR_THREAD_NAME);
    monitor.thread = thread_id();
    int idle = 0;
    for (;;) {
        pthread_mutex_lock(&monitor.mutex);
        idle = monitor_look() ? 0 : idle + 1;
        if (idle >= IDLE_TICKS) {
            monitor_park();
            idle = 0;
        }
        int64_t ns = monitor.steady == STEADY_TICKS ? SELDOM_NS : TICK_NS;
        int64_t left = monitor.due - monitor.looked_at;
        struct timespec tick = {0, left > 0 && left < ns ? left : ns};
        pthread_mutex_unlock(&monitor.mutex);
        nanosleep(&tick, NULL);
    }
    return unused;
}

/* ---- reactors -------------------------------------------------------------------------- */

/* 0 or an errno.  With the mutex. */
static int
monitor_start(void)
{
    monitor.fenced = !membarrier(BARRIER_REGISTER);
    int err = thread_start(monitor_thread, NULL);
    monitor.started = err == 0;
    return err;
}

int32_t
monitor_reactor_opened(int32_t reactor, gl_shared *shared)
{
    watched *w = malloc(sizeof *w);
    if (w == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&monitor.mutex);
    int err = monitor.started ? 0 : monitor_start();
    if (err == 0) {
        *w = (watched){.next = monitor.all, .reactor = reactor, .shared = shared};
        monitor.all = w;
        shared->fence_state = monitor.fenced ? GL_FENCE_IN_USE : 0; /* C is here, and knows */
        __atomic_store_n(&shared->monitor_parked, monitor.parked, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&monitor.mutex);
    if (err != 0)
        free(w);
    return -err;
}

void
monitor_reactor_closes(int32_t reactor)
{
    watched *gone = NULL;
    pthread_mutex_lock(&monitor.mutex);
    for (watched **p = &monitor.all; *p != NULL; p = &(*p)->next)
        if ((*p)->reactor == reactor) {
            gone = *p;
            *p = gone->next;
            break;
        }
    pthread_mutex_unlock(&monitor.mutex);
    free(gone);
}

void
monitor_each(void (*each)(gl_shared *shared, void *arg), void *arg)
{
    pthread_mutex_lock(&monitor.mutex);
    for (watched *w = monitor.all; w != NULL; w = w->next)
        each(w->shared, arg);
    pthread_mutex_unlock(&monitor.mutex);
}

int32_t
monitor_watch(int32_t reactor)
{
    (void)reactor;
    pthread_mutex_lock(&monitor.mutex);
    if (monitor.parked) {
        monitor_set_parked(false);
        pthread_cond_signal(&monitor.unparked);
    }
    pthread_mutex_unlock(&monitor.mutex);
    return 0;
}
