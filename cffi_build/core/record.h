/* Validation of records, which come out of files that anybody may have written. */
#ifndef TC_RECORD_H
#define TC_RECORD_H

#include "tunedconv_engine.h"

/* TC_INVALID_ARGUMENT with the field at fault; fills conv from the key. */
tc_status tc_record_check(const tc_record *record, tc_conv *conv);

#endif
