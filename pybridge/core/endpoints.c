/*
 * endpoints.c: raw socket addresses as the values that Python's socket module
 * would give for them, and the one option that asyncio sets on each TCP socket.
 *
 * An accepted connection brings its addresses as the kernel wrote them.  Most
 * programs never ask for them, so they are converted when they are asked for.
 */
#include "stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

static PyObject *
address_unix(const uint8_t *raw, uint32_t len)
{
    const char *path = (const char *)raw + offsetof(struct sockaddr_un, sun_path);
    size_t n = len > offsetof(struct sockaddr_un, sun_path)
                   ? len - offsetof(struct sockaddr_un, sun_path)
                   : 0;
#ifdef __linux__
    /* Linux's abstract names begin with a NUL and may hold others. */
    if (n > 0 && path[0] == 0)
        return PyBytes_FromStringAndSize(path, (Py_ssize_t)n);
#endif
    return PyUnicode_DecodeFSDefaultAndSize(path, (Py_ssize_t)strnlen(path, n));
}

static PyObject *
gl_address_object(const uint8_t *raw, uint32_t len)
{
    if (len == 0)
        Py_RETURN_NONE;
    sa_family_t family;
    if (len < offsetof(struct sockaddr, sa_data))
        return NULL;
    memcpy(&family, raw + offsetof(struct sockaddr, sa_family), sizeof(family));
    char text[INET6_ADDRSTRLEN];
    if (family == AF_INET && len >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in a;
        memcpy(&a, raw, sizeof(a));
        if (inet_ntop(AF_INET, &a.sin_addr, text, sizeof(text)) == NULL)
            return PyErr_SetFromErrno(PyExc_OSError);
        return Py_BuildValue("(si)", text, (int)ntohs(a.sin_port));
    }
    if (family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 a;
        memcpy(&a, raw, sizeof(a));
        if (inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof(text)) == NULL)
            return PyErr_SetFromErrno(PyExc_OSError);
        return Py_BuildValue("(siII)", text, (int)ntohs(a.sin6_port),
                             (unsigned int)ntohl(a.sin6_flowinfo),
                             (unsigned int)a.sin6_scope_id);
    }
    if (family == AF_UNIX)
        return address_unix(raw, len);
    return NULL;
}

/* One attribute of a socket as a number. */
static int
socket_number(PyObject *sock, PyObject *name, long *value)
{
    PyObject *o = PyObject_GetAttr(sock, name);
    if (o == NULL)
        return -1;
    *value = PyLong_AsLong(o);
    Py_DECREF(o);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* asyncio's condition for TCP_NODELAY: 1, 0, or -1 with an exception. A socket
 * that was made with protocol 0 does not count there, so it does not here. */
static int
gl_socket_is_tcp(PyObject *sock)
{
    long family, type, proto;
    if (socket_number(sock, G.s_family, &family) < 0)
        return -1;
    if (family != AF_INET && family != AF_INET6)
        return 0;
    if (socket_number(sock, G.s_type, &type) < 0 ||
        socket_number(sock, G.s_proto, &proto) < 0)
        return -1;
    return type == SOCK_STREAM && proto == IPPROTO_TCP;
}

static int
gl_set_nodelay(int fd)
{
    int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}
