// XLA kernels of the TensorFlow ops: each becomes one custom call to the handler inside the core.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "tensorflow/core/util/determinism.h"
#include "tensorflow_core.h"
#include "tensorflow_geometry.h"
#include "xla/debug_options_flags.h"
#include "xla/ffi/api/c_api.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/literal_util.h"
#include "xla/shape_util.h"

namespace tunedconv {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;

constexpr char kTarget[] = "keras_tunedconv_convolution";

bool Deterministic() {
  return tsl::OpDeterminismRequired() || xla::GetDebugOptionsFromFlags().xla_gpu_deterministic_ops() ||
         xla::GetDebugOptionsFromFlags().xla_gpu_exclude_nondeterministic_ops();
}

// The handler's attributes, in the textual form of an MLIR dictionary.
std::string HandlerAttributes(const tc_conv& conv) {
  const auto axes = [&](const int64_t* values) {
    return absl::StrJoin(values, values + conv.spatial_rank, ", ");
  };
  return absl::StrFormat(
      "{direction = %d : i64, layout = %d : i64, filter_layout = %d : i64, strides = array<i64: %s>, "
      "pad_before = array<i64: %s>, pad_after = array<i64: %s>, dilations = array<i64: %s>, groups = %d : i64, "
      "deterministic = %d : i64, allow_tf32 = %d : i64}",
      conv.direction, conv.x_layout, conv.w_layout, axes(conv.stride), axes(conv.pad_before), axes(conv.pad_after),
      axes(conv.dilation), conv.groups, conv.deterministic, conv.allow_tf32);
}

template <tc_direction direction>
class XlaConvKernel : public XlaOpKernel {
 public:
  explicit XlaConvKernel(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), on_gpu_(ctx->device_type() == tensorflow::DEVICE_GPU_XLA_JIT) {
    tensorflow::DataType dtype;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("T", &dtype));
    dtype_ = CoreDtype(dtype);
    OP_REQUIRES_OK(ctx, tensorflow::DataTypeToPrimitiveType(dtype, &element_));
    OP_REQUIRES_OK(ctx, geometry_.Read(ctx));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    TensorShape x_shape, w_shape;
    OP_REQUIRES_OK(ctx, ShapeOf(ctx, 0, direction == TC_BACKWARD_DATA, &x_shape));
    OP_REQUIRES_OK(ctx, ShapeOf(ctx, 1, direction == TC_BACKWARD_FILTER, &w_shape));
    const auto x = x_shape.dim_sizes(), w = w_shape.dim_sizes();
    tc_conv conv;
    OP_REQUIRES_OK(ctx, geometry_.Describe(direction, dtype_, x, w, &conv));
    conv.deterministic = Deterministic();
    conv.allow_tf32 = on_gpu_ && dtype_ == TC_F32 && tsl::tensor_float_32_execution_enabled();
    const std::vector<int64_t> y = geometry_.OutputShape(conv);
    if (direction != TC_FORWARD) {
      TensorShape dy_shape;
      OP_REQUIRES_OK(ctx, ShapeOf(ctx, 2, false, &dy_shape));
      OP_REQUIRES_OK(ctx, geometry_.CheckOutputGradient(conv, dy_shape.dim_sizes()));
    }
    if (SumsNothing(conv)) {
      const Dims result = direction == TC_FORWARD ? Dims(y) : direction == TC_BACKWARD_DATA ? Dims(x) : Dims(w);
      const xla::XlaOp zero = xla::ConstantLiteral(ctx->builder(), xla::LiteralUtil::Zero(element_));
      ctx->SetOutput(0, xla::Broadcast(zero, result));
      return;
    }
    ctx->SetOutput(0, Convolve(ctx, conv, x, w, y));
  }

 private:
  static absl::Status ShapeOf(XlaOpKernelContext* ctx, int index, bool by_value, TensorShape* shape) {
    if (by_value) return ctx->ConstantInputAsShape(index, shape);
    *shape = ctx->InputShape(index);
    return absl::OkStatus();
  }

  xla::XlaOp Convolve(XlaOpKernelContext* ctx, tc_conv conv, Dims x, Dims w, Dims y) const {
    std::vector<int64_t> filter(w.begin(), w.end());
    // cuDNN's fast engines want the filter as out, spatial, in. XLA fuses that transpose with the cast of mixed
    // precision that comes before it anyway.
    std::vector<int64_t> to_ohwi, to_hwio;
    if (on_gpu_) {
      const int64_t n = conv.spatial_rank;
      conv.w_layout = TC_OHWI;
      to_ohwi.push_back(n + 1);
      for (int64_t i = 0; i <= n; ++i) to_ohwi.push_back(i);
      for (int64_t i = 1; i <= n + 1; ++i) to_hwio.push_back(i);
      to_hwio.push_back(0);
      std::rotate(filter.begin(), filter.end() - 1, filter.end());
    }
    const auto filter_operand = [&] {
      return on_gpu_ ? xla::Transpose(ctx->Input(1), to_ohwi) : ctx->Input(1);
    };
    if (direction == TC_FORWARD) return Call(ctx, conv, {ctx->Input(0), filter_operand()}, {x, filter}, y);
    if (direction == TC_BACKWARD_DATA) return Call(ctx, conv, {filter_operand(), ctx->Input(2)}, {filter, y}, x);
    const xla::XlaOp gradient = Call(ctx, conv, {ctx->Input(0), ctx->Input(2)}, {x, y}, filter);
    return on_gpu_ ? xla::Transpose(gradient, to_hwio) : gradient;
  }

  xla::XlaOp Call(XlaOpKernelContext* ctx, const tc_conv& conv, const std::vector<xla::XlaOp>& operands,
                  const std::vector<Dims>& operand_dims, Dims result) const {
    std::vector<xla::Shape> shapes;
    for (Dims dims : operand_dims) {
      shapes.push_back(xla::ShapeUtil::MakeShapeWithDescendingLayout(element_, dims));
    }
    return xla::CustomCallWithLayout(
        ctx->builder(), kTarget, operands, xla::ShapeUtil::MakeShapeWithDescendingLayout(element_, result), shapes,
        HandlerAttributes(conv), /*has_side_effect=*/false, /*output_operand_aliasing=*/{}, /*literal=*/nullptr,
        xla::CustomCallSchedule::SCHEDULE_NONE, xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
  }

  const bool on_gpu_;
  int32_t dtype_ = -1;
  xla::PrimitiveType element_ = xla::PRIMITIVE_TYPE_INVALID;
  Geometry geometry_;
};

#define TUNEDCONV_DEVICES {tensorflow::DEVICE_CPU_XLA_JIT, tensorflow::DEVICE_GPU_XLA_JIT}

REGISTER_XLA_OP(Name("TunedConvForward").Device(TUNEDCONV_DEVICES), XlaConvKernel<TC_FORWARD>);
REGISTER_XLA_OP(Name("TunedConvBackwardData").Device(TUNEDCONV_DEVICES).CompileTimeConstantInput("x_shape"),
                XlaConvKernel<TC_BACKWARD_DATA>);
REGISTER_XLA_OP(Name("TunedConvBackwardFilter").Device(TUNEDCONV_DEVICES).CompileTimeConstantInput("w_shape"),
                XlaConvKernel<TC_BACKWARD_FILTER>);

// TensorFlow hands the kernels above to its JIT devices once, when the process's first op runs. A library that
// is loaded after that, as this one mostly is, has to do it itself.
template <tc_direction direction>
void RegisterKernel(const char* op) {
  using tensorflow::OpKernel;
  const tensorflow::KernelList present = tensorflow::GetRegisteredKernelsForOp(op);
  for (const char* device : TUNEDCONV_DEVICES) {
    const auto on_device = [&](const tensorflow::KernelDef& kernel) { return kernel.device_type() == device; };
    if (std::any_of(present.kernel().begin(), present.kernel().end(), on_device)) continue;
    tensorflow::kernel_factory::OpKernelRegistrar(
        tensorflow::KernelDefBuilder(op).Device(device).Build(), "XlaConvKernel",
        [](OpKernelConstruction* ctx) -> OpKernel* { return new XlaConvKernel<direction>(ctx); });
  }
}

void RegisterKernels() {
  tensorflow::XlaOpRegistry::RegisterCompilationKernels();
  RegisterKernel<TC_FORWARD>("TunedConvForward");
  RegisterKernel<TC_BACKWARD_DATA>("TunedConvBackwardData");
  RegisterKernel<TC_BACKWARD_FILTER>("TunedConvBackwardFilter");
}

// Registers one handler with the XLA inside TensorFlow; returns its complaint, "" if there is none.
std::string RegisterHandler(const char* platform, void* handler) {
  const XLA_FFI_Api* api = XLA_FFI_GetApi();
  XLA_FFI_Handler_Register_Args args = {};
  args.struct_size = XLA_FFI_Handler_Register_Args_STRUCT_SIZE;
  args.name = {kTarget, sizeof(kTarget) - 1};
  args.platform = {platform, std::strlen(platform)};
  args.bundle.execute = reinterpret_cast<XLA_FFI_Handler*>(handler);
  XLA_FFI_Error* error = api->XLA_FFI_Handler_Register(&args);
  if (error == nullptr) return "";
  XLA_FFI_Error_GetMessage_Args message = {};
  message.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  message.error = error;
  api->XLA_FFI_Error_GetMessage(&message);
  std::string text = message.message;
  XLA_FFI_Error_Destroy_Args destroy = {};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return text;
}

}  // namespace
}  // namespace tunedconv

// Registers kernels and handlers; called once, after tunedconv_tensorflow_bind. Returns nullptr, or why not.
// A library without this function was built without XLA's headers and has no XLA kernels.
extern "C" __attribute__((visibility("default"))) const char* tunedconv_tensorflow_bind_xla(const tc_api* api) {
  static std::string message;
  if (api->xla_handler_host == nullptr || api->xla_handler_cuda == nullptr) {
    return "keras_tunedconv's core was built without XLA's FFI headers";
  }
  tunedconv::RegisterKernels();
  for (const auto& [platform, handler] : {std::pair<const char*, void*>("Host", api->xla_handler_host),
                                          std::pair<const char*, void*>("CUDA", api->xla_handler_cuda)}) {
    message = tunedconv::RegisterHandler(platform, handler);
    if (!message.empty()) return message.c_str();
  }
  return nullptr;
}
