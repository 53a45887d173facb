// Attributes of the TensorFlow ops, and the descriptor they make of actual shapes.

#ifndef TUNEDCONV_TENSORFLOW_GEOMETRY_H_
#define TUNEDCONV_TENSORFLOW_GEOMETRY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tunedconv.h"

namespace tunedconv {

using Dims = absl::Span<const int64_t>;

struct Geometry {
  std::vector<int64_t> strides, dilations;  // one for each spatial axis
  std::vector<int64_t> explicit_paddings;   // before and after of each spatial axis, for EXPLICIT only
  std::string padding;
  bool channels_last = true;
  int64_t groups = 1;

  int spatial_rank() const { return static_cast<int>(strides.size()); }
  int rank() const { return spatial_rank() + 2; }
  int channel_axis() const { return channels_last ? rank() - 1 : 1; }
  int spatial_axis(int i) const { return channels_last ? 1 + i : 2 + i; }

  // Node is anything with TensorFlow's GetAttr: a kernel under construction or a shape function's context.
  template <typename Node>
  absl::Status Read(Node* node) {
    std::string data_format;
    for (const absl::Status& status :
         {node->GetAttr("strides", &strides), node->GetAttr("dilations", &dilations),
          node->GetAttr("explicit_paddings", &explicit_paddings), node->GetAttr("padding", &padding),
          node->GetAttr("data_format", &data_format), node->GetAttr("groups", &groups)}) {
      if (!status.ok()) return status;
    }
    channels_last = data_format == "NHWC";
    return Check();
  }

  absl::Status Check() const {
    const size_t n = strides.size();
    if (n < 1 || n > TC_MAX_SPATIAL || dilations.size() != n) {
      return absl::InvalidArgumentError(absl::StrCat(
          "strides and dilations must hold one value for each of 1 to 3 spatial axes. Received: strides=[",
          absl::StrJoin(strides, ","), "], dilations=[", absl::StrJoin(dilations, ","), "]"));
    }
    if (*std::min_element(strides.begin(), strides.end()) < 1 ||
        *std::min_element(dilations.begin(), dilations.end()) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("strides and dilations must be positive. Received: strides=[",
                                                     absl::StrJoin(strides, ","), "], dilations=[",
                                                     absl::StrJoin(dilations, ","), "]"));
    }
    const bool negative = std::any_of(explicit_paddings.begin(), explicit_paddings.end(), [](auto p) { return p < 0; });
    if (explicit_paddings.size() != (padding == "EXPLICIT" ? 2 * n : 0) || negative) {
      return absl::InvalidArgumentError(absl::StrCat(
          "explicit_paddings must hold (before, after) for each spatial axis with padding=EXPLICIT, and nothing "
          "otherwise. Received: padding=",
          padding, ", explicit_paddings=[", absl::StrJoin(explicit_paddings, ","), "]"));
    }
    return absl::OkStatus();
  }

  // Output size and padding of one spatial axis; the output may be 0.
  absl::Status Window(int i, int64_t input, int64_t filter, int64_t* output, int64_t* before, int64_t* after) const {
    const int64_t stride = strides[i], extent = (filter - 1) * dilations[i] + 1;
    *before = *after = 0;
    if (padding == "SAME") {
      *output = (input + stride - 1) / stride;
      const int64_t total = std::max<int64_t>((*output - 1) * stride + extent - input, 0);
      *before = total / 2;
      *after = total - *before;
      return absl::OkStatus();
    }
    if (padding == "EXPLICIT") {
      *before = explicit_paddings[2 * i];
      *after = explicit_paddings[2 * i + 1];
    }
    const int64_t room = input + *before + *after - extent + stride;
    if (room < 0) {
      return absl::InvalidArgumentError(absl::StrCat("Computed output size would be negative: spatial axis ", i,
                                                     " of size ", input, " with padding ", *before, "+", *after,
                                                     ", dilated filter size ", extent, ", stride ", stride));
    }
    *output = room / stride;
    return absl::OkStatus();
  }

  // Fills everything but the math flags. Shapes are those of the forward operation's tensors in the order they
  // have in TensorFlow: x by data_format, w spatial, in, out.
  absl::Status Describe(tc_direction direction, int32_t dtype, Dims x, Dims w, tc_conv* conv) const {
    const int n = spatial_rank();
    if (static_cast<int>(x.size()) != rank() || static_cast<int>(w.size()) != rank()) {
      return absl::InvalidArgumentError(absl::StrCat("Expected an input and a filter of rank ", rank(),
                                                     ". Received: input shape [", absl::StrJoin(x, ","),
                                                     "], filter shape [", absl::StrJoin(w, ","), "]"));
    }
    std::memset(conv, 0, sizeof(*conv));
    conv->direction = direction;
    conv->spatial_rank = n;
    conv->x_dtype = conv->w_dtype = conv->y_dtype = dtype;
    conv->compute_dtype = dtype == TC_F64 ? TC_F64 : TC_F32;
    conv->x_layout = conv->y_layout = channels_last ? TC_CHANNELS_LAST : TC_CHANNELS_FIRST;
    conv->w_layout = TC_HWIO;
    conv->groups = groups;
    conv->x_dims[0] = conv->y_dims[0] = x[0];
    conv->x_dims[1] = x[channel_axis()];
    conv->w_dims[0] = conv->y_dims[1] = w[n + 1];
    conv->w_dims[1] = w[n];
    if (conv->x_dims[1] != conv->w_dims[1] * groups || conv->w_dims[0] % groups != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Expected input channels equal to filter input channels times groups, and filters divisible "
                       "by groups. Received: ", conv->x_dims[1], " input channels, filter shape [",
                       absl::StrJoin(w, ","), "], groups=", groups));
    }
    for (int i = 0; i < n; ++i) {
      conv->stride[i] = strides[i];
      conv->dilation[i] = dilations[i];
      conv->x_dims[2 + i] = x[spatial_axis(i)];
      conv->w_dims[2 + i] = w[i];
      if (w[i] < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("Filter sizes must be positive. Received: filter shape [", absl::StrJoin(w, ","), "]"));
      }
      absl::Status status = Window(i, conv->x_dims[2 + i], w[i], &conv->y_dims[2 + i], &conv->pad_before[i],
                                   &conv->pad_after[i]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Shape of y as TensorFlow has it, and whether a tensor has it.
  std::vector<int64_t> OutputShape(const tc_conv& conv) const {
    std::vector<int64_t> shape(rank());
    shape[0] = conv.y_dims[0];
    shape[channel_axis()] = conv.y_dims[1];
    for (int i = 0; i < spatial_rank(); ++i) shape[spatial_axis(i)] = conv.y_dims[2 + i];
    return shape;
  }

  absl::Status CheckOutputGradient(const tc_conv& conv, Dims dy) const {
    const std::vector<int64_t> expected = OutputShape(conv);
    if (dy == Dims(expected)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("Expected the gradient of an output of shape [",
                                                   absl::StrJoin(expected, ","), "]. Received: shape [",
                                                   absl::StrJoin(dy, ","), "]"));
  }
};

// Elements of x, w or y of a descriptor.
inline int64_t Elements(const int64_t* dims, const tc_conv& conv) {
  int64_t count = 1;
  for (int i = 0; i < conv.spatial_rank + 2; ++i) count *= dims[i];
  return count;
}

// Whether the result is empty or a sum of nothing, that is zeros.
inline bool SumsNothing(const tc_conv& conv) {
  return Elements(conv.x_dims, conv) == 0 || Elements(conv.w_dims, conv) == 0 || Elements(conv.y_dims, conv) == 0;
}

}  // namespace tunedconv

#endif  // TUNEDCONV_TENSORFLOW_GEOMETRY_H_
