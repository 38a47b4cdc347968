/* Preloaded into a process: notes, in order, what it makes durable and which names it gives. A line
 * for each call that succeeded, in the file $NOTED_CALLS:
 *
 *   sync SIZE PATH          fsync or fdatasync of a file of so many bytes, or of a folder
 *   name SIZE PATH FROM     link or rename of a file of so many bytes, which has the name PATH now
 *   folder 0 PATH           mkdir
 *
 * With $NO_LINKS set there are no links, as on FAT and some network file systems.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static void note(const char *what, const char *path, const char *from) {
    const char *noted = getenv("NOTED_CALLS");
    struct stat is;
    if (noted == NULL || stat(path, &is) != 0)
        return;
    char line[3 * PATH_BYTES];
    long long size = S_ISDIR(is.st_mode) ? 0 : (long long)is.st_size;
    int len = snprintf(line, sizeof line, "%s %lld %s%s%s\n", what, size, path,
                       from == NULL ? "" : " ", from == NULL ? "" : from);
    int fd = open(noted, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)len) != len)
        abort();
    close(fd);
}

static int synced(const char *how, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, how);
    int done = real(fd);
    int why = errno;
    char link[64], path[PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (done == 0 && len > 0) {
        path[len] = '\0';
        note("sync", path, NULL);
    }
    errno = why;
    return done;
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }

static int give_name(const char *how, const char *from, const char *to) {
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, how);
    int done = real(from, to);
    int why = errno;
    if (done == 0)
        note("name", to, from);
    errno = why;
    return done;
}

int rename(const char *from, const char *to) { return give_name("rename", from, to); }

int link(const char *from, const char *to) {
    if (getenv("NO_LINKS") != NULL) {
        errno = EPERM;
        return -1;
    }
    return give_name("link", from, to);
}

int mkdir(const char *path, mode_t mode) {
    int (*real)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    int done = real(path, mode);
    int why = errno;
    if (done == 0)
        note("folder", path, NULL);
    errno = why;
    return done;
}
