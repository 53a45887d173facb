// Native CPU and GPU kernels of the TensorFlow ops.

#include <algorithm>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_util.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "tensorflow/core/util/determinism.h"
#include "tensorflow_core.h"
#include "tensorflow_geometry.h"
#include "xla/stream_executor/stream.h"
#include "xla/stream_executor/stream_executor.h"

namespace tunedconv {
namespace {

using tensorflow::AllocationAttributes;
using tensorflow::AllocatorAttributes;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Device memory of TensorFlow's allocator for the length of one call. Freeing is safe while kernels are
// queued: the allocator hands the memory out again to the same stream only.
class Workspace {
 public:
  explicit Workspace(OpKernelContext* ctx) : ctx_(ctx) {}

  static void* Allocate(void* user, size_t bytes) {
    auto* self = static_cast<Workspace*>(user);
    // Waiting for memory would stall the tuner; it has other candidates.
    AllocationAttributes at_once;
    at_once.retry_on_failure = false;
    Tensor block;
    const TensorShape shape({static_cast<int64_t>(bytes)});
    if (!self->ctx_->allocate_temp(tensorflow::DT_UINT8, shape, &block, AllocatorAttributes(), at_once).ok()) {
      return nullptr;
    }
    self->blocks_.push_back(block);
    return block.data();
  }

  static void Deallocate(void* user, void* pointer) {
    auto& blocks = static_cast<Workspace*>(user)->blocks_;
    blocks.erase(std::remove_if(blocks.begin(), blocks.end(), [&](const Tensor& b) { return b.data() == pointer; }),
                 blocks.end());
  }

 private:
  OpKernelContext* ctx_;
  std::vector<Tensor> blocks_;
};

template <tc_direction direction>
class ConvKernel : public OpKernel {
 public:
  explicit ConvKernel(OpKernelConstruction* ctx)
      : OpKernel(ctx), on_gpu_(ctx->device_type() == tensorflow::DEVICE_GPU) {
    tensorflow::DataType dtype;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("T", &dtype));
    dtype_ = CoreDtype(dtype);
    OP_REQUIRES_OK(ctx, geometry_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    TensorShape x_shape = ctx->input(0).shape(), w_shape = ctx->input(1).shape();
    if (direction == TC_BACKWARD_DATA) OP_REQUIRES_OK(ctx, tensorflow::tensor::MakeShape(ctx->input(0), &x_shape));
    if (direction == TC_BACKWARD_FILTER) OP_REQUIRES_OK(ctx, tensorflow::tensor::MakeShape(ctx->input(1), &w_shape));

    tc_conv conv;
    OP_REQUIRES_OK(ctx, geometry_.Describe(direction, dtype_, x_shape.dim_sizes(), w_shape.dim_sizes(), &conv));
    conv.deterministic = tsl::OpDeterminismRequired();
    conv.allow_tf32 = on_gpu_ && dtype_ == TC_F32 && tsl::tensor_float_32_execution_enabled();
    if (direction != TC_FORWARD) {
      OP_REQUIRES_OK(ctx, geometry_.CheckOutputGradient(conv, ctx->input(2).shape().dim_sizes()));
    }

    Tensor* result = nullptr;
    TensorShape result_shape = direction == TC_BACKWARD_DATA ? x_shape : w_shape;
    if (direction == TC_FORWARD) {
      OP_REQUIRES_OK(ctx, TensorShape::BuildTensorShape(geometry_.OutputShape(conv), &result_shape));
    }
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, result_shape, &result));
    if (result->NumElements() != 0) OP_REQUIRES_OK(ctx, Convolve(ctx, conv, *result));
  }

 private:
  absl::Status Convolve(OpKernelContext* ctx, const tc_conv& conv, const Tensor& result) const {
    if (Core() == nullptr) {
      return absl::FailedPreconditionError(
          "The op library is not bound to keras_tunedconv's core; import keras_tunedconv in this process first.");
    }
    tc_operands operands;
    operands.x = (direction == TC_BACKWARD_DATA ? result : ctx->input(0)).data();
    operands.w = (direction == TC_BACKWARD_FILTER ? result : ctx->input(1)).data();
    operands.y = (direction == TC_FORWARD ? result : ctx->input(2)).data();
    tc_context context = {};
    context.device_kind = TC_CPU;
    Workspace workspace(ctx);
    if (on_gpu_) {
      stream_executor::Stream* stream = ctx->op_device_context()->stream();
      context.device_kind = TC_CUDA;
      context.device_ordinal = stream->parent()->device_ordinal();
      context.stream = stream->platform_specific_handle().stream;
      context.allocate = &Workspace::Allocate;
      context.deallocate = &Workspace::Deallocate;
      context.user = &workspace;
    }
    return CoreStatus(Core()->convolve(&conv, &context, &operands));
  }

  const bool on_gpu_;
  int32_t dtype_ = -1;
  Geometry geometry_;
};

#define TUNEDCONV_REGISTER(device)                                                                  \
  REGISTER_KERNEL_BUILDER(Name("TunedConvForward").Device(device), ConvKernel<TC_FORWARD>);         \
  REGISTER_KERNEL_BUILDER(Name("TunedConvBackwardData").Device(device).HostMemory("x_shape"),       \
                          ConvKernel<TC_BACKWARD_DATA>);                                            \
  REGISTER_KERNEL_BUILDER(Name("TunedConvBackwardFilter").Device(device).HostMemory("w_shape"),     \
                          ConvKernel<TC_BACKWARD_FILTER>)

TUNEDCONV_REGISTER(tensorflow::DEVICE_CPU);
TUNEDCONV_REGISTER(tensorflow::DEVICE_GPU);

}  // namespace
}  // namespace tunedconv
