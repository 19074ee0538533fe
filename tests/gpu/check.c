/* What a pod finds of its GPUs and interfaces, a line each: `GPU UUID BUS-ID NAME`, `IF NAME` and
 * `ENV NAME=VALUE`. Each GPU adds two vectors, and `SUM n` says how many results were right.
 *
 * With the argument `nccl` it starts NCCL instead, with one rank for each GPU, so that NCCL writes the
 * topology that it found to the file in NCCL_TOPO_DUMP_FILE.
 *
 * With the argument `stay` it prints `DONE` at the end and does not end: the claim of a pod that has
 * ended is removed.
 *
 * CUDA's driver and NCCL are loaded while it runs, so that it builds where neither exists. */
#include <dlfcn.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 65536

extern char **environ;

static const char *const KERNEL =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry add(.param .u64 a, .param .u64 b, .param .u32 n) {\n"
    ".reg .pred %p;\n.reg .b32 %r<5>;\n.reg .b64 %d<5>;\n.reg .f32 %f<3>;\n"
    "ld.param.u64 %d0, [a];\nld.param.u64 %d1, [b];\nld.param.u32 %r0, [n];\n"
    "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
    "mad.lo.u32 %r4, %r1, %r2, %r3;\nsetp.ge.u32 %p, %r4, %r0;\n@%p bra DONE;\n"
    "mul.wide.u32 %d2, %r4, 4;\nadd.u64 %d3, %d0, %d2;\nadd.u64 %d4, %d1, %d2;\n"
    "ld.global.f32 %f0, [%d3];\nld.global.f32 %f1, [%d4];\nadd.f32 %f2, %f0, %f1;\n"
    "st.global.f32 [%d4], %f2;\nDONE:\nret;\n}\n";

static void *library;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("error: ", stdout);
    vprintf(format, arguments);
    va_end(arguments);
    puts("");
    exit(1);
}

static void open_library(const char *name) {
    library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) fail("%s", dlerror());
}

/* Calls a function of the library, all of which return 0 if they succeed. */
#define CALL(function, ...)                                                        \
    do {                                                                           \
        int (*called)() = (int (*)())dlsym(library, function);                     \
        if (!called) fail("%s", dlerror());                                        \
        int answer = called(__VA_ARGS__);                                          \
        if (answer) fail("%s: %d", function, answer);                              \
    } while (0)

/* Prints a GPU, and how many of its sums are right. */
static void compute(int index) {
    int device;
    unsigned char uuid[16];
    char bus[32], name[128];
    void *context, *module, *function;
    unsigned long long a, b;
    unsigned count = COUNT, right = 0;
    static float one[COUNT], other[COUNT];

    CALL("cuDeviceGet", &device, index);
    CALL("cuDeviceGetUuid", uuid, device);
    CALL("cuDeviceGetPCIBusId", bus, (int)sizeof bus, device);
    CALL("cuDeviceGetName", name, (int)sizeof name, device);
    printf("GPU GPU-");
    for (int i = 0; i < 16; i++)
        printf("%02x%s", uuid[i], i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    printf(" %s %s\n", bus, name);

    CALL("cuDevicePrimaryCtxRetain", &context, device);
    CALL("cuCtxSetCurrent", context);
    CALL("cuModuleLoadData", &module, KERNEL);
    CALL("cuModuleGetFunction", &function, module, "add");
    CALL("cuMemAlloc_v2", &a, sizeof one);
    CALL("cuMemAlloc_v2", &b, sizeof other);
    for (int i = 0; i < COUNT; i++) { one[i] = i; other[i] = 2 * i; }
    CALL("cuMemcpyHtoD_v2", a, one, sizeof one);
    CALL("cuMemcpyHtoD_v2", b, other, sizeof other);
    void *parameters[] = {&a, &b, &count};
    CALL("cuLaunchKernel", function, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL);
    CALL("cuCtxSynchronize");
    CALL("cuMemcpyDtoH_v2", other, b, sizeof other);
    for (int i = 0; i < COUNT; i++) right += other[i] == 3.0f * i;
    printf("SUM %u\n", right);
}

static void start_nccl(void) {
    void *communicators[64] = {0};
    int gpus;
    CALL("cuInit", 0);
    CALL("cuDeviceGetCount", &gpus);
    if (gpus > 64) fail("%d GPUs", gpus);
    open_library("libnccl.so.2");
    CALL("ncclCommInitAll", communicators, gpus, NULL);
}

int main(int count, char **arguments) {
    int gpus;
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_library("libcuda.so.1");
    if (count > 1 && !strcmp(arguments[1], "nccl")) {
        start_nccl();
        return 0;
    }
    struct if_nameindex *interfaces = if_nameindex();
    for (struct if_nameindex *it = interfaces; it && it->if_index; it++) printf("IF %s\n", it->if_name);
    for (char **variable = environ; *variable; variable++) printf("ENV %s\n", *variable);
    CALL("cuInit", 0);
    CALL("cuDeviceGetCount", &gpus);
    for (int index = 0; index < gpus; index++) compute(index);
    if (count > 1 && !strcmp(arguments[1], "stay")) {
        puts("DONE");
        for (;;) pause();
    }
    return 0;
}
