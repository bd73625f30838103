/* A CUDA driver of one function, to be named libcuda.so.1: the addresses that a test names are device memory,
 * or managed memory. */
#include <stdint.h>

static uint64_t device_address;
static uint64_t managed_address;

/* Called by the test. */
__attribute__((visibility("default"))) void set_addresses(uint64_t device, uint64_t managed);
void set_addresses(uint64_t device, uint64_t managed) {
  device_address = device;
  managed_address = managed;
}

/* As the driver answers: 2 is the memory type (2: device), 8 whether memory is managed; 1: an invalid value.
 */
__attribute__((visibility("default"))) int cuPointerGetAttribute(void* value, int attribute,
                                                                 uint64_t pointer);
int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  unsigned* answer = (unsigned*)value;
  if (pointer != device_address && pointer != managed_address) return 1;
  if (attribute == 2) {
    *answer = 2;
  } else if (attribute == 8) {
    *answer = pointer == managed_address;
  } else {
    return 1;
  }
  return 0;
}
