/* Preloaded into a process: notes, in order, what it makes durable and which names it gives. A line
 * for each call that succeeded, in the file $NOTED_CALLS:
 *
 *   sync SIZE PATH          fsync or fdatasync of a file of so many bytes, or of a folder
 *   has SIZE PATH           a file or folder in a folder, when its sync begins
 *   name SIZE PATH FROM     link or rename of a file of so many bytes, which has the name PATH now
 *   folder 0 PATH           mkdir
 *
 * With $NO_LINKS set there are no links, as on FAT and some network file systems.
 */
#define _GNU_SOURCE
#include <dirent.h>
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

/* The bytes of a file; 0 is those of a folder, and -1 without one. */
static long long size_of(const char *path) {
    struct stat is;
    if (stat(path, &is) != 0)
        return -1;
    return S_ISDIR(is.st_mode) ? 0 : (long long)is.st_size;
}

static void note(const char *what, long long size, const char *path, const char *from) {
    const char *noted = getenv("NOTED_CALLS");
    if (noted == NULL || size < 0)
        return;
    char line[3 * PATH_BYTES];
    int len = snprintf(line, sizeof line, "%s %lld %s%s%s\n", what, size, path,
                       from == NULL ? "" : " ", from == NULL ? "" : from);
    int fd = open(noted, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)len) != len)
        abort();
    close(fd);
}

static void note_names(const char *folder) {
    DIR *names = opendir(folder);
    if (names == NULL)
        return;
    char path[2 * PATH_BYTES];
    for (struct dirent *one; (one = readdir(names)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        note("has", size_of(path), path, NULL);
    }
    closedir(names);
}

static int synced(const char *how, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, how);
    char link[64], path[PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len < 0 ? 0 : len] = '\0';
    /* Others may write meanwhile. */
    long long size = size_of(path);
    note_names(path);
    int done = real(fd);
    int why = errno;
    if (done == 0)
        note("sync", size, path, NULL);
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
        note("name", size_of(to), to, from);
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
        note("folder", size_of(path), path, NULL);
    errno = why;
    return done;
}
