/* The text of a device and the library that serves it, the second half of every key. */
#include "environment.h"

#include <string.h>

size_t tc_environment_hard_length(const char *environment)
{
    const char *soft = strstr(environment, ";~");
    return soft ? (size_t)(soft - environment) : strlen(environment);
}
