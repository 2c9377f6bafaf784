/*
 * earlier.c: several Futures that wait for one direction of an fd.
 *
 * The last one has the place (watch.c).  Those before it wait on here, are woken with it, and are
 * given the place, the last one first, where it is given up.
 */
#include "watch/private.h"

GL_PRIVATE void
earlier_drop(gl_earlier *earlier)
{
    gl_earlier out = *earlier;
    *earlier = (gl_earlier){NULL, 0, 0};
    for (uint32_t i = 0; i < out.len; i++) {
        Py_CLEAR(out.place[i].waiter);
        Py_CLEAR(out.place[i].sock);
    }
    PyMem_RawFree(out.place);
}

GL_NO_PYTHON GL_PRIVATE bool
earlier_add(gl_earlier *earlier, gl_place *old)
{
    if (!gl_grow(&earlier->place, &earlier->cap, earlier->len, sizeof(gl_place), 4))
        return false;
    earlier->place[earlier->len] = *old;
    earlier->len++;
    *old = (gl_place){.waiter = NULL};
    return true;
}

GL_NO_PYTHON GL_PRIVATE bool
earlier_take(gl_earlier *earlier, const PyObject *waiter, gl_place *out)
{
    uint32_t i = earlier->len;
    while (i > 0 && waiter != NULL && earlier->place[i - 1].waiter != waiter)
        i--;
    if (i == 0)
        return false;
    *out = earlier->place[i - 1];
    memmove(&earlier->place[i - 1], &earlier->place[i], (earlier->len - i) * sizeof(gl_place));
    earlier->len--;
    return true;
}
