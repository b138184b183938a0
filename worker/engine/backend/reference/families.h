// The families of ops that have a file of their own; RunNode (kernels.cc) calls them.
#pragma once

#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine::reference {

template <class T>
T Rectified(T value) {
  return value < 0 ? T{0} : value;  // a NaN stays
}

// convolution.cc: conv2d.
template <class T>
void RunConvolution(const Operands<T>& operands);

// batch_norm.cc: fails where an exchange of statistics between ranks does.
template <class T>
absl::Status RunBatchNorm(const Operands<T>& operands);

// elementwise.cc: what looks at one element at a time.
template <class T>
void RunElementwise(const Operands<T>& operands);

// sequence.cc: what came with sequences: layer_norm, embedding, attention.
template <class T>
void RunSequence(const Operands<T>& operands);

// channels.cc: what looks at the channels of one row: concat, lrn, dropout.
template <class T>
void RunChannels(const Operands<T>& operands);

}  // namespace trainyard::engine::reference
