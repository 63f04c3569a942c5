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

/* --- the module's own of what follows, and the fields that are used here, found in version 0.4.0 ----------------- */

typedef unsigned assign_sources(unsigned char *instruction, unsigned opcode, _Bool is_64, unsigned nnn, unsigned rm,
                                unsigned vvv, unsigned w, _Bool evex, _Bool displacement8);
typedef unsigned displacement_unit(const unsigned char *instruction, unsigned opcode, unsigned source, unsigned type,
                                   unsigned w);
typedef int decode(const unsigned char *code, void *instruction, unsigned length);
typedef void execute(unsigned char *instruction);

static assign_sources *original_assign_sources;
static displacement_unit *original_displacement_unit;
static decode *decode_64;
static const char *(*name_of_opcode)(uint16_t opcode);
static execute *execute_nop, *original_gather, *original_broadcast_byte, *original_broadcast_word;
static unsigned char *cpu;

void qc_keep_decoder(assign_sources *sources, displacement_unit *unit, decode *whole, const char *(*name)(uint16_t)) {
  original_assign_sources = sources, original_displacement_unit = unit, decode_64 = whole, name_of_opcode = name;
}

void qc_keep_cpu(unsigned char *the_cpu, execute *nop, execute *gather, execute *byte, execute *word) {
  cpu = the_cpu, execute_nop = nop;
  original_gather = gather, original_broadcast_byte = byte, original_broadcast_word = word;
}

/* bytes of an instruction as it is decoded */
enum { FORM = 19, DESTINATION = 20, SOURCE = 21, SECOND = 22, INDEX = 26, IMMEDIATE = 32 };
enum { VECTOR_LENGTH = 33, FLAGS = 34, MASK = 35 };
enum { NO_MEMORY = 16 /* in FORM */, IS_ZEROING = 4, IS_BROADCAST = 8 /* in FLAGS */, INSTRUCTION_SIZE = 256 /* more than enough */ };
/* bytes of the CPU, and of its registers */
enum { VECTORS = 0x3c0, VECTOR_SIZE = 64, MASKS = 0xc08, MASK_SIZE = 8 };

static int starts_with(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

/* The opcode's name without what all AVX-512 instructions begin with; empty for others. */
static const char *name_in_avx512(unsigned opcode) {
  const char *prefix = "BX_IA_EVEX_", *name = name_of_opcode(opcode);
  return starts_with(name, prefix) ? name + strlen(prefix) : "";
}

/* --- decoding ------------------------------------------------------------------------------------------------------
 *
 * Gathers and scatters whose index is one of the vector registers 16 to 31: the bit of the index that says so lies
 * beside the field of a further operand, which these instructions do not have and which must be empty. The module takes
 * that bit for a part of the field and refuses the instruction, after it has decoded all of it.
 *
 * 64-bit shifts to the right by the constant 64: they would be taken for shifts by 0.
 *
 * Instructions that are computed wrongly and not corrected here are refused, as if the CPU did not have them. */

static _Bool has_refused;

static int is_wrong(const unsigned char *instruction, const char *name) {
  static const char *const always[] = {"VPCONFLICT", "VPSHUFBITQMB", "VRANGE", "VCVTNE2PS2BF16"};
  static const char *const if_masked[] = {"VGF2P8AFFINE", "VPMULTISHIFTQB", "VCVTNEPS2BF16"};
  static const char *const from_memory[] = {"VPEXPANDB", "VPEXPANDW"};
  for (int i = 0; i < 4; i++)
    if (starts_with(name, always[i])) return 1;
  for (int i = 0; i < 3; i++)
    if (starts_with(name, if_masked[i])) return instruction[MASK] != 0;
  for (int i = 0; i < 2; i++)
    if (starts_with(name, from_memory[i])) return !(instruction[FORM] & NO_MEMORY);
  return 0;
}

unsigned _Z11assign_srcsP15bxInstruction_cjbjjjjbb(unsigned char *instruction, unsigned opcode, _Bool is_64,
                                                   unsigned nnn, unsigned rm, unsigned vvv, unsigned w, _Bool evex,
                                                   _Bool displacement8) {
  enum { HIGH = 16, FIELD_IS_NOT_EMPTY = 3 };
  unsigned char before = instruction[INDEX];
  unsigned error =
      original_assign_sources(instruction, opcode, is_64, nnn, rm, vvv, w, evex, displacement8);
  int is_index = before < HIGH && instruction[INDEX] == before + HIGH;
  if (strstr(name_of_opcode(opcode), "PSRLQ_UdqIb") != NULL && instruction[IMMEDIATE] == 64) instruction[IMMEDIATE]++;
  if (evex && is_wrong(instruction, name_in_avx512(opcode))) {
    has_refused = 1;
    return FIELD_IS_NOT_EMPTY;
  }
  return error == FIELD_IS_NOT_EMPTY && vvv == HIGH && is_index ? 0 : error;
}

/* Is this an instruction that is refused because it would be computed wrongly? */
int qc_is_refused(const unsigned char *code, unsigned length) {
  unsigned char instruction[INSTRUCTION_SIZE] = {0};
  has_refused = 0;
  decode_64(code, instruction, length);
  return has_refused;
}

/* --- decoding: displacements of a byte, in units that depend on the instruction: some are wrong ------------------- */

unsigned _Z23evex_displ8_compressionPK15bxInstruction_cjjjj(const unsigned char *instruction, unsigned opcode,
                                                            unsigned source, unsigned type, unsigned w) {
  static const char *const pairs[] = {"VFMADDC", "VFCMADDC", "VFMULC", "VFCMULC"};
  unsigned unit = original_displacement_unit(instruction, opcode, source, type, w);
  const char *name = name_in_avx512(opcode);
  if (starts_with(name, "VPINSRB_")) return 1;
  if (starts_with(name, "VMOVW_EdVsh")) return 2;
  if (starts_with(name, "VDPBF16PS_")) return instruction[FLAGS] & IS_BROADCAST ? 4 : 16 * instruction[VECTOR_LENGTH];
  for (int i = 0; i < 4; i++)
    if (starts_with(name, pairs[i])) return unit == 2 ? 4 : unit;
  return unit;
}

/* --- shifts of a 16-bit mask by 15: the module's result is 0, as from 16 on ----------------------------------------
 *
 * The module's own NOP goes on to the next instruction as each instruction has to. */

static void shift_mask(unsigned char *instruction, int is_left) {
  unsigned count = instruction[IMMEDIATE];
  uint64_t mask = 0;
  memcpy(&mask, cpu + MASKS + MASK_SIZE * instruction[SOURCE], 2);
  mask = count > 15 ? 0 : is_left ? mask << count & 0xffff : mask >> count;
  memcpy(cpu + MASKS + MASK_SIZE * instruction[DESTINATION], &mask, MASK_SIZE);
  execute_nop(instruction);
}

void _ZN8BX_CPU_C18KSHIFTLW_KGwKEwIbREP15bxInstruction_c(unsigned char *instruction) { shift_mask(instruction, 1); }

void _ZN8BX_CPU_C18KSHIFTRW_KGwKEwIbREP15bxInstruction_c(unsigned char *instruction) { shift_mask(instruction, 0); }

/* --- results whose upper part the module does not clear: it is cleared before ------------------------------------- */

static void clear_from(unsigned char *instruction, unsigned size) {
  memset(cpu + VECTORS + VECTOR_SIZE * instruction[DESTINATION] + size, 0, VECTOR_SIZE - size);
}

void _ZN8BX_CPU_C23VGATHERQPS_MASK_VpsVSibEP15bxInstruction_c(unsigned char *instruction) {
  if (instruction[DESTINATION] != instruction[INDEX]) clear_from(instruction, 8 * instruction[VECTOR_LENGTH]);
  original_gather(instruction);
}

void _ZN8BX_CPU_C23VPBROADCASTMB2Q_VdqKEbREP15bxInstruction_c(unsigned char *instruction) {
  clear_from(instruction, 0);
  original_broadcast_byte(instruction);
}

void _ZN8BX_CPU_C23VPBROADCASTMW2D_VdqKEwREP15bxInstruction_c(unsigned char *instruction) {
  clear_from(instruction, 0);
  original_broadcast_word(instruction);
}

/* --- 64-bit shifts to the right by a register: the module takes 64 for 0 ------------------------------------------- */

static void shift_right(unsigned char *instruction, int is_arithmetic, int is_masked) {
  uint64_t counts[8], result[8], shifted[8], mask = ~(uint64_t)0;
  unsigned size = 16 * instruction[VECTOR_LENGTH];
  memcpy(counts, cpu + VECTORS + VECTOR_SIZE * instruction[SECOND], VECTOR_SIZE);
  memcpy(result, cpu + VECTORS + VECTOR_SIZE * instruction[DESTINATION], VECTOR_SIZE);
  memcpy(shifted, cpu + VECTORS + VECTOR_SIZE * instruction[SOURCE], VECTOR_SIZE);
  if (is_masked) memcpy(&mask, cpu + MASKS + MASK_SIZE * instruction[MASK], MASK_SIZE);
  for (int i = 0; i < 8; i++) {
    uint64_t count = counts[is_arithmetic ? i : 0];
    if ((mask >> i & 1) == 0)
      result[i] = instruction[FLAGS] & IS_ZEROING ? 0 : result[i];
    else if (is_arithmetic)
      result[i] = (uint64_t)((int64_t)shifted[i] >> (count < 64 ? count : 63));
    else
      result[i] = count < 64 ? shifted[i] >> count : 0;
  }
  memcpy(cpu + VECTORS + VECTOR_SIZE * instruction[DESTINATION], result, size);
  clear_from(instruction, size);
  execute_nop(instruction);
}

void _ZN8BX_CPU_C17HANDLE_AVX_PSHIFTIXadL_Z9xmm_psrlqP12bx_xmm_reg_tmEEEEvP15bxInstruction_c(unsigned char *i) {
  shift_right(i, 0, 0);
}

void _ZN8BX_CPU_C34HANDLE_AVX512_PSHIFT_QWORD_EL_MASKIXadL_Z9xmm_psrlqP12bx_xmm_reg_tmEEEEvP15bxInstruction_c(
    unsigned char *i) {
  shift_right(i, 0, 1);
}

void _ZN8BX_CPU_C14HANDLE_AVX_2OPIXadL_Z10xmm_psravqP12bx_xmm_reg_tPKS1_EEEEvP15bxInstruction_c(unsigned char *i) {
  shift_right(i, 1, 0);
}

void _ZN8BX_CPU_C31HANDLE_AVX512_2OP_QWORD_EL_MASKIXadL_Z10xmm_psravqP12bx_xmm_reg_tPKS1_EEEEvP15bxInstruction_c(
    unsigned char *i) {
  shift_right(i, 1, 1);
}

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
