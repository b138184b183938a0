// Defines the keys that identify problems, and the limits of attention that is known to be right.
#include "worker/engine/backend/cuda/dnn/problem.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace trainyard::engine::cuda::dnn {
namespace {

const char* Name(Type type) {
  constexpr std::array<const char*, 3> kNames = {"f32", "f16", "bf16"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace

std::string ConvProblem::Key() const {
  constexpr std::array<const char*, 3> kKinds = {"fwd", "dgrad", "wgrad"};
  return absl::StrCat(kKinds[static_cast<size_t>(kind)], " ", Name(type), tf32 ? " tf32" : "", " n",
                      rows, " c", channels, " ", height, "x", width, " k", out_channels, " ",
                      out_height, "x", out_width, " ", kernel, "x", kernel, " s", stride) +
         absl::StrCat(" p", padding, " d", dilation, " g", groups, " xs", x_stride, " ys", y_stride,
                      bias ? " bias" : "", relu ? " relu" : "", statistics ? " statistics" : "",
                      f32_gradient ? " f32dw" : "", normalises ? " normalises" : "",
                      norm_sums ? " norm sums" : "");
}

std::string ConvProblem::Family() const {
  ConvProblem family = *this;
  family.rows = 0;
  return family.Key();
}

std::string AttentionProblem::Family() const {
  AttentionProblem family = *this;
  family.rows = 0;
  return family.Key();
}

std::string AttentionProblem::Key() const {
  return absl::StrCat(is_gradient ? "attention_gradient " : "attention ", Name(type), " n", rows,
                      " t", positions, " h", heads, " d", width);
}

bool AttentionProblem::is_safe() const {
  constexpr int64_t kPositions = 128;
  constexpr int64_t kWidth = 8;
  constexpr int64_t kWidthMax = 128;
  return type != Type::kF32 && rows > 0 && heads > 0 && positions > 0 &&
         positions % kPositions == 0 && width > 0 && width % kWidth == 0 && width <= kWidthMax;
}

}  // namespace trainyard::engine::cuda::dnn
