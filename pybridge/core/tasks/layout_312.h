/*
 * layout_312.h: the fields of _asyncio.Future and _asyncio.Task in CPython 3.12.
 *
 * Source: struct FutureObj and struct TaskObj, Modules/_asynciomodule.c of the 3.12
 * branch.  They are 3.11's; what differs is that a default name is kept as its number
 * until somebody asks for it.
 */
#include "tasks/layout_311.h"

#undef GL_LAYOUT_LAZY_NAME
#define GL_LAYOUT_LAZY_NAME 1
