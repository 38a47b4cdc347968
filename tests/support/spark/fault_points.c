/* Preloaded into every process of a job: lets a test stop a process at a named point of writing
 * state, or makes writes fail there as on a full disk.
 *
 * The folder $FAULT_POINTS belongs to the test. A file arm.<point> in it arms a point; its content
 * is an action, a number n and perhaps a partition, and the n-th time that a process passes the
 * point (with a segment of that partition) while it is armed, that process takes the file away (the
 * first one wins) and acts:
 *
 *   stop n    leaves its process id in reached.<point> and goes no further until go.<point> exists
 *   full n    half of this write is written; the rest, and no other write, fails with ENOSPC
 *
 * Only "count" leaves the file where it is: the process goes on, and passed.<point> has one byte more.
 *
 * Points: before-, torn- and after- each of append (a changelog), image (a base image) and seal (the
 * footer, after- with its sync) and input (rows of a parked partition); before- and after-entry
 * (commits/N gets its name), -plan (offsets/N does), -marker (isolation/N does) and -description
 * (Spark's description of an operator does); before- and after-object (a state file gets its name,
 * which on an object store it has at its end only); before- and after-delete (a state file is
 * removed); before- and after-hydration (the thread that brings state into memory beside the tasks
 * reads some of a state file). They are recognised by the bytes and
 * names that rust/core/FORMAT.md defines, and the last by the name of the thread, so the product
 * knows nothing of this. Where the checkpoint lies on an object store, it is the store's
 * process that gives commits/N and state files their names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FRAME_HEAD = 2, FRAME_FOOTER = 4, FRAME_HEADER_BYTES = 20 };
/* Fields of a head, and of the owner in it. */
enum { HEAD_OWNER = 1, HEAD_KIND = 3, OWNER_REGION = 3 };
enum { PHASES = 3, PATH_BYTES = 4096, PARTITION_BYTES = 16, GIVE_UP_MS = 300000 };

enum action { PASS, STOP, FULL };

static const char *const PHASE[PHASES] = {"before", "torn", "after"};
static const char *const WHAT[] = {"append", "image", "seal", "entry",
                                   "object", "delete", "hydration", "input", "marker",
                                   "plan", "description"};
enum what {
    APPEND, IMAGE, SEAL, ENTRY, OBJECT, DELETE, HYDRATION, INPUT, MARKER, PLAN, DESCRIPTION, WHATS
};

static atomic_int passes[WHATS][PHASES];
/* A file descriptor whose footer was just written by this thread, and one whose disk is full. */
static __thread int sealed_fd = -1;
static __thread int full_fd = -1;

static void control_path(char *out, const char *prefix, enum what what, int phase) {
    snprintf(out, PATH_BYTES, "%s/%s.%s-%s", getenv("FAULT_POINTS"), prefix, PHASE[phase],
             WHAT[what]);
}

static void count(enum what what, int phase) {
    char passed[PATH_BYTES];
    control_path(passed, "passed", what, phase);
    FILE *file = fopen(passed, "a");
    if (file == NULL)
        abort();
    fputc('.', file);
    fclose(file);
}

/* What to do at this point, now; the partition is empty where there is none. */
static enum action claim(enum what what, int phase, const char *partition) {
    char armed[PATH_BYTES], claimed[PATH_BYTES], action[16], wanted[PARTITION_BYTES];
    int nth = 1;
    if (getenv("FAULT_POINTS") == NULL)
        return PASS;
    control_path(armed, "arm", what, phase);
    FILE *file = fopen(armed, "r");
    if (file == NULL)
        return PASS;
    int fields = fscanf(file, "%15s %d %15s", action, &nth, wanted);
    fclose(file);
    if (fields == 3 && strcmp(wanted, partition) != 0)
        return PASS;
    if (fields >= 1 && strcmp(action, "count") == 0) {
        count(what, phase);
        return PASS;
    }
    if (fields < 1 || atomic_fetch_add(&passes[what][phase], 1) + 1 < nth)
        return PASS;
    control_path(claimed, "claimed", what, phase);
    /* The real rename: this is no rename of the process under test. */
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    if (real(armed, claimed) != 0)
        return PASS;
    atomic_store(&passes[what][phase], 0);
    return strcmp(action, "full") == 0 ? FULL : STOP;
}

static void stop(enum what what, int phase) {
    char staged[PATH_BYTES], reached[PATH_BYTES], go[PATH_BYTES];
    control_path(staged, "staged", what, phase);
    control_path(reached, "reached", what, phase);
    control_path(go, "go", what, phase);
    FILE *file = fopen(staged, "w");
    if (file == NULL)
        abort();
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    real(staged, reached);
    for (int waited_ms = 0; access(go, F_OK) != 0; waited_ms += 2) {
        if (waited_ms > GIVE_UP_MS)
            _exit(1);
        usleep(2000);
    }
}

static void pass(enum what what, int phase, const char *partition) {
    if (claim(what, phase, partition) == STOP)
        stop(what, phase);
}

static bool is_state_file(const char *path) {
    size_t len = strlen(path);
    return len > 3 && strcmp(path + len - 3, ".hf") == 0 && strstr(path, "/holdfast/") != NULL;
}

/* Whether a file is that of a batch in a folder. */
static bool is_entry(const char *path, const char *folder) {
    const char *name = strrchr(path, '/');
    size_t folder_len = strlen(folder);
    if (name == NULL || (size_t)(name - path) < folder_len || name[1] == '\0')
        return false;
    return strncmp(name - folder_len, folder, folder_len) == 0 &&
           strspn(name + 1, "0123456789") == strlen(name + 1);
}

/* Whether a file says what the state of an operator is. */
static bool is_description(const char *path) {
    size_t len = strlen(path);
    return is_entry(path, "/_metadata/v2") ||
           (len > 19 && strcmp(path + len - 19, "/_metadata/metadata") == 0);
}

static uint64_t varint(const unsigned char **at, const unsigned char *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    return value;
}

/* A field of a message of numbers and bytes, 0 without it: its value, or the number of its bytes,
 * which begin where *at points to afterwards. */
static uint64_t field(const unsigned char **at, const unsigned char *end, unsigned wanted) {
    while (*at < end) {
        uint64_t tag = varint(at, end);
        uint64_t value = varint(at, end);
        if (tag >> 3 == wanted)
            return value;
        if ((tag & 7) == 2)
            *at += value;
    }
    return 0;
}

static void read_partition(char *out, const unsigned char *head, const unsigned char *end) {
    uint64_t len = field(&head, end, HEAD_OWNER);
    const unsigned char *owner_end = head + len;
    len = field(&head, owner_end, OWNER_REGION);
    if (len < PARTITION_BYTES) {
        memcpy(out, head, len);
        out[len] = '\0';
    }
}

/* What a write to a state file is, and the partition of a segment; WHATS when it is of no interest. */
static enum what recognise(const unsigned char *bytes, size_t len, char *partition) {
    if (bytes[6] == FRAME_FOOTER)
        return SEAL;
    if (bytes[6] != FRAME_HEAD)
        return WHATS;
    const unsigned char *head = bytes + FRAME_HEADER_BYTES, *end = bytes + len;
    read_partition(partition, head, end);
    switch (field(&head, end, HEAD_KIND)) {
    case 1:
        return APPEND;
    case 2:
    case 5:
        return IMAGE;
    case 4:
        return INPUT;
    default:
        return WHATS;
    }
}

static bool is_of_state(int fd) {
    char link[64], path[PATH_BYTES];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0)
        return false;
    path[len] = '\0';
    return is_state_file(path);
}

ssize_t write(int fd, const void *bytes, size_t len) {
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (fd == full_fd) {
        full_fd = -1;
        errno = ENOSPC;
        return -1;
    }
    char partition[PARTITION_BYTES] = "";
    bool frame = len > FRAME_HEADER_BYTES && memcmp(bytes, "HLDF", 4) == 0;
    enum what what = frame ? recognise(bytes, len, partition) : WHATS;
    if (what == WHATS || !is_of_state(fd))
        return real(fd, bytes, len);
    sealed_fd = what == SEAL ? fd : -1;
    switch (claim(what, 0, partition)) {
    case STOP:
        stop(what, 0);
        break;
    case FULL:
        full_fd = fd;
        return real(fd, bytes, len / 2);
    case PASS:
        break;
    }
    if (claim(what, 1, partition) == STOP) {
        ssize_t half = real(fd, bytes, len / 2);
        stop(what, 1);
        return half;
    }
    ssize_t done = real(fd, bytes, len);
    if (what != SEAL)
        pass(what, 2, partition);
    return done;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    int done = real(fd);
    if (fd == sealed_fd) {
        sealed_fd = -1;
        pass(SEAL, 2, "");
    }
    return done;
}

static int give_name(const char *how, const char *from, const char *to) {
    int (*real)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, how);
    enum what what = is_entry(to, "/commits")     ? ENTRY
                     : is_entry(to, "/offsets")   ? PLAN
                     : is_description(to)         ? DESCRIPTION
                     : is_entry(to, "/isolation") ? MARKER
                     : is_state_file(to)          ? OBJECT
                                                  : WHATS;
    if (what == WHATS)
        return real(from, to);
    pass(what, 0, "");
    int done = real(from, to);
    int why = errno;
    pass(what, 2, "");
    errno = why;
    return done;
}

int rename(const char *from, const char *to) { return give_name("rename", from, to); }

int link(const char *from, const char *to) { return give_name("link", from, to); }

int unlink(const char *path) {
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (!is_state_file(path))
        return real(path);
    pass(DELETE, 0, "");
    int done = real(path);
    pass(DELETE, 2, "");
    return done;
}

/* "holdfast-hydrator", of which a JVM leaves out the end or the middle. */
static bool is_hydrator(void) {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return strncmp(name, "holdfas", 7) == 0 && strstr(name, "drat") != NULL;
}

/* What Rust reads files with. */
ssize_t pread64(int fd, void *bytes, size_t len, off64_t at) {
    ssize_t (*real)(int, void *, size_t, off64_t) =
        (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    if (!is_hydrator() || !is_of_state(fd))
        return real(fd, bytes, len, at);
    pass(HYDRATION, 0, "");
    ssize_t done = real(fd, bytes, len, at);
    int why = errno;
    pass(HYDRATION, 2, "");
    errno = why;
    return done;
}
