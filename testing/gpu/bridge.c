/*
 * A libcuda.so.1 that passes each call to the driver's library, which is linked as
 * libcuda_driver.so: dlsym finds its functions through this library. Exported memory is announced
 * to the model of an adapter (nic-model), which cannot map it and copies it with these functions.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef unsigned long long address_t;

static void *context, *stream;
static int (*set_context)(void *);
static int (*to_host)(void *, address_t, size_t, void *);
static int (*to_device)(address_t, const void *, size_t, void *);
static int (*synchronize)(void *);

static int read_memory(void *to, unsigned long from, size_t length) {
    int status = set_context(context);
    if (!status) status = to_host(to, from, length, stream);
    return status ? status : synchronize(stream);
}

static int write_memory(unsigned long to, const void *from, size_t length) {
    int status = set_context(context);
    if (!status) status = to_device(to, from, length, stream);
    return status ? status : synchronize(stream);
}

/*
 * Creates a stream that does not wait for the kernels of others, which may wait for the adapter.
 * The context is retained, because a program may end it and open the GPU again.
 */
static int prepare(void *driver) {
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*create_stream)(void **, unsigned) = dlsym(driver, "cuStreamCreate");
    if (stream) return 0;
    set_context = dlsym(driver, "cuCtxSetCurrent");
    to_host = dlsym(driver, "cuMemcpyDtoHAsync_v2");
    to_device = dlsym(driver, "cuMemcpyHtoDAsync_v2");
    synchronize = dlsym(driver, "cuStreamSynchronize");
    int status = retain(&context, 0);
    return status ? status : create_stream(&stream, 1);
}

int cuMemGetHandleForAddressRange(void *handle, address_t address, size_t length, int kind,
                                  address_t flags) {
    void *driver = dlopen("libcuda_driver.so", RTLD_NOW | RTLD_NOLOAD);
    int (*export)(void *, address_t, size_t, int, address_t) =
        dlsym(driver, "cuMemGetHandleForAddressRange");
    int (*announce)(int, unsigned long, void *, void *) =
        dlsym(RTLD_DEFAULT, "nic_model_announce_dmabuf");
    int status = export(handle, address, length, kind, flags);
    if (!status && announce) {
        status = prepare(driver);
        announce(*(int *)handle, address, read_memory, write_memory);
    }
    return status;
}
