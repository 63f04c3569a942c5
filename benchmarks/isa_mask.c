/* An auditing library of the dynamic linker (man 7 rtld-audit) that hides AVX-512 and AVX-VNNI from chosen objects.
 *
 * The linker calls la_objopen when an object is mapped and before any of its code runs, constructors and resolvers
 * included. There each `cpuid` (0F A2) of the list becomes `ud2` (0F 0B), which has the same length, and the handler of
 * SIGILL executes cpuid in its place and clears the bits. What is not on the list is never touched.
 *
 * The list is the text file that QCOMPILE_ISA_MASK_SITES names, one instruction a line: device inode address, the
 * address as in the object's disassembly.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) (1u << (n))

static const unsigned char CPUID[2] = {0x0f, 0xa2};
static const unsigned char UD2[2] = {0x0f, 0x0b};

/* Clears what a CPU with AVX2 and nothing later lacks, in the answer to (leaf, subleaf). */
static void mask(uint32_t leaf, uint32_t subleaf, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
    if (leaf == 7 && subleaf == 0) {
        *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)); /* F DQ IFMA PF ER CD BW VL */
        *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14)); /* VBMI VBMI2 VNNI BITALG VPOPCNTDQ */
        *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)); /* 4VNNIW 4FMAPS VP2INTERSECT FP16 AMX */
    } else if (leaf == 7 && subleaf == 1) {
        *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));           /* AVX-VNNI BF16 AMX-FP16 AVX-IFMA */
        *d &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)); /* VNNI-INT8 NE-CONVERT AMX-COMPLEX VNNI-INT16 AVX10 */
    } else if (leaf == 0x24) {
        *a = *b = *c = *d = 0; /* AVX10 */
    }
}

static void on_illegal_instruction(int number, siginfo_t *information, void *opaque) {
    greg_t *registers = ((ucontext_t *)opaque)->uc_mcontext.gregs;
    (void)information;
    if (memcmp((const void *)registers[REG_RIP], UD2, sizeof UD2) != 0) {
        signal(number, SIG_DFL); /* some other instruction: it runs again, and ends the process as it should */
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
    uint32_t a, b, c, d;
    __cpuid_count(leaf, subleaf, a, b, c, d);
    mask(leaf, subleaf, &a, &b, &c, &d);
    registers[REG_RAX] = a;
    registers[REG_RBX] = b;
    registers[REG_RCX] = c;
    registers[REG_RDX] = d;
    registers[REG_RIP] += (greg_t)sizeof UD2;
}

static void patch(unsigned char *place) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)place & ~(page - 1);
    size_t length = (uintptr_t)place + sizeof UD2 - start;
    if (mprotect((void *)start, length, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return;
    if (memcmp(place, CPUID, sizeof CPUID) == 0)
        memcpy(place, UD2, sizeof UD2);
    mprotect((void *)start, length, PROT_READ | PROT_EXEC);
}

static char list[4096];

unsigned int la_version(unsigned int version) {
    const char *chosen = getenv("QCOMPILE_ISA_MASK_SITES");
    if (chosen != NULL && strlen(chosen) < sizeof list)
        strcpy(list, chosen); /* the program may change its environment later */
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    struct stat status;
    unsigned long device, inode, address;
    (void)namespace;
    (void)cookie;
    if (!list[0] || stat(map->l_name, &status) != 0)
        return 0;
    FILE *file = fopen(list, "r");
    if (file == NULL)
        return 0;
    int found = 0;
    while (fscanf(file, "%lu %lu %lx", &device, &inode, &address) == 3) {
        if (device != (unsigned long)status.st_dev || inode != (unsigned long)status.st_ino)
            continue;
        if (!found) {
            struct sigaction action = {.sa_sigaction = on_illegal_instruction, .sa_flags = SA_SIGINFO | SA_NODEFER};
            sigaction(SIGILL, &action, NULL);
            found = 1;
        }
        patch((unsigned char *)(map->l_addr + address));
    }
    fclose(file);
    return 0;
}
