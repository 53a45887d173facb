/* An algorithm made ready for one convolution on one device. */
#ifndef TC_CUDNN_PLAN_H
#define TC_CUDNN_PLAN_H

#include "device.h"
#include "graph.h"
#include "problem.h"

typedef struct tc_plan tc_plan;

/* TC_NOT_FOUND when the name is not that of an algorithm that may serve the convolution here. */
tc_status tc_plan_make(tc_device *device, const tc_conv *conv, const char *name, tc_plan **plan);
void tc_plan_destroy(tc_plan *plan);

const tc_device *tc_plan_device(const tc_plan *plan);
/* Bytes: cuDNN's own workspace, and the converted tensors. */
size_t tc_plan_workspace(const tc_plan *plan);
/* Queues it on the stream. */
tc_status tc_plan_run(tc_plan *plan, CUstream stream, void *workspace, const tc_operands *operands);
/* Device seconds of `runs` runs back to back; waits for them. */
tc_status tc_plan_time(tc_plan *plan, CUstream stream, void *workspace, const tc_operands *operands, int32_t runs,
                       double *seconds);

#endif
