/* Attributes of cuDNN's descriptors. */
#include "descriptors.h"

cudnnBackendDescriptor_t tc_build_create(tc_builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->library->cudnn.cudnnBackendCreateDescriptor(type, &made);
    return b->status == CUDNN_STATUS_SUCCESS ? made : NULL;
}

void tc_build_set(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->library->cudnn.cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

void tc_build_set_int64(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        int64_t value)
{
    tc_build_set(b, descriptor, name, CUDNN_TYPE_INT64, 1, &value);
}

void tc_build_set_int(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, int value)
{
    tc_build_set(b, descriptor, name, type, 1, &value);
}

void tc_build_set_descriptor(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                             cudnnBackendDescriptor_t value)
{
    tc_build_set(b, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void tc_build_finalize(tc_builder *b, cudnnBackendDescriptor_t descriptor)
{
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->library->cudnn.cudnnBackendFinalize(descriptor);
}

int64_t tc_build_get(tc_builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t capacity, void *values)
{
    int64_t count = 0;
    if (b->status == CUDNN_STATUS_SUCCESS)
        b->status = b->library->cudnn.cudnnBackendGetAttribute(descriptor, name, type, capacity, &count, values);
    return b->status == CUDNN_STATUS_SUCCESS ? count : 0;
}

void tc_build_destroy(const tc_cudnn_library *library, cudnnBackendDescriptor_t *descriptor)
{
    if (*descriptor)
        library->cudnn.cudnnBackendDestroyDescriptor(*descriptor);
    *descriptor = NULL;
}
