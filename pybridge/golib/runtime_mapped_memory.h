/*
 * runtime_mapped_memory.h: see runtime_mapped_memory.c.
 */
#pragma once

#include <stdint.h>

/* gl_table.unmap_memory: unmaps the memory of the inherited runtime in a forked child.  Does not
 * take the lock, which a thread of the parent may have held at the fork.  Returns 0. */
int32_t unmap_memory(void);
