/* The functions that a kernel library exports: find and run the kernels of its table. */
#include <string.h>

#include "services.h"

/* Index of DLTensor* among the types of TVM's calling convention. */
#define DLTENSOR_POINTER 7
#define CPU_DEVICE 1

/* DLTensor of DLPack. */
typedef struct {
  void *data;
  struct {
    int32_t type, index;
  } device;
  int32_t dimensions;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } type;
  const int64_t *shape;
  const int64_t *strides;
  uint64_t byte_offset;
} tensor;

/* TVMFFIAny. */
typedef struct {
  int32_t type_index;
  uint32_t padding;
  void *value;
} any;

int32_t qc_abi_version(void) { return QC_ABI_VERSION; }

int32_t qc_kernel_count(void) { return qc_kernel_table_length; }

const qc_kernel_description *qc_kernel(int32_t index) {
  return index >= 0 && index < qc_kernel_table_length ? &qc_kernel_table[index] : NULL;
}

int32_t qc_find(const char *name) {
  for (int32_t i = 0; i < qc_kernel_table_length; i++)
    if (strcmp(qc_kernel_table[i].name, name) == 0) return i;
  return -1;
}

int32_t qc_run(int32_t index, void *const *tensors, int32_t threads) {
  const qc_kernel_description *kernel = qc_kernel(index);
  if (kernel == NULL) {
    qc_set_error("there is no kernel of that index");
    return -1;
  }
  if (kernel->argument_count > QC_MAXIMUM_ARGUMENTS) {
    qc_set_error("the kernel has too many arguments");
    return -1;
  }
  tensor views[QC_MAXIMUM_ARGUMENTS];
  any arguments[QC_MAXIMUM_ARGUMENTS];
  for (int32_t i = 0; i < kernel->argument_count; i++) {
    const qc_argument *argument = &kernel->arguments[i];
    void *data;
    if (argument->kind == QC_CONSTANT) {
      data = (void *)(qc_constants_address() + argument->constant_offset);
    } else {
      data = *tensors++;
      if (data == NULL && argument->optional) data = (void *)qc_zeros;
      if (data == NULL) {
        qc_set_error("the address of a tensor is NULL");
        return -1;
      }
    }
    views[i] = (tensor){data,
                        {CPU_DEVICE, 0},
                        argument->code_dimensions,
                        {(uint8_t)argument->type_code, (uint8_t)argument->bits, 1},
                        argument->code_shape,
                        NULL,
                        0};
    arguments[i] = (any){DLTENSOR_POINTER, 0, &views[i]};
  }
  any result = {0, 0, NULL};
  qc_set_error("");
  if (qc_request_threads(threads) != 0) return -1;
  void *before = qc_held_memory();
  int32_t status = kernel->entry(NULL, arguments, kernel->argument_count, &result);
  if (status != 0) qc_release_memory(before);
  return status;
}
