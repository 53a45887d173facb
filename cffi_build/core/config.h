/* Settings of the process, as calls read them. */
#ifndef TC_CONFIG_H
#define TC_CONFIG_H

#include "tunedconv_engine.h"

enum { TC_MAXIMUM_SIZES = 1024 }; /* the highest maximum_sizes */

/* The settings that a call with a known key looks at, each one atomic load. */
int32_t tc_config_mode(void);
int64_t tc_config_workspace_limit(void);
double tc_config_process_budget(void);
int32_t tc_config_batch_policy(void);
/* How often mode refresh was turned on: what was measured or stored before is measured again, once. */
uint64_t tc_config_refreshes(void);

#endif
