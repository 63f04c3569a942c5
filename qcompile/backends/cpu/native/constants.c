/* Where the constants of a library are: in its file, or in large pages if they are many.
 *
 * A file is mapped in pages of 4 KiB. A kernel that reads megabytes of weights once, as a product of one row does, then
 * waits for addresses to be translated, and the processor's prefetching stops at the end of every page. So large
 * constants are copied to memory for which the system is asked for large pages. Where it refuses, nothing changes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "services.h"

#define LARGE_PAGE ((size_t)2 << 20)
/* Fewer bytes stay where they are: the second-level caches of translations hold their pages. */
#define MANY_BYTES ((uint64_t)4 << 20)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const unsigned char *address = qc_constants;
static void *memory;
static size_t reserved;

static void place(void) {
#ifdef MADV_HUGEPAGE
  if (qc_constants_bytes < MANY_BYTES) return;
  size_t length = (size_t)((qc_constants_bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
  size_t total = length + LARGE_PAGE;
  void *mapped = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return;
  unsigned char *aligned = (unsigned char *)(((uintptr_t)mapped + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
  if (madvise(aligned, length, MADV_HUGEPAGE) != 0) {
    munmap(mapped, total);
    return;
  }
  memcpy(aligned, qc_constants, (size_t)qc_constants_bytes);
  mprotect(mapped, total, PROT_READ);
  memory = mapped;
  reserved = total;
  address = aligned;
#endif
}

const unsigned char *qc_constants_address(void) {
  pthread_once(&once, place);
  return address;
}

__attribute__((destructor)) static void release(void) {
  if (memory != NULL) munmap(memory, reserved);
}
