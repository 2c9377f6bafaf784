/*
 * compat.h: every difference between the supported versions of CPython, by the name of a feature.
 *
 * Each macro is 0 or 1 and serves in #if and in C expressions.  Other files test these names and
 * never a version number.  Two kinds of differences are in other files, under conditions that this
 * file defines: the fields of _asyncio.Future and _asyncio.Task (tasks/layout.h), and those of the
 * head of an interpreter frame (observe/python_stack.c).
 *
 * pythoncapi_compat.h, which has 4,000 lines, is not used: of the functions that this extension
 * needs and that an old version lacks it has only Py_IsFinalizing(), but neither
 * PyErr_GetRaisedException() nor PyErr_SetRaisedException().
 */
#pragma once

#include <Python.h>

/* Internal. */
#define GL_PYTHON(minor) (PY_VERSION_HEX >= 0x03000000 + ((minor) << 16))
#ifdef Py_GIL_DISABLED
#define GL_WITHOUT_GIL 1
#else
#define GL_WITHOUT_GIL 0
#endif

/* ---- asyncio's behaviour ---------------------------------------------------------------- */

/* Task(eager_start=True) and asyncio.eager_task_factory. */
#define GL_EAGER_TASKS GL_PYTHON(12)
/* Task.get_context() exists. */
#define GL_TASK_HAS_GET_CONTEXT GL_PYTHON(12)
/* Task(context=) refuses objects that are not a contextvars.Context. */
#define GL_TASK_CHECKS_CONTEXT GL_PYTHON(15)
/* The default name of a task is an int until get_name() formats it. */
#define GL_TASK_HAS_LAZY_NAME GL_PYTHON(12)
/* asyncio calls set_name() after the Task is constructed, so that the first name is a default. */
#define GL_TASK_NAMED_AFTER_INIT (!GL_PYTHON(13))
/* InvalidStateError of a step after the end says "__step()", formerly "_step()". */
#define GL_TASK_STEP_HAS_TWO_UNDERSCORES GL_PYTHON(14)
/* loop.create_task(coro, **kwargs) passes all keywords to the task factory. */
#define GL_CREATE_TASK_TAKES_KWARGS GL_PYTHON(14)
/* The iterator of a finished Future can be advanced again; formerly it was exhausted. */
#define GL_FUTURE_ITER_REPEATS GL_PYTHON(14)
/* Server._attach() and Server._detach() take the transport. */
#define GL_SERVER_TRACKS_TRANSPORTS GL_PYTHON(13)
/* DatagramTransport.sendto() sends empty datagrams; formerly it ignored them. */
#define GL_SENDS_EMPTY_DATAGRAMS GL_PYTHON(13)
/* asyncio's transport has a writelines() of its own; formerly it called write(). */
#define GL_STREAM_HAS_WRITELINES GL_PYTHON(12)
/* writelines() queues each item of an iterator before it asks for the next. */
#define GL_WRITELINES_QUEUES_EACH GL_PYTHON(15)

/* ---- CPython's C API -------------------------------------------------------------------- */

/* PyErr_GetRaisedException() and PyErr_SetRaisedException() exist. */
#define GL_HAS_RAISED_EXCEPTION GL_PYTHON(12)
/* Py_IsFinalizing() exists; formerly _Py_IsFinalizing(). */
#define GL_HAS_IS_FINALIZING GL_PYTHON(13)
/* PySignal_SetWakeupFd() is exported. */
#define GL_HAS_SET_WAKEUP_FD GL_PYTHON(13)
/* Py_mod_multiple_interpreters exists. */
#define GL_HAS_MULTIPLE_INTERPRETERS_SLOT GL_PYTHON(12)

/* PyWeakref_GetRef() exists. */
#define GL_HAS_WEAKREF_GET_REF GL_PYTHON(13)

/* ---- CPython's internals ---------------------------------------------------------------- */

/* A heap type with __weakref__ has the list of weak references as a field; since 3.12 the list
 * precedes the object. */
#define GL_WEAKREFS_ARE_A_FIELD (!GL_PYTHON(12))
/* The declaration of _PyObject_GetMethod() is in an internal header; the function is exported. */
#define GL_GET_METHOD_IS_INTERNAL GL_PYTHON(13)
/* Heap types with a dict get Py_TPFLAGS_INLINE_VALUES, with space for 30 attributes. */
#define GL_HAS_INLINE_VALUES GL_PYTHON(14)

/* A bytearray has a bytes object for its content.  If it can't be resized, it is empty
 * afterwards. */
#define GL_BYTEARRAY_HAS_BYTES GL_PYTHON(15)

/* The structs of tasks/layout.h: as in 3.11 and 3.12, in 3.13, or since 3.14. */
#define GL_FUTURE_LAYOUT_SINCE_3_13 GL_PYTHON(13)
#define GL_FUTURE_LAYOUT_SINCE_3_14 GL_PYTHON(14)

/* The first version with structs that were not compared; a test lowers it. */
#ifndef GL_LAYOUT_UNKNOWN_FROM
#define GL_LAYOUT_UNKNOWN_FROM 0x03100000
#endif
/* Since 3.14 the futures of a build without the GIL have locks of their own, which goloop's
 * would have to take.  Py_DEBUG changes every object. */
#ifdef Py_DEBUG
#define GL_LAYOUT_KNOWN 0
#else
#define GL_LAYOUT_KNOWN                                                                            \
    (PY_VERSION_HEX < GL_LAYOUT_UNKNOWN_FROM && !(GL_WITHOUT_GIL && GL_PYTHON(14)))
#endif

/* Size of the part of the thread state that every release of a version has: the smallest
 * _PyThreadStateImpl of its releases, up to and including mem_free_queue, the last field that all
 * these releases have.  The public part differs between patch releases too: 824 bytes in 3.14.3,
 * 832 in 3.14.10. */
#if GL_PYTHON(15)
#define GL_THREAD_STATE_END 1080 /* the list head ends at 1064 in 3.15.2, the struct at 1096 */
#elif GL_PYTHON(14)
#define GL_THREAD_STATE_END 912 /* the list head ends at 896 in 3.14.10, the struct at 936 */
#else
#define GL_THREAD_STATE_END sizeof(PyThreadState) /* asyncio has no fields there */
#endif

/* The interpreter frames that observe/python_stack.c can read. */
#define GL_FRAMES_KNOWN (!GL_PYTHON(16) && !(GL_WITHOUT_GIL && GL_PYTHON(14)))
/* The frame's head is the one of 3.11. */
#define GL_FRAME_LAYOUT_OF_3_11 (!GL_PYTHON(12))
/* The frame has the index `stacktop`; later the pointer `stackpointer`. */
#define GL_FRAME_HAS_STACKTOP (!GL_PYTHON(14))
/* PyGenObject ends with the frame as a field that C can name. */
#define GL_GENERATOR_HAS_IFRAME (!GL_PYTHON(14))
/* The thread state refers to the frame through a _PyCFrame. */
#define GL_THREAD_HAS_CFRAME (!GL_PYTHON(13))
/* _PyThreadState_UncheckedGet() returns the owner of the GIL, in any thread. */
#define GL_CURRENT_THREAD_IS_GLOBAL (!GL_PYTHON(12))
/* PyThreadState.state tells which thread is attached, and at most one is. */
#define GL_THREAD_STATE_SHOWS_GIL (GL_PYTHON(13) && !GL_WITHOUT_GIL)
/* The stacks of stopped threads can be read (observe/stopped_world.c). */
#define GL_READS_STOPPED_WORLD (GL_WITHOUT_GIL && !GL_PYTHON(14))

/* Critical sections of builds without the GIL, as threads/lock.c reads them. */
#define GL_CRITICAL_SECTIONS_KNOWN (!GL_PYTHON(16))
