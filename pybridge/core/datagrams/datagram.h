/*
 * datagram.h: the state of a datagram transport, and the functions that its files share.
 *
 *   datagram.c           construction, registration, the type; transports/transports.h has the base
 *   datagram_send.c      sendto
 *   datagram_receive.c   received datagrams on their way to the protocol
 *
 * Go receives and C sends.  asyncio makes the system call within sendto() and calls
 * error_received() there, so a deferred call would be visible.  The GIL is not released for the
 * system call, because it can't block.
 *
 * The write limits, pause_writing() and get_extra_info() are asyncio's own code, in the base class
 * _FlowControlMixin, which uses its own slots.  None of it runs for each datagram: the limits
 * matter only when the kernel has no room.  goloop/_internal/net/datagrams.py has the class that
 * programs use.
 */
#pragma once

#include "datagrams/datagrams.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* The address of a sender, in the form of the kernel and as a Python object. */
typedef struct gl_peer {
    PyObject *object; /* NULL: the entry is empty */
    uint32_t len;
    uint8_t raw[sizeof(struct sockaddr_in6)];
} gl_peer;

/* The number of entries of the table of peers after a second peer has sent. */
#define PEERS 256u

/* The minimum share of a socket in a turn, in ns of datagram_received(); 64 echoes take less. */
#define SHARE_MIN 1000000

/* A datagram transport. */
typedef struct gl_datagram {
    TRANSPORT_HEAD     /* the lease's owner is the socket */
    PyObject *address; /* remote_addr, the only permitted destination; or None.  Writable from
                        * Python */
    int family;        /* the socket's address family */
    uint32_t interest; /* the directions that the reactor has registered */
    bool connected;    /* the socket has a peer: send, not sendto */
    bool peer_unnamed; /* the peer has no name; it is the destination if no address is given */

    /* Sending (datagram_send.c). */
    bool blocked;             /* the kernel had no room, and the queue is not yet empty */
    Py_ssize_t queued;        /* size of the write buffer by asyncio's count.  Set by Python */
    PyObject *queue;          /* deque of pending datagrams, or NULL.  Set by Python */
    PyObject *last_target;    /* the address of the last sendto() ... */
    uint32_t last_target_len; /* ... and its raw form */
    uint8_t last_target_raw[GL_MAX_SOCKADDR];

    /* Receiving (datagram_receive.c). */
    gl_peer *peers;       /* hash table by raw address: one entry, or PEERS */
    uint32_t peers_mask;  /* number of entries - 1, for the hash */
    gl_peer *last_sender; /* the sender of the last datagram, or NULL */
    gl_peer peers_inline[1];
    uint64_t share_turn; /* the loop's turn of the last delivery ... */
    int64_t share_end;   /* ... and the end of the socket's share of that turn, ns */
} gl_datagram;

/* ---- datagram_send.c --------------------------------------------------------------- */

/* sendto(): checks the arguments, then sends the datagram or queues it.  `addr` may be None.
 * Returns None, also for a datagram that is dropped; NULL with TypeError, ValueError, RuntimeError
 * (a foreign loop), or another exception of datagram_send_or_queue(). */
GL_PRIVATE PyObject *datagram_sendto(gl_datagram *d, PyObject *data, PyObject *addr);
/* _send(data, addr): sends a queued datagram.  Returns True, also if the transport is lost and the
 * datagram is dropped; False if the kernel has no room.  The caller classifies an exception. */
GL_PRIVATE PyObject *datagram_send_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs);
/* _sent_all(): marks the queue as sent.  Stops watching for room, or ends a closing transport:
 * calls connection_lost().  Does nothing for a transport that has ended. */
GL_PRIVATE PyObject *datagram_sent_all(gl_datagram *d, PyObject *ignored);
/* Calls protocol.error_received(exc), as asyncio does in an `except` clause; without a protocol it
 * does nothing.  Steals `exc`, which may be NULL with an exception set. */
GL_PRIVATE int datagram_report_error(gl_datagram *d, PyObject *exc);

/* ---- datagram_receive.c ------------------------------------------------------------ */

/* gl_reg_ops.complete: handles one completion in the context of the transport.  READY sends queued
 * datagrams, by _drain(), and is the only completion that a closing transport handles; an ended one
 * handles none.  An exception goes to the loop's exception handler.  Returns 0, or -1 with an exit
 * exception or an exception of the exception handler. */
GL_PRIVATE int datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
/* transport_ops.deliver_item: delivers an item of paused data, which is a tuple of a datagram and
 * its address, or an OSError for error_received(). */
GL_PRIVATE int datagram_deliver_item(gl_transport *t, PyObject *item);
/* transport_ops.begin_or_check_share: begins the socket's share of this turn at the first call of a
 * turn, and returns false, so at least one callback runs; later returns true if the share is used
 * up.  It is the time that the iteration had taken before the first datagram of any socket, at
 * least SHARE_MIN. */
GL_PRIVATE bool datagram_begin_or_check_share(gl_transport *t);
/* Drops all cached addresses of senders, last_sender too.  Frees a table of PEERS entries and
 * returns to the table with one entry. */
GL_PRIVATE void datagram_clear_peers(gl_datagram *d);
