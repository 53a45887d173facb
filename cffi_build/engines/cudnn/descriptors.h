/* Setting and reading attributes of cuDNN's descriptors, without a check after every line. */
#ifndef TC_CUDNN_DESCRIPTORS_H
#define TC_CUDNN_DESCRIPTORS_H

#include "library.h"

/* Remembers the first failure; everything after it does nothing. */
typedef struct tc_builder {
    const tc_cudnn_library *library;
    cudnnStatus_t status;
} tc_builder;

cudnnBackendDescriptor_t tc_build_create(tc_builder *b, cudnnBackendDescriptorType_t type);
void tc_build_set(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values);
void tc_build_set_int64(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        int64_t value);
void tc_build_set_int(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int value);
void tc_build_set_descriptor(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                             cudnnBackendDescriptor_t value);
void tc_build_finalize(tc_builder *b, cudnnBackendDescriptor_t descriptor);
/* Reads at most `capacity` values; returns how many there were to read, 0 after a failure. */
int64_t tc_build_get(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t capacity, void *values);
/* NULL is allowed; sets it to NULL. */
void tc_build_destroy(const tc_cudnn_library *library, cudnnBackendDescriptor_t *descriptor);

#endif
