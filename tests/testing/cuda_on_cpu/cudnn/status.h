// Statuses of the emulated cuDNN, and the message of the last failure of each thread.
#pragma once

#include <cudnn_graph.h>

#include <string>

namespace trainyard::cuda_on_cpu::cudnn {

// Stores `message` for cudnnGetLastErrorString of this thread, and returns `status`.
cudnnStatus_t Fail(cudnnStatus_t status, std::string message);

}  // namespace trainyard::cuda_on_cpu::cudnn

// Returns the status of `expression` from the function if it is a failure.
#define TY_CUDNN_TRY(expression)                        \
  do {                                                  \
    const cudnnStatus_t ty_cudnn_status = (expression); \
    if (ty_cudnn_status != CUDNN_STATUS_SUCCESS) {      \
      return ty_cudnn_status;                           \
    }                                                   \
  } while (false)
