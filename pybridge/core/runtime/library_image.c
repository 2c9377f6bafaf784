/*
 * library_image.c: the file of the Go library, and copies of it to load.
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
 * Used by library.c only; the caller serialises.
 */
#include "runtime/private.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
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
        if (segment.p_type != PT_LOAD)
            continue;
        if (segment.p_vaddr < image->low)
            image->low = segment.p_vaddr;
        if (segment.p_vaddr + segment.p_memsz > image->high)
            image->high = segment.p_vaddr + segment.p_memsz;
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

GL_PRIVATE bool
image_map(gl_image *image, const char *path, char *message, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        snprintf(message, cap, "open: %s", strerror(errno));
        return false;
    }
    struct stat st;
    void *bytes = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int err = errno;
    close(fd);
    if (bytes == MAP_FAILED) {
        snprintf(message, cap, "mmap: %s", st.st_size > 0 ? strerror(err) : "the file is empty");
        return false;
    }
    image->bytes = bytes;
    image->size = (size_t)st.st_size;
#if GL_CAN_COPY
    image_parse(image);
#endif
    return true;
}

/* Where the instance lies, so that a child can tell its addresses without ld.so. */
static void
instance_locate(gl_instance *instance, void *handle, const gl_image *image)
{
#if GL_CAN_COPY
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
    (void)instance, (void)handle, (void)image;
#endif
}

GL_PRIVATE bool
instance_open(gl_instance *instance, const char *name, const gl_image *image,
                 char *message, size_t cap)
{
    memset(instance, 0, sizeof *instance);
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        snprintf(message, cap, "dlopen: %s", why ? why : "failed without a message");
        return false;
    }
    /* POSIX lets an object pointer from dlsym stand for a function. */
    *(void **)&instance->table = dlsym(handle, GL_TABLE_SYMBOL);
    if (instance->table == NULL) {
        snprintf(message, cap, "the file has no symbol " GL_TABLE_SYMBOL);
        dlclose(handle);
        return false;
    }
    instance_locate(instance, handle, image);
    return true;
}

#if GL_CAN_COPY

/* Writes all; a source page that has left the disk gives EFAULT, not a signal. */
static bool
write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

static bool
image_write(const gl_image *image, int fd, bool spare)
{
    if (!write_all(fd, image->bytes, image->size))
        return false;
    ElfW(Xword) none = 0;
    return !spare || pwrite(fd, &none, sizeof none, (off_t)image->initsz_at) == sizeof none;
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

/* Loads a copy from a memfd.  `serial` makes the name new: as many more slashes. */
static bool
image_load_memfd(const gl_image *image, gl_instance *instance, bool spare,
                    unsigned serial, char *message, size_t cap)
{
    int fd = memfd();
    if (fd < 0) {
        snprintf(message, cap, "memfd_create: %s", strerror(errno));
        return false;
    }
    bool loaded = false;
    if (!image_write(image, fd, spare)) {
        snprintf(message, cap, "write to a memfd: %s", strerror(errno));
    } else {
#if defined(F_ADD_SEALS)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
#endif
        char name[sizeof GL_FD_DIRECTORY + GL_SERIALS + 16] = GL_FD_DIRECTORY;
        size_t length = strlen(name) + serial % GL_SERIALS;
        memset(name + strlen(name), '/', serial % GL_SERIALS);
        snprintf(name + length, sizeof name - length, "%d", fd);
        loaded = instance_open(instance, name, image, message, cap);
    }
    close(fd);
    return loaded;
}

/* The same from a file that is unlinked at once, for a system without /proc. */
static bool
image_load_file(const gl_image *image, gl_instance *instance, bool spare,
                   char *message, size_t cap)
{
    const char *directories[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        char name[512];
        if (directories[i] == NULL || directories[i][0] == '\0' ||
            snprintf(name, sizeof name, "%s/libgoloop-XXXXXX", directories[i]) >= (int)sizeof name)
            continue;
        int fd = mkostemp(name, O_CLOEXEC);
        if (fd < 0) {
            snprintf(message, cap, "mkostemp in %.200s: %s", directories[i], strerror(errno));
            continue;
        }
        bool written = image_write(image, fd, spare);
        if (!written)
            snprintf(message, cap, "write to a file in %.200s: %s", directories[i], strerror(errno));
        close(fd);
        bool loaded = written && instance_open(instance, name, image, message, cap);
        unlink(name);
        if (loaded)
            return true;
    }
    return false;
}

static bool
image_load(const gl_image *image, gl_instance *instance, bool spare,
              unsigned serial, char *message, size_t cap)
{
    if (image->bytes == NULL) {
        snprintf(message, cap, "the file could not be mapped when it was opened");
        return false;
    }
    return image_load_memfd(image, instance, spare, serial, message, cap) ||
           image_load_file(image, instance, spare, message, cap);
}

#endif /* GL_CAN_COPY */

GL_PRIVATE bool
image_load_copy(const gl_image *image, gl_instance *instance, unsigned serial,
                   char *message, size_t cap)
{
#if GL_CAN_COPY
    return image_load(image, instance, false, serial, message, cap);
#else
    (void)image, (void)instance, (void)serial;
    snprintf(message, cap, "this system has no way to load a second copy");
    return false;
#endif
}

GL_PRIVATE bool
image_load_spare(const gl_image *image, gl_instance *instance, unsigned serial,
                    char *message, size_t cap)
{
#if GL_CAN_SPARE
    if (image->initsz_at == 0) {
        snprintf(message, cap, "the file has no constructors that could be held back");
        return false;
    }
    if (!image_load(image, instance, true, serial, message, cap))
        return false;
    for (size_t i = 0; i < instance->init_count; i++) {
        uintptr_t entry = (uintptr_t)instance->init[i];
        if (entry < instance->low || entry >= instance->high) {
            snprintf(message, cap, "a constructor lies outside of the library");
            return false;
        }
    }
    return true;
#else
    (void)image, (void)instance, (void)serial;
    snprintf(message, cap, "not tried on this platform");
    return false;
#endif
}

GL_PRIVATE void
instance_start(const gl_instance *instance, int argc, char **argv, char **envp)
{
    for (size_t i = 0; i < instance->init_count; i++) {
        void (*constructor)(int, char **, char **);
        *(void **)&constructor = instance->init[i];
        constructor(argc, argv, envp);
    }
}
