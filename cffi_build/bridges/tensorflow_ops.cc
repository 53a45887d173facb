// The TensorFlow ops: their signatures and shape functions, and the binding to the core.

#include <atomic>
#include <string>

#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow_core.h"
#include "tensorflow_geometry.h"

namespace tunedconv {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

std::atomic<const tc_api*> core{nullptr};

// Channels of the input that the filter asks for; unknown if its own are.
absl::Status InputChannels(InferenceContext* c, const Geometry& geometry, ShapeHandle w, DimensionHandle* channels) {
  return c->Multiply(c->Dim(w, geometry.spatial_rank()), geometry.groups, channels);
}

absl::Status ForwardShape(InferenceContext* c) {
  Geometry geometry;
  TF_RETURN_IF_ERROR(geometry.Read(c));
  ShapeHandle x, w;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), geometry.rank(), &x));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), geometry.rank(), &w));
  DimensionHandle channels, unused;
  TF_RETURN_IF_ERROR(InputChannels(c, geometry, w, &channels));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(x, geometry.channel_axis()), channels, &unused));
  const DimensionHandle filters = c->Dim(w, geometry.rank() - 1);
  TF_RETURN_IF_ERROR(c->Divide(filters, geometry.groups, /*evenly_divisible=*/true, &unused));
  std::vector<DimensionHandle> y(geometry.rank());
  y[0] = c->Dim(x, 0);
  y[geometry.channel_axis()] = filters;
  for (int i = 0; i < geometry.spatial_rank(); ++i) {
    const DimensionHandle input = c->Dim(x, geometry.spatial_axis(i)), filter = c->Dim(w, i);
    int64_t output = InferenceContext::kUnknownDim, before, after;
    if (c->ValueKnown(input) && c->ValueKnown(filter)) {
      TF_RETURN_IF_ERROR(geometry.Window(i, c->Value(input), c->Value(filter), &output, &before, &after));
    }
    y[geometry.spatial_axis(i)] = c->MakeDim(output);
  }
  c->set_output(0, c->MakeShape(y));
  return absl::OkStatus();
}

absl::Status BackwardDataShape(InferenceContext* c) {
  Geometry geometry;
  TF_RETURN_IF_ERROR(geometry.Read(c));
  ShapeHandle x, w, dy;
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(0, &x));
  TF_RETURN_IF_ERROR(c->WithRank(x, geometry.rank(), &x));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), geometry.rank(), &w));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), geometry.rank(), &dy));
  DimensionHandle batch, channels;
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(x, 0), c->Dim(dy, 0), &batch));
  TF_RETURN_IF_ERROR(InputChannels(c, geometry, w, &channels));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(x, geometry.channel_axis()), channels, &channels));
  TF_RETURN_IF_ERROR(c->ReplaceDim(x, 0, batch, &x));
  TF_RETURN_IF_ERROR(c->ReplaceDim(x, geometry.channel_axis(), channels, &x));
  c->set_output(0, x);
  return absl::OkStatus();
}

absl::Status BackwardFilterShape(InferenceContext* c) {
  Geometry geometry;
  TF_RETURN_IF_ERROR(geometry.Read(c));
  ShapeHandle x, w, dy;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), geometry.rank(), &x));
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(1, &w));
  TF_RETURN_IF_ERROR(c->WithRank(w, geometry.rank(), &w));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), geometry.rank(), &dy));
  DimensionHandle filters;
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(w, geometry.rank() - 1), c->Dim(dy, geometry.channel_axis()), &filters));
  TF_RETURN_IF_ERROR(c->ReplaceDim(w, geometry.rank() - 1, filters, &w));
  c->set_output(0, w);
  return absl::OkStatus();
}

}  // namespace

const tc_api* Core() { return core.load(std::memory_order_acquire); }

absl::Status CoreStatus(tc_status status) {
  if (status == TC_OK) return absl::OkStatus();
  const std::string message = Core()->last_error();
  switch (status) {
    case TC_INVALID_ARGUMENT:
      return absl::InvalidArgumentError(message);
    case TC_UNSUPPORTED:
      return absl::UnimplementedError(message);
    case TC_NOT_FOUND:
      return absl::NotFoundError(message);
    case TC_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    case TC_UNAVAILABLE:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

// Attributes of every op. strides, dilations and explicit_paddings are of the spatial axes alone; data_format
// names the place of the channels for any number of spatial axes.
#define TUNEDCONV_ATTRIBUTES(op)                              \
  op.Attr("T: {half, bfloat16, float, double}")               \
      .Attr("strides: list(int)")                             \
      .Attr("padding: {'VALID', 'SAME', 'EXPLICIT'}")         \
      .Attr("explicit_paddings: list(int) = []")              \
      .Attr("dilations: list(int)")                           \
      .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")         \
      .Attr("groups: int >= 1 = 1")

TUNEDCONV_ATTRIBUTES(REGISTER_OP("TunedConvForward").Input("x: T").Input("w: T").Output("y: T"))
    .SetShapeFn(ForwardShape);

TUNEDCONV_ATTRIBUTES(
    REGISTER_OP("TunedConvBackwardData").Input("x_shape: Tshape").Input("w: T").Input("dy: T").Output("dx: T"))
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .SetShapeFn(BackwardDataShape);

TUNEDCONV_ATTRIBUTES(
    REGISTER_OP("TunedConvBackwardFilter").Input("x: T").Input("w_shape: Tshape").Input("dy: T").Output("dw: T"))
    .Attr("Tshape: {int32, int64} = DT_INT32")
    .SetShapeFn(BackwardFilterShape);

}  // namespace tunedconv

// Gives the ops the core's functions; called once, before any of them runs. Returns nullptr, or why not.
extern "C" __attribute__((visibility("default"))) const char* tunedconv_tensorflow_bind(const tc_api* api) {
  if (api == nullptr || api->abi_version != TC_ABI_VERSION || api->size < sizeof(tc_api)) {
    return "the op library was built for another version of keras_tunedconv's core; build it again with "
           "`keras-tunedconv build --force`";
  }
  tunedconv::core.store(api, std::memory_order_release);
  return nullptr;
}
