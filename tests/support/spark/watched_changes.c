/* Preloaded into a process: acts before it changes files of a folder, as a test orders.
 *
 * The folder $WATCHED_CHANGES belongs to the test. Its file `order` has an action, a number n, a part
 * of paths, and a folder. A change creates, writes, names or removes a file of that folder, with that
 * part in its path. Actions:
 *
 *   image n     copies the folder to images/<number> before every change, of which `before` there is
 *               the path. The files are what a kill at this moment would leave.
 *   stop n      stops the process with SIGSTOP before the n-th change, and leaves its id in `reached`
 *   kill n      ends the process with SIGKILL before the n-th change
 *   full n      the changes behind the n-th that take space fail with ENOSPC; the first of these
 *               leaves `reached`, too
 *
 * The first process to `stop` or `kill` takes the order away. Hidden files are temporary ones of
 * Hadoop, and count for `full` alone. With $NOTED_CALLS (see noted_calls.c), an image has that file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, WORD_BYTES = 64 };

struct order {
    char action[WORD_BYTES];
    int nth;
    char part[WORD_BYTES];
    char folder[PATH_BYTES];
};

/* No file is changed while an image is made, or while the process is about to end. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static struct order last;
static int changes;

static void control(char *out, const char *name) {
    snprintf(out, PATH_BYTES, "%s/%s", getenv("WATCHED_CHANGES"), name);
}

static bool read_order(struct order *order) {
    char path[PATH_BYTES];
    if (getenv("WATCHED_CHANGES") == NULL)
        return false;
    control(path, "order");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    int fields = fscanf(file, "%63s %d %63s %4095s", order->action, &order->nth, order->part,
                        order->folder);
    fclose(file);
    return fields == 4;
}

static bool is(const struct order *order, const char *action) {
    return strcmp(order->action, action) == 0;
}

static bool concerns(const struct order *order, const char *path) {
    size_t len = strlen(order->folder);
    return strncmp(path, order->folder, len) == 0 && path[len] == '/' &&
           strstr(path + len, order->part) != NULL;
}

static void copy_folder(const struct order *order, int number, const char *before) {
    char name[WORD_BYTES], to[PATH_BYTES];
    snprintf(name, sizeof name, "images/%d", number);
    control(to, name);
    int (*make)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    char *noted = getenv("NOTED_CALLS"), *none[] = {NULL};
    char *words[] = {"cp", "-a", (char *)order->folder, to, NULL, NULL, NULL};
    if (noted != NULL) {
        words[3] = noted;
        words[4] = to;
    }
    pid_t process;
    int status = 1;
    if (make(to, 0700) != 0 || posix_spawn(&process, "/bin/cp", NULL, NULL, words, none) != 0 ||
        waitpid(process, &status, 0) != process || status != 0)
        abort();
    strncat(to, "/before", sizeof to - strlen(to) - 1);
    FILE *file = fopen(to, "w");
    if (file == NULL || fprintf(file, "%s\n", before) < 0 || fclose(file) != 0)
        abort();
}

static void leave_id(void) {
    char path[PATH_BYTES];
    control(path, "reached");
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0)
        abort();
}

static void act(const struct order *order) {
    char path[PATH_BYTES];
    control(path, "order");
    int (*take)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (take(path) != 0)
        return;
    if (is(order, "stop"))
        leave_id();
    /* To this thread: another one may take a signal to the process late. */
    raise(is(order, "stop") ? SIGSTOP : SIGKILL);
}

enum turn { FREE, HELD, NO_SPACE };

/* What comes before a change; `finish` comes after it. */
static enum turn begin(const char *path, bool takes_space) {
    struct order order = {0};
    int why = errno;
    if (!read_order(&order) || !concerns(&order, path)) {
        errno = why;
        return FREE;
    }
    pthread_mutex_lock(&one_at_a_time);
    if (memcmp(&last, &order, sizeof order) != 0) {
        last = order;
        changes = 0;
    }
    bool counts = is(&order, "full") || strrchr(path, '/')[1] != '.';
    changes += counts;
    bool full = is(&order, "full") && takes_space && changes > order.nth;
    if (counts && is(&order, "image"))
        copy_folder(&order, changes, path);
    else if (counts && !is(&order, "full") && changes == order.nth)
        act(&order);
    if (full)
        leave_id();
    errno = full ? ENOSPC : why;
    if (full)
        pthread_mutex_unlock(&one_at_a_time);
    return full ? NO_SPACE : HELD;
}

static void finish(enum turn turn) {
    int why = errno;
    if (turn == HELD)
        pthread_mutex_unlock(&one_at_a_time);
    errno = why;
}

#define CHANGE(path, takes_space, type, call)                                                      \
    do {                                                                                           \
        enum turn turn = begin(path, takes_space);                                                 \
        if (turn == NO_SPACE)                                                                      \
            return -1;                                                                             \
        type done = call;                                                                          \
        finish(turn);                                                                              \
        return done;                                                                               \
    } while (false)

#define REAL(name, type, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

/* The path of a regular file, or an empty one. */
static const char *path_of(int fd, char *path) {
    struct stat found;
    char link[WORD_BYTES];
    int why = errno;
    path[0] = '\0';
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(link, path, PATH_BYTES - 1);
        path[len < 0 ? 0 : len] = '\0';
    }
    errno = why;
    return path;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    char path[PATH_BYTES];
    CHANGE(path_of(fd, path), true, ssize_t,
           REAL("write", ssize_t, int, const void *, size_t)(fd, bytes, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_BYTES];
    CHANGE(path_of(fd, path), true, ssize_t,
           REAL("writev", ssize_t, int, const struct iovec *, int)(fd, parts, count));
}

static int opened(const char *how, const char *path, int flags, mode_t mode) {
    if (!(flags & O_CREAT))
        return REAL(how, int, const char *, int, mode_t)(path, flags, mode);
    CHANGE(path, true, int, REAL(how, int, const char *, int, mode_t)(path, flags, mode));
}

static mode_t mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, mode_t) : 0; }

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = mode_of(flags, more);                                                        \
        va_end(more);                                                                              \
        return opened(#name, path, flags, mode);                                                   \
    }

OPEN(open)
OPEN(open64)

int rename(const char *from, const char *to) {
    CHANGE(to, false, int, REAL("rename", int, const char *, const char *)(from, to));
}

int link(const char *from, const char *to) {
    CHANGE(to, false, int, REAL("link", int, const char *, const char *)(from, to));
}

int unlink(const char *path) { CHANGE(path, false, int, REAL("unlink", int, const char *)(path)); }

/* Of files, by which Java deletes them. */
int remove(const char *path) { CHANGE(path, false, int, REAL("remove", int, const char *)(path)); }

int mkdir(const char *path, mode_t mode) {
    CHANGE(path, true, int, REAL("mkdir", int, const char *, mode_t)(path, mode));
}
