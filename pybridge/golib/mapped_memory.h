/*
 * mapped_memory.h: see mapped_memory.c.
 */
#pragma once

#include <stdint.h>

/* gl_table.unmap_memory. */
int32_t unmap_memory(void);
