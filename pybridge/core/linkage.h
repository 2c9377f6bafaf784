/*
 * linkage.h: how the extension's files find each other.
 *
 * A release is one translation unit: module.c defines GL_AMALGAMATION and includes every
 * other file, so that the compiler sees the whole and exports nothing.  `make check
 * CHECKS=units` compiles each file alone, against its headers, so that none can lean on
 * what it did not include.
 */
#pragma once

#ifdef GL_AMALGAMATION
#define GL_PRIVATE static               /* a function that other files call */
#define GL_PRIVATE_INLINE static inline /* the same, small, on a hot path */
#define GL_PRIVATE_DATA static          /* an object that other files use: its declaration */
#else
#define GL_PRIVATE
#define GL_PRIVATE_INLINE
#define GL_PRIVATE_DATA extern
#endif

/* Marks a function from which no way leads to Python, so that it may stand between the check
 * that a loop is usable and what relies on it.  tools/lint_c.py holds each to it; any other
 * function may run Python. */
#define GL_NO_PYTHON
