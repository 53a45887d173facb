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

static inline uint64_t tc_hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t word;
    for (; size >= sizeof word; size -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = tc_hash_mix(hash, word);
    }
    word = size; /* "a" and "a\0" differ */
    memcpy(&word, at, size);
    return tc_hash_mix(hash, word ^ (uint64_t)size << 56);
}

#endif
