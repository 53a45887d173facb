/* The clock that budgets are kept by: seconds, monotonic. Tests put one of their own in its place. */
#ifndef TC_CLOCK_H
#define TC_CLOCK_H

extern double (*tc_clock)(void);

#endif
