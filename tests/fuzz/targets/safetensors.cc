// Reads weights, which may come from other people's programs.
#include "worker/checkpoint/safetensors.h"
#include "common/base/check.h"
#include "tests/fuzz/target.h"
#include "worker/checkpoint/to_floats.h"

namespace trainyard::fuzz::safetensors {
namespace {

void Run(absl::string_view input) {
  const auto file = checkpoint::DecodeSafetensors(input);
  if (!file.ok()) return;
  for (const auto& [name, tensor] : file->tensors) {
    TY_CHECK(tensor.data.size() <= input.size());
    (void)checkpoint::ToFloats(tensor);
  }
  const auto again = checkpoint::DecodeSafetensors(checkpoint::EncodeSafetensors(*file));
  TY_CHECK_OK(again.status());
  TY_CHECK(again->tensors.size() == file->tensors.size());
  for (const auto& [name, tensor] : file->tensors) {
    const auto found = again->tensors.find(name);
    TY_CHECK(found != again->tensors.end());
    TY_CHECK(found->second.dtype == tensor.dtype && found->second.shape == tensor.shape &&
             found->second.data == tensor.data);
  }
}

const Registration kTarget({.name = "safetensors", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::safetensors
