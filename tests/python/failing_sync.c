/* Preloaded: the nth fsync or fdatasync after fail_sync(n) fails with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

static int countdown;

void fail_sync(int nth) { countdown = nth; }

static int synced(const char *name, int fd) {
    if (countdown > 0 && --countdown == 0) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }
