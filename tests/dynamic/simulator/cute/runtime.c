/* A CUDA runtime for CuTe DSL's host code that launches nothing: each launch is handed to a function that the process
   sets. Signatures are those of the CUDA runtime API. */
#include <string.h>

typedef int (*launch_t)(const void *config, const char *kernel, void **arguments);
static launch_t on_launch;

void kcontract_set(launch_t launch) { on_launch = launch; }

int _cudaLibraryLoadData(void **library, const void *code, void **a, void **b, unsigned c, void **d, void **e,
                         unsigned f) {
  *library = (void *)1;
  return 0;
}
int _cudaLibraryUnload(void *library) { return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
  *kernel = strdup(name);
  return 0;
}
int _cudaFuncSetAttribute(const void *function, int attribute, int value) { return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) { return 0; }
int _cudaSetDevice(int device) { return 0; }
int _cudaGetDevice(int *device) { return *device = 0; }
int _cudaGetDeviceCount(int *count) {
  *count = 1;
  return 0;
}
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) { return *value = 0; }
int _cudaDeviceGetAttribute(int *value, int attribute, int device) { /* of a B200 */
  *value = attribute == 75 ? 10 : attribute == 16 ? 148 : attribute == 97 ? 232448 : 0;
  return 0;
}
int _cudaGetLastError(void) { return 0; }
int _cudaLaunchKernelEx(const void *config, const void *function, void **arguments) {
  return on_launch(config, function, arguments);
}
