/* Shared by the C files of a kernel library; not for its users. */
#ifndef QCOMPILE_SERVICES_H
#define QCOMPILE_SERVICES_H

#include "qcompile.h"

void qc_set_error(const char *text);
/* Sets the number of threads of the calling thread's next kernel; not 0 where the environment asks for a wrong one. */
int qc_request_threads(int32_t threads);

/* The scratch memory that the calling thread holds, and giving back all that it took since then. */
void *qc_held_memory(void);
void qc_release_memory(void *until);

/* Where the constants are read from. */
const unsigned char *qc_constants_address(void);

/* The table that is generated for each library. */
extern const qc_kernel_description qc_kernel_table[];
extern const int32_t qc_kernel_table_length;
extern const unsigned char qc_constants[];
extern const uint64_t qc_constants_bytes;
extern const unsigned char qc_zeros[];

#endif
