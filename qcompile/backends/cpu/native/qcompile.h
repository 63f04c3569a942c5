/* Kernels of one library that qcompile compiled. Every such library exports these functions and nothing else.
 *
 *     int32_t kernel = qc_find("conv1");
 *     void *tensors[] = {input, output};
 *     if (qc_run(kernel, tensors, 0) != 0) fprintf(stderr, "%s\n", qc_last_error());
 */
#ifndef QCOMPILE_H
#define QCOMPILE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QC_ABI_VERSION 1

enum { QC_INPUT = 0, QC_OUTPUT = 1, QC_CONSTANT = 2 };
/* Type codes of DLPack. */
enum { QC_SIGNED = 0, QC_UNSIGNED = 1, QC_FLOAT = 2 };

/* One argument of a kernel. `shape` is the operator's, `code_shape` how the generated code sees the same elements.
 * `optional` inputs may be NULL and are then 0. */
typedef struct {
  const char *name;
  int32_t kind;
  int32_t optional;
  int32_t type_code;
  int32_t bits;
  int32_t dimensions;
  int32_t code_dimensions;
  const int64_t *shape;
  const int64_t *code_shape;
  uint64_t constant_offset;
} qc_argument;

typedef struct qc_kernel_description {
  const char *name;
  int32_t argument_count;
  const qc_argument *arguments;
  int (*entry)(void *self, void *arguments, int32_t count, void *result);
} qc_kernel_description;

int32_t qc_abi_version(void);
int32_t qc_kernel_count(void);
/* NULL where there is no kernel of that index. */
const qc_kernel_description *qc_kernel(int32_t index);
/* The index of a kernel, or -1. */
int32_t qc_find(const char *name);
/* Runs a kernel. `tensors` are the addresses of its inputs, then of its outputs, in the order of its arguments;
 * contiguous, of any alignment. `threads`: 0 takes the environment variable QCOMPILE_NUM_THREADS, else the number of cores.
 * Returns 0, or another number, and then qc_last_error() says why. May be called from several threads. */
int32_t qc_run(int32_t index, void *const *tensors, int32_t threads);
/* The last error of the calling thread; "" where there was none. */
const char *qc_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
