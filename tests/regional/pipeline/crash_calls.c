/* Preloaded: after die_before(n), the n-th call that would change files is the last thing that this
 * process does. If the call writes, half of it is written, so that the file has a torn end. After
 * fail_at(n), the n-th call that changes or syncs files fails, as on a full or broken disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int to_death, to_failure;

void die_before(int nth) { atomic_store(&to_death, nth); }

void fail_at(int nth) { atomic_store(&to_failure, nth); }

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static bool reaches_zero(atomic_int *countdown) {
    return atomic_load(countdown) > 0 && atomic_fetch_sub(countdown, 1) == 1;
}

static bool fails(int error) {
    errno = error;
    return reaches_zero(&to_failure);
}

/* Before a call that does not write; returns whether it fails. */
static bool change(void) {
    if (reaches_zero(&to_death))
        die();
    return fails(ENOSPC);
}

/* Pipes and sockets are no files, and the log is not what is tested. */
static bool is_file(int fd) {
    struct stat found;
    return fd > STDERR_FILENO && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (is_file(fd) && reaches_zero(&to_death)) {
        real(fd, bytes, count / 2);
        die();
    }
    if (is_file(fd) && fails(ENOSPC))
        return -1;
    return real(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    ssize_t (*real)(int, const struct iovec *, int) =
        (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (is_file(fd) && reaches_zero(&to_death)) {
        struct iovec torn = {parts[0].iov_base, parts[0].iov_len / 2};
        real(fd, count > 1 ? parts : &torn, count > 1 ? count - 1 : 1);
        die();
    }
    if (is_file(fd) && fails(ENOSPC))
        return -1;
    return real(fd, parts, count);
}

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    if (flags & (O_CREAT | O_TRUNC) && change())
        return -1;
    return REAL(name, const char *, int, mode_t)(path, flags, mode);
}

static mode_t mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, mode_t) : 0; }

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = mode_of(flags, more);
    va_end(more);
    return opened("open64", path, flags, mode);
}

int rename(const char *from, const char *to) {
    if (change())
        return -1;
    return REAL("rename", const char *, const char *)(from, to);
}

int link(const char *from, const char *to) {
    if (change())
        return -1;
    return REAL("link", const char *, const char *)(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (change())
        return -1;
    return REAL("linkat", int, const char *, int, const char *, int)(from_folder, from, to_folder,
                                                                     to, flags);
}

int unlink(const char *path) {
    if (change())
        return -1;
    return REAL("unlink", const char *)(path);
}

int mkdir(const char *path, mode_t mode) {
    if (change())
        return -1;
    return REAL("mkdir", const char *, mode_t)(path, mode);
}

int rmdir(const char *path) {
    if (change())
        return -1;
    return REAL("rmdir", const char *)(path);
}

int fsync(int fd) { return fails(EIO) ? -1 : REAL("fsync", int)(fd); }

int fdatasync(int fd) { return fails(EIO) ? -1 : REAL("fdatasync", int)(fd); }
