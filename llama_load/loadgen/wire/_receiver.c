/* The compiled receiver: one thread that reads the sockets of a process and stamps what it read.
 *
 * Python may be busy for milliseconds. Tokens that arrive meanwhile would wait in the kernel, which merges them and keeps only the
 * last one's arrival time. This thread never holds the interpreter's lock, so nothing that Python does delays it. It understands
 * nothing: it keeps the bytes of each read with their arrival time, and wakes Python (by an eventfd) where Python has to look.
 *
 * Python calls: add, keep, hold, collect, receive, remove (see `llama_load.loadgen.wire.receiver`). All of them and the thread share one
 * mutex with priority inheritance, which is held for one read of one socket at most.
 *
 * Only functions of Python's limited API are used, so one build serves all versions from 3.11 on.
 */
#define _GNU_SOURCE
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel's stamps come under the number of the option that asked for them: the old one, which Python sets, and whose times have
 * two longs, or the new one of 32-bit machines, whose times have 64 bits. The C library's headers name only one of the two. */
#define OLD_STAMP 35
#define NEW_STAMP 64

#define NS_PER_S 1000000000LL

/* Bytes of one read. */
#define READ_BYTES (64 * 1024)
/* Sockets of one turn of the thread. */
#define MOST_EVENTS 256
/* A stream with this much is full: Python is woken. */
#define FULL_BYTES (32 * 1024)
/* With this much its socket is read no more until Python has taken it: the rest stays in the kernel, which slows the sender. */
#define PAUSE_BYTES (96 * 1024)
/* An empty stream keeps a buffer of this size. */
#define SMALL_BYTES (8 * 1024)
/* Reads outside of these sizes may be the end of an answer or a part of something (llama_load.loadgen.wire.slab has the same). */
#define LEAST_PLAIN_BYTES 32
#define MOST_PLAIN_BYTES (16 * 1024)
/* A difference of CLOCK_REALTIME and CLOCK_MONOTONIC that changes by more than this has stepped (llama_load.ground.clock). */
#define STEP_NS 1000000
#define TIGHT_SAMPLE_NS 5000
#define SAMPLE_TRIES 5
/* Streams are read together, every few milliseconds: a wake-up costs more than a read, and the kernel stamps each segment, so that
 * nothing is lost by reading it late, unless a second one of its stream comes meanwhile: the kernel merges the two. So the period
 * stays below a quarter of nearly the shortest gap between two reads of a stream. */
#define LONGEST_PERIOD_NS 3000000
#define SHORTEST_PERIOD_NS 250000
#define GAPS_PER_PERIOD 4
/* With fewer streams every read is at once. */
#ifndef FEW_STREAMS
#define FEW_STREAMS 8
#endif
/* Gaps of which the shortest is the first estimate. */
#ifndef LEARNING_GAPS
#define LEARNING_GAPS 64
#endif
/* The estimate's steps: it settles where 0.2 % of the gaps are shorter. */
#define GAP_DOWN 0.98
#define GAP_UP 1.00004
#define LONGEST_GAP_NS (double)NS_PER_S
/* The share of a core, in percent, above which the thread gives its real-time priority back, and how often that is judged. */
#define MOST_BUSY_PERCENT 70
#define BUSY_PERIOD_NS (NS_PER_S / 2)

/* What an event is about that is no stream: a key of a descriptor has no number above INT_MAX in its lower half. */
#define STOP_KEY UINT64_MAX
#define BATCH_KEY (UINT64_MAX - 1)

/* Linux 5.11; the number is the same on all machines, and older headers have no name for it. */
#define SYS_EPOLL_PWAIT2 441

/* The kernel's times: of 64 bits on all machines, and those of old calls on 32-bit machines. */
struct wide_time {
    int64_t tv_sec;
    int64_t tv_nsec;
};
struct narrow_time {
    int32_t tv_sec;
    int32_t tv_nsec;
};
_Static_assert(sizeof(struct wide_time) == 16 && sizeof(struct narrow_time) == 8, "the kernel's times have no padding");
_Static_assert(INT_MAX <= INT32_MAX, "a descriptor fits the lower half of an event's key");

/* How a stream ended: not yet, by its peer, else an errno. */
#define NOT_ENDED 0
#define END_OF_STREAM (-1)

struct piece {
    int64_t at_ns;   /* monotonic; negative: taken in user space, because the kernel gave none */
    uint32_t length; /* bytes */
};

struct queue {
    struct stream *first;
    struct stream *last;
};

struct stream {
    int fd;
    uint32_t generation;
    char *bytes;
    size_t used;
    size_t room;
    struct piece *pieces;
    size_t count;
    size_t piece_room;
    size_t plain;       /* the first pieces, each of which holds whole events and has a stamp of the kernel */
    int64_t last_ns;    /* arrival of the last read: a step of the clock must not put a later one before it */
    int ended;
    char is_kept;       /* wake Python only for a read that is not plain, an end, or a full stream; it is in the batch */
    char is_held;       /* Python asked for no more for now */
    char end_is_reported;
    char is_paused;     /* its socket is not watched */
    struct queue *queue; /* in which it waits for Python, or NULL */
    struct stream *previous; /* in that queue */
    struct stream *next;
};

struct receiver {
    PyObject_HEAD
    pthread_mutex_t mutex;
    pthread_t thread;
    pid_t pid;
    char has_mutex;
    char is_running;
    char stops;
    char is_signalled;  /* the eventfd is readable */
    int epoll_fd;       /* streams that are read at once */
    int batch_fd;       /* those that are kept; itself in `epoll_fd` while there is no period */
    int64_t period_ns;  /* the batch is read this often; 0: at once */
    int64_t batch_ns;   /* when it is read next */
    size_t batched;
    double gap_ns;      /* the estimate of the shortest gap between two reads of a stream */
    int gaps_to_learn;
    int wake_fd;        /* wakes Python */
    int stop_fd;        /* wakes the thread */
    struct stream **streams; /* by descriptor */
    size_t stream_room;
    uint32_t generations;
    struct queue urgent;  /* streams that wait for their first token, or ended */
    struct queue later;   /* streams that are full */
    int64_t offset_ns;    /* CLOCK_REALTIME - CLOCK_MONOTONIC of the batch of reads */
    int64_t before_ns;    /* the same before a step since the last batch; without one: equal */
    pid_t thread_id;
    sem_t has_begun;
    char may_real_time;
    char is_real_time;
    uint64_t reads;
    int64_t longest_wait_ns; /* between the arrival of a read and its reading */
    char scratch[READ_BYTES];
};

/* ------------------------------------------------------------------ clocks */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t wall_minus_monotonic_ns(void)
{
    int64_t best_width = INT64_MAX;
    int64_t best = 0;

    for (int sample = 0; sample < SAMPLE_TRIES; sample++) {
        int64_t before = clock_ns(CLOCK_MONOTONIC);
        int64_t wall = clock_ns(CLOCK_REALTIME);
        int64_t after = clock_ns(CLOCK_MONOTONIC);
        int64_t width = after - before;

        if (width < best_width) {
            best_width = width;
            best = wall - (before + width / 2);
        }
        if (width <= TIGHT_SAMPLE_NS)
            break;
    }
    return best;
}

/* The clocks of a new batch of reads. */
static void sample_clocks(struct receiver *self)
{
    int64_t offset = wall_minus_monotonic_ns();
    int64_t moved = offset - self->offset_ns;

    self->before_ns = moved > STEP_NS || moved < -STEP_NS ? self->offset_ns : offset;
    self->offset_ns = offset;
}

/* A stamp of the kernel on the monotonic clock (see `BatchClock.arrival_ns`). */
static int64_t arrival_ns(int64_t stamp_ns, int64_t offset_ns, int64_t before_ns, int64_t now_ns, int64_t previous_ns)
{
    int64_t at = stamp_ns - offset_ns;

    if (before_ns != offset_ns) {
        int64_t earlier = stamp_ns - before_ns;

        if (at > now_ns)
            at = earlier <= now_ns ? earlier : now_ns;
        else if (earlier <= now_ns && earlier > at)
            at = earlier;
    }
    if (at > now_ns)
        at = now_ns;
    return at > previous_ns ? at : previous_ns;
}

/* ------------------------------------------------------------------ streams; the mutex is held */

static struct stream *stream_of(const struct receiver *self, int fd)
{
    return fd >= 0 && (size_t)fd < self->stream_room ? self->streams[fd] : NULL;
}

static int set_of(const struct receiver *self, const struct stream *stream)
{
    return stream->is_kept ? self->batch_fd : self->epoll_fd;
}

/* Put it into its set. 0, or an errno. */
static int watch(struct receiver *self, struct stream *stream)
{
    struct epoll_event event;

    event.events = EPOLLIN;
    event.data.u64 = (uint64_t)stream->generation << 32 | (uint32_t)stream->fd;
    return epoll_ctl(set_of(self, stream), EPOLL_CTL_ADD, stream->fd, &event) == 0 ? 0 : errno;
}

static void stop_watching(struct receiver *self, struct stream *stream)
{
    epoll_ctl(set_of(self, stream), EPOLL_CTL_DEL, stream->fd, NULL);
}

static void wake(struct receiver *self)
{
    uint64_t one = 1;

    if (!self->is_signalled) {
        self->is_signalled = 1;
        /* It can only fail with a counter that is full, and then Python is awake. */
        if (write(self->wake_fd, &one, sizeof one) < 0)
            return;
    }
}

static void unqueue(struct stream *stream)
{
    struct queue *queue = stream->queue;

    if (queue == NULL)
        return;
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        queue->first = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    else
        queue->last = stream->previous;
    stream->queue = NULL;
}

/* Python should look at this stream: an urgent one goes before those that are only full. */
static void enqueue(struct receiver *self, struct stream *stream, struct queue *queue)
{
    if (stream->is_held || stream->queue == queue || stream->queue == &self->urgent)
        return;
    unqueue(stream);
    stream->queue = queue;
    stream->next = NULL;
    stream->previous = queue->last;
    if (queue->last != NULL)
        queue->last->next = stream;
    else
        queue->first = stream;
    queue->last = stream;
    wake(self);
}

static void free_stream(struct stream *stream)
{
    free(stream->bytes);
    free(stream->pieces);
    free(stream);
}

static int ends_whole_events(const char *bytes, size_t length)
{
    return memcmp(bytes + length - 4, "\n\n\r\n", 4) == 0 || memcmp(bytes + length - 6, "\r\n\r\n\r\n", 6) == 0;
}

/* Keep a read. 0: no memory. */
static int append(struct stream *stream, const char *bytes, size_t length, int64_t at_ns)
{
    if (stream->used + length > stream->room) {
        size_t room = stream->room > 0 ? stream->room : SMALL_BYTES;
        char *grown;

        while (room < stream->used + length)
            room *= 2;
        grown = realloc(stream->bytes, room);
        if (grown == NULL)
            return 0;
        stream->bytes = grown;
        stream->room = room;
    }
    if (stream->count == stream->piece_room) {
        size_t room = stream->piece_room > 0 ? 2 * stream->piece_room : 16;
        struct piece *grown = realloc(stream->pieces, room * sizeof *grown);

        if (grown == NULL)
            return 0;
        stream->pieces = grown;
        stream->piece_room = room;
    }
    memcpy(stream->bytes + stream->used, bytes, length);
    stream->used += length;
    stream->pieces[stream->count].at_ns = at_ns;
    stream->pieces[stream->count].length = (uint32_t)length;
    stream->count++;
    return 1;
}

static void end(struct receiver *self, struct stream *stream, int how)
{
    stream->ended = how;
    stop_watching(self, stream);
    enqueue(self, stream, &self->urgent);
}

/* ------------------------------------------------------------------ the batch; the mutex is held */

/* Report the batch with the others while it has no period. */
static void nest_batch(struct receiver *self, int is_nested)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = BATCH_KEY};

    epoll_ctl(self->epoll_fd, is_nested ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, self->batch_fd, &event);
}

/* Set the period by the streams and their gaps. Only the thread does it: while it waits, the batch must stay where it waits for it. */
static void tune(struct receiver *self)
{
    int64_t period_ns = 0;

    if (self->gaps_to_learn == 0 && self->batched >= FEW_STREAMS)
        period_ns = (int64_t)(self->gap_ns / GAPS_PER_PERIOD);
    if (period_ns > LONGEST_PERIOD_NS)
        period_ns = LONGEST_PERIOD_NS;
    if (period_ns < SHORTEST_PERIOD_NS)
        period_ns = 0;
    if ((period_ns == 0) != (self->period_ns == 0))
        nest_batch(self, period_ns == 0);
    self->period_ns = period_ns;
}

/* Learn from the time between two reads of a stream. */
static void record_gap(struct receiver *self, int64_t gap_ns)
{
    double gap = gap_ns > 0 ? (double)gap_ns : 1;

    if (self->gaps_to_learn > 0) {
        self->gaps_to_learn--;
        if (gap < self->gap_ns)
            self->gap_ns = gap;
    } else if (gap < self->gap_ns) {
        double lower = self->gap_ns * GAP_DOWN;

        self->gap_ns = lower > gap ? lower : gap;
    } else if (self->gap_ns < LONGEST_GAP_NS) {
        self->gap_ns *= GAP_UP;
    }
}

/* ------------------------------------------------------------------ reading; the mutex is held */

/* Memory of a stream, in bytes. */
static size_t size_of(const struct stream *stream)
{
    return stream->used + stream->count * sizeof(struct piece);
}

/* The kernel's stamp in this ancillary message, ns; below 0: it is another one. */
static int64_t stamp_of(struct cmsghdr *header)
{
    size_t size = (size_t)header->cmsg_len - CMSG_LEN(0);

    if (header->cmsg_level != SOL_SOCKET || (header->cmsg_type != OLD_STAMP && header->cmsg_type != NEW_STAMP))
        return -1;
    if (size >= sizeof(struct wide_time)) {
        struct wide_time stamp;

        memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
        return stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
    }
    if (size >= sizeof(struct narrow_time)) {
        struct narrow_time stamp;

        memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
        return stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
    }
    return -1;
}

/* Read a socket once. */
static void receive(struct receiver *self, struct stream *stream)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct wide_time))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {.iov_base = self->scratch, .iov_len = READ_BYTES};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t length = recvmsg(stream->fd, &message, MSG_DONTWAIT);
    int64_t now;
    int64_t at = 0;
    int64_t previous = stream->last_ns;
    int is_stamped = 0;

    if (length < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            end(self, stream, errno);
        return;
    }
    if (length == 0) {
        end(self, stream, END_OF_STREAM);
        return;
    }

    now = clock_ns(CLOCK_MONOTONIC);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
        int64_t stamp_ns = stamp_of(header);

        if (stamp_ns < 0)
            continue;
        at = arrival_ns(stamp_ns, self->offset_ns, self->before_ns, now, previous);
        is_stamped = 1;
    }
    if (!is_stamped)
        at = now;
    stream->last_ns = at;
    self->reads++;
    if (now - at > self->longest_wait_ns)
        self->longest_wait_ns = now - at;
    if (is_stamped && stream->is_kept)
        record_gap(self, at - previous);

    if (!append(stream, self->scratch, (size_t)length, is_stamped ? at : -at)) {
        end(self, stream, ENOMEM);
        return;
    }
    if (is_stamped && stream->plain == stream->count - 1 && length >= LEAST_PLAIN_BYTES && length < MOST_PLAIN_BYTES &&
        ends_whole_events(self->scratch, (size_t)length))
        stream->plain++;
    if (size_of(stream) >= PAUSE_BYTES && !stream->is_paused) {
        stream->is_paused = 1;
        /* Out of its set: epoll reports errors even where nothing is asked for, again and again. */
        stop_watching(self, stream);
    }
    if (!stream->is_kept || stream->plain < stream->count)
        enqueue(self, stream, &self->urgent);
    else if (size_of(stream) >= FULL_BYTES)
        enqueue(self, stream, &self->later);
}

/* ------------------------------------------------------------------ the thread */

static void set_real_time(struct receiver *self, int is_wanted)
{
    struct sched_param parameter = {.sched_priority = is_wanted ? 1 : 0};
    int policy = (is_wanted ? SCHED_RR : SCHED_OTHER) | SCHED_RESET_ON_FORK;

    /* The system call, because musl's function refuses. */
    if (is_wanted != self->is_real_time && syscall(SYS_sched_setscheduler, self->thread_id, policy, &parameter) == 0)
        self->is_real_time = (char)is_wanted;
}

/* A thread that never sleeps would starve the machine: above MOST_BUSY_PERCENT of a core it runs at normal priority. */
static void adapt_priority(struct receiver *self, int64_t *since_ns, int64_t *used_ns)
{
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    int64_t used;

    if (now - *since_ns < BUSY_PERIOD_NS)
        return;
    used = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (self->may_real_time)
        set_real_time(self, 100 * (used - *used_ns) < MOST_BUSY_PERCENT * (now - *since_ns));
    *since_ns = now;
    *used_ns = used;
}

/* Wait until a stream that is read at once has something, or the batch is due. How many events; below 0: interrupted. */
static int wait_for_events(struct receiver *self, struct epoll_event *events, int64_t until_ns)
{
    struct wide_time wait = {0, 0};
    int64_t left_ns;
    int count;

    if (until_ns == 0)
        return epoll_wait(self->epoll_fd, events, MOST_EVENTS, -1);
    left_ns = until_ns - clock_ns(CLOCK_MONOTONIC);
    if (left_ns < 0)
        left_ns = 0;
    wait.tv_sec = left_ns / NS_PER_S;
    wait.tv_nsec = left_ns % NS_PER_S;
    count = (int)syscall(SYS_EPOLL_PWAIT2, self->epoll_fd, events, MOST_EVENTS, &wait, NULL, 0);
    /* Before Linux 5.11, or forbidden by a container: in whole milliseconds. */
    if (count < 0 && (errno == ENOSYS || errno == EPERM))
        count = epoll_wait(self->epoll_fd, events, MOST_EVENTS, (int)((left_ns + 999999) / 1000000));
    return count;
}

/* Read the sockets of these events; the mutex is held. Whether the thread goes on. */
static int read_events(struct receiver *self, const struct epoll_event *events, int count)
{
    for (int index = 0; index < count; index++) {
        uint64_t key = events[index].data.u64;
        struct stream *stream = stream_of(self, (int)(uint32_t)key);

        /* A descriptor of the batch may have been removed, and used again, since epoll_wait. */
        if (stream != NULL && stream->generation == (uint32_t)(key >> 32) && !stream->ended && !stream->is_paused)
            receive(self, stream);
        /* Python waits for one read at most. */
        pthread_mutex_unlock(&self->mutex);
        pthread_mutex_lock(&self->mutex);
        if (self->stops)
            return 0;
    }
    return 1;
}

static int has_batch(const struct epoll_event *events, int count)
{
    for (int index = 0; index < count; index++)
        if (events[index].data.u64 == BATCH_KEY)
            return 1;
    return 0;
}

/* Read the streams of the batch that have something; the mutex is held. Whether the thread goes on. */
static int read_batch(struct receiver *self, struct epoll_event *events)
{
    int count = epoll_wait(self->batch_fd, events, MOST_EVENTS, 0);

    if (!read_events(self, events, count))
        return 0;
    tune(self);
    /* More may be ready than fitted: those at once. */
    self->batch_ns = clock_ns(CLOCK_MONOTONIC) + (count < MOST_EVENTS ? self->period_ns : 0);
    return 1;
}

#ifdef RECEIVER_TESTS
/* Where tests can stop the thread: between epoll_wait and the reads. */
static int pause_asked;
static sem_t pause_begun;
static sem_t pause_over;

static void pause_for_test(int count)
{
    if (count > 0 && __atomic_exchange_n(&pause_asked, 0, __ATOMIC_SEQ_CST)) {
        sem_post(&pause_begun);
        while (sem_wait(&pause_over) != 0)
            continue;
    }
}
#endif

static void *run(void *argument)
{
    struct receiver *self = argument;
    struct epoll_event events[MOST_EVENTS];
    int64_t since_ns = clock_ns(CLOCK_MONOTONIC);
    int64_t used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t until_ns = 0;

    self->thread_id = (pid_t)syscall(SYS_gettid);
    sem_post(&self->has_begun);
    for (;;) {
        int count = wait_for_events(self, events, until_ns);
        int batch_is_due;

#ifdef RECEIVER_TESTS
        pause_for_test(count);
#endif
        pthread_mutex_lock(&self->mutex);
        if (self->stops)
            break;
        sample_clocks(self);
        batch_is_due = has_batch(events, count);
        if (!read_events(self, events, count))
            break;
        if (self->period_ns > 0)
            batch_is_due = clock_ns(CLOCK_MONOTONIC) >= self->batch_ns;
        if (batch_is_due && !read_batch(self, events))
            break;
        until_ns = self->period_ns > 0 ? self->batch_ns : 0;
        adapt_priority(self, &since_ns, &used_ns);
        pthread_mutex_unlock(&self->mutex);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* ------------------------------------------------------------------ called by Python */

static int is_here(struct receiver *self)
{
    if (self->is_running && self->pid == getpid())
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "this receiver does not run in this process");
    return 0;
}

/* The stream of a descriptor, with the mutex locked; without one an error is set, and the mutex is not locked. */
static struct stream *locked_stream(struct receiver *self, int fd)
{
    struct stream *stream;

    if (!is_here(self))
        return NULL;
    pthread_mutex_lock(&self->mutex);
    stream = stream_of(self, fd);
    if (stream == NULL) {
        pthread_mutex_unlock(&self->mutex);
        PyErr_Format(PyExc_KeyError, "descriptor %d is not received", fd);
    }
    return stream;
}

/* 0: no memory. */
static int grow_streams(struct receiver *self, int fd)
{
    size_t room = self->stream_room > 0 ? self->stream_room : 64;
    struct stream **grown;

    /* With addresses of 32 bits the table of the highest descriptors would not fit. */
    if ((size_t)fd >= SIZE_MAX / (2 * sizeof *grown))
        return 0;
    while (room <= (size_t)fd)
        room *= 2;
    grown = realloc(self->streams, room * sizeof *grown);
    if (grown == NULL)
        return 0;
    memset(grown + self->stream_room, 0, (room - self->stream_room) * sizeof *grown);
    self->streams = grown;
    self->stream_room = room;
    return 1;
}

static PyObject *receiver_add(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    int fd;
    uint32_t generation = 0;
    int failure = 0;

    if (!PyArg_ParseTuple(arguments, "i:add", &fd) || !is_here(self))
        return NULL;
    if (fd < 0) {
        PyErr_Format(PyExc_ValueError, "%d is no descriptor", fd);
        return NULL;
    }
    /* Before the table grows: 16 GiB for the highest number. */
    if (fcntl(fd, F_GETFD) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return PyErr_NoMemory();
    stream->fd = fd;

    pthread_mutex_lock(&self->mutex);
    if ((size_t)fd >= self->stream_room && !grow_streams(self, fd)) {
        failure = ENOMEM;
    } else if (self->streams[fd] != NULL) {
        failure = EEXIST;
    } else {
        generation = ++self->generations;
        stream->generation = generation;
        self->streams[fd] = stream;
        failure = watch(self, stream);
        if (failure)
            self->streams[fd] = NULL;
    }
    pthread_mutex_unlock(&self->mutex);

    if (failure) {
        free(stream);
        errno = failure;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromUnsignedLong(generation);
}

/* With the mutex held. Where the kernel has no memory for it, the stream stays where it is. */
static void move_to_batch(struct receiver *self, struct stream *stream)
{
    int is_watched = !stream->ended && !stream->is_paused;

    stream->is_kept = 1;
    if (is_watched && watch(self, stream) != 0) {
        stream->is_kept = 0;
        return;
    }
    if (is_watched)
        epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, stream->fd, NULL);
    self->batched++;
}

static PyObject *receiver_keep(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    int fd;

    if (!PyArg_ParseTuple(arguments, "i:keep", &fd))
        return NULL;
    stream = locked_stream(self, fd);
    if (stream == NULL)
        return NULL;
    if (!stream->is_kept)
        move_to_batch(self, stream);
    pthread_mutex_unlock(&self->mutex);
    Py_RETURN_NONE;
}

static PyObject *receiver_hold(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    int fd;
    int is_held;

    if (!PyArg_ParseTuple(arguments, "ip:hold", &fd, &is_held))
        return NULL;
    stream = locked_stream(self, fd);
    if (stream == NULL)
        return NULL;
    stream->is_held = (char)is_held;
    if (is_held)
        unqueue(stream);
    else if (stream->count > 0 || (stream->ended && !stream->end_is_reported))
        enqueue(self, stream, &self->urgent);
    pthread_mutex_unlock(&self->mutex);
    Py_RETURN_NONE;
}

static PyObject *receiver_remove(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    int fd;
    int has_more;

    if (!PyArg_ParseTuple(arguments, "i:remove", &fd))
        return NULL;
    stream = locked_stream(self, fd);
    if (stream == NULL)
        return NULL;
    has_more = stream->count > 0 || stream->ended;
    unqueue(stream);
    if (!stream->ended)
        stop_watching(self, stream);
    if (stream->is_kept)
        self->batched--;
    self->streams[fd] = NULL;
    pthread_mutex_unlock(&self->mutex);
    free_stream(stream);
    return PyBool_FromLong(has_more);
}

static PyObject *receiver_receive(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    int fd;

    if (!PyArg_ParseTuple(arguments, "i:receive", &fd))
        return NULL;
    stream = locked_stream(self, fd);
    if (stream == NULL)
        return NULL;
    sample_clocks(self);
    if (!stream->ended && !stream->is_paused)
        receive(self, stream);
    pthread_mutex_unlock(&self->mutex);
    Py_RETURN_NONE;
}

/* Read it again, after a pause. */
static void resume(struct receiver *self, struct stream *stream)
{
    int failure = stream->ended ? 0 : watch(self, stream);

    if (failure)
        end(self, stream, failure);
}

/* What a stream holds, taken out of it so that Python's objects can be made without the mutex. */
struct taken {
    char *bytes;
    struct piece *pieces;
    size_t count;
    size_t plain;
    int ended;
    int fd;
    uint32_t generation;
};

/* With the mutex held. The buffers change hands, so that this costs no copy. */
static void take(struct receiver *self, struct stream *stream, struct taken *taken)
{
    taken->bytes = stream->bytes;
    taken->pieces = stream->pieces;
    taken->count = stream->count;
    taken->plain = stream->plain;
    taken->ended = stream->ended;
    taken->fd = stream->fd;
    taken->generation = stream->generation;
    stream->bytes = NULL;
    stream->pieces = NULL;
    stream->used = stream->room = stream->count = stream->piece_room = stream->plain = 0;
    unqueue(stream);
    if (stream->is_paused) {
        stream->is_paused = 0;
        resume(self, stream);
    }
}

/* (fd, generation, reads, stamps, plain, ended): see `collect`. */
static PyObject *as_tuple(const struct taken *taken)
{
    PyObject *reads = PyList_New((Py_ssize_t)taken->count);
    PyObject *stamps = PyList_New((Py_ssize_t)taken->count);
    size_t offset = 0;

    if (reads == NULL || stamps == NULL)
        goto failed;
    for (size_t index = 0; index < taken->count; index++) {
        const struct piece *piece = &taken->pieces[index];
        PyObject *read = PyBytes_FromStringAndSize(taken->bytes + offset, (Py_ssize_t)piece->length);
        PyObject *stamp = PyLong_FromLongLong(piece->at_ns);

        if (read == NULL || stamp == NULL) {
            Py_XDECREF(read);
            Py_XDECREF(stamp);
            goto failed;
        }
        PyList_SetItem(reads, (Py_ssize_t)index, read);
        PyList_SetItem(stamps, (Py_ssize_t)index, stamp);
        offset += piece->length;
    }
    return Py_BuildValue(
        "ikNNni", taken->fd, (unsigned long)taken->generation, reads, stamps, (Py_ssize_t)taken->plain, taken->ended);

failed:
    Py_XDECREF(reads);
    Py_XDECREF(stamps);
    return NULL;
}

static PyObject *converted(struct taken *taken)
{
    PyObject *tuple = as_tuple(taken);

    free(taken->bytes);
    free(taken->pieces);
    return tuple;
}

static PyObject *receiver_collect(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    int most;
    PyObject *streams;
    uint64_t counter;

    if (!PyArg_ParseTuple(arguments, "i:collect", &most) || !is_here(self))
        return NULL;
    streams = PyList_New(0);
    if (streams == NULL)
        return NULL;
    while (most-- > 0) {
        struct taken taken;
        struct stream *stream;
        PyObject *tuple;
        int failed;

        pthread_mutex_lock(&self->mutex);
        stream = self->urgent.first != NULL ? self->urgent.first : self->later.first;
        if (stream == NULL) {
            /* Nothing is left: the next wake-up is a new one. */
            if (self->is_signalled && read(self->wake_fd, &counter, sizeof counter) < 0)
                counter = 0;
            self->is_signalled = 0;
            pthread_mutex_unlock(&self->mutex);
            break;
        }
        take(self, stream, &taken);
        /* Where `take` could not watch it again, its end comes only now, and is not among what was taken. */
        stream->end_is_reported = taken.ended != NOT_ENDED;
        pthread_mutex_unlock(&self->mutex);

        tuple = converted(&taken);
        if (tuple == NULL) {
            Py_DECREF(streams);
            return NULL;
        }
        failed = PyList_Append(streams, tuple);
        Py_DECREF(tuple);
        if (failed) {
            Py_DECREF(streams);
            return NULL;
        }
    }
    return streams;
}

static PyObject *receiver_take(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    struct stream *stream;
    struct taken taken;
    int fd;

    if (!PyArg_ParseTuple(arguments, "i:take", &fd))
        return NULL;
    stream = locked_stream(self, fd);
    if (stream == NULL)
        return NULL;
    take(self, stream, &taken);
    /* Its end is reported by `collect`. */
    if (stream->ended && !stream->end_is_reported)
        enqueue(self, stream, &self->urgent);
    taken.ended = NOT_ENDED;
    pthread_mutex_unlock(&self->mutex);
    return converted(&taken);
}

static PyObject *receiver_silent(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    long long before_ns;
    PyObject *silent;
    size_t room;

    if (!PyArg_ParseTuple(arguments, "L:silent", &before_ns) || !is_here(self))
        return NULL;
    silent = PyList_New(0);
    if (silent == NULL)
        return NULL;
    /* Only Python's calls change the table, and they come one after the other. */
    room = self->stream_room;
    for (size_t fd = 0; fd < room; fd++) {
        const struct stream *stream;
        PyObject *number;
        int is_silent;
        int failed;

        pthread_mutex_lock(&self->mutex);
        stream = self->streams[fd];
        is_silent = stream != NULL && stream->count > 0 && stream->last_ns < before_ns;
        pthread_mutex_unlock(&self->mutex);
        if (!is_silent)
            continue;
        number = PyLong_FromSize_t(fd);
        failed = number == NULL || PyList_Append(silent, number) != 0;
        Py_XDECREF(number);
        if (failed) {
            Py_DECREF(silent);
            return NULL;
        }
    }
    return silent;
}

static PyObject *receiver_real_time(PyObject *object, PyObject *arguments)
{
    struct receiver *self = (struct receiver *)object;
    int is_wanted;
    int is_real_time;

    if (!PyArg_ParseTuple(arguments, "p:real_time", &is_wanted) || !is_here(self))
        return NULL;
    pthread_mutex_lock(&self->mutex);
    self->may_real_time = (char)is_wanted;
    set_real_time(self, is_wanted);
    is_real_time = self->is_real_time;
    pthread_mutex_unlock(&self->mutex);
    return PyBool_FromLong(is_real_time);
}

static PyObject *receiver_facts(PyObject *object, PyObject *Py_UNUSED(arguments))
{
    struct receiver *self = (struct receiver *)object;
    unsigned long long reads;
    long long cpu_ns = 0;
    clockid_t clock;
    long long longest_wait_ns;
    long long period_ns;
    long thread_id;

    if (!is_here(self))
        return NULL;
    pthread_mutex_lock(&self->mutex);
    reads = self->reads;
    if (self->is_running && pthread_getcpuclockid(self->thread, &clock) == 0)
        cpu_ns = clock_ns(clock);
    longest_wait_ns = self->longest_wait_ns;
    period_ns = self->period_ns;
    thread_id = self->thread_id;
    pthread_mutex_unlock(&self->mutex);
    return Py_BuildValue("lKLLL", thread_id, reads, cpu_ns, longest_wait_ns, period_ns);
}

static void stop(struct receiver *self)
{
    uint64_t one = 1;

    if (!self->is_running || self->pid != getpid())
        return;
    pthread_mutex_lock(&self->mutex);
    self->stops = 1;
    pthread_mutex_unlock(&self->mutex);
    if (write(self->stop_fd, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(self->thread, NULL);
    self->is_running = 0;
}

static PyObject *receiver_stop(PyObject *object, PyObject *Py_UNUSED(arguments))
{
    stop((struct receiver *)object);
    Py_RETURN_NONE;
}

static PyObject *receiver_fileno(PyObject *object, PyObject *Py_UNUSED(arguments))
{
    return PyLong_FromLong(((struct receiver *)object)->wake_fd);
}

/* ------------------------------------------------------------------ the type */

static int start(struct receiver *self)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = STOP_KEY};
    pthread_mutexattr_t attributes;
    sigset_t all;
    sigset_t before;
    int failure;

    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->batch_fd = epoll_create1(EPOLL_CLOEXEC);
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->epoll_fd < 0 || self->batch_fd < 0 || self->wake_fd < 0 || self->stop_fd < 0)
        return errno;
    if (epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, self->stop_fd, &event) != 0)
        return errno;
    self->gap_ns = LONGEST_GAP_NS;
    self->gaps_to_learn = LEARNING_GAPS;
    nest_batch(self, 1);
    /* Else a thread of normal priority that holds the mutex could keep a real-time thread waiting for a core. */
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    failure = pthread_mutex_init(&self->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (failure)
        return failure;
    self->has_mutex = 1;
    sem_init(&self->has_begun, 0, 0);
    self->offset_ns = self->before_ns = wall_minus_monotonic_ns();
    /* Signals are for the main thread: one that came here would not end its waits. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure)
        return failure;
    self->is_running = 1;
    while (sem_wait(&self->has_begun) != 0)
        continue; /* interrupted by a signal */
    sem_destroy(&self->has_begun);
    return 0;
}

static PyObject *receiver_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    struct receiver *self;
    int failure;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

    if (!PyArg_ParseTuple(arguments, ":Receiver"))
        return NULL;
    self = (struct receiver *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->epoll_fd = self->batch_fd = self->wake_fd = self->stop_fd = -1;
    self->pid = getpid();
    failure = start(self);
    if (failure) {
        Py_DECREF(self);
        errno = failure;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)self;
}

static void receiver_dealloc(PyObject *object)
{
    struct receiver *self = (struct receiver *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    stop(self);
    /* After a fork the thread is not there, and the mutex may be in any state. */
    if (self->has_mutex && self->pid == getpid())
        pthread_mutex_destroy(&self->mutex);
    for (size_t fd = 0; fd < self->stream_room; fd++)
        if (self->streams[fd] != NULL)
            free_stream(self->streams[fd]);
    free(self->streams);
    if (self->epoll_fd >= 0)
        close(self->epoll_fd);
    if (self->batch_fd >= 0)
        close(self->batch_fd);
    if (self->wake_fd >= 0)
        close(self->wake_fd);
    if (self->stop_fd >= 0)
        close(self->stop_fd);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef receiver_methods[] = {
    {"fileno", receiver_fileno, METH_NOARGS, "The descriptor that is readable while `collect` has something."},
    {"add", receiver_add, METH_VARARGS,
     "add(fd): receive from this socket; each read wakes. Returns its generation: descriptors are used again."},
    {"keep", receiver_keep, METH_VARARGS, "keep(fd): wake only for reads that may end an answer, ends, and a full stream."},
    {"hold", receiver_hold, METH_VARARGS, "hold(fd, is_held): do not wake for this stream; it is received all the same."},
    {"collect", receiver_collect, METH_VARARGS,
     "collect(most): of at most this many streams (fd, generation, reads, stamps, plain, ended).\n\n"
     "`stamps` are monotonic ns, negative where the kernel gave none. The first `plain` reads hold whole events.\n"
     "`ended`: 0 not, -1 by the peer, else an errno."},
    {"take", receiver_take, METH_VARARGS, "take(fd): what this stream holds now, as `collect` gives it; never its end."},
    {"silent", receiver_silent, METH_VARARGS, "silent(before_ns): the streams that hold something, all of it from before then."},
    {"receive", receiver_receive, METH_VARARGS, "receive(fd): read the socket once, now."},
    {"remove", receiver_remove, METH_VARARGS, "remove(fd): receive no more. Whether something was left: reads, or the end."},
    {"facts", receiver_facts, METH_NOARGS,
     "(id of the thread, reads, its CPU time, the longest time that a read waited for it, the period of the batch), times in ns."},
    {"real_time", receiver_real_time, METH_VARARGS,
     "real_time(is_wanted): give the thread the lowest real-time priority, or take it back. Whether it has it."},
    {"stop", receiver_stop, METH_NOARGS, "End the thread."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot receiver_slots[] = {
    {Py_tp_doc, "Receiver(): a thread that receives, see `llama_load.loadgen.wire.receiver`."},
    {Py_tp_new, receiver_new},
    {Py_tp_dealloc, receiver_dealloc},
    {Py_tp_methods, receiver_methods},
    {0, NULL},
};

static PyType_Spec receiver_spec = {
    .name = "llama_load.loadgen.wire._receiver.Receiver",
    .basicsize = sizeof(struct receiver),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = receiver_slots,
};

static int add_type(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&receiver_spec);
    int failed;

    if (type == NULL)
        return -1;
    failed = PyModule_AddObjectRef(module, "Receiver", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_type},
    {0, NULL},
};

static PyObject *module_arrival_ns(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    long long stamp_ns;
    long long offset_ns;
    long long before_ns;
    long long now_ns;
    long long previous_ns;

    if (!PyArg_ParseTuple(arguments, "LLLLL:arrival_ns", &stamp_ns, &offset_ns, &before_ns, &now_ns, &previous_ns))
        return NULL;
    return PyLong_FromLongLong(arrival_ns(stamp_ns, offset_ns, before_ns, now_ns, previous_ns));
}

#ifdef RECEIVER_TESTS
static PyObject *module_ask_pause(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arguments))
{
    sem_init(&pause_begun, 0, 0);
    sem_init(&pause_over, 0, 0);
    __atomic_store_n(&pause_asked, 1, __ATOMIC_SEQ_CST);
    Py_RETURN_NONE;
}

static PyObject *module_await_pause(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arguments))
{
    while (sem_wait(&pause_begun) != 0)
        continue;
    Py_RETURN_NONE;
}

static PyObject *module_end_pause(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(arguments))
{
    sem_post(&pause_over);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef module_methods[] = {
#ifdef RECEIVER_TESTS
    {"ask_pause", module_ask_pause, METH_NOARGS, "ask_pause(): stop the thread when it has events, before it reads."},
    {"await_pause", module_await_pause, METH_NOARGS, "await_pause(): wait until it stands."},
    {"end_pause", module_end_pause, METH_NOARGS, "end_pause(): let it go on."},
#endif
    {"arrival_ns", module_arrival_ns, METH_VARARGS,
     "arrival_ns(stamp_ns, offset_ns, before_ns, now_ns, previous_ns): a stamp of the kernel on the monotonic clock.\n\n"
     "As `llama_load.ground.clock.BatchClock.arrival_ns`; tests compare them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_methods = module_methods,
    .m_name = "_receiver",
    .m_doc = "The compiled receiver (see llama_load.loadgen.wire.receiver).",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__receiver(void)
{
    return PyModuleDef_Init(&module);
}
