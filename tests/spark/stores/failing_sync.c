/* Preloaded into the JVM: fdatasync fails once, with EIO, after somebody made the marker file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd) {
    const char *marker = getenv("FAILING_SYNC_MARKER");
    if (marker != NULL && unlink(marker) == 0) {
        errno = EIO;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}
