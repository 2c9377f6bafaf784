/*
 * resolve.c: getaddrinfo(3) on a few threads of its own.
 *
 * On goroutines each look-up would hold a thread of Go, which never ends, and
 * which ends the process where it can't be made.  These threads are C's, as many
 * as asyncio's default executor would have.  One is made when a look-up finds none
 * idle; where that fails the others will do it, or the caller hears of it.
 *
 *     look-up --> queue --> a thread: getaddrinfo --> gl_shared.answers, wake
 *
 * A thread ends after some idle seconds, or with the last reactor.  None of them
 * ever enters Go.  They take no signal, but for faults.
 *
 * A forked child has no thread of its parent's, and nothing of this state either:
 * it loads the library afresh (core/runtime/library.c).  But it has the parent's libc,
 * with its locks as they were.  The end of a thread that has looked up a name takes
 * glibc's lock of resolv.conf, which fork(3) does not look after: a child made at that
 * moment would wait for ever when it resolves a name, or ends a thread that got the
 * memory of one that did.  So threads are joined, and a fork waits for those that end.
 */
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "resolve.h"
#include "thread.h"

#define RESOLVE_IDLE_SECONDS 5
#define RESOLVE_THREADS_MAX 32

/* A reactor that may ask. */
typedef struct asker {
    struct asker *next;
    int32_t reactor;
    gl_shared *shared;
} asker;

/* One look-up; it becomes the answer. */
typedef struct lookup {
    gl_answer answer;             /* first: C and Go free and read it by this */
    struct lookup *next;          /* in the queue, or among those being looked up */
    gl_shared *shared;            /* NULL once the reactor is closed */
    struct addrinfo hints;
    char *host, *service;         /* or NULL; they lie behind the struct */
} lookup;

/* lint: allow mutable-static: of the process, as its threads are; guarded by `mutex` */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    bool ready;                   /* `work` counts by the monotonic clock */
    asker *askers;
    lookup *first, **last;        /* the queue */
    int queued;
    lookup *running;
    int threads, idle;
    pthread_cond_t changed;       /* there is one more in `ended`, or the first asker */
    int ended_count;
    pthread_t ended[RESOLVE_THREADS_MAX]; /* to be joined; each is past all that takes `mutex` */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
          .last = &pool.first};

static int
resolve_threads_max(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 5 : cpus + 4 < RESOLVE_THREADS_MAX ? (int)cpus + 4 : RESOLVE_THREADS_MAX;
}

static void
resolve_drop(gl_answer *answers)
{
    while (answers != NULL) {
        gl_answer *next = answers->next;
        if (answers->list != NULL)
            freeaddrinfo(answers->list);
        free(answers);
        answers = next;
    }
}

/* ---- reactors --------------------------------------------------------------------- */

int32_t
resolve_reactor_opened(int32_t reactor, gl_shared *shared)
{
    asker *a = malloc(sizeof *a);
    if (a == NULL)
        return -ENOMEM;
    a->reactor = reactor;
    a->shared = shared;
    pthread_mutex_lock(&pool.mutex);
    a->next = pool.askers;
    pool.askers = a;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.mutex);
    return 0;
}

/* Nothing touches the reactor's shared block afterwards. */
gl_shared *
resolve_reactor_closes(int32_t reactor)
{
    gl_shared *shared = NULL;
    pthread_mutex_lock(&pool.mutex);
    for (asker **p = &pool.askers; *p != NULL && shared == NULL;)
        if ((*p)->reactor == reactor) {
            asker *gone = *p;
            shared = gone->shared;
            *p = gone->next;
            free(gone);
        } else {
            p = &(*p)->next;
        }
    for (lookup *l = pool.running; l != NULL && shared != NULL; l = l->next)
        if (l->shared == shared)
            l->shared = NULL;
    pool.last = &pool.first;
    for (lookup *l; (l = *pool.last) != NULL;)
        if (l->shared == shared) {
            *pool.last = l->next;
            pool.queued--;
            free(l);
        } else {
            pool.last = &l->next;
        }
    if (pool.askers == NULL && pool.ready)
        pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    return shared;
}

/* After the reactor has closed: frees the answers that nobody will take. */
void
resolve_reactor_closed(gl_shared *shared)
{
    resolve_drop(__atomic_exchange_n(&shared->answers, NULL, __ATOMIC_ACQUIRE));
    resolve_drop(shared->spent);
    shared->spent = NULL;
}

/* ---- the threads -------------------------------------------------------------------- */

/* Leaves the answer with the loop, and wakes it.  With the mutex.  Go, without it, clears
 * wake_pending and then looks for answers: one order of all four, or both may miss the other's
 * (docs/architecture.md, "Memory order"). */
static void
resolve_deliver(lookup *l)
{
    gl_shared *shared = l->shared;
    if (shared == NULL) {
        l->answer.next = NULL;
        resolve_drop(&l->answer);
        return;
    }
    l->answer.next = __atomic_load_n(&shared->answers, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&shared->answers, &l->answer.next, &l->answer, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
    uint32_t idle = 0;
    if (!__atomic_compare_exchange_n(&shared->wake_pending, &idle, 1u, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return;
    gl_wake_up(shared);
}

/* The next look-up, or NULL where the thread may end.  With the mutex. */
static lookup *
resolve_next(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RESOLVE_IDLE_SECONDS;
    int err = 0;
    pool.idle++;
    while (pool.first == NULL && pool.askers != NULL && err != ETIMEDOUT)
        err = pthread_cond_timedwait(&pool.work, &pool.mutex, &until);
    pool.idle--;
    lookup *l = pool.first;
    if (l == NULL)
        return NULL;
    pool.queued--;
    pool.first = l->next;
    if (pool.first == NULL)
        pool.last = &pool.first;
    l->next = pool.running;
    pool.running = l;
    return l;
}

static void
resolve_take_out(lookup *l)
{
    lookup **p = &pool.running;
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
}

static void *
resolve_thread(void *unused)
{
    /* By this name core/runtime/library_exit.c knows it for no thread of the program's. */
    thread_set_name(RESOLVE_THREAD_NAME);
    pthread_mutex_lock(&pool.mutex);
    for (lookup *l; (l = resolve_next()) != NULL;) {
        pthread_mutex_unlock(&pool.mutex);
        struct addrinfo *list = NULL;
        errno = 0;
        l->answer.code = getaddrinfo(l->host, l->service, &l->hints, &list);
        l->answer.error = l->answer.code == EAI_SYSTEM ? errno : 0;
        l->answer.list = list;
        pthread_mutex_lock(&pool.mutex);
        resolve_take_out(l);
        resolve_deliver(l);
    }
    pool.threads--;
    pool.ended[pool.ended_count++] = pthread_self();
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.mutex);
    return unused;
}

/* With the mutex, which none of them needs any more. */
static void
resolve_join_ended(void)
{
    while (pool.ended_count > 0)
        pthread_join(pool.ended[--pool.ended_count], NULL);
}

/* A look-up that is under way when the process forks can't be waited for. */
int32_t
resolve_forking(int32_t begins)
{
    if (begins) {
        pthread_mutex_lock(&pool.mutex);
        /* Without reactors the idle threads are on their way out. */
        while (pool.askers == NULL && pool.idle > 0)
            pthread_cond_wait(&pool.changed, &pool.mutex);
        resolve_join_ended();
    } else {
        pthread_mutex_unlock(&pool.mutex);
    }
    return 0;
}

/* 0 or an errno.  With the mutex. */
static int
resolve_start_thread(void)
{
    pthread_t thread;
    resolve_join_ended(); /* so that `ended` has room for every thread there is */
    int err = thread_start(&thread, resolve_thread, NULL);
    if (err == 0)
        pool.threads++;
    return err;
}

/* ---- asking ------------------------------------------------------------------------- */

static char *
resolve_copy(char **room, const char *text)
{
    if (text == NULL)
        return NULL;
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*room, text, size);
    *room += size;
    return copy;
}

static lookup *
resolve_new(uint32_t request, const char *host, const char *service)
{
    size_t texts = (host ? strlen(host) + 1 : 0) + (service ? strlen(service) + 1 : 0);
    lookup *l = calloc(1, sizeof *l + texts);
    if (l == NULL)
        return NULL;
    char *room = (char *)(l + 1);
    l->answer.request = request;
    l->host = resolve_copy(&room, host);
    l->service = resolve_copy(&room, service);
    return l;
}

/* Puts the look-up into the queue.  With the mutex; 0 or -errno. */
static int32_t
resolve_queue(int32_t reactor, lookup *l)
{
    asker *a = pool.askers;
    while (a != NULL && a->reactor != reactor)
        a = a->next;
    if (a == NULL)
        return -EBADF;
    if (!pool.ready) {
        pthread_condattr_t attributes;
        pthread_condattr_init(&attributes);
#if !defined(__APPLE__)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
        pthread_cond_init(&pool.work, &attributes);
        pthread_condattr_destroy(&attributes);
        pool.ready = true;
    }
    if (pool.idle <= pool.queued && pool.threads < resolve_threads_max()) {
        int err = resolve_start_thread();
        if (err != 0 && pool.threads == 0)
            return -err;
    }
    l->shared = a->shared;
    *pool.last = l;
    pool.last = &l->next;
    pool.queued++;
    pthread_cond_signal(&pool.work);
    return 0;
}

int32_t
resolve_name(int32_t reactor, uint32_t request, const char *host, const char *service,
             int32_t flags, int32_t family, int32_t socktype, int32_t protocol)
{
    lookup *l = resolve_new(request, host, service);
    if (l == NULL)
        return -ENOMEM;
    l->hints.ai_flags = flags;
    l->hints.ai_family = family;
    l->hints.ai_socktype = socktype;
    l->hints.ai_protocol = protocol;
    pthread_mutex_lock(&pool.mutex);
    int32_t rc = resolve_queue(reactor, l);
    gl_answer *spent = NULL;
    if (rc == 0) {
        spent = l->shared->spent;
        l->shared->spent = NULL;
    }
    pthread_mutex_unlock(&pool.mutex);
    if (rc < 0)
        free(l);
    resolve_drop(spent);
    return rc;
}
