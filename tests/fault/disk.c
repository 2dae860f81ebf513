/* Preloaded into a worker: a disk under one folder that fails when it is told to, and writes down what it does.

   Counts the calls that change files there, kills the process or fails a call at a chosen one, and records
   every change with its data, in the order in which they happened. Processes that name one record take turns:
   no call of one comes between a call of another and its entry. CASSQ_DISK names the folder. What is written to
   mapped memory (the -shm file) is not seen; SQLite makes that anew. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, SIZE = 4, NAME = 8 };          /* what a call does */
enum { PASS, KILL, TEAR_AND_KILL, FAIL, SHORT_AND_FAIL };  /* what becomes of it */

#define FILES 4096
#define REAL(name) real_##name = (typeof(real_##name))dlsym(RTLD_NEXT, #name)

static char *names[FILES]; /* the path of each open file below the folder */
static const char *folder, *boot_id;
static size_t folder_length;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static int kinds, action, failure, is_lasting;
static long wanted, seen;

static int (*real_open64)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate64)(int, off64_t);
static int (*real_unlink)(const char *), (*real_rename)(const char *, const char *);

__attribute__((constructor)) static void begin(void) {
    if (real_open64)
        return;
    folder = getenv("CASSQ_DISK");
    folder_length = folder ? strlen(folder) : 0;
    REAL(close), REAL(write), REAL(pwrite64), REAL(fsync), REAL(fdatasync), REAL(ftruncate64);
    REAL(unlink), REAL(rename), REAL(open64);
}

/* Hold the disk: for the threads of this process, and for all that write the same record. */
static void hold(void) {
    pthread_mutex_lock(&guard);
    while (record >= 0 && flock(record, LOCK_EX))
        if (errno != EINTR)
            abort();
}

static void release(void) {
    int error = errno;
    if (record >= 0)
        flock(record, LOCK_UN);
    pthread_mutex_unlock(&guard);
    errno = error;
}

/* -- what the worker asks for -------------------------------------------------------------------------- */

void disk_arm(int of_kinds, long nth, int then, int error, int lasting) {
    hold();
    kinds = of_kinds, wanted = nth, action = then, failure = error, is_lasting = lasting, seen = 0;
    release();
}

/* Return how many calls there were since it was armed. */
long disk_disarm(void) {
    hold();
    action = PASS;
    long counted = seen;
    release();
    return counted;
}

void disk_record(const char *path) {
    begin();
    record = real_open64(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* From now on the machine was started anew: its boot id is what stands in this file. */
void disk_reboot(const char *path) { boot_id = strdup(path); }

/* -- the record: a head, a path and data, one behind the other ------------------------------------------- */

struct head {
    uint32_t kind, path_length;
    uint64_t inode, offset, length;
};

static void append(const void *bytes, size_t length) {
    for (const char *at = bytes; length;) {
        ssize_t done = real_write(record, at, length);
        if (done <= 0)
            abort();
        at += done, length -= (size_t)done;
    }
}

static void note(char kind, const char *path, uint64_t inode, uint64_t offset, const void *data, uint64_t length) {
    if (record < 0)
        return;
    struct head head = {(uint32_t)kind, (uint32_t)strlen(path), inode, offset, length};
    append(&head, sizeof head);
    append(path, head.path_length);
    if (data)
        append(data, length);
}

void disk_note(const char *who, const char *words) {
    hold();
    note('N', who, 0, 0, words, strlen(words));
    release();
}

static uint64_t inode_of(int file) {
    struct stat64 found;
    return fstat64(file, &found) ? 0 : found.st_ino;
}

/* -- faults ---------------------------------------------------------------------------------------------- */

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Return what becomes of a call of this kind, the guard being held. */
static int strike(int kind) {
    if (!action || !(kinds & kind))
        return PASS;
    seen++;
    if (!(seen == wanted || (is_lasting && seen > wanted)))
        return PASS;
    if (action == KILL || (action == TEAR_AND_KILL && kind != WRITE))
        die();
    errno = failure;
    return action == SHORT_AND_FAIL && (kind != WRITE || seen > wanted) ? FAIL : action;
}

static int is_below(const char *path) {
    return folder && !strncmp(path, folder, folder_length) && (!path[folder_length] || path[folder_length] == '/');
}

static const char *name_of(int file) { return file >= 0 && file < FILES ? names[file] : NULL; }

/* -- the calls ------------------------------------------------------------------------------------------- */

static int open_it(const char *path, int flags, mode_t mode) {
    begin();
    if (boot_id && !strcmp(path, "/proc/sys/kernel/random/boot_id"))
        path = boot_id;
    if (!is_below(path))
        return real_open64(path, flags, mode);
    hold();
    int is_new = (flags & O_CREAT) && access(path, F_OK);
    int file = -1;
    if (!is_new || strike(NAME) == PASS)
        file = real_open64(path, flags, mode);
    int error = errno;
    if (file >= 0 && file < FILES) {
        names[file] = strdup(path);
        if (is_new)
            note('C', path, inode_of(file), 0, NULL, 0);
        if (flags & O_TRUNC)
            note('T', path, inode_of(file), 0, NULL, 0);
    }
    release();
    errno = error;
    return file;
}

#define OPEN(name)                                                \
    int name(const char *path, int flags, ...) {                  \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more);                                             \
        return open_it(path, flags, mode);                        \
    }
OPEN(open)
OPEN(open64)

int close(int file) {
    begin();
    if (name_of(file)) {
        hold();
        free(names[file]);
        names[file] = NULL;
        release();
    }
    return real_close(file);
}

/* Write at an offset, or where the file stands when that is negative. */
static ssize_t write_it(int file, const void *data, size_t length, off64_t at) {
    begin();
    if (!name_of(file))
        return at < 0 ? real_write(file, data, length) : real_pwrite64(file, data, length, at);
    hold();
    int fate = strike(WRITE);
    ssize_t done = -1;
    off64_t offset = at < 0 ? lseek64(file, 0, SEEK_CUR) : at;
    if (fate == TEAR_AND_KILL || fate == SHORT_AND_FAIL)
        length = length / 2;
    if (fate != FAIL && (length || fate == PASS))
        done = at < 0 ? real_write(file, data, length) : real_pwrite64(file, data, length, at);
    if (fate == TEAR_AND_KILL)
        die();
    int error = errno;
    if (done > 0)
        note('W', names[file], inode_of(file), (uint64_t)offset, data, (uint64_t)done);
    release();
    errno = error;
    return done;
}

ssize_t write(int file, const void *data, size_t length) { return write_it(file, data, length, -1); }
ssize_t pwrite(int file, const void *data, size_t length, off_t at) { return write_it(file, data, length, at); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) { return write_it(file, data, length, at); }

/* Neither SQLite nor cassq is known to make these: one below the folder would go unseen. */
ssize_t writev(int file, const struct iovec *parts, int count) {
    if (name_of(file))
        abort();
    ssize_t (*real)(int, const struct iovec *, int) = dlsym(RTLD_NEXT, "writev");
    return real(file, parts, count);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) {
    if (name_of(file))
        abort();
    ssize_t (*real)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "pwritev");
    return real(file, parts, count, at);
}

static int change(int file, int kind, char noted, int (*real)(int), int (*sized)(int, off64_t), off64_t size) {
    begin();
    if (!name_of(file))
        return real ? real(file) : sized(file, size);
    hold();
    int failed = -1;
    if (strike(kind) == PASS)
        failed = real ? real(file) : sized(file, size);
    int error = errno;
    /* A sync that failed: what was to be written then may never be, though later ones succeed. */
    if (!failed || kind == SYNC)
        note(failed ? 'F' : noted, names[file], inode_of(file), (uint64_t)size, NULL, 0);
    release();
    errno = error;
    return failed;
}

/* Nothing here outlives the machine, so no sync below the folder goes to the disk: it is counted, and recorded. */
static int synced(int file) {
    (void)file;
    return 0;
}

int fsync(int file) { return begin(), change(file, SYNC, 'S', name_of(file) ? synced : real_fsync, NULL, 0); }
int fdatasync(int file) { return begin(), change(file, SYNC, 'S', name_of(file) ? synced : real_fdatasync, NULL, 0); }
int ftruncate(int file, off_t size) { return begin(), change(file, SIZE, 'T', NULL, real_ftruncate64, size); }
int ftruncate64(int file, off64_t size) { return begin(), change(file, SIZE, 'T', NULL, real_ftruncate64, size); }

int unlink(const char *path) {
    begin();
    if (!is_below(path))
        return real_unlink(path);
    hold();
    int failed = -1;
    if (access(path, F_OK) || strike(NAME) == PASS)
        failed = real_unlink(path);
    int error = errno;
    if (!failed)
        note('U', path, 0, 0, NULL, 0);
    release();
    errno = error;
    return failed;
}

int rename(const char *from, const char *to) {
    begin();
    if (is_below(from) || is_below(to))
        abort();
    return real_rename(from, to);
}
