/* What the machine can do at most: multiply-adds of int16 pairs or of four bytes from registers, and reading memory. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

/* One vpmaddwd and the vpaddd that collects it; volatile, because the operands never change. */
#define STEP(accumulator)                                                                     \
    __asm__ volatile("vpmaddwd %2, %1, %%ymm15\n\tvpaddd %%ymm15, %0, %0"                     \
                     : "+x"(accumulator)                                                      \
                     : "x"(left), "x"(right)                                                  \
                     : "xmm15")

/* Does rounds x 12 vpmaddwd and vpaddd on 12 independent accumulators; each vpmaddwd is 16 multiply-accumulates. */
__attribute__((target("avx2"))) int32_t multiply_add(int64_t rounds) {
    __m256i left = _mm256_set1_epi16(3), right = _mm256_set1_epi16(5), zero = _mm256_setzero_si256();
    __m256i a = zero, b = zero, c = zero, d = zero, e = zero, f = zero;
    __m256i g = zero, h = zero, i = zero, j = zero, k = zero, l = zero;
    for (int64_t round = 0; round < rounds; round++) {
        STEP(a); STEP(b); STEP(c); STEP(d); STEP(e); STEP(f);
        STEP(g); STEP(h); STEP(i); STEP(j); STEP(k); STEP(l);
    }
    a = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    e = _mm256_add_epi32(_mm256_add_epi32(e, f), _mm256_add_epi32(g, h));
    i = _mm256_add_epi32(_mm256_add_epi32(i, j), _mm256_add_epi32(k, l));
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(_mm256_add_epi32(a, _mm256_add_epi32(e, i))));
}

/* An instruction on 12 registers, each independent of the others. The operands are what the registers hold. */
#define TWELVE_REGISTERS(prefix, r)                                                                               \
    prefix " %%" r "14, %%" r "15, %%" r "0\n\t" prefix " %%" r "14, %%" r "15, %%" r "1\n\t"                      \
    prefix " %%" r "14, %%" r "15, %%" r "2\n\t" prefix " %%" r "14, %%" r "15, %%" r "3\n\t"                      \
    prefix " %%" r "14, %%" r "15, %%" r "4\n\t" prefix " %%" r "14, %%" r "15, %%" r "5\n\t"                      \
    prefix " %%" r "14, %%" r "15, %%" r "6\n\t" prefix " %%" r "14, %%" r "15, %%" r "7\n\t"                      \
    prefix " %%" r "14, %%" r "15, %%" r "8\n\t" prefix " %%" r "14, %%" r "15, %%" r "9\n\t"                      \
    prefix " %%" r "14, %%" r "15, %%" r "10\n\t" prefix " %%" r "14, %%" r "15, %%" r "11\n\t"
#define VECTOR_REGISTERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

/* 16 products an instruction, which nothing collects: the multiplying ports and nothing else. */
void multiply_pairs_16(int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++)
        __asm__ volatile(TWELVE_REGISTERS("vpmaddwd", "ymm") ::: VECTOR_REGISTERS);
}

/* 32 products an instruction, which nothing collects. */
void multiply_pairs_8(int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++)
        __asm__ volatile(TWELVE_REGISTERS("vpmaddubsw", "ymm") ::: VECTOR_REGISTERS);
}

/* Sums of products of four bytes, 32 multiply-accumulates an instruction. */
void dot_product_256(int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++)
        __asm__ volatile(TWELVE_REGISTERS("%{vex%} vpdpbusd", "ymm") ::: VECTOR_REGISTERS);
}

/* 64 multiply-accumulates an instruction. */
void dot_product_512(int64_t rounds) {
    for (int64_t round = 0; round < rounds; round++)
        __asm__ volatile(TWELVE_REGISTERS("vpdpbusd", "zmm") ::: VECTOR_REGISTERS);
}

/* The sum of `count` int32, a multiple of 64, read with 8 independent vectors, `rounds` times. */
__attribute__((target("avx2"))) int32_t read_memory(const int32_t *data, int64_t count, int64_t rounds) {
    __m256i sums[8];
    for (int i = 0; i < 8; i++)
        sums[i] = _mm256_setzero_si256();
    for (int64_t round = 0; round < rounds; round++) {
        for (int64_t start = 0; start < count; start += 64)
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                sums[i] = _mm256_add_epi32(sums[i], _mm256_loadu_si256((const __m256i *)(data + start + 8 * i)));
        __asm__ volatile("" ::: "memory"); /* every round reads again */
    }
    for (int i = 1; i < 8; i++)
        sums[0] = _mm256_add_epi32(sums[0], sums[i]);
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(sums[0]));
}
