/*
 * uring_echo.c: a second ceiling, the echo server of epoll_echo.c on io_uring: one
 * thread, and one system call in each turn, which submits the answers and waits for
 * completions.  The difference from epoll_echo shows the possible gain of io_uring for a loop.
 *
 * Usage: uring_echo [check].  Prints "port N" once it listens on 127.0.0.1, and runs until
 * it is killed.  Exits with 1 and an error message if the kernel does not support the
 * needed io_uring operations (Linux 6.1), or a sandbox forbids them; "check" only tests this.
 *
 * Accepting and receiving are multishot: one request has many completions.  The kernel
 * receives into one of BUFFERS; the buffer is returned to the kernel after it was sent.
 *
 * A connection sends one buffer at a time, with MSG_WAITALL, because concurrent sends
 * could be reordered.  Buffers that are received meanwhile wait in its queue.  The states of a
 * connection: *open*, and *ending* (the peer has closed or receiving failed; it is closed when
 * no request is pending).  If all buffers are in use, the kernel ends the receive request with
 * ENOBUFS, and the server submits it again after a buffer was returned.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 1024, BUFFERS = 64, BUFFER = 64 * 1024, GROUP = 1, BACKLOG = 1024 };

/* The kind of a completion: the low bits of user_data, next to the connection's address. */
enum { ACCEPTED, RECEIVED, SENT, KIND = 3 };

typedef struct connection {
    int fd;
    int receiving, sending, ending; /* a request is pending; see the head */
    int first, last;                /* the queue of buffers, -1: empty */
    struct connection *starved;     /* the next connection that waits for a buffer */
} connection;

static int ring;
static unsigned *sq_tail, sq_mask, sq_queued;
static unsigned *cq_head, *cq_tail, cq_mask;
static struct io_uring_sqe *sqes;
static struct io_uring_cqe *cqes;
static struct io_uring_buf_ring *free_buffers;
static unsigned short free_tail;
static char *memory;
static struct buffer {
    int start, end, next;
} buffers[BUFFERS];
static connection *starved;

/* Prints a failed call with the text of errno, and exits with 1. */
static void fail(const char *call) {
    fprintf(stderr, "uring_echo: %s: %s\n", call, strerror(errno));
    exit(1);
}

/* Maps memory that the kernel shares: of the ring, at an offset, or anonymous if fd is -1. */
static void *map(size_t size, int fd, off_t offset) {
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, offset);
    if (at == MAP_FAILED)
        fail("mmap");
    return at;
}

/* Returns a buffer to the kernel, which may receive into it again. */
static void give_back(int index) {
    struct io_uring_buf *slot = &free_buffers->bufs[free_tail & (BUFFERS - 1)];
    slot->addr = (uintptr_t)(memory + (size_t)index * BUFFER);
    slot->len = BUFFER;
    slot->bid = (unsigned short)index;
    free_tail++;
    atomic_store_explicit((_Atomic unsigned short *)&free_buffers->tail, free_tail,
                          memory_order_release);
}

/* Makes the ring, maps its queues, and passes the buffers to the kernel; exits if the kernel
 * refuses. */
static void open_ring(void) {
    struct io_uring_params p = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
        .cq_entries = 4 * ENTRIES,
    };
    ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &p);
    if (ring < 0)
        fail("io_uring_setup");
    size_t size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    size_t least = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    char *shared = map(size > least ? size : least, ring, IORING_OFF_SQ_RING);
    sqes = map(p.sq_entries * sizeof *sqes, ring, IORING_OFF_SQES);
    sq_tail = (unsigned *)(shared + p.sq_off.tail);
    sq_mask = *(unsigned *)(shared + p.sq_off.ring_mask);
    cq_head = (unsigned *)(shared + p.cq_off.head);
    cq_tail = (unsigned *)(shared + p.cq_off.tail);
    cq_mask = *(unsigned *)(shared + p.cq_off.ring_mask);
    cqes = (struct io_uring_cqe *)(shared + p.cq_off.cqes);
    unsigned *order = (unsigned *)(shared + p.sq_off.array);
    for (unsigned i = 0; i < p.sq_entries; i++)
        order[i] = i;

    memory = map((size_t)BUFFERS * BUFFER, -1, 0);
    free_buffers = map(BUFFERS * sizeof(struct io_uring_buf), -1, 0);
    struct io_uring_buf_reg group = {
        .ring_addr = (uintptr_t)free_buffers, .ring_entries = BUFFERS, .bgid = GROUP};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &group, 1) < 0)
        fail("io_uring_register");
    for (int i = 0; i < BUFFERS; i++)
        give_back(i);
}

/* Submits the queued requests, and waits for at least `least` completions. */
static void enter(unsigned least) {
    long n = syscall(SYS_io_uring_enter, ring, sq_queued, least, IORING_ENTER_GETEVENTS, NULL, 0);
    if (n < 0 && errno != EINTR)
        fail("io_uring_enter");
    if (n > 0)
        sq_queued -= (unsigned)n;
}

/* Queues a request, and returns it for further fields; a full queue is submitted first.  Its
 * completions have the kind and the connection. */
static struct io_uring_sqe *request(int opcode, int fd, connection *c, int kind) {
    if (sq_queued == ENTRIES)
        enter(0);
    unsigned tail = *sq_tail;
    struct io_uring_sqe *sqe = &sqes[tail & sq_mask];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = (unsigned char)opcode;
    sqe->fd = fd;
    sqe->user_data = (uintptr_t)c | (unsigned)kind;
    /* The kernel reads the tail in enter() only. */
    atomic_store_explicit((_Atomic unsigned *)sq_tail, tail + 1, memory_order_release);
    sq_queued++;
    return sqe;
}

/* Requests to receive from a connection, again and again, into the kernel's buffers. */
static void receive(connection *c) {
    struct io_uring_sqe *sqe = request(IORING_OP_RECV, c->fd, c, RECEIVED);
    sqe->ioprio = IORING_RECV_MULTISHOT;
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
    c->receiving = 1;
}

/* Requests to send the first buffer of the connection's queue. */
static void send_first(connection *c) {
    struct buffer *b = &buffers[c->first];
    struct io_uring_sqe *sqe = request(IORING_OP_SEND, c->fd, c, SENT);
    sqe->addr = (uintptr_t)(memory + (size_t)c->first * BUFFER + b->start);
    sqe->len = (unsigned)(b->end - b->start);
    sqe->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
    c->sending = 1;
}

/* Removes the first buffer from the connection's queue, and returns it to the kernel. */
static void drop_first(connection *c) {
    int index = c->first;
    c->first = buffers[index].next;
    give_back(index);
    /* Connections that found no free buffer submit their receive requests again. */
    while (starved != NULL) {
        connection *waiting = starved;
        starved = waiting->starved;
        if (!waiting->ending)
            receive(waiting);
    }
}

/* Ends a connection: marks it as *ending*, returns its buffers, and closes and frees it.  If a
 * request is pending, its completion calls this function again. */
static void end(connection *c) {
    c->ending = 1;
    if (c->sending)
        return;
    while (c->first >= 0)
        drop_first(c);
    if (c->receiving) {
        shutdown(c->fd, SHUT_RDWR); /* completes the receive request, and so returns here */
        return;
    }
    for (connection **at = &starved; *at != NULL; at = &(*at)->starved)
        if (*at == c) {
            *at = c->starved;
            break;
        }
    close(c->fd);
    free(c);
}

/* Starts a connection for an accepted socket. */
static void accepted(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection *c = calloc(1, sizeof *c);
    if (c == NULL)
        fail("calloc");
    c->fd = fd;
    c->first = c->last = -1;
    receive(c);
}

/* Handles a completion of receiving: queues the buffer, or ends the connection.  Without a free
 * buffer the connection waits in `starved`. */
static void received(connection *c, int result, unsigned flags) {
    c->receiving = (flags & IORING_CQE_F_MORE) != 0;
    if (result == -ENOBUFS && !c->ending) {
        c->starved = starved;
        starved = c;
        return;
    }
    if (result > 0) {
        int index = (int)(flags >> IORING_CQE_BUFFER_SHIFT);
        buffers[index] = (struct buffer){0, result, -1};
        if (c->first < 0)
            c->first = index;
        else
            buffers[c->last].next = index;
        c->last = index;
        if (!c->sending)
            send_first(c);
        if (!c->receiving)
            receive(c);
        return;
    }
    end(c);
}

/* Handles a completion of sending: sends the rest or the next buffer. */
static void sent(connection *c, int result) {
    c->sending = 0;
    if (result <= 0) {
        end(c);
        return;
    }
    struct buffer *b = &buffers[c->first];
    b->start += result;
    if (b->start == b->end)
        drop_first(c);
    if (c->first >= 0)
        send_first(c);
    else if (c->ending)
        end(c);
}

/* Opens a listener on a free port of 127.0.0.1, and prints the port. */
static int listen_inet(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t length = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, length) < 0)
        fail("bind");
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        fail("getsockname");
    if (listen(fd, BACKLOG) < 0)
        fail("listen");
    printf("port %d\n", ntohs(address.sin_port));
    return fd;
}

/* Requests to accept connections, again and again. */
static void accept_all(int listener) {
    struct io_uring_sqe *sqe = request(IORING_OP_ACCEPT, listener, NULL, ACCEPTED);
    sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    sqe->accept_flags = SOCK_CLOEXEC;
}

/* Opens the ring and the listener, and handles completions until the process is killed. */
int main(int argc, char **argv) {
    open_ring();
    if (argc == 2 && strcmp(argv[1], "check") == 0)
        return 0;
    int listener = listen_inet();
    accept_all(listener);
    fflush(stdout);
    for (;;) {
        enter(1);
        unsigned head = *cq_head;
        unsigned tail = atomic_load_explicit((_Atomic unsigned *)cq_tail, memory_order_acquire);
        for (; head != tail; head++) {
            struct io_uring_cqe *cqe = &cqes[head & cq_mask];
            connection *c = (connection *)(uintptr_t)(cqe->user_data & ~(uint64_t)KIND);
            switch (cqe->user_data & KIND) {
            case ACCEPTED:
                if (cqe->res >= 0)
                    accepted(cqe->res);
                if (!(cqe->flags & IORING_CQE_F_MORE))
                    accept_all(listener);
                break;
            case RECEIVED:
                received(c, cqe->res, cqe->flags);
                break;
            case SENT:
                sent(c, cqe->res);
                break;
            }
        }
        atomic_store_explicit((_Atomic unsigned *)cq_head, head, memory_order_release);
    }
}
