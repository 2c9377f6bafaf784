/*
 * epoll_echo.c: the ceiling.  An echo server that makes only the system calls
 * that every server of this kind needs: one thread, level-triggered epoll, one
 * recv and one send for each readable event.  A Python event loop that makes the
 * same calls can come near this rate, but cannot exceed it.
 *
 * Usage: epoll_echo [tcp | copy | broadcast | udp | unix PATH].  Prints "port N" once it listens on
 * 127.0.0.1, or "path PATH", and runs until it is killed.  A datagram is echoed by
 * one recvfrom and one sendto.  With `copy` each connection receives into its own buffer
 * and sends a copy of the received bytes, as the server of the BufferedProtocol rows does.
 * With `broadcast` a connection's first bytes come back to it alone and make it a member;
 * later bytes are sent to every member, one send each.
 *
 * A connection is in one of two states: *reading* (pending == NULL, polled for
 * EPOLLIN), or *draining* (the kernel took only part of an answer; the rest is
 * in `pending`, and the connection is polled for EPOLLOUT alone until it is
 * gone, so memory stays bounded by one receive buffer a connection).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BUFFER = 256 * 1024, EVENTS = 256, BACKLOG = 1024 };

typedef struct connection {
    int fd;
    char *own; /* with `copy`: the receive buffer */
    char *pending;
    size_t pending_start, pending_end;
    int place; /* with `broadcast`: the index in `members`, or -1 */
} connection;

static int poller;
static char buffer[BUFFER];
static int copies, broadcasts;
static connection **members;
static int member_count, member_room;

/* Prints a failed call with the text of errno, and exits with 1. */
static void fail(const char *call) {
    fprintf(stderr, "epoll_echo: %s: %s\n", call, strerror(errno));
    exit(1);
}

/* Adds a connection to the members of broadcasts. */
static void join(connection *c) {
    if (member_count == member_room) {
        member_room = member_room ? 2 * member_room : 1024;
        members = realloc(members, (size_t)member_room * sizeof *members);
        if (members == NULL)
            fail("realloc");
    }
    c->place = member_count;
    members[member_count++] = c;
}

/* Removes a connection from the members of broadcasts. */
static void leave(connection *c) {
    connection *moved = members[--member_count];
    members[c->place] = moved;
    moved->place = c->place;
}

/* Closes a connection and frees its memory. */
static void drop(connection *c) {
    if (c->place >= 0)
        leave(c);
    close(c->fd);
    free(c->pending);
    free(c->own);
    free(c);
}

/* Polls a connection for these events only, EPOLLIN or EPOLLOUT. */
static void watch(connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event) < 0)
        fail("epoll_ctl");
}

/* Accepts connections until the listener's queue is empty; they begin as *reading*. */
static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
                return;
            fail("accept4");
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        connection *c = calloc(1, sizeof *c);
        if (c == NULL)
            fail("calloc");
        c->fd = fd;
        c->place = -1;
        if (copies && (c->own = calloc(1, BUFFER)) == NULL)
            fail("calloc");
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
            fail("epoll_ctl");
    }
}

/* Stores the bytes that the kernel did not accept, and stops reading until they are sent. */
static void keep(connection *c, const char *rest, size_t length) {
    c->pending = malloc(length);
    if (c->pending == NULL)
        fail("malloc");
    memcpy(c->pending, rest, length);
    c->pending_start = 0;
    c->pending_end = length;
    watch(c, EPOLLOUT);
}

/* A broadcast begins when every member has the last one, so the kernel has room for it. */
static void send_to_all(size_t length) {
    for (int i = 0; i < member_count; i++)
        if (send(members[i]->fd, buffer, length, MSG_NOSIGNAL) != (ssize_t)length)
            fail("send");
}

/* Receives once and sends the bytes back.  Drops the connection at its end, or if a call failed. */
static void readable(connection *c) {
    ssize_t got = recv(c->fd, copies ? c->own : buffer, BUFFER, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        drop(c);
        return;
    }
    if (broadcasts && c->place >= 0) {
        send_to_all((size_t)got);
        return;
    }
    if (broadcasts)
        join(c);
    if (copies)
        memcpy(buffer, c->own, (size_t)got);
    ssize_t sent = send(c->fd, buffer, (size_t)got, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            drop(c);
            return;
        }
        sent = 0;
    }
    if (sent < got)
        keep(c, buffer + sent, (size_t)(got - sent));
}

/* Sends pending bytes; once all are sent the connection is *reading* again.  Drops the
 * connection if the call failed. */
static void writable(connection *c) {
    ssize_t sent = send(c->fd, c->pending + c->pending_start,
                        c->pending_end - c->pending_start, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR)
            drop(c);
        return;
    }
    c->pending_start += (size_t)sent;
    if (c->pending_start == c->pending_end) {
        free(c->pending);
        c->pending = NULL;
        watch(c, EPOLLIN);
    }
}

/* Opens a socket of a kind, SOCK_STREAM or SOCK_DGRAM, on a free port of 127.0.0.1, and prints
 * the port.  A stream socket listens. */
static int open_inet(int kind) {
    int fd = socket(AF_INET, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
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
    if (kind == SOCK_STREAM && listen(fd, BACKLOG) < 0)
        fail("listen");
    printf("port %d\n", ntohs(address.sin_port));
    return fd;
}

/* Opens a Unix socket that listens at a path, and prints the path. */
static int open_unix(const char *path) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind");
    if (listen(fd, BACKLOG) < 0)
        fail("listen");
    printf("path %s\n", path);
    return fd;
}

/* Echoes datagrams until the socket is empty, so that one readable event serves all of them. */
static void echo_datagrams(int fd) {
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        ssize_t got =
            recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length);
        if (got < 0) {
            if (errno == EAGAIN || errno == EINTR)
                return;
            fail("recvfrom");
        }
        if (sendto(fd, buffer, (size_t)got, 0, (struct sockaddr *)&from, length) < 0 &&
            errno != EAGAIN)
            fail("sendto");
    }
}

/* Opens the socket that the arguments select, and serves it until the process is killed. */
int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "tcp";
    int datagrams = strcmp(kind, "udp") == 0, listener;
    copies = strcmp(kind, "copy") == 0;
    broadcasts = strcmp(kind, "broadcast") == 0;
    if (strcmp(kind, "unix") == 0 && argc == 3)
        listener = open_unix(argv[2]);
    else
        listener = open_inet(datagrams ? SOCK_DGRAM : SOCK_STREAM);
    fflush(stdout);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll_create1");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) < 0)
        fail("epoll_ctl");

    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(poller, events, EVENTS, -1);
        if (n < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            connection *c = events[i].data.ptr;
            if (c == NULL && datagrams)
                echo_datagrams(listener);
            else if (c == NULL)
                accept_all(listener);
            else if (c->pending != NULL)
                writable(c);
            else
                readable(c);
        }
    }
}
