// Builds what the ranks tell each other from the few collectives of a communicator.
#include "worker/trainer/run/agreement.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"

namespace trainyard::trainer {
namespace {

// These collectives copy floats and never round them, so that a double may travel as two of them.
constexpr size_t kFloatsPerDouble = sizeof(double) / sizeof(float);

absl::Status BroadcastFrom(int root, parallel::Communicator& communicator,
                           absl::Span<double> values) {
  std::vector<float> floats(values.size() * kFloatsPerDouble);
  std::memcpy(floats.data(), values.data(), floats.size() * sizeof(float));
  TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(floats), root));
  std::memcpy(values.data(), floats.data(), floats.size() * sizeof(float));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<double>> GatherNumbers(parallel::Communicator& communicator,
                                                  absl::Span<const double> mine) {
  const auto ranks = static_cast<size_t>(communicator.world_size());
  std::vector<float> block(mine.size() * kFloatsPerDouble);
  std::vector<float> blocks(block.size() * ranks);
  std::vector<double> all(mine.size() * ranks);
  std::memcpy(block.data(), mine.data(), block.size() * sizeof(float));
  TY_RETURN_IF_ERROR(communicator.AllGather(block, absl::MakeSpan(blocks)));
  std::memcpy(all.data(), blocks.data(), blocks.size() * sizeof(float));
  return all;
}

absl::StatusOr<std::vector<std::string>> GatherNames(parallel::Communicator& communicator,
                                                     absl::string_view mine) {
  // Each byte travels as a number. Zeros follow the name.
  std::vector<double> bytes(kGatheredNameMax);
  const size_t count = std::min(mine.size(), kGatheredNameMax);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(mine[i]);
  TY_ASSIGN_OR_RETURN(const std::vector<double> all, GatherNumbers(communicator, bytes));
  std::vector<std::string> names;
  for (size_t at = 0; at < all.size(); at += kGatheredNameMax) {
    std::string& name = names.emplace_back();
    for (size_t i = at; i < at + kGatheredNameMax && all[i] != 0; ++i) {
      name.push_back(static_cast<char>(all[i]));
    }
  }
  return names;
}

absl::Status BroadcastNumbers(parallel::Communicator& communicator, absl::Span<double> values) {
  return BroadcastFrom(0, communicator, values);
}

absl::StatusOr<std::string> BroadcastText(parallel::Communicator& communicator,
                                          absl::string_view mine, int root) {
  double size[] = {static_cast<double>(mine.size())};
  TY_RETURN_IF_ERROR(BroadcastFrom(root, communicator, absl::MakeSpan(size)));
  std::string text(static_cast<size_t>(size[0]), '\0');
  std::vector<double> numbers((text.size() + sizeof(double) - 1) / sizeof(double));
  if (communicator.rank() == root && !text.empty()) {
    std::memcpy(numbers.data(), mine.data(), mine.size());
  }
  if (numbers.empty()) return text;
  TY_RETURN_IF_ERROR(BroadcastFrom(root, communicator, absl::MakeSpan(numbers)));
  std::memcpy(text.data(), numbers.data(), text.size());
  return text;
}

absl::Status BroadcastState(parallel::Communicator& communicator, engine::ModelState& executable) {
  for (size_t i = 0; i < executable.state().size(); ++i) {
    std::vector<float> values(
        static_cast<size_t>(engine::ElementCount(executable.state()[i].shape)));
    TY_RETURN_IF_ERROR(executable.ReadState(i, absl::MakeSpan(values)));
    TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(values), 0));
    TY_RETURN_IF_ERROR(executable.WriteState(i, values));
  }
  return absl::OkStatus();
}

absl::Status CheckAgreement(parallel::Communicator& communicator, const std::string& facts) {
  const std::string hash = ContentHash(facts);
  std::vector<float> mine(hash.begin(), hash.end());
  std::vector<float> of_rank_0 = mine;
  TY_RETURN_IF_ERROR(communicator.Broadcast(absl::MakeSpan(of_rank_0), 0));
  if (mine == of_rank_0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", communicator.rank(),
                   " has another spec, model or data set than rank 0; all hosts need the same"));
}

}  // namespace trainyard::trainer
