/*
 * endpoints.c: converts raw socket addresses to the values of Python's socket module, and back.
 *
 * The addresses of an accepted connection are stored as the kernel wrote them.  Most programs never
 * read them, so they are converted when they are read.
 */
#include "support/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Converts a raw Unix address to a new reference: bytes for an abstract name, str for a path (""
 * for an unnamed socket).  NULL with MemoryError. */
static PyObject *
sockaddr_un_to_object(const uint8_t *raw, uint32_t len)
{
    const char *path = (const char *)raw + offsetof(struct sockaddr_un, sun_path);
    size_t n = 0;
    if (len > offsetof(struct sockaddr_un, sun_path))
        n = len - offsetof(struct sockaddr_un, sun_path);
#ifdef __linux__
    /* Linux's abstract names begin with a NUL byte and may contain others. */
    if (n > 0 && path[0] == 0)
        return PyBytes_FromStringAndSize(path, (Py_ssize_t)n);
#endif
    return PyUnicode_DecodeFSDefaultAndSize(path, (Py_ssize_t)strnlen(path, n));
}

GL_PRIVATE PyObject *
gl_sockaddr_to_object(const uint8_t *raw, uint32_t len)
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
                             (unsigned int)ntohl(a.sin6_flowinfo), (unsigned int)a.sin6_scope_id);
    }
    if (family == AF_UNIX)
        return sockaddr_un_to_object(raw, len);
    return NULL;
}

/* Converts an exact int in [0, max] to *value; false, without an exception, for any other
 * object. */
static bool
number_within(PyObject *o, unsigned long max, unsigned long *value)
{
    if (!PyLong_CheckExact(o))
        return false;
    *value = PyLong_AsUnsignedLong(o);
    if (*value == (unsigned long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    return *value <= max;
}

/* Converts (host, port), for IPv6 also (host, port, flowinfo, scope_id), with a numeric host, to a
 * raw address, and sets *len.  Returns false, without an exception, for every other object: also
 * for a host name and for a number out of range. */
static bool
sockaddr_from_inet_object(int family, PyObject *addr, uint8_t *raw, uint32_t *len)
{
    if (!PyTuple_CheckExact(addr))
        return false;
    Py_ssize_t items = PyTuple_GET_SIZE(addr);
    Py_ssize_t size;
    unsigned long port;
    unsigned long flow = 0;
    unsigned long scope = 0;
    Py_ssize_t max_items = 4;
    if (family == AF_INET)
        max_items = 2;
    if (items < 2 || items > max_items || !PyUnicode_CheckExact(PyTuple_GET_ITEM(addr, 0)) ||
        !number_within(PyTuple_GET_ITEM(addr, 1), 0xffff, &port) ||
        (items > 2 && !number_within(PyTuple_GET_ITEM(addr, 2), 0xfffff, &flow)) ||
        (items > 3 && !number_within(PyTuple_GET_ITEM(addr, 3), 0xffffffff, &scope)))
        return false;
    const char *host = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(addr, 0), &size);
    if (host == NULL) {
        PyErr_Clear();
        return false;
    }
    if (strlen(host) != (size_t)size)
        return false;
    if (family == AF_INET) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
            return false;
        *len = sizeof(a);
        memcpy(raw, &a, sizeof(a));
        return true;
    }
    struct sockaddr_in6 a = {.sin6_family = AF_INET6,
                             .sin6_port = htons((uint16_t)port),
                             .sin6_flowinfo = htonl((uint32_t)flow),
                             .sin6_scope_id = (uint32_t)scope};
    if (inet_pton(AF_INET6, host, &a.sin6_addr) != 1)
        return false;
    *len = sizeof(a);
    memcpy(raw, &a, sizeof(a));
    return true;
}

/* Converts a path (str or bytes), or one of Linux's abstract names, to a raw address, and sets
 * *len.  Returns false, without an exception, for every other object, and for a path that is empty
 * or too long. */
static bool
sockaddr_from_unix_object(PyObject *addr, uint8_t *raw, uint32_t *len)
{
    PyObject *path = NULL;
    if (PyBytes_CheckExact(addr))
        path = Py_NewRef(addr);
    else if (PyUnicode_CheckExact(addr))
        path = PyUnicode_EncodeFSDefault(addr);
    if (path == NULL) {
        PyErr_Clear();
        return false;
    }
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = (size_t)PyBytes_GET_SIZE(path);
    /* The length includes the NUL byte at a path's end.  Python refuses an empty path, and one that
     * is too long. */
    bool good = n > 0 && n < sizeof(a.sun_path);
    if (good) {
        bool named = PyBytes_AS_STRING(path)[0] != 0;
        memcpy(a.sun_path, PyBytes_AS_STRING(path), n);
        *len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + n + named);
        memcpy(raw, &a, *len);
    }
    Py_DECREF(path);
    return good;
}

GL_PRIVATE bool
gl_sockaddr_from_object(int family, PyObject *addr, uint8_t *raw, uint32_t *len)
{
    if (family == AF_INET || family == AF_INET6)
        return sockaddr_from_inet_object(family, addr, raw, len);
    return family == AF_UNIX && sockaddr_from_unix_object(addr, raw, len);
}
