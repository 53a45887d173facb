/* Named ranges on the timeline of a profiler that speaks NVTX (Nsight Systems, Nsight Compute). */
#ifndef TC_TRACE_H
#define TC_TRACE_H

/* Whether a profiler is listening. Ask first: the text of a range costs more than the question. */
int tc_trace_on(void);
/* Opens a range of the calling thread. Each push needs its pop, and without a profiler both do nothing. */
void tc_trace_push(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tc_trace_pop(void);

#endif
