/* Expands bitmap-packed weights: bit i of the bitmap (lowest bit first) says whether element i is
 * the next stored value or zero. Called from cpu.py through ctypes, which releases the GIL.
 *
 * Three element widths have a vector path: eight elements at a time are moved to their places by one
 * byte shuffle whose pattern is looked up by the byte of the bitmap. The rest, and the last bytes,
 * where the vector path would read beyond the stored values, are done without branches.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define HAS_X86 1
#endif

/* Values that the bitmap asks for. */
int64_t count_values(const uint8_t *bitmap, int64_t num_elements) {
    int64_t full = num_elements / 8, total = 0, i = 0;
    for (; i + 8 <= full; i += 8) {
        uint64_t word;
        memcpy(&word, bitmap + i, 8);
        total += __builtin_popcountll(word);
    }
    for (; i < full; i++) total += __builtin_popcount(bitmap[i]);
    if (num_elements % 8)
        total += __builtin_popcount(bitmap[full] & ((1u << (num_elements % 8)) - 1u));
    return total;
}

#define DEFINE_SCALAR(NAME, TYPE)                                                                 \
    static void NAME(const uint8_t *bitmap, const TYPE *values, int64_t num_values, TYPE *out,    \
                     int64_t begin, int64_t end, int64_t position) {                              \
        if (num_values == 0) { /* there is nothing to read, not even to throw away */             \
            memset(out + begin, 0, (size_t)(end - begin) * sizeof(TYPE));                         \
            return;                                                                               \
        }                                                                                         \
        for (int64_t i = begin; i < end; i++) {                                                   \
            TYPE bit = (TYPE)((bitmap[i >> 3] >> (i & 7)) & 1u);                                  \
            int64_t last = num_values - 1;                                                        \
            TYPE value = values[position < last ? position : last];                               \
            out[i] = (TYPE)(value & (TYPE)(0 - bit));                                             \
            position += bit;                                                                      \
        }                                                                                         \
    }

DEFINE_SCALAR(scalar_1, uint8_t)
DEFINE_SCALAR(scalar_2, uint16_t)
DEFINE_SCALAR(scalar_4, uint32_t)
DEFINE_SCALAR(scalar_8, uint64_t)

#ifdef HAS_X86
static uint8_t shuffle_1[256][8];  /* one byte an element */
static uint8_t shuffle_2[256][16]; /* two bytes an element */
static int32_t permute_4[256][8];  /* one lane an element */
static uint8_t mask_4[256][32];

__attribute__((constructor)) static void fill_tables(void) {
    for (int byte = 0; byte < 256; byte++) {
        int rank = 0;
        for (int k = 0; k < 8; k++) {
            int set = (byte >> k) & 1;
            shuffle_1[byte][k] = set ? (uint8_t)rank : 0x80;
            shuffle_2[byte][2 * k] = set ? (uint8_t)(2 * rank) : 0x80;
            shuffle_2[byte][2 * k + 1] = set ? (uint8_t)(2 * rank + 1) : 0x80;
            permute_4[byte][k] = set ? rank : 0;
            memset(mask_4[byte] + 4 * k, set ? 0xff : 0, 4);
            rank += set;
        }
    }
}

__attribute__((target("avx2,popcnt"))) static int64_t
vector_1(const uint8_t *bitmap, const uint8_t *values, int64_t num_values, uint8_t *out,
         int64_t bytes, int64_t *position) {
    int64_t at = *position, i = 0;
    for (; i < bytes && at + 8 <= num_values; i++) {
        uint8_t byte = bitmap[i];
        __m128i packed = _mm_loadl_epi64((const __m128i *)(values + at));
        __m128i pattern = _mm_loadl_epi64((const __m128i *)shuffle_1[byte]);
        _mm_storel_epi64((__m128i *)(out + 8 * i), _mm_shuffle_epi8(packed, pattern));
        at += _mm_popcnt_u32(byte);
    }
    *position = at;
    return i;
}

__attribute__((target("avx2,popcnt"))) static int64_t
vector_2(const uint8_t *bitmap, const uint16_t *values, int64_t num_values, uint16_t *out,
         int64_t bytes, int64_t *position) {
    int64_t at = *position, i = 0;
    /* Eight values are loaded at a time, whether all are wanted or not. */
    for (; i < bytes && at + 8 <= num_values; i++) {
        uint8_t byte = bitmap[i];
        __m128i packed = _mm_loadu_si128((const __m128i *)(values + at));
        __m128i pattern = _mm_loadu_si128((const __m128i *)shuffle_2[byte]);
        _mm_storeu_si128((__m128i *)(out + 8 * i), _mm_shuffle_epi8(packed, pattern));
        at += _mm_popcnt_u32(byte);
    }
    *position = at;
    return i;
}

__attribute__((target("avx2,popcnt"))) static int64_t
vector_4(const uint8_t *bitmap, const uint32_t *values, int64_t num_values, uint32_t *out,
         int64_t bytes, int64_t *position) {
    int64_t at = *position, i = 0;
    for (; i < bytes && at + 8 <= num_values; i++) {
        uint8_t byte = bitmap[i];
        __m256i packed = _mm256_loadu_si256((const __m256i *)(values + at));
        __m256i order = _mm256_loadu_si256((const __m256i *)permute_4[byte]);
        __m256i kept = _mm256_loadu_si256((const __m256i *)mask_4[byte]);
        __m256i moved = _mm256_permutevar8x32_epi32(packed, order);
        _mm256_storeu_si256((__m256i *)(out + 8 * i), _mm256_and_si256(moved, kept));
        at += _mm_popcnt_u32(byte);
    }
    *position = at;
    return i;
}
#endif

/* Returns 0, or -1 where bitmap and values do not belong together, or -2 for an unknown width.
 * Nothing is written in either case. */
int expand(const uint8_t *bitmap, const void *values, int64_t num_values, void *out,
           int64_t num_elements, int width) {
    if (count_values(bitmap, num_elements) != num_values) return -1;
    int64_t done = 0, position = 0;
#ifdef HAS_X86
    if (__builtin_cpu_supports("avx2")) {
        int64_t bytes = num_elements / 8;
        if (width == 1) done = 8 * vector_1(bitmap, values, num_values, out, bytes, &position);
        if (width == 2) done = 8 * vector_2(bitmap, values, num_values, out, bytes, &position);
        if (width == 4) done = 8 * vector_4(bitmap, values, num_values, out, bytes, &position);
    }
#endif
    switch (width) {
    case 1: scalar_1(bitmap, values, num_values, out, done, num_elements, position); return 0;
    case 2: scalar_2(bitmap, values, num_values, out, done, num_elements, position); return 0;
    case 4: scalar_4(bitmap, values, num_values, out, done, num_elements, position); return 0;
    case 8: scalar_8(bitmap, values, num_values, out, done, num_elements, position); return 0;
    default: return -2;
    }
}
