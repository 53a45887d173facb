// How the TensorFlow ops reach the core: they are built apart from it, so they hold its table of functions.

#ifndef TUNEDCONV_TENSORFLOW_CORE_H_
#define TUNEDCONV_TENSORFLOW_CORE_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/types.h"
#include "tunedconv.h"

namespace tunedconv {

// The table given to tunedconv_tensorflow_bind; nullptr before.
const tc_api* Core();

// An error of the core as a TensorFlow status, with the core's message of this thread.
absl::Status CoreStatus(tc_status status);

// The tc_dtype of a TensorFlow dtype, or -1.
inline int32_t CoreDtype(tensorflow::DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_HALF:
      return TC_F16;
    case tensorflow::DT_BFLOAT16:
      return TC_BF16;
    case tensorflow::DT_FLOAT:
      return TC_F32;
    case tensorflow::DT_DOUBLE:
      return TC_F64;
    default:
      return -1;
  }
}

}  // namespace tunedconv

#endif  // TUNEDCONV_TENSORFLOW_CORE_H_
