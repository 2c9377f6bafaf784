/*
 * linkage.h: linkage of the functions and objects that several files of the extension use.
 *
 * A release is one translation unit: module.c defines GL_AMALGAMATION and includes every
 * other file, so that the compiler can inline everything and exports nothing.  `make check
 * CHECKS=units` compiles each file alone, against its headers, so that each file includes all
 * that it uses.
 */
#pragma once

#ifdef GL_AMALGAMATION
#define GL_PRIVATE static               /* a function that other files call */
#define GL_PRIVATE_INLINE static inline /* a small function on a hot path that other files call */
#define GL_PRIVATE_DATA static          /* an object that other files use: its declaration */
#else
#define GL_PRIVATE
#define GL_PRIVATE_INLINE
#define GL_PRIVATE_DATA extern
#endif

/* Marks a function that never runs Python, directly or indirectly, so that it may be called
 * between the check that a loop is usable and the code that relies on the check.  tools/lint_c.py
 * verifies the marks; every other function may run Python. */
#define GL_NO_PYTHON
