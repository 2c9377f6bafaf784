/*
 * epoll_load.c: the load generator.  N connections, each with one message under
 * way: send, wait for the whole answer, send the next.  One thread, one epoll.
 *
 * It must cost less than any server it measures.  So each connection's first
 * answer is compared byte by byte; after that the kernel is told to throw the
 * received bytes away (MSG_TRUNC), so they are counted but never copied.
 *
 * Usage: epoll_load MODE PORT CONNECTIONS SIZE WARMUP SECONDS SERVER_PID
 *   echo   SIZE bytes, the last one a newline, come back unchanged
 *   http   GET / over HTTP/1.1 keep-alive; status 200, Content-Length answers
 *   churn  connect, echo SIZE bytes once, close, connect again
 *
 * Prints one JSON object: messages and seconds of the measured window, the CPU
 * seconds that client and server (its whole process, by its CPU clock) used in
 * it, and latency percentiles.  Exits with 1 and a sentence where a connection
 * fails, an answer differs, or nothing moves for STALL seconds.
 *
 * A connection's states: CONNECTING -> (send; `unsent` > 0 while the kernel has
 * not taken all of it) -> waiting for `expected` bytes -> next message, or, in
 * churn, closed and CONNECTING again.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum { EVENTS = 512, STALL = 10, HTTP_BUFFER = 16384, SOURCES = 250 };
enum mode { ECHO, HTTP, CHURN };

typedef struct connection {
    int fd;
    int connecting, checked, polling_out;
    size_t unsent, expected, head_length;
    int64_t sent_at;
    char *head; /* http: an answer whose header is not whole yet */
} connection;

static enum mode mode;
static int poller, port;
static size_t size;
static char *request;
static int64_t messages, now_ns;

/* Latencies: 16 linear steps an octave of nanoseconds, so within 6 %. */
enum { STEPS = 16, BUCKETS = 64 * STEPS };
static int64_t histogram[BUCKETS];
static int recording;

static void fail(const char *what) {
    fprintf(stderr, "epoll_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void refuse(const char *sentence) {
    fprintf(stderr, "epoll_load: %s\n", sentence);
    exit(1);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) < 0)
        fail("clock_gettime");
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int bucket_of(int64_t ns) {
    if (ns < STEPS)
        return (int)(ns < 0 ? 0 : ns);
    int octave = 63 - __builtin_clzll((unsigned long long)ns);
    return (octave - 3) * STEPS + (int)((ns >> (octave - 4)) - STEPS);
}

static double bucket_us(int bucket) {
    if (bucket < STEPS)
        return bucket / 1e3;
    int octave = bucket / STEPS + 3;
    return (double)((int64_t)(bucket % STEPS + STEPS) << (octave - 4)) / 1e3;
}

static double percentile(double share) {
    int64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++)
        total += histogram[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > 0 && (double)seen >= share * (double)total)
            return bucket_us(i);
    }
    return 0;
}

static void poll_for(connection *c, int operation, int out) {
    struct epoll_event event = {
        .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event) < 0)
        fail("epoll_ctl");
    c->polling_out = out;
}

static void send_rest(connection *c) {
    ssize_t sent = send(c->fd, request + (size - c->unsent), c->unsent, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail("send");
        sent = 0;
    }
    c->unsent -= (size_t)sent;
    if ((c->unsent > 0) != c->polling_out)
        poll_for(c, EPOLL_CTL_MOD, c->unsent > 0);
}

static void next_message(connection *c) {
    c->sent_at = now_ns;
    c->unsent = size;
    c->expected = mode == HTTP ? 0 : size;
    c->head_length = 0;
    send_rest(c);
}

/* Source addresses rotate through 127.0.0.0/24, so that ports in TIME_WAIT
 * never run out while connections churn. */
static void open_connection(connection *c) {
    static unsigned source;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        fail("socket");
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (mode == CHURN) {
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + source++ % SOURCES);
        if (bind(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
            fail("bind");
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    c->sent_at = now_ns;
    c->connecting = 1;
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 &&
        errno != EINPROGRESS)
        fail("connect");
    poll_for(c, EPOLL_CTL_ADD, 1);
}

static void connected(connection *c) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error != 0) {
        errno = error ? error : errno;
        fail("connect");
    }
    c->connecting = 0;
    int64_t began = c->sent_at;
    next_message(c);
    if (mode == CHURN)
        c->sent_at = began; /* a churn's latency includes the connect */
}

static void answered(connection *c) {
    messages++;
    if (recording)
        histogram[bucket_of(now_ns - c->sent_at)]++;
    if (mode == CHURN) {
        close(c->fd); /* closing takes it out of the poller */
        c->checked = 1;
        open_connection(c);
    } else {
        c->checked = 1;
        next_message(c);
    }
}

static size_t receive(connection *c, char *into, size_t room, int flags) {
    ssize_t got = recv(c->fd, into, room, flags);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        refuse("the server closed a connection");
    if (errno != EAGAIN && errno != EINTR)
        fail("recv");
    return 0;
}

/* One byte more than is due is asked for, so that an answer too long shows. */
static void read_echo(connection *c) {
    size_t got;
    if (c->checked) {
        got = receive(c, NULL, c->expected + 1, MSG_TRUNC);
    } else {
        static char first[65536];
        size_t room = c->expected < sizeof first ? c->expected + 1 : sizeof first;
        got = receive(c, first, room, 0);
        size_t due = got < c->expected ? got : c->expected;
        if (memcmp(first, request + (size - c->expected), due) != 0)
            refuse("an answer differs from its question");
    }
    if (got > c->expected)
        refuse("an answer is longer than its question");
    c->expected -= got;
    if (c->expected == 0)
        answered(c);
}

static void read_http(connection *c) {
    if (c->expected > 0) { /* the body, counted only */
        c->expected -= receive(c, NULL, c->expected, MSG_TRUNC);
        if (c->expected == 0)
            answered(c);
        return;
    }
    c->head_length += receive(c, c->head + c->head_length,
                              HTTP_BUFFER - 1 - c->head_length, 0);
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (end == NULL) {
        if (c->head_length == HTTP_BUFFER - 1)
            refuse("an HTTP header does not end");
        return;
    }
    if (strncmp(c->head, "HTTP/1.1 200", 12) != 0)
        refuse("an HTTP answer is not 200");
    char *field = strcasestr(c->head, "\r\nContent-Length:");
    if (field == NULL || field > end)
        refuse("an HTTP answer has no Content-Length");
    size_t whole = (size_t)(end + 4 - c->head) + strtoul(field + 17, NULL, 10);
    if (c->head_length > whole)
        refuse("an HTTP answer is longer than it says");
    c->expected = whole - c->head_length;
    if (c->expected == 0)
        answered(c);
}

static void make_request(void) {
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (mode == HTTP) {
        size = sizeof get - 1;
        request = strdup(get);
        return;
    }
    request = malloc(size);
    if (request == NULL)
        fail("malloc");
    for (size_t i = 0; i < size; i++)
        request[i] = (char)(' ' + i % 95); /* printable, so never a newline */
    request[size - 1] = '\n';
}

int main(int argc, char **argv) {
    if (argc != 8)
        refuse("usage: MODE PORT CONNECTIONS SIZE WARMUP SECONDS SERVER_PID");
    if (strcmp(argv[1], "echo") == 0)
        mode = ECHO;
    else if (strcmp(argv[1], "http") == 0)
        mode = HTTP;
    else if (strcmp(argv[1], "churn") == 0)
        mode = CHURN;
    else
        refuse("MODE is echo, http or churn");
    port = atoi(argv[2]);
    int connections = atoi(argv[3]);
    size = strtoul(argv[4], NULL, 10);
    int64_t warmup = (int64_t)(atof(argv[5]) * 1e9);
    int64_t window = (int64_t)(atof(argv[6]) * 1e9);
    clockid_t server_clock;
    if (clock_getcpuclockid(atoi(argv[7]), &server_clock) != 0)
        refuse("the server's CPU clock can't be read");
    if (connections < 1 || size < 1)
        refuse("CONNECTIONS and SIZE are at least 1");
    make_request();

    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll_create1");
    connection *all = calloc((size_t)connections, sizeof *all);
    if (all == NULL)
        fail("calloc");
    now_ns = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < connections; i++) {
        if (mode == HTTP && (all[i].head = malloc(HTTP_BUFFER)) == NULL)
            fail("malloc");
        open_connection(&all[i]);
    }

    int64_t start = now_ns + warmup, stop = start + window;
    int64_t moved_at = now_ns, moved = 0, first = 0, began = 0;
    int64_t client_cpu = 0, server_cpu = 0;
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poller, events, EVENTS, 1000);
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        now_ns = clock_ns(CLOCK_MONOTONIC);
        if (messages != moved) {
            moved = messages;
            moved_at = now_ns;
        } else if (now_ns - moved_at > (int64_t)STALL * 1000000000) {
            refuse("no answer came for 10 seconds");
        }
        if (!recording && now_ns >= start) {
            recording = 1;
            first = messages;
            began = now_ns;
            stop = now_ns + window;
            client_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
            server_cpu = clock_ns(server_clock);
        } else if (recording && now_ns >= stop) {
            break;
        }
        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;
            if (i > 0)
                now_ns = clock_ns(CLOCK_MONOTONIC);
            if (c->connecting) {
                connected(c);
                continue;
            }
            if (c->unsent > 0 && (events[i].events & EPOLLOUT))
                send_rest(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                if (mode == HTTP)
                    read_http(c);
                else
                    read_echo(c);
            }
        }
    }
    server_cpu = clock_ns(server_clock) - server_cpu;
    client_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - client_cpu;
    printf("{\"messages\": %lld, \"seconds\": %.6f, \"client_cpu\": %.6f, "
           "\"server_cpu\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
           (long long)(messages - first), (double)(now_ns - began) / 1e9,
           (double)client_cpu / 1e9, (double)server_cpu / 1e9, percentile(0.5),
           percentile(0.99));
    return 0;
}
