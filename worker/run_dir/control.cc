// Reads and writes requests. They are files that appear complete: they are written beside their
// place and renamed into it.
#include "worker/run_dir/control.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "worker/run_dir/json_fields.h"

namespace trainyard::run_dir {
namespace {

// These read and write files that contain one decimal number and a newline.
absl::StatusOr<int64_t> DecodeNumberLine(absl::string_view text, absl::string_view file) {
  const absl::string_view digits = absl::StripSuffix(text, "\n");
  int64_t number = 0;
  if (digits.empty() || digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &number)) {
    return error::CorruptFile(file, absl::StrCat("holds ", JsonQuote(text.substr(0, 40)),
                                                 "; expected a decimal number and a newline"));
  }
  return number;
}

constexpr int64_t kMaxNumberBytes = 64;

}  // namespace

std::string EncodeLease(const Lease& lease) {
  return absl::StrCat(absl::ToInt64Microseconds(lease.expire_uptime), "\n");
}

absl::StatusOr<Lease> DecodeLease(absl::string_view text, absl::string_view file) {
  TY_ASSIGN_OR_RETURN(const int64_t micros, DecodeNumberLine(text, file));
  return Lease{absl::Microseconds(micros)};
}

absl::Status WriteLease(const RunDir& dir, const Lease& lease) {
  return ReplaceFile(dir.LeasePath(), EncodeLease(lease));
}

absl::StatusOr<Lease> ReadLease(const RunDir& dir) {
  const std::string path = dir.LeasePath();
  const auto text = ReadRegularFile(path, kMaxNumberBytes);
  if (absl::IsNotFound(text.status())) return Lease{};
  TY_RETURN_IF_ERROR(text.status());
  return DecodeLease(*text, path);
}

absl::StatusOr<int64_t> ReadCheckpointRequest(const RunDir& dir) {
  const std::string path = dir.CheckpointRequestPath();
  const auto text = ReadRegularFile(path, kMaxNumberBytes);
  if (absl::IsNotFound(text.status())) return 0;
  TY_RETURN_IF_ERROR(text.status());
  return DecodeNumberLine(*text, path);
}

absl::Status RequestCheckpoint(const RunDir& dir, int64_t number) {
  TY_RETURN_IF_ERROR(MakeDirectories(dir.ControlDir()));
  return ReplaceFile(dir.CheckpointRequestPath(), absl::StrCat(number, "\n"));
}

std::string EncodeStopRequest(const StopRequest& request) {
  Json json;
  json["reason"] = request.reason;
  json["grace_ms"] = absl::ToInt64Milliseconds(request.grace);
  if (request.reason == kStopDeviceLost) {
    json["message"] = request.message;
    json["rank"] = request.rank;
  }
  return DumpJson(json) + "\n";
}

absl::StatusOr<StopRequest> DecodeStopRequest(absl::string_view text, absl::string_view file) {
  TY_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, file));
  std::vector<FieldViolation> violations;
  FieldReader reader(json, "", violations);
  StopRequest request;
  int64_t grace_ms = absl::ToInt64Milliseconds(request.grace);
  reader.Require("reason");
  reader.String("reason", request.reason);
  constexpr int64_t kMaxGraceMs = 86'400'000;  // one day
  reader.Integer("grace_ms", grace_ms, 0, kMaxGraceMs);
  int64_t rank = 0;
  reader.String("message", request.message);
  reader.Integer("rank", rank, 0, std::numeric_limits<int>::max());
  TY_RETURN_IF_ERROR(FileStatus(file, violations));
  request.grace = absl::Milliseconds(grace_ms);
  request.rank = static_cast<int>(rank);
  return request;
}

absl::Status RequestStop(const RunDir& dir, const StopRequest& request) {
  TY_RETURN_IF_ERROR(MakeDirectories(dir.ControlDir()));
  return WriteFileAtomically(dir.StopRequestPath(), EncodeStopRequest(request));
}

absl::StatusOr<std::optional<StopRequest>> ReadStopRequest(const RunDir& dir) {
  const std::string path = dir.StopRequestPath();
  const auto text = ReadRegularFile(path, kMaxJsonBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  TY_RETURN_IF_ERROR(text.status());
  TY_ASSIGN_OR_RETURN(StopRequest request, DecodeStopRequest(*text, path));
  return request;
}

}  // namespace trainyard::run_dir
