/*
 * epoll_load.c: the load generator.  N connections, each with one message under
 * way: send, wait for the whole answer, send the next.  One thread, one epoll.
 *
 * The load generator must use less CPU than any measured server, which the one of
 * `goloop compare`, in Python, does not.  So it is in C, and each connection's first
 * answer is compared byte by byte; the kernel discards the bytes of later answers
 * (MSG_TRUNC), so they are counted but never copied.  Unix sockets do not support
 * this; for TLS see load_tls.c.
 *
 * Usage: epoll_load MODE ADDRESS CONNECTIONS SIZE[@RATE] WARMUP SECONDS
 *   echo       SIZE bytes, the last one a newline, come back unchanged
 *   echo-paced the same at a constant rate: RATE messages a second over all connections;
 *              a latency counts from when the message was due, sent late or not
 *   http       GET / over HTTP/1.1 keep-alive; status 200, Content-Length answers; SIZE is
 *              not used
 *   http-paced the same at a constant rate, as echo-paced
 *   websocket  as echo, a WebSocket's message of SIZE bytes each, 126 to 65535
 *   broadcast  the first SIZE bytes of a connection come back to it alone; then the first
 *              connection sends SIZE bytes, which every connection receives, and again as
 *              soon as all have them; each of them is a message
 *   churn      connect, echo SIZE bytes once, close, connect again
 *   udp        as echo, a datagram of SIZE bytes each, at least 8; one without an answer is sent
 *              again, and counted
 *   tls        as echo, over TLS
 *   feed       write to the FIFO at ADDRESS; a message is SIZE bytes written
 *   feed-wide  the same, once the pipe holds 1 MiB
 *   drain      read from the FIFO at ADDRESS
 * ADDRESS is a port of 127.0.0.1 or the path of a Unix socket or FIFO.  Ports with commas
 * between them are taken in turn, a connection each.
 *
 * Prints "begin" and "end" at the ends of the measured window, waits for a line after each,
 * and then prints one JSON object: messages and seconds of the window, and percentiles of the
 * latencies, and of datagrams the number of those that were sent again.  Exits with 1 and an error
 * message if a connection fails, an answer differs, or no bytes arrive.
 *
 * A connection's states: CONNECTING -> (TLS: HANDSHAKING, WebSocket: UPGRADING ->) TALKING (send,
 * then wait for `expected` bytes, next message) -> in a churn, closed and CONNECTING
 * again.  In every state `unsent` bytes may wait for the kernel, and then the socket
 * is polled for EPOLLOUT too.  A paced connection is TALKING and *waiting* between an
 * answer and the time at which its next request is due.
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum { EVENTS = 512, HTTP_BUFFER = 16384, SOURCES = 250, PLAIN = 256 * 1024, PORTS = 64 };
/* Connections of a broadcast that may be under way at once: fewer than a server's backlog. */
enum { JOINING = 256 };
/* A datagram without an answer is sent again after RESEND_NS; the run fails if the last ones have
 * none after LAST_NS. */
static const int64_t RESEND_NS = 100000000, LAST_NS = 10000000000;

/* The properties in which a mode differs from a plain echo. */
typedef struct mode {
    const char *name;
    int http, paced, churn, udp, tls, broadcast, websocket, capacity;
    void (*pipe)(const char *path, size_t size, int capacity);
} mode;

static const mode MODES[] = {
    {.name = "echo"},
    {.name = "echo-paced", .paced = 1},
    {.name = "broadcast", .broadcast = 1},
    {.name = "http", .http = 1},
    {.name = "http-paced", .http = 1, .paced = 1},
    {.name = "websocket", .websocket = 1},
    {.name = "churn", .churn = 1},
    {.name = "udp", .udp = 1},
    {.name = "feed", .pipe = pipe_feed},
    /* The usual maximum of /proc/sys/fs/pipe-max-size. */
    {.name = "feed-wide", .pipe = pipe_feed, .capacity = 1024 * 1024},
    {.name = "drain", .pipe = pipe_drain},
#ifdef WITH_TLS
    {.name = "tls", .tls = 1},
#endif
};

typedef enum state { CONNECTING, HANDSHAKING, UPGRADING, TALKING } state;

typedef struct connection {
    int fd;
    state state;
    int checked, polling_out, waiting;
    size_t unsent, expected, head_length;
    int64_t sent_at;
    int64_t asked_at; /* udp: when the datagram was sent last */
    int64_t first_asked_at; /* udp: when it was sent first */
    uint32_t number;  /* udp: of the datagram under way */
    char *head;       /* http, websocket: the received part of an incomplete header */
    tls_session *tls; /* if set, `unsent` counts the session's encrypted bytes */
} connection;

static const mode *how;
static int poller;
static const char *unix_path; /* NULL: ports */
static int ports[PORTS], port_count;
static size_t size, answer_size;
static char *request, *answer; /* equal for an echo; of http, the answer is not known */
static int64_t messages, now_ns;
static int unanswered;  /* connections without a first answer */
static int outstanding; /* answers still expected after the last request, or of a broadcast */
static int ending;
static connection *all_connections; /* `opened_connections` of them have been opened */
static int opened_connections, wanted_connections;
static int64_t period; /* paced: nanoseconds between a connection's requests */
static int64_t lost; /* datagrams of the window that were sent again */

/* ---- sending -------------------------------------------------------------------- */

/* Adds a socket to the epoll set or modifies it (`operation`): polled for EPOLLIN, and with
 * `out` for EPOLLOUT. */
static void poll_for(connection *c, int operation, int out) {
    struct epoll_event event = {
        .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event) < 0)
        fail("epoll_ctl");
    c->polling_out = out;
}

/* Sends unsent bytes, and polls for EPOLLOUT while the kernel has not accepted all. */
static void send_rest(connection *c) {
    const char *bytes = request + (size - c->unsent);
    if (how->udp)
        memcpy(request, &c->number, sizeof c->number);
    if (c->tls != NULL)
        c->unsent = tls_unsent(c->tls, &bytes);
    if (c->unsent > 0) {
        ssize_t sent = send(c->fd, bytes, c->unsent, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN && errno != EINTR)
                fail("send");
            sent = 0;
        }
        if (c->tls != NULL)
            tls_sent(c->tls, (size_t)sent);
        c->unsent -= (size_t)sent;
    }
    if ((c->unsent > 0) != c->polling_out)
        poll_for(c, EPOLL_CTL_MOD, c->unsent > 0);
}

/* Sends a message; its latency counts from `sent_at`, which the caller has set. */
static void start_message(connection *c) {
    c->unsent = size;
    c->expected = how->http ? 0 : answer_size;
    c->head_length = 0;
    c->number++;
    c->asked_at = c->first_asked_at = now_ns;
    if (c->tls != NULL)
        tls_write(c->tls, request, size);
    send_rest(c);
}

/* Sends a message whose latency counts from now. */
static void next_message(connection *c) {
    c->sent_at = now_ns;
    start_message(c);
}

/* ---- lost datagrams -----------------------------------------------------------------
 *
 * The kernel drops a datagram, or its answer, if the receiver's buffer is full: a server that
 * waits for a core has one soon.  A connection whose datagram was lost would never send again, and
 * fewer connections would be measured.  So it sends the same datagram again, as clients of DNS or
 * QUIC do.  Its latency still counts from the first time.
 *
 * A datagram that was late, and not lost, then has two answers.  Datagrams are numbered, so that
 * the second answer is recognized; else it would count as the answer of the next datagram, and the
 * connection would have two under way from then on. */

/* Sends the datagrams again whose answers have not come for RESEND_NS. */
static void send_lost_again(void) {
    static int64_t due;
    if (now_ns < due)
        return;
    due = now_ns + RESEND_NS / 4;
    for (int i = 0; i < opened_connections; i++) {
        connection *c = &all_connections[i];
        int awaits = c->state == TALKING && c->expected > 0 && c->unsent == 0;
        if (!awaits || now_ns - c->asked_at < RESEND_NS)
            continue;
        lost += window_recording() && c->asked_at == c->first_asked_at;
        c->asked_at = now_ns;
        c->unsent = size;
        send_rest(c);
    }
}

/* ---- a constant rate ----------------------------------------------------------------
 *
 * Each connection has one request due in each period; the due times of the connections are
 * evenly spread.  If a request is due before the previous answer has arrived, it is sent
 * after that answer, and its latency counts from its due time.  So the delay that one slow
 * answer causes for later requests is counted too, as in wrk2. */

/* Sends the request if it is due; else the connection waits. */
static void send_due(connection *c) {
    c->waiting = c->sent_at > now_ns;
    if (!c->waiting)
        start_message(c);
}

/* Sets the due time of a connection's first request, and sends it if it is due. */
static void begin_pace(connection *c) {
    static int64_t opened;
    static int number;
    if (opened == 0)
        opened = now_ns;
    /* The golden ratio spreads any number of connections over the period. */
    double phase = 0.6180339887498949 * number++;
    c->sent_at = opened + (int64_t)((phase - (double)(int64_t)phase) * (double)period);
    send_due(c);
}

/* Continues a paced connection after an answer: the next request is due a period later. */
static void answered_in_time(connection *c) {
    c->sent_at += period;
    send_due(c);
}

/* Sends the requests that are due, and returns the due time of the next one. */
static int64_t keep_pace(connection *all, int connections) {
    int64_t next = now_ns + 100000000;
    for (int i = 0; i < connections; i++) {
        if (all[i].waiting)
            send_due(&all[i]);
        if (all[i].waiting && all[i].sent_at < next)
            next = all[i].sent_at;
    }
    return next;
}

/* Polls the epoll descriptor with ppoll(), because epoll_wait() has a resolution of 1 ms. */
static void wait_until(int64_t due) {
    struct pollfd wanted = {.fd = poller, .events = POLLIN};
    int64_t left = due - clock_ns();
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    if (left > 0)
        ppoll(&wanted, 1, &timeout, NULL);
}

/* ---- opening and closing ------------------------------------------------------------ */

/* Continues a TLS handshake; sends the first message once it is complete. */
static void shake_hands(connection *c) {
    int done = tls_handshake(c->tls);
    send_rest(c);
    if (!done)
        return;
    c->state = TALKING;
    next_message(c);
}

/* A churn's latency includes the connect. */
static void connected(connection *c) {
    int64_t began = c->sent_at;
    if (how->tls) {
        c->state = HANDSHAKING;
        c->tls = tls_new(c->fd);
        shake_hands(c);
        return;
    }
    if (how->websocket) {
        c->state = UPGRADING;
        /* The buffer of a new socket has room for the whole request. */
        if (send(c->fd, websocket_request, strlen(websocket_request), MSG_NOSIGNAL) !=
            (ssize_t)strlen(websocket_request))
            fail("send");
        poll_for(c, EPOLL_CTL_MOD, 0);
        return;
    }
    c->state = TALKING;
    if (how->paced) {
        begin_pace(c);
        return;
    }
    next_message(c);
    if (how->churn)
        c->sent_at = began;
}

/* Continues a connection whose connect() has ended; exits if it failed. */
static void finish_connect(connection *c) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 || error != 0) {
        errno = error ? error : errno;
        fail("connect");
    }
    connected(c);
}

/* Connects to the Unix socket; the call does not wait. */
static void connect_unix(connection *c) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(unix_path) >= sizeof address.sun_path)
        refuse("the path of the Unix socket is too long");
    strcpy(address.sun_path, unix_path);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
}

/* Source addresses rotate through 127.0.0.0/24, so that ports in TIME_WAIT
 * never run out while connections churn. */
static void connect_inet(connection *c) {
    static unsigned source, opened;
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!how->udp)
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (how->churn) {
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + source++ % SOURCES);
        if (bind(c->fd, (struct sockaddr *)&address, sizeof address) < 0)
            fail("bind");
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)ports[opened++ % (unsigned)port_count]);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 &&
        errno != EINPROGRESS)
        fail("connect");
}

/* Opens a socket, starts to connect it, and polls for the end of connect(). */
static void open_connection(connection *c) {
    int kind = how->udp ? SOCK_DGRAM : SOCK_STREAM;
    c->fd = socket(unix_path != NULL ? AF_UNIX : AF_INET,
                   kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        fail("socket");
    c->sent_at = now_ns;
    c->state = CONNECTING;
    if (unix_path != NULL)
        connect_unix(c);
    else
        connect_inet(c);
    poll_for(c, EPOLL_CTL_ADD, 1);
}

/* Opens the next connection, if one is wanted. */
static void open_next(void) {
    if (opened_connections < wanted_connections)
        open_connection(&all_connections[opened_connections++]);
}

/* Counts an answer; the warm-up begins when every connection has had one. */
static void count(connection *c) {
    messages++;
    outstanding--;
    window_answer(now_ns - c->sent_at);
    if (!c->checked && --unanswered == 0)
        window_warm(now_ns);
    c->checked = 1;
}

/* Continues after a whole answer: a new connection in a churn, else the next message, unless the
 * run is ending. */
static void answered(connection *c) {
    count(c);
    if (how->churn) {
        close(c->fd); /* closing removes it from the epoll set */
        open_connection(c);
    } else if (how->paced) {
        answered_in_time(c);
    } else if (how->broadcast) {
        open_next();
    } else if (!ending) {
        next_message(c);
    }
}

/* ---- answers ---------------------------------------------------------------------- */

/* Receives at most `room` bytes.  Returns 0 if there are none yet; exits if the server has closed
 * the connection or the call failed. */
static size_t receive(connection *c, char *into, size_t room, int flags) {
    if (c->tls != NULL)
        return tls_read(c->tls, into, room);
    ssize_t got = recv(c->fd, into, room, flags);
    if (got > 0)
        return (size_t)got;
    if (got == 0)
        refuse("the server closed a connection");
    if (errno != EAGAIN && errno != EINTR)
        fail("recv");
    return 0;
}

/* Receives a datagram, of a later answer only the number; MSG_TRUNC returns the full length.
 * Ignores the second answer of a datagram that was sent twice. */
static void read_datagram(connection *c) {
    static char plain[PLAIN];
    uint32_t number;
    size_t got = receive(c, plain, c->checked ? sizeof number : sizeof plain, MSG_TRUNC);
    if (got == 0)
        return;
    if (got != size)
        refuse(got > size ? "an answer is longer than its question"
                          : "an answer is shorter than its question");
    memcpy(&number, plain, sizeof number);
    if (number < c->number || (number == c->number && c->expected == 0))
        return;
    size_t head = sizeof number;
    int differs = !c->checked && memcmp(plain + head, answer + head, size - head) != 0;
    if (number > c->number || differs)
        refuse("an answer differs from its question");
    c->expected = 0;
    answered(c);
}

/* Receives with room for one byte more than expected, so that a longer answer is detected. */
static void read_echo(connection *c) {
    static char plain[PLAIN];
    size_t got, room = c->expected < sizeof plain ? c->expected + 1 : sizeof plain;
    if (c->checked && c->tls != NULL) {
        got = tls_skim(c->tls);
    } else if (c->checked && unix_path == NULL) {
        got = receive(c, NULL, c->expected + 1, MSG_TRUNC);
    } else {
        got = receive(c, plain, room, 0);
        size_t due = got < c->expected ? got : c->expected;
        if (!c->checked && memcmp(plain, answer + (answer_size - c->expected), due) != 0)
            refuse("an answer differs from its question");
    }
    if (got > c->expected)
        refuse("an answer is longer than its question");
    c->expected -= got;
    if (c->expected == 0)
        answered(c);
    else if (c->tls != NULL && !c->checked && got > 0)
        read_echo(c); /* OpenSSL may have buffered more than it returned */
}

/* Receives part of an HTTP answer up to the blank line.  Returns the blank line, or NULL while it
 * is missing; exits if the answer is too long, or has another status. */
static char *read_head(connection *c, const char *status) {
    c->head_length += receive(c, c->head + c->head_length,
                              HTTP_BUFFER - 1 - c->head_length, 0);
    c->head[c->head_length] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (end == NULL && c->head_length == HTTP_BUFFER - 1)
        refuse("an HTTP header does not end");
    if (end != NULL && strncmp(c->head, status, strlen(status)) != 0)
        refuse("an HTTP answer has another status");
    return end;
}

/* Receives the answer to a WebSocket's request, and sends the first message after it. */
static void read_upgrade(connection *c) {
    if (read_head(c, "HTTP/1.1 101") == NULL)
        return;
    c->state = TALKING;
    next_message(c);
}

/* Receives part of an HTTP answer: the header up to the blank line, or the body, which is only
 * counted.  Exits unless it is a 200 with Content-Length. */
static void read_http(connection *c) {
    if (c->expected > 0) { /* the body, counted only */
        c->expected -= receive(c, NULL, c->expected, MSG_TRUNC);
        if (c->expected == 0)
            answered(c);
        return;
    }
    char *end = read_head(c, "HTTP/1.1 200");
    if (end == NULL)
        return;
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

/* ---- the run ------------------------------------------------------------------------- */

/* Handles the epoll events of a connection by its state. */
static void happened(connection *c, uint32_t events) {
    if (c->state == CONNECTING) {
        finish_connect(c);
        return;
    }
    if (c->unsent > 0 && (events & EPOLLOUT))
        send_rest(c);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    if (c->state == HANDSHAKING)
        shake_hands(c);
    else if (c->state == UPGRADING)
        read_upgrade(c);
    else if (how->http)
        read_http(c);
    else if (how->udp)
        read_datagram(c);
    else
        read_echo(c);
}

/* Polls once, for at most some milliseconds, and handles the events. */
static void poll_once(int milliseconds) {
    struct epoll_event events[EVENTS];
    int n = epoll_wait(poller, events, EVENTS, milliseconds);
    if (n < 0 && errno != EINTR)
        fail("epoll_wait");
    for (int i = 0; i < n; i++) {
        now_ns = clock_ns();
        happened(events[i].data.ptr, events[i].events);
    }
    now_ns = clock_ns();
}

/* Waits for the last answer of every connection, so that the server has nothing left to send to
 * a closed socket. */
static void await_last_answers(int connections) {
    int64_t until = now_ns + LAST_NS;
    ending = 1;
    outstanding = connections;
    while (outstanding > 0) {
        if (now_ns > until)
            refuse("a datagram, or its answer, was lost again and again for 10 seconds");
        poll_once(50);
        send_lost_again();
    }
}

/* Sends one broadcast, and waits until every connection has received it.  So a window begins
 * and ends between two broadcasts, and the server's CPU time belongs to the counted writes. */
static void broadcast(void) {
    int64_t until = now_ns + 10000000000;
    outstanding = wanted_connections;
    for (int i = 0; i < wanted_connections; i++) {
        all_connections[i].sent_at = now_ns;
        all_connections[i].expected = size;
    }
    all_connections[0].unsent = size;
    send_rest(&all_connections[0]);
    while (outstanding > 0) {
        if (now_ns > until)
            refuse("a broadcast did not reach every connection within 10 seconds");
        poll_once(1000);
    }
}

/* Makes one step of the load: sends the messages that are due at a given rate, or the next
 * broadcast once all connections have the last one, and polls once; then sends lost datagrams
 * again. */
static void step(void) {
    if (how->paced) {
        wait_until(keep_pace(all_connections, wanted_connections));
        poll_once(0);
    } else if (how->broadcast && unanswered == 0) {
        broadcast();
    } else {
        poll_once(how->udp ? 50 : 1000);
        if (how->udp)
            send_lost_again();
    }
}

/* Adds a pause, in which this program did nothing, to the times from which latencies count. */
static void skip_pause(int64_t ns) {
    if (ns == 0)
        return;
    now_ns = clock_ns();
    for (int i = 0; i < opened_connections; i++) {
        all_connections[i].sent_at += ns;
        all_connections[i].asked_at += ns;
        all_connections[i].first_asked_at += ns;
    }
}

/* Opens the connections and runs them until the window is over. */
static void talk(int connections) {
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll_create1");
    all_connections = calloc((size_t)connections, sizeof *all_connections);
    if (all_connections == NULL)
        fail("calloc");
    unanswered = wanted_connections = connections;
    now_ns = clock_ns();
    for (int i = 0; (how->http || how->websocket) && i < connections; i++)
        if ((all_connections[i].head = malloc(HTTP_BUFFER)) == NULL)
            fail("malloc");
    int at_once = how->broadcast && connections > JOINING ? JOINING : connections;
    while (opened_connections < at_once)
        open_next();
    while (!window_moved(now_ns, messages)) {
        skip_pause(window_paused());
        step();
    }
    skip_pause(window_paused());
    if (how->udp)
        await_last_answers(connections);
}

/* Reads the ports, with commas between them, from ADDRESS. */
static void find_ports(const char *address) {
    for (const char *next = address; next != NULL && port_count < PORTS;) {
        ports[port_count++] = atoi(next);
        const char *comma = strchr(next, ',');
        next = comma == NULL ? NULL : comma + 1;
    }
}

/* Returns the mode of a name; exits if there is none. */
static const mode *find_mode(const char *name) {
    for (size_t i = 0; i < sizeof MODES / sizeof *MODES; i++)
        if (strcmp(MODES[i].name, name) == 0)
            return &MODES[i];
    refuse("there is no such MODE, or it was built without it");
}

/* Reads the arguments, runs the mode, and prints the result. */
int main(int argc, char **argv) {
    if (argc != 7)
        refuse("usage: MODE ADDRESS CONNECTIONS SIZE[@RATE] WARMUP SECONDS");
    how = find_mode(argv[1]);
    unix_path = argv[2][0] == '/' ? argv[2] : NULL;
    find_ports(argv[2]);
    int connections = atoi(argv[3]);
    char *rate = argv[4];
    size = strtoul(argv[4], &rate, 10);
    if (connections < 1 || size < 1)
        refuse("CONNECTIONS and SIZE are at least 1");
    if (how->udp && size < 8)
        refuse("the SIZE of a datagram, which begins with a number, is at least 8");
    if (how->paced) { /* the kernel's timer slack must not add to latencies */
        double asked = *rate == '@' ? atof(rate + 1) : 0;
        if (asked <= 0)
            refuse("a paced mode needs SIZE@RATE");
        period = (int64_t)(1e9 * connections / asked);
        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    }
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    request = answer = how->http ? strdup(get) : payload(size);
    if (how->http)
        size = sizeof get - 1;
    answer_size = size;
    if (how->websocket) {
        answer = websocket_frame(request, size, 0, &answer_size);
        request = websocket_frame(request, size, 1, &size);
    }

    window_open(atof(argv[5]), atof(argv[6]));
    if (how->pipe != NULL)
        how->pipe(argv[2], size, how->capacity);
    else
        talk(connections);
    char more[40] = "";
    if (how->udp)
        snprintf(more, sizeof more, ", \"lost\": %lld", (long long)lost);
    window_print(more);
    return 0;
}
