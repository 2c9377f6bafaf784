/*
 * driver.c: a C program that opens the library as the extension does and uses it through its API
 * table only. `driver LIBRARY CASE` runs one case; a failed expectation prints its place and exits
 * with 1.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "abi.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "driver.c:%d: %s (errno %d)\n", __LINE__, #condition, errno);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define MS 1000000ll

static const gl_table *go;

typedef struct loop {
    gl_shared shared;
    int32_t number;
} loop;

/* Returns the monotonic clock in nanoseconds. */
static int64_t
now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* Opens a loop: allocates its buffers and makes its reactor. */
static void
loop_open(loop *l)
{
    memset(l, 0, sizeof *l);
    l->shared.sub_cap = 64;
    l->shared.sub = calloc(l->shared.sub_cap, sizeof *l->shared.sub);
    l->shared.cmp_cap = 64;
    l->shared.cmp = calloc(l->shared.cmp_cap, sizeof *l->shared.cmp);
    l->shared.arena_cap = 256 << 10;
    l->shared.arena = malloc(l->shared.arena_cap + GL_ARENA_SLACK);
    l->number = go->reactor_new(&l->shared);
    EXPECT(l->number >= 0);
    EXPECT(l->shared.wake_fd >= 0);
}

/* Closes the loop's reactor and frees the buffers. */
static void
loop_close(loop *l)
{
    EXPECT(go->reactor_close(l->number) == 0);
    free(l->shared.sub);
    free(l->shared.cmp);
    free(l->shared.arena);
}

/* Appends a submission for the next turn; `op` decides the meanings of `id`, `gen` and `arg`. */
static void
submit(loop *l, uint32_t op, uint32_t id, uint32_t gen, int64_t arg)
{
    EXPECT(l->shared.sub_len < l->shared.sub_cap);
    l->shared.sub[l->shared.sub_len++] =
        (gl_submission){.op = op, .id = id, .gen = gen, .arg = arg};
}

/* Queues n bytes on a stream whose record has room for one piece. */
static void
stream_write(loop *l, gl_stream_io *io, uint32_t id, uint32_t gen, const void *text, size_t n)
{
    EXPECT(io->head == io->tail && io->appended == io->sent && !io->listed);
    io->iov[0] = (gl_vector){text, n};
    io->head = 0;
    io->tail = 1;
    io->appended += n;
    io->want |= GL_WANT_REPORT;
    io->listed = 1;
    submit(l, GL_SUB_STREAM, id, gen, 0);
}

/* Runs turns until a completion of this kind arrives; other completions are ignored. */
static gl_completion
await_kind(loop *l, uint32_t kind)
{
    for (int turn = 0; turn < 1000; turn++) {
        int32_t n = go->turn(l->number, -1);
        EXPECT(n >= 0 && (uint32_t)n == l->shared.cmp_len);
        for (int32_t i = 0; i < n; i++) {
            if (l->shared.cmp[i].kind == kind) {
                return l->shared.cmp[i];
            }
        }
    }
    EXPECT(!"the completion came");
    return (gl_completion){0};
}

/* A stream from opening to closing: receive, send, flush_stream, EOF, unregister; then the errors
 * of a second unregister and of a turn of a closed loop. */
static void
case_stream(void)
{
    loop l;
    int ends[2];
    uint32_t id, gen;
    char text[] = "from the peer", back[64];
    gl_vector piece;
    gl_stream_io io = {.iov = &piece, .cap = 1, .want = GL_WANT_READ};
    loop_open(&l);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    EXPECT(go->stream_open(l.number, ends[0], &io, 0, &id, &gen) == 0);
    EXPECT(write(ends[1], text, sizeof text) == sizeof text);
    gl_completion c = await_kind(&l, GL_CMP_DATA);
    EXPECT(c.id == id && c.gen == gen && c.arg == sizeof text);
    EXPECT(memcmp(c.ptr, text, sizeof text) == 0);

    stream_write(&l, &io, id, gen, text, sizeof text);
    c = await_kind(&l, GL_CMP_WROTE);
    EXPECT(c.id == id && c.arg == sizeof text);
    EXPECT(read(ends[1], back, sizeof back) == sizeof text);
    EXPECT(memcmp(back, text, sizeof text) == 0);

    stream_write(&l, &io, id, gen, text, sizeof text);
    EXPECT(go->flush_stream(l.number, id, gen) == 0);
    EXPECT(io.sent == 2 * sizeof text && io.head == 1 && io.state == 0);
    EXPECT(read(ends[1], back, sizeof back) == sizeof text);

    close(ends[1]);
    c = await_kind(&l, GL_CMP_EOF);
    EXPECT(c.id == id && io.state == GL_STATE_READ_END);
    EXPECT(go->unregister(l.number, id, gen) == 0);
    EXPECT(go->unregister(l.number, id, gen) == -ENOENT);
    close(ends[0]);
    EXPECT(go->turn(l.number, 0) == 0);
    loop_close(&l);
    EXPECT(go->turn(l.number, 0) == -EBADF);
}

/* Timers expire in the order of their deadlines and not earlier, a cancelled one never, and
 * next_deadline is the deadline of the next one. */
static void
case_timers(void)
{
    loop l;
    loop_open(&l);
    int64_t start = now();
    submit(&l, GL_SUB_TIMER_ARM, 2, 0, start + 3 * MS);
    submit(&l, GL_SUB_TIMER_ARM, 0, 0, start + 1 * MS);
    submit(&l, GL_SUB_TIMER_ARM, 1, 0, start + 2 * MS);
    submit(&l, GL_SUB_TIMER_CANCEL, 1, 0, 0);
    gl_completion c = await_kind(&l, GL_CMP_TIMER);
    EXPECT(c.id == 0 && now() >= start + 1 * MS);
    /* On a machine that was busy for this long, both timers expire in one turn. */
    EXPECT(l.shared.next_deadline == start + 3 * MS ||
           (l.shared.next_deadline == GL_DEADLINE_NONE && now() >= start + 3 * MS));
    c = l.shared.cmp_len == 2 ? l.shared.cmp[1] : await_kind(&l, GL_CMP_TIMER);
    EXPECT(c.id == 2 && now() >= start + 3 * MS);
    EXPECT(l.shared.next_deadline == GL_DEADLINE_NONE);
    loop_close(&l);
}

/* A thread that wakes the loop `arg`, as another thread's call_soon_threadsafe() does. */
static void *
wake_up(void *arg)
{
    loop *l = arg;
    uint32_t expected = 0;
    if (atomic_compare_exchange_strong((_Atomic uint32_t *)&l->shared.wake_pending, &expected, 1))
        (void)gl_wake_up(&l->shared);
    return NULL;
}

/* A wake-up from another thread ends a blocked poll, and is counted and cleared. */
static void
case_wake(void)
{
    loop l;
    loop_open(&l);
    for (int round = 0; round < 100; round++) {
        pthread_t thread;
        uint64_t before = l.shared.wakeups;
        EXPECT(pthread_create(&thread, NULL, wake_up, &l) == 0);
        /* Nothing else could end these turns. */
        while (l.shared.wakeups == before) {
            EXPECT(go->turn(l.number, -1) == 0);
        }
        EXPECT(l.shared.wake_pending == 0);
        pthread_join(thread, NULL);
    }
    loop_close(&l);
}

/* Prints the reactor's facts, which are JSON, for the Go test.  Without a buffer the call returns
 * their length, which may vary with the numbers. */
static void
case_reactor_facts(void)
{
    loop l;
    char out[1024];
    loop_open(&l);
    int32_t n = go->reactor_facts(l.number, out, sizeof out);
    EXPECT(n > 0 && n < (int32_t)sizeof out);
    printf("%.*s\n", n, out);
    EXPECT(go->reactor_facts(l.number, NULL, 0) >= n - 8);
    loop_close(&l);
}

/* The loop's side of the lock that it shares with the monitor, see abi.h. */
static void
lock_shared(loop *l)
{
    gl_shared *sh = &l->shared;
    __atomic_store_n(&sh->lock_depth, 1u, __ATOMIC_RELAXED);
    if (sh->fence_state)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sh->flusher_lock, __ATOMIC_ACQUIRE))
        EXPECT(go->yield_to_flusher(sh) == 0);
}

/* Releases the lock of lock_shared(). */
static void
unlock_shared(loop *l)
{
    __atomic_store_n(&l->shared.lock_depth, 0u, __ATOMIC_RELEASE);
}

/* Marks the loop as running Python code, and wakes the monitor if it is parked; see loop_active in
 * abi.h. */
static void
set_active(loop *l)
{
    gl_shared *sh = &l->shared;
    __atomic_store_n(&sh->loop_active, 1u, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sh->monitor_parked, __ATOMIC_RELAXED))
        EXPECT(go->wake_monitor(l->number) == 0);
    EXPECT(go->move_alarm(sh, 0) == 0);
}

/* A thread without turns gets its bytes sent by the monitor, each once and in order. */
static void
case_monitor(void)
{
    enum { ROUNDS = 400 };
    loop l;
    int ends[2];
    uint32_t id, gen, seen = 0;
    static uint32_t numbers[ROUNDS];
    gl_vector piece;
    gl_stream_io io = {.iov = &piece, .cap = 1};
    loop_open(&l);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    EXPECT(go->stream_open(l.number, ends[0], &io, 0, &id, &gen) == 0);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2) { /* long enough for the monitor to park */
            __atomic_store_n(&l.shared.loop_active, 0u, __ATOMIC_RELAXED);
            usleep(50000);
        }
        set_active(&l);
        lock_shared(&l);
        numbers[round] = round;
        stream_write(&l, &io, id, gen, &numbers[round], sizeof numbers[round]);
        __atomic_store_n(&l.shared.sends_pending, 1u, __ATOMIC_RELAXED);
        unlock_shared(&l);
        struct pollfd ready = {ends[1], POLLIN, 0};
        EXPECT(poll(&ready, 1, 60000) == 1);
        uint32_t number;
        EXPECT(read(ends[1], &number, sizeof number) == sizeof number && number == round);
        seen++;
        lock_shared(&l); /* waits until the monitor has unlocked */
        EXPECT(io.head == io.tail && io.sent == io.appended);
        unlock_shared(&l);
        if (round % 8 == 0) { /* and the turns in between work as usual */
            lock_shared(&l);
            EXPECT(go->turn(l.number, 0) >= 0);
            unlock_shared(&l);
        }
    }
    EXPECT(seen == ROUNDS && l.shared.metrics.late_writes == ROUNDS);
    EXPECT(go->unregister(l.number, id, gen) == 0);
    close(ends[0]);
    close(ends[1]);
    loop_close(&l);
}

#if defined(__linux__)
/* A thread that takes the shared lock `arg` while the flusher has it: waits for the flusher, and
 * then has the lock. */
static void *
wait_for_flusher(void *arg)
{
    gl_shared *sh = arg;
    __atomic_store_n(&sh->lock_depth, 1u, __ATOMIC_SEQ_CST);
    EXPECT(go->yield_to_flusher(sh) == 0);
    EXPECT(__atomic_load_n(&sh->lock_depth, __ATOMIC_SEQ_CST) == 1);
    return NULL;
}

/* A thread that waits for the flusher sleeps in the kernel, which knows the owner and gives it the
 * waiter's priority. A thread that wait_for_flusher would keep the owner off its processor. */
static void
case_yield_to_flusher(void)
{
    loop l;
    pthread_t thread;
    uint32_t me = (uint32_t)syscall(SYS_gettid);
    loop_open(&l);
    for (int round = 0; round < 100; round++) {
        __atomic_store_n(&l.shared.flusher_lock, me, __ATOMIC_SEQ_CST);
        EXPECT(pthread_create(&thread, NULL, wait_for_flusher, &l.shared) == 0);
        while (__atomic_load_n(&l.shared.flusher_lock, __ATOMIC_SEQ_CST) != (me | FUTEX_WAITERS))
            usleep(100);
        EXPECT(__atomic_load_n(&l.shared.lock_depth, __ATOMIC_SEQ_CST) == 0);
        EXPECT(syscall(SYS_futex, &l.shared.flusher_lock, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL,
                       0) == 0);
        EXPECT(pthread_join(thread, NULL) == 0);
        EXPECT(__atomic_load_n(&l.shared.flusher_lock, __ATOMIC_SEQ_CST) == 0);
    }
    __atomic_store_n(&l.shared.lock_depth, 0u, __ATOMIC_SEQ_CST);
    loop_close(&l);
}
#else
/* Passes: only Linux has this futex. */
static void
case_yield_to_flusher(void)
{
}
#endif

/* A thread that opens, uses and closes ten loops, one after the other; `arg` is not used. */
static void *
use_loops(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        case_stream();
        case_timers();
    }
    return NULL;
}

/* Four threads at once: each opens, uses and closes its own loops. */
static void
case_threads(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        EXPECT(pthread_create(&threads[i], NULL, use_loops, NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Opens the library, compares its ABI with abi.h, and runs the case. */
int
main(int argc, char **argv)
{
    EXPECT(argc == 3);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    gl_table_fn table = (gl_table_fn)dlsym(library, GL_TABLE_SYMBOL);
    EXPECT(table != NULL);
    go = table();
    const uint32_t abi[] = GL_ABI;
    EXPECT(memcmp(go->abi, abi, sizeof abi) == 0);
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"stream", case_stream},
        {"timers", case_timers},
        {"wake", case_wake},
        {"reactor_facts", case_reactor_facts},
        {"threads", case_threads},
        {"monitor", case_monitor},
        {"yield_to_flusher", case_yield_to_flusher},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[2], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", argv[2]);
    return 2;
}
