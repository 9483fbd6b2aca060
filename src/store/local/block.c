#include "store/local/block.h"

#include <string.h>

#include "sluice/store.h"
#include "store/local/fetch.h"

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx2"))) static void stream(uint8_t *to, const uint8_t *from)
{
    enum { WORDS = 4 };
    __m256i *out = (__m256i *)to;
    for (unsigned i = 0; i < STORE_BLOCK / sizeof(*out); i += WORDS) {
        __m256i word[WORDS];
        for (unsigned n = 0; n < WORDS; n++)
            word[n] = _mm256_loadu_si256((const __m256i *)from + i + n);
        for (unsigned n = 0; n < WORDS; n++)
            _mm256_stream_si256(out + i + n, word[n]);
    }
}

/* The CRC first: it brings the block near, and what is streamed would be far when it is read again. */
uint32_t block_stream(uint8_t *to, const uint8_t *from)
{
    uint32_t crc = block_crc(from);
    if (__builtin_cpu_supports("avx2"))
        stream(to, from);
    else
        memcpy(to, from, STORE_BLOCK);
    return crc;
}

void block_stream_end(void)
{
    _mm_sfence(); /* such stores keep no order of their own */
}
#else
uint32_t block_stream(uint8_t *to, const uint8_t *from)
{
    memcpy(to, from, STORE_BLOCK);
    return block_crc(to);
}

void block_stream_end(void)
{
}
#endif
