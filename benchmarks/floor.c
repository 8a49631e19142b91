/* The least that a token can cost on this kernel: epoll, recvmsg with receive timestamps, nothing understood.

   cc -O2 -o floor floor.c && BENCH_OUT=out.json ./floor PORT STREAMS REQUESTS TOKENS

   Keeps STREAMS requests in flight until REQUESTS have ended, and writes the CPU time from the first one on. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 1024, BUFFER = 65536, PATIENCE_MS = 60000 };

static char buffer[BUFFER], request[4096];
static size_t request_bytes;
static struct sockaddr_in server;
static int set;
static unsigned long long reads, bytes, last_stamp_ns;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* The request goes out as soon as the connection is open: the loopback connects at once. */
static void start(void) {
    int one = 1, sock = socket(AF_INET, SOCK_STREAM, 0);
    if (sock < 0) die("socket");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(sock, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (connect(sock, (struct sockaddr *)&server, sizeof server)) die("connect");
    if (send(sock, request, request_bytes, 0) != (ssize_t)request_bytes) die("send");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = sock};
    if (epoll_ctl(set, EPOLL_CTL_ADD, sock, &event)) die("epoll_ctl");
}

/* Whether the answer goes on. */
static int receive(int sock) {
    char control[64];
    struct iovec piece = {buffer, BUFFER};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t count = recvmsg(sock, &message, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_type == SCM_TIMESTAMPNS) {
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(header), sizeof stamp);
        last_stamp_ns = stamp.tv_sec * 1000000000ull + stamp.tv_nsec;
    }
    reads++;
    bytes += count;
    return count > 0;
}

int main(int argc, char **argv) {
    if (argc != 5 || getenv("BENCH_OUT") == NULL) {
        fputs("usage: BENCH_OUT=FILE floor PORT STREAMS REQUESTS TOKENS\n", stderr);
        return 2;
    }
    int streams = atoi(argv[2]), requests = atoi(argv[3]), begun = 0, ended = 0;
    char body[1024], prompt[512] = "";
    for (int i = 0; i < 40; i++) strcat(prompt, "Hello ");
    int length = snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"max_tokens\": %s, \"stream\": true}",
                          prompt, argv[4]);
    request_bytes = snprintf(request, sizeof request,
                             "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", length, body);
    server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    set = epoll_create1(0);
    double before = cpu_s();
    while (begun < streams && begun < requests) start(), begun++;
    while (ended < requests) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(set, events, EVENTS, PATIENCE_MS);
        if (count == 0) {
            fputs("the server is silent\n", stderr);
            return 1;
        }
        for (int i = 0; i < count; i++) {
            if (receive(events[i].data.fd)) continue;
            close(events[i].data.fd);
            ended++;
            if (begun < requests) start(), begun++;
        }
    }
    FILE *out = fopen(getenv("BENCH_OUT"), "w");
    if (out == NULL) die("BENCH_OUT");
    fprintf(out, "{\"cpu_s\": %.6f, \"rows\": [], \"reads\": %llu, \"bytes\": %llu, \"last_stamp_ns\": %llu}\n", cpu_s() - before, reads, bytes,
            last_stamp_ns);
    return fclose(out) ? 1 : 0;
}
