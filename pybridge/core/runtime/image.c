/*
 * image.c: the file of the Go library, and copies of it to load.
 *
 * The file is mapped when it is opened first and stays mapped, so that a copy can
 * be made at any time: after an upgrade has replaced the file on disk, after a
 * daemon has closed every descriptor.  The mapping costs address space only; its
 * pages are read when a copy is made.
 *
 * ld.so knows a library by its name and by device and inode, and gives back the
 * one that it has for either.  Each copy is therefore a memfd of its own, opened by
 * a name that no earlier copy had.  A *spare* is a copy whose DT_INIT_ARRAYSZ was
 * set to 0: ld.so maps and relocates it but runs no constructor, and it is its
 * constructor that starts a Go runtime.  A forked child calls the constructors
 * itself and so has a runtime without ld.so, whose lock may be held for good by a
 * thread that the child has not got.
 *
 * The caller has gl_here->opening.
 */
#include "runtime/private.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory whose entries open the files behind descriptors. A test builds with
 * another one, to see what happens where /proc is not mounted. */
#ifndef GL_FD_DIRECTORY
#define GL_FD_DIRECTORY "/proc/self/fd/"
#endif

#if GL_CAN_COPY

static void
image_note_segment(gl_image *image, const ElfW(Phdr) *segment)
{
    if (segment->p_vaddr < image->low)
        image->low = segment->p_vaddr;
    if (segment->p_vaddr + segment->p_memsz > image->high)
        image->high = segment->p_vaddr + segment->p_memsz;
    if ((segment->p_flags & (PF_R | PF_W | PF_X)) == PF_R && image->tables < GL_TABLES) {
        image->table[image->tables].at = segment->p_vaddr;
        image->table[image->tables++].size = segment->p_memsz;
    }
}

/* Finds in the file what a spare needs.  Silent where the file has another form:
 * ld.so says better what is wrong with it, and a copy works without. */
static void
image_parse(gl_image *image)
{
    ElfW(Ehdr) head;
    if (image->size < sizeof head)
        return;
    memcpy(&head, image->bytes, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof(ElfW(Phdr)) || head.e_phoff > image->size ||
        head.e_phnum > (image->size - head.e_phoff) / sizeof(ElfW(Phdr)))
        return;
    ElfW(Phdr) dynamic = {0};
    image->low = (ElfW(Addr))-1;
    for (size_t i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) segment;
        memcpy(&segment, image->bytes + head.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type == PT_DYNAMIC)
            dynamic = segment;
        if (segment.p_type == PT_LOAD)
            image_note_segment(image, &segment);
    }
    if (dynamic.p_offset > image->size || dynamic.p_filesz > image->size - dynamic.p_offset)
        return;
    size_t size_at = 0;
    for (size_t i = 0; i < dynamic.p_filesz / sizeof(ElfW(Dyn)); i++) {
        size_t at = dynamic.p_offset + i * sizeof(ElfW(Dyn));
        ElfW(Dyn) entry;
        memcpy(&entry, image->bytes + at, sizeof entry);
        if (entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_INIT_ARRAY)
            image->init_at = entry.d_un.d_ptr;
        if (entry.d_tag == DT_INIT_ARRAYSZ) {
            image->init_count = entry.d_un.d_val / sizeof(void *);
            size_at = at + offsetof(ElfW(Dyn), d_un);
        }
    }
    if (image->init_at >= image->low && image->init_count > 0 &&
        image->init_at + image->init_count * sizeof(void *) <= image->high)
        image->initsz_at = size_at;
}

#endif /* GL_CAN_COPY */

/* Lets go of whole pages of a file that was read and never written to: up to 2 MB, which the
 * kernel has all the same. */
static void
pages_leave(uintptr_t at, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), low = (at + page - 1) / page * page;
    if (at + size > low)
        (void)madvise((void *)low, (at + size - low) / page * page, MADV_DONTNEED);
}

GL_PRIVATE void
instance_leave_tables(const gl_instance *instance)
{
#if GL_CAN_COPY
    const gl_image *image = &library.image;
    for (unsigned i = 0; i < image->tables && instance->high != 0; i++)
        pages_leave(instance->low - image->low + image->table[i].at, image->table[i].size);
#else
    (void)instance;
#endif
}

GL_PRIVATE const char *
image_map(void)
{
    if (library.image.bytes != NULL)
        return NULL;
    int fd = open(library.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return library_why("open: %s", strerror(errno));
    struct stat st = {0};
    void *bytes = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    const char *why = st.st_size > 0 ? strerror(errno) : "the file is empty";
    close(fd);
    if (bytes == MAP_FAILED)
        return library_why("mmap: %s", why);
    library.image.bytes = bytes;
    library.image.size = (size_t)st.st_size;
#if GL_CAN_COPY
    image_parse(&library.image);
#endif
    pages_leave((uintptr_t)bytes, library.image.size);
    return NULL;
}

/* Where the instance lies, so that a child can tell its addresses without ld.so. */
static void
instance_locate(gl_instance *instance, void *handle)
{
#if GL_CAN_COPY
    const gl_image *image = &library.image;
    struct link_map *map;
    if (image->high <= image->low || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    instance->low = map->l_addr + image->low;
    instance->high = map->l_addr + image->high;
    if (image->initsz_at != 0) {
        instance->init = (void *const *)(map->l_addr + image->init_at);
        instance->init_count = image->init_count;
    }
#else
    (void)instance, (void)handle;
#endif
}

GL_PRIVATE const char *
instance_open(gl_instance *instance, const char *name)
{
    memset(instance, 0, sizeof *instance);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        return library_why("dlopen: %s", why ? why : "failed without a message");
    }
    /* POSIX lets an object pointer from dlsym stand for a function. */
    *(void **)&instance->table = dlsym(handle, GL_TABLE_SYMBOL);
    if (instance->table == NULL) {
        dlclose(handle);
        return library_why("the file has no symbol " GL_TABLE_SYMBOL);
    }
    instance_locate(instance, handle);
    return NULL;
}

#if GL_CAN_COPY

/* Writes the file's bytes to a descriptor and opens them by a name; closes the descriptor.
 * `where` is for the message. */
static const char *
image_load_from(int fd, const char *name, const char *where, gl_instance *instance, bool spare)
{
    const size_t size = library.image.size;
    size_t done = 0;
    while (done < size) {
        /* A source page that has left the disk gives EFAULT, not a signal. */
        ssize_t n = write(fd, library.image.bytes + done, size - done);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    const ElfW(Xword) none = 0;
    const off_t count_at = (off_t)library.image.initsz_at;
    const char *why;
    if (done < size || (spare && pwrite(fd, &none, sizeof none, count_at) != sizeof none)) {
        why = library_why("write to a %s: %s", where, strerror(errno));
    } else {
#if defined(F_ADD_SEALS)
        /* Refused for a file on disk. */
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
#endif
        why = instance_open(instance, name);
    }
    pages_leave((uintptr_t)library.image.bytes, size);
    close(fd);
    return why;
}

static int
memfd(void)
{
#if defined(SYS_memfd_create)
    /* 1, 2: close-on-exec, allow seals.  8: not to be executed as a program, which a
     * system may ask of every memfd and kernels before 6.3 don't know; mapping
     * its code is another matter and allowed. */
    int fd = (int)syscall(SYS_memfd_create, "libgoloop.so", 1u | 2u | 8u);
    if (fd < 0 && errno == EINVAL)
        fd = (int)syscall(SYS_memfd_create, "libgoloop.so", 1u | 2u);
    return fd;
#else
    errno = ENOSYS;
    return -1;
#endif
}

/* More names than a process can hold instances: static TLS ends near 200. */
#define GL_SERIALS 512

/* Loads a copy from a memfd.  The serial makes the name new: as many more slashes. */
static const char *
image_load_memfd(gl_instance *instance, bool spare)
{
    int fd = memfd();
    if (fd < 0)
        return library_why("memfd_create: %s", strerror(errno));
    char slashes[GL_SERIALS] = "", name[sizeof GL_FD_DIRECTORY + GL_SERIALS + 16];
    memset(slashes, '/', ++library.serial % GL_SERIALS);
    snprintf(name, sizeof name, GL_FD_DIRECTORY "%s%d", slashes, fd);
    return image_load_from(fd, name, "memfd", instance, spare);
}

/* The same from a file that is unlinked at once, for a system without /proc. */
static const char *
image_load_file(gl_instance *instance, bool spare, const char *why)
{
    const char *directories[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
    for (size_t i = 0; why != NULL && i < sizeof directories / sizeof *directories; i++) {
        char name[512], where[256];
        if (directories[i] == NULL || directories[i][0] == '\0' ||
            snprintf(name, sizeof name, "%s/libgoloop-XXXXXX", directories[i]) >= (int)sizeof name)
            continue;
        int fd = mkostemp(name, O_CLOEXEC);
        if (fd < 0) {
            why = library_why("mkostemp in %.200s: %s", directories[i], strerror(errno));
            continue;
        }
        snprintf(where, sizeof where, "file in %.200s", directories[i]);
        why = image_load_from(fd, name, where, instance, spare);
        unlink(name);
    }
    return why;
}

static const char *
image_load(gl_instance *instance, bool spare)
{
    if (library.image.bytes == NULL)
        return library_why("the file could not be mapped when it was opened");
    const char *why = image_load_memfd(instance, spare);
    return why ? image_load_file(instance, spare, why) : NULL;
}

#endif /* GL_CAN_COPY */

GL_PRIVATE const char *
image_load_copy(gl_instance *instance)
{
#if GL_CAN_COPY
    return image_load(instance, false);
#else
    (void)instance;
    return library_why("this system has no way to load a second copy");
#endif
}

GL_PRIVATE const char *
image_load_spare(gl_instance *instance)
{
#if GL_CAN_SPARE
    if (library.image.initsz_at == 0)
        return library_why("the file has no constructors that could be held back");
    const char *why = image_load(instance, true);
    for (size_t i = 0; why == NULL && i < instance->init_count; i++) {
        uintptr_t entry = (uintptr_t)instance->init[i];
        if (entry < instance->low || entry >= instance->high)
            why = library_why("a constructor lies outside of the library");
    }
    if (why == NULL)
        instance_leave_tables(instance);
    return why;
#else
    (void)instance;
    return library_why("not tried on this platform");
#endif
}

GL_PRIVATE void
instance_start(const gl_instance *instance)
{
    for (size_t i = 0; i < instance->init_count; i++) {
        void (*constructor)(int, char **, char **);
        *(void **)&constructor = instance->init[i];
        constructor(library.argc, library.argv, library.envp);
    }
}
