/* Shared by the C files of a kernel library; not for its users. */
#ifndef QCOMPILE_SERVICES_H
#define QCOMPILE_SERVICES_H

#include "qcompile.h"

void qc_set_error(const char *text);
void qc_request_threads(int32_t threads);

/* The table that is generated for each library. */
extern const qc_kernel_description qc_kernel_table[];
extern const int32_t qc_kernel_table_length;
extern const unsigned char qc_constants[];
extern const unsigned char qc_zeros[];

#endif
