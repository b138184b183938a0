// Lowers conv2d to our own minimal filtering if that beats both of oneDNN's algorithms.
#pragma once

#include <optional>

#include "worker/engine/backend/cpu/lowering.h"

namespace trainyard::engine::cpu {

// Returns the shape for our own kernels if they compute the convolution, or nothing if oneDNN does.
std::optional<WinogradShape> FindWinograd(Lowering& lowering, const Node& node,
                                          const ConvFormats& conv);
void LowerConvByWinograd(Lowering& lowering, const Node& node, const WinogradShape& shape);
void LowerConvInputGradientByWinograd(Lowering& lowering, const Node& node,
                                      const WinogradShape& shape);
void LowerConvParameterGradientByWinograd(Lowering& lowering, const Node& node,
                                          const WinogradShape& shape);

}  // namespace trainyard::engine::cpu
