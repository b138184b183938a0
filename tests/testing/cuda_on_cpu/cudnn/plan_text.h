// Writes execution plans as text, and reads them.
#pragma once

#include <memory>
#include <string>

#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"

namespace trainyard::cuda_on_cpu::cudnn {

// Returns JSON with the version of cuDNN, the engine, and the operation graph in full.
std::string PlanText(const Descriptor& graph, int64_t engine);

// Fills the finalized operation graph and the engine's index. BAD_PARAM for other texts,
// SERIALIZATION_VERSION_MISMATCH for a text of another version.
cudnnStatus_t ReadPlanText(const std::string& text, std::shared_ptr<const Descriptor>* graph,
                           int64_t* engine);

// Returns true if the text is a JSON object with a "deviceVer".
bool IsDeviceText(const std::string& text);

}  // namespace trainyard::cuda_on_cpu::cudnn
