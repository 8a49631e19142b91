/* A server with a known schedule that costs little: the OpenAI streams over HTTP/1.1, and a log of when it sent what.

   cc -O2 -o server server.c && ./server PORT LOG FIRST_TOKEN_US INTERVAL_US JITTER_US GRID(0|1) CORE STAMPS(0|1) CASE

   It prints the port on which it listens (PORT 0: any free one). With STAMPS every token has the kernel's timestamp of sending, not
   only the first of a request.

   A request is received at the kernel's timestamp of its last byte (SO_TIMESTAMPNS). Its tokens are sent one each: the first
   FIRST_TOKEN_US after the receipt, the next every INTERVAL_US, each moved by up to JITTER_US. With GRID all tokens wait for the next
   multiple of INTERVAL_US, so that all streams send in the same moment, as a server with continuous batching does. Each token is logged with
   the instant just before it is passed to the kernel, and the first of a request also with the kernel's own timestamp of sending
   (SO_TIMESTAMPING). All times in the log are CLOCK_MONOTONIC, ns. It is written at SIGTERM: a JSON object per request, and one of the
   server itself.

   The log's fields are described in truth/log.schema.json. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS = 65536,
    EVENTS = 512,
    INPUT = 4 << 20,    /* the longest request, bytes */
    INPUT_HEAD = 64 << 10,
    PIECE = 65536,
    MOST_TOKENS = 1000000,
    ID = 128,
    TEMPLATE_TOKENS = 16, /* of the chat template that the server pretends to have */
    CONTROL = 512,
    LATE_BIN = 10000,    /* ns */
    LATE_BINS = 20000,   /* up to 200 ms, the last has all that is later */
};

typedef int64_t ns;

struct entry {
    char id[ID], digest[65];
    const char *outcome, *path;
    ns received, ended, late_max;
    ns *sent, *kernel; /* of each token; kernel has 0 where there is no timestamp */
    int number, tokens, done, body_bytes, prompt_tokens, choices, ignore_eos;
};

struct connection {
    char *in, *out;
    size_t in_bytes, in_room, out_bytes;
    ns received;
    struct entry *entry; /* the request being answered */
    ns base;             /* of its schedule: when the first token is due, without jitter */
    int open, closing, usage, chat, prompt_tokens;
    unsigned generation;
};

struct plan {
    ns due;
    int fd;
    unsigned generation;
};

static struct connection connections[CONNECTIONS];
static struct plan *heap;
static size_t heap_count, heap_room;
static struct entry **entries;
static size_t entry_count, entry_room;
static volatile sig_atomic_t stopping;
static int poller;
static ns first_token, interval, jitter, began, wall_minus_mono;
static int grid, stamp_all;
static unsigned long long sends, blocked, stamps_missing, late[LATE_BINS];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *grown(void *array, size_t *room, size_t need, size_t size) {
    if (need <= *room) return array;
    *room = need * 2;
    array = realloc(array, *room * size);
    if (array == NULL) die("realloc");
    return array;
}

static ns clock_ns(clockid_t which) {
    struct timespec now;
    clock_gettime(which, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* CLOCK_REALTIME - CLOCK_MONOTONIC, from a sample that was not interrupted. */
static void sample_clocks(void) {
    for (int tries = 0; tries < 5; tries++) {
        ns before = clock_ns(CLOCK_MONOTONIC), wall = clock_ns(CLOCK_REALTIME), after = clock_ns(CLOCK_MONOTONIC);
        wall_minus_mono = wall - (before + after) / 2;
        if (after - before < 2000) return;
    }
}

static ns stamp_ns(const struct timespec *stamp) {
    return stamp->tv_sec * 1000000000ll + stamp->tv_nsec - wall_minus_mono;
}

/* ------------------------------------------------------------------ digest */

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

/* SHA-256 (FIPS 180-4). The constants are the first 32 bits of the fractional parts of roots of primes. */
static const uint32_t sha_round[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha_block(uint32_t state[8], const unsigned char *block) {
    uint32_t word[64], v[8];
    for (int i = 0; i < 16; i++)
        word[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t low = rotated(word[i - 15], 7) ^ rotated(word[i - 15], 18) ^ word[i - 15] >> 3;
        uint32_t high = rotated(word[i - 2], 17) ^ rotated(word[i - 2], 19) ^ word[i - 2] >> 10;
        word[i] = word[i - 16] + low + word[i - 7] + high;
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t high = rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25);
        uint32_t one = v[7] + high + ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_round[i] + word[i];
        uint32_t low = rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22);
        uint32_t two = low + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void digest(const char *bytes, size_t count, char to[65]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t whole = count / 64 * 64, rest = count - whole, end = rest < 56 ? 64 : 128;
    unsigned char last[128] = {0};
    for (size_t at = 0; at < whole; at += 64) sha_block(state, (const unsigned char *)bytes + at);
    memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++) last[end - 1 - i] = (uint64_t)count * 8 >> 8 * i;
    for (size_t at = 0; at < end; at += 64) sha_block(state, last + at);
    for (int i = 0; i < 8; i++) sprintf(to + 8 * i, "%08x", state[i]);
}

/* ------------------------------------------------------------------ plans */

static void push(struct plan plan) {
    heap = grown(heap, &heap_room, heap_count + 1, sizeof *heap);
    size_t place = heap_count++;
    for (; place > 0 && heap[(place - 1) / 2].due > plan.due; place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
    heap[place] = plan;
}

static struct plan pop(void) {
    struct plan top = heap[0], last = heap[--heap_count];
    size_t place = 0, child;
    while ((child = 2 * place + 1) < heap_count) {
        if (child + 1 < heap_count && heap[child + 1].due < heap[child].due) child++;
        if (heap[child].due >= last.due) break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = last;
    return top;
}

/* Uniform on [0, 1), from the numbers of request and token (splitmix64). */
static double uniform(uint64_t request, uint64_t token) {
    uint64_t x = request * 0x9E3779B97F4A7C15ull + token * 0xD1B54A32D192ED03ull + 1;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return ((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

static ns due(const struct connection *self, int token) {
    ns at = self->base + token * interval;
    if (grid) return at;
    return at + (ns)((2 * uniform(self->entry->number, token) - 1) * jitter);
}

/* ------------------------------------------------------------------ sending */

static void drop(int fd) {
    struct connection *self = &connections[fd];
    if (self->entry != NULL) {
        self->entry->outcome = "client closed";
        self->entry->ended = clock_ns(CLOCK_MONOTONIC);
        self->entry = NULL;
    }
    free(self->in);
    free(self->out);
    unsigned generation = self->generation + 1;
    memset(self, 0, sizeof *self);
    self->generation = generation;
    close(fd);
}

static void watch(int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
}

/* What the kernel does not take now is kept. Whether the connection is still there. */
static int pass(int fd, const char *data, size_t bytes, int stamped) {
    struct connection *self = &connections[fd];
    ssize_t taken = 0;
    if (self->out_bytes == 0) {
        struct iovec piece = {(void *)data, bytes};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        char control[CMSG_SPACE(sizeof(uint32_t))] = {0};
        if (stamped) {
            uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE;
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SO_TIMESTAMPING;
            header->cmsg_len = CMSG_LEN(sizeof flags);
            memcpy(CMSG_DATA(header), &flags, sizeof flags);
        }
        taken = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        sends++;
        if (taken < 0 && errno != EAGAIN) return drop(fd), 0;
        if (taken < 0) taken = 0;
    }
    if ((size_t)taken < bytes) {
        blocked++;
        self->out = realloc(self->out, self->out_bytes + bytes - taken);
        if (self->out == NULL) die("realloc");
        memcpy(self->out + self->out_bytes, data + taken, bytes - taken);
        self->out_bytes += bytes - taken;
        watch(fd, EPOLLIN | EPOLLOUT);
    }
    return 1;
}

static void flush_kept(int fd) {
    struct connection *self = &connections[fd];
    ssize_t taken = send(fd, self->out, self->out_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (taken < 0 && errno != EAGAIN) return drop(fd);
    if (taken <= 0) return;
    memmove(self->out, self->out + taken, self->out_bytes - taken);
    self->out_bytes -= taken;
    if (self->out_bytes > 0) return;
    if (self->closing && self->entry == NULL) return drop(fd);
    watch(fd, EPOLLIN);
}

/* The kernel's timestamp of the token that was just sent; loopback has it at once. 0: none. */
static ns kernel_stamp(int fd) {
    char control[CONTROL];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return stamps_missing++, 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header))
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPING) {
            struct scm_timestamping stamps;
            memcpy(&stamps, CMSG_DATA(header), sizeof stamps);
            return stamp_ns((struct timespec *)&stamps.ts[0]);
        }
    return stamps_missing++, 0;
}

static size_t framed(char *to, const char *event) { return sprintf(to, "%zx\r\n%s\r\n", strlen(event), event); }

/* A chunk with this piece of the answer: NULL is the chunk that only names the role. */
static size_t framed_piece(char *to, const struct connection *self, const char *piece, int last) {
    char event[512], choice[256];
    int number = self->entry->number;
    const char *finish = last ? "\"length\"" : "null";
    if (!self->chat)
        snprintf(choice, sizeof choice, "\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s", piece, finish);
    else if (piece == NULL)
        snprintf(choice, sizeof choice, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null");
    else
        snprintf(choice, sizeof choice, "\"delta\":{\"content\":\"%s\"},\"finish_reason\":%s", piece, finish);
    snprintf(event, sizeof event, "data: {\"id\":\"%s-%d\",\"object\":\"%s\",\"created\":0,\"model\":\"simulated\",\"choices\":[{\"index\":0,%s}]}\n\n",
             self->chat ? "chatcmpl" : "cmpl", number, self->chat ? "chat.completion.chunk" : "text_completion", choice);
    return framed(to, event);
}

static void send_token(int fd, ns planned) {
    struct connection *self = &connections[fd];
    struct entry *entry = self->entry;
    char text[4096], word[64];
    size_t bytes = 0;
    int first = entry->done == 0, last = entry->done + 1 == entry->tokens;
    if (first && self->chat) bytes += framed_piece(text, self, NULL, 0);
    /* The first word is the request's number, so that a client that keeps the text can be matched with this log. */
    snprintf(word, sizeof word, first ? " %d" : " tok", entry->number);
    bytes += framed_piece(text + bytes, self, word, last);
    if (last) {
        if (self->usage) {
            char event[512];
            snprintf(event, sizeof event,
                     "data: {\"id\":\"usage-%d\",\"object\":\"usage\",\"created\":0,\"model\":\"simulated\",\"choices\":[],"
                     "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
                     "\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\n",
                     entry->number, self->prompt_tokens, entry->tokens, self->prompt_tokens + entry->tokens);
            bytes += framed(text + bytes, event);
        }
        bytes += framed(text + bytes, "data: [DONE]\n\n");
        bytes += sprintf(text + bytes, "0\r\n\r\n");
    }
    ns now = clock_ns(CLOCK_MONOTONIC);
    entry->sent[entry->done++] = now;
    if (now - planned > entry->late_max) entry->late_max = now - planned;
    ns bin = (now - planned) / LATE_BIN;
    late[bin < LATE_BINS ? bin : LATE_BINS - 1]++;
    if (last) {
        entry->outcome = "ok";
        entry->ended = now;
        self->entry = NULL;
    }
    int stamped = first || stamp_all;
    if (!pass(fd, text, bytes, stamped)) return;
    if (stamped) entry->kernel[entry->done - 1] = kernel_stamp(fd);
    if (!last)
        push((struct plan){due(self, entry->done), fd, self->generation});
    else if (self->closing && self->out_bytes == 0)
        drop(fd);
}

/* ------------------------------------------------------------------ requests */

/* The number after a key of the body; 0 without it. Inside of a text the closing quote of the key would be escaped. */
static long number_after(const char *body, const char *key) {
    const char *at = strstr(body, key);
    if (at == NULL) return 0;
    at += strlen(key) + strspn(at + strlen(key), " :");
    return strtol(at, NULL, 10);
}

static int is_true(const char *body, const char *key) {
    const char *at = strstr(body, key);
    return at != NULL && strncmp(at + strlen(key) + strspn(at + strlen(key), " :"), "true", 4) == 0;
}

/* Words of all texts with this key: a token each. */
static int words(const char *body, const char *key) {
    int count = 0;
    for (const char *at = body; (at = strstr(at, key)) != NULL;) {
        int inside = 0;
        at += strlen(key) + strspn(at + strlen(key), " :");
        if (*at != '"') continue; /* the body may end here */
        for (at++; *at != 0 && *at != '"'; at += at[0] == '\\' && at[1] != 0 ? 2 : 1) {
            int blank = *at == ' ' || (at[0] == '\\' && at[1] == 'n');
            count += !blank && !inside;
            inside = !blank;
        }
    }
    return count;
}

static void header_text(const char *head, const char *name, char *to, size_t room) {
    *to = 0;
    const char *at = strcasestr(head, name);
    if (at == NULL) return;
    at += strlen(name);
    at += strspn(at, " ");
    size_t length = strcspn(at, "\r\n");
    for (size_t i = 0; i < length && i + 1 < room; i++) {
        char letter = at[i];
        *to++ = letter >= ' ' && letter < 127 && letter != '"' && letter != '\\' ? letter : '?';
    }
    *to = 0;
}

static void answer(int fd, const char *status, const char *body) {
    char text[1024];
    int bytes = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
                         connections[fd].closing ? "Connection: close\r\n" : "", body);
    if (pass(fd, text, bytes, 0) && connections[fd].closing && connections[fd].out_bytes == 0) drop(fd);
}

static void start(int fd, const char *head, const char *body, size_t body_bytes, int chat) {
    struct connection *self = &connections[fd];
    long tokens = number_after(body, "\"max_completion_tokens\"");
    if (tokens <= 0) tokens = number_after(body, "\"max_tokens\"");
    if (!is_true(body, "\"stream\"")) return answer(fd, "400 Bad Request", "{\"error\":{\"message\":\"this server only streams\"}}");
    if (tokens < 1 || tokens > MOST_TOKENS) return answer(fd, "400 Bad Request", "{\"error\":{\"message\":\"give max_tokens\"}}");
    struct entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL || (entry->sent = calloc(tokens, sizeof(ns))) == NULL ||
        (entry->kernel = calloc(tokens, sizeof(ns))) == NULL)
        die("calloc");
    entries = grown(entries, &entry_room, entry_count + 1, sizeof *entries);
    entries[entry_count++] = entry;
    entry->number = entry_count;
    entry->tokens = tokens;
    entry->body_bytes = body_bytes;
    entry->received = self->received;
    entry->outcome = "unfinished";
    entry->path = chat ? "/v1/chat/completions" : "/v1/completions";
    entry->choices = number_after(body, "\"n\"");
    if (entry->choices < 1) entry->choices = 1;
    entry->ignore_eos = is_true(body, "\"ignore_eos\"");
    digest(body, body_bytes, entry->digest);
    header_text(head, "\nx-request-id:", entry->id, sizeof entry->id);
    self->entry = entry;
    self->usage = is_true(body, "\"include_usage\"");
    self->chat = chat;
    self->prompt_tokens = words(body, "\"prompt\"");
    /* A message's content is a text, or a list of parts with texts. */
    if (chat) self->prompt_tokens = words(body, "\"content\"") + words(body, "\"text\"") + TEMPLATE_TOKENS;
    entry->prompt_tokens = self->prompt_tokens;
    self->base = self->received + first_token;
    if (grid) self->base = began + (self->base - began + interval - 1) / interval * interval;
    const char *start_of_stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (pass(fd, start_of_stream, strlen(start_of_stream), 0)) push((struct plan){due(self, 0), fd, self->generation});
}

/* The first request of the input, if it is whole and none is being answered. Whether there was one. */
static int take_request(int fd) {
    struct connection *self = &connections[fd];
    if (!self->open || self->entry != NULL || self->in_bytes == 0) return 0;
    self->in[self->in_bytes] = 0;
    char *end = strstr(self->in, "\r\n\r\n"), length[32], connection[32], expect[32];
    if (end == NULL && self->in_bytes <= INPUT_HEAD) return 0; /* each look begins at its first byte */
    if (end == NULL || end - self->in > INPUT_HEAD) return drop(fd), 0;
    *end = 0;
    header_text(self->in, "\ncontent-length:", length, sizeof length);
    if (length[strspn(length, "0123456789")] != 0) return drop(fd), 0; /* strtoul takes signs and blanks */
    header_text(self->in, "\nconnection:", connection, sizeof connection);
    header_text(self->in, "\nexpect:", expect, sizeof expect);
    size_t head_bytes = end + 4 - self->in, body_bytes = strtoul(length, NULL, 10), whole = head_bytes + body_bytes;
    if (body_bytes > INPUT || whole > INPUT) return drop(fd), 0; /* their sum alone may be small: -1 is the largest number */
    if (self->in_bytes < whole) {
        *end = '\r';
        return 0;
    }
    char *body = self->in + head_bytes, kept = self->in[whole];
    self->in[whole] = 0;
    self->closing = strcasecmp(connection, "close") == 0;
    unsigned generation = self->generation;
    if (strncmp(self->in, "POST /v1/chat/completions ", 26) == 0)
        start(fd, self->in, body, body_bytes, 1);
    else if (strncmp(self->in, "POST /v1/completions ", 21) == 0)
        start(fd, self->in, body, body_bytes, 0);
    else if (strncmp(self->in, "GET /health", 11) == 0)
        answer(fd, "200 OK", "{\"status\":\"ok\"}");
    else if (strncmp(self->in, "GET /v1/models", 14) == 0)
        answer(fd, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"simulated\",\"object\":\"model\",\"created\":0,\"owned_by\":\"truth\"}]}");
    else
        answer(fd, "404 Not Found", "{\"error\":{\"message\":\"not here\"}}");
    if (self->generation != generation) return 0;
    self->in[whole] = kept;
    memmove(self->in, self->in + whole, self->in_bytes - whole);
    self->in_bytes -= whole;
    return 1;
}

static void receive(int fd) {
    struct connection *self = &connections[fd];
    char control[CONTROL];
    self->in = grown(self->in, &self->in_room, self->in_bytes + PIECE + 1, 1);
    struct iovec piece = {self->in + self->in_bytes, self->in_room - self->in_bytes - 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0 || self->in_bytes + count > INPUT) return drop(fd);
    self->received = clock_ns(CLOCK_MONOTONIC);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header))
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
            self->received = stamp_ns(&stamp);
        }
    self->in_bytes += count;
    while (take_request(fd)) continue;
}

static void admit(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        if (fd >= CONNECTIONS) {
            close(fd);
            continue;
        }
        uint32_t stamping = SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamping, sizeof stamping);
        connections[fd].open = 1;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
    }
}

/* ------------------------------------------------------------------ the process */

/* How late tokens were sent, as a percentile, ns. */
static ns lateness(double percent, unsigned long long tokens) {
    unsigned long long sum = 0;
    int bin = 0;
    while (bin < LATE_BINS - 1 && (sum += late[bin]) < percent / 100 * tokens) bin++;
    return (bin + 1) * (ns)LATE_BIN;
}

static void write_instants(FILE *out, const ns *instants, int count) {
    fputc('[', out);
    for (int i = 0; i < count; i++) fprintf(out, i ? ",%lld" : "%lld", (long long)instants[i]);
    fputc(']', out);
}

static void write_log(const char *path, const char *priority, const char *name) {
    FILE *out = fopen(path, "w");
    if (out == NULL) die(path);
    unsigned long long tokens = 0;
    for (size_t i = 0; i < entry_count; i++) {
        struct entry *entry = entries[i];
        fprintf(out,
                "{\"number\":%d,\"request_id\":\"%s\",\"outcome\":\"%s\",\"status\":200,\"path\":\"%s\",\"body_bytes\":%d,"
                "\"body_sha256\":\"%s\",\"prompt_tokens\":%d,\"choices\":%d,\"ignore_eos\":%s,\"tokens\":%d,\"received_mono_ns\":%lld,"
                "\"ended_mono_ns\":%lld,\"late_max_ns\":%lld,\"sent_mono_ns\":",
                entry->number, entry->id, entry->outcome, entry->path, entry->body_bytes, entry->digest, entry->prompt_tokens, entry->choices,
                entry->ignore_eos ? "true" : "false",
                entry->tokens, (long long)entry->received, (long long)entry->ended, (long long)entry->late_max);
        write_instants(out, entry->sent, entry->done);
        fputs(",\"kernel_mono_ns\":", out);
        write_instants(out, entry->kernel, stamp_all || entry->done == 0 ? entry->done : 1);
        fputs("}\n", out);
        tokens += entry->done;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu_s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    fprintf(out,
            "{\"server\":{\"schema\":\"truth/1\",\"program\":\"server.c\",\"case\":\"%s\",\"cpu_s\":%.6f,\"tokens\":%llu,\"sends\":%llu,\"blocked\":%llu,\"stamps_missing\":%llu,\"priority\":\"%s\","
            "\"late_p50_ns\":%lld,\"late_p99_ns\":%lld}}\n",
            name, cpu_s, tokens, sends, blocked, stamps_missing, priority, (long long)lateness(50, tokens), (long long)lateness(99, tokens));
    if (fclose(out)) die(path);
}

static void stop(int signal_number) {
    (void)signal_number;
    stopping = 1;
}

int main(int argc, char **argv) {
    if (argc != 10) {
        fputs("usage: server PORT LOG FIRST_TOKEN_US INTERVAL_US JITTER_US GRID CORE STAMPS CASE\n", stderr);
        return 2;
    }
    first_token = atoll(argv[3]) * 1000, interval = atoll(argv[4]) * 1000, jitter = atoll(argv[5]) * 1000, grid = atoi(argv[6]), stamp_all = atoi(argv[8]);
    if (interval <= 0 || jitter < 0 || 2 * jitter >= interval) {
        fputs("server: the interval must be above 0 and the jitter below half of it\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(atoi(argv[7]), &cores);
    if (atoi(argv[7]) >= 0) sched_setaffinity(0, sizeof cores, &cores);
    struct sched_param lowest = {.sched_priority = 1};
    const char *priority = sched_setscheduler(0, SCHED_FIFO, &lowest) == 0 ? "real-time" : "normal";

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 65535)) die("listen");
    socklen_t address_bytes = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &address_bytes);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event)) die("epoll_ctl");
    began = clock_ns(CLOCK_MONOTONIC);

    while (!stopping) {
        struct timespec wait = {1, 0};
        if (heap_count > 0) {
            ns left = heap[0].due - clock_ns(CLOCK_MONOTONIC);
            if (left < 0) left = 0;
            if (left < 1000000000ll) wait = (struct timespec){0, left};
        }
        struct epoll_event events[EVENTS];
        int count = syscall(SYS_epoll_pwait2, poller, events, EVENTS, &wait, NULL, 0);
        if (count < 0 && errno != EINTR) die("epoll_pwait2, which needs Linux 5.11");
        sample_clocks();
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                admit(listener);
                continue;
            }
            if (events[i].events & EPOLLOUT) flush_kept(fd);
            if (connections[fd].open && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(fd);
        }
        ns now = clock_ns(CLOCK_MONOTONIC);
        while (heap_count > 0 && heap[0].due <= now) {
            struct plan plan = pop();
            struct connection *self = &connections[plan.fd];
            if (self->generation != plan.generation || self->entry == NULL) continue;
            send_token(plan.fd, plan.due);
            if (self->generation == plan.generation)
                while (take_request(plan.fd)) continue;
        }
    }
    write_log(argv[2], priority, argv[9]);
    return 0;
}
