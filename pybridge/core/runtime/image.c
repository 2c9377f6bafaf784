/*
 * image.c: the Go library in memory: loaded once, started in a process and again in its children.
 *
 * A constructor of the library starts the Go runtime.  The build hides the constructors from
 * ld.so (build_backend/goloop_build/elf.py): in the dynamic section DT_INIT_ARRAY and
 * DT_INIT_ARRAYSZ have tags that ld.so does not know.  Therefore ld.so maps and relocates the
 * library without running its code.  The import of goloop loads it, while the file can be read:
 * later there may be no /proc, no permission, another root directory or another version of it.
 *
 *     not loaded --image_load--> loaded --image_start--> started
 *                                              in a child: dead --image_restart--> started
 *
 * image_restart restores the library's memory to its state before the first start.  The library's
 * code can have written only to its writable segments and to one or two thread-local words:
 *
 *   - .data is set to the bytes that image_start saved after ld.so had relocated them;
 *   - .bss is set to zero;
 *   - the words, in which Go stores the goroutine of the thread, are set to zero in the thread that
 *     has forked, and were always zero in the other threads of the child.
 *
 * Nothing else is needed: not a file, not a descriptor, and not a lock of ld.so, which could be
 * locked for ever by a thread that the child does not have.  Before, image_unmap_runtime releases
 * the memory that Go has mapped: its heap and its reservations.
 *
 * The caller has set gl_here->opening, or is the import of goloop; image_forget_thread() needs
 * neither.
 */
#include "runtime/private.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if GL_CAN_RESTART

/* The tags that the build writes instead of DT_INIT_ARRAY and DT_INIT_ARRAYSZ. */
#define GL_DT_INIT_ARRAY 0x676f6c70
#define GL_DT_INIT_ARRAYSZ 0x676f6c71

/* The relocation for the distance of a thread-local variable from the thread pointer. */
#if defined(__x86_64__)
#define GL_TLS_DISTANCE R_X86_64_TPOFF64
#else
#define GL_TLS_DISTANCE R_AARCH64_TLS_TPREL
#endif

/* Returns the thread pointer, from which distances of thread-local variables count. */
static uintptr_t
thread_pointer(void)
{
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer)); /* the first word of the block is its address */
#else
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

/* Rounds an address down to the start of its page. */
static uintptr_t
page_down(uintptr_t address)
{
    return address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

/* Rounds an address up to the start of a page. */
static uintptr_t
page_up(uintptr_t address)
{
    return page_down(address + (uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

/* ---- the addresses of all parts -------------------------------------------------- */

/* Records a writable segment, without the part that ld.so has made read-only, unless that is all of
 * it.  Sets `understood` to false if there are more than GL_SEGMENTS. */
static void
image_note_written(gl_image *image, uintptr_t base, const ElfW(Phdr) *segment, uintptr_t relro_end)
{
    uintptr_t at = base + segment->p_vaddr;
    uintptr_t filled = at + segment->p_filesz;
    uintptr_t end = at + segment->p_memsz;
    if (relro_end > end)
        at = end;
    else if (relro_end > at)
        at = relro_end;
    if (filled < at)
        filled = at;
    if (at == end)
        return;
    if (image->written_count == GL_SEGMENTS) {
        image->understood = false;
        return;
    }
    gl_written *written = &image->written[image->written_count++];
    written->at = at;
    written->filled = filled - at;
    written->size = end - at;
}

/* Extends the bounds of the image by a loaded segment, and records the segment as written memory
 * or, if it is not code, as a read-only table. */
static void
image_note_segment(gl_image *image, uintptr_t base, const ElfW(Phdr) *segment, uintptr_t relro_end)
{
    uintptr_t at = base + segment->p_vaddr;
    if (at < image->low)
        image->low = at;
    if (at + segment->p_memsz > image->high)
        image->high = at + segment->p_memsz;
    if (segment->p_flags & PF_W)
        image_note_written(image, base, segment, relro_end);
    else if (!(segment->p_flags & PF_X) && image->table_count < GL_SEGMENTS) {
        image->tables[image->table_count].at = at;
        image->tables[image->table_count].size = segment->p_memsz;
        image->table_count++;
    }
}

/* Records all segments and the size of the thread-local words of the library with the link_map
 * `map` in library.image.  Called by dl_iterate_phdr for each library; the result 1 ends the
 * iteration, 0 continues it. */
static int
image_note_segments(struct dl_phdr_info *info, size_t size, void *map)
{
    (void)size;
    gl_image *image = &library.image;
    uintptr_t base = info->dlpi_addr;
    if (base != ((struct link_map *)map)->l_addr)
        return 0;
    uintptr_t relro_end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_GNU_RELRO)
            relro_end = page_down(base + segment->p_vaddr + segment->p_memsz);
        if (segment->p_type == PT_TLS && segment->p_filesz == 0)
            image->tls_size = segment->p_memsz;
    }
    image->low = UINTPTR_MAX;
    image->understood = true;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD)
            image_note_segment(image, base, &info->dlpi_phdr[i], relro_end);
    return 1;
}

/* Finds the distance of Go's thread-local words from the thread pointer, or sets `understood` to
 * false.  ld.so has written the distance of one word to the address of the only relocation of that
 * kind; the relocation's addend is this word's distance from the first one. */
static void
image_note_tls(gl_image *image, uintptr_t base, uintptr_t relocations, size_t size)
{
    size_t found = 0;
    size_t named = 0;
    for (size_t i = 0; i < size / sizeof(ElfW(Rela)); i++) {
        const ElfW(Rela) *relocation = (const ElfW(Rela) *)relocations + i;
        if (ELF64_R_TYPE(relocation->r_info) != GL_TLS_DISTANCE)
            continue;
        found++;
        if (ELF64_R_SYM(relocation->r_info) != 0)
            named++;
        memcpy(&image->tls, (const void *)(base + relocation->r_offset), sizeof image->tls);
        image->tls -= (ptrdiff_t)relocation->r_addend;
    }
    if (found != 1 || named != 0)
        image->understood = false;
}

/* Records the constructors and the thread-local words from the dynamic section of the library. */
static void
image_note_dynamic(gl_image *image, const struct link_map *map)
{
    uintptr_t relocations = 0;
    size_t size = 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == GL_DT_INIT_ARRAY)
            image->init = (void *const *)(map->l_addr + entry->d_un.d_ptr);
        else if (entry->d_tag == GL_DT_INIT_ARRAYSZ)
            image->init_count = entry->d_un.d_val / sizeof(void *);
        else if (entry->d_tag == DT_RELA)
            relocations = entry->d_un.d_ptr;
        else if (entry->d_tag == DT_RELASZ)
            size = entry->d_un.d_val;
    }
    uintptr_t base = map->l_addr;
    if (relocations < base) /* some versions of glibc have added the base address */
        relocations += base;
    image_note_tls(image, base, relocations, size);
}

/* Records the addresses of all parts of the loaded library in the image.  `understood` stays false
 * if they can't be found. */
static void
image_locate(gl_image *image, void *handle)
{
    struct link_map *map;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 &&
        dl_iterate_phdr(image_note_segments, map) == 1)
        image_note_dynamic(image, map);
}

#endif /* GL_CAN_RESTART */

/* ---- loading --------------------------------------------------------------------- */

GL_PRIVATE const char *
image_load(void)
{
    gl_image *image = &library.image;
    if (image->table != NULL)
        return NULL;
    void *handle = dlopen(library.path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        if (why == NULL)
            why = "failed without a message";
        return library_set_reason("dlopen: %s", why);
    }
    /* POSIX allows the conversion of dlsym's object pointer to a function pointer. */
    *(void **)&image->table = dlsym(handle, GL_TABLE_SYMBOL);
    if (image->table == NULL) {
        dlclose(handle);
        return library_set_reason("the file has no symbol " GL_TABLE_SYMBOL);
    }
#if GL_CAN_RESTART
    image_locate(image, handle);
#endif
    return NULL;
}

GL_PRIVATE void
image_release_tables(void)
{
#if GL_CAN_RESTART
    const gl_image *image = &library.image;
    for (size_t i = 0; i < image->table_count; i++) {
        uintptr_t low = page_up(image->tables[i].at);
        uintptr_t end = image->tables[i].at + image->tables[i].size;
        if (end > low)
            (void)madvise((void *)low, page_up(end) - low, MADV_DONTNEED);
    }
#endif
}

/* ---- starting ---------------------------------------------------------------------- */

#if GL_CAN_RESTART

/* Runs the library's constructors, which start the Go runtime. */
static void
image_construct(const gl_image *image)
{
    for (size_t i = 0; i < image->init_count; i++) {
        void (*constructor)(int, char **, char **);
        *(void **)&constructor = image->init[i];
        constructor(library.argc, library.argv, library.envp);
    }
}

/* Saves the bytes that a restart needs, once.  Returns NULL, also if the image is not understood
 * (then nothing is saved), or the reason for the failure. */
static const char *
image_save(gl_image *image)
{
    size_t size = 0;
    for (size_t i = 0; i < image->written_count; i++)
        size += image->written[i].filled;
    if (image->saved != NULL || !image->understood || size == 0)
        return NULL;
    uint8_t *saved = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (saved == MAP_FAILED)
        return library_set_reason("%zu bytes of memory could not be allocated", size);
    image->saved = saved;
    for (size_t i = 0; i < image->written_count; i++) {
        memcpy(saved, (const void *)image->written[i].at, image->written[i].filled);
        saved += image->written[i].filled;
    }
    return NULL;
}

/* Sets memory to zero.  Whole pages are returned to the kernel, and are zero when they are used
 * again. */
static void
memory_clear(uintptr_t at, size_t size)
{
    uintptr_t low = page_up(at);
    uintptr_t high = page_down(at + size);
    if (low >= high || madvise((void *)low, high - low, MADV_DONTNEED) != 0) {
        memset((void *)at, 0, size); /* less than a page, or locked memory */
        return;
    }
    memset((void *)at, 0, low - at);
    memset((void *)high, 0, at + size - high);
}

/* Sets the library's writable memory to its state before the first start. */
static void
image_restore(const gl_image *image)
{
    const uint8_t *saved = image->saved;
    for (size_t i = 0; i < image->written_count; i++) {
        const gl_written *written = &image->written[i];
        size_t filled = written->filled;
        memcpy((void *)written->at, saved, filled);
        memory_clear(written->at + filled, written->size - filled);
        saved += filled;
    }
}

#endif /* GL_CAN_RESTART */

GL_PRIVATE const char *
image_start(void)
{
    const char *why = NULL;
#if GL_CAN_RESTART
    why = image_save(&library.image);
    if (why == NULL)
        image_construct(&library.image);
#endif
    return why;
}

GL_PRIVATE void
image_unmap_runtime(void)
{
#if GL_CAN_RESTART
    if (library.image.saved != NULL && library.image.init_count != 0)
        library.image.table()->unmap_memory();
#endif
}

GL_PRIVATE const char *
image_restart(void)
{
#if GL_CAN_RESTART
    gl_image *image = &library.image;
    if (image->saved == NULL || image->init_count == 0)
        return library_set_reason("the library's file was not built by goloop's build backend");
    image_restore(image);
    image_forget_thread();
    image_construct(image);
    return NULL;
#else
    return library_set_reason("a library cannot be started again on this system");
#endif
}

GL_PRIVATE void
image_forget_thread(void)
{
#if GL_CAN_RESTART
    const gl_image *image = &library.image;
    if (image->understood)
        memset((void *)(thread_pointer() + (uintptr_t)image->tls), 0, image->tls_size);
#endif
}
