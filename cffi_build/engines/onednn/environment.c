/* The text of CPU and library that stands in the key beside the convolution. */
#ifdef TC_WITH_ONEDNN

#include "onednn.h"

#include <cpuid.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* By value: newer versions give some of these instruction sets other names. */
static const char *isa_name(dnnl_cpu_isa_t isa, char *buffer, size_t size)
{
    static const struct { unsigned isa; const char *name; } names[] = {
        {0x1, "sse41"}, {0x3, "avx"}, {0x7, "avx2"}, {0xf, "avx2_vnni"}, {0x1f, "avx2_vnni_2"},
        {0x27, "avx512_core"}, {0x67, "avx512_core_vnni"}, {0xe7, "avx512_core_bf16"}, {0x1ef, "avx512_core_fp16"},
        {0xfef, "avx512_core_amx"}, {0x1fef, "avx512_core_amx_fp16"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].isa == (unsigned)isa)
            return names[i].name;
    snprintf(buffer, size, "0x%x", (unsigned)isa);
    return buffer;
}

/* Printable, single spaces, and none of the characters that structure the text. */
static void tidy(char *text)
{
    char *end = text;
    for (const char *c = text; *c; c++) {
        int blank = *c <= ' ' || *c > '~' || strchr("|;=", *c) != NULL;
        if (!blank)
            *end++ = *c;
        else if (end > text && end[-1] != ' ')
            *end++ = ' ';
    }
    while (end > text && end[-1] == ' ')
        end--;
    *end = '\0';
}

/* "<brand> family.model.stepping", as the processor names itself. */
static void cpu_name(char *text, size_t size)
{
    unsigned brand[12] = {0}, a = 0, b = 0, c = 0, d = 0;
    char name[sizeof brand + 1] = "";
    if (__get_cpuid_max(0x80000000, NULL) >= 0x80000004)
        for (unsigned i = 0; i < 3; i++)
            __cpuid(0x80000002 + i, brand[4 * i], brand[4 * i + 1], brand[4 * i + 2], brand[4 * i + 3]);
    memcpy(name, brand, sizeof brand);
    name[sizeof brand] = '\0';
    tidy(name);

    __get_cpuid(1, &a, &b, &c, &d);
    unsigned family = (a >> 8) & 0xf, model = (a >> 4) & 0xf;
    if (family == 0x6 || family == 0xf)
        model |= (a >> 12) & 0xf0;
    if (family == 0xf)
        family += (a >> 20) & 0xff;
    snprintf(text, size, "%s %u.%u.%u", name[0] ? name : "x86-64", family, model, a & 0xf);
}

int onednn_affinity_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

tc_status onednn_environment(const onednn_library *library, int threads, char *text, size_t size)
{
    char cpu[96], isa[16];
    const dnnl_version_t *version = library->version();
    cpu_name(cpu, sizeof cpu);
    int length = snprintf(text, size, "engine=onednn;version=%d.%d;runtime=%s;cpu=%s;isa=%s;threads=%d;~patch=%d",
                          version->major, version->minor, onednn_runtime_name(version->cpu_runtime), cpu,
                          isa_name(library->get_effective_cpu_isa(), isa, sizeof isa), threads, version->patch);
    if (length < 0 || (size_t)length >= size)
        return tc_fail(TC_INTERNAL, "the environment's text needs %d bytes, got %zu", length + 1, size);
    return TC_OK;
}

#endif
