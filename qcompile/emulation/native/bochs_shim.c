/* Loaded, with its symbols visible to all, before the extension module of bochscpu. The system's loader then takes
 * these functions in place of the module's own of the same names, and gives it those that it lacks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* --- libc's functions of C23, which the module wants and libc has since 2.38 -------------------------------------- */

unsigned long long __isoc23_strtoull(const char *text, char **end, int base) { return strtoull(text, end, base); }

int __isoc23_sscanf(const char *text, const char *format, ...) {
  va_list values;
  va_start(values, format);
  int count = vsscanf(text, format, values);
  va_end(values);
  return count;
}

/* --- the CPU model: the module asks for this one alone, but has many ---------------------------------------------- */

static void *(*create_model)(void *);

void qc_choose_model(void *(*create)(void *)) { create_model = create; }

void *_Z23create_corei3_cnl_cpuidP8BX_CPU_C(void *cpu) {
  if (create_model == NULL) abort();
  return create_model(cpu);
}

/* --- decoding: gathers and scatters whose index is one of the vector registers 16 to 31 ------------------------------
 *
 * The bit of the index that says so lies beside the field of a further operand, which these instructions do not have
 * and which must be empty. The module takes that bit for a part of the field and refuses the instruction, after it has
 * decoded all of it. */

typedef unsigned assign_sources(unsigned char *instruction, unsigned opcode, _Bool is_64, unsigned nnn, unsigned rm,
                                unsigned vvv, unsigned w, _Bool evex, _Bool displacement8);

static assign_sources *original_assign_sources;

void qc_keep_decoder(assign_sources *original) { original_assign_sources = original; }

unsigned _Z11assign_srcsP15bxInstruction_cjbjjjjbb(unsigned char *instruction, unsigned opcode, _Bool is_64,
                                                   unsigned nnn, unsigned rm, unsigned vvv, unsigned w, _Bool evex,
                                                   _Bool displacement8) {
  enum { INDEX = 26, HIGH = 16, FIELD_IS_NOT_EMPTY = 3 };
  unsigned char before = instruction[INDEX];
  unsigned error =
      original_assign_sources(instruction, opcode, is_64, nnn, rm, vvv, w, evex, displacement8);
  int is_index = before < HIGH && instruction[INDEX] == before + HIGH;
  return error == FIELD_IS_NOT_EMPTY && vvv == HIGH && is_index ? 0 : error;
}

/* --- decoding: displacements of a byte, in units that depend on the instruction ------------------------------------
 *
 * The module has the wrong unit for these. */

typedef unsigned displacement_unit(const unsigned char *instruction, unsigned opcode, unsigned source, unsigned type,
                                   unsigned w);
typedef const char *opcode_name(uint16_t opcode);

static displacement_unit *original_displacement_unit;
static opcode_name *name_of_opcode;

void qc_keep_displacement_unit(displacement_unit *original) { original_displacement_unit = original; }

void qc_keep_opcode_name(opcode_name *original) { name_of_opcode = original; }

unsigned _Z23evex_displ8_compressionPK15bxInstruction_cjjjj(const unsigned char *instruction, unsigned opcode,
                                                            unsigned source, unsigned type, unsigned w) {
  static const char *const pairs[] = {"VFMADDC", "VFCMADDC", "VFMULC", "VFCMULC"};
  enum { VECTOR_LENGTH = 33, FLAGS = 34, IS_BROADCAST = 8 };
  unsigned unit = original_displacement_unit(instruction, opcode, source, type, w);
  const char *prefix = "BX_IA_EVEX_", *name = name_of_opcode(opcode);
  if (strncmp(name, prefix, strlen(prefix)) != 0) return unit;
  name += strlen(prefix);
  if (strncmp(name, "VPINSRB_", 8) == 0) return 1;
  if (strcmp(name, "VMOVW_EdVsh") == 0) return 2;
  if (strncmp(name, "VDPBF16PS_", 10) == 0)
    return instruction[FLAGS] & IS_BROADCAST ? 4 : 16 * instruction[VECTOR_LENGTH];
  for (int i = 0; i < 4; i++)
    if (strncmp(name, pairs[i], strlen(pairs[i])) == 0) return unit == 2 ? 4 : unit;
  return unit;
}

/* --- shifts of a 16-bit mask by 15: the module's result is 0, as from 16 on ----------------------------------------
 *
 * The module's own NOP goes on to the next instruction as each instruction has to. */

typedef void execute(unsigned char *instruction);

static execute *execute_nop;
static unsigned char *cpu;

void qc_keep_cpu(execute *nop, unsigned char *the_cpu) { execute_nop = nop, cpu = the_cpu; }

static void shift_mask(unsigned char *instruction, int is_left) {
  enum { DESTINATION = 20, SOURCE = 21, IMMEDIATE = 32, MASKS = 0xc08, SIZE = 8 };
  unsigned count = instruction[IMMEDIATE];
  uint64_t mask = 0;
  memcpy(&mask, cpu + MASKS + SIZE * instruction[SOURCE], 2);
  mask = count > 15 ? 0 : is_left ? mask << count & 0xffff : mask >> count;
  memcpy(cpu + MASKS + SIZE * instruction[DESTINATION], &mask, SIZE);
  execute_nop(instruction);
}

void _ZN8BX_CPU_C18KSHIFTLW_KGwKEwIbREP15bxInstruction_c(unsigned char *instruction) { shift_mask(instruction, 1); }

void _ZN8BX_CPU_C18KSHIFTRW_KGwKEwIbREP15bxInstruction_c(unsigned char *instruction) { shift_mask(instruction, 0); }

/* --- what the module does at every instruction and access: nothing but counting ------------------------------------ */

uint64_t qc_instructions;

void bx_instr_before_execution(unsigned cpu, void *instruction) { (void)cpu, (void)instruction; }

void bx_instr_after_execution(unsigned cpu, void *instruction) {
  (void)cpu, (void)instruction;
  qc_instructions++;
}

void bx_instr_lin_access(unsigned cpu, uint64_t linear, uint64_t physical, unsigned length, unsigned type, unsigned rw) {
  (void)cpu, (void)linear, (void)physical, (void)length, (void)type, (void)rw;
}

/* --- the process ends with its parent, also in the middle of a kernel ---------------------------------------------- */

static void *watch(void *parent) {
  while (getppid() == (pid_t)(intptr_t)parent) usleep(200000);
  _exit(1);
}

int qc_watch_parent(int parent) {
  pthread_t thread;
  return pthread_create(&thread, NULL, watch, (void *)(intptr_t)parent);
}
