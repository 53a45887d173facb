// The XLA FFI handler: one custom call, `keras_tunedconv_convolution`, for JAX and for TensorFlow's XLA.
//
// Operands are forward (x, w) -> y, backward_data (w, dy) -> dx, backward_filter (x, dy) -> dw. Dims and
// dtypes come from the buffers, whose shapes are in the order of their layouts; the rest from attributes.
// Built against the oldest FFI headers supported, since a runtime refuses a handler newer than itself.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tunedconv.h"
#include "xla/ffi/api/ffi.h"

namespace tunedconv {
namespace {

namespace ffi = xla::ffi;
using Integers = ffi::Span<const int64_t>;

struct Attributes {
  int64_t direction, layout, filter_layout;
  Integers strides, pad_before, pad_after, dilations;
  int64_t groups, deterministic, allow_tf32;
};

}  // namespace
}  // namespace tunedconv

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(tunedconv::Attributes, xla::ffi::StructMember<int64_t>("direction"),
                                      xla::ffi::StructMember<int64_t>("layout"),
                                      xla::ffi::StructMember<int64_t>("filter_layout"),
                                      xla::ffi::StructMember<tunedconv::Integers>("strides"),
                                      xla::ffi::StructMember<tunedconv::Integers>("pad_before"),
                                      xla::ffi::StructMember<tunedconv::Integers>("pad_after"),
                                      xla::ffi::StructMember<tunedconv::Integers>("dilations"),
                                      xla::ffi::StructMember<int64_t>("groups"),
                                      xla::ffi::StructMember<int64_t>("deterministic"),
                                      xla::ffi::StructMember<int64_t>("allow_tf32"));

namespace tunedconv {
namespace {

ffi::Error Invalid(const std::string& message) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "keras_tunedconv_convolution: " + message);
}

ffi::ErrorCode ErrorCodeOf(tc_status status) {
  switch (status) {
    case TC_INVALID_ARGUMENT:
      return ffi::ErrorCode::kInvalidArgument;
    case TC_UNSUPPORTED:
      return ffi::ErrorCode::kUnimplemented;
    case TC_NOT_FOUND:
      return ffi::ErrorCode::kNotFound;
    case TC_OUT_OF_MEMORY:
      return ffi::ErrorCode::kResourceExhausted;
    case TC_UNAVAILABLE:
      return ffi::ErrorCode::kUnavailable;
    default:
      return ffi::ErrorCode::kInternal;
  }
}

// The tc_dtype of a buffer, or -1.
int32_t DtypeOf(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F16:
      return TC_F16;
    case ffi::DataType::BF16:
      return TC_BF16;
    case ffi::DataType::F32:
      return TC_F32;
    case ffi::DataType::F64:
      return TC_F64;
    default:
      return -1;
  }
}

// Dims of x or y in logical order: N, C, spatial.
void CopyImageDims(Integers shape, int64_t layout, int64_t* dims) {
  const size_t rank = shape.size(), spatial = rank - 2;
  const bool last = layout == TC_CHANNELS_LAST;
  dims[0] = shape[0];
  dims[1] = shape[last ? rank - 1 : 1];
  std::copy_n(shape.begin() + (last ? 1 : 2), spatial, dims + 2);
}

// Dims of the filter in logical order: O, I, spatial.
void CopyFilterDims(Integers shape, int64_t layout, int64_t* dims) {
  const size_t rank = shape.size(), spatial = rank - 2;
  dims[0] = shape[layout == TC_HWIO ? rank - 1 : 0];
  dims[1] = shape[layout == TC_HWIO ? rank - 2 : layout == TC_OIHW ? 1 : rank - 1];
  std::copy_n(shape.begin() + (layout == TC_HWIO ? 0 : layout == TC_OIHW ? 2 : 1), spatial, dims + 2);
}

ffi::Error Describe(const Attributes& a, ffi::AnyBuffer x, ffi::AnyBuffer w, ffi::AnyBuffer y, tc_conv* conv) {
  const size_t rank = x.dimensions().size();
  if (rank < 3 || rank > TC_MAX_DIMS || w.dimensions().size() != rank || y.dimensions().size() != rank) {
    return Invalid("expected buffers of equal rank, 3 to 5. Received ranks " + std::to_string(rank) + ", " +
                   std::to_string(w.dimensions().size()) + ", " + std::to_string(y.dimensions().size()));
  }
  for (const Integers& axes : {a.strides, a.pad_before, a.pad_after, a.dilations}) {
    if (axes.size() != rank - 2) {
      return Invalid("expected strides, pad_before, pad_after and dilations of length " + std::to_string(rank - 2) +
                     ". Received length " + std::to_string(axes.size()));
    }
  }
  if (a.layout < TC_CHANNELS_LAST || a.layout > TC_CHANNELS_FIRST || a.filter_layout < TC_HWIO ||
      a.filter_layout > TC_OHWI) {
    return Invalid("expected layout 0 or 1 and filter_layout 0 to 2. Received layout=" + std::to_string(a.layout) +
                   ", filter_layout=" + std::to_string(a.filter_layout));
  }
  std::memset(conv, 0, sizeof(*conv));
  conv->direction = static_cast<int32_t>(a.direction);
  conv->spatial_rank = static_cast<int32_t>(rank - 2);
  conv->x_dtype = DtypeOf(x.element_type());
  conv->w_dtype = DtypeOf(w.element_type());
  conv->y_dtype = DtypeOf(y.element_type());
  conv->compute_dtype = conv->x_dtype == TC_F64 ? TC_F64 : TC_F32;
  conv->x_layout = conv->y_layout = static_cast<int32_t>(a.layout);
  conv->w_layout = static_cast<int32_t>(a.filter_layout);
  conv->allow_tf32 = a.allow_tf32 != 0;
  conv->deterministic = a.deterministic != 0;
  conv->groups = a.groups;
  CopyImageDims(x.dimensions(), a.layout, conv->x_dims);
  CopyFilterDims(w.dimensions(), a.filter_layout, conv->w_dims);
  CopyImageDims(y.dimensions(), a.layout, conv->y_dims);
  std::copy(a.pad_before.begin(), a.pad_before.end(), conv->pad_before);
  std::copy(a.pad_after.begin(), a.pad_after.end(), conv->pad_after);
  std::copy(a.strides.begin(), a.strides.end(), conv->stride);
  std::copy(a.dilations.begin(), a.dilations.end(), conv->dilation);
  return ffi::Error::Success();
}

// Device memory of the framework's allocator, for the length of one call.
class Workspace {
 public:
  Workspace(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context) : api_(api), context_(context) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    for (const Block& block : blocks_) Free(block);
  }

  static void* Allocate(void* user, size_t bytes) { return static_cast<Workspace*>(user)->Allocate(bytes); }
  static void Deallocate(void* user, void* pointer) { static_cast<Workspace*>(user)->Deallocate(pointer); }

 private:
  struct Block {
    void* data;
    size_t size;
  };

  void* Allocate(size_t bytes) {
    XLA_FFI_DeviceMemory_Allocate_Args args = {};
    args.struct_size = XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE;
    args.ctx = context_;
    args.size = bytes;
    args.alignment = 16;  // the most the API lets one ask for; device allocators give 256
    if (XLA_FFI_Error* error = api_->XLA_FFI_DeviceMemory_Allocate(&args)) {
      ffi::internal::DestroyError(api_, error);
      return nullptr;
    }
    blocks_.push_back({args.data, bytes});
    return args.data;
  }

  void Deallocate(void* pointer) {
    auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.data == pointer; });
    if (block == blocks_.end()) return;
    Free(*block);
    blocks_.erase(block);
  }

  void Free(const Block& block) {
    XLA_FFI_DeviceMemory_Free_Args args = {};
    args.struct_size = XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE;
    args.ctx = context_;
    args.size = block.size;
    args.data = block.data;
    if (XLA_FFI_Error* error = api_->XLA_FFI_DeviceMemory_Free(&args)) ffi::internal::DestroyError(api_, error);
  }

  const XLA_FFI_Api* api_;
  XLA_FFI_ExecutionContext* context_;
  std::vector<Block> blocks_;
};

ffi::Error Convolve(const tc_context& context, const Attributes& attributes, ffi::AnyBuffer first,
                    ffi::AnyBuffer second, ffi::AnyBuffer result) {
  ffi::AnyBuffer x = first, w = second, y = result;
  switch (attributes.direction) {
    case TC_FORWARD:
      break;
    case TC_BACKWARD_DATA:
      x = result, w = first, y = second;
      break;
    case TC_BACKWARD_FILTER:
      x = first, w = result, y = second;
      break;
    default:
      return Invalid("expected direction 0, 1 or 2. Received direction=" + std::to_string(attributes.direction));
  }
  tc_conv conv;
  if (ffi::Error error = Describe(attributes, x, w, y, &conv); error.failure()) return error;
  const tc_operands operands = {x.untyped_data(), w.untyped_data(), y.untyped_data()};
  const tc_status status = tc_convolve(&conv, &context, &operands);
  if (status != TC_OK) return ffi::Error(ErrorCodeOf(status), tc_last_error());
  return ffi::Error::Success();
}

ffi::Error ConvolveOnHost(Attributes attributes, ffi::AnyBuffer first, ffi::AnyBuffer second,
                          ffi::Result<ffi::AnyBuffer> result) {
  tc_context context = {};
  context.device_kind = TC_CPU;
  return Convolve(context, attributes, first, second, *result);
}

ffi::Error ConvolveOnCuda(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* execution, void* stream, int32_t ordinal,
                          Attributes attributes, ffi::AnyBuffer first, ffi::AnyBuffer second,
                          ffi::Result<ffi::AnyBuffer> result) {
  Workspace workspace(api, execution);
  tc_context context = {};
  context.device_kind = TC_CUDA;
  context.device_ordinal = ordinal;
  context.stream = stream;
  context.allocate = &Workspace::Allocate;
  context.deallocate = &Workspace::Deallocate;
  context.user = &workspace;
  return Convolve(context, attributes, first, second, *result);
}

// Neither is marked command-buffer compatible: a captured call could not be measured.
XLA_FFI_DEFINE_HANDLER(host_handler, ConvolveOnHost,
                       ffi::Ffi::Bind()
                           .Attrs<Attributes>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER(cuda_handler, ConvolveOnCuda,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::FfiApi>()
                           .Ctx<ffi::FfiExecutionContext>()
                           .Ctx<ffi::PlatformStream<void*>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .Attrs<Attributes>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>());

}  // namespace
}  // namespace tunedconv

extern "C" void* tc_xla_handler_host(void) { return reinterpret_cast<void*>(tunedconv::host_handler); }
extern "C" void* tc_xla_handler_cuda(void) { return reinterpret_cast<void*>(tunedconv::cuda_handler); }
