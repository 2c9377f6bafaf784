/*
 * datagram.h: the state of a datagram transport, and what its files share.
 *
 *   datagram.c           construction, registration, the type; transports/transports.h has the base
 *   datagram_send.c      sendto
 *   datagram_receive.c   what was received, on its way to the protocol
 *
 * Go receives and C sends: asyncio makes the system call within sendto() and calls
 * error_received() there, so putting it off would be seen.  It is made without
 * giving up the GIL, as it cannot block.
 *
 * What asyncio's _FlowControlMixin does (write limits, pausing and resuming the protocol,
 * get_extra_info) is done by its own code on its own slots, for it is needed only when the
 * kernel is out of room.  goloop/_internal/net/datagrams.py has the class that programs meet.
 */
#pragma once

#include "datagrams/datagrams.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* An address that was received from, as the kernel and as Python have it. */
typedef struct gl_peer {
    PyObject *object; /* NULL: the place is empty */
    uint32_t len;
    uint8_t raw[sizeof(struct sockaddr_in6)];
} gl_peer;

#define PEERS 256u

#define SHARE_MIN 1000000 /* ns of datagram_received() in a turn: 64 echoes take less */

typedef struct gl_datagram {
    TRANSPORT_HEAD     /* the lease's owner is the socket */
    PyObject *address; /* remote_addr: no other may be given; or None.  Programs write it */
    int family;
    uint32_t interest; /* the directions that the reactor was told */
    bool connected;    /* the socket has a peer: send, not sendto */
    bool peer_unnamed; /* its peer has no name: so it is where no address is given */

    /* Sending (datagram_send.c). */
    bool blocked;             /* the kernel had no room, and the queue is not yet empty */
    Py_ssize_t queued;        /* the write buffer's size in asyncio's counting.  Python's */
    PyObject *queue;          /* deque of what waits to be sent, or NULL.  Python's */
    PyObject *last_target;    /* the last address that was sent to ... */
    uint32_t last_target_len; /* ... and its raw form */
    uint8_t last_target_raw[GL_SOCKADDR_MAX];

    /* Receiving (datagram_receive.c). */
    gl_peer *peers; /* table by hash of the raw address: one place, or PEERS */
    uint32_t peers_mask;
    gl_peer *last_sender; /* the sender of the last one, or NULL */
    gl_peer peers_inline[1];
    uint64_t share_turn; /* of the loop, in which it last delivered ... */
    int64_t share_end;   /* ... and when its share of that ends */
} gl_datagram;

/* ---- datagram_send.c --------------------------------------------------------------- */

GL_PRIVATE PyObject *datagram_sendto(gl_datagram *d, PyObject *data, PyObject *addr);
GL_PRIVATE PyObject *datagram_send_method(gl_datagram *d, PyObject *const *args, Py_ssize_t nargs);
GL_PRIVATE PyObject *datagram_sent_all(gl_datagram *d, PyObject *ignored);
/* Calls protocol.error_received; takes over exc. */
GL_PRIVATE int datagram_report_error(gl_datagram *d, PyObject *exc);

/* ---- datagram_receive.c ------------------------------------------------------------ */

GL_PRIVATE int datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);
GL_PRIVATE int datagram_deliver_item(gl_transport *t, PyObject *item);
GL_PRIVATE bool datagram_budget_exhausted(gl_transport *t);
GL_PRIVATE void datagram_clear_peers(gl_datagram *d);
