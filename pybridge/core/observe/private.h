/*
 * private.h: what the files of this room alone share.
 */
#pragma once

#include "observe/observe.h"

/* ---- python_stack.c --------------------------------------------------------------------------- */

typedef struct python_frame {
    char function[192], file[256]; /* UTF-8 */
    int line;                     /* 0: not known */
} python_frame;

/* The frames of a thread, innermost first, without the GIL: it may run on, or end.  How many; 0
 * where they can't be told. */
GL_PRIVATE int python_stack(PyThreadState *ts, python_frame *to, int room);
/* The thread that has the GIL, or NULL where that can't be told.  Without the GIL. */
GL_PRIVATE PyThreadState *python_gil_holder(void);
