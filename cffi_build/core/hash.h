/* A hash that speeds look-ups up; whoever uses it compares the whole contents too. */
#ifndef TC_HASH_H
#define TC_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t tc_hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static inline uint64_t tc_hash_word(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Four chains side by side, since each step of one waits for the multiplication before it. */
static inline uint64_t tc_hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t chains[4] = {hash, ~hash, hash + size, hash ^ size << 32};
    for (; size >= 32; size -= 32, at += 32)
        for (int i = 0; i < 4; i++)
            chains[i] = tc_hash_mix(chains[i], tc_hash_word(at + 8 * i));
    for (; size >= 8; size -= 8, at += 8)
        chains[0] = tc_hash_mix(chains[0], tc_hash_word(at));
    uint64_t rest = 0;
    memcpy(&rest, at, size);
    hash = tc_hash_mix(chains[0], rest);
    for (int i = 1; i < 4; i++)
        hash = tc_hash_mix(hash, chains[i]);
    return hash;
}

#endif
