/* A driver library with two GPUs that needs no GPU: libnvidia-ml.so.1 for tests.
   GPU 0: 300 W, an energy counter, 5 GiB in use, 3 GiB of them by process FAKE_NVML_PID (if set).
   Its memory is 4 GiB more while the file FAKE_NVML_LOADED exists (if set).
   GPU 1: 100 W, no energy counter, no clocks; lost after FAKE_NVML_LOST_AFTER_S seconds (if set). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK 0
#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
#define GPU_IS_LOST 15
#define GIB (1ull << 30)
#define SAY(text) (snprintf(out, length, "%s", text), OK)

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;

static double started;
static int gpus[2] = {0, 1};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int lost(int *gpu) {
    const char *after = getenv("FAKE_NVML_LOST_AFTER_S");
    return *gpu == 1 && after && now() - started > atof(after);
}
#define ALIVE(gpu) if (lost(gpu)) return GPU_IS_LOST

int nvmlInitWithFlags(unsigned flags) { started = now(); return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "an error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) { return SAY("555.42"); }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = 12040; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, int **out) { *out = &gpus[number]; return OK; }
int nvmlDeviceGetName(int *gpu, char *out, unsigned length) { return SAY(*gpu ? "Fake B" : "Fake A"); }
int nvmlDeviceGetUUID(int *gpu, char *out, unsigned length) { return SAY(*gpu ? "GPU-bbbb" : "GPU-aaaa"); }
int nvmlDeviceGetUtilizationRates(int *gpu, rates_t *out) { ALIVE(gpu); out->gpu = *gpu ? 0 : 80; out->memory = 40; return OK; }
int nvmlDeviceGetPowerUsage(int *gpu, unsigned *out) { ALIVE(gpu); *out = *gpu ? 100000 : 300000; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(int *gpu, unsigned *out) { ALIVE(gpu); *out = 350000; return OK; }
int nvmlDeviceGetTemperature(int *gpu, int sensor, unsigned *out) { ALIVE(gpu); *out = 61; return OK; }

int nvmlDeviceGetMemoryInfo(int *gpu, memory_t *out) {
    ALIVE(gpu);
    out->total = 24 * GIB;
    const char *loaded = getenv("FAKE_NVML_LOADED");
    out->used = *gpu ? 2 * GIB : 5 * GIB;
    if (*gpu == 0 && loaded && access(loaded, F_OK) == 0) out->used += 4 * GIB;
    out->free = out->total - out->used;
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(int *gpu, unsigned long long *out) {
    if (*gpu) return NOT_SUPPORTED;
    *out = (unsigned long long)((now() - started) * 300000);
    return OK;
}

int nvmlDeviceGetClockInfo(int *gpu, int which, unsigned *out) {
    if (*gpu) return NOT_SUPPORTED;
    *out = which == 1 ? 1400 : 9500;
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(int *gpu, unsigned long long *out) {
    *out = *gpu ? 0x1 : 0x4; /* idle, power cap */
    return OK;
}

static int processes(int *gpu, unsigned *count, process_t *out) {
    const char *pid = getenv("FAKE_NVML_PID");
    unsigned room = *count;
    *count = *gpu == 0 && pid ? 1 : 0;
    if (!*count) return OK;
    if (!room) return INSUFFICIENT_SIZE;
    memset(out, 0, sizeof *out);
    out->pid = atoi(pid);
    out->used = 3 * GIB;
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(int *gpu, unsigned *count, process_t *out) { ALIVE(gpu); return processes(gpu, count, out); }
