// Converts statuses. Details travel as google.rpc messages, which generic clients decode too. A
// status from a server that sends no details keeps its code and message.
#include "common/rpc/status.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "trainyard/v1/error.pb.h"

namespace trainyard::rpc {
namespace {

constexpr char kDomain[] = "trainyard";

// Both enumerations use the same numbers for the canonical codes.
grpc::StatusCode ToGrpcCode(absl::StatusCode code) {
  return static_cast<grpc::StatusCode>(static_cast<int>(code));
}

absl::StatusCode FromGrpcCode(grpc::StatusCode code) {
  const int value = static_cast<int>(code);
  const bool is_canonical = value >= 0 && value <= 16;
  return is_canonical ? static_cast<absl::StatusCode>(value) : absl::StatusCode::kUnknown;
}

// Returns at most `max_bytes` of the text, cut at the end of a line if there is one, else between
// two characters.
std::string Shorten(absl::string_view text, size_t max_bytes) {
  constexpr absl::string_view kMark = " ...";
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = text.rfind('\n', max_bytes - kMark.size());
  if (end == absl::string_view::npos || end == 0) {
    end = max_bytes - kMark.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  }
  return absl::StrCat(text.substr(0, end), kMark);
}

google::rpc::BadRequest ToBadRequest(const std::vector<FieldViolation>& violations) {
  google::rpc::BadRequest bad_request;
  size_t bytes = 0;
  for (size_t i = 0; i < violations.size(); ++i) {
    const std::string description = Shorten(violations[i].description, kMessageBytesMax);
    const std::string field = Shorten(violations[i].field, kMessageBytesMax);
    bytes += field.size() + description.size();
    auto* violation = bad_request.add_field_violations();
    if (bytes > kViolationBytesMax) {
      violation->set_description(absl::StrCat("... and ", violations.size() - i, " more"));
      break;
    }
    violation->set_field(field);
    violation->set_description(description);
  }
  return bad_request;
}

// The violation repeats the subject and the message of the status, because generic clients look for
// them there.
google::rpc::QuotaFailure ToQuotaFailure(const absl::Status& status) {
  const std::map<std::string, std::string> metadata = GetErrorMetadata(status);
  const auto subject = metadata.find("subject");
  google::rpc::QuotaFailure failure;
  auto* violation = failure.add_violations();
  if (subject != metadata.end()) violation->set_subject(Shorten(subject->second, kMessageBytesMax));
  violation->set_description(Shorten(status.message(), kMessageBytesMax));
  return failure;
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace

google::rpc::Status ToStatusProto(const absl::Status& status) {
  google::rpc::Status wire;
  wire.set_code(static_cast<int>(status.code()));
  wire.set_message(Shorten(status.message(), kMessageBytesMax));

  google::rpc::ErrorInfo info;
  const std::string reason = ErrorReason(status);
  info.set_reason(reason.empty() ? absl::StatusCodeToString(status.code()) : reason);
  info.set_domain(kDomain);
  for (const auto& [key, value] : GetErrorMetadata(status)) {
    (*info.mutable_metadata())[key] = Shorten(value, kMessageBytesMax);
  }
  wire.add_details()->PackFrom(info);

  const std::vector<FieldViolation> violations = GetFieldViolations(status);
  if (!violations.empty()) wire.add_details()->PackFrom(ToBadRequest(violations));

  if (const auto delay = GetRetryDelay(status)) {
    google::rpc::RetryInfo retry;
    const int64_t nanoseconds = absl::ToInt64Nanoseconds(*delay);
    retry.mutable_retry_delay()->set_seconds(nanoseconds / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
    wire.add_details()->PackFrom(retry);
  }
  if (reason == "QUOTA_EXCEEDED") wire.add_details()->PackFrom(ToQuotaFailure(status));
  return wire;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const google::rpc::Status wire = ToStatusProto(status);
  return grpc::Status(ToGrpcCode(status.code()), wire.message(), wire.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = FromGrpcCode(status.error_code());
  google::rpc::Status wire;
  if (status.error_details().empty() || !wire.ParseFromString(status.error_details())) {
    return absl::Status(code, status.error_message());
  }
  wire.set_code(static_cast<int>(code));
  wire.set_message(status.error_message());
  return FromStatusProto(wire);
}

absl::Status FromStatusProto(const google::rpc::Status& wire) {
  if (wire.code() == 0) return absl::OkStatus();
  const absl::StatusCode code = FromGrpcCode(static_cast<grpc::StatusCode>(wire.code()));
  std::string reason;
  std::map<std::string, std::string> metadata;
  std::vector<FieldViolation> violations;
  google::rpc::RetryInfo retry;
  bool has_retry = false;
  for (const google::protobuf::Any& detail : wire.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    if (detail.UnpackTo(&info)) {
      reason = info.reason();
      metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (detail.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        violations.push_back({violation.field(), violation.description()});
      }
    } else if (detail.UnpackTo(&retry)) {
      has_retry = true;
    }
  }
  absl::Status result =
      reason.empty() ? absl::Status(code, wire.message()) : MakeError(code, reason, wire.message());
  if (!metadata.empty()) SetErrorMetadata(result, metadata);
  if (!violations.empty()) SetFieldViolations(result, violations);
  if (has_retry) SetRetryDelay(result, FromProto(retry.retry_delay()));
  return result;
}

}  // namespace trainyard::rpc
